"""The test framework: a pymesos scheduler that launches tasks of one kind as one user.

Its tasks are `sleep SECONDS`, so it runs unchanged on an embedded and on a real Mesos.
"""

import getpass
import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from random import Random
from typing import Any

from pymesos import MesosSchedulerDriver, Scheduler

LONG_REFUSAL = {"refuse_seconds": 3600.0}
"""What is too small for a task stays so until more is free, and then no filter applies: Mesos's
filters refuse what they name or less. Refusing for longer keeps leftovers from going round."""
ENDED = frozenset(
    {"TASK_FAILED", "TASK_LOST", "TASK_KILLED", "TASK_ERROR", "TASK_DROPPED", "TASK_GONE"}
)
"""States after which a task is launched again under another id."""

RECONCILIATION = 15.0
"""Seconds until a master that has not said what became of a task is asked again."""
_PATIENCE = 30.0
"""Seconds for a master to come up that is being started beside us."""
_PAUSE = 0.2
"""Seconds between attempts to reach it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrameworkWorkload:
    """What a framework wants to run."""

    name: str
    role: str
    demand: Mapping[str, float]
    """Of each task, by resource: cores, megabytes …"""
    run_time: float
    """Mean, in seconds."""
    jitter: float = 0.2
    """Run times vary evenly by this fraction to either side."""
    tasks: int | None = None
    """How many; None: without end."""
    seed: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the framework: how it tells the allocator of demands and constraints."""


