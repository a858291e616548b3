"""Generates an hour like the one of Google's cluster on which TSF was simulated.

The source is the TSF paper, §VI-B and Fig. 8.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocator.simulation.generator import jobs as job_sizes
from allocator.simulation.generator.jobs import JobLimits, Jobs, as_trace, demands, sizes
from allocator.simulation.generator.moments import CHOSEN, TSF, Moment
from allocator.simulation.statistics import statistics
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, MachineClass, Trace

TASKS = 180_000
FEWEST = 9_000
"""Smallest allowed number of tasks; fewer would leave less than 50 machines."""
ATTRIBUTES = 21
CLASSES = (
    ("small-mem", 0.312, 16.0, 16.0),
    ("medium-mem", 0.543, 16.0, 32.0),
    ("large-mem", 0.081, 16.0, 48.0),
    ("large", 0.064, 32.0, 64.0),
)
"""Machine classes as (name, fraction of machines, cores, GiB).

They are the four most common kinds of Google's machines, which make up 98 % of all. The largest
counts as 32 cores and 64 GiB, because only ratios are published.
"""

_TASKS_OF_MACHINE = 180
_VARIANTS = 8
"""Number of different sets of attributes in each machine class."""
_AT_MOST_TOGETHER = 3
"""Maximum number of attributes that one job requires."""

_EVERYWHERE = 0.18
"""Fraction of jobs that may run on every machine (published: below 20 %)."""
_PICKY = 0.5
"""Fraction of jobs that may run on a fifth of the machines or fewer."""
_FIFTH = 0.2
_FEWEST_MACHINES = 0.02
_NEAREST = 5
"""Number of candidate constraints that allow about the wanted number of machines.

One of them is drawn.
"""

_SECONDS = 3600
_LOAD = 5.0
"""Total demand divided by total capacity of the hour.

