"""Common part of the Slurm and HTCondor converters: builds a trace from job records one by one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from allocator.simulation.formats.conversion import (
    Conversion,
    SkippedRows,
    TaskRows,
    TotalCheck,
    TraceBuilder,
)
from allocator.simulation.formats.text import LONGEST
from allocator.simulation.trace import MICROSECONDS

RESOURCES = ("cpus", "mem", "gpus")
"""Resources in every trace: cores, MiB and whole GPUs. Records may have further resources."""
_DAY = 86400
_TOLERANCE = 1e-3
"""Relative difference up to which two figures agree, because Slurm rounds to whole seconds."""
_FRESH_JOB = 2**53
"""First new number for jobs whose own number is already taken by another job."""


class UnusableError(ValueError):
    """Raised if a record cannot become a task; the message is the reason.

    Similar records have the same message, so that they are counted together.
    """


@dataclass
class _Totals:
    """Two totals of core-seconds for a `TotalCheck`: as the file states it, and as in the trace."""

    rows: int = 0
    in_file: float = 0.0
    in_trace: float = 0.0
    differing: dict[tuple[str, str], list[int]] = field(default_factory=dict)


class Records:
    """Collects tasks from job records, and the records that became no task.

    Call `begin` for each record, then `add` or `leave_out`. Times are in seconds since 1970.
    """

    def __init__(self) -> None:
        self._place = ("", 0)
        self._rows_read = 0
        self._left_out: dict[tuple[str, str], list[int]] = {}
        self._assumed: dict[tuple[str, str], list[int]] = {}
        self._assumptions: list[str] = []
        self._ignored: dict[str, None] = {}
        self._warnings: list[str] = []
        self._checks: dict[str, _Totals] = {}
        self._jobs: dict[tuple[str, str, int], int] = {}
        self._job_numbers: set[int] = set()
        self._times: list[tuple[int, int, int]] = []
        self._waits: list[int] = []
        self._users: list[str] = []
        self._demands: list[Mapping[str, float]] = []

    def begin(self, file: str, line: int) -> None:
        """Start a new record: `add`, `assume` and `leave_out` refer to it from now on.

        Args:
            file: Name of the file.
            line: Line or position of the record in the file.
        """
        self._place = (file, line)
        self._rows_read += 1
        self._assumptions = []

    def add(
        self,
        user: str,
        job: tuple[str, int],
        times: tuple[float, float, float | None],
        demand: Mapping[str, float],
        core_seconds: Mapping[str, float | None],
    ) -> None:
        """Add the current record as a task.

        Args:
            user: The task's user.
            job: Name of the cluster or schedd, and the job's number there.
            times: Submission time in seconds since 1970, run time in seconds, and the recorded
                start in seconds since 1970 (None: unknown).
            demand: Demand of the task by resource.
            core_seconds: The record's own statements of its core-seconds, by column, for a check.
                None: not stated.

        Raises:
            UnusableError: The demand is empty, or a time is invalid.
        """
        if not any(demand.values()):
            raise UnusableError("asks for no resource that the trace can have")
        *required, started = times
        if not all(-LONGEST < seconds * MICROSECONDS < LONGEST for seconds in required):
            raise UnusableError("a time is negative or beyond 285 years")
        submitted, ran = (round(seconds * MICROSECONDS) for seconds in required)
        if submitted < 0 or ran < 0:
            raise UnusableError("a time is negative or beyond 285 years")
        self._times.append((submitted, ran, self._job(user, *job)))
        self._waits.append(-1 if started is None else round((started - times[0]) * MICROSECONDS))
        self._users.append(_encodable(user))
        self._demands.append({_encodable(name): amount for name, amount in demand.items()})
        file, line = self._place
        for reason in dict.fromkeys(self._assumptions):
            self._assumed.setdefault((reason, file), []).append(line)
        for column, in_file in core_seconds.items():
            if in_file is not None:
                in_trace = demand.get("cpus", 0.0) * times[1]
                totals = self._checks.setdefault(column, _Totals())
                totals.rows += 1
                totals.in_file += in_file
                totals.in_trace += in_trace
                if abs(in_file - in_trace) > _TOLERANCE * max(in_file, in_trace):
                    totals.differing.setdefault((column, file), []).append(line)

    def assume(self, reason: str) -> None:
        """Count the current record among those that are converted under an assumption.

        Args:
            reason: The assumption, in words for the report.
        """
        self._assumptions.append(reason)

    def ignore(self, columns: Iterable[str]) -> None:
        """Record the names of input columns that the converter does not read."""
        self._ignored.update(dict.fromkeys(columns))

    def warn(self, sentence: str) -> None:
        """Add a warning about the whole file to the report."""
        self._warnings.append(sentence)

    def leave_out(self, reason: str) -> None:
        """Count the current record among those that become no task.

        Args:
            reason: Why it becomes no task, in words for the report.
        """
        file, line = self._place
        self._left_out.setdefault((reason, file), []).append(line)

    def conversion(self) -> Conversion:
        """Build the trace and the conversion report.

        The trace's origin is midnight (UTC) before the first submission.

        Resources that no task uses are left out.
        """
        times = np.array(self._times, np.int64).reshape(-1, 3)
        other_resources = {name for demand in self._demands for name in demand} - {*RESOURCES}
        names = (*RESOURCES, *sorted(other_resources))
        demand = np.array(
            [[demand.get(name, 0.0) for name in names] for demand in self._demands], np.float64
        ).reshape(-1, len(names))
        used = demand.any(axis=0)
        builder = TraceBuilder(tuple(np.array(names)[used].tolist()) or RESOURCES)
        if len(times):
            day = _DAY * MICROSECONDS
            submitted = times[:, 0] - times[:, 0].min() // day * day
            users = pa.array(self._users, pa.string())
            tasks = TaskRows(
                submitted,
                times[:, 1],
                users,
                times[:, 2],
                demand[:, used],
                waits=np.array(self._waits, np.int64),
            )
            builder.add(tasks, np.ones(len(times), np.bool_))
        return Conversion(
            builder.trace(),
            _rows(self._left_out, self._rows_read),
            _rows(self._assumed),
            tuple(self._ignored),
            tuple(_check(column, totals) for column, totals in self._checks.items()),
            warnings=tuple(self._warnings),
            recorded_waits=builder.recorded_waits,
        )

    def _job(self, user: str, scope: str, number: int) -> int:
        """Return a job number that is unique in the trace.

        Args:
            user: The job's user.
            scope: The cluster or schedd that numbered the job; others may use the same number.
            number: The job's number there.
        """
        key = (scope, user, number)
        if key not in self._jobs:
            is_taken = number in self._job_numbers
            self._jobs[key] = _FRESH_JOB + len(self._jobs) if is_taken else number
            self._job_numbers.add(number)
        return self._jobs[key]


def _encodable(name: str) -> str:
    """Return a name that UTF-8 can encode. JSON can escape characters that are none."""
    return name if name.isascii() else name.encode(errors="backslashreplace").decode()


def _rows(lines_by_reason: Mapping[tuple[str, str], list[int]], rows_read: int = 0) -> SkippedRows:
    rows = SkippedRows(rows_read)
    for (reason, file), lines in lines_by_reason.items():
        rows.add(reason, file, np.array(lines, np.int64))
    return rows


def _check(column: str, totals: _Totals) -> TotalCheck:
    return TotalCheck(
        column,
        "core-hours",
        totals.rows,
        totals.in_file / 3600,
        totals.in_trace / 3600,
        _TOLERANCE,
        _rows(totals.differing),
    )
