"""Converter for Slurm's accounting, as printed by `sacct --parsable2` or `sacct --json`."""

import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from allocator.simulation.formats import slurm_json, slurm_text
from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import contains, time_zone
from allocator.slurm_notation import (
    ENDED,
    NEVER,
    NO_DEMAND,
    RUNNING,
    WAITING,
    NotationError,
    counted,
    duration,
    generic_resources,
    instant,
    job_state,
    mebibytes,
    number,
    trackable_resources,
)

_NO_USER = {"", "(null)"}
"""Values of the column User in rows of no user."""
_DURATIONS = ("ElapsedRaw", "Elapsed", "CPUTimeRAW", "CPUTime", "Suspended")


def convert(path: Path, timezone: str = "UTC") -> Conversion:
    """Convert Slurm's accounting: each attempt to run a job becomes a task.

    docs/how-to/prepare-a-trace.md gives the command that prints the file.

    Each element of a job array becomes a task too, and the array becomes one job. The submission of
    a task is the time at which the job became eligible. The task runs for the job's elapsed time,
    however the job ended.

    Args:
        path: A header, then a row per record, with bars between fields; or the output of `sacct
            --json`. In JSON, a job's "line" is its position, from 1.
        timezone: Time zone of times that are not seconds since 1970; an IANA name.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file has other columns, or the time zone does not exist.
    """
    zone = time_zone(timezone)
    records = Records()
    if slurm_json.is_json(path):
        _read_json(records, path, zone)
    else:
        _read_text(records, path, zone)
    return records.conversion()


def _read_json(records: Records, path: Path, zone: ZoneInfo) -> None:
    jobs = slurm_json.jobs(path, records)
    changes = _SizeChanges()
    for job in jobs:
        with suppress(UnusableError):
            changes.add(slurm_json.row(job, Records()), zone)
    for position, job in enumerate(jobs, 1):
        records.begin(path.name, position)
        try:
            _add(records, slurm_json.row(job, records), zone, changes)
        except (NotationError, UnusableError) as error:
            records.leave_out(str(error))


def _read_text(records: Records, path: Path, zone: ZoneInfo) -> None:
    changes = _SizeChanges()
    if contains(path, b"RESIZING"):
        for _, row in slurm_text.rows(path, Records()):
            changes.add(row, zone)
    seen: set[bytes] = set()
    for text, row in slurm_text.rows(path, records):
        if (digest := blake2b(text.encode(), digest_size=16).digest()) in seen:
            records.leave_out("repeats an earlier row")
            continue
        seen.add(digest)
        try:
            _add(records, row, zone, changes)
        except (NotationError, UnusableError) as error:
            records.leave_out(str(error))


class _SizeChanges:
    """Times at which running jobs changed their size. A record of the state RESIZING ends there.

    All records of such a job begin at the start of the first size, so their times overlap.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, ...], set[float]] = {}

    def add(self, row: Mapping[str, str], zone: ZoneInfo) -> None:
        """Remember the end of a record, if its state is RESIZING."""
        if _is_resizing(row):
            with suppress(NotationError):  # the record is left out later, with this reason
                end = instant(row["End"], zone, "end")
                self._times.setdefault(_attempt(row), set()).add(end)

    def begin(self, row: Mapping[str, str], started: float, ended: float) -> float:
        """Return when a job got the size of a record, in seconds since 1970.

        Args:
            row: The record.
            started: The start that the record states.
            ended: The end of the record.
        """
        times = self._times.get(_attempt(row)) if self._times else None
        if not times:
            return started
        earlier = (
            time for time in times if time < ended or (time == ended and not _is_resizing(row))
        )
        return max(started, max(earlier, default=started))


def _is_resizing(row: Mapping[str, str]) -> bool:
    return job_state(row.get("State", "")) == "RESIZING"


def _attempt(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what identifies the attempt to run a job that a record describes."""
    return (row.get("Cluster", ""), row.get("JobIDRaw") or row.get("JobID", ""), row["Start"])


