"""The reference starts every task when the paper authors' own simulator does.

Users are taken in the pool's order throughout. Only among exactly equal users may the oracle's
choice be followed, and each such case is counted.

The authors' results on a synthetic workload are not in this repository. The environment variable
LONGSHARE_ORACLE names their folder: `workload.csv` and `starts-*.csv`.
"""

import csv
import os
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

from allocator.simulation.order import Exact
from allocator.simulation.reference import ReferenceSimulation, simulate
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.summary import users_of
from allocator.simulation.trace import UNCONSTRAINED, Trace, numbered

ORACLE = os.environ.get("LONGSHARE_ORACLE")

pytestmark = pytest.mark.skipif(
    ORACLE is None, reason="LONGSHARE_ORACLE does not name a folder with the authors' decisions"
)

CAPACITY = (63.792103797377145, 186.70845072213896)


def folder() -> Path:
    assert ORACLE is not None
    return Path(ORACLE)


def workload() -> tuple[Trace, list[str]]:
    """Return the trace and the names of its tasks."""
    with (folder() / "workload.csv").open(newline="") as lines:
        rows = list(csv.reader(lines))
    users, user = numbered([row[3] for row in rows])
    submitted = np.array([int(row[0]) for row in rows], np.int64)
    trace = Trace(
        resources=("cpus", "mem"),
        users=users,
        submitted=submitted,
        runtime=np.array([int(row[2]) for row in rows], np.int64) - submitted,
        user=user,
        job=user.astype(np.int64),
        demand=np.array([[float(row[5]), float(row[6])] for row in rows]),
        constraint=np.full(len(rows), UNCONSTRAINED, np.int32),
    )
    return trace, [row[4] for row in rows]


def starts_of_oracle(name: str, tasks: list[str]) -> list[float]:
    with (folder() / f"starts-{name}.csv").open(newline="") as lines:
        starts = {task: float(start) for _user, task, _submit, start, _end in csv.reader(lines)}
    assert starts.keys() == set(tasks)
    return [starts[task] for task in tasks]


class Guided(ReferenceSimulation):
    """The reference simulator, which follows the oracle's choice among exactly equal users."""

    def __init__(self, trace: Trace, setting: Setting, expected: list[float]) -> None:
        super().__init__(trace, setting)
        self.expected = expected
        self.against_the_rule: list[int] = []
        """Tasks that the oracle started while an equal user with a lower number was waiting."""

    @override
    def next_user(self) -> int:
        assert isinstance(self.pool, Exact)
        first = self.pool.minimum()
        if self.expected[self.waiting[first][0]] == self.now:
            return first
        least = self.pool.standing(first).priority
        standing = self.pool.standing
        for user in takewhile(lambda user: standing(user).priority == least, self.pool):
            task = self.waiting[user][0]
            if self.expected[task] == self.now:
                self.against_the_rule.append(task)
                return user
        return first


@pytest.mark.parametrize(
    ("oracle", "policy", "parameters", "against_the_rule", "wait"),
    [
        # The authors' DRF queue relabels a removed entry inside a sorted list, so the list is
        # temporarily out of order, and one of 1,034 ties falls to a higher number.
        pytest.param("drf", "drf", {}, ["8-63"], 2011.179, id="drf"),
        pytest.param("sdrf-0.9999", "sdrf", {"delta": 0.9999}, [], 1901.551, id="live-tree"),
        pytest.param(
            "sdrf-0.9999", "sdrf", {"delta": 0.9999, "ranking": "scan"}, [], 1901.551, id="scan"
        ),
    ],
)
def test_every_task_starts_when_the_authors_simulator_starts_it(
    oracle: str,
    policy: str,
    parameters: dict[str, float | str],
    against_the_rule: list[str],
    wait: float,
) -> None:
    trace, tasks = workload()
    expected = starts_of_oracle(oracle, tasks)
    simulation = Guided(trace, Setting(policy, parameters, CAPACITY), expected)
    outcome = simulation.run()
    differing = [
        task
        for task, start, reference_start in zip(tasks, outcome.started, expected, strict=True)
        if start != reference_start
    ]
    assert not differing
    assert [tasks[task] for task in simulation.against_the_rule] == against_the_rule
    assert users_of(outcome).mean_wait_s.mean() == pytest.approx(wait, abs=5e-4)


def test_under_sdrf_no_guidance_is_needed() -> None:
    trace, tasks = workload()
    outcome = simulate(trace, Setting("sdrf", {"delta": 0.9999}, CAPACITY))
    assert outcome.started.tolist() == starts_of_oracle("sdrf-0.9999", tasks)


def test_under_drf_no_start_before_the_broken_tie_needs_guidance() -> None:
    trace, tasks = workload()
    expected = np.array(starts_of_oracle("drf", tasks))
    started = simulate(trace, Setting("drf", capacity=CAPACITY)).started
    tie = expected[tasks.index("8-63")]
    first = np.minimum(started, expected)[started != expected].min()
    assert first == tie


def test_the_oracles_capacity_is_a_load_of_60_percent() -> None:
    assert capacity_at(workload()[0], 0.6) == pytest.approx(CAPACITY, rel=1e-15)
