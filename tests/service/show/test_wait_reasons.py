"""The reasons why users wait are counted over time, and logged once if they persist."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from allocator.cluster.engine.wording import BRIEFLY
from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion
from allocator.service.masters.session import SessionStatistics
from allocator.service.show import user_metrics
from allocator.service.show.explain import explain
from allocator.service.show.explanations import collect_facts
from allocator.service.show.label_limiter import AN_HOUR, LabelLimiter
from allocator.service.show.metric_definitions import MetricDefinition, MetricGroup, register
from allocator.service.show.shadows import Shadows
from allocator.service.show.shares import user_shares
from allocator.service.show.user_metrics import LONGEST, ROLES, exposition
from allocator.service.show.wait_reasons import LASTING, MOST_LINES, Waits
from tests.cluster.master_side import MasterSide, framework_info
from tests.service.served import Stream, service


def add(master: MasterSide, framework: str, role: str, **labels: str) -> None:
    info = mesos.FrameworkInfo.FromString(framework_info(framework, role))
    for key, value in labels.items():
        info.labels.labels.add(key=f"longshare.{key}", value=value)
    call = contract.AddFramework(framework_id=framework, active=True)
    call.info = info.SerializeToString()
    master.send(call)


def waiting(limits: Limits | None = None) -> tuple[MasterSide, Waits]:
    """Return a cluster where a holds the only agent, and the task of b fits on no agent."""
    master = MasterSide(limits=limits)
    add(master, "f1", "a")
    master.add_agent("s1", "cpus:4;mem:512")
    add(master, "f2", "b", demand="cpus:100")
    waits = Waits(master.engine, SessionStatistics(connected=True))
    run_to_completion(waits.examine())
    return master, waits


def test_waiting_seconds_by_reason_follow_the_masters_clock() -> None:
    master, waits = waiting()
    master.tick(10)
    run_to_completion(waits.examine())
    master.send(contract.SuppressOffers(framework_id="f2"))
    master.tick(30)
    run_to_completion(waits.examine())
    assert waits.seconds("a") == {"nothing_free": 40.0}
    assert waits.seconds("b") == {"too_large": 10.0, "suppressed": 30.0}
    assert waits.reason("b") == "suppressed"
    assert waits.clients() == {"nothing_free": 1, "suppressed": 1}


def test_time_without_a_master_is_counted_once_as_no_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, waits = waiting()
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    assert isinstance(waits.statistics, SessionStatistics)
    waits.statistics.lead(connected=False)
    for clock[0] in (1007.0, 1012.0):
        run_to_completion(waits.examine())
    waits.statistics.lead(connected=True)
    master.tick(3600)
    run_to_completion(waits.examine())
    assert waits.seconds("b") == {"too_large": 0.0, "no_master": 12.0}


def test_a_users_reason_comes_from_its_framework_closest_to_an_offer() -> None:
    master, waits = waiting()
    add(master, "f3", "b/sub", demand="cpus:1")
    run_to_completion(waits.examine())
    assert waits.reason("b") == waits.reason("b/sub") == "nothing_free"
    assert waits.reason("b/.") == "too_large"


def test_a_removed_framework_has_no_reason() -> None:
    master, waits = waiting()
    master.send(contract.RemoveFramework(framework_id="f2"))
    run_to_completion(waits.examine())
    assert waits.reason("b") is None
    assert waits.clients() == {"nothing_free": 1}


def test_a_persistent_reason_is_logged_once_for_a_framework_without_resources() -> None:
    master, waits = waiting()
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            master.tick(LASTING / 3)
            run_to_completion(waits.examine())
    [line] = lines
    assert (line["framework"], line["reason"]) == ("f2", "too_large")
    assert "1 agent is too small for one of its tasks" in line["because"]


def test_log_lines_of_waiting_frameworks_are_limited_but_none_is_lost() -> None:
    master, waits = waiting()
    for number in range(MOST_LINES):
        add(master, f"g{number}", "c", demand="cpus:100")
    run_to_completion(waits.examine())
    with structlog.testing.capture_logs() as lines:
        for expected in (MOST_LINES, MOST_LINES + 1):
            master.tick(LASTING)
            run_to_completion(waits.examine())
            assert len(lines) == expected


def test_metrics_and_explanations_give_the_same_seconds() -> None:
    master, waits = waiting()
    master.tick(10)
    run_to_completion(waits.examine())
    samples = {
        (sample.name, *(v for _, v in sorted(sample.labels.items(), reverse=True))): sample.value
        for family in told_to_prometheus(master, waits, LabelLimiter(9))
        for sample in family.samples
    }
    assert samples["longshare_user_waited_seconds_total", "b", "too_large"] == 10.0
    assert samples["longshare_waiting_frameworks", "too_large"] == 1.0
    rows = user_shares(master.engine)
    row = next(row for row in rows if row.user == "b")
    facts = run_to_completion(collect_facts(master.engine, "b"))
    explanation = explain(master.engine, row, rows, waits.add_record(facts, "b"))
    assert dict(explanation.waited) == {"too_large": 10.0}
    assert explanation.reasons[0].reason == "too_large"
    assert explanation.words[-1].endswith(f"by reason: {BRIEFLY['too_large']} 10.0 s.")


def test_an_explanation_gives_the_time_of_day_and_the_distance_of_each_beginning() -> None:
    master, waits = waiting()
    add(master, "f3", "c", demand="cpus:1")
    run_to_completion(waits.examine())

    def words() -> str:
        rows = user_shares(master.engine)
        row = next(row for row in rows if row.user == "c")
        facts = run_to_completion(collect_facts(master.engine, "c"))
        return " ".join(explain(master.engine, row, rows, waits.add_record(facts, "c")).words)

    began = datetime.fromtimestamp(master.engine.now, UTC)
    assert "It has held nothing at least since" not in words(), "it has not waited yet"
    for reason_changes in (False, True):
        master.tick(150)
        if reason_changes:
            master.send(contract.SuppressOffers(framework_id="f3"))
        run_to_completion(waits.examine())
    said = words()
    assert f"It has held nothing at least since {began:%H:%M:%S} UTC, 5.0 min ago." in said
    assert f"since the service connected ({began:%H:%M:%S} UTC, 5.0 min ago), by reason: " in said
    for _ in range(48):
        master.tick(3600)
    run_to_completion(waits.examine())
    assert f"nothing at least since {began:%Y-%m-%d %H:%M:%S} UTC, 2.0 d ago." in words()
    master.send(contract.ReviveOffers(framework_id="f3"))
    master.add_agent("s2", "cpus:1;mem:32")
    run_to_completion(waits.examine())
    assert "It has held nothing at least since" not in words(), "it holds an offer"


def test_the_service_updates_wait_reasons_by_itself(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        stream = Stream(running.address)
        info = framework_info("f1", "a")
        stream.open(frameworks=[contract.AddFramework(framework_id="f1", info=info, active=True)])
        running.wait_for_metric('longshare_waiting_frameworks{reason="no_agents"} 1.0')
        stream.close()


def writing(
    master: MasterSide,
    waits: Waits,
    registry: CollectorRegistry,
    listed: LabelLimiter,
    most_roles: int = 9,
) -> Cooperative[bytes]:
    shadows, roles = Shadows({}), LabelLimiter(most_roles)
    return exposition(master.engine, registry, waits, shadows, listed=listed, listed_roles=roles)


def told_to_prometheus(master: MasterSide, waits: Waits, listed: LabelLimiter) -> list[Metric]:
    text = run_to_completion(writing(master, waits, CollectorRegistry(), listed))
    return list(text_string_to_metric_families(text.decode()))


def users_in(families: list[Metric]) -> set[str]:
    return {s.labels["user"] for f in families for s in f.samples if "user" in s.labels}


def test_users_in_metrics_are_limited_and_their_names_shortened() -> None:
    master, waits = waiting()
    names = [f"{number}-{'x' * 900}" for number in range(5)]
    for name in names:
        add(master, f"of {name[0]}", name)
    families = told_to_prometheus(master, waits, LabelLimiter(4))
    users = users_in(families)
    assert {"a", "b"} < users, "the largest and the longest known users stay listed"
    assert len(users) == 4
    assert max(map(len, users)) == LONGEST + 1 + 16
    [unlisted] = [f for f in families if f.name == "longshare_unlisted_users"]
    assert unlisted.samples[0].value == 3


def test_roles_are_selected_once_for_all_metrics_by_the_first_metric_then_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = MasterSide()
    for number, role in enumerate("ced"):  # the roles have 1, 2 and 3 offer filters
        offers = master.add_framework(f"of {role}", role)
        for offer in (*offers, *master.add_agent(f"s{number}", "cpus:4;mem:512")):
            assert master.recover(offer, refuse_seconds=300) == []
        master.send(contract.SuppressOffers(framework_id=f"of {role}"))
    waits = Waits(master.engine, SessionStatistics(connected=True))

    def values(most_roles: int) -> dict[tuple[str, str], float]:
        steps = writing(master, waits, CollectorRegistry(), LabelLimiter(9), most_roles)
        text = run_to_completion(steps).decode()
        samples = (s for f in text_string_to_metric_families(text) for s in f.samples)
        return {(s.name, s.labels["role"]): s.value for s in samples if "role" in s.labels}

    [filters] = ROLES.metrics
    assert values(2) == {(filters.name, "d"): 3.0, (filters.name, "e"): 2.0}
    weights = {"x": 1.0, "c": 4.0, "y": 2.0}
    weight: MetricDefinition[Any] = MetricDefinition(
        "longshare_role_weight",
        "A second metric of roles.",
        lambda _: [((role,), number) for role, number in weights.items()],
        ("role",),
    )
    monkeypatch.setattr(user_metrics, "ROLES", MetricGroup("Roles", (filters, weight)))
    assert values(4) == {
        (filters.name, "d"): 3.0,
        (filters.name, "e"): 2.0,
        (filters.name, "c"): 1.0,
        (weight.name, "c"): 4.0,
        (weight.name, "y"): 2.0,
    }


def test_a_step_of_writing_reads_at_most_one_metric_of_a_registry() -> None:
    def counted(name: str) -> MetricDefinition[list[str]]:
        def read_value(names_read: list[str]) -> float:
            names_read.append(name)
            return 1.0

        return MetricDefinition(name, "A number.", read_value)

    master, waits = waiting()
    names = ["longshare_first", "longshare_second", "longshare_third"]
    registry, names_read = CollectorRegistry(), list[str]()
    register(registry, (MetricGroup("Numbers", tuple(map(counted, names))), names_read))
    steps = writing(master, waits, registry, LabelLimiter(9))
    numbers = [0, *(len(names_read) for _ in steps)]
    assert max(after - before for before, after in pairwise(numbers)) == 1
    assert names_read == names


def test_ever_new_user_names_add_a_limited_number_of_series() -> None:
    master, waits = waiting(Limits(idle_users=1))
    now = 1e6
    listed = LabelLimiter(4, lambda: now)
    exported = users_in(told_to_prometheus(master, waits, listed))
    assert exported == {"a", "b"}
    for number in range(130):  # a new name every 30 s, for a little more than an hour
        now += 30.0
        add(master, f"new {number}", f"new {number}")
        exported |= users_in(told_to_prometheus(master, waits, listed))
        master.send(contract.RemoveFramework(framework_id=f"new {number}"))
        master.tick(30.0)
    assert len(exported) == 4 + 4, "the limit is reached at first, and once more after an hour"
    assert {"a", "b"} <= users_in(told_to_prometheus(master, waits, listed))
    now += AN_HOUR
    add(master, "honest", "honest")
    assert "honest" in users_in(told_to_prometheus(master, waits, listed))


def test_metrics_show_users_that_take_nothing_with_the_reason() -> None:
    def told(master: MasterSide, waits: Waits) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["user"], sample.labels["why"]): sample.value
            for family in told_to_prometheus(master, waits, LabelLimiter(9))
            for sample in family.samples
            if sample.name == "longshare_user_takes_nothing"
        }

    master, waits = waiting()
    run_to_completion(waits.examine())
    assert told(master, waits) == {("b", "no_agent"): 1.0}, "the task of user b needs 100 CPUs"
    master.add_framework("f3", "c")
    [offer] = master.add_agent("s9", "cpus:4;mem:512")
    [next_offer] = master.recover(offer, refuse_seconds=300)
    assert master.recover(next_offer, refuse_seconds=300) == []
    run_to_completion(waits.examine())
    declines = {("a", "declines"): 1.0, ("c", "declines"): 1.0}
    assert told(master, waits) == {("b", "no_agent"): 1.0, **declines}
