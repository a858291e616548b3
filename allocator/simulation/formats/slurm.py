"""Converter for Slurm's accounting, as printed by `sacct --parsable2` or `sacct --json`."""

import csv
import io
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from zoneinfo import ZoneInfo

from allocator.simulation.formats import slurm_json
from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import opened, refuse_utf_16, time_zone
from allocator.simulation.trace import TraceError
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

_NEEDED = ("User", "Submit", "Start", "End")
_JOBS = ("JobID", "JobIDRaw")
"""Columns that identify a job; at least one is needed. JobID also identifies the job array."""
_SIZES = ("AllocTRES", "AllocCPUS", "ReqCPUS", "NCPUS", "ReqTRES")
"""Columns that state a job's resources; at least one is needed."""
_READ = (
    *_NEEDED,
    *_JOBS,
    *_SIZES,
    "Cluster",
    "Eligible",
    "State",
    "ElapsedRaw",
    "Elapsed",
    "Suspended",
    "CPUTimeRAW",
    "CPUTime",
    "NNodes",
    "ReqMem",
    "AllocGRES",
    "ReqGRES",
)
_CANONICAL = {name.lower(): name for name in _READ}
_DELIMITERS = "|;\t,"


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
    for position, job in enumerate(slurm_json.jobs(path), 1):
        records.begin(path.name, position)
        try:
            _add(records, slurm_json.row(job, records), zone)
        except (NotationError, UnusableError) as error:
            records.leave_out(str(error))


def _read_text(records: Records, path: Path, zone: ZoneInfo) -> None:
    refuse_utf_16(path)
    seen: set[bytes] = set()
    with opened(path) as file:
        lines = io.TextIOWrapper(file, "utf-8-sig", "backslashreplace")
        head = lines.readline().rstrip("\r\n")
        delimiter = next((mark for mark in _DELIMITERS if len(_fields(head, mark)) > 1), "|")
        names = [_CANONICAL.get(name.lower(), name) for name in _fields(head, delimiter)]
        _check(path, names, head)
        records.ignore(name for name in names if name and name not in _READ)
        for number, line in enumerate(lines, 2):
            text = line.rstrip("\r\n")
            fields = _fields(text, delimiter)
            records.begin(path.name, number)
            if len(fields) != len(names):
                records.leave_out("has more or fewer fields than the header")
            elif text == head:
                records.leave_out("repeats the header")
            elif (digest := blake2b(text.encode(), digest_size=16).digest()) in seen:
                records.leave_out("repeats an earlier row")
            else:
                seen.add(digest)
                try:
                    _add(records, dict(zip(names, fields, strict=True)), zone)
                except (NotationError, UnusableError) as error:
                    records.leave_out(str(error))


def _fields(line: str, delimiter: str) -> list[str]:
    fields = (
        line.split("|") if delimiter == "|" else next(csv.reader([line], delimiter=delimiter), [])
    )
    return [field.strip() for field in fields]


def _check(path: Path, names: list[str], head: str) -> None:
    absent = [name for name in _NEEDED if name not in names]
    if not set(_JOBS) & set(names):
        absent = ["JobID", *absent]
    if len(names) == 1 and {*_NEEDED, *_JOBS} & set(head.split()):
        raise TraceError(
            f"{path} is sacct's output of fixed width, which cuts long fields off; print it with "
            "--parsable2 (-P), or with --json"
        )
    if absent:
        raise TraceError(
            f"{path} has no column {', '.join(absent)} in its first line; "
            "docs/how-to/prepare-a-trace.md has the "
            "command that prints it"
        )
    if not set(_SIZES) & set(names):
        raise TraceError(f"{path} has none of the columns {', '.join(_SIZES)}")


def _add(records: Records, row: Mapping[str, str], zone: ZoneInfo) -> None:
    job = _job(row)
    state = job_state(row.get("State", ""))
    if state not in {"", *WAITING, *RUNNING, *ENDED}:
        raise UnusableError(f"the state {state!r} is unknown")
    if not state and "State" in row:
        records.assume("State is empty: the job counts as ended")
    if row["Start"] in NEVER or state in WAITING:
        raise UnusableError("never started")
    if row["End"] in NEVER or state in RUNNING:
        raise UnusableError("had not ended")
    submitted, span = _times(records, row, zone)
    demand = _demand(records, row)
    ran, core_seconds = _elapsed(records, row, span, demand["cpus"])
    if not ran and state == "CANCELLED":
        raise UnusableError("never started")
    if "[" in row.get("JobID", ""):
        records.assume("JobID names several tasks of an array: they count as one")
    records.add(
        row["User"],
        (row.get("Cluster", ""), job),
        (submitted, ran, instant(row["Start"], zone, "start")),
        demand,
        core_seconds,
    )


