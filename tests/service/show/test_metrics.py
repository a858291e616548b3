"""Prometheus metrics agree with the state of the engine."""

import csv
import json
import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.service.show import mesos_metrics, metrics, user_metrics
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.counted import counted
from tests.service.served import Service, Stream, service

SETTINGS = """
[policy]
name = "sdrf"
delta = 0.99
[[users.declared]]
name = "a"
[[users.declared]]
name = "b"
weight = 3.0
commitment = 0.25
"""


def scrape(running: Service) -> dict[tuple[str, ...], float]:
    """Return the samples of a scrape: (name, user or role, values of other labels) → value."""
    with urllib.request.urlopen(running.metrics_url) as answer:
        text = answer.read().decode()

    def labels_of(sample: Sample) -> list[str]:
        return sorted(sample.labels, key=lambda label: (label not in {"user", "role"}, label))

    return {
        (sample.name, *map(sample.labels.__getitem__, labels_of(sample))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_agree_with_the_recorder_and_the_equations(tmp_path: Path) -> None:
    with service(tmp_path, SETTINGS) as running:
        stream = Stream(running.address)
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", {"f1": resources("cpus:3;mem:1024", "a")})],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "a"), active=False
                )
            ],
        )
        stream.now_ns += 50 * SECOND
        stream.tell(tick=contract.Tick())
        seen = scrape(running)
        health = running.metrics_url.replace("/metrics", "/healthz")
        with urllib.request.urlopen(health) as answer:
            assert json.load(answer) == {"status": "ok", "connected": True}
        stream.close()
        assert running.stop() == 0
    owed = 0.5 * (1 - 0.99**50)
    assert seen["longshare_user_allocation", "a", "cpus"] == 3.0
    assert seen["longshare_user_share_ratio", "a", "mem"] == 0.25
    assert seen["longshare_user_commitment_ratio", "a", "cpus"] == pytest.approx(owed)
    assert seen["longshare_user_dominant_commitment_ratio", "b"] == pytest.approx(0.25 * 0.99**50)
    assert seen["longshare_user_weight", "b"] == 3.0
    assert (seen["longshare_user_rank", "b"], seen["longshare_user_rank", "a"]) == (1, 2)
    assert seen["longshare_capacity", "cpus"] == 4.0
    assert seen["longshare_session_connected",] == 1.0
    assert seen["longshare_snapshots_total",] == 1.0
    assert seen["longshare_candidates_total",] == 1.0
    assert seen["longshare_message_duration_seconds_count", "decide"] == 2.0
    with running.recording.open() as file:
        last = {(row["user"], row["resource"]): row for row in csv.DictReader(file)}
    for (user, resource), row in last.items():
        for column, name in {
            "allocation": "longshare_user_allocation",
            "share": "longshare_user_share_ratio",
            "commitment": "longshare_user_commitment_ratio",
        }.items():
            assert float(row[column]) == pytest.approx(seen[name, user, resource], rel=1e-4)


def test_quota_and_offer_filters_are_shown_by_role_while_in_force(tmp_path: Path) -> None:
    guarantee = mesos.QuotaInfo(role="a")
    guarantee.guarantee.append(mesos.Resource.FromString(resources("cpus:2.5")[0]))
    with service(tmp_path, SETTINGS) as running:
        stream = Stream(running.address)
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", {"f1": resources("cpus:1;mem:512", "a")})],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "a"), active=False
                )
            ],
            quotas=[contract.SetQuota(role="a", info=guarantee.SerializeToString())],
        )
        stream.tell(
            recover_resources=contract.RecoverResources(
                framework_id="f1",
                agent_id="s1",
                resources=resources("mem:512", "a"),
                filters=mesos.Filters(refuse_seconds=100).SerializeToString(),
            )
        )
        during = scrape(running)
        stream.tell(remove_quota=contract.RemoveQuota(role="a"))
        after = scrape(running)
    assert during["longshare_quota_guarantee", "a", "cpus"] == 2.5
    assert during["longshare_quota_consumed", "a", "cpus"] == 1.0
    assert during["longshare_role_offer_filters", "a"] == 1.0
    assert ("longshare_quota_guarantee", "a", "cpus") not in after
    assert after["longshare_role_offer_filters", "a"] == 1.0


