"""Translates jobs of `sacct --json` to the columns of `sacct --parsable2`, for the same converter.

Slurm's versions differ. A number is plain, or an object {set, infinite, number}. A state is a
string, or a list of strings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import json_values, opened
from allocator.simulation.trace import TraceError

_READ = {"job_id", "user", "association", "cluster", "array", "het", "state", "time", "tres"}
_READ |= {"allocation_nodes", "required"}


def is_json(path: Path) -> bool:
    """Return whether a file begins like a JSON object or a JSON list."""
    with opened(path) as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))


def jobs(path: Path) -> list[Any]:
    """Return the job objects in a file that `sacct --json` printed.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file has no jobs as `sacct --json` prints them.
    """
    all_jobs: list[Any] = []
    for answer in json_values(path, "sacct --json"):
        fields = answer if isinstance(answer, dict) else {"jobs": answer}
        listed = fields.get("jobs")
        if not isinstance(listed, list):
            raise TraceError(f"{path} has no list of jobs, as sacct --json prints it")
        errors = fields.get("errors")
        if errors and not listed:
            raise TraceError(f"{path} has no jobs, but errors of sacct: {errors}")
        all_jobs += listed
    return all_jobs


def row(job: object, records: Records) -> dict[str, str]:
    """Translate a job object to columns of `sacct --parsable2`. Unread keys are recorded.

    Args:
        job: The job object.
        records: Collects the keys that are not read.

    Raises:
        UnusableError: The value is not a job.
    """
    if not isinstance(job, dict):
        raise UnusableError("is not an object")
    records.ignore(name for name in job if name not in _READ)
    time, required = _object(job, "time"), _object(job, "required")
    allocated, requested = (
        _resources(_object(job, "tres").get(name)) for name in ("allocated", "requested")
    )
    array, heterogeneous = _object(job, "array"), _object(job, "het")
    number = next(
        filter(None, (_text(array, "job_id"), _text(heterogeneous, "job_id"))), _text(job, "job_id")
    )
    columns = {
        "JobID": number,
        "Cluster": str(job.get("cluster") or ""),
        "User": str(job.get("user") or _object(job, "association").get("user") or ""),
        "Submit": _text(time, "submission"),
        "Eligible": _text(time, "eligible"),
        "Start": _text(time, "start"),
        "End": _text(time, "end"),
        "ElapsedRaw": _text(time, "elapsed", zero="0"),
        "Suspended": _text(time, "suspended", zero="0"),
        "NNodes": _text(job, "allocation_nodes"),
        "AllocTRES": allocated,
        "ReqTRES": requested,
        "ReqCPUS": _text(required, "CPUs"),
        "ReqMem": _requested_memory(required),
    }
    state = _object(job, "state").get("current", job.get("state"))
    if isinstance(state, list):
        state = state[0] if state else ""
    if state is not None:
        columns["State"] = str(state)
    if job.get("tres") and not isinstance(job["tres"], dict):
        raise UnusableError("trackable resources are not a list of objects")
    return columns


def _object(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _text(parent: Mapping[str, Any], name: str, zero: str = "") -> str:
    """Return a number in a job object as text; "" if it is not set.

    Slurm prints numbers plain, or as objects {set, infinite, number}.

    Args:
        parent: The object that has the number.
        name: Key of the number in the object.
        zero: Text for the number 0.
    """
    value = parent.get(name)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
        if parent[name].get("infinite"):
            value = None
    if value is None:
        return ""
    return zero if value == 0 else str(value)


def _resources(listed: object) -> str:
    """Convert a list of trackable resources (TRES) from JSON to the text of column `AllocTRES`."""
    entries = []
    for resource in listed if isinstance(listed, list) else []:
        if not isinstance(resource, dict):
            raise UnusableError("trackable resources are not a list of objects")
        kind, name = resource.get("type"), resource.get("name")
        amount = _text(resource, "count", zero="0")
        unit = "M" if kind == "mem" else ""
        if amount:
            entries.append(f"{kind}/{name}={amount}{unit}" if name else f"{kind}={amount}{unit}")
    return ",".join(entries)


def _requested_memory(required: Mapping[str, Any]) -> str:
    per_core = _text(required, "memory_per_cpu")
    per_node = _text(required, "memory_per_node")
    if per_core:
        return f"{per_core}Mc"
    return f"{per_node}Mn" if per_node else _text(required, "memory")
