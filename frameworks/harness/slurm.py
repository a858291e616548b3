"""Plays an experiment on a temporary Slurm: an array of batch jobs for the tasks of each user."""

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import tomli_w

from allocator.fairness.plugin_sandbox import PolicyFailedError
from allocator.slurm.task_shares import reason_against
from frameworks.experiment import Experiment, TaskSpec, UserSpec
from frameworks.harness.measurement import Measurement, Series, read_recorder
from frameworks.harness.observer import policy_failures
from frameworks.harness.processes import Children
from frameworks.harness.runner import (
    STARTUP_TIMEOUT_S,
    AllocatorAddresses,
    ExperimentSettings,
    Progress,
    allocation_settings,
    await_page,
    policy_section,
)
from frameworks.local_slurm.cluster import LocalSlurm, SlurmError, ended_jobs, obstacle
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings

SUBMITTER = "nobody"
"""The user of this machine to which all jobs belong. An account stands for a user."""
_EVERY_S = 1.0
"""Seconds between two readings of the service, and between two samples of the progress."""
_MILLI = 1000
"""Amounts of resources are in thousandths."""
_ENDING_S = 30.0
"""Seconds in which cancelled jobs must end."""
_SCRIPT = """
part=$(((SLURM_ARRAY_TASK_ID * 617 + {seed}) % 1009))
milliseconds=$(({shortest} + {spread} * part / 1008))
exec sleep $((milliseconds / 1000)).$(printf %03d $((milliseconds % 1000)))
"""
"""A task. 617 is a primitive root modulo the prime 1009, so run times of successive tasks are
uniformly distributed, and differ much."""


class UnplayableError(ValueError):
    """Raised if an experiment cannot be played on a Slurm; the message names the feature."""


class _Stage(NamedTuple):
    """A running Slurm, and the experiment that is played on it."""

    experiment: Experiment
    settings: ExperimentSettings
    slurm: LocalSlurm
    children: Children
    """All other processes; an unexpected end of any is an error."""


class _Run(NamedTuple):
    """A task that has run. Times are in seconds since the start of the experiment."""

    user: str
    submitted: float
    started: float
    ended: float
    cores: float


def measure_on_slurm(
    experiment: Experiment, settings: ExperimentSettings, watch: Callable[[Progress], None]
) -> Measurement:
    """Play an experiment on a temporary Slurm, and return the measured values.

    Slurm and its jobs run in real time. With a higher speed, all times of the experiment are
    shorter, also the half-life of the policy.

    Args:
        experiment: The experiment.
        settings: Options of the run.
        watch: Progress callback.

    Raises:
        UnplayableError: The experiment has features that cannot be played on a Slurm.
        SlurmError: Slurm cannot run here, or a command of Slurm failed.
        ChildFailed: A process ended unexpectedly.
        TimeoutError: A process did not start, or a user did not finish in time.
        OSError: The results cannot be written.
        PolicyFailedError: The policy failed, so the order is not the policy's.
    """
    require_playable(experiment, settings.speed)
    logs = settings.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    recording = settings.out / "recorder.csv"
    cluster = _cluster(experiment, settings.speed)
    with (
        LocalSlurm(settings.out / "slurm", cluster) as slurm,
        tempfile.TemporaryDirectory(prefix="longshare-") as private,
        Children(logs) as children,
    ):
        stage = _Stage(experiment, settings, slurm, children)
        service = None
        if experiment.order == "fair-tree":
            _add_accounts(slurm, experiment)
        else:
            service = _serve(stage, recording, Path(private))
        start = float(math.ceil(time.time()) + 1)
        _play(stage, service, watch, start)
        _end_jobs(slurm)
        runs = list(_runs(experiment, slurm, start, settings.speed))
        if service is not None and (count := policy_failures(service.page)):
            name = str(experiment.policy["name"])
            raise PolicyFailedError(name, count, f"{count} failures; see {logs / 'service.log'}")
    measured = Measurement()
    measured.cpus = measured.running = _cores(experiment, runs, settings.speed)
    if service is not None:
        users = _users_by_account(experiment)
        recorded = read_recorder(
            recording, start, start + experiment.duration / settings.speed, settings.speed
        )
        measured.commitments = {users[name]: of for name, of in recorded.commitments.items()}
    if experiment.finite:
        for user in experiment.users:
            own = [run for run in runs if run.user == user.name]
            measured.completions[user.name] = max(run.ended for run in own) - user.start
            measured.waits[user.name] = fmean(run.started - run.submitted for run in own)
    return measured


