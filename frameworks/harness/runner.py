"""Runs an experiment from start to end: processes, measurement, and result files."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import tomli_w

from allocator.fairness.plugin_sandbox import PolicyFailedError
from frameworks.experiment import Experiment, Phase, UserSpec
from frameworks.harness import real_mesos
from frameworks.harness.figure import draw, draw_shares
from frameworks.harness.film import EVENTS
from frameworks.harness.measurement import Measurement, read_recorder, write_table
from frameworks.harness.observer import MasterSample, Observer, policy_failures
from frameworks.harness.processes import Child, ChildFailed, Children
from frameworks.harness.real_mesos import MesosHome
from frameworks.harness.verdict import Verdict, expectation, expected_cpus, judge

STARTUP_TIMEOUT_S = 120.0
"""Maximum real time in seconds for the start of a process. A busy machine needs a minute."""
ARRIVAL_SPACING_S = 0.01
"""Seconds between the starts of frameworks with the same start time.

They then subscribe in the same order in every run.
"""
RELEASE_LEAD_S = 0.001
"""Seconds by which a framework is released before its start time.

The master's clock stops until the framework subscribes. Rounding may put the start time slightly
earlier, so an exact release could come too late.
"""
POLL_INTERVAL_S = 0.15
"""Real time in seconds between two polls of the master."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a running experiment, for the display in the terminal."""

    elapsed: float
    """Seconds since the start of the experiment, by the master's clock."""
    phase: Phase
    cpus: dict[str, float]
    """By user: cores of running tasks."""
    allocator: "AllocatorAddresses | None"
    """Addresses of the allocator service.

    None for an external master, which has its own allocator.
    """


@dataclass(frozen=True, slots=True)
class AllocatorAddresses:
    """Addresses at which people can reach the allocator service of a running experiment."""

    page: str
    """URL of the service's status page."""
    address: str
    """Address for commands such as `longshare shares`."""


@dataclass(frozen=True, slots=True)
class ExperimentSettings:
    """Options of a run of an experiment."""

    speed: float
    """Seconds of the experiment for each second of real time."""
    seed: int
    out: Path
    master: str | None = None
    """HOST:PORT of a running master to use; None: start a master."""
    mesos_home: Path | None = None
    """Folder with a real Mesos to start; None: start the embedded Mesos."""
    record: Path | None = None
    """File for the recording of the allocator's events and decisions; None: `EVENTS` in `out`."""
    policy_file: Path | None = None
    """File that defines the policy; None if the policy is part of Longshare."""


Measure: TypeAlias = Callable[
    [Experiment, ExperimentSettings, Callable[[Progress], None]], Measurement
]
"""Function that plays an experiment on a scheduler, and returns the measured values."""


def run(
    experiment: Experiment,
    settings: ExperimentSettings,
    watch: Callable[[Progress], None],
    measure: Measure | None = None,
) -> Verdict:
    """Run an experiment, write its results to `settings.out`, and compare them with the claims.

    Args:
        experiment: The experiment.
        settings: Options of the run.
        watch: Progress callback.
        measure: Plays the experiment; None: `measure_on_mesos`.

    Raises:
        ChildFailed: A process ended unexpectedly.
        TimeoutError: A process did not start in time.
        OSError: The results cannot be written, a master did not answer, or the folder of Mesos is
            incomplete.
        PolicyFailedError: The policy failed, so the allocations are not the policy's.
    """
    measured = (measure or measure_on_mesos)(experiment, settings, watch)
    expected = (
        expected_cpus(experiment, expectation(experiment))
        if experiment.divisible
        else Measurement()
    )
    verdict = judge(experiment, measured, expected, seed=settings.seed, speed=settings.speed)
    write_table(settings.out / "allocations.csv", measured.cpus)
    write_table(settings.out / "commitments.csv", measured.commitments)
    if experiment.counts_tasks:
        draw_shares(experiment, measured, settings.out)
    else:
        draw(experiment, measured, expected, settings.out)
    summary = json.dumps(verdict.summary(), indent=2)
    (settings.out / "summary.json").write_text(summary + "\n", encoding="utf-8")
    return verdict


def measure_on_mesos(
    experiment: Experiment, settings: ExperimentSettings, watch: Callable[[Progress], None]
) -> Measurement:
    """Play an experiment with frameworks on a Mesos, and return the measured values.

    The arguments and errors are those of `run`.
    """
    logs = settings.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    recording = settings.out / "recorder.csv"
    with (
        Children(logs) as children,
        _master(experiment, settings, children, recording) as (address, allocator),
    ):
        observer = Observer(address)
        observer.wait_for(STARTUP_TIMEOUT_S)
        frameworks = _prepare(experiment, settings, children, address)
        start = _begin(
            experiment, observer, embedded=settings.master is None and settings.mesos_home is None
        )
        measured = _conduct(
            experiment,
            observer,
            frameworks,
            children,
            lambda elapsed, phase, held: watch(Progress(elapsed, phase, held, allocator)),
            start=start,
        )
        start_time = observer.started() + start
        if experiment.finite:
            measured.completions = _completions(experiment, observer.finished(start))
        if allocator is not None and (count := policy_failures(allocator.page)):
            name = str(experiment.policy["name"])
            raise PolicyFailedError(name, count, f"{count} failures; see {logs / 'allocator.log'}")
    measured.cpus = measured.running
    if settings.master is None:
        recorded = read_recorder(recording, start_time, start_time + experiment.duration)
        measured.cpus, measured.commitments = recorded.cpus, recorded.commitments
    return measured


