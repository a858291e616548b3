"""Converter for Google's cluster trace of 2011: pairs task events into attempts to run a task."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from allocator.simulation.formats.conversion import (
    Conversion,
    RowFilter,
    SkippedRows,
    TaskRows,
    TotalCheck,
    TraceBuilder,
)
from allocator.simulation.formats.google_machines import NOWHERE, Placement, files, placement
from allocator.simulation.formats.text import (
    LONGEST,
    Rows,
    integers,
    missing,
    numbers,
    separated,
)
from allocator.simulation.trace import UNCONSTRAINED, TraceError

RESOURCES = ("cpus", "mem")
"""Names of the resources. Amounts are fractions of the largest machine, as published."""

BEFORE = 0
"""Timestamp of events that happened before the trace began."""
AFTER = 2**63 - 1
"""Timestamp of events that happened after the trace ended."""

_TASK_EVENTS = (
    "time",
    "missing",
    "job",
    "index",
    "machine",
    "event",
    "user",
    "class",
    "priority",
    "cpus",
    "mem",
    "disk",
    "different_machine",
)


_IGNORED = ("machine", "class", "priority", "disk", "different_machine")
_OF_FILES = re.compile(r"^part-\d+-of-(\d+)\.csv")


class Event(IntEnum):
    """Type of a task event, with the number used in the trace."""

    SUBMIT = 0
    SCHEDULE = 1
    EVICT = 2
    FAIL = 3
    FINISH = 4
    KILL = 5
    LOST = 6
    UPDATE_PENDING = 7
    UPDATE_RUNNING = 8


_UNWANTED = {Event.EVICT: "evicted", Event.KILL: "killed", Event.LOST: "lost"}


@dataclass(frozen=True)
class _Events:
    """A batch of task events in file order; arrays have one entry per event."""

    time: NDArray[np.int64]
    job: NDArray[np.int64]
    index: NDArray[np.int64]
    event: NDArray[np.int64]
    user: NDArray[np.int32]
    demand: NDArray[np.float64]
    file: NDArray[np.int32]
    line: NDArray[np.int64]

    def __getitem__(self, selection: NDArray[np.bool_] | NDArray[np.intp]) -> "_Events":
        return _Events(*(getattr(self, field.name)[selection] for field in fields(self)))

    def then(self, later: "_Events") -> "_Events":
        return _Events(
            *(
                np.concatenate((getattr(self, field.name), getattr(later, field.name)))
                for field in fields(self)
            )
        )


class DemandAt(StrEnum):
    """Choice of the event from which a task's demand is read."""

    SCHEDULE = "schedule"
    SUBMIT = "submit"


def convert(source: Path, demand_at: DemandAt = DemandAt.SCHEDULE) -> Conversion:
    """Convert a folder of Google's trace, or a single file of its `task_events`.

    Each attempt to run a task becomes a task. Its submission is the attempt's submission. Its run
    time is the time from the attempt's last scheduling to the attempt's end. As in the SDRF paper
    (§7.2), evicted and killed attempts and attempts with a demand of 0 are skipped. Failed attempts
    are kept.

    A folder with `machine_events` gives machines as well, and constraints if it has
    `machine_attributes` and `task_constraints`.

    Beyond the trace, memory is needed for the attempts that run at one time, and for 16 MB of text.

    Args:
        source: The folder or file.
        demand_at: "schedule", as SDRF's authors do: the demand is read from the last SCHEDULE
            event, and attempts without CPU or without memory are skipped. "submit": the demand is
            read from the SUBMIT event, and only attempts without both are skipped. If the demand is
            missing in one event, it is read from the other event.

    Raises:
        OSError: A file cannot be read.
        TraceError: There are no files of task events.
    """
    left_out = SkippedRows()
    paths = files(source, "task_events") if source.is_dir() else [source]
    if not paths:
        newer = next(source.glob("instance_events*"), None)
        raise TraceError(
            f"{source} has no folder task_events with files part-*.csv or .csv.gz"
            + (f"; {newer.name} is of the trace of 2019, which is not read" if newer else "")
        )
    places = placement(source, left_out) if (source / "machine_events").is_dir() else None
    attempts = _Attempts(paths, left_out, places, demand_at)
    for index, path in enumerate(paths):
        for batch in separated(path, _TASK_EVENTS, left_out):
            attempts.add(index, batch)
    builder = attempts.finish()
    machines, constraints = ((), ()) if places is None else (places.machines, places.constraints)
    return Conversion(
        builder.trace(machines, constraints),
        left_out,
        attempts.assumed,
        _IGNORED,
        tuple(_files_check(paths)) if source.is_dir() else (),
    )


