"""Google's cluster trace of 2011: events of tasks, paired into attempts to run them."""

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
    Gathering,
    LeftOut,
    Sieve,
    TaskRows,
    TotalCheck,
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
"""Parts of the biggest machine, as published."""

BEFORE = 0
"""The time of what happened before the trace began."""
AFTER = 2**63 - 1
"""The time of what happened after the trace ended."""

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
    """What happened to a task."""

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
    """Events in the order of the files, one entry each."""

    time: NDArray[np.int64]
    job: NDArray[np.int64]
    index: NDArray[np.int64]
    event: NDArray[np.int64]
    user: NDArray[np.int32]
    demand: NDArray[np.float64]
    file: NDArray[np.int32]
    line: NDArray[np.int64]

    def __getitem__(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> "_Events":
        return _Events(*(getattr(self, field.name)[which] for field in fields(self)))

    def then(self, others: "_Events") -> "_Events":
        return _Events(
            *(
                np.concatenate((getattr(self, field.name), getattr(others, field.name)))
                for field in fields(self)
            )
        )


class DemandAt(StrEnum):
    """When what a task asks for is read."""

    SCHEDULE = "schedule"
    SUBMIT = "submit"


def convert(source: Path, demand_at: DemandAt = DemandAt.SCHEDULE) -> Conversion:
    """Read a folder of the trace, or one file of its `task_events`.

    Every attempt to run a task, from its submission to its end, is a task of its own, submitted
    when the attempt was and running from when it was last scheduled to its end. As in Stateful
    DRF, §7.2, attempts that were evicted or killed and those with a demand of 0 are left out,
    and failed ones are kept.

    A folder with `machine_events` gives machines as well, and constraints if it has
    `machine_attributes` and `task_constraints`.

    Memory beyond the trace is that of the attempts that run at one time, and of 16 MB of text.

    Args:
        source: The folder or file.
        demand_at: "schedule", as SDRF's authors do: the demand is that of the last SCHEDULE, and an
            attempt that asks for no CPU or for no memory is left out. "submit": the demand is
            that of SUBMIT, and only what asks for neither is left out. A demand that is missing in
            one event is that of the other.

    Raises:
        OSError: A file cannot be read.
        TraceError: There are no files of task events.
    """
    left_out = LeftOut()
    paths = files(source, "task_events") if source.is_dir() else [source]
    if not paths:
        later = next(source.glob("instance_events*"), None)
        raise TraceError(
            f"{source} has no folder task_events with files part-*.csv or .csv.gz"
            + (f"; {later.name} is of the trace of 2019, which is not read" if later else "")
        )
    where = placement(source, left_out) if (source / "machine_events").is_dir() else None
    attempts = _Attempts(paths, left_out, where, demand_at)
    for place, path in enumerate(paths):
        for batch in separated(path, _TASK_EVENTS, left_out):
            attempts.add(place, batch)
    gathering = attempts.finish()
    machines, constraints = ((), ()) if where is None else (where.machines, where.constraints)
    return Conversion(
        gathering.trace(machines, constraints),
        left_out,
        attempts.assumed,
        _IGNORED,
        tuple(_files_check(paths)) if source.is_dir() else (),
    )


def _files_check(paths: list[Path]) -> Iterator[TotalCheck]:
    """Compare the files with how many there are by their names, `part-00003-of-00500.csv.gz`."""
    named = [int(match[1]) for path in paths if (match := _OF_FILES.search(path.name))]
    if named:
        yield TotalCheck("names of task_events", "files", len(named), max(named), len(paths), 0.0)


class _Attempts:
    """Pairs events, batch by batch, and keeps those of attempts that have not ended yet."""

    def __init__(
        self,
        paths: list[Path],
        left_out: LeftOut,
        placement: Placement | None,
        demand_at: DemandAt,
    ) -> None:
        self._paths = paths
        self._left_out = left_out
        self._gathering = Gathering(RESOURCES)
        self._users: dict[str, int] = {}
        self._placement = placement
        self._demand_at = demand_at
        self._open: _Events | None = None
        self.assumed = LeftOut()

    def add(self, file: int, rows: Rows) -> None:
        """Take in the next rows."""
        events = self._events(file, rows)
        if self._open is not None:
            events = self._open.then(events)
        order = np.lexsort((events.index, events.job))  # stable: in a task, as they happened
        events = events[order]
        self._open = self._pair(events)

    def finish(self) -> Gathering:
        """Leave out what has not ended, and return the tasks."""
        if self._open is not None and len(self._open.time):
            rest = self._open
            submitted = rest.event == Event.SUBMIT
            self._drop("never ended", rest, submitted)
            task = np.cumsum(_begins(rest)) - 1
            of_task = np.bincount(task, submitted)
            self._drop("scheduled without having been submitted", rest, of_task[task] == 0)
        return self._gathering

    def _events(self, file: int, rows: Rows) -> _Events:
        sieve = Sieve(self._left_out, self._paths[file].name, rows.lines)
        whole = {}
        for name in ("time", "job", "index", "event"):
            whole[name], unreadable = integers(rows.columns[name])
            sieve.drop(f"{name} is no whole number", unreadable)
        sieve.drop("time is negative", whole["time"] < 0)
        sieve.drop("index is not from 0 to 2^31", whole["index"] >> 31 != 0)
        sieve.drop("event is of no known type", ~np.isin(whole["event"], list(Event)))
        demand = np.empty((len(rows), len(RESOURCES)))
        for place, name in enumerate(RESOURCES):
            demand[:, place], unreadable = numbers(rows.columns[name])
            empty = missing(rows.columns[name])
            sieve.drop(f"demand of {name} is no number", unreadable & ~empty)
            demand[empty, place] = np.nan
        counted = sieve.kept & (whole["event"] < Event.UPDATE_PENDING)
        for reason, rows_of in (
            ("updates a demand: not read", sieve.kept & ~counted),
            (
                "was made up by Google for a missing event",
                counted & ~missing(rows.columns["missing"]),
            ),
        ):
            self.assumed.add(reason, self._paths[file].name, rows.lines[rows_of])
        users = rows.columns["user"].dictionary_encode()
        codes = [
            self._users.setdefault(name, len(self._users)) for name in users.dictionary.to_pylist()
        ]
        user = np.array(codes, np.int32)[users.indices.to_numpy(zero_copy_only=False)]
        here = np.full(len(rows), file, np.int32)
        return _Events(**whole, user=user, demand=demand, file=here, line=rows.lines)[counted]

    def _pair(self, events: _Events) -> _Events:
        """Find the attempts that have ended, and return the events of the others.

        Events come task by task. An attempt is what a task has between two ends.
        """
        place = np.arange(len(events.time))
        begins = _begins(events)
        ended = (events.event >= Event.EVICT) & (events.event <= Event.LOST)

        def latest(which: NDArray[np.bool_]) -> NDArray[np.intp]:
            return np.maximum.accumulate(np.where(which, place, -1))

        earlier_end = np.concatenate(([-1], latest(ended)[:-1]))
        first = np.maximum(earlier_end + 1, latest(begins))  # of the attempt at each place
        submission = latest(events.event == Event.SUBMIT)
        schedule = latest(events.event == Event.SCHEDULE)

        before = np.concatenate(([-1], submission[:-1]))
        again = (events.event == Event.SUBMIT) & (before >= first)
        superseded = np.zeros(len(place), np.bool_)
        superseded[before[again]] = True
        self._drop("submitted again before it ended", events, superseded)

        ends = np.flatnonzero(ended)
        self._end(
            events,
            ends,
            np.where(submission[ends] >= first[ends], submission[ends], -1),
            np.where(schedule[ends] >= first[ends], schedule[ends], -1),
        )
        last = np.flatnonzero(np.append(begins[1:], True)) if len(place) else place  # of each task
        task = np.cumsum(begins) - 1
        return events[(place > latest(ended)[last][task]) & ~superseded]

    def _end(
        self,
        events: _Events,
        ends: NDArray[np.intp],
        submissions: NDArray[np.intp],
        schedules: NDArray[np.intp],
    ) -> None:
        """Take in attempts that have ended, each given by its events' places, -1 for none."""
        end, submission, schedule = events[ends], events[submissions], events[schedules]
        named = events[np.where(submissions >= 0, submissions, ends)]
        scheduled = self._demand_at is DemandAt.SCHEDULE
        read, other = (schedule, submission) if scheduled else (submission, schedule)
        demand = np.where(np.isnan(read.demand), other.demand, read.demand)
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
            ("no CPU or no memory" if scheduled else "demand is nothing", ~wanting),
            ("no machine meets its constraints", constraint == NOWHERE),
        ):
            self._drop(reason, named, kept & wrong)
            kept &= ~wrong
        self._gathering.add(
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
        for file in np.unique(events.file[wrong]):
            lines = events.line[wrong & (events.file == file)]
            self._left_out.add(reason, self._paths[file].name, lines)


def _begins(events: _Events) -> NDArray[np.bool_]:
    """Return where the next task's events begin, of events that come task by task."""
    begins = np.ones(len(events.time), np.bool_)
    begins[1:] = (np.diff(events.job) != 0) | (np.diff(events.index) != 0)
    return begins