@contextmanager
def _master(
    experiment: Experiment, settings: ExperimentSettings, children: Children, recording: Path
) -> Iterator[tuple[str, AllocatorAddresses | None]]:
    """Context that provides a master for an experiment: embedded, real or external.

    An external master, which the user runs, is used as it is. Otherwise the context also starts an
    allocator service. The context's value is the master's HOST:PORT, and the addresses of the
    allocator service or None.

    Args:
        experiment: The experiment.
        settings: Options of the run.
        children: Receives the processes, and stops them at the end.
        recording: File for the allocator's recording of events.
    """
    if settings.master is not None:
        yield settings.master, None
        return
    with tempfile.TemporaryDirectory(prefix="longshare-") as folder:
        allocator = f"unix://{folder}/allocator.sock"
        config = settings.out / "longshare.toml"
        store = settings.out / "commitments.sqlite"
        store.unlink(missing_ok=True)  # users start with the commitments of the experiment
        policy = policy_section(experiment, settings.policy_file, Path(folder))
        config.write_text(
            _configuration(experiment, policy, allocator, recording, store), encoding="utf-8"
        )
        record = f"--record={settings.record or settings.out / EVENTS}"
        service = children.start("allocator", "serve", "--config", str(config), record)
        page = await_page(service, experiment)
        whereabouts = AllocatorAddresses(page, allocator)
        if settings.mesos_home is not None:
            home = MesosHome(settings.mesos_home)
            with real_mesos.cluster(home, children, experiment.cluster, allocator) as address:
                yield address, whereabouts
            return
        master = children.start(
            "mesos",
            "local-mesos",
            *(f"--agents={agents.count}" for agents in experiment.cluster.agents),
            *(f"--resources={agents.resources}" for agents in experiment.cluster.agents),
            f"--speed={settings.speed}",
            f"--seed={settings.seed}",
            f"--allocator={allocator}",
            "--port=0",
        )
        yield master.await_line(r"Mesos master on (\S+)", STARTUP_TIMEOUT_S), whereabouts


def await_page(service: Child, experiment: Experiment) -> str:
    """Wait until a service shows its status page, and return the URL of the page.

    Raises:
        PolicyFailedError: The service has not accepted the policy of the experiment.
        ChildFailed: The service ended for another reason.
        TimeoutError: The service did not start in time.
    """
    try:
        return service.await_line(r"(http://\S+/)metrics", STARTUP_TIMEOUT_S)
    except ChildFailed as error:
        if "a rule is broken" not in str(error):  # the service's message about a policy
            raise
        name = str(experiment.policy["name"])
        raise PolicyFailedError(name, 1, str(error)) from error


