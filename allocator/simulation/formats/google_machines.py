"""Reads machines and placement constraints from Google's cluster trace of 2011."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.formats.conversion import RowFilter, SkippedRows
from allocator.simulation.formats.text import Rows, integers, missing, numbers, separated
from allocator.simulation.trace import UNCONSTRAINED, MachineClass, TraceError

NOWHERE = -2
"""Value of a constraint that no machine meets."""

_MACHINE_EVENTS = ("time", "machine", "event", "platform", "cpus", "mem")
_MACHINE_ATTRIBUTES = ("time", "machine", "attribute", "value", "deleted")
_TASK_CONSTRAINTS = ("time", "job", "index", "operator", "attribute", "value")
_ADDED, _REMOVED, _UPDATED = range(3)
_EQUAL, _NOT_EQUAL, _LESS, _GREATER = range(4)

_Machine = tuple[str, tuple[float, float]]
"""(platform, (CPU, memory)) of a machine."""
_Requirement = tuple[int, str, str]
"""One condition of a constraint: (operator, attribute, value)."""


@dataclass(frozen=True)
class _Tasks:
    """Numbers tasks, which Google's trace identifies by job number and index within the job.

    The numbers ascend with job number and index.

    Args:
        jobs: Job numbers, ascending.
        tasks: Keys of the tasks, ascending: index of the job in `jobs`, times 2³², plus the task's
            index.
    """

    jobs: NDArray[np.int64]
    tasks: NDArray[np.int64]

    @classmethod
    def numbered(
        cls, job: NDArray[np.int64], index: NDArray[np.int64]
    ) -> tuple["_Tasks", NDArray[np.intp]]:
        """Give each distinct (job, index) in two columns a task number.

        Args:
            job: Job number of each row.
            index: Index of the task within the job, for each row.

        Returns:
            The tasks; and each row's task number.
        """
        jobs, job_index = np.unique(job, return_inverse=True)
        tasks, number = np.unique((job_index << 32) | index, return_inverse=True)
        return cls(jobs, tasks), number

    def find(
        self, job: NDArray[np.int64], index: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Look up the numbers of tasks that are given by job and index.

        Args:
            job: Job number of each row.
            index: Index of the task within the job, for each row.

        Returns:
            For each row, the task number; and a mask of the rows whose task is known.
        """
        job_index, known = _find(self.jobs, job)
        number, present = _find(self.tasks, (job_index << 32) | index)
        return number, known & present