def _add(records: Records, row: Mapping[str, str], zone: ZoneInfo, changes: _SizeChanges) -> None:
    job = _job(row)
    state = _ended_state(records, row)
    durations = _Durations.of(row)
    submitted, started, ended = _times(row, zone, durations)
    demand = _demand(records, row)
    ran, core_seconds = _elapsed(records, durations, ended - started, demand["cpus"])
    if not ran and state == "CANCELLED":
        raise UnusableError("never started")
    begin = changes.begin(row, started, ended)
    if begin > started:
        records.assume(
            "is a further size of a resized job: the task begins with the change of size"
        )
        ran, core_seconds = max(ran - (begin - started), 0.0), {}
        submitted = started = begin
    elif started < submitted:
        records.assume("Start is before Submit: the task is submitted at its start")
    if "[" in row.get("JobID", ""):
        records.assume("JobID names several tasks of an array: they count as one")
    eligible = row.get("Eligible", "")
    if eligible not in NEVER:
        submitted = max(submitted, instant(eligible, zone, "eligible time"))
    # A job that starts before it is eligible was released by an operator: it did not wait.
    records.add(
        row["User"],
        (row.get("Cluster", ""), job),
        (min(submitted, started), ran, started),
        demand,
        core_seconds,
    )


def _ended_state(records: Records, row: Mapping[str, str]) -> str:
    """Return the state of a job that started and ended; empty if the record does not state it.

    Args:
        records: Collects assumptions about unclear fields.
        row: Fields of the record by column.

    Raises:
        UnusableError: The state is unknown, or the job did not start, or did not end.
    """
    state = job_state(row.get("State", ""))
    if state not in {"", *WAITING, *RUNNING, *ENDED}:
        raise UnusableError(f"the state {state!r} is unknown")
    if not state and "State" in row:
        records.assume("State is empty: the job counts as ended")
    if row["Start"] in NEVER or state in WAITING:
        raise UnusableError("never started")
    if row["End"] in NEVER or state in RUNNING:
        raise UnusableError("had not ended")
    for name in _DURATIONS:
        if row.get(name, "0") in NEVER and row.get(name) not in {"", "0", None}:
            records.assume(f"{name} is not set ({row[name]}): it is not used")
    return state


def _job(row: Mapping[str, str]) -> int:
    whole, dot, _step = (row.get("JobID") or row.get("JobIDRaw", "")).partition(".")
    if dot:
        raise UnusableError("is a step of a job, not a job")
    job = re.match(r"\d+", whole)
    if job is None:
        raise UnusableError("job is not a number")
    if row["User"] in _NO_USER:
        raise UnusableError("no user")
    return int(job[0])


class _Durations(NamedTuple):
    """Durations of a record in seconds; None if the record does not state them."""

    elapsed: float | None
    suspended: float | None
    cpu_time: float | None
    """Core-seconds."""

    @classmethod
    def of(cls, row: Mapping[str, str]) -> "_Durations":
        """Read the durations of a record.

        Raises:
            NotationError: A field is not a duration.
        """
        values = {name: duration(row.get(name, ""), name) for name in _DURATIONS}
        elapsed, cpu_time = (
            values[spelled] if values[raw] is None else values[raw]
            for raw, spelled in (("ElapsedRaw", "Elapsed"), ("CPUTimeRAW", "CPUTime"))
        )
        return cls(elapsed, values["Suspended"], cpu_time)


