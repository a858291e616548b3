"""Attempts of jobs from the accounting: `sacct`, or the text file of `jobcomp/filetxt`."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import ShapeError, quantities
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
_JOBCOMP = re.compile(r"(?:^| )(\w+)=(.*?)(?= \w+=|$)")


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


def read_accounting(text: str, measure: Measure = quantities) -> list[Record]:
    """Read the output of `sacct --duplicates --allocations --parsable2 --noheader`.

    Args:
        text: Rows with `ACCOUNTING_COLUMNS`, with times in seconds since 1970.
        measure: Converts trackable resources to quantities.

    Raises:
        ShapeError: A row has other columns, or a field has an unknown form.
    """
    rows = []
    for line in filter(None, text.splitlines()):
        fields = line.split("|")
        if len(fields) != len(ACCOUNTING_COLUMNS):
            raise ShapeError(
                f"sacct printed {len(fields)} columns instead of "
                f"{', '.join(ACCOUNTING_COLUMNS)}: {line!r}"
            )
        job, user, account, state, submit, start, end, suspended, resources = fields
        if start in NEVER or not resources:
            continue
        if not all(text.isdecimal() for text in (job, submit, start)):
            raise ShapeError(f"sacct: a job id or a time is not a number: {line!r}")
        # After a change of size, the submission is the time of the change, and the start is not.
        begin = max(float(start), float(submit))
        finish = None if end in NEVER or job_state(state) in RUNNING else float(end)
        try:
            step = Step(begin, measure(resources))
            paused = duration(suspended, "Suspended") or 0.0
        except NotationError as error:
            raise ShapeError(f"sacct, job {job}: {error}: {line!r}") from None
        rows.append(
            _Row(int(job), user, account, job_state(state), begin, finish, paused, step, True)
        )
    return _records(rows)


def read_jobcomp(lines: Iterable[str], measure: Measure = quantities) -> list[Record]:
    """Read lines of the file that `jobcomp/filetxt` writes: a line for each ended attempt.

    The file has the allocated cores, but of other resources the requested amounts. For a job whose
    size changed, the file does not tell the start. It then counts from the change. The file's times
    are in the time zone of slurmctld, which must be that of this machine.

    Args:
        lines: Lines of the file.
        measure: Converts trackable resources to quantities.

    Raises:
        ShapeError: A field is missing or has an unknown form.
    """
    rows = []
    for line in filter(str.strip, lines):
        fields = dict(_JOBCOMP.findall(line.strip()))
        try:
            start_text = fields["StartTime"]
            if start_text in NEVER:
                continue
            start = instant(start_text, None, "StartTime")
            end = instant(fields["EndTime"], None, "EndTime")
            if end < start:  # clocks were set back in between
                end = instant(fields["EndTime"], None, "EndTime", fold=1)
            # Tres has the requested resources. Of an exclusive node's cores, ProcCnt tells all.
            requested = measure(fields["Tres"]).to_doubles()
            cores = number(fields["ProcCnt"], "ProcCnt")
            step = Step(start, Quantities.from_doubles(requested | {"cpus": cores}))
            user = fields["UserId"].partition("(")[0]
            account = fields.get("Account", "")
            state = job_state(fields["JobState"])
            job = int(fields["JobId"])
        except KeyError as error:
            raise ShapeError(f"jobcomp: the field {error.args[0]} is missing: {line!r}") from None
        except ValueError as error:
            raise ShapeError(f"jobcomp: {error}: {line!r}") from None
        account = "" if account in NEVER else account
        rows.append(_Row(job, user, account, state, start, end, 0.0, step, state != "RESIZING"))
    return _records(rows)


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
