"""Slurm's own accounting, as `sacct --parsable2` prints it."""

import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import opened
from allocator.simulation.trace import TraceError

_NEEDED = ("JobID", "User", "Submit", "Start", "End")
_SIZES = (("AllocTRES",), ("AllocCPUS",), ("ReqCPUS",))
"""At least one of these says what a job had."""
_NEVER = ("", "None", "Unknown", "N/A")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3, "": 1.0}
_AMOUNT = re.compile(r"([0-9.]+)([KMGTP]?)([cn]?)")


def convert(path: Path, timezone: str = "UTC") -> Conversion:
    """Read allocations as tasks: docs/traces.md has the command that prints them.

    Each attempt to run a job, and each task of an array, is a task; those of an array are one job.
    It is submitted when it became eligible, and runs from its start to its end, however it ended.

    Args:
        path: A header, then a row for each record, fields between bars.
        timezone: In which times are that are no seconds since 1970; an IANA name.

    Raises:
        OSError: The file cannot be read.
        TraceError: It has other columns, or there is no such time zone.
    """
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise TraceError(
            f"there is no time zone {timezone!r}; write such as Europe/Berlin"
        ) from None
    records = Records(path.name)
    with opened(path) as file:
        lines = io.TextIOWrapper(file, "utf-8-sig", "backslashreplace")
        names = lines.readline().rstrip("\r\n").split("|")
        _check(path, names)
        for number, line in enumerate(lines, 2):
            fields = [field.strip() for field in line.rstrip("\r\n").split("|")]
            if len(fields) != len(names):
                records.leave_out("has not as many fields as the header", number)
                continue
            try:
                _add(records, dict(zip(names, fields, strict=True)), zone)
            except UnusableError as error:
                records.leave_out(str(error), number)
    return records.conversion()


def _check(path: Path, names: list[str]) -> None:
    absent = [name for name in _NEEDED if name not in names]
    if absent:
        raise TraceError(
            f"{path} has no column {', '.join(absent)} in its first line; docs/traces.md has the "
            "command that prints it"
        )
    if not any(set(size) <= set(names) for size in _SIZES):
        raise TraceError(f"{path} has none of the columns AllocTRES, AllocCPUS, ReqCPUS")


def _add(records: Records, row: Mapping[str, str], zone: ZoneInfo) -> None:
    whole, dot, _step = row["JobID"].partition(".")
    if dot:
        raise UnusableError("is a step of a job, not a job")
    job = re.match(r"\d+", whole)
    if job is None:
        raise UnusableError("job is no number")
    if not row["User"]:
        raise UnusableError("no user")
    if row["Start"] in _NEVER:
        raise UnusableError("never started")
    if row["End"] in _NEVER:
        raise UnusableError("had not ended")
    submitted = _time(row["Submit"], zone, "submission")
    eligible = row.get("Eligible", "")
    if eligible not in _NEVER:
        submitted = max(submitted, _time(eligible, zone, "eligible time"))
    started, ended = _time(row["Start"], zone, "start"), _time(row["End"], zone, "end")
    if ended < started:
        ended = _time(row["End"], zone, "end", fold=1)
    if ended < started:
        raise UnusableError("ended before it started")
    if ended == started and row.get("State", "").startswith("CANCELLED"):
        raise UnusableError("never started")
    # What runs although it is not eligible yet was let through by somebody: it did not wait.
    records.add(row["User"], int(job[0]), (min(submitted, started), ended - started), _demand(row))


def _time(text: str, zone: ZoneInfo, what: str, fold: int = 0) -> float:
    """Return seconds since 1970."""
    if text.isdecimal():
        return float(text)
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise UnusableError(f"{what} is no time") from None
    if told.tzinfo is None:
        told = told.replace(tzinfo=zone, fold=fold)
    return told.astimezone(UTC).timestamp()


def _demand(row: Mapping[str, str]) -> tuple[float, float, float]:
    """Return cores, MiB and GPUs: those that it had, or if that is not told asked for."""
    had = dict(entry.partition("=")[::2] for entry in row.get("AllocTRES", "").split(",") if entry)
    cpus = _number(had.get("cpu") or row.get("AllocCPUS") or row.get("ReqCPUS") or "0", "cpus")
    mem = had.get("mem")
    gpus = _number(had.get("gres/gpu", "0"), "GPUs")
    if mem is not None:
        return cpus, _mib(mem, cpus, 1.0), gpus
    nodes = _number(had.get("node") or row.get("NNodes") or "1", "nodes")
    return cpus, _mib(row.get("ReqMem", ""), cpus, nodes), gpus


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < 2.0**53:
        raise UnusableError(f"{what} are no number")
    return number


def _mib(text: str, cpus: float, nodes: float) -> float:
    """Return MiB of such as 4000Mc (of each core), 2Gn (of each node), 16G or 1.5T."""
    if text.rstrip("?") in _NEVER:
        return 0.0
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise UnusableError("memory is no amount")
    amount, unit, of_each = match.groups()
    times = {"c": cpus, "n": nodes, "": 1.0}[of_each]
    return _number(amount, "memory's units") * _MIB[unit] * times
