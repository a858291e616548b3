"""Attempts of jobs from the accounting: `sacct`, or the text file of `jobcomp/filetxt`."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import quantities
from allocator.slurm.rows import (
    COLUMN_END,
    RejectedRecords,
    ShapeError,
    excerpt,
    plain_name,
    reason_of,
    split_rows,
)
from allocator.slurm.task_shares import Measure
from allocator.slurm.timelines import Attempt, Step
from allocator.slurm_notation import (
    NEVER,
    RUNNING,
    NotationError,
    duration,
    instant,
    job_state,
    number,
)

ACCOUNTING_COLUMNS = (
    "JobIDRaw",
    "User",
    "Account",
    "State",
    "Submit",
    "Start",
    "End",
    "Suspended",
    "AllocTRES",
)
"""Columns of `sacct --format`, in the order in which `read_accounting` needs them."""
_JOBCOMP_HEAD = re.compile(r"JobId=(\d+) UserId=([^ (]+)\(\d+\) GroupId=")
_JOBCOMP_END = re.compile(r" ExitCode=\d+:\d+ ?$")
_JOBCOMP_FIELDS = {
    name: re.compile(rf" {name}=(\S*)")
    for name in ("JobState", "StartTime", "EndTime", "ProcCnt", "Tres", "Account", "QOS")
}
_JOBCOMP_TEXTS = [f" {name}=" for name in _JOBCOMP_FIELDS]
_LONGEST_END = 64
"""Maximum number of characters of the end of a record."""
_LONGEST_RECORD = 1 << 20
"""Number of characters after which a record ends, because no record of Slurm is as long."""
_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_MOST_CLOCK_CHANGE = 7200.0
"""Maximum number of seconds by which clocks are set back."""
_JOBCOMP_ACCOUNT = re.compile(r" Account=(.*) QOS=", re.DOTALL)


class Record(NamedTuple):
    """An attempt to run a job, as the accounting tells it."""

    job: int
    user: str
    account: str
    attempt: Attempt
    exact: bool
    """False: the accounting does not tell the times of suspensions or changes of size."""


class _Row(NamedTuple):
    """A row of the accounting: an attempt, or the time of an attempt with a constant size."""

    job: int
    user: str
    account: str
    state: str
    start: float
    end: float | None
    suspended: float
    step: Step
    exact: bool


def read_accounting(
    printed: bytes, measure: Measure = quantities, rejected: RejectedRecords | None = None
) -> list[Record]:
    """Read the output of `sacct --duplicates --allocations --parsable --noheader`.

    Args:
        printed: Rows with `ACCOUNTING_COLUMNS`, for `split_rows`, with times in seconds since 1970.
        measure: Converts trackable resources to quantities.
        rejected: Counts unreadable rows.

    Raises:
        ShapeError: A row has other columns, or most rows of most users have an unknown form.
    """
    rows: list[_Row] = []
    users: set[str] = set()
    readable = 0
    reasons: dict[str, list[str]] = {}
    counter = RejectedRecords() if rejected is None else rejected
    for row in split_rows(printed, len(ACCOUNTING_COLUMNS), "sacct"):
        job, user, *_ = fields = row.split(COLUMN_END)
        user = plain_name(user)
        try:
            rows += _accounting_row(fields, measure)
        except (ShapeError, NotationError) as error:
            reason = f"sacct, job {job}: {reason_of(error)}: {excerpt(row)}"
            if isinstance(error, _UnmeasuredError):
                counter.add("sacct", reason)
            else:
                reasons.setdefault(user, []).append(reason)
        else:
            users.add(user)
            readable += 1
    if reasons:
        counter.add_rows("sacct", reasons, users, readable)
    return _records(rows)


class _UnmeasuredError(ShapeError):
    """An attempt ran, but the accounting does not tell its resources."""


def _accounting_row(fields: Sequence[str], measure: Measure) -> list[_Row]:
    """Return a row of `sacct` as a list; an empty list if the job has not started.

    Raises:
        ShapeError: A field is not a number, or an attempt that ran has no resources.
        NotationError: A field has an unknown form.
    """
    job, user, account, state, submit, start, end, suspended, resources = fields
    if start in NEVER:
        return []
    if not resources:  # a job that was cancelled before its start has the same start and end
        if end not in NEVER and start != end:
            raise _UnmeasuredError("AllocTRES is empty, although the attempt ran")
        return []
    if not all(text.isdecimal() for text in (job, submit, start)):
        raise ShapeError("a job id or a time is not a number")
    has_ended = end not in NEVER and job_state(state) not in RUNNING
    return [
        _Row(
            job=int(job),
            user=plain_name(user),
            account=plain_name(account),
            state=job_state(state),
            # After a change of size, the submission is the time of the change; the start is not.
            start=(begin := max(float(start), float(submit))),
            end=number(end, "the end") if has_ended else None,
            suspended=duration(suspended, "Suspended") or 0.0,
            step=Step(begin, measure(resources)),
            exact=True,
        )
    ]


def read_jobcomp(
    lines: Iterable[str],
    measure: Measure = quantities,
    rejected: RejectedRecords | None = None,
    since: float = -math.inf,
) -> list[Record]:
    """Read lines of the file that `jobcomp/filetxt` writes: a line for each ended attempt.

    The file has the allocated cores, but of other resources the requested amounts. For a job whose
    size changed, the file does not tell the start. It then counts from the change. The file's times
    are in the time zone of slurmctld, which must be that of this machine.

    A job's name may repeat fields of Slurm. Such a record is ambiguous and set aside. But a name
    with a complete end of a record, a line break, and a beginning looks like two records.

    Args:
        lines: Lines of the file.
        measure: Converts trackable resources to quantities.
        rejected: Counts unreadable records.
        since: Records of jobs that ended at least two hours before this time may be left out. The
            time is in seconds since 1970.

    Raises:
        ShapeError: No record can be read; the message names the first field.
    """
    rows: list[_Row] = []
    first = ""
    counter = RejectedRecords() if rejected is None else rejected
    readable = 0
    oldest = _oldest_end(since)
    for text in _jobcomp_records(lines):
        ends = _JOBCOMP_FIELDS["EndTime"].findall(text)
        if ends and all(_LOCAL_TIME.fullmatch(end) and end < oldest for end in ends):
            readable += 1
            continue
        try:
            rows += _jobcomp_row(text, measure)
            readable += 1
        except _AmbiguousError as error:
            counter.add("jobcomp", f"jobcomp: {reason_of(error)}: {excerpt(text)}")
        except ValueError as error:
            reason = f"jobcomp: {reason_of(error)}: {excerpt(text)}"
            first = first or reason
            counter.add("jobcomp", reason)
    if first and not readable:
        raise ShapeError(first)
    return _records(rows)


def _oldest_end(since: float) -> str:
    """Return the local time from which ends of jobs count, in the form of jobcomp.

    Args:
        since: Seconds since 1970.
    """
    if math.isinf(since):
        return ""
    moment = datetime.fromtimestamp(max(since - _MOST_CLOCK_CHANGE, 0.0), UTC)
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")


class _AmbiguousError(ShapeError):
    """A user's text repeats a field of Slurm."""