def require_playable(experiment: Experiment, speed: float) -> None:
    """Check that an experiment, with all its variants, can be played on a Slurm.

    Args:
        experiment: The experiment.
        speed: Seconds of the experiment for each second of real time.

    Raises:
        UnplayableError: The experiment has features that Slurm, or the service for Slurm, lacks.
    """
    if (reason := _reason_against_playing(experiment, speed)) is not None:
        raise UnplayableError(f"{experiment.name} cannot run on Slurm: {reason}")


def _reason_against_playing(experiment: Experiment, speed: float) -> str | None:
    """Return why an experiment cannot be played on a Slurm; None if it can."""
    policy = experiment.create_policy()
    if (reason := reason_against(policy)) is not None:
        return reason
    holds = {experiment.hold_for, *(variant.hold_for for variant in experiment.variants)}
    if holds != {"off"}:
        return "Slurm holds no nodes for a user, as offers.hold_for does"
    for user in experiment.users:
        tasks = experiment.tasks_of(user)
        demand = tasks.quantities.to_doubles()
        if demand.keys() != {"cpus", "mem"} or not demand["mem"].is_integer():
            return (
                f"a task of user {user.name} needs {tasks.demand}, but each job of Slurm needs "
                "CPUs and whole MiB of memory, and nothing else"
            )
    if len(_users_by_account(experiment)) < len(experiment.users):
        return "names of accounts have no capital letters, so two users would have the same account"
    half_life = _half_life(experiment, speed)
    minutes = 0.0 if half_life is None else half_life / 60.0
    if experiment.needs_slurm and not math.isclose(minutes, round(minutes)):
        return (
            f"Fair Tree's half-life is a number of minutes, but at speed {speed:g} the half-life "
            f"is {half_life:g} s; choose another half_life or speed"
        )
    return None


def _cpus_per_core(experiment: Experiment) -> int:
    """Return the number of Slurm's CPUs that represent a core, so that all amounts are whole."""
    amounts = [group.quantities["cpus"] for group in experiment.cluster.agents]
    amounts += [experiment.tasks_of(user).quantities["cpus"] for user in experiment.users]
    return _MILLI // math.gcd(_MILLI, *amounts)


def _users_by_account(experiment: Experiment) -> dict[str, str]:
    """Return the users by account. Slurm changes the names of accounts to small letters."""
    return {user.name.lower(): user.name for user in experiment.users}


def _cluster(experiment: Experiment, speed: float) -> SlurmSettings:
    """Return the settings of a Slurm with the nodes of an experiment.

    Raises:
        SlurmError: Slurm cannot run on this machine.
    """
    fair_tree = experiment.order == "fair-tree"
    reason = obstacle(accounting=fair_tree)
    if reason is not None:
        raise SlurmError(reason)
    groups = []
    for number, agents in enumerate(experiment.cluster.agents, 1):
        cpus = agents.quantities["cpus"] * _cpus_per_core(experiment) // _MILLI
        mem = agents.quantities["mem"] // _MILLI  # jobs need whole MiB, so no job misses the rest
        groups.append(NodeGroup(f"g{number}-", agents.count, cpus, mem))
    overrides = {"MaxArraySize": "100001", "MaxJobCount": "200000", "MinJobAge": "30"}
    if fair_tree:
        overrides |= _fair_tree(experiment, speed)
    return SlurmSettings(nodes=tuple(groups), accounting=fair_tree, overrides=overrides)


def _fair_tree(experiment: Experiment, speed: float) -> dict[str, str]:
    """Return the settings with which Slurm's Fair Tree orders the jobs, by name."""
    half_life = _half_life(experiment, speed)
    return {
        "PriorityWeightFairshare": "1000000",
        "PriorityDecayHalfLife": f"{(half_life or 0.0) / 60.0:.0f}",  # in minutes; 0: no decay
        "PriorityCalcPeriod": "1",  # a minute, the shortest that Slurm has
    }