def test_names_follow_prometheus_conventions(tmp_path: Path) -> None:
    with (
        service(tmp_path, SETTINGS) as running,
        urllib.request.urlopen(running.metrics_url) as answer,
    ):
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("longshare_")
        assert family.documentation.endswith(".")
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith("_total")
            assert "milli" not in sample.name


def test_the_service_shows_exactly_the_defined_metrics_with_their_types(tmp_path: Path) -> None:
    defined = {
        metric.name: metric.kind
        for group in (*user_metrics.GROUPS, *metrics.GROUPS, *mesos_metrics.GROUPS)
        for metric in group.metrics
    }
    settings = '[policy]\nname = "tsf"\n[[shadow]]\nname = "drf"\n[accounting]\n'
    record = ["--record", str(tmp_path / "events")]
    with (
        service(tmp_path, settings, arguments=record) as running,
        urllib.request.urlopen(running.metrics_url) as answer,
    ):
        shown = dict(re.findall(r"^# TYPE (\S+) (\S+)", answer.read().decode(), re.MULTILINE))
    assert shown == defined


def test_the_name_of_a_metric_ends_with_its_unit() -> None:
    endings = {
        "fraction": "_ratio",
        "amount × seconds": "_resource_seconds",
        "seconds": "_seconds",
        "seconds since 1970": "_timestamp_seconds",
    }
    for group in (*user_metrics.GROUPS, *metrics.GROUPS, *mesos_metrics.GROUPS):
        for metric in group.metrics:
            name = metric.name.removesuffix("_total")
            ending = endings.get(metric.unit)
            assert ending is None or name.endswith(ending), metric.name
            assert ending is not None or not name.endswith(tuple(endings.values())), metric.name


def test_without_a_master_nothing_is_connected(tmp_path: Path) -> None:
    with service(tmp_path, SETTINGS) as running:
        assert scrape(running)["longshare_session_connected",] == 0.0


def test_durations_of_messages_are_exported_as_the_library_exports_a_histogram() -> None:
    definition = mesos_metrics.MESSAGE_DURATION
    ours, reference = CollectorRegistry(), CollectorRegistry()
    durations = mesos_metrics.MessageDurations()
    ours.register(durations)
    histogram = Histogram(
        definition.name,
        definition.text,
        labelnames=definition.labels,
        buckets=definition.buckets,
        registry=reference,
    )
    for phase, seconds in (("decide", 0.0001), ("decide", 0.0002), ("write", 20.0), ("write", 0)):
        durations.observe(phase, seconds)
        histogram.labels(phase).observe(seconds)
    lines = generate_latest(reference).decode().splitlines()
    expected = [line for line in lines if f"{definition.name}_created" not in line]
    assert generate_latest(ours).decode().splitlines() == expected


def test_many_durations_are_counted_as_the_library_counts_each() -> None:
    buckets = mesos_metrics.MESSAGE_DURATION.buckets
    durations, registry = mesos_metrics.MessageDurations(), CollectorRegistry()
    registry.register(durations)
    reference = Histogram("reference", "text", buckets=buckets, registry=None)
    for number in range(1000):
        seconds = (*buckets, 0.0, 0.002, 20.0)[number * 7 % (len(buckets) + 3)]
        durations.observe("decide", seconds)
        reference.observe(seconds)
    (family,), (expected,) = registry.collect(), reference.collect()
    counted_values = {
        sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels
    }
    assert counted_values == {
        sample.labels["le"]: sample.value for sample in expected.samples if "le" in sample.labels
    }


def test_counting_the_duration_of_a_message_takes_few_calls() -> None:
    durations = mesos_metrics.MessageDurations()
    durations.observe("decide", 0.001)
    assert counted(lambda: durations.observe("decide", 0.001)) <= 5
