"""Comparison of measured with expected figures: arithmetic of means, peaks, leads and claims."""

import dataclasses
import json
from pathlib import Path

import pytest

from allocator import __version__
from frameworks import experiment
from frameworks.harness.figure import draw, draw_shares
from frameworks.harness.measurement import (
    Measurement,
    last,
    mean,
    read_recorder,
    write_table,
)
from frameworks.harness.verdict import Verdict, expectation, expected_cpus, judge

ADAPTIVE = experiment.load("sdrf-adaptive")


def ideal(e: experiment.Experiment) -> Measurement:
    """A run that follows the optimum exactly, and uses all resources."""
    measured = expected_cpus(e, expectation(e))
    measured.running["all"] = {float(when): 160.0 for when in range(1, 601)}
    return measured


def judged(measured: Measurement, e: experiment.Experiment = ADAPTIVE) -> Verdict:
    return judge(e, measured, expected_cpus(e, expectation(e)), seed=3, speed=10.0)


@pytest.mark.parametrize(
    "name", [name for name in experiment.names() if experiment.load(name).divisible]
)
def test_a_run_like_the_optimum_agrees(name: str) -> None:
    e = experiment.load(name)
    verdict = judged(ideal(e), e)
    assert verdict.agrees, verdict.claims
    for phase in verdict.phases:
        for user in phase.users.values():
            assert user.cpus == user.expected_cpus


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("drf-baseline", [[160], [80, 80], [160 / 3] * 3, [40] * 4]),
        (
            "sdrf-initial-commitments",
            [[160], [72, 88], [112 / 3, 160 / 3, 208 / 3], [16, 32, 48, 64]],
        ),
    ],
)
def test_expected_figures_are_those_of_the_paper(name: str, phases: list[list[float]]) -> None:
    e = experiment.load(name)
    for phase, cpus in zip(judged(ideal(e), e).phases, phases, strict=True):
        expected = [user.expected_cpus for user in phase.users.values()]
        assert expected == pytest.approx([*cpus, 0, 0, 0][:4], abs=0.02)


def test_a_run_with_a_user_below_its_entitlement_does_not_agree() -> None:
    e = experiment.load("drf-baseline")
    measured = ideal(e)
    measured.cpus["C"] = {when: value * 0.9 for when, value in measured.cpus["C"].items()}
    verdict = judged(measured, e)
    assert not verdict.agrees
    assert [finding.holds for finding in verdict.claims] == [False, True]


def test_a_run_that_leaves_cores_idle_does_not_agree() -> None:
    measured = ideal(ADAPTIVE)
    measured.running["all"] |= {float(when): 150.0 for when in range(200, 601)}
    verdict = judged(measured)
    assert verdict.utilization == pytest.approx((199 * 160 + 401 * 150) / 600 / 160, abs=1e-3)
    assert not verdict.agrees


def test_ramp_up_does_not_count_but_later_samples_do() -> None:
    measured = ideal(ADAPTIVE)
    measured.running["all"] |= {float(when): 10.0 for when in range(1, 11)}
    assert judged(measured).utilization == 1.0


def test_a_run_that_never_fills_the_cluster_counts_from_the_beginning() -> None:
    measured = ideal(ADAPTIVE)
    measured.running["all"] = {float(when): 80.0 for when in range(1, 601)}
    assert judged(measured).utilization == 0.5


@pytest.mark.parametrize(
    ("user", "factor", "broken"), [("B", 0.3, 1), ("D", 2.0, 2)], ids=["B leads", "D leads"]
)
def test_leads_are_bounded_from_below_and_from_above(user: str, factor: float, broken: int) -> None:
    measured = ideal(ADAPTIVE)
    measured.cpus[user] = {when: factor * value for when, value in measured.cpus[user].items()}
    holds = [finding.holds for finding in judged(measured).claims]
    assert [number for number, held in enumerate(holds) if not held] == [broken, 4]


def test_a_wrong_commitment_is_detected() -> None:
    measured = ideal(ADAPTIVE)
    measured.commitments["A"] = dict.fromkeys(measured.commitments["A"], 0.5)
    assert [finding.holds for finding in judged(measured).claims] == [False] + 4 * [True]


