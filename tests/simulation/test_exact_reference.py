"""Both simulators start every task when an independent simulator in exact fractions does.

The workloads distinguish implementations: users submit at the same instant, demands are equal, and
zero for some resource. A different user may be chosen only where two priorities differ by less than
rounding.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pytest

from allocator.simulation import fast, reference
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace
from tests.simulation import rational, together
from tests.simulation.rational import Rule, Workload

Simulate: TypeAlias = Callable[[Trace, Setting], Outcome]
DRF = Rule()
HALF = Fraction(1, 2)
SLOWLY = Fraction(9, 10)
RULES = [Rule(HALF), Rule(HALF, "thesis"), Rule(SLOWLY)]
SEEDS = (*range(9), 153)
"""In the last, rounding decides between equals."""
FEW = 20
"""Required number of ties, of some 500 choices."""


def trace_of(workload: Workload) -> Trace:
    tasks = workload.tasks
    return Trace(
        resources=("cpus", "mem"),
        users=tuple(map(str, range(len(workload.weights)))),
        submitted=np.array([task.submitted for task in tasks], np.int64) * MICROSECONDS,
        runtime=np.array([task.runs for task in tasks], np.int64) * MICROSECONDS,
        user=np.array([task.user for task in tasks], np.int32),
        job=np.array([task.user for task in tasks], np.int64),
        demand=np.array([task.needs for task in tasks], np.float64),
        constraint=np.full(len(tasks), UNCONSTRAINED, np.int32),
        weights=tuple(map(float, workload.weights)),
    )


def setting_of(workload: Workload, rule: Rule) -> Setting:
    capacity = tuple(map(float, workload.capacity))
    if rule.delta is None:
        return Setting("drf", {}, capacity)
    return Setting("sdrf", {"delta": float(rule.delta), "form": rule.form}, capacity)


def starts_of(outcome: Outcome) -> list[int | None]:
    return [None if at == NEVER else at // MICROSECONDS for at in outcome.started.tolist()]


def test_the_workloads_are_hard_on_ties() -> None:
    for rule in (DRF, RULES[0]):
        assert sum(exact(seed, rule).ties for seed in SEEDS) > 200
    drawn = [together.draw(seed) for seed in SEEDS]
    assert any(0 in task.needs for workload in drawn for task in workload.tasks)
    for workload in drawn:
        at_once = {task.user for task in workload.tasks if task.submitted == 0}
        assert len(at_once) >= len(workload.weights) // 2


@functools.cache
def exact(seed: int, rule: Rule) -> rational.Found:
    return rational.simulate(together.draw(seed), rule)


def check(simulate: Simulate, rule: Rule, seeds: Iterable[int]) -> int:
    """Hold a simulator against the fractions; return how many choices rounding may have made."""
    unclear = 0
    for seed in seeds:
        workload = together.draw(seed)
        starts = starts_of(simulate(trace_of(workload), setting_of(workload, rule)))
        if exact(seed, rule).starts != starts:
            led = rational.simulate(workload, rule, starts)
            assert rule.delta is not None, f"seed {seed}: without memory nothing is rounded"
            assert led.starts == starts, f"seed {seed}"
            assert led.unclear > 0
            unclear += led.unclear
    return unclear


@pytest.mark.parametrize("rule", [DRF, *RULES], ids=str)
def test_the_reference_decides_as_the_fractions_do(rule: Rule) -> None:
    assert check(reference.simulate, rule, SEEDS) <= FEW


@pytest.mark.slow
@pytest.mark.timeout(600)  # kernels are compiled first
@pytest.mark.parametrize("rule", [DRF, *RULES], ids=str)
def test_the_fast_path_decides_as_the_fractions_do(rule: Rule) -> None:
    assert check(fast.simulate, rule, SEEDS) <= FEW


def test_a_simulator_with_reversed_ties_is_detected() -> None:
    def upside_down(trace: Trace, setting: Setting) -> Outcome:
        last = len(trace.users) - 1
        renumbered = replace(trace, user=(last - trace.user).astype(np.int32))
        return replace(reference.simulate(renumbered, setting), trace=trace)

    with pytest.raises(AssertionError, match="seed"):
        check(upside_down, DRF, SEEDS)