def _times(
    row: Mapping[str, str], zone: ZoneInfo, durations: _Durations
) -> tuple[float, float, float]:
    """Return a job's submission, start and end, in seconds since 1970.

    If clocks were set back, a local time may occur twice. The elapsed time then tells the right
    one, or else the order of the times.

    Args:
        row: Fields of the record by column.
        zone: Time zone of times without one.
        durations: Durations of the record.

    Raises:
        UnusableError: The submission is not known, or the job ended before it started.
    """
    if row["Submit"] in NEVER:
        raise UnusableError("submission is not a time")
    submitted = instant(row["Submit"], zone, "submission")
    elapsed, suspended, _ = durations
    span = None if elapsed is None else elapsed + (suspended or 0.0)

    def fits(start: float, end: float) -> bool:
        return submitted <= start <= end and (span is None or abs(end - start - span) <= 1)

    started, ended = (instant(row[name], zone, name.lower()) for name in ("Start", "End"))
    if not fits(started, ended):
        starts, ends = (_occurrences(row[name], zone, name.lower()) for name in ("Start", "End"))
        possible = [(start, end) for start in starts for end in ends if start <= end]
        if not possible:
            raise UnusableError("ended before it started")
        started, ended = next((times for times in possible if fits(*times)), possible[0])
    return submitted, started, ended


def _occurrences(text: str, zone: ZoneInfo, name: str) -> list[float]:
    """Return the times that a text may stand for, in seconds since 1970, in order.

    Raises:
        NotationError: The text is not a time.
    """
    first, second = (instant(text, zone, name, fold) for fold in (0, 1))
    return [first, second] if first < second else [first]


def _elapsed(
    records: Records, durations: _Durations, span: float, cpus: float
) -> tuple[float, dict[str, float | None]]:
    """Return a job's run time in seconds, and the core-seconds that the file states, by column.

    The time from start to end can be longer, as it contains time for which the job was suspended.

    Args:
        records: Collects assumptions about unclear fields.
        durations: Durations of the record.
        span: Seconds from start to end.
        cpus: Allocated cores.
    """
    elapsed, suspended, cpu_time = durations
    other_figures = {"CPUTimeRAW": cpu_time}
    if elapsed is not None:
        # Without the suspended time, a difference may be a suspension or a wrong clock.
        other_figures["End - Start - Suspended"] = (
            None if suspended is None else cpus * max(span - suspended, 0.0)
        )
        ran = elapsed
    elif suspended is not None:
        ran = span - suspended
    elif cpu_time is not None and cpus > 0:
        ran = cpu_time / cpus
    else:
        ran = span
    if ran < 0:
        raise UnusableError("was suspended for longer than it ran")
    if span - ran > 1:
        records.assume(
            "elapsed time is not End - Start, as after a suspension: the task runs for the "
            "elapsed time, without a break"
        )
    elif ran - span > 1:
        records.assume(
            "elapsed time is longer than End - Start, as with a wrong --timezone: the task runs "
            "for the elapsed time"
        )
    return ran, other_figures


def _demand(records: Records, row: Mapping[str, str]) -> dict[str, float]:
    """Return a job's demand: cores, MiB, GPUs and generic resources.

    Allocated amounts are returned if the record has them, else requested amounts.
    """
    allocated, requested = (
        trackable_resources(row.get(name, "")) for name in ("AllocTRES", "ReqTRES")
    )
    resources = allocated or requested
    if requested and not allocated and "AllocTRES" in row:
        records.assume("AllocTRES is empty: ReqTRES is used")
    for name in requested:
        if name.startswith("gres/") and not any(
            other.partition(":")[0] == name.partition(":")[0] for other in resources
        ):
            records.assume(f"{name} of ReqTRES is not in AllocTRES: the task gets 0")
    nodes = resources.get("node") or row.get("NNodes")
    if not any(name.startswith("gres/") for name in resources):
        resources = {**resources, **_former_generic(records, row, nodes)}
    cpus = _cores(records, row, resources)
    if "mem" in resources:
        mem = mebibytes(resources["mem"])
    else:
        requested_memory = row.get("ReqMem", "")
        mem = _requested_mib(requested_memory, cpus, number(nodes or "1", "nodes"))
        if mem and not nodes and requested_memory.endswith("n"):
            records.assume("the number of nodes is not given: ReqMem counts for one node")
    if not mem:
        records.assume("memory is not given, or is the whole node: the task gets 0 MiB")
    return {"cpus": cpus, "mem": mem, **_generic(records, resources)}


