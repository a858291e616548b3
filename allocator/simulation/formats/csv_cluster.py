"""What may lie beside a comma-separated trace: who its users are, and the machines."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.formats.conversion import Text
from allocator.simulation.formats.text import delimiter, opened
from allocator.simulation.trace import UNCONSTRAINED, MachineClass, Trace, TraceError

_OWES = "owes"


def with_users(trace: Trace, path: Path) -> Trace:
    """Return a trace whose users have the weights and debts of a file.

    Its columns are `user`, and of `weight`, `owes` (of every resource) and `owes_RESOURCE` any.
    An empty field says nothing. Who is in the file only counts as a user that submitted nothing.

    Raises:
        OSError: The file cannot be read.
        TraceError: A line cannot be used.
    """
    allowed = ["user", "weight", _OWES, *(f"{_OWES}_{name}" for name in trace.resources)]
    users = list(trace.users)
    places = {user: place for place, user in enumerate(users)}
    weights = trace.weight().tolist()
    owed = trace.owed().tolist()
    seen: set[str] = set()
    for where, row in _rows(path, ["user"], allowed):
        user = row["user"]
        if user in seen:
            raise TraceError(f"{where}: user {user!r} stands there twice")
        seen.add(user)
        if user not in places:
            places[user] = len(users)
            users.append(user)
            weights.append(1.0)
            owed.append([0.0] * len(trace.resources))
        place = places[user]
        weights[place] = _number(where, row, "weight", weights[place])
        every = _number(where, row, _OWES, 0.0)
        owed[place] = [_number(where, row, f"{_OWES}_{name}", every) for name in trace.resources]
    return replace(
        trace,
        users=tuple(users),
        weights=tuple(weights) if any(weight != 1.0 for weight in weights) else (),
        commitments=tuple(map(tuple, owed)) if any(map(any, owed)) else (),
    )


def read_machines(path: Path, resources: Sequence[str]) -> tuple[MachineClass, ...]:
    """Read classes of machines: `machine`, perhaps `count`, the resources; the rest are attributes.

    Raises:
        OSError: The file cannot be read.
        TraceError: A line cannot be used.
    """
    machines: dict[str, MachineClass] = {}
    for where, row in _rows(path, ["machine", *resources], None):
        name, count = row["machine"], _number(where, row, "count", 1.0)
        if name in machines:
            raise TraceError(f"{where}: machine {name!r} stands there twice")
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
    """What tasks say about machines, told apart: `big`, `disk=ssd`, `disk=ssd&rack=1|big`.

    `|` stands between alternatives, `&` between what must hold together; each term is a class's
    name or an attribute's value. Nothing said: every machine will do.
    """

    def __init__(self, machines: Sequence[MachineClass]) -> None:
        self._machines = machines
        self._names = {machine.name for machine in machines}
        self._keys = {key for machine in machines for key in machine.attributes}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._of_text: dict[str, int | None] = {"": UNCONSTRAINED}

    @property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """The different constraints so far, each with the places of the classes it allows."""
        return tuple(self._numbers)

    def column(self, text: Text) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return each task's constraint, and where it names what no machine is or has.

        The third result is where all names are known, but no machine meets the constraint.
        """
        encoded = text.dictionary_encode()
        found = [self._number(entry) for entry in encoded.dictionary.to_pylist()]
        places = encoded.indices.to_numpy(zero_copy_only=False)
        wrong = np.array([number is None for number in found], np.bool_)
        numbers = np.array([UNCONSTRAINED if n is None else n for n in found], np.int32)
        nowhere = numbers == self._numbers.get((), UNCONSTRAINED - 1)
        return numbers[places], wrong[places], nowhere[places]

    def _number(self, text: str) -> int | None:
        if text not in self._of_text:
            self._of_text[text] = self._resolved(text)
        return self._of_text[text]

    def _resolved(self, text: str) -> int | None:
        alternatives = [[term.strip() for term in one.split("&")] for one in text.split("|")]
        for term in (term for one in alternatives for term in one):
            if term not in self._names and term.partition("=")[0].strip() not in self._keys:
                return None
        allowed = tuple(
            place
            for place, machine in enumerate(self._machines)
            if any(all(_meets(machine, term) for term in one) for one in alternatives)
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
    """Go through a small file with a header: where each line is, and its fields, trimmed."""
    with opened(path) as file:
        text = io.TextIOWrapper(io.BytesIO(file.read()), "utf-8-sig", "backslashreplace", "")
    reader = csv.reader(text, delimiter=delimiter(path))
    names = [name.strip() for name in next(reader, [])]
    absent = [name for name in needed if name not in names]
    if absent:
        raise TraceError(f"{path} has no column {', '.join(absent)} in its first line")
    odd = [name for name in names if allowed is not None and name not in allowed]
    if odd or len(set(names)) < len(names) or "" in names:
        what = f"a column {odd[0]!r}" if odd else "columns without a name or of the same name"
        raise TraceError(
            f"{path} has {what} in its first line"
            + (f"; there may be {', '.join(allowed)}" if allowed is not None else "")
        )
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if not row:
            continue
        if len(row) != len(names):
            raise TraceError(f"{where}: {len(row)} fields, not {len(names)}")
        yield where, {name: field.strip() for name, field in zip(names, row, strict=True)}


def _number(where: str, row: Mapping[str, str], name: str, unsaid: float) -> float:
    """Return a number ≥ 0."""
    if not row.get(name):
        return unsaid
    try:
        number = float(row[name])
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise TraceError(f"{where}: {name} {row[name]!r} is not a finite number ≥ 0")
    return number