def _half_life(experiment: Experiment, speed: float) -> float | None:
    """Return the half-life of the policy in seconds of real time; None if nothing decays."""
    tau = experiment.create_policy().tau
    return None if tau is None else tau * math.log(2.0) / speed


def _add_accounts(slurm: LocalSlurm, experiment: Experiment) -> None:
    """Add an account for each user to slurmdbd, with shares in proportion to the weights."""
    accounts = list(_users_by_account(experiment))
    for account, user in zip(accounts, experiment.users, strict=True):
        shares = f"fairshare={round(100 * user.weight)}"
        slurm.run("sacctmgr", "--immediate", "add", "account", account, shares)
    slurm.run("sacctmgr", "--immediate", "add", "user", SUBMITTER, f"account={','.join(accounts)}")


def _serve(stage: _Stage, recording: Path, private: Path) -> AllocatorAddresses:
    """Start the service for Slurm, which sets the order of the jobs.

    Args:
        stage: The Slurm and the experiment.
        recording: File for the recording of commitments.
        private: Folder for the socket on which the service listens, and for a policy file.
    """
    experiment, settings, slurm, children = stage
    config = settings.out / "longshare.toml"
    address = f"unix://{private}/service.sock"
    policy = dict(policy_section(experiment, settings.policy_file, private))
    half_life = _half_life(experiment, settings.speed)
    if half_life is not None:
        policy.pop("delta", None)
        policy["half_life"] = half_life
    declared = [
        {**user, "name": account}
        for user, account in zip(
            allocation_settings(experiment)["users"]["declared"],
            _users_by_account(experiment),
            strict=True,
        )
    ]
    content = {
        "policy": policy,
        "users": {"key": "account", "declared": declared},
        "slurm": {"dry_run": False, "every": _EVERY_S, "lag": 10.0, "conf": str(slurm.conf)},
        "listen": {"address": address},
        "metrics": {"address": "127.0.0.1:0"},
        "recorder": {"file": str(recording.resolve()), "every": 1.0},
        "store": {"kind": "none"},
        "accounting": {"database": "none"},
    }
    config.write_text(tomli_w.dumps(content), encoding="utf-8")
    service = children.start("service", "slurm", "serve", "--config", str(config))
    page = await_page(service, experiment)
    service.await_line(r"(slurmctld answers)", STARTUP_TIMEOUT_S)
    return AllocatorAddresses(page, address)


def _play(
    stage: _Stage,
    service: AllocatorAddresses | None,
    watch: Callable[[Progress], None],
    start: float,
) -> None:
    """Submit each user's tasks at the user's start, until the experiment ends.

    Args:
        stage: The Slurm and the experiment.
        service: Addresses of the service for Slurm, if it runs.
        watch: Progress callback.
        start: The time of the start, in seconds since 1970.

    Raises:
        TimeoutError: At the end, some users with a limited number of tasks have not finished.
    """
    experiment, settings, slurm, children = stage
    waiting = sorted(enumerate(experiment.users), key=lambda entry: entry[1].start)
    users = _users_by_account(experiment)
    per_core = _cpus_per_core(experiment)
    while True:
        elapsed = (time.time() - start) * settings.speed
        while waiting and waiting[0][1].start <= elapsed:
            number, user = waiting.pop(0)
            _submit(slurm, experiment, user, settings.speed, settings.seed * 1000 + number)
        children.check()
        form = ("--noheader", "--states=PENDING,RUNNING", "--format=%T|%a|%C")
        jobs = [line.split("|") for line in slurm.run("squeue", *form).splitlines()]
        held = dict.fromkeys(users.values(), 0.0)
        for state, account, cpus in jobs:
            if state == "RUNNING":
                held[users[account]] += float(cpus) / per_core
        phase = next(p for p in reversed(experiment.phases) if p.start <= max(elapsed, 0.0))
        watch(Progress(max(elapsed, 0.0), phase, held, service))
        if experiment.finite and not waiting and not jobs:
            return
        if elapsed >= experiment.duration:
            if experiment.finite:
                unfinished = sorted({users[account] for _, account, _ in jobs})
                raise TimeoutError(f"not finished after {elapsed:.0f} s: {', '.join(unfinished)}")
            return
        upcoming = waiting[0][1].start if waiting else experiment.duration
        remaining = start + upcoming / settings.speed - time.time()
        time.sleep(min(max(remaining, 0.0), _EVERY_S))


