"""Small workloads in which tasks compete: equal demands, equal instants, zero run times."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from allocator.simulation.trace import UNCONSTRAINED, MachineClass, Trace

RESOURCES = ("cpus", "mem", "gpus")
SECOND = 1_000_000
T = TypeVar("T")


@st.composite
def pooled_workloads(draw: st.DrawFn) -> tuple[Trace, tuple[float, ...]]:
    """Return a trace without machines, and a capacity that a few tasks fill."""
    tasks = draw(st.integers(1, 60))
    users = draw(st.integers(1, 9))
    resources = draw(st.integers(1, 3))
    tick = draw(st.sampled_from([1, 1000, SECOND, 7 * SECOND, 3600 * SECOND]))
    amounts = draw(
        st.sampled_from(
            [
                st.just(1.0),
                st.integers(0, 3).map(float),
                st.sampled_from([0.0, 0.1, 0.2, 0.5]),
                st.floats(0.0, 1.0, allow_subnormal=False),
            ]
        )
    )

    def column(numbers: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(numbers, min_size=tasks, max_size=tasks))

    row = st.tuples(*[amounts] * resources)
    demand = np.array(draw(st.lists(row, min_size=tasks, max_size=tasks)), np.float64)
    demand[~demand.any(axis=1), 0] = 1.0
    user = column(st.integers(0, users - 1))
    seen = {name: number for number, name in enumerate(dict.fromkeys(user))}
    user = [seen[name] for name in user]
    trace = Trace(
        resources=RESOURCES[:resources],
        users=tuple(str(number) for number in range(users)),
        submitted=np.array(sorted(column(st.integers(0, draw(st.integers(0, 40))))), np.int64)
        * tick,
        runtime=np.array(column(st.integers(0, draw(st.integers(0, 20)))), np.int64) * tick,
        user=np.array(user, np.int32),
        job=np.array([10 * u + j for u, j in zip(user, column(st.integers(0, 2)), strict=True)]),
        demand=demand,
        constraint=np.full(tasks, UNCONSTRAINED, np.int32),
        weights=draw(_maybe(st.sampled_from([0.3, 1.0, 2.0, 7.0]), users)),
        commitments=draw(
            _maybe(st.tuples(*[st.sampled_from([0.0, 0.1, 1 / 3, 2.0])] * resources), users)
        ),
    )
    capacity = tuple(
        float(draw(st.sampled_from([0.7, 1.0, 1.5, 2.0, 3.0, 10.0])) * most)
        for most in demand.max(axis=0)
    )
    return trace, capacity


def _maybe(elements: st.SearchStrategy[T], users: int) -> st.SearchStrategy[tuple[T, ...]]:
    """Draw a value for each user, or an empty tuple."""
    return st.one_of(st.just(()), st.lists(elements, min_size=users, max_size=users).map(tuple))


@st.composite
def machine_workloads(draw: st.DrawFn) -> Trace:
    """Return a trace with a few machines; some classes are closed to some tasks."""
    trace, _capacity = draw(pooled_workloads())
    most = trace.demand.max(axis=0)
    sizes = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 4.0])
    machines = tuple(
        MachineClass(
            str(number),
            draw(st.integers(1, 4)),
            tuple(float(draw(sizes) * amount) for amount in most),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    allowed = st.lists(st.sampled_from(range(len(machines))), max_size=4, unique=True)
    constraints = tuple(map(tuple, draw(st.lists(allowed, max_size=3))))
    numbers = st.integers(UNCONSTRAINED, len(constraints) - 1)
    constraint = draw(st.lists(numbers, min_size=len(trace), max_size=len(trace)))
    return replace(
        trace,
        machines=machines,
        constraints=constraints,
        constraint=np.array(constraint, np.int32),
    )
