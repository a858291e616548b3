"""The machines of a simulated cluster: what tasks need, where they may run, and what is free."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.quantities import Quantities
from allocator.simulation.parts import Amounts, Parts
from allocator.simulation.setting import Setting
from allocator.simulation.trace import UNCONSTRAINED, Trace


class FreeCapacity:
    """Machines by number, and what tasks leave of them. A pool is one machine, open to all.

    Args:
        trace: Whose tasks are placed.
        setting: Says whether on the trace's machines or in one pool.

    Raises:
        SettingError: The setting does not fit the trace.
    """

    def __init__(self, trace: Trace, setting: Setting) -> None:
        machines = setting.machines(trace)
        parts = Parts.of(trace, machines)
        self._free = parts.whole(machines)
        """What is left, one row per machine"""
        self.capacities = tuple(_quantities(trace.resources, row) for row in self._free.tolist())
        self._needs = parts.whole(trace.demand)
        alike: dict[tuple[int, ...], Quantities] = {}
        self._demands = [
            alike.setdefault(row, _quantities(trace.resources, row))
            for row in map(tuple, self._needs.tolist())
        ]
        self._constraints: list[int] = trace.constraint.tolist()
        if setting.capacity is not None:
            self._constraints = [UNCONSTRAINED] * len(trace)
        kinds = np.repeat(np.arange(len(trace.machines)), [m.count for m in trace.machines])
        self._allowed = {
            UNCONSTRAINED: np.ones(len(machines), np.bool_),
            **{place: np.isin(kinds, of) for place, of in enumerate(trace.constraints)},
        }
        """By constraint, which machines it allows"""
        self._ever: dict[tuple[int, int], bool] = {}
        self._empty = self._free.copy()

    @property
    def capacity(self) -> Quantities:
        """What all machines have together."""
        return sum(self.capacities, start=Quantities())

    def demand(self, task: int) -> Quantities:
        """Return what a task needs; tasks that need the same share one object."""
        return self._demands[task]

    def constraint(self, task: int) -> int:
        """Return the number of a task's constraint; in a pool there are none."""
        return self._constraints[task]

    def allows(self, constraint: int, machine: int) -> bool:
        """Whether tasks with a constraint may run on a machine."""
        return bool(self._allowed[constraint][machine])

    def could_ever_hold(self, task: int) -> bool:
        """Whether a task would fit on an empty machine that it may use."""
        key = id(self._demands[task]), self._constraints[task]
        if key not in self._ever:
            self._ever[key] = bool(self._which(task, self._empty).any())
        return self._ever[key]

    def fits(self, task: int, machine: int) -> bool:
        """Whether a task may and can run on a machine now."""
        return self.allows(self._constraints[task], machine) and bool(
            (self._free[machine] >= self._needs[task]).all()
        )

    def first_fit(self, task: int, but: Sequence[int] = ()) -> int | None:
        """Return the first machine by number that a task may and can run on. O(machines).

        Args:
            task: Its number.
            but: Machines that are left out.
        """
        fitting = self._which(task, self._free)
        if but:
            fitting[but] = False
        machine = int(fitting.argmax())
        return machine if fitting[machine] else None

    def empty_for(self, task: int) -> list[int]:
        """Return the machines that a task may run on and would fit on if they were empty."""
        machines: list[int] = np.flatnonzero(self._which(task, self._empty)).tolist()
        return machines

    def free_for(self, task: int, machine: int, ends: Sequence[tuple[int, int]]) -> int:
        """Return when a machine that would hold a task if it were empty will have room for it.

        Args:
            task: Its number; it does not fit now.
            machine: Its number.
            ends: When what runs there ends, in order of time, and the numbers of these tasks.
        """
        free = self._free[machine].copy()
        for when, running in ends:
            free += self._needs[running]
            if (free >= self._needs[task]).all():
                return when
        raise AssertionError(f"task {task} would not fit on machine {machine} if it were empty")

    def take(self, task: int, machine: int) -> None:
        """Put a task on a machine that it fits on."""
        self._free[machine] -= self._needs[task]

    def give_back(self, task: int, machine: int) -> None:
        """Take a task off the machine that it is on."""
        self._free[machine] += self._needs[task]

    def _which(self, task: int, amounts: Amounts) -> NDArray[np.bool_]:
        """Return of which machines a task may and can run on with such amounts."""
        fitting: NDArray[np.bool_] = (amounts >= self._needs[task]).all(axis=1)
        fitting &= self._allowed[self._constraints[task]]
        return fitting


def _quantities(resources: Sequence[str], row: Sequence[int]) -> Quantities:
    return Quantities(dict(zip(resources, row, strict=True)))
