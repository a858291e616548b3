"""Result of a conversion: the trace, and the input rows that are not in the trace."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from allocator.simulation.trace import (
    MICROSECONDS,
    UNCONSTRAINED,
    MachineClass,
    Trace,
    by_appearance,
)

Text: TypeAlias = Any
"""A pyarrow array of strings; pyarrow has no types."""


_NAMED = 3
"""Maximum number of rows that are named for each reason."""


@dataclass
class LeftOut:
    """Rows by reason, 8 bytes each: skipped rows, or rows converted under an assumption.

    Args:
        rows_read: Total rows of all files, including skipped rows. Headers and comments do not
            count.
    """

    rows_read: int = 0
    _lines: dict[str, list[tuple[str, NDArray[np.int64]]]] = field(default_factory=dict)

    def add(self, reason: str, file: str, lines: NDArray[np.int64]) -> None:
        """Add rows for a reason.

        Args:
            reason: Why the rows were skipped.
            file: The file's name.
            lines: Line numbers in the file, from 1.
        """
        if len(lines):
            self._lines.setdefault(reason, []).append((file, lines))

    def counts(self) -> dict[str, int]:
        """Return the number of rows for each reason, highest number first."""
        counts = {
            reason: sum(len(lines) for _, lines in entries)
            for reason, entries in self._lines.items()
        }
        return dict(sorted(counts.items(), key=lambda count: (-count[1], count[0])))

    def first(self, reason: str) -> list[str]:
        """Return the first rows for a reason, each as FILE:LINE."""
        rows = islice(self._rows(reason), _NAMED)
        return [f"{file}:{line}" for file, line in rows]

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Iterate over all rows: (reason, file, line)."""
        for reason in self.counts():
            for file, line in self._rows(reason):
                yield reason, file, line

    def _rows(self, reason: str) -> Iterator[tuple[str, int]]:
        for file, lines in self._lines[reason]:
            for line in lines:
                yield file, int(line)


@dataclass(frozen=True)
class TotalCheck:
    """A total that the file also gives in another column or header, compared with the trace.

    Args:
        figure: The column or header of the file that gives the total.
        unit: Unit of both totals.
        rows: Number of rows that have both figures.
        in_file: The total by the column or header.
        in_trace: The total of the same rows in the trace.
        tolerance: Largest relative difference of the totals that still counts as agreement.
        differing: Rows with two different figures.
    """

    figure: str
    unit: str
    rows: int
    in_file: float
    in_trace: float
    tolerance: float = 1e-3
    differing: LeftOut = field(default_factory=LeftOut)

    @property
    def agrees(self) -> bool:
        """True if the totals differ by no more than the tolerance."""
        larger = max(self.in_file, self.in_trace)
        return abs(self.in_file - self.in_trace) <= self.tolerance * larger


@dataclass(frozen=True)
class Conversion:
    """A trace, and figures for checking the conversion.

    Args:
        trace: The tasks.
        left_out: Rows that became no task, and the number of rows read.
        assumed: Rows converted under an assumption, because a field was not understood.
        ignored: Names of the columns that the converter does not read.
        checks: Totals that the file gives in a second way.
    """

    trace: Trace
    left_out: LeftOut
    assumed: LeftOut = field(default_factory=LeftOut)
    ignored: tuple[str, ...] = ()
    checks: tuple[TotalCheck, ...] = ()


def resource_hours(trace: Trace) -> dict[str, float]:
    """Return the sum of demand × run time of all tasks, in hours, by resource."""
    totals = (trace.runtime / (3600 * MICROSECONDS)) @ trace.demand
    return dict(zip(trace.resources, totals.tolist(), strict=True))


class RowFilter:
    """Validity of the rows of one batch: valid rows, and skipped rows with their reasons."""

    def __init__(self, left_out: LeftOut, file: str, lines: NDArray[np.int64]) -> None:
        self._left_out = left_out
        self._file = file
        self._lines = lines
        self.kept = np.ones(len(lines), np.bool_)

    def drop(self, reason: str, wrong: NDArray[np.bool_]) -> None:
        """Skip invalid rows. An already skipped row keeps its first reason.

        Args:
            reason: Why the rows are invalid.
            wrong: A mask of the invalid rows.
        """
        self._left_out.add(reason, self._file, self._lines[self.kept & wrong])
        self.kept &= ~wrong


@dataclass(frozen=True)
class TaskRows:
    """Tasks of a batch of rows, one entry per row; see Trace.

    Args:
        submitted: Microseconds.
        runtime: Microseconds.
        user: Names of the users.
        job: Job numbers.
        demand: Shape (rows, resources).
        constraint: As in a trace. None: every task may run on every machine.
    """

    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    user: Text
    job: NDArray[np.int64]
    demand: NDArray[np.float64]
    constraint: NDArray[np.int32] | None = None


class TraceBuilder:
    """Builds a trace from batches of tasks in any order."""

    def __init__(self, resources: tuple[str, ...]) -> None:
        self._resources = resources
        self._users: dict[str, int] = {}
        self._columns: dict[str, list[NDArray[Any]]] = {
            "submitted": [np.empty(0, np.int64)],
            "runtime": [np.empty(0, np.int64)],
            "user": [np.empty(0, np.int32)],
            "job": [np.empty(0, np.int64)],
            "demand": [np.empty((0, len(resources)))],
            "constraint": [np.empty(0, np.int32)],
        }

    def add(self, tasks: TaskRows, kept: NDArray[np.bool_]) -> None:
        """Add tasks of a batch.

        Args:
            tasks: The batch.
            kept: A mask of the tasks to add.
        """
        encoded = tasks.user.filter(pa.array(kept)).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        numbers = [self._users.setdefault(name, len(self._users)) for name in names]
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        self._columns["user"].append(np.array(numbers, np.int32)[indices])
        for name in ("submitted", "runtime", "job", "demand"):
            self._columns[name].append(getattr(tasks, name)[kept])
        self._columns["constraint"].append(
            np.full(len(indices), UNCONSTRAINED, np.int32)
            if tasks.constraint is None
            else tasks.constraint[kept]
        )

    def trace(
        self,
        machines: tuple[MachineClass, ...] = (),
        constraints: tuple[tuple[int, ...], ...] = (),
    ) -> Trace:
        """Return all tasks in order of submission; simultaneous tasks keep their input order.

        Columns are concatenated and released one by one, so peak memory is little more than one
        trace.
        """
        submitted = self._column("submitted")
        order: NDArray[np.intp] | slice = slice(None)  # most traces are in order; avoid a copy
        if (submitted[1:] < submitted[:-1]).any():
            order = np.argsort(submitted, kind="stable")
        user = self._column("user")[order]
        appearance, renumbered = by_appearance(user)
        names = list(self._users)
        return Trace(
            resources=self._resources,
            users=tuple(names[number] for number in appearance),
            submitted=submitted[order],
            runtime=self._column("runtime")[order],
            user=renumbered[user],
            job=self._column("job")[order],
            demand=self._column("demand")[order],
            constraint=self._column("constraint")[order],
            machines=machines,
            constraints=constraints,
        )

    def _column(self, name: str) -> NDArray[Any]:
        return np.concatenate(self._columns.pop(name))
