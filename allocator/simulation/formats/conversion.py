"""Common parts of all converters: collecting tasks, and reporting the rows that became no task."""

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
"""A pyarrow array of strings. The alias documents arguments, because pyarrow has no types."""


_NAMED = 3
"""Number of example rows that are listed for each reason."""


@dataclass
class SkippedRows:
    """Input rows that were skipped, or converted under an assumption, grouped by reason.

    A row takes 8 bytes of memory.

    Args:
        rows_read: Total rows of all files, including skipped rows. Headers and comments do not
            count.
    """

    rows_read: int = 0
    _lines: dict[str, list[tuple[str, NDArray[np.int64]]]] = field(default_factory=dict)

    def add(self, reason: str, file: str, lines: NDArray[np.int64]) -> None:
        """Record rows of a file that were skipped or converted under an assumption.

        Args:
            reason: Why the rows were skipped, or the assumption made.
            file: The file's name.
            lines: Line numbers in the file, from 1.
        """
        if len(lines):
            self._lines.setdefault(reason, []).append((file, lines))

    def counts(self) -> dict[str, int]:
        """Return the number of rows for each reason, most frequent reason first."""
        counts = {
            reason: sum(len(lines) for _, lines in entries)
            for reason, entries in self._lines.items()
        }
        return dict(sorted(counts.items(), key=lambda count: (-count[1], count[0])))

    def first(self, reason: str) -> list[str]:
        """Return the first rows recorded for a reason, as FILE:LINE, to show as examples."""
        rows = islice(self._rows(reason), _NAMED)
        return [f"{file}:{line}" for file, line in rows]

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Iterate over all rows as (reason, file, line)."""
        for reason in self.counts():
            for file, line in self._rows(reason):
                yield reason, file, line

    def _rows(self, reason: str) -> Iterator[tuple[str, int]]:
        for file, lines in self._lines[reason]:
            for line in lines:
                yield file, int(line)


@dataclass(frozen=True)
class TotalCheck:
    """A total computed from the trace, compared with the same total stated by the input file.

    A difference reveals an error of the conversion or of the file.

    Args:
        figure: Name of the column or header that states the total.
        unit: Unit of both totals.
        rows: Number of rows that count in both totals.
        in_file: The total as stated by the file.
        in_trace: The total of the same rows in the trace.
        tolerance: Largest relative difference of the totals that still counts as agreement.
        differing: Rows whose stated figure differs from the figure computed from the row's task.
    """

    figure: str
    unit: str
    rows: int
    in_file: float
    in_trace: float
    tolerance: float = 1e-3
    differing: SkippedRows = field(default_factory=SkippedRows)

    @property
    def agrees(self) -> bool:
        """True if the totals differ by no more than the tolerance."""
        larger = max(self.in_file, self.in_trace)
        return abs(self.in_file - self.in_trace) <= self.tolerance * larger


@dataclass(frozen=True)
class Conversion:
    """A converted trace, and figures for judging the conversion.

    Args:
        trace: The tasks.
        left_out: Rows that became no task, and the number of rows read.
        assumed: Rows converted under an assumption, because a field was not understood.
        ignored: Names of input columns that the converter does not read.
        checks: Totals of the trace, compared with totals that the input states.
        resource_columns: Names of input columns that became resources because of their names; the
            user should check that each column contains amounts.
        warnings: Sentences about columns whose meaning was guessed, and how to state it.
        recorded_waits: Microseconds from each task's submission to its recorded start, int64; -1
            if the start is unknown. None: the format records no starts.
    """

    trace: Trace
    left_out: SkippedRows
    assumed: SkippedRows = field(default_factory=SkippedRows)
    ignored: tuple[str, ...] = ()
    checks: tuple[TotalCheck, ...] = ()
    resource_columns: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    recorded_waits: NDArray[np.int64] | None = None


def resource_hours(trace: Trace) -> dict[str, float]:
    """Return Σ demand × run time over all tasks by resource, in units × hours."""
    totals = (trace.runtime / (3600 * MICROSECONDS)) @ trace.demand
    return dict(zip(trace.resources, totals.tolist(), strict=True))


class RowFilter:
    """Collects the invalid rows of a batch, with the reason for each.

    After all checks of the batch, the valid rows become tasks, and the others are skipped.
    """

    def __init__(self, left_out: SkippedRows, file: str, lines: NDArray[np.int64]) -> None:
        self._left_out = left_out
        self._file = file
        self._lines = lines
        self.kept = np.ones(len(lines), np.bool_)

    def drop(self, reason: str, wrong: NDArray[np.bool_]) -> None:
        """Mark rows as invalid. A row that is already invalid keeps its first reason.

        Args:
            reason: Why the rows are invalid.
            wrong: A mask of the invalid rows.
        """
        self._left_out.add(reason, self._file, self._lines[self.kept & wrong])
        self.kept &= ~wrong


@dataclass(frozen=True)
class TaskRows:
    """Tasks parsed from a batch of rows, one entry per row.

    Args:
        submitted: Submission times in microseconds.
        runtime: Run times in microseconds.
        user: Names of the users.
        job: Job numbers.
        demand: Demands, shape (rows, resources).
        constraint: Constraint numbers, as in `Trace`. None: every task may run on every machine.
        waits: Microseconds from submission to the recorded start; negative: unknown. None: no start
            is recorded.
    """

    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    user: Text
    job: NDArray[np.int64]
    demand: NDArray[np.float64]
    constraint: NDArray[np.int32] | None = None
    waits: NDArray[np.int64] | None = None


def numbered(names: Text, numbers: dict[str, int]) -> NDArray[np.int64]:
    """Return a number for each name, from 0 in order of first appearance.

    Args:
        names: The names.
        numbers: The numbers of names so far; new names are added.
    """
    encoded = names.dictionary_encode()
    known = [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()]
    places: NDArray[np.int64] = np.array(known, np.int64)
    numbers_of_rows: NDArray[np.int64] = places[encoded.indices.to_numpy(zero_copy_only=False)]
    return numbers_of_rows


class TraceBuilder:
    """Collects tasks from batches, in any order, and builds a trace from them."""

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
        self._waits = [np.empty(0, np.int64)]
        self.recorded_waits = np.empty(0, np.int64)
        """`Conversion.recorded_waits` of the trace, once `trace` has returned it."""

    def add(self, tasks: TaskRows, kept: NDArray[np.bool_]) -> None:
        """Add tasks of a batch.

        Args:
            tasks: The batch.
            kept: A mask of the tasks to add; all others are ignored.
        """
        users = numbered(tasks.user.filter(pa.array(kept)), self._users)
        self._columns["user"].append(users.astype(np.int32))
        for name in ("submitted", "runtime", "job", "demand"):
            self._columns[name].append(getattr(tasks, name)[kept])
        self._columns["constraint"].append(
            np.full(len(users), UNCONSTRAINED, np.int32)
            if tasks.constraint is None
            else tasks.constraint[kept]
        )
        self._waits.append(
            np.full(len(users), -1, np.int64)
            if tasks.waits is None
            else np.maximum(tasks.waits[kept], -1)
        )

    def trace(
        self,
        machines: tuple[MachineClass, ...] = (),
        constraints: tuple[tuple[int, ...], ...] = (),
    ) -> Trace:
        """Build the trace: all tasks in order of submission.

        Simultaneous tasks keep their input order.

        Columns are concatenated and released one by one, so peak memory is little more than one
        trace.

        Args:
            machines: Machine classes of the trace.
            constraints: For each constraint number, the indices of the allowed machine classes.
        """
        submitted = self._column("submitted")
        order: NDArray[np.intp] | slice = slice(None)  # most traces are in order; avoid a copy
        if (submitted[1:] < submitted[:-1]).any():
            order = np.argsort(submitted, kind="stable")
        self.recorded_waits = np.concatenate(self._waits)[order]
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