@dataclass(frozen=True)
class Placement:
    """Machines of the trace, and the constraint of each task.

    Args:
        machines: Machine classes, as in `Trace`.
        constraints: Allowed machine classes of each constraint, as in `Trace`.
    """

    machines: tuple[MachineClass, ...]
    constraints: tuple[tuple[int, ...], ...]
    _tasks: _Tasks
    _constraint_of_task: NDArray[np.int32]

    def of(self, job: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of each task's placement constraint, for `Trace.constraint`.

        The number is UNCONSTRAINED without a constraint, and NOWHERE if no machine is allowed. The
        cost is O(log n) per task.

        Args:
            job: Job of each task.
            index: Index of each task within its job.
        """
        constraints = np.full(len(job), UNCONSTRAINED, np.int32)
        number, present = self._tasks.find(job, index)
        constraints[present] = self._constraint_of_task[number[present]]
        return constraints


def placement(folder: Path, left_out: SkippedRows) -> Placement:
    """Read the machines and constraints of Google's trace from a folder.

    `machine_events` is required; `machine_attributes` and `task_constraints` are optional.

    All machines that were ever added count, with their last known properties. A class contains the
    machines with equal platform, capacity and attributes; only attributes that constraints mention
    count. If a task's constraints change, the latest ones count.

    Args:
        folder: The trace's folder.
        left_out: Collects rows that cannot be used.

    Raises:
        OSError: A file cannot be read.
        TraceError: There are no machines.
    """
    machines = _machines(folder, left_out)
    if not machines:
        raise TraceError(f"{folder} has a folder machine_events, but no machine in it")
    tasks, set_of_task, sets = _requirements(folder, left_out)
    mentioned = {attribute for requirements in sets for _, attribute, _ in requirements}
    attributes = _attributes(folder, mentioned, left_out)
    counts: dict[tuple[_Machine, tuple[tuple[str, str], ...]], int] = {}
    for name, machine in machines.items():
        kind = (machine, tuple(sorted(attributes.get(name, {}).items())))
        counts[kind] = counts.get(kind, 0) + 1
    classes = tuple(
        MachineClass(f"class-{number}", count, capacity, {"platform": platform, **dict(having)})
        for number, (((platform, capacity), having), count) in enumerate(counts.items(), 1)
    )
    numbered: dict[tuple[int, ...], int] = {}
    constraint_of_set = np.empty(len(sets), np.int32)
    for index, requirements in enumerate(sets):
        allowed = tuple(
            number
            for number, (_, having) in enumerate(counts)
            if all(_meets(dict(having), requirement) for requirement in requirements)
        )
        constraint_of_set[index] = (
            numbered.setdefault(allowed, len(numbered)) if allowed else NOWHERE
        )
    return Placement(classes, tuple(numbered), tasks, constraint_of_set[set_of_task])


def _machines(folder: Path, left_out: SkippedRows) -> dict[int, _Machine]:
    machines: dict[int, _Machine] = {}
    for path in files(folder, "machine_events"):
        for rows in separated(path, _MACHINE_EVENTS, left_out):
            checked = RowFilter(left_out, path.name, rows.lines)
            name, unreadable = integers(rows.columns["machine"])
            checked.drop("machine is not a whole number", unreadable)
            event, unreadable = integers(rows.columns["event"])
            unknown = (event < _ADDED) | (event > _UPDATED)
            checked.drop("machine event is of an unknown type", unreadable | unknown)
            cpus, unreadable = numbers(rows.columns["cpus"])
            counts = event != _REMOVED
            checked.drop("machine has no cpus", counts & (unreadable | (cpus < 0)))
            mem, unreadable = numbers(rows.columns["mem"])
            checked.drop("machine has no mem", counts & (unreadable | (mem < 0)))
            platform = rows.columns["platform"].to_pylist()
            for row in np.flatnonzero(checked.kept & counts).tolist():
                machines[int(name[row])] = (platform[row], (float(cpus[row]), float(mem[row])))
    return machines


def _attributes(
    folder: Path, mentioned: set[str], left_out: SkippedRows
) -> dict[int, dict[str, str]]:
    attributes: dict[int, dict[str, str]] = {}
    if not mentioned:
        return attributes
    for path in files(folder, "machine_attributes"):
        for rows in separated(path, _MACHINE_ATTRIBUTES, left_out):
            checked = RowFilter(left_out, path.name, rows.lines)
            machine, unreadable = integers(rows.columns["machine"])
            checked.drop("machine is not a whole number", unreadable)
            deleted, unreadable = integers(rows.columns["deleted"])
            checked.drop("deleted is neither 0 nor 1", unreadable | (deleted < 0) | (deleted > 1))
            attribute = rows.columns["attribute"].to_pylist()
            value = rows.columns["value"].to_pylist()
            for row in np.flatnonzero(checked.kept).tolist():
                if attribute[row] not in mentioned:
                    continue
                having = attributes.setdefault(int(machine[row]), {})
                if deleted[row]:
                    having.pop(attribute[row], None)
                else:
                    having[attribute[row]] = value[row]
    return attributes


def _requirements(
    folder: Path, left_out: SkippedRows
) -> tuple[_Tasks, NDArray[np.int32], list[tuple[_Requirement, ...]]]:
    """Read the placement constraints of all tasks.

    A task's constraint is a set of conditions on a machine's attributes.

    Returns:
        The tasks with constraints; for each of these tasks, the index of its set of conditions; and
        all distinct sets.
    """
    codes: dict[_Requirement, int] = {}
    read = [np.empty((0, 4), np.int64)]
    for path in files(folder, "task_constraints"):
        for rows in separated(path, _TASK_CONSTRAINTS, left_out):
            checked = RowFilter(left_out, path.name, rows.lines)
            integer_columns = {}
            for name in ("time", "job", "index", "operator"):
                integer_columns[name], unreadable = integers(rows.columns[name])
                checked.drop(f"{name} of a constraint is not a whole number", unreadable)
            checked.drop("index is not from 0 to 2^31", integer_columns["index"] >> 31 != 0)
            operator = integer_columns["operator"]
            unknown = (operator < _EQUAL) | (operator > _GREATER)
            checked.drop("constraint has an unknown operator", unknown)
            checked.drop("constraint has no attribute", missing(rows.columns["attribute"]))
            code = _codes(rows, operator, codes)
            columns = (
                integer_columns["job"],
                integer_columns["index"],
                integer_columns["time"],
                code,
            )
            read.append(np.column_stack(columns)[checked.kept])
    table = np.concatenate(read)
    tasks, row = _Tasks.numbered(table[:, 0], table[:, 1])
    last = np.full(len(tasks.tasks), -1)
    np.maximum.at(last, row, table[:, 2])
    given_last = table[:, 2] == last[row]
    pairs = np.unique(np.column_stack((row, table[:, 3]))[given_last], axis=0)
    return tasks, *_sets(pairs, len(tasks.tasks), list(codes))


def _sets(
    pairs: NDArray[np.int64], tasks: int, requirements: list[_Requirement]
) -> tuple[NDArray[np.int32], list[tuple[_Requirement, ...]]]:
    """Group tasks by their set of conditions.

    Sets are built one condition at a time: the number of a smaller set and one further condition
    identify a larger set.

    Args:
        pairs: Array of (task number, condition number), in ascending order.
        tasks: Number of tasks.
        requirements: The conditions by number.

    Returns:
        For each task, the number of its set; and the distinct sets by number.
    """
    set_of_task = np.zeros(tasks, np.int64)
    sets: list[tuple[_Requirement, ...]] = [()]
    begins = np.searchsorted(pairs[:, 0], np.arange(tasks))
    size = np.bincount(pairs[:, 0], minlength=tasks)
    for step in range(int(size.max(initial=0))):
        longer = np.flatnonzero(size > step)
        extended = np.column_stack((set_of_task[longer], pairs[begins[longer] + step, 1]))
        kinds, kind = np.unique(extended, axis=0, return_inverse=True)
        set_of_task[longer] = len(sets) + kind.ravel()
        sets += [(*sets[smaller], requirements[code]) for smaller, code in kinds.tolist()]
    return set_of_task.astype(np.int32), sets


def _codes(
    rows: Rows, operator: NDArray[np.int64], codes: dict[_Requirement, int]
) -> NDArray[np.int64]:
    attributes = rows.columns["attribute"].dictionary_encode()
    values = rows.columns["value"].dictionary_encode()
    columns = (
        operator,
        attributes.indices.to_numpy(zero_copy_only=False),
        values.indices.to_numpy(zero_copy_only=False),
    )
    kinds, kind = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    names, texts = attributes.dictionary.to_pylist(), values.dictionary.to_pylist()
    numbered = [
        codes.setdefault((operator_code, names[name], texts[text]), len(codes))
        for operator_code, name, text in kinds.tolist()
    ]
    return np.array(numbered, np.int64)[kind.ravel()]


def _meets(having: dict[str, str], requirement: _Requirement) -> bool:
    """Return whether a machine meets a condition. A missing attribute counts as empty.

    Args:
        having: The machine's attributes.
        requirement: The condition.
    """
    operator, attribute, value = requirement
    actual = having.get(attribute, "")
    if operator == _EQUAL:
        return actual == value
    if operator == _NOT_EQUAL:
        return actual != value
    try:
        return int(actual) < int(value) if operator == _LESS else int(actual) > int(value)
    except ValueError:
        return False


def _find(
    sorted_values: NDArray[np.int64], values: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    if not len(sorted_values):
        return np.zeros(len(values), np.intp), np.zeros(len(values), np.bool_)
    index = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return index, sorted_values[index] == values


def files(folder: Path, table: str) -> list[Path]:
    """Return the files of a table, such as `task_events`, in order of their part numbers."""
    return sorted((folder / table).glob("part-*.csv*"))
