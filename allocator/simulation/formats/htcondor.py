"""Converter for HTCondor's job history, as printed by `condor_history -json` or `-jsonl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import json_values
from allocator.simulation.trace import TraceError

_WITHOUT_SLOTS = {
    7: "ran on the schedd's machine, in the universe scheduler",
    9: "ran elsewhere, in the universe grid",
    12: "ran on the schedd's machine, in the universe local",
}
"""By HTCondor universe: the reason why its jobs are skipped.

These jobs hold no slot of the pool.
"""
_PARALLEL = 11
"""The universe of jobs that hold several hosts at once, each with the requested resources."""
_UNIVERSES = {1, 4, 5, 8, 10, 11, 13}
_ENDED = {3, 4}
"""Values of JobStatus for jobs that have ended: removed (3) and completed (4)."""
_READ = {"clusterid", "procid", "owner", "user", "qdate", "remotewallclocktime", "jobstartdate"}
_READ |= {"completiondate", "enteredcurrentstatus", "jobstatus", "jobuniverse", "globaljobid"}
_READ |= {"cpusprovisioned", "requestcpus", "memoryprovisioned", "requestmemory"}
_READ |= {"gpusprovisioned", "requestgpus", "cumulativeslottime", "cumulativesuspensiontime"}
_READ |= {"maxhosts", "epochwritedate", "epochadtype", "assignedgpus"}


def convert(*paths: Path) -> Conversion:
    """Convert a job history: each job becomes a task.

    docs/how-to/prepare-a-trace.md gives the command that prints the files.

    A task is submitted when its job was queued. The task runs for the job's total run time over all
    starts, because the history has one record per job. All jobs of one HTCondor cluster (one submit
    command) form one job of the trace.

    Args:
        paths: Files with arrays of jobs, or with successive jobs. A job's "line" is its position in
            the file, from 1.

    Raises:
        OSError: A file cannot be read.
        TraceError: A file has another format.
    """
    records = Records()
    seen: set[object] = set()
    for path in paths:
        position = 0
        for array, value in enumerate(json_values(path, "condor_history -json")):
            if not isinstance(value, list | dict) or value == {}:
                raise TraceError(
                    f"{path} has neither a JSON array of jobs nor a JSON object in each line; "
                    "print it with condor_history -json or -jsonl"
                )
            in_array = isinstance(value, list)
            for job in value if in_array else [value]:
                position += 1
                records.begin(path.name, position)
                try:
                    _add(records, job, f"{path}:{array if in_array else ''}", seen)
                except UnusableError as error:
                    records.leave_out(str(error))
    return records.conversion()


def _add(records: Records, job_ad: object, source: str, seen: set[object]) -> None:
    if not isinstance(job_ad, dict):
        raise UnusableError("is not an object")
    records.ignore(name for name in job_ad if name.lower() not in _READ)
    job = {name.lower(): value for name, value in job_ad.items()}
    if {"epochwritedate", "epochadtype"} & job.keys():
        raise UnusableError("describes one run of a job, as condor_history -epochs prints it")
    universe = _number(job, "jobuniverse")
    if universe in _WITHOUT_SLOTS:
        raise UnusableError(_WITHOUT_SLOTS[int(universe)])
    if "jobuniverse" in job and universe not in _UNIVERSES:
        records.assume("JobUniverse is unknown: the job held a slot")
    user = job.get("owner") or job.get("user")
    if not isinstance(user, str):
        raise UnusableError("no owner")
    if not job.get("owner"):
        records.assume("has no Owner: User is the user")
    ran = _run_time(records, job)
    submitted = _number(job, "qdate")
    if not submitted:
        raise UnusableError("QDate is not a time")
    _check_times(records, job, submitted, ran)
    cluster = _number(job, "clusterid")
    if cluster is None:
        raise UnusableError("ClusterId is not a number")
    demand, slot_time = _demand(records, job, universe)
    schedd = _schedd(job, seen, records) or source
    records.add(
        user,
        (schedd, int(cluster)),
        (submitted, ran, _number(job, "jobstartdate") or None),
        demand,
        {"CumulativeSlotTime": slot_time},
    )


def _demand(
    records: Records, job: Mapping[str, Any], universe: float | None
) -> tuple[dict[str, float], float | None]:
    """Return what a job held, and the core-seconds that the record states, to compare them.

    Args:
        records: Collects assumptions about unclear attributes.
        job: The job's attributes.
        universe: The job's universe.
    """
    demand = {
        "cpus": _amount(records, job, ("CpusProvisioned", "RequestCpus"), 1.0),
        "mem": _amount(records, job, ("MemoryProvisioned", "RequestMemory"), 0.0),
        "gpus": _amount(records, job, ("GPUsProvisioned", "RequestGPUs"), 0.0),
    }
    assigned = job.get("assignedgpus")
    if isinstance(assigned, str) and assigned and not {"gpusprovisioned", "requestgpus"} & {*job}:
        records.assume("GPUs are counted in AssignedGPUs")
        demand["gpus"] = float(len(assigned.split(",")))
    if universe != _PARALLEL:
        return demand, _number(job, "cumulativeslottime")
    hosts = _number(job, "maxhosts")
    records.assume(
        "is parallel, without MaxHosts: counts for one host"
        if hosts is None
        else "is parallel: holds the requested resources on each of MaxHosts hosts"
    )
    # The manual does not tell how CumulativeSlotTime counts several hosts.
    return {name: amount * (hosts or 1.0) for name, amount in demand.items()}, None


def _check_times(records: Records, job: Mapping[str, Any], submitted: float, ran: float) -> None:
    """Record assumptions about times of a job that contradict one another.

    Args:
        records: Collects the assumptions.
        job: The job's attributes.
        submitted: Submission in seconds since 1970.
        ran: Run time in seconds.
    """
    started = _number(job, "jobstartdate")
    if started is None and job.get("jobstartdate") is not None:
        records.assume("JobStartDate is not a time: the recorded wait is unknown")
    if started and started < submitted:
        records.assume("JobStartDate is before QDate: the task is submitted at QDate")
    ended = max(_number(job, name) or 0.0 for name in ("completiondate", "enteredcurrentstatus"))
    if started and ended and started > ended:
        records.assume("JobStartDate is after the end: the recorded wait is too long")
    if ended and ran > ended - submitted + 1:
        records.assume("RemoteWallClockTime is longer than the time from QDate to the end")
    if _number(job, "cumulativesuspensiontime"):
        records.assume("was suspended: RemoteWallClockTime, with the suspension, counts")


def _schedd(job: Mapping[str, Any], seen: set[object], records: Records) -> str | None:
    """Return the name of the scheduler daemon that numbered a job, if known.

    Args:
        job: The job's attributes.
        seen: Ids of all jobs read so far; the job's id is added.
        records: Collects assumptions about unclear attributes.

    Raises:
        UnusableError: The job was read before.
    """
    name = job.get("globaljobid")
    if isinstance(name, str):
        if name in seen:
            raise UnusableError("repeats the GlobalJobId of an earlier job")
        seen.add(name)
        return name.partition("#")[0]
    key = tuple(str(job.get(name)) for name in ("clusterid", "procid", "owner", "qdate"))
    if "procid" in job and key in seen:
        records.assume(
            "repeats ClusterId, ProcId, Owner and QDate of an earlier job: counts as another one "
            "(GlobalJobId would tell)"
        )
    seen.add(key)
    return None


def _run_time(records: Records, job: Mapping[str, Any]) -> float:
    """Return a job's total run time over all its starts, in seconds.

    Args:
        records: Collects assumptions about missing attributes.
        job: The job's attributes.

    Raises:
        UnusableError: The job has not ended, never ran, or its run time is unknown.
    """
    status = _number(job, "jobstatus")
    if status is not None and status not in _ENDED:
        raise UnusableError("had not ended")
    if "jobstatus" in job and status is None:
        records.assume("JobStatus is not a number: the job counts as ended")
    ran = _number(job, "remotewallclocktime")
    started = _number(job, "jobstartdate")
    if ran is None:
        ended = _number(job, "completiondate") or _number(job, "enteredcurrentstatus")
        if not started:
            raise UnusableError(
                "never ran"
                if status == 3
                else "has no RemoteWallClockTime, nor JobStartDate and CompletionDate"
            )
        if not ended:
            raise UnusableError("has no RemoteWallClockTime, nor CompletionDate")
        if ended < started:
            raise UnusableError("ended before it started")
        stated = job.get("remotewallclocktime")
        records.assume(
            f"{'has no' if stated is None else 'has no number as'} RemoteWallClockTime: the task "
            "runs from JobStartDate to CompletionDate, or to EnteredCurrentStatus"
        )
        ran = ended - started
    if not ran:
        raise UnusableError(
            "RemoteWallClockTime is 0, although JobStartDate is given" if started else "never ran"
        )
    return ran


def _amount(
    records: Records, job: Mapping[str, Any], names: tuple[str, str], unknown: float
) -> float:
    """Return the amount of a resource that a job held: provisioned if known, else requested.

    Args:
        records: Collects assumptions about unclear attributes.
        job: The job's attributes.
        names: Names of the attributes with the provisioned and with the requested amount.
        unknown: The amount to assume if neither attribute is a number.
    """
    provisioned, requested_name = names
    for name in names:
        number = _number(job, name.lower())
        if number is not None:
            if name == requested_name and job.get(provisioned.lower()) is not None:
                records.assume(f"{provisioned} is not a number: {requested_name} is used")
            if not number and "GPUs" not in name:
                records.assume(f"{name} is 0: the task gets 0")
            elif not number and _number(job, requested_name.lower()):
                records.assume(f"{name} is 0, but {requested_name} is not: the task gets 0")
            return number
    requested = [name for name in names if name.lower() in job]
    if requested:
        records.assume(f"{requested[-1]} is an expression or not a number: {unknown:g} is used")
    elif "GPUs" not in names[0]:
        records.assume(f"{names[-1]} is not given: {unknown:g} is used")
    return unknown


def _number(job: Mapping[str, Any], name: str) -> float | None:
    value = job.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return float(value)
