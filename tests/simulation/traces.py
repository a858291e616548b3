"""Random traces of every shape, for hypothesis."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from allocator.simulation.trace import UNCONSTRAINED, MachineClass, Trace

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_AMOUNTS = st.floats(0, 1e9, allow_subnormal=False)
IN_ONE_FOLDER = [*settings().suppress_health_check, HealthCheck.function_scoped_fixture]
"""Checks of health to leave out where all examples share pytest's `tmp_path`."""


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    resources = draw(st.lists(_NAMES, min_size=1, max_size=3, unique=True))
    users = draw(st.lists(_NAMES, min_size=1, max_size=5, unique=True))
    machines = [
        MachineClass(
            name,
            draw(st.integers(1, 9)),
            tuple(draw(_AMOUNTS) for _ in resources),
            draw(st.dictionaries(_NAMES, _NAMES, max_size=2)),
        )
        for name in draw(st.lists(_NAMES, max_size=3, unique=True))
    ]
    classes = st.sets(st.integers(0, len(machines) - 1), min_size=1) if machines else st.nothing()
    constraints = draw(st.lists(classes.map(sorted).map(tuple), max_size=3)) if machines else []
    tasks = draw(st.integers(0, 20))

    def column(numbers: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(numbers, min_size=tasks, max_size=tasks))

    demand = np.array(
        [[draw(_AMOUNTS) for _ in resources] for _ in range(tasks)], np.float64
    ).reshape(tasks, len(resources))
    demand[:, 0] += 1.0
    return Trace(
        resources=tuple(resources),
        users=tuple(users),
        submitted=np.array(sorted(column(st.integers(0, 2**50))), np.int64),
        runtime=np.array(column(st.integers(0, 2**50)), np.int64),
        user=np.array(column(st.integers(0, len(users) - 1)), np.int32),
        job=np.array(column(st.integers(0, 2**63 - 1)), np.int64),
        demand=demand,
        constraint=np.array(column(st.integers(UNCONSTRAINED, len(constraints) - 1)), np.int32),
        machines=tuple(machines),
        constraints=tuple(constraints),
        weights=draw(st.sampled_from([(), tuple(1.0 + place for place in range(len(users)))])),
        commitments=draw(st.sampled_from([(), ((0.25,) * len(resources),) * len(users)])),
    )


def same(first: Trace, second: Trace) -> bool:
    """Whether two traces are equal to the last bit."""
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("submitted", "runtime", "user", "job", "demand", "constraint")
    ) and all(
        getattr(first, name) == getattr(second, name)
        for name in ("resources", "users", "machines", "constraints", "weights", "commitments")
    )
