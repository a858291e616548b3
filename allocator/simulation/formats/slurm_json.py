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
from allocator.slurm_notation import NO_DEMAND

_READ = {"job_id", "user", "association", "cluster", "array", "het", "state", "time", "tres"}
_READ |= {"allocation_nodes", "required"}
_ENDING_FLAGS = {"REQUEUED", "RESIZING", "REVOKED"}
"""Flags that are the whole state of a record."""


def is_json(path: Path) -> bool:
    """Return whether a file begins like a JSON object or a JSON list."""
    with opened(path) as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))


def jobs(path: Path, records: Records) -> list[Any]:
    """Return the job objects in a file that `sacct --json` printed.

    Args:
        path: The file.
        records: Receives a warning if sacct reports errors.

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
        if errors:
            records.warn(f"sacct reports errors, so jobs may be missing: {errors}")
        all_jobs += listed
    objects = [job for job in all_jobs if isinstance(job, dict)]
    if any("job_state" in job for job in objects) and not any("time" in job for job in objects):
        raise TraceError(f"{path} has jobs of squeue or scontrol; print them with sacct --json")
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
    resources = job.get("tres") or {}
    if not isinstance(resources, dict):
        raise UnusableError("trackable resources are not a list of objects")
    allocated, requested = (
        _resources(resources, name, records) for name in ("allocated", "requested")
    )
    array, heterogeneous = _object(job, "array"), _object(job, "het")
    number = next(
        filter(None, (_text(array, "job_id"), _text(heterogeneous, "job_id"))), _text(job, "job_id")
    )
    columns = {
        "JobID": number,
        "JobIDRaw": _text(job, "job_id"),
        "Cluster": str(job.get("cluster") or ""),
        "User": _user(job),
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
    if (state := _state(job.get("state"))) is not None:
        columns["State"] = state
    return columns


def _user(job: Mapping[str, Any]) -> str:
    """Return a job's user; "" if unknown.

    Raises:
        UnusableError: The user is no text.
    """
    user = job.get("user") or _object(job, "association").get("user") or ""
    if not isinstance(user, str):
        raise UnusableError("user is not a text")
    return user.strip()


def _state(state: object) -> str | None:
    """Return a job's state as `sacct --parsable2` prints it; None if the job has no state.

    Slurm keeps the state of a requeued or resized attempt as a flag. In JSON, the flag follows
    PENDING, as in `["PENDING", "REQUEUED"]`.
    """
    current = state.get("current", state) if isinstance(state, dict) else state
    if isinstance(current, list):
        first, *flags = [str(name) for name in current] or [""]
        return next((flag for flag in flags if flag in _ENDING_FLAGS and first == "PENDING"), first)
    return None if current is None else str(current)


def _object(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object of an object; an empty object if the key is missing or null.

    Raises:
        UnusableError: The value is no object.
    """
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnusableError(f"{name} is not an object")
    return value


def _text(parent: Mapping[str, Any], name: str, zero: str = "") -> str:
    """Return a number in a job object as text; "" if it is not set.

    Slurm prints numbers plain, or as objects {set, infinite, number}.

    Args:
        parent: The object that has the number.
        name: Key of the number in the object.
        zero: Text for the number 0.

    Raises:
        UnusableError: The value has another form.
    """
    value = parent.get(name)
    if isinstance(value, dict):
        is_set = value.get("set", True) and not value.get("infinite")
        value = value.get("number", False) if is_set else None
    if isinstance(value, bool | list | dict):
        raise UnusableError(f"{name} is not a number")
    if value is None:
        return ""
    return zero if value == 0 else str(value)


def _resources(tres: Mapping[str, Any], name: str, records: Records) -> str:
    """Convert a list of trackable resources (TRES) from JSON to the text of column `AllocTRES`.

    Args:
        tres: The object that has the list.
        name: Key of the list in the object.
        records: Collects the resources without a number.

    Raises:
        UnusableError: The value is no list of objects.
    """
    listed = [] if tres.get(name) is None else tres[name]
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise UnusableError("trackable resources are not a list of objects")
    entries = []
    for resource in listed:
        kind = resource.get("type")
        whole_name = f"{kind}/{resource['name']}" if resource.get("name") else f"{kind}"
        amount = _text(resource, "count", zero="0")
        if amount:
            entries.append(f"{whole_name}={amount}{'M' if kind == 'mem' else ''}")
        elif kind not in NO_DEMAND:
            records.assume(f"{whole_name} of tres/{name} has no number: not read")
    return ",".join(entries)


def _requested_memory(required: Mapping[str, Any]) -> str:
    per_core = _text(required, "memory_per_cpu")
    per_node = _text(required, "memory_per_node")
    if per_core:
        return f"{per_core}Mc"
    return f"{per_node}Mn" if per_node else _text(required, "memory")
