"""Runs an experiment: starts what it needs, watches, stops it all, and writes what came of it."""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from allocator.fairness.plugin_sandbox import PolicyFailedError
from frameworks.experiment import Experiment, Phase, UserSpec
from frameworks.harness import real_mesos
from frameworks.harness.figure import draw, draw_shares
from frameworks.harness.film import EVENTS
from frameworks.harness.measurement import Measurement, read_recorder, write_table
from frameworks.harness.observer import Glance, Observer, policy_failures
from frameworks.harness.processes import Child, ChildFailed, Children
from frameworks.harness.real_mesos import MesosHome
from frameworks.harness.verdict import Verdict, expectation, expected_cpus, judge

PATIENCE = 30.0
"""Wall seconds for a part to come up."""
APART = 0.01
"""Seconds between frameworks that come at the same time, so that they come in the same order in
every run."""
SOON = 0.001
"""Seconds before its time that a framework is released: the master, whose time stands still until
it comes, may mean an instant that is a rounding before ours."""
GLANCES = 0.15
"""Wall seconds between looks at the master."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an experiment is."""

    elapsed: float
    """Of the master's seconds since the start."""
    phase: Phase
    cpus: dict[str, float]
    """Cores that running tasks hold, by user."""
    allocator: "Whereabouts | None"
    """None: the allocator is not ours."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where an allocator that has been started for an experiment can be asked meanwhile."""

    page: str
    """URL of its status page."""
    address: str
    """For `longshare shares` and its like."""


@dataclass(frozen=True, slots=True)
class ExperimentSettings:
    """How to run an experiment."""

    speed: float
    seed: int
    out: Path
    master: str | None = None
    """HOST:PORT of a master that is there already; None: an embedded one."""
    mesos_home: Path | None = None
    """A folder with a real Mesos to start instead of an embedded one."""
    record: Path | None = None
    """Where the allocator service is to log every event and decision; None: `EVENTS` in `out`."""
    policy_file: Path | None = None
    """Where the policy is defined, if it does not come with Longshare."""


def run(
    experiment: Experiment, settings: ExperimentSettings, watch: Callable[[Progress], None]
) -> Verdict:
    """Run an experiment and write its results.

    Raises:
        ChildFailed: a part ended before its time.
        TimeoutError: a part did not come up.
        OSError: the results cannot be written, a master did not answer, or a folder for Mesos
            lacks something.
        PolicyFailedError: the policy failed, so the allocations are not the policy's.
    """
    logs = settings.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    recording = settings.out / "recorder.csv"
    with (
        Children(logs) as children,
        _master(experiment, settings, children, recording) as (address, allocator),
    ):
        observer = Observer(address)
        observer.wait_for(PATIENCE)
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
        began = observer.started() + start
        if experiment.finite:
            measured.completions = _completions(experiment, observer.finished(start))
        if allocator is not None and (times := policy_failures(allocator.page)):
            name = str(experiment.policy["name"])
            raise PolicyFailedError(name, times, f"{times} failures; see {logs / 'allocator.log'}")
    measured.cpus = measured.running
    if settings.master is None:
        recorded = read_recorder(recording, began, began + experiment.duration)
        measured.cpus, measured.commitments = recorded.cpus, recorded.commitments
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


@contextmanager
def _master(
    experiment: Experiment, settings: ExperimentSettings, children: Children, recording: Path
) -> Iterator[tuple[str, Whereabouts | None]]:
    """Provide a master: the one that is there, or an embedded one with its allocator."""
    if settings.master is not None:
        yield settings.master, None
        return
    with tempfile.TemporaryDirectory(prefix="longshare-") as folder:
        allocator = f"unix://{folder}/allocator.sock"
        config = settings.out / "longshare.toml"
        store = settings.out / "commitments.sqlite"
        store.unlink(missing_ok=True)  # users start with what the experiment says they owe
        policy = _policy(experiment, settings.policy_file, Path(folder))
        config.write_text(
            _configuration(experiment, policy, allocator, recording, store), encoding="utf-8"
        )
        record = f"--record={settings.record or settings.out / EVENTS}"
        service = children.start("allocator", "serve", "--config", str(config), record)
        logs = settings.out / "logs"
        try:
            page = _await_line(service, logs / "allocator.log", r"(http://\S+/)metrics")
        except ChildFailed as error:
            if "cannot be served" not in str(error):  # as the service says of a policy
                raise
            name = str(experiment.policy["name"])
            raise PolicyFailedError(name, 1, str(error)) from error
        whereabouts = Whereabouts(page, allocator)
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
        said = _await_line(master, logs / "mesos.log", r"Mesos master on (\S+)")
        yield said, whereabouts


