"""Converters for comma-separated traces: files with a header, and files of the SDRF authors."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allocator.complaints import other_spelling, unknown
from allocator.simulation.formats.conversion import (
    Conversion,
    RowFilter,
    SkippedRows,
    TaskRows,
    Text,
    TotalCheck,
    TraceBuilder,
    numbered,
)
from allocator.simulation.formats.csv_cluster import Constraints, read_machines, with_users
from allocator.simulation.formats.text import (
    LONGEST,
    Rows,
    beginning,
    delimiter,
    header,
    in_mebibytes,
    instants,
    integers,
    microseconds,
    missing,
    numbers,
    separated,
    time_zone,
    with_decimal_points,
)
from allocator.simulation.trace import MICROSECONDS, TraceError

_GIVEN = ("submitted_s", "runtime_s", "user", "job", "machines")
_DAY = 86400 * MICROSECONDS
_UNKNOWN_WAIT = -1
_DATES = ("started", "ended")
_TOLERANCE = 1e-3
"""Relative difference up to which two run times agree, because dates are whole seconds."""
_AUTHORS = ("submitted", "again", "finished", "user", "task", "cpus", "mem")
_AUTHORS_RESOURCES = ("cpus", "mem")
_USUAL_RESOURCES = frozenset({"cpus", "mem", "gpus", "disk"})
_RESOURCE = re.compile(
    r"n?(cpus?|cores?|gpus?)|vcpus?|mem(ory)?|ram|rss|disk|storage|slots|threads|proc(essor)?s|nodes"
)
"""Words in the names of columns that contain amounts of a resource."""
_MEMORY = frozenset({"mem", "memory", "ram", "disk", "storage"})
"""Words in the names of columns whose amounts may have a unit of memory."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NOT_AMOUNT = re.compile(
    r"(start|end|finish|submit|wait|run|wall)?time|times(tamp)?|dates?|days?|elapsed|durations?"
    r"|start(ed)?|beg[aiu]n|end(ed)?|finish(ed)?|completed?|stop(ped)?|submit(ted)?|arriv(al|ed)"
    r"|wait(ed)?|eligible|queued|created|(job|task)?ids?|[gpu]id|index|priority|status|state|exit"
    r"|nr|uuid|seq(uence)?|row|line|rank|code|signal|epoch|(year|month|hour|minute|second)s?"
)
"""Words in the names of columns that contain times, identifiers or states, and no amounts."""
_NUMBER_AT_END = re.compile(r"no|num(ber)?")
"""Last words in the names of columns of identifiers, such as `job_no`; but `cpu_num` is a number of
CPUs."""
_FEWEST_IDENTIFIERS = 5
"""Number of fields from which different whole numbers are probably identifiers."""
_INSTANTS = 1e9, 3e8
"""Least seconds since 1970 (in 2001), and longest span in seconds, of fields that are probably
times."""


