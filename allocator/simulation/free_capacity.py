"""Free capacity of a simulated cluster: which tasks fit on which machines now."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.quantities import Quantities
from allocator.simulation.parts import Amounts, Parts
from allocator.simulation.setting import Setting
from allocator.simulation.trace import UNCONSTRAINED, Trace


class FreeCapacity:
    """Tracks each machine's free capacity as tasks start and end.

    If the setting defines a single pool, the pool counts as one machine.

    Args:
        trace: The tasks to place, and the machines.
        setting: Determines whether tasks run on the trace's machines or in one pool.

    Raises:
        SettingError: The setting does not fit the trace.
    """

    def __init__(self, trace: Trace, setting: Setting) -> None:
        machines = setting.machines(trace)
        parts = Parts.of(trace, machines)
        self._free = parts.whole(machines)
        """Free amounts in parts, one row per machine."""
        self.capacities = tuple(_quantities(trace.resources, row) for row in self._free.tolist())
        self._needs = parts.whole(trace.demand)
        distinct: dict[tuple[int, ...], Quantities] = {}
        self._demands = [
            distinct.setdefault(row, _quantities(trace.resources, row))
            for row in map(tuple, self._needs.tolist())
        ]
        self._constraints: list[int] = trace.constraint.tolist()
        if setting.capacity is not None:
            self._constraints = [UNCONSTRAINED] * len(trace)
        class_of_machine = np.repeat(
            np.arange(len(trace.machines)), [m.count for m in trace.machines]
        )
        self._allowed = {
            UNCONSTRAINED: np.ones(len(machines), np.bool_),
            **{
                number: np.isin(class_of_machine, classes)
                for number, classes in enumerate(trace.constraints)
            },
        }
        """By constraint: a mask of the machines that the constraint allows."""
        self._ever: dict[tuple[int, int], bool] = {}
        self._empty = self._free.copy()

    @property
    def capacity(self) -> Quantities:
        """Total capacity of all machines."""
        return sum(self.capacities, start=Quantities())

    def demand(self, task: int) -> Quantities:
        """Return a task's demand.

        Tasks with equal demands get the same object, which saves memory.
        """
        return self._demands[task]

    def constraint(self, task: int) -> int:
        """Return a task's placement constraint, as an index in the trace's `constraints`.

        In a pool, every task is UNCONSTRAINED.
        """
        return self._constraints[task]

    def allows(self, constraint: int, machine: int) -> bool:
        """Return whether tasks with a constraint may run on a machine."""
        return bool(self._allowed[constraint][machine])

    def could_ever_hold(self, task: int) -> bool:
        """Return whether a task would fit on an empty machine that its constraint allows."""
        key = id(self._demands[task]), self._constraints[task]
        if key not in self._ever:
            self._ever[key] = bool(self._fitting(task, self._empty).any())
        return self._ever[key]

    def fits(self, task: int, machine: int) -> bool:
        """Return whether a task fits on a machine now and its constraint allows the machine."""
        return self.allows(self._constraints[task], machine) and bool(
            (self._free[machine] >= self._needs[task]).all()
        )

    def first_fit(self, task: int, but: Sequence[int] = ()) -> int | None:
        """Return the lowest-numbered allowed machine on which a task fits now, or None.

        The search costs O(m) for m machines.

        Args:
            task: The task's number.
            but: Machines to leave out.
        """
        fitting = self._fitting(task, self._free)
        if but:
            fitting[but] = False
        machine = int(fitting.argmax())
        return machine if fitting[machine] else None

    def empty_for(self, task: int) -> list[int]:
        """Return all machines that a task may use and on which it would fit if they were empty."""
        machines: list[int] = np.flatnonzero(self._fitting(task, self._empty)).tolist()
        return machines

    def free_for(self, task: int, machine: int, ends: Sequence[tuple[int, int]]) -> int:
        """Return the time in microseconds at which a machine will have room for a waiting task.

        By then, enough running tasks have ended, if no other task starts on the machine before.

        Args:
            task: The waiting task. The task does not fit now, but would fit on the empty machine.
            machine: The machine that is to run the task.
            ends: (finish time, task number) of each task on the machine, in order of time.
        """
        free = self._free[machine].copy()
        for finish, running in ends:
            free += self._needs[running]
            if (free >= self._needs[task]).all():
                return finish
        raise AssertionError(f"task {task} would not fit on machine {machine} if it were empty")

    def take(self, task: int, machine: int) -> None:
        """Subtract a task's demand from a machine's free capacity. The task must fit."""
        self._free[machine] -= self._needs[task]

    def give_back(self, task: int, machine: int) -> None:
        """Add a task's demand back to the free capacity of the machine on which the task ran."""
        self._free[machine] += self._needs[task]

    def _fitting(self, task: int, amounts: Amounts) -> NDArray[np.bool_]:
        """Return a mask of the machines that a task may use and on which the amounts are enough.

        Args:
            task: The task's number.
            amounts: Free amounts (or capacities) in parts, one row per machine.
        """
        mask: NDArray[np.bool_] = (amounts >= self._needs[task]).all(axis=1)
        mask &= self._allowed[self._constraints[task]]
        return mask


def _quantities(resources: Sequence[str], row: Sequence[int]) -> Quantities:
    return Quantities(dict(zip(resources, row, strict=True)))