def _files_check(paths: list[Path]) -> Iterator[TotalCheck]:
    """Compare the number of files with the total in their names (`part-00003-of-00500.csv.gz`).

    Yield one result; none if the names have no total.
    """
    named = [int(match[1]) for path in paths if (match := _OF_FILES.search(path.name))]
    if named:
        yield TotalCheck("names of task_events", "files", len(named), max(named), len(paths), 0.0)


class _Attempts:
    """Matches task events (SUBMIT, SCHEDULE, end) to attempts to run a task, batch by batch.

    Events of attempts that have not ended are kept for the next batch.
    """

    def __init__(
        self,
        paths: list[Path],
        left_out: SkippedRows,
        placement: Placement | None,
        demand_at: DemandAt,
    ) -> None:
        self._paths = paths
        self._left_out = left_out
        self._builder = TraceBuilder(RESOURCES)
        self._users: dict[str, int] = {}
        self._placement = placement
        self._demand_at = demand_at
        self._open: _Events | None = None
        self.assumed = SkippedRows()

    def add(self, file: int, rows: Rows) -> None:
        """Add the next batch of events.

        Args:
            file: Index of the file that contains the rows.
            rows: The rows to add.
        """
        events = self._events(file, rows)
        if self._open is not None:
            events = self._open.then(events)
        # The sort is stable: events of a task stay in order.
        order = np.lexsort((events.index, events.job))
        events = events[order]
        self._open = self._pair(events)

    def finish(self) -> TraceBuilder:
        """End the input: skip attempts that have not ended. Return the builder with all tasks."""
        if self._open is not None and len(self._open.time):
            remaining = self._open
            submitted = remaining.event == Event.SUBMIT
            self._drop("never ended", remaining, submitted)
            task = np.cumsum(_begins(remaining)) - 1
            submissions = np.bincount(task, submitted)
            self._drop("scheduled without having been submitted", remaining, submissions[task] == 0)
        return self._builder

    def _events(self, file: int, rows: Rows) -> _Events:
        checked = RowFilter(self._left_out, self._paths[file].name, rows.lines)
        integer_columns = {}
        for name in ("time", "job", "index", "event"):
            integer_columns[name], unreadable = integers(rows.columns[name])
            checked.drop(f"{name} is not a whole number", unreadable)
        checked.drop("time is negative", integer_columns["time"] < 0)
        checked.drop("index is not from 0 to 2^31", integer_columns["index"] >> 31 != 0)
        checked.drop("event is of an unknown type", ~np.isin(integer_columns["event"], list(Event)))
        demand = np.empty((len(rows), len(RESOURCES)))
        for index, name in enumerate(RESOURCES):
            demand[:, index], unreadable = numbers(rows.columns[name])
            empty = missing(rows.columns[name])
            checked.drop(f"demand of {name} is not a number", unreadable & ~empty)
            demand[empty, index] = np.nan
        counted = checked.kept & (integer_columns["event"] < Event.UPDATE_PENDING)
        for reason, rows_of in (
            ("updates a demand: not read", checked.kept & ~counted),
            (
                "Google inserted it for a missing event",
                counted & ~missing(rows.columns["missing"]),
            ),
        ):
            self.assumed.add(reason, self._paths[file].name, rows.lines[rows_of])
        users = rows.columns["user"].dictionary_encode()
        codes = [
            self._users.setdefault(name, len(self._users)) for name in users.dictionary.to_pylist()
        ]
        user = np.array(codes, np.int32)[users.indices.to_numpy(zero_copy_only=False)]
        file_index = np.full(len(rows), file, np.int32)
        return _Events(
            **integer_columns, user=user, demand=demand, file=file_index, line=rows.lines
        )[counted]

    def _pair(self, events: _Events) -> _Events:
        """Add a task for each attempt that has ended. Return the events of all other attempts.

        Events are grouped by task. An attempt consists of a task's events after the end of its
        previous attempt, up to its own end.
        """
        index = np.arange(len(events.time))
        begins = _begins(events)
        ended = (events.event >= Event.EVICT) & (events.event <= Event.LOST)

        def latest(mask: NDArray[np.bool_]) -> NDArray[np.intp]:
            return np.maximum.accumulate(np.where(mask, index, -1))

        earlier_end = np.concatenate(([-1], latest(ended)[:-1]))
        # At each index: the first event of its attempt.
        first = np.maximum(earlier_end + 1, latest(begins))
        submission = latest(events.event == Event.SUBMIT)
        schedule = latest(events.event == Event.SCHEDULE)

        before = np.concatenate(([-1], submission[:-1]))
        resubmitted = (events.event == Event.SUBMIT) & (before >= first)
        superseded = np.zeros(len(index), np.bool_)
        superseded[before[resubmitted]] = True
        self._drop("submitted again before it ended", events, superseded)

        ends = np.flatnonzero(ended)
        self._end(
            events,
            ends,
            np.where(submission[ends] >= first[ends], submission[ends], -1),
            np.where(schedule[ends] >= first[ends], schedule[ends], -1),
        )
        # The last event of each task.
        last = np.flatnonzero(np.append(begins[1:], True)) if len(index) else index
        task = np.cumsum(begins) - 1
        return events[(index > latest(ended)[last][task]) & ~superseded]

    def _end(
        self,
        events: _Events,
        ends: NDArray[np.intp],
        submissions: NDArray[np.intp],
        schedules: NDArray[np.intp],
    ) -> None:
        """Add tasks for attempts that have ended.

        Arguments after `events` are arrays of indices in it.

        Args:
            events: All events, grouped by task.
            ends: For each attempt, its last event.
            submissions: For each attempt, its SUBMIT event, or −1.
            schedules: For each attempt, its last SCHEDULE event, or −1.
        """
        end, submission, schedule = events[ends], events[submissions], events[schedules]
        named = events[np.where(submissions >= 0, submissions, ends)]
        scheduled = self._demand_at is DemandAt.SCHEDULE
        read, fallback = (schedule, submission) if scheduled else (submission, schedule)
        demand = np.where(np.isnan(read.demand), fallback.demand, read.demand)
        wanting = (demand > 0).all(axis=1) if scheduled else (demand > 0).any(axis=1)
        constraint = (
            np.full(len(ends), UNCONSTRAINED, np.int32)
            if self._placement is None
            else self._placement.of(submission.job, submission.index)
        )
        kept = np.ones(len(ends), np.bool_)
        for reason, wrong in (
            ("ended without having been submitted", submissions < 0),
            *((reason, end.event == event) for event, reason in _UNWANTED.items()),
            ("never scheduled", schedules < 0),
            ("submitted before the trace began", submission.time == BEFORE),
            ("ended after the trace", end.time == AFTER),
            ("time is beyond 285 years", end.time > LONGEST),
            ("scheduled before it was submitted", schedule.time < submission.time),
            ("ended before it was scheduled", end.time < schedule.time),
            ("no user", submission.user == self._users.get("", -1)),
            ("demand is missing", np.isnan(demand).any(axis=1)),
            ("demand is negative", (demand < 0).any(axis=1)),
            ("no CPU or no memory" if scheduled else "demand is zero", ~wanting),
            ("no machine meets its constraints", constraint == NOWHERE),
        ):
            self._drop(reason, named, kept & wrong)
            kept &= ~wrong
        missing_demand = kept & np.isnan(read.demand).any(axis=1)
        read_at, other = (Event.SCHEDULE, Event.SUBMIT)[:: 1 if scheduled else -1]
        reason = f"demand is missing in {read_at.name}: that of {other.name} is used"
        self._record(self.assumed, reason, named, missing_demand)
        self._builder.add(
            TaskRows(
                submitted=submission.time,
                runtime=end.time - schedule.time,
                user=pa.DictionaryArray.from_arrays(
                    pa.array(submission.user), pa.array(list(self._users), pa.string())
                ),
                job=submission.job,
                demand=demand,
                constraint=constraint,
            ),
            kept,
        )

    def _drop(self, reason: str, events: _Events, wrong: NDArray[np.bool_]) -> None:
        self._record(self._left_out, reason, events, wrong)

    def _record(
        self, report: SkippedRows, reason: str, events: _Events, selected: NDArray[np.bool_]
    ) -> None:
        for file in np.unique(events.file[selected]):
            lines = events.line[selected & (events.file == file)]
            report.add(reason, self._paths[file].name, lines)


def _begins(events: _Events) -> NDArray[np.bool_]:
    """Return a mask that selects each task's first event. Events must be grouped by task."""
    begins = np.ones(len(events.time), np.bool_)
    begins[1:] = (np.diff(events.job) != 0) | (np.diff(events.index) != 0)
    return begins