def convert(
    path: Path,
    users: Path | None = None,
    machines: Path | None = None,
    timezone: str = "UTC",
    resources: Sequence[str] = (),
) -> Conversion:
    """Convert a file with the columns `submitted_s,runtime_s,user[,job][,machines],RESOURCE,...`.

    The header names the columns, which may come in any order. Fields are separated by commas,
    semicolons, tabs or bars. Without commas between fields, numbers may have a decimal comma.
    Without a column job, every task is a job of its own. Jobs are whole numbers. If no job in the
    first 16 MiB is a number, jobs are names, which are numbered in order of first appearance. A row
    that begins with # is a comment, and is left out.

    A column `submitted` of dates may replace `submitted_s`, and dates `started` and `ended` may
    replace `runtime_s`. A date is ISO 8601, or seconds since 1970. The origin of a trace with dates
    is midnight (UTC) before the first submission.

    An amount of memory may have a unit, such as `8G`, and is then converted to MiB.

    Without `resources`, a column is ignored if its name is that of a time, an identifier or a
    state, such as `end` or `started_s`, or if no field in the first 16 MiB is a number. If a name
    contains no word for a resource, such as `cores`, the column is also ignored if its fields there
    look like identifiers or times. A warning names each such column, and each column that became a
    resource although its name contains no such word. The columns `cpus`, `mem`, `gpus` and `disk`
    are never ignored.

    Args:
        path: The file of tasks.
        users: A file of users' weights and commitments; format: docs/reference/trace-file.md.
        machines: A file of machines. Tasks then name the machines that they may use in a column
            `machines`.
        timezone: Time zone of dates without one; an IANA name.
        resources: The columns of resources. Empty: the columns are chosen as described above.

    Raises:
        OSError: A file cannot be read.
        TraceError: A header is wrong, the file has no column of a resource, the time zone does not
            exist, or the other files cannot be used.
    """
    zone, names, separator = time_zone(timezone), _header(path), delimiter(path)
    left_out, assumed = SkippedRows(), SkippedRows()
    batches = separated(path, names, left_out, headed=True, delimiter=separator)
    first = next(batches, None)
    times = _times(names)
    warnings: tuple[str, ...] = ()
    if resources:
        resources = _named(resources, names, times)
    else:
        resources, warnings = _chosen(path, names, first, separator)
    ignored = tuple(name for name in names if name not in (*_GIVEN, *times, *resources))
    if "machines" in names and machines is None:
        raise TraceError(f"{path} has a column machines; give the file of machines with --machines")
    classes = () if machines is None else read_machines(machines, resources)
    constraints = Constraints(classes)
    builder = TraceBuilder(resources)
    jobs = _names_of_jobs(first)
    dates = _DatesCheck(path.name, names, zone)
    ignored = tuple(name for name in ignored if name not in dates.columns)
    for batch in chain(() if first is None else (first,), batches):
        rows = RowFilter(left_out, path.name, batch.lines)
        rows.drop("begins with #, as a comment does", beginning(batch.columns[names[0]], "#"))
        decimal_comma = np.zeros(len(batch), np.bool_)
        for name in (*times, *resources) if separator != "," else ():
            batch.columns[name], commas = with_decimal_points(batch.columns[name])
            decimal_comma |= commas
        submitted, runtime, waits = _times_of_tasks(rows, batch, zone)
        job = _jobs(rows, batch, jobs)
        constraint: NDArray[np.int32] | None = None
        if "machines" in names:
            constraint, unknown, nowhere = constraints.column(batch.columns["machines"])
            rows.drop("names machines or an attribute that do not exist", unknown)
            rows.drop("no machine meets its constraints", nowhere)
        with_unit = {}
        for name in filter(is_memory, resources):
            batch.columns[name], with_unit[name] = in_mebibytes(batch.columns[name])
        demand = _demand(rows, batch, resources)
        builder.add(
            TaskRows(submitted, runtime, batch.columns["user"], job, demand, constraint, waits),
            rows.kept,
        )
        dates.add(batch, rows.kept, runtime)
        assumed.add(
            "started is before submitted: the task is submitted as the row says",
            path.name,
            batch.lines[rows.kept & (waits < _UNKNOWN_WAIT)],
        )
        for name, units in with_unit.items():
            assumed.add(
                f"{name} has a unit: converted to MiB", path.name, batch.lines[rows.kept & units]
            )
        assumed.add(
            "has a comma for the decimal point", path.name, batch.lines[rows.kept & decimal_comma]
        )
    trace = builder.trace(classes, constraints.allowed)
    if "submitted" in times and len(trace):
        trace = replace(trace, submitted=trace.submitted - trace.submitted[0] // _DAY * _DAY)
    trace = trace if users is None else with_users(trace, users, assumed)
    return Conversion(
        trace,
        left_out,
        assumed,
        ignored,
        dates.results(),
        resource_columns=resources,
        warnings=warnings,
        recorded_waits=builder.recorded_waits,
    )


class _DatesCheck:
    """Compares `runtime_s` with the dates `started` and `ended`, if a file has all three.

    Args:
        file: Name of the file.
        names: Names of the file's columns.
        zone: Time zone of dates without one.
    """

    def __init__(self, file: str, names: tuple[str, ...], zone: tzinfo) -> None:
        is_possible = {"runtime_s", *_DATES} <= {*names}
        self.columns = _DATES if is_possible else ()
        self._file = file
        self._zone = zone
        self._rows = 0
        self._totals = np.zeros(2)
        self._differing = SkippedRows()

    def add(self, batch: Rows, kept: NDArray[np.bool_], runtime: NDArray[np.int64]) -> None:
        """Compare the tasks of a batch.

        Args:
            batch: The batch.
            kept: A mask of the rows that are tasks.
            runtime: Run times in microseconds.
        """
        if not self.columns:
            return
        started, no_start = instants(batch.columns["started"], self._zone)
        ended, no_end = instants(batch.columns["ended"], self._zone)
        known = kept & ~no_start & ~no_end
        dated, ran = (ended - started)[known], runtime[known] / MICROSECONDS
        self._rows += len(dated)
        self._totals += dated.sum(), ran.sum()
        differ = np.abs(dated - ran) > np.maximum(1.0, _TOLERANCE * ran)
        self._differing.add("ended - started", self._file, batch.lines[known][differ])

    def results(self) -> tuple[TotalCheck, ...]:
        """Return the comparison; nothing if there is nothing to compare."""
        if not self._rows:
            return ()
        dated, ran = (self._totals / 3600).tolist()
        check = TotalCheck(
            "ended - started", "hours", self._rows, dated, ran, _TOLERANCE, self._differing
        )
        return (check,)


def convert_authors(path: Path) -> Conversion:
    """Convert the input format of the SDRF authors' simulator, which has no header.

    Fields: submission, submission again, finish (whole microseconds), user, task, CPU, memory.
    Every task is a job of its own.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is not text in columns.
    """
    left_out, assumed = SkippedRows(), SkippedRows()
    builder = TraceBuilder(_AUTHORS_RESOURCES)
    for batch in separated(path, _AUTHORS, left_out):
        rows = RowFilter(left_out, path.name, batch.lines)
        submitted, unreadable = integers(batch.columns["submitted"])
        rows.drop("submission time is not a whole number", unreadable)
        rows.drop("submission time is negative", submitted < 0)
        rows.drop("submission time is beyond 285 years", submitted > LONGEST)
        finished, unreadable = integers(batch.columns["finished"])
        rows.drop("finish time is not a whole number", unreadable)
        rows.drop("finish time is before the submission", finished < submitted)
        rows.drop("finish time is beyond 285 years", finished > 2 * LONGEST)
        demand = _demand(rows, batch, _AUTHORS_RESOURCES)
        builder.add(
            TaskRows(submitted, finished - submitted, batch.columns["user"], batch.lines, demand),
            rows.kept,
        )
        repeated, unreadable = integers(batch.columns["again"])
        differs = rows.kept & (unreadable | (repeated != submitted))
        assumed.add(
            "the second field is not the submission: not read", path.name, batch.lines[differs]
        )
    return Conversion(builder.trace(), left_out, assumed, ("task",))


def _header(path: Path) -> tuple[str, ...]:
    names = header(path)
    times = _times(names)
    if _renamed(names) and not {"submitted_s", "runtime_s"} & set(names):
        times = ("submitted", "started", "ended")
    absent = [name for name in (*times, "user") if name not in names]
    if absent:
        renamed = _renamed(names)
        dates = (
            f"rename their columns: {renamed}"
            if renamed
            else "name their columns submitted, started and ended"
        )
        raise TraceError(
            f"{path} has no column {', '.join(absent)} in its first line; the line has "
            f"{', '.join(name for name in names if name) or 'no names'}. If your times are dates, "
            f"{dates}; or submitted and runtime_s, a duration in seconds"
        )
    if len(set(names)) < len(names) or "" in names:
        raise TraceError(f"{path} has columns without a name or of the same name in its first line")
    return names


def _renamed(names: tuple[str, ...]) -> str:
    """Return which columns to rename; empty if no name looks like a time."""
    pairs = [
        f"{name} becomes {wanted}"
        for stem, wanted in (("submit", "submitted"), ("start", "started"), ("end", "ended"))
        for name in names
        if wanted not in names and name.lower().startswith(stem) and not name.endswith("_s")
    ]
    return ", ".join(pairs)


def _times(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns from which submission and run time are read.

    Columns of seconds come before columns of dates.
    """
    submitted = "submitted" if "submitted" in names else "submitted_s"
    if "submitted_s" in names:
        submitted = "submitted_s"
    has_dates = "runtime_s" not in names and {"started", "ended"} & set(names)
    return (submitted, *(("started", "ended") if has_dates else ("runtime_s",)))


def _times_of_tasks(
    rows: RowFilter, batch: Rows, zone: tzinfo
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the submission times, run times and waits of a batch, in microseconds.

    Unusable rows are dropped. Waits end at the recorded start. In a file without comparable starts,
    they are `_UNKNOWN_WAIT`. A wait below `_UNKNOWN_WAIT` means a start before the submission.
    """
    columns = batch.columns
    submitted, *others = _times(tuple(columns))
    if submitted == "submitted":
        seconds, unreadable = instants(columns[submitted], zone)
        rows.drop("submitted is not a date", unreadable)
    else:
        seconds, unreadable = numbers(columns[submitted])
        rows.drop("submitted_s is not a number", unreadable)
    submitted_us, too_large = microseconds(seconds)
    rows.drop("submission time is negative", seconds < 0)
    rows.drop("submission time is beyond 285 years", too_large)
    waits = np.full(len(submitted_us), _UNKNOWN_WAIT, np.int64)
    if len(others) == 1:
        seconds, unreadable = numbers(columns["runtime_s"])
        rows.drop("runtime_s is not a number", unreadable)
        rows.drop("runtime_s is negative", seconds < 0)
    else:
        started, unreadable = instants(columns["started"], zone)
        rows.drop("started is empty: the task never started", missing(columns["started"]))
        rows.drop("started is not a date", unreadable)
        ended, unreadable = instants(columns["ended"], zone)
        rows.drop("ended is empty: the task still ran", missing(columns["ended"]))
        rows.drop("ended is not a date", unreadable)
        repeated, _ = instants(columns["ended"], zone, fold=1)
        seconds = np.where(ended < started, repeated, ended) - started
        rows.drop("ended before it started", seconds < 0)
        if submitted == "submitted":
            waits = microseconds(started)[0] - submitted_us
    runtime_us, too_large = microseconds(seconds)
    rows.drop("run time is beyond 285 years", too_large)
    return submitted_us, runtime_us, waits


def _names_of_jobs(first: Rows | None) -> dict[str, int] | None:
    """Return an empty dictionary for the numbers of jobs' names; None if jobs are numbers."""
    if first is None or not len(first) or "job" not in first.columns:
        return None
    _, unreadable = integers(first.columns["job"])
    return {} if unreadable.all() else None


def _jobs(rows: RowFilter, batch: Rows, names: dict[str, int] | None) -> NDArray[np.int64]:
    """Return the jobs' numbers of a batch. Unusable rows are dropped.

    Args:
        rows: Drops rows of the batch.
        batch: The batch. Without a column job, the line numbers are the jobs.
        names: The numbers of jobs' names so far, to which new names are added; None if jobs are
            numbers.
    """
    if "job" not in batch.columns:
        return batch.lines
    if names is None:
        job, unreadable = integers(batch.columns["job"])
        rows.drop("job is not a whole number", unreadable)
        return job
    rows.drop("no job", missing(batch.columns["job"]))
    return numbered(batch.columns["job"], names)


def is_memory(column: str) -> bool:
    """Return whether the amounts of a resource may have a unit of memory, by its name."""
    return any(word in _MEMORY for word in _words(column))


def _named(
    resources: Sequence[str], names: tuple[str, ...], times: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the columns that the user names as resources, in the order of the file.

    Raises:
        TraceError: The file has no such column, or the column has another meaning.
    """
    others = [name for name in names if name not in (*_GIVEN, *times)]
    for name in resources:
        if name not in others:
            raise TraceError(f"--resources: {unknown('column of a resource', name, others)}")
    return tuple(name for name in others if name in resources)


def _chosen(
    path: Path, names: tuple[str, ...], first: Rows | None, separator: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choose the columns of resources by their names and first fields.

    Returns:
        The columns; and a warning for each choice that the names alone do not justify.

    Raises:
        TraceError: The file has no column of a resource.
    """
    amounts = _amounts(path, names)
    if first is None or not len(first):
        return amounts, ()
    numeric = {
        name: fields
        for name in amounts
        if (fields := _numbers(name, first.columns[name], separator)) is not None
    }
    known = [name for name in amounts if _names_resource(name)]
    doubts = {
        name: doubt
        for name, fields in numeric.items()
        if name not in known and (doubt := _not_amounts(fields))
    }
    columns = tuple(
        name
        for name in amounts
        if name not in doubts and (name in _USUAL_RESOURCES or name in numeric)
    )
    for number, name in enumerate(columns):
        if other := other_spelling(name, columns[:number]):
            rest = ",".join(column for column in columns if column != name)
            raise TraceError(
                f"{path} has the columns {other} and {name}, which look like one resource; name "
                f"the columns of resources, such as --resources {rest}"
            )
    reasons = ", ".join(f"{name} ({doubt})" for name, doubt in doubts.items())
    if not columns and doubts:
        raise TraceError(
            f"{path} has no column of a resource: {reasons}. If one of its columns is a resource, "
            "name it with --resources"
        )
    warnings = []
    if doubts:
        warnings.append(
            f"columns of numbers that are probably no amounts are ignored: {reasons}. If one is a "
            f"resource, convert again with all resources: --resources {','.join(columns)},NAME"
        )
    if guessed := [name for name in columns if name not in known]:
        certain = ",".join(name for name in columns if name in known) or "NAME,..."
        warnings.append(
            f"columns became resources only because they contain numbers: {', '.join(guessed)}. If "
            f"one is no resource, convert again with the resources alone: --resources {certain}"
        )
    return columns or amounts, tuple(warnings)


def _amounts(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of a file that may contain amounts of resources, by their names.

    Raises:
        TraceError: The file has no such column.
    """
    others = tuple(name for name in names if name not in _GIVEN)
    amounts = tuple(name for name in others if _may_be_amount(name))
    if not amounts:
        also = f"; not an amount by its name: {', '.join(others)}" if others else ""
        raise TraceError(
            f"{path} has no column of a resource in its first line{also}. If one of its columns is "
            "a resource, name it with --resources"
        )
    return amounts


def _may_be_amount(name: str) -> bool:
    words = _words(name)
    if any(map(_NOT_AMOUNT.fullmatch, words)):
        return False
    return _names_resource(name) or not (words and _NUMBER_AT_END.fullmatch(words[-1]))


def _names_resource(name: str) -> bool:
    """Return whether a column's name contains a word for a resource, such as `cores`."""
    return any(map(_RESOURCE.fullmatch, _words(name)))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _not_amounts(fields: NDArray[np.float64]) -> str:
    """Return why the numbers of a column are probably no amounts of a resource; "" if they may be.

    Args:
        fields: The numbers in the first rows.
    """
    if not (fields == np.rint(fields)).all():
        return ""
    least, longest = _INSTANTS
    for unit in (1.0, 1e3, 1e6):
        seconds = fields / unit
        if least <= seconds.min() < 3 * least and np.ptp(seconds) < longest:
            return "its numbers look like times since 1970"
    if len(fields) >= _FEWEST_IDENTIFIERS and len(np.unique(fields)) == len(fields):
        return f"its first {len(fields):,} numbers all differ, like identifiers"
    return ""


def _numbers(name: str, column: Text, separator: str) -> NDArray[np.float64] | None:
    """Return the fields of a column that are numbers; None if no field is one."""
    if separator != ",":
        column, _ = with_decimal_points(column)
    if is_memory(name):
        column, _ = in_mebibytes(column)
    fields, unreadable = numbers(column)
    return None if unreadable.all() else fields[~unreadable]


def _demand(rows: RowFilter, batch: Rows, resources: tuple[str, ...]) -> NDArray[np.float64]:
    rows.drop("no user", missing(batch.columns["user"]))
    demand = np.empty((len(batch), len(resources)))
    for index, resource in enumerate(resources):
        demand[:, index], unreadable = numbers(batch.columns[resource])
        rows.drop(f"demand of {resource} is not a number", unreadable)
    rows.drop("demand is negative", np.any(demand < 0, axis=1))
    rows.drop("demand is zero", ~np.any(demand > 0, axis=1))
    return demand