def _job(row: Mapping[str, str]) -> int:
    whole, dot, _step = (row.get("JobID") or row.get("JobIDRaw", "")).partition(".")
    if dot:
        raise UnusableError("is a step of a job, not a job")
    job = re.match(r"\d+", whole)
    if job is None:
        raise UnusableError("job is not a number")
    if not row["User"]:
        raise UnusableError("no user")
    return int(job[0])


def _times(records: Records, row: Mapping[str, str], zone: ZoneInfo) -> tuple[float, float]:
    """Return when a job was submitted (seconds since 1970), and the seconds from start to end.

    Args:
        records: Collects assumptions about unclear fields.
        row: Fields of the record by column.
        zone: Time zone of times without one.
    """
    if row["Submit"] in NEVER:
        raise UnusableError("submission is not a time")
    submitted = entered = instant(row["Submit"], zone, "submission")
    eligible = row.get("Eligible", "")
    if eligible not in NEVER:
        submitted = max(submitted, instant(eligible, zone, "eligible time"))
    started, ended = instant(row["Start"], zone, "start"), instant(row["End"], zone, "end")
    if ended < started:
        ended = instant(row["End"], zone, "end", fold=1)
    if ended < started:
        raise UnusableError("ended before it started")
    if started < entered:
        records.assume("Start is before Submit: the task is submitted at its start")
    # A job that starts before it is eligible was released by an operator: it did not wait.
    return min(submitted, started), ended - started


def _elapsed(
    records: Records, row: Mapping[str, str], span: float, cpus: float
) -> tuple[float, dict[str, float | None]]:
    """Return a job's run time in seconds, and the core-seconds that the file states, by column.

    The time from start to end can be longer, as it contains time for which the job was suspended.

    Args:
        records: Collects assumptions about unclear fields.
        row: Fields of the record by column.
        span: Seconds from start to end.
        cpus: Allocated cores.
    """
    elapsed = duration(row.get("ElapsedRaw", ""), "ElapsedRaw")
    if elapsed is None:
        elapsed = duration(row.get("Elapsed", ""), "Elapsed")
    cpu_time = duration(row.get("CPUTimeRAW", ""), "CPUTimeRAW")
    if cpu_time is None:
        cpu_time = duration(row.get("CPUTime", ""), "CPUTime")
    suspended = duration(row.get("Suspended", ""), "Suspended")
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
    if not any(name.startswith("gres/") for name in resources):
        resources = {**resources, **_former_generic(records, row)}
    cpus = number(resources.get("cpu", "0"), "cpus")
    allocated_cpus = [name for name in ("AllocCPUS", "NCPUS") if row.get(name)]
    for name in (*allocated_cpus, "ReqCPUS"):
        if not cpus and (cpus := number(row.get(name) or "0", "cpus")) and name == "ReqCPUS":
            for column in allocated_cpus:
                records.assume(f"{column} is 0: ReqCPUS is used")
    if not cpus:
        records.assume("CPUs are not given: the task gets 0 cores")
    if "mem" in resources:
        mem = mebibytes(resources["mem"])
    else:
        nodes = resources.get("node") or row.get("NNodes")
        requested_memory = row.get("ReqMem", "")
        mem = _requested_mib(requested_memory, cpus, number(nodes or "1", "nodes"))
        if mem and not nodes and requested_memory.endswith("n"):
            records.assume("the number of nodes is not given: ReqMem counts for one node")
    if not mem:
        records.assume("memory is not given, or is the whole node: the task gets 0 MiB")
    return {"cpus": cpus, "mem": mem, **_generic(records, resources)}


def _former_generic(records: Records, row: Mapping[str, str]) -> dict[str, str]:
    """Return a job's generic resources (GRES) from the columns of Slurm versions before 20.11.

    A column looks like `hbm:0,gpu:p100:2(IDX:0,3)`. The result has amounts as text by name, and is
    empty without such columns.
    """
    for column in ("AllocGRES", "ReqGRES"):
        text = re.sub(r"\([^)]*\)", "", row.get(column, ""))
        if text not in NEVER:
            records.assume(f"AllocTRES has no generic resources: {column} is used")
            return dict(counted(f"gres/{entry.strip()}") for entry in text.split(","))
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
