"""HTCondor's history of jobs, as `condor_history -json` prints it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import opened
from allocator.simulation.trace import TraceError

_WITHOUT_SLOTS = {7: "scheduler", 12: "local"}
"""Universes whose jobs run beside the schedd."""


def convert(path: Path) -> Conversion:
    """Read jobs as tasks: docs/traces.md has the command that prints them.

    A task is submitted when its job was queued, and runs for as long as the job ran in all, however
    often it began anew, for the history has one record of a job. Jobs of a cluster are one job.

    Args:
        path: An array of objects, one for each job. "Lines" are their places in it, from 1.

    Raises:
        OSError: The file cannot be read.
        TraceError: It is no such array.
    """
    records = Records(path.name)
    with opened(path) as file:
        content = file.read()
    try:
        jobs = json.loads(content) if content.strip() else []
    except ValueError as error:
        raise TraceError(f"{path} is not JSON: {error}") from None
    if not isinstance(jobs, list):
        raise TraceError(f"{path} is not an array of jobs, as condor_history -json prints it")
    for place, job in enumerate(jobs, 1):
        if not isinstance(job, dict):
            records.leave_out("is no object", place)
            continue
        try:
            _add(records, {name.lower(): value for name, value in job.items()})
        except UnusableError as error:
            records.leave_out(str(error), place)
    return records.conversion()


def _add(records: Records, job: Mapping[str, Any]) -> None:
    universe = _WITHOUT_SLOTS.get(job.get("jobuniverse", 5))
    if universe is not None:
        raise UnusableError(f"ran beside the schedd, in the universe {universe}")
    user = job.get("owner") or job.get("user")
    if not isinstance(user, str):
        raise UnusableError("no owner")
    ran = _number(job, "remotewallclocktime")
    if not ran:
        raise UnusableError("never ran")
    submitted = _number(job, "qdate")
    if submitted is None:
        raise UnusableError("QDate is no time")
    cluster = _number(job, "clusterid")
    if cluster is None:
        raise UnusableError("ClusterId is no number")
    demand = (
        _first(job, "cpusprovisioned", "requestcpus", default=1.0),
        _first(job, "memoryprovisioned", "requestmemory", default=0.0),
        _first(job, "gpusprovisioned", "requestgpus", default=0.0),
    )
    records.add(user, int(cluster), (submitted, ran), demand)


def _first(job: Mapping[str, Any], *names: str, default: float) -> float:
    """Return the first of some amounts that is told as a number, and not as an expression."""
    known = (_number(job, name) for name in names)
    return next((number for number in known if number is not None), default)


def _number(job: Mapping[str, Any], name: str) -> float | None:
    value = job.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return float(value)