def _cores(records: Records, row: Mapping[str, str], resources: Mapping[str, str]) -> float:
    """Return a job's cores: allocated cores if the record has them, else requested cores.

    Args:
        records: Collects assumptions about unclear fields.
        row: Fields of the record by column.
        resources: The trackable resources (TRES) of the record.
    """
    cpus = number(resources.get("cpu", "0"), "cpus")
    allocated = [name for name in ("AllocCPUS", "NCPUS") if row.get(name)]
    for name in allocated:
        stated = number(row[name], "cpus")
        if stated and cpus and stated != cpus:
            records.assume(f"{name} differs from the cores of another column: not used")
        cpus = cpus or stated
    if not cpus and (cpus := number(row.get("ReqCPUS") or "0", "cpus")):
        for column in allocated:
            records.assume(f"{column} is 0: ReqCPUS is used")
        if not allocated and "AllocTRES" in row:
            records.assume("AllocTRES has no cores: ReqCPUS is used")
    if not cpus:
        records.assume("CPUs are not given: the task gets 0 cores")
    return cpus


def _former_generic(records: Records, row: Mapping[str, str], nodes: str | None) -> dict[str, str]:
    """Return a job's generic resources (GRES) from the columns of Slurm versions before 20.11.

    A column looks like `hbm:0,gpu:p100:2(IDX:0,3)`, or like `PER_NODE:gpu:2`. The result has
    amounts as text by name, and is empty without such columns.

    Args:
        records: Collects assumptions about unclear fields.
        row: Fields of the record by column.
        nodes: Number of nodes of the job; None if unknown.
    """
    for column in ("AllocGRES", "ReqGRES"):
        text = re.sub(r"\([^)]*\)", "", row.get(column, ""))
        if text in NEVER:
            continue
        records.assume(f"AllocTRES has no generic resources: {column} is used")
        totals: dict[str, float] = {}
        for entry in map(str.strip, text.split(",")):
            is_per_node = entry.startswith("PER_NODE:")
            name, count = counted(re.sub(r"^(PER_NODE:)?(gres[:/])?", "gres/", entry))
            amount = number(count, name)
            if is_per_node and nodes:
                amount *= number(nodes, "nodes")
            elif is_per_node:
                records.assume(f"{column} is for each node, without NNodes: counts for one node")
            elif amount and nodes not in {None, "", "1"}:
                records.assume(f"{column} may be for each of several nodes: counts once")
            totals[name] = totals.get(name, 0.0) + amount
        return {name: str(total) for name, total in totals.items()}
    return {}


def _generic(records: Records, resources: Mapping[str, str]) -> dict[str, float]:
    """Return the amounts of GPUs and other generic resources (GRES) among a job's resources.

    A list may have the total of all kinds of GPU, amounts of each kind, or both. A kind is a model
    (`gres/gpu:a100`) or a part of a GPU (`gres/gpu:1g.5gb`).

    Args:
        records: Collects the names of all other resources, as not read.
        resources: Amounts by name, as text.
    """
    for name, amount in resources.items():
        generic, colon, _kind = name.partition(":")
        if name in NO_DEMAND:
            records.ignore([f"{name} of AllocTRES"])
        elif not name.startswith("gres/"):
            if name not in {"cpu", "mem"}:
                records.assume(f"{name} of AllocTRES is not read")
        elif colon and number(amount, name):
            counted_in = "gpus" if generic == "gres/gpu" else generic
            records.assume(f"{name} counts in {counted_in}")
    return generic_resources(resources)


def _requested_mib(text: str, cpus: float, nodes: float) -> float:
    """Convert a memory request to MiB: 4000Mc (per core), 2Gn (per node), 16G or 1.5T (in total).

    Args:
        text: The request.
        cpus: Number of cores of the job.
        nodes: Number of nodes of the job.
    """
    if text.rstrip("?") in NEVER:
        return 0.0
    factor = {"c": cpus, "n": nodes}.get(text[-1])
    return mebibytes(text) if factor is None else mebibytes(text[:-1]) * factor