def allocation_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that an allocator service needs to run an experiment.

    The result has the sections `policy` and `users`, and `offers` if the experiment needs it.
    """
    offers = {"hold_for": experiment.hold_for} if experiment.hold_for != "off" else {}
    return {
        "policy": experiment.policy,
        **({"offers": offers} if offers else {}),
        "users": {
            "key": "role",
            "declared": [
                {"name": user.name, "weight": user.weight, "commitment": user.commitment}
                for user in experiment.users
            ],
        },
    }


def policy_section(experiment: Experiment, file: Path | None, folder: Path) -> dict[str, Any]:
    """Return the section `policy` of a service's configuration for an experiment.

    A policy file is copied into a private folder, because the service rejects policy files that
    other users may write.

    Args:
        experiment: The experiment.
        file: File that defines the policy, or None.
        folder: Folder for the copy.
    """
    if file is None:
        return experiment.policy
    copy = folder.resolve() / file.name
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o600)
    return {**experiment.policy, "file": str(copy)}


def _configuration(
    experiment: Experiment, policy: dict[str, Any], address: str, recording: Path, store: Path
) -> str:
    """Return the allocator's whole configuration for an experiment, as TOML.

    Args:
        experiment: The experiment.
        policy: The section `policy`.
        address: Address on which the allocator listens.
        recording: File for the recording of events.
        store: File in which the allocator stores commitments.
    """
    return tomli_w.dumps(
        {
            **allocation_settings(experiment),
            "policy": policy,
            "listen": {"address": address, "virtual_clocks": True},
            "metrics": {"address": "127.0.0.1:0"},
            "recorder": {"file": str(recording.resolve()), "every": 1.0},
            "store": {"path": str(store.resolve())},
            "accounting": {"database": "none"},  # an experiment needs no accounts
        }
    )


def _prepare(
    experiment: Experiment, settings: ExperimentSettings, children: Children, address: str
) -> list[tuple[float, Child]]:
    """Start the processes of all users' frameworks, which wait until they are released.

    Args:
        experiment: The experiment.
        settings: Options of the run.
        children: Receives the processes.
        address: HOST:PORT of the master.

    Returns:
        (start time in seconds, process) of each framework, in order of time.
    """
    prepared = []
    for number, (arrival, user) in enumerate(_arrivals(experiment)):
        tasks = experiment.tasks_of(user)
        child = children.start(
            f"framework-{user.name}",
            "framework",
            f"--name={user.name}",
            f"--role={user.name}",
            f"--master={address}",
            f"--demand={tasks.demand}",
            *(["--declare"] if experiment.counts_tasks else []),
            f"--run-time={tasks.run_time}",
            f"--jitter={tasks.jitter}",
            *([f"--tasks={tasks.count}"] if tasks.count is not None else []),
            *([f"--whitelist={','.join(hosts)}"] if (hosts := experiment.whitelist(user)) else []),
            f"--seed={settings.seed * 1000 + number}",
            "--wait",
            waits=True,
            ends=tasks.count is not None,
        )
        prepared.append((arrival, child))
    for _, child in prepared:
        child.await_line(r"(waiting)", STARTUP_TIMEOUT_S)
    return prepared


def _arrivals(experiment: Experiment) -> list[tuple[float, UserSpec]]:
    """Return (start time in seconds, user) for each user, in order of time."""
    ordered = sorted(experiment.users, key=lambda user: user.start)
    return [(user.start + number * ARRIVAL_SPACING_S, user) for number, user in enumerate(ordered)]


def _begin(experiment: Experiment, observer: Observer, *, embedded: bool) -> float:
    """Choose when the experiment starts. Return the start as the master's uptime in seconds.

    All frameworks are announced to an embedded master, with the times at which they subscribe. If
    a framework is late, the master's clock stops until it subscribes. A busy machine therefore does
    not change the result.

    Args:
        experiment: The experiment.
        observer: Observer of the master.
        embedded: True if the master is embedded.
    """
    arrivals = _arrivals(experiment) if embedded else []
    for arrival, user in arrivals:
        if arrival == 0.0:  # time stops here until the framework subscribes
            observer.expect(user.name, 0.0)
    start = observer.glance().uptime
    for arrival, user in arrivals:
        if arrival > 0.0:
            observer.expect(user.name, start + arrival)
    return start


def _conduct(  # noqa: PLR0913 - the experiment's processes, and callbacks
    experiment: Experiment,
    observer: Observer,
    frameworks: list[tuple[float, Child]],
    children: Children,
    watch: Callable[[float, Phase, dict[str, float]], None],
    *,
    start: float,
) -> Measurement:
    """Release each framework at its start time, and measure until the experiment ends.

    Args:
        experiment: The experiment.
        observer: Observer of the master.
        frameworks: (start time in seconds, waiting process) of each framework.
        children: All processes; an unexpected end of any is an error.
        watch: Progress callback: receives the elapsed seconds, the phase, and the cores by user.
        start: The master's uptime at the start, in seconds.

    Raises:
        TimeoutError: At the end, some users with a limited number of tasks have not finished.
    """
    names = [user.name for user in experiment.users]
    measured = Measurement(running={name: {} for name in names})
    waiting = list(frameworks)
    while True:
        glance: MasterSample = observer.glance()
        while waiting and glance.uptime + RELEASE_LEAD_S >= start + waiting[0][0]:
            waiting.pop(0)[1].release()
        children.check()
        elapsed = glance.uptime - start
        held = {name: glance.cpus.get(name, 0.0) for name in names}
        for name, cpus in held.items():
            measured.running[name][elapsed] = cpus
        if experiment.finite and all(child.ended for _, child in frameworks):
            return measured
        if elapsed >= experiment.duration:
            late = _unfinished(experiment, observer.finished(start)) if experiment.finite else []
            if late:
                raise TimeoutError(f"not finished after {elapsed:.0f} s: {', '.join(late)}")
            return measured  # some frameworks' processes may still be running
        phase = next(p for p in reversed(experiment.phases) if p.start <= max(elapsed, 0.0))
        watch(elapsed, phase, held)
        upcoming = waiting[0][0] if waiting else experiment.duration
        time.sleep(min(max(observer.until(start + upcoming), 0.0), POLL_INTERVAL_S))


def _unfinished(experiment: Experiment, finished: Mapping[str, list[float]]) -> list[str]:
    """Return the process names of users that have not finished all their tasks.

    Args:
        experiment: The experiment.
        finished: End times of finished tasks, by framework name.
    """
    return [
        f"framework-{user.name}"
        for _, user in _arrivals(experiment)
        if len(finished.get(user.name, ())) < (experiment.tasks_of(user).count or 0)
    ]


def _completions(experiment: Experiment, finished: Mapping[str, list[float]]) -> dict[str, float]:
    """Return, by user, the seconds from the user's start to its last task's end.

    Args:
        experiment: The experiment.
        finished: End times of finished tasks, by framework name.
    """
    return {user.name: max(finished[user.name]) - at for at, user in _arrivals(experiment)}