Under fair sharing, about two jobs in five then wait for their first task, as published.
"""
_USERS = 100
_JOB_SPREAD = 0.5
_LIMITS = JobLimits(spread=0.3, shortest=1.0, longest=4 * 3600)


def generate(seed: int, tasks: int = TASKS, progress: Callable[[int], None] | None = None) -> Trace:
    """Generate an hour of constrained tasks, as described in the TSF paper, §VI-B.

    Equal seed and tasks give equal traces. There are 1000 machines in four classes of capacity.
    Machines of a class have one of a few sets of 21 attributes, and a job requires up to three
    attributes. With fewer tasks, the numbers of machines and jobs shrink in proportion.

    Args:
        seed: Seed of all random numbers.
        tasks: Number of tasks, at least FEWEST.
        progress: Called now and then with the number of tasks generated since the last call.

    Raises:
        ValueError: There are too few tasks.
    """
    if tasks < FEWEST:
        raise ValueError(f"{tasks} tasks are too few, at least {FEWEST}")
    random = np.random.default_rng(seed)
    machines, present = _machines(random, tasks // _TASKS_OF_MACHINE)
    count = tasks // job_sizes.MEAN
    size = sizes(random, count, tasks)
    constraints, constraint = _constraints(random, machines, present, count)
    demand = np.column_stack(
        (
            demands(random, count, 0.6, 0.8, (0.1, 8.0)),
            demands(random, count, 0.6, 1.0, (0.1, 12.0)),
        )
    )
    runtime = np.exp(random.normal(0.0, _JOB_SPREAD, count))
    cores = sum(machine.count * machine.capacity[0] for machine in machines)
    offered = (size * runtime) @ demand[:, 0] * np.exp(_LIMITS.spread**2 / 2)
    jobs = Jobs(
        submitted=np.sort(random.integers(0, _SECONDS * MICROSECONDS, count)),
        size=size,
        user=np.floor(_USERS * random.random(count) ** 2).astype(np.int64),
        runtime=runtime * (_LOAD * cores * _SECONDS / offered),
        demand=demand,
        constraint=constraint,
    )
    return as_trace(
        random,
        jobs,
        _LIMITS,
        resources=("cpus", "mem"),
        machines=machines,
        constraints=constraints,
        progress=progress,
    )


def moments(trace: Trace, tasks: int) -> list[Moment]:
    """Compare properties of a generated hour with those of real hours, given in the TSF paper.

    Args:
        trace: The generated hour.
        tasks: The argument `tasks` with which the trace was generated.
    """
    measured = statistics(trace)
    machines = tasks // _TASKS_OF_MACHINE
    size = np.bincount(trace.job)
    allowed = _allowed_machines(trace)
    cores = float(trace.capacity()[0])
    load = float(trace.runtime @ trace.demand[:, 0]) / MICROSECONDS / (cores * _SECONDS)
    return [
        Moment("machines", machines, "=", measured.machines, TSF),
        Moment("classes of capacity", 4, "=", len({m.capacity for m in trace.machines}), TSF),
        Moment("attributes", ATTRIBUTES, "=", _attributes(trace), TSF),
        Moment("jobs", tasks // job_sizes.MEAN, "=", measured.jobs, TSF),
        Moment("tasks", tasks, "=", measured.tasks, TSF),
        Moment("hours of submissions", 1, "=", (measured.last_s - measured.first_s) / 3600, TSF),
        Moment("tasks of the biggest job", job_sizes.LARGEST, "=", int(size.max()), TSF),
        Moment("jobs of one task, part", 0.6, "≥", float(np.mean(size == 1)), TSF),
        Moment("jobs of 10 tasks or fewer, part", 0.86, "=", float(np.mean(size <= 10)), TSF),
        Moment(
            "tasks of jobs of 10 tasks or fewer, part",
            8_000 / TASKS,
            "≤",
            float(size[size <= 10].sum() / tasks),
            TSF,
        ),
        Moment(
            "jobs that can run on all machines, part",
            0.2,
            "≤",
            float(np.mean(allowed == measured.machines)),
            TSF,
        ),
        Moment(
            "jobs that can run on a fifth of the machines or fewer, part",
            _PICKY,
            "=",
            float(np.mean(allowed <= _FIFTH * measured.machines)),
            TSF,
        ),
        Moment("cores asked for over the hour, over all cores", _LOAD, "=", load, CHOSEN),
    ]


def _machines(random: Generator, count: int) -> tuple[tuple[MachineClass, ...], NDArray[np.bool_]]:
    """Draw the machine classes, and the attributes of each class.

    Args:
        random: Random generator.
        count: Number of machines.

    Returns:
        The classes; and a mask of the attributes that each class has, shape (classes, ATTRIBUTES).
    """
    sizes_of_variants = []
    remaining = count
    for index, (_, fraction, _, _) in enumerate(CLASSES, 1):
        number = round(fraction * count) if index < len(CLASSES) else remaining
        remaining -= number
        variants = min(_VARIANTS, number)
        weight = random.dirichlet(np.full(variants, 2.0))
        sizes_of_variants.append(1 + random.multinomial(number - variants, weight))
    total = sum(map(len, sizes_of_variants))
    common = np.rint(np.linspace(0.1, 0.9, ATTRIBUTES) * total)  # each attribute occurs
    present = np.column_stack([random.permutation(total) < number for number in common])
    machines: list[MachineClass] = []
    for (name, _, cores, gib), of_variants in zip(CLASSES, sizes_of_variants, strict=True):
        for variant, number in enumerate(of_variants.tolist(), 1):
            having = np.flatnonzero(present[len(machines)]) + 1
            attributes = {f"attribute-{attribute}": "yes" for attribute in having}
            machines.append(MachineClass(f"{name}-{variant}", number, (cores, gib), attributes))
    return tuple(machines), present


def _constraints(
    random: Generator,
    machines: tuple[MachineClass, ...],
    present: NDArray[np.bool_],
    jobs: int,
) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.int32]]:
    """Draw a placement constraint for each job.

    The distribution of the number of allowed machines follows the TSF paper, Fig. 8a.

    Args:
        random: Random generator.
        machines: The machine classes.
        present: Mask of the attributes that each class has.
        jobs: Number of jobs.

    Returns:
        Allowed machine classes of each constraint; and the constraint number of each job.
    """
    counts = np.array([machine.count for machine in machines])
    choices = {
        tuple(np.flatnonzero(present[:, required].all(axis=1)).tolist())
        for together in range(1, _AT_MOST_TOGETHER + 1)
        for required in combinations(range(ATTRIBUTES), together)
    }
    sized = sorted((int(counts[list(classes)].sum()), classes) for classes in choices if classes)
    total = int(counts.sum())
    fifth = _FIFTH * total
    picky = [entry for entry in sized if _FEWEST_MACHINES * total <= entry[0] <= fifth]
    ordinary = [entry for entry in sized if fifth < entry[0] < total]
    kinds = np.repeat(
        [0, 1, 2],
        np.diff(np.rint(np.array([0.0, _PICKY, 1.0 - _EVERYWHERE, 1.0]) * jobs).astype(int)),
    )
    constraints: dict[tuple[int, ...], int] = {}
    constraint = np.full(jobs, UNCONSTRAINED, np.int32)
    for job, kind in enumerate(random.permutation(kinds).tolist()):
        if kind == 2:
            continue
        entries = (picky, ordinary)[kind]
        bounds = (_FEWEST_MACHINES * total, fifth, total)[kind : kind + 2]
        wanted = float(np.exp(random.uniform(*np.log(bounds))))
        classes = _near(random, entries, wanted)
        constraint[job] = constraints.setdefault(classes, len(constraints))
    return tuple(constraints), constraint


def _near(
    random: Generator, entries: list[tuple[int, tuple[int, ...]]], wanted: float
) -> tuple[int, ...]:
    """Draw a set of machine classes that together have about a given number of machines.

    Args:
        random: Random generator.
        entries: Pairs of number of machines and set of classes, ascending.
        wanted: The wanted number of machines.
    """
    index = int(np.searchsorted([machines for machines, _ in entries], wanted))
    first = max(0, min(index - _NEAREST // 2, len(entries) - _NEAREST))
    near = entries[first : first + _NEAREST]
    return near[int(random.integers(len(near)))][1]


def _allowed_machines(trace: Trace) -> NDArray[np.int64]:
    """Return the number of machines on which each job can run."""
    counts = [machine.count for machine in trace.machines]
    allowed = [sum(counts[index] for index in classes) for classes in trace.constraints]
    first = np.flatnonzero(np.diff(trace.job, prepend=np.int64(-1)))
    # UNCONSTRAINED (−1) is the index of the last entry.
    return np.array([*allowed, sum(counts)])[trace.constraint[first]]


def _attributes(trace: Trace) -> int:
    return len({name for machine in trace.machines for name in machine.attributes})
