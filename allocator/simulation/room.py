"""The machines of a simulated cluster: what tasks need, where they may run, and what is free."""

from collections.abc import Mapping, Sequence

import numpy as np

from allocator.fairness.quantities import Quantities
from allocator.simulation.parts import Parts
from allocator.simulation.setting import Setting
from allocator.simulation.trace import UNCONSTRAINED, Trace


class Room:
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
        self.capacities = tuple(
            _quantities(trace.resources, row) for row in parts.whole(machines).tolist()
        )
        self._free = list(self.capacities)
        needs: dict[tuple[int, ...], Quantities] = {}
        self._demands = [
            needs.setdefault(row, _quantities(trace.resources, row))
            for row in map(tuple, parts.whole(trace.demand).tolist())
        ]
        if setting.capacity is not None:
            self._constraints = [UNCONSTRAINED] * len(trace)
            self._allowed: tuple[frozenset[int], ...] = ()
        else:
            self._constraints = trace.constraint.tolist()
            kinds = np.repeat(
                np.arange(len(trace.machines)), [kind.count for kind in trace.machines]
            )
            self._allowed = tuple(
                frozenset(np.flatnonzero(np.isin(kinds, allowed)).tolist())
                for allowed in trace.constraints
            )
        everywhere = range(len(self.capacities))
        self._in_order: Mapping[int, Sequence[int]] = {
            UNCONSTRAINED: everywhere,
            **{number: sorted(allowed) for number, allowed in enumerate(self._allowed)},
        }
        self._ever: dict[tuple[int, int], bool] = {}

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
        return constraint == UNCONSTRAINED or machine in self._allowed[constraint]

    def could_ever_hold(self, task: int) -> bool:
        """Whether a task would fit on an empty machine that it may use."""
        demand, constraint = self._demands[task], self._constraints[task]
        key = id(demand), constraint
        if key not in self._ever:
            self._ever[key] = any(
                self.capacities[machine].contains(demand) for machine in self._in_order[constraint]
            )
        return self._ever[key]

    def fits(self, task: int, machine: int) -> bool:
        """Whether a task may and can run on a machine now."""
        return self.allows(self._constraints[task], machine) and self._free[machine].contains(
            self._demands[task]
        )

    def first_fit(self, task: int) -> int | None:
        """Return the first machine by number that a task may and can run on. O(machines)."""
        demand, free = self._demands[task], self._free
        for machine in self._in_order[self._constraints[task]]:
            if free[machine].contains(demand):
                return machine
        return None

    def take(self, task: int, machine: int) -> None:
        """Put a task on a machine that it fits on."""
        self._free[machine] = self._free[machine] - self._demands[task]

    def give_back(self, task: int, machine: int) -> None:
        """Take a task off the machine that it is on."""
        self._free[machine] = self._free[machine] + self._demands[task]


def _quantities(resources: Sequence[str], row: Sequence[int]) -> Quantities:
    return Quantities(dict(zip(resources, row, strict=True)))