@dataclass(slots=True)
class Plan:
    """Which tasks to launch on which offers; knows nothing of pymesos."""

    workload: FrameworkWorkload
    launched: int = 0
    """Also counts those that had to be launched again."""
    finished: int = 0
    _again: int = 0
    """Tasks that ended without having finished and have not been launched again yet."""
    _live: set[str] = field(default_factory=set)
    """Tasks of which no end has been heard: a master may tell of one more than once."""
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.workload.seed)  # noqa: S311 - run times, not secrets

    @property
    def wanted(self) -> float:
        """How many more tasks to launch now."""
        if self.workload.tasks is None:
            return float("inf")
        return self.workload.tasks - self.launched + self._again

    @property
    def live(self) -> frozenset[str]:
        """Tasks that were launched and of which no end has been heard."""
        return frozenset(self._live)

    @property
    def done(self) -> bool:
        """Whether all tasks have finished."""
        return self.workload.tasks is not None and self.finished >= self.workload.tasks

    def fill(self, offer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return as many TaskInfos as the offer holds and the workload wants."""
        free = _scalars(offer["resources"])
        tasks: list[dict[str, Any]] = []
        while self.wanted > 0 and all(
            free.get(name, 0.0) >= amount - 1e-6 for name, amount in self.workload.demand.items()
        ):
            for name, amount in self.workload.demand.items():
                free[name] -= amount
            tasks.append(self._task(offer["agent_id"]))
        return tasks

    def ended(self, task: str, state: str) -> None:
        """Hear of a task's state; one that ended without finishing is to be launched again."""
        if task not in self._live or state not in {"TASK_FINISHED", *ENDED}:
            return
        self._live.remove(task)
        if state == "TASK_FINISHED":
            self.finished += 1
        else:
            self._again += 1

    def _task(self, agent_id: Mapping[str, str]) -> dict[str, Any]:
        if self._again:
            self._again -= 1
        self.launched += 1
        spread = self.workload.jitter * self._random.uniform(-1.0, 1.0)
        seconds = self.workload.run_time * (1.0 + spread)
        name = f"{self.workload.name}-{self.launched}"
        self._live.add(name)
        return {
            "task_id": {"value": name},
            "name": name,
            "agent_id": agent_id,
            "command": {"value": f"sleep {seconds:.3f}"},
            "resources": [
                {"name": resource, "type": "SCALAR", "scalar": {"value": amount}}
                for resource, amount in self.workload.demand.items()
            ],
        }


def _scalars(resources: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Sum an offer's unreserved, ordinary scalars by name; others are left to others."""
    total: dict[str, float] = {}
    for resource in resources:
        reserved = resource.get("reservations") or resource.get("role", "*") != "*"
        if "scalar" in resource and not reserved and "revocable" not in resource:
            name = resource["name"]
            total[name] = total.get(name, 0.0) + resource["scalar"]["value"]
    return total


class TaskLauncher(Scheduler):  # type: ignore[misc]  # pymesos is not typed
    """Carries a plan out: the thin shell that pymesos calls, in its own thread.

    Args:
        plan: What to launch.
        stop: Set when there is nothing more to do.
    """

    def __init__(self, plan: Plan, stop: threading.Event) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._stop = stop
        self.failure: str | None = None
        """What the master said when it refused the framework."""
        self._unsure = frozenset[str]()
        """Tasks of which nothing has been heard since the framework subscribed again."""

    def reregistered(
        self,
        driver: MesosSchedulerDriver,
        masterInfo: Mapping[str, Any],  # noqa: ARG002, N803 - pymesos's names
    ) -> None:
        """Ask what became of tasks: the master may be another one, which knows none of them."""
        self.doubt()
        self.reconcile(driver)

    def doubt(self) -> None:
        """Take note that what became of tasks has to be asked."""
        with self._lock:
            self._unsure = self._plan.live

    def reconcile(self, driver: MesosSchedulerDriver) -> None:
        """Ask for the states of tasks of which nothing has been heard, if there are any.

        A master that waits for its agents to come back does not answer yet.
        """
        with self._lock:
            self._unsure &= self._plan.live
            tasks = [{"task_id": {"value": task}} for task in sorted(self._unsure)]
        if tasks:
            driver.reconcileTasks(tasks)

    def resourceOffers(  # noqa: N802 - pymesos's name
        self, driver: MesosSchedulerDriver, offers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Launch what fits; refuse the rest for long."""
        useless = []
        for offer in offers:
            with self._lock:
                tasks = self._plan.fill(offer)
            if tasks:
                driver.launchTasks(offer["id"], tasks, filters=LONG_REFUSAL)
            else:
                useless.append(offer["id"])
        if useless:
            driver.declineOffer(useless, filters=LONG_REFUSAL)
        if self._plan.wanted <= 0:
            driver.suppressOffers()

    def statusUpdate(  # noqa: N802 - pymesos's name
        self, driver: MesosSchedulerDriver, update: Mapping[str, Any]
    ) -> None:
        """Count what has finished, and ask for offers again when something has to be repeated."""
        with self._lock:
            idle = self._plan.wanted <= 0
            self._plan.ended(update["task_id"]["value"], update["state"])
            self._unsure -= {update["task_id"]["value"]}
            if self._plan.done:
                self._stop.set()
        if update["state"] in ENDED:
            _log.warning("%s: %s", update["state"], update.get("message", ""))
            if idle and self._plan.wanted > 0:
                driver.reviveOffers()

    def error(self, driver: MesosSchedulerDriver, message: str) -> None:  # noqa: ARG002
        """End: the master will not have this framework."""
        self.failure = message
        self._stop.set()


class _Driver(MesosSchedulerDriver):  # type: ignore[misc]  # pymesos is not typed
    """A driver that goes on when a master does not take a call; pymesos ends its thread then."""

    def _send(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as pymesos's
        try:
            return super()._send(*args, **kwargs)
        except (OSError, RuntimeError, HTTPException) as error:
            _log.warning("the master did not take a call: %s", str(error).partition("\n")[0])
            self.sched.doubt()
            return None


def launch(workload: FrameworkWorkload, master: str, stop: threading.Event) -> None:
    """Run a framework until its tasks have finished or `stop` is set.

    Raises:
        RuntimeError: no master is there, or it refused the framework.
    """
    plan = Plan(workload)
    scheduler = TaskLauncher(plan, stop)
    info = {
        "user": getpass.getuser(),
        "name": workload.name,
        "roles": [workload.role],
        "capabilities": [{"type": "MULTI_ROLE"}],
        "labels": {"labels": [{"key": k, "value": v} for k, v in workload.labels.items()]},
    }
    _reach(master)
    driver = _Driver(scheduler, info, master)
    driver.start()
    try:
        while not stop.wait(RECONCILIATION):
            scheduler.reconcile(driver)
    finally:
        driver.stop()
        driver.join()
    if scheduler.failure is not None:
        raise RuntimeError(f"the master at {master} refused {workload.name}: {scheduler.failure}")
    _log.info("%s: %d tasks launched, %d finished", workload.name, plan.launched, plan.finished)


def _reach(master: str) -> None:
    """Wait until somebody listens where a master is said to be; the driver would for ever.

    Raises:
        RuntimeError: nobody does.
    """
    if master.startswith("zk://"):
        return
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal():
        raise RuntimeError(f"{master!r} is not HOST:PORT of a master, nor zk://…")
    given_up = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        except OSError as error:
            if time.monotonic() < given_up:
                time.sleep(_PAUSE)
                continue
            raise RuntimeError(
                f"no Mesos master answers at {master} ({error.strerror or error}); start one with "
                "'longshare local-mesos', or say with --master where it listens"
            ) from error
        return