def _jobcomp_records(lines: Iterable[str]) -> Iterator[str]:
    """Yield the records of the file, each with all fields.

    A job's name may have line breaks, and the text at the end of a record. So a record ends only
    after all fields.
    """
    record: list[str] = []
    length = 0
    missing = _JOBCOMP_TEXTS
    for line in lines:
        if record or line.strip():
            record.append(line)
            length += len(line) + 1
            missing = [text for text in missing if text not in line]
        complete = not missing and _JOBCOMP_END.search(line[-_LONGEST_END:])
        if record and (complete or length > _LONGEST_RECORD):
            yield "\n".join(record)
            record, length, missing = [], 0, _JOBCOMP_TEXTS
    if record:
        yield "\n".join(record)


def _jobcomp_row(text: str, measure: Measure) -> list[_Row]:
    """Return a record as a list; an empty list if the job has not started.

    Raises:
        ValueError: A field is missing, occurs several times, or has an unknown form.
    """
    head = _JOBCOMP_HEAD.match(text)
    if head is None:
        raise ShapeError("the field JobId, UserId or GroupId is missing")
    if len(_JOBCOMP_HEAD.findall(text)) > 1:
        raise _AmbiguousError("the fields JobId and UserId occur several times")
    fields = {}
    for name, pattern in _JOBCOMP_FIELDS.items():
        values = pattern.findall(text)
        if not values:
            raise ShapeError(f"the field {name} is missing")
        if len(values) > 1:
            raise _AmbiguousError(f"the field {name} occurs several times")
        fields[name] = values[0]
    account = _JOBCOMP_ACCOUNT.search(text)
    if account is None:
        raise ShapeError("the field QOS is not after the account")
    if fields["StartTime"] in NEVER:
        return []
    start = instant(fields["StartTime"], None, "StartTime")
    end = instant(fields["EndTime"], None, "EndTime")
    if end < start:  # clocks were set back in between
        end = instant(fields["EndTime"], None, "EndTime", fold=1)
    # Tres has the requested resources. Of an exclusive node's cores, ProcCnt tells all.
    requested = measure(fields["Tres"]).to_doubles()
    cores = number(fields["ProcCnt"], "ProcCnt")
    state = job_state(fields["JobState"])
    return [
        _Row(
            job=int(head[1]),
            user=plain_name(head[2]),
            account="" if account[1] in NEVER else plain_name(account[1]),
            state=state,
            start=start,
            end=end,
            suspended=0.0,
            step=Step(start, Quantities.from_doubles(requested | {"cpus": cores})),
            exact=state != "RESIZING",
        )
    ]


def _records(rows: list[_Row]) -> list[Record]:
    """Combine rows of one attempt with different sizes."""
    rows.sort(key=lambda row: (row.job, row.start, row.end is None, row.end))
    return [
        record for _, parts in groupby(rows, lambda row: row.job) for record in _attempts(parts)
    ]


def _attempts(rows: Iterable[_Row]) -> Iterator[Record]:
    """Yield the attempts of one job, whose rows are in order of time."""
    sizes: list[Step] = []
    exact = True
    for row in rows:
        sizes.append(row.step)
        exact = exact and row.exact and not row.suspended
        if row.state == "RESIZING":
            continue
        attempt = Attempt(sizes[0].time, sizes, [], row.end)
        if row.suspended and row.end is not None:  # only the sum of all suspensions is known
            attempt.pauses = [(max(row.end - row.suspended, attempt.start), row.end)]
        yield Record(row.job, row.user, row.account, attempt, exact)
        sizes, exact = [], True