def allocation_settings(experiment: Experiment) -> dict[str, Any]:
    """Return what an experiment asks of an allocator: `policy`, `users`, and perhaps `offers`."""
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


def _policy(experiment: Experiment, file: Path | None, folder: Path) -> dict[str, Any]:
    """Return the section `policy`; a policy's file is copied to where only we can write."""
    if file is None:
        return experiment.policy
    copy = folder.resolve() / file.name
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o600)
    return {**experiment.policy, "file": str(copy)}


def _configuration(
    experiment: Experiment, policy: dict[str, Any], address: str, recording: Path, store: Path
) -> str:
    """Write the allocator's configuration for an experiment."""
    return tomli_w.dumps(
        {
            **allocation_settings(experiment),
            "policy": policy,
            "listen": {"address": address, "virtual_clocks": True},
            "metrics": {"address": "127.0.0.1:0"},
            "recorder": {"file": str(recording.resolve()), "every": 1.0},
            "store": {"path": str(store.resolve())},
            "accounting": {"database": "none"},  # of what nobody is going to be charged for
        }
    )


def _prepare(
    experiment: Experiment, settings: ExperimentSettings, children: Children, address: str
) -> list[tuple[float, Child]]:
    """Start all frameworks up to the point where they wait for their time."""
    prepared = []
    for number, (at, user) in enumerate(_arrivals(experiment)):
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
        prepared.append((at, child))
    for _, child in prepared:
        _await_line(child, settings.out / "logs" / f"{child.name}.log", r"(waiting)")
    return prepared


def _arrivals(experiment: Experiment) -> list[tuple[float, UserSpec]]:
    """Return the users in the order in which they come, each with its second."""
    ordered = sorted(experiment.users, key=lambda user: user.start)
    return [(user.start + number * APART, user) for number, user in enumerate(ordered)]


def _begin(experiment: Experiment, observer: Observer, *, embedded: bool) -> float:
    """Return when by the master's time it begins.

    An embedded master awaits each framework, so that none comes late on a crowded machine.
    """
    arrivals = _arrivals(experiment) if embedded else []
    for at, user in arrivals:
        if at == 0.0:  # time waits from here on, until it is there
            observer.expect(user.name, 0.0)
    start = observer.glance().uptime
    for at, user in arrivals:
        if at > 0.0:
            observer.expect(user.name, start + at)
    return start


def _conduct(  # noqa: PLR0913 - what is looked at, and how
    experiment: Experiment,
    observer: Observer,
    frameworks: list[tuple[float, Child]],
    children: Children,
    watch: Callable[[float, Phase, dict[str, float]], None],
    *,
    start: float,
) -> Measurement:
    """Release each framework at its time, and look on until the end.

    Raises:
        TimeoutError: users that were to finish have not.
    """
    names = [user.name for user in experiment.users]
    measured = Measurement(running={name: {} for name in names})
    waiting = list(frameworks)
    while True:
        glance: Glance = observer.glance()
        while waiting and glance.uptime + SOON >= start + waiting[0][0]:
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
            return measured  # some may have yet to leave, which is up to their processes
        phase = next(p for p in reversed(experiment.phases) if p.start <= max(elapsed, 0.0))
        watch(elapsed, phase, held)
        upcoming = waiting[0][0] if waiting else experiment.duration
        time.sleep(min(max(observer.until(start + upcoming), 0.0), GLANCES))


def _unfinished(experiment: Experiment, finished: Mapping[str, list[float]]) -> list[str]:
    """Return the names of the children whose user's tasks have not all finished."""
    return [
        f"framework-{user.name}"
        for _, user in _arrivals(experiment)
        if len(finished.get(user.name, ())) < (experiment.tasks_of(user).count or 0)
    ]


def _completions(experiment: Experiment, finished: Mapping[str, list[float]]) -> dict[str, float]:
    """Return how many seconds each user took from its start to the end of its last task."""
    return {user.name: max(finished[user.name]) - at for at, user in _arrivals(experiment)}


def _await_line(child: Child, log: Path, pattern: str) -> str:
    """Wait until a child says something, and return what the pattern's group matches.

    Raises:
        ChildFailed: it ended instead.
        TimeoutError: it has not said so in time.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text(errors="replace"))
        if match is not None:
            return match[1]
        child.check()
        time.sleep(0.02)
    raise TimeoutError(f"{child.name} did not come up within {PATIENCE:g} s; see {log}")