def test_claims_about_commitments_need_a_master_that_reports_commitments() -> None:
    measured = ideal(ADAPTIVE)
    measured.commitments = {}
    verdict = judged(measured)
    assert verdict.agrees
    assert not any("commitment" in finding.claim for finding in verdict.claims)


def test_the_summary_has_the_promised_keys_and_is_json() -> None:
    summary = json.loads(json.dumps(judged(ideal(ADAPTIVE)).summary()))
    assert {"experiment", "policy", "seed", "utilization", "agrees", "phases"} <= summary.keys()
    assert summary["seed"] == 3
    assert {"start", "end", "users"} <= summary["phases"][0].keys()
    assert summary["phases"][0]["users"]["A"].keys() == {
        "cpus",
        "expected_cpus",
        "commitment",
        "peak_cpus",
    }


def test_means_are_of_the_samples_in_the_interval() -> None:
    series = {0.0: 1.0, 1.0: 2.0, 2.0: 6.0, 3.0: 100.0}
    assert mean(series, 1.0, 3.0) == 4.0
    assert mean(series, 5.0, 9.0) == 0.0
    assert last(series, 2.5) == 6.0
    assert last({}, 2.5) == 0.0


def test_the_recorders_file_is_read_back_relative_to_the_start(tmp_path: Path) -> None:
    path = tmp_path / "recorder.csv"
    path.write_text(
        "time,user,resource,allocation,share,commitment,priority\n"
        "99.000,A,cpus,1,0.1,0.1,0\n"
        "100.000,A,cpus,2,0.2,0.1,0\n"
        "100.000,A,mem,2048,0.2,0.3,0\n"
        "161.000,A,cpus,9,0.2,0.1,0\n"
    )
    measured = read_recorder(path, 100.0, 160.0)
    assert measured.cpus == {"A": {0.0: 2.0}}
    assert measured.commitments == {"A": {0.0: 0.3}}, "the commitment in the dominant resource"


def test_tables_have_a_column_for_each_user(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", {"A": {0.0: 1.0, 1.0: 2.5}, "B": {1.0: 4.0}})
    assert (tmp_path / "t.csv").read_text().split() == [
        "time,A,B",
        "0.000,1,0",
        "1.000,2.5,4",
    ]


@pytest.mark.parametrize("name", experiment.names())
def test_a_figure_is_drawn_and_names_the_version(name: str, tmp_path: Path) -> None:
    e = experiment.load(name)
    if e.divisible:
        measured = ideal(e)
        path = draw(e, measured, dataclasses.replace(measured), tmp_path)
    else:
        measured = Measurement(running={u.name: {0.0: 1.0, 9.0: 2.0} for u in e.users})
        path = draw_shares(e, measured, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "figure.svg").read_text()
    assert drawn.count("<path") > 20
    assert f"<!-- Longshare {__version__} -->" in drawn


@pytest.mark.parametrize(("tasks", "agrees"), [(48.5, True), (47.5, False), (52.5, False)])
def test_task_shares_count_tasks_relative_to_the_whole_cluster(
    tasks: float, *, agrees: bool
) -> None:
    e = experiment.load("tsf-micro")
    running = {"job-1": 50.0, "job-2": 0.5 * tasks, "job-3": 10.0, "job-4": 15.0}
    measured = Measurement(
        running={name: {float(t): cpus for t in range(70)} for name, cpus in running.items()}
        | {name: {float(t): running[name] for t in range(100, 240)} for name in ("job-3", "job-4")}
    )
    measured.running["job-1"] |= {float(t): 45.0 for t in range(100, 240)}
    verdict = judge(e, measured, Measurement(), seed=1, speed=1.0)
    assert [claim.holds for claim in verdict.claims] == [agrees, True]
    assert f"job-2: {tasks / 100:.3f}" in verdict.claims[0].claim


def test_an_overloaded_machine_is_distinguished_from_a_failed_policy() -> None:
    measured = ideal(ADAPTIVE)
    assert not judged(measured).too_slow
    measured.running["all"] = {float(when): 100.0 for when in range(1, 601)}
    verdict = judged(measured)
    assert not verdict.agrees
    assert verdict.too_slow
    assert verdict.in_offers == pytest.approx(60 / 160, abs=0.01)
    measured.cpus = measured.running  # the only figure known of a foreign master
    assert not judged(measured).too_slow
