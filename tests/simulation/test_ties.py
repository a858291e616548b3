"""A simulation follows the rule for ties at every instant."""

import random
from typing import Literal

import pytest

from allocator.simulation.reference import simulate
from allocator.simulation.setting import Setting
from tests.simulation.crowded import trace_of

POLICIES = ["slurm-fair-tree", "kueue-afs", "volcano", "htcondor", "dynamic-drf", "karma"]


@pytest.mark.parametrize("blocking", ["head-of-line", "skip"])
@pytest.mark.parametrize("policy", POLICIES)
def test_eight_free_cpus_are_two_each_for_four_equals_at_every_start_time(
    policy: str, blocking: Literal["head-of-line", "skip"]
) -> None:
    chance = random.Random(43)
    for _ in range(50):
        start = round(chance.uniform(10.0, 1e6), 6)
        rows = [(1.0, start - 1.0, "e", 8.0, 1.0)]
        rows += [(2.0, 3600.0, user, 1.0, 0.0) for user in "abcd" for _task in range(8)]
        trace = trace_of(rows)
        outcome = simulate(trace, Setting(policy, capacity=(8.0, 8.0), blocking=blocking))
        at_start = outcome.started == round(start * 1e6)
        given = [int(at_start[trace.user == trace.users.index(user)].sum()) for user in "abcd"]
        assert given == [2, 2, 2, 2], start
