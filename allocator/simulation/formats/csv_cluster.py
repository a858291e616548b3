"""Reads the optional files of users and of machines that accompany a comma-separated trace."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allocator.complaints import other_spelling
from allocator.simulation.formats.conversion import SkippedRows, Text
from allocator.simulation.formats.text import delimiter, text_lines
from allocator.simulation.trace import UNCONSTRAINED, MachineClass, Trace, TraceError

_OWES = "owes"


def with_users(trace: Trace, path: Path, assumed: SkippedRows) -> Trace:
    """Return a copy of a trace with users' weights and commitments from a file.

    The file has a column `user`, and optionally `weight`, `owes` (a commitment of every resource)
    and `owes_RESOURCE`. An empty field keeps the default. A user that is only in the file counts as
    a user without tasks.

    Args:
        trace: The trace.
        path: The file of users.
        assumed: Collects lines that are probably a mistake: a user without tasks, or a commitment
            of more than all of a resource.

    Raises:
        OSError: The file cannot be read.
        TraceError: A line cannot be used.
    """
    allowed = ["user", "weight", _OWES, *(f"{_OWES}_{name}" for name in trace.resources)]
    users = list(trace.users)
    indices = {user: index for index, user in enumerate(users)}
    weights = trace.weight().tolist()
    commitments = trace.initial_commitments().tolist()
    seen: set[str] = set()
    idle, large = list[int](), list[int]()
    for where, row in _rows(path, ["user"], allowed):
        user, line = row["user"], int(where.rpartition(":")[2])
        if user in seen:
            raise TraceError(f"{where}: user {user!r} appears twice")
        seen.add(user)
        if user not in indices:
            idle.append(line)
            indices[user] = len(users)
            users.append(user)
            weights.append(1.0)
            commitments.append([0.0] * len(trace.resources))
        index = indices[user]
        weights[index] = _number(where, row, "weight", weights[index])
        default = _number(where, row, _OWES, 0.0)
        commitments[index] = [
            _number(where, row, f"{_OWES}_{name}", default) for name in trace.resources
        ]
        if max(commitments[index]) > 1.0:
            large.append(line)
    for reason, lines in (
        ("no task is of this user, which counts with its weight", idle),
        ("owes is more than 1, which is all of a resource", large),
    ):
        assumed.add(reason, path.name, np.array(lines, np.int64))
    return replace(
        trace,
        users=tuple(users),
        weights=tuple(weights) if any(weight != 1.0 for weight in weights) else (),
        commitments=tuple(map(tuple, commitments)) if any(map(any, commitments)) else (),
    )


def read_machines(path: Path, resources: Sequence[str]) -> tuple[MachineClass, ...]:
    """Read machine classes from a file, with a header and one class per line.

    Columns are `machine`, optionally `count`, and the resources; all other columns are attributes.

    Args:
        path: The file of machines.
        resources: Names of the trace's resources.

    Raises:
        OSError: The file cannot be read.
        TraceError: A line cannot be used.
    """
    machines: dict[str, MachineClass] = {}
    for where, row in _rows(path, ["machine", *resources], None):
        for column in () if machines else row:
            if column not in resources and (resource := other_spelling(column, resources)):
                raise TraceError(
                    f"{path} has the resource {resource} and a column {column}; rename or "
                    f"remove the column, or {column} becomes an attribute of machines"
                )
        name, count = row["machine"], _number(where, row, "count", 1.0)
        if name in machines:
            raise TraceError(f"{where}: machine {name!r} appears twice")
        if count != int(count):
            raise TraceError(f"{where}: count {count:g} is not a whole number")
        capacity = tuple(_number(where, row, resource, 0.0) for resource in resources)
        attributes = {
            key: value
            for key, value in row.items()
            if key not in {"machine", "count", *resources} and value
        }
        machines[name] = MachineClass(name, int(count), capacity, attributes)
    if not machines:
        raise TraceError(f"{path} has no machines")
    return tuple(machines.values())


class Constraints:
    """Parses tasks' placement constraints, and gives each distinct constraint a number.

    Examples: `big`, `disk=ssd`, `disk=ssd&rack=1|big`.

    `|` separates alternatives and `&` separates conditions that must hold together. Each condition
    is a class's name or an attribute's value. An empty constraint allows every machine.
    """

    def __init__(self, machines: Sequence[MachineClass]) -> None:
        self._machines = machines
        self._names = {machine.name for machine in machines}
        self._keys = {key for machine in machines for key in machine.attributes}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._by_text: dict[str, int | None] = {"": UNCONSTRAINED}

    @property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """For each constraint number, the indices of the allowed machine classes."""
        return tuple(self._numbers)

    def column(self, text: Text) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]:
        """Convert a column of constraint texts to constraint numbers.

        Args:
            text: The constraint of each task, as written in the file.

        Returns:
            Each task's constraint number; a mask of tasks with an unknown name; a mask of tasks
            with known names but no matching machine.
        """
        encoded = text.dictionary_encode()
        numbers_of_texts = [self._number(entry) for entry in encoded.dictionary.to_pylist()]
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        wrong = np.array([number is None for number in numbers_of_texts], np.bool_)
        numbers = np.array([UNCONSTRAINED if n is None else n for n in numbers_of_texts], np.int32)
        nowhere = numbers == self._numbers.get((), UNCONSTRAINED - 1)
        return numbers[indices], wrong[indices], nowhere[indices]

    def _number(self, text: str) -> int | None:
        if text not in self._by_text:
            self._by_text[text] = self._resolved(text)
        return self._by_text[text]

    def _resolved(self, text: str) -> int | None:
        alternatives = [
            [term.strip() for term in alternative.split("&")] for alternative in text.split("|")
        ]
        for term in (term for alternative in alternatives for term in alternative):
            if term not in self._names and term.partition("=")[0].strip() not in self._keys:
                return None
        allowed = tuple(
            index
            for index, machine in enumerate(self._machines)
            if any(
                all(_meets(machine, term) for term in alternative) for alternative in alternatives
            )
        )
        return self._numbers.setdefault(allowed, len(self._numbers))


def _meets(machine: MachineClass, term: str) -> bool:
    if term == machine.name:
        return True
    key, equals, value = term.partition("=")
    return bool(equals) and machine.attributes.get(key.strip()) == value.strip()


def _rows(
    path: Path, needed: Sequence[str], allowed: Sequence[str] | None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Iterate over the lines of a small file with a header, as (FILE:LINE, trimmed fields by name).

    Args:
        path: The file.
        needed: Names of columns that must exist.
        allowed: Names of columns that may exist; None allows any column.
    """
    reader = csv.reader(text_lines(path, ""), delimiter=delimiter(path))
    names = [name.strip() for name in next(reader, [])]
    absent = [name for name in needed if name not in names]
    if absent:
        raise TraceError(f"{path} has no column {', '.join(absent)} in its first line")
    unexpected = [name for name in names if allowed is not None and name not in allowed]
    if unexpected or len(set(names)) < len(names) or "" in names:
        problem = (
            f"a column {unexpected[0]!r}"
            if unexpected
            else "columns without a name or of the same name"
        )
        raise TraceError(
            f"{path} has {problem} in its first line"
            + (f"; there may be {', '.join(allowed)}" if allowed is not None else "")
        )
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if not row:
            continue
        if len(row) != len(names):
            raise TraceError(f"{where}: {len(row)} fields, not {len(names)}")
        yield where, {name: field.strip() for name, field in zip(names, row, strict=True)}


def _number(where: str, row: Mapping[str, str], name: str, default: float) -> float:
    """Return a field as a number of at least 0, or the default for an empty field.

    Args:
        where: FILE:LINE, for error messages.
        row: Fields of the line by column name.
        name: Name of the column.
        default: The value of an empty field.
    """
    if not row.get(name):
        return default
    try:
        number = float(row[name])
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise TraceError(f"{where}: {name} {row[name]!r} is not a finite number ≥ 0")
    return number
