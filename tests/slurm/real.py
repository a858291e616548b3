"""A real Slurm for tests: the bridge to it, and commitments from its records alone."""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from allocator.fairness.policies import create
from allocator.slurm.bridge import Bridge, BridgeSettings, Cycle
from allocator.slurm.client import SlurmClient
from allocator.slurm.state import StateSettings
from allocator.users.settings import DeclaredUser
from frameworks.local_slurm.cluster import LocalSlurm, ended_jobs, missing_programs
from tests.slurm.separate import Held, commitments

USERS = ("games", "man", "news")
"""Users that each Debian has; the jobs of the tests belong to them."""
Start: TypeAlias = tuple[str, float]
"""A start: the job's number, and the time in seconds since 1970."""
ROOT = Path(os.environ["LONGSHARE_SLURM_ROOT"]) if "LONGSHARE_SLURM_ROOT" in os.environ else None
"""A folder with a Debian whose Slurm is tested. None: this machine's Slurm."""


def reason_to_skip(*, accounting: bool = False) -> str | None:
    """Return why a real Slurm cannot run here; None if it can."""
    if ROOT is None and missing_programs(accounting=accounting):
        return "Slurm is not installed"
    if os.geteuid() != 0:
        return "only root can start a Slurm whose jobs belong to several users"
    return None


def bridge_to(
    slurm: LocalSlurm, half_life: float, since: float, declared: Iterable[str] = ()
) -> Bridge:
    """Return a bridge that sets site factors, and settles changes after a minute."""
    state = StateSettings(
        create("sdrf", {"half_life": half_life}),
        lag=60.0,
        declared=tuple(map(DeclaredUser, declared)),
    )
    return Bridge(
        SlurmClient(slurm.environment, timeout=20.0),
        BridgeSettings(state, dry_run=False, nodes_every=1.0),
        since,
    )


def poll_until(bridge: Bridge, done: Callable[[Cycle], bool], seconds: float) -> Cycle:
    """Poll until a condition holds; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not done(cycle := bridge.poll()):
        assert time.monotonic() < deadline, f"not reached within {seconds} s"
        time.sleep(0.5)
    return cycle


def holding(bridge: Bridge, cores: Mapping[str, int]) -> bool:
    """Return whether users hold the given numbers of cores."""
    tree = bridge.state.present()
    held = {
        "/".join(path): tree.standing(path).allocation.to_doubles().get("cpus", 0.0)
        for path in tree.users()
    }
    return {user: amount for user, amount in held.items() if amount} == cores


def from_jobcomp(
    file: Path,
    known: Mapping[str, float],
    capacities: Sequence[tuple[float, Mapping[str, float]]],
    half_life: float,
    *,
    until: float,
    more: Iterable[Held] = (),
) -> dict[str, dict[str, float]]:
    """Compute commitments from the file of jobcomp, and from allocations that it does not have.

    Users that are not known from an earlier time count from their first submission.
    """
    joined = dict(known)
    for fields in ended_jobs(file):
        user = fields["UserId"].split("(")[0]
        joined[user] = min(joined.get(user, until), _seconds(fields["SubmitTime"]))
    return commitments([*recorded(file), *more], joined, capacities, half_life, until)


def recorded(file: Path, state: str = "") -> Iterable[Held]:
    """Return the allocations in the file of jobcomp, or only attempts that ended in a state."""
    held: dict[Start, Held] = {}
    for fields in ended_jobs(file):
        if state not in {"", fields["JobState"]}:
            continue
        user = fields["UserId"].split("(")[0]
        resources = _amounts(fields["Tres"]) | {"cpus": float(fields["ProcCnt"])}
        start, end = _seconds(fields["StartTime"]), _seconds(fields["EndTime"])
        # A controller that crashed has forgotten the end, so the job ends once more.
        attempt = held.get((fields["JobId"], start))
        latest = end if attempt is None else max(attempt.end, end)
        held[fields["JobId"], start] = Held(user, start, latest, resources)
    return held.values()


def from_sacct(
    slurm: LocalSlurm,
    joined: Mapping[str, float],
    capacities: Sequence[tuple[float, Mapping[str, float]]],
    half_life: float,
    *,
    until: float,
) -> dict[str, dict[str, float]]:
    """Compute commitments to cores and memory from the output of sacct alone."""
    output = slurm.run(
        *("env", "SLURM_TIME_FORMAT=%s", "sacct", "--allusers", "--allocations", "--duplicates"),
        *("--parsable2", "--noheader", "--starttime=now-1hour", "--format"),
        "user,start,end,alloctres",
    )
    held = []
    for line in output.splitlines():
        user, start, end, resources = line.split("|")
        if start.isdecimal() and end.isdecimal() and resources:  # else it was never started
            held.append(Held(user, float(start), float(end), _amounts(resources)))
    return commitments(held, joined, capacities, half_life, until)


def shown_as_running(slurm: LocalSlurm) -> dict[Start, Held]:
    """Return what squeue shows of running jobs: user and resources of each, without an end."""
    columns = ("jobid", "username", "starttime", "tres-alloc")
    form = f"--Format={','.join(f'{name}:|' for name in columns)}"
    shown = {}
    for line in slurm.run("squeue", "--noheader", "--states=RUNNING", form).splitlines():
        job, user, start, resources = line.split("|")[: len(columns)]
        shown[job, _seconds(start)] = Held(user, _seconds(start), math.inf, _amounts(resources))
    return shown


def recorded_starts(file: Path) -> set[Start]:
    """Return the starts that the file of jobcomp has."""
    return {(fields["JobId"], _seconds(fields["StartTime"])) for fields in ended_jobs(file)}


def _amounts(text: str) -> dict[str, float]:
    amounts = dict(part.split("=") for part in text.split(","))
    return {"cpus": float(amounts["cpu"]), "mem": _mebibytes(amounts["mem"])}


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()  # in the time zone of this machine


def _mebibytes(text: str) -> float:
    return float(text[:-1]) * {"M": 1.0, "G": 1024.0}[text[-1]]