def _submit(
    slurm: LocalSlurm, experiment: Experiment, user: UserSpec, speed: float, seed: int
) -> None:
    """Submit all tasks of a user as one array; without a limit, more tasks than can run."""
    tasks = experiment.tasks_of(user)
    cpus = tasks.quantities["cpus"] * _cpus_per_core(experiment) // _MILLI
    shortest = tasks.run_time * (1 - tasks.jitter)
    count = tasks.count or _most_tasks(experiment, user, tasks, shortest)
    script = _SCRIPT.format(
        seed=seed,
        shortest=round(1000 * shortest / speed),
        spread=round(2000 * tasks.run_time * tasks.jitter / speed),
    )
    names = [name for group in slurm.settings.nodes for name in group.names()]
    hosts = [host for host, _ in experiment.cluster.hosts]
    allowed = experiment.whitelist(user) or hosts
    excluded = [name for name, host in zip(names, hosts, strict=True) if host not in allowed]
    slurm.submit(
        f"--account={user.name.lower()}",
        f"--cpus-per-task={cpus}",
        f"--mem={tasks.quantities['mem'] // _MILLI}",
        f"--array=0-{count - 1}",
        *([f"--exclude={','.join(excluded)}"] if excluded else []),
        user=SUBMITTER,
        script=script,
    )


def _most_tasks(experiment: Experiment, user: UserSpec, tasks: TaskSpec, shortest: float) -> int:
    """Return the number of tasks that a user could run alone, if all were as short as possible."""
    at_once = experiment.cluster.monopoly(tasks.quantities)
    return at_once * (math.ceil((experiment.duration - user.start) / shortest) + 1)


def _end_jobs(slurm: LocalSlurm) -> None:
    """Cancel the remaining jobs, and wait until the running jobs have ended.

    Raises:
        TimeoutError: Some jobs still run.
    """
    slurm.run("scancel", f"--user={SUBMITTER}")
    deadline = time.monotonic() + _ENDING_S
    while slurm.run("squeue", "--noheader", "--states=RUNNING,COMPLETING"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"cancelled jobs of Slurm still run after {_ENDING_S:g} s")
        time.sleep(0.2)


def _runs(experiment: Experiment, slurm: LocalSlurm, start: float, speed: float) -> Iterator[_Run]:
    """Yield the tasks that have run, from the file in which Slurm records ended jobs."""
    users = _users_by_account(experiment)
    per_core = _cpus_per_core(experiment)
    for fields in ended_jobs(slurm.jobcomp):
        if fields["NodeList"] == "(null)":
            continue  # cancelled before its start
        submitted, started, ended = (
            (datetime.fromisoformat(fields[name]).timestamp() - start) * speed
            for name in ("SubmitTime", "StartTime", "EndTime")
        )
        user = users[fields["Account"]]
        yield _Run(user, submitted, started, ended, int(fields["ProcCnt"]) / per_core)


def _cores(experiment: Experiment, runs: list[_Run], speed: float) -> dict[str, Series]:
    """Return the cores of each user's running tasks, in the middle of each second of real time.

    Slurm's times are whole seconds.
    """
    seconds = int(experiment.duration / speed)
    changes = {user.name: [0.0] * (seconds + 1) for user in experiment.users}
    for run in runs:
        first, last = (min(round(time / speed), seconds) for time in (run.started, run.ended))
        changes[run.user][first] += run.cores
        changes[run.user][last] -= run.cores
    series: dict[str, Series] = {}
    for name, differences in changes.items():
        held, series[name] = 0.0, {}
        for second in range(seconds):
            held += differences[second]
            series[name][(second + 0.5) * speed] = held
    return series
