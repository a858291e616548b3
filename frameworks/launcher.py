"""The test framework: a pymesos scheduler that launches identical tasks for one user.

A task is the command `sleep SECONDS`. The framework runs unchanged on an embedded Mesos, which
executes nothing, and on a real Mesos.
"""

import getpass
import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from random import Random
from typing import Any

from pymesos import MesosSchedulerDriver, Scheduler

LONG_FILTER = {"refuse_seconds": 3600.0}
"""Offer filter with which offers too small for a task are declined.

A filter of Mesos blocks only offers of at most the declined resources, so larger offers still
arrive at once. The long time keeps small leftovers from being offered again and again.
"""
ENDED = frozenset({"TASK_FAILED", "TASK_LOST", "TASK_KILLED", "TASK_DROPPED", "TASK_GONE"})
"""Task states after which the task is launched again, under a new id."""

RECONCILIATION = 15.0
"""Seconds between two requests to the master for the states of tasks."""
_CONNECT_TIMEOUT = 30.0
"""Seconds that one attempt to connect to the master may take."""
_CONNECT_INTERVAL = 0.2
"""Seconds between attempts to connect to the master."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrameworkWorkload:
    """Description of the tasks that a framework runs."""

    name: str
    role: str
    demand: Mapping[str, float]
    """Resources of one task, by name: cores, MiB and so on."""
    run_time: float
    """Mean run time of a task in seconds."""
    jitter: float = 0.2
    """Largest deviation of a run time from the mean, as a fraction.

    Run times are uniformly distributed.
    """
    tasks: int | None = None
    """Number of tasks; None sets no limit."""
    seed: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the framework, with which it declares demands and constraints to the allocator."""


@dataclass(slots=True)
class Plan:
    """Decides which tasks a test framework launches on which offers.

    The class does not need pymesos, so that tests can call it without a master.
    """

    workload: FrameworkWorkload
    launched: int = 0
    """Number of launches; a task that is launched again counts again."""
    finished: int = 0
    _to_repeat: int = 0
    """Number of tasks that ended without success and wait to be launched again."""
    _live: set[str] = field(default_factory=set)
    """Ids of launched tasks that have not ended yet.

    A master may report the same end several times; only the first counts.
    """
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.workload.seed)  # noqa: S311 - run times, not secrets

    @property
    def wanted(self) -> float:
        """Number of launches that the framework still needs; infinite if its tasks have no limit.

        Tasks that failed are launched again.
        """
        if self.workload.tasks is None:
            return float("inf")
        return self.workload.tasks - self.launched + self._to_repeat

    @property
    def live(self) -> frozenset[str]:
        """Ids of launched tasks that have not ended yet."""
        return frozenset(self._live)

    @property
    def done(self) -> bool:
        """True if all tasks have finished."""
        return self.workload.tasks is not None and self.finished >= self.workload.tasks

    def fill(self, offer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Choose the tasks to launch on an offer: as many as fit and are still needed.

        Args:
            offer: An offer as JSON.

        Returns:
            TaskInfo messages as JSON; empty if no task fits or none is needed.
        """
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
        """Record a task's new state. A task that ended without success will be launched again.

        Args:
            task: Id of the task.
            state: Mesos state, such as "TASK_FINISHED".
        """
        if task not in self._live or state not in {"TASK_FINISHED", *ENDED}:
            return
        self._live.remove(task)
        if state == "TASK_FINISHED":
            self.finished += 1
        else:
            self._to_repeat += 1

    def _task(self, agent_id: Mapping[str, str]) -> dict[str, Any]:
        if self._to_repeat:
            self._to_repeat -= 1
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
    """Sum an offer's scalar resources by name. Reserved and revocable resources are left out."""
    total: dict[str, float] = {}
    for resource in resources:
        reserved = resource.get("reservations") or resource.get("role", "*") != "*"
        if "scalar" in resource and not reserved and "revocable" not in resource:
            name = resource["name"]
            total[name] = total.get(name, 0.0) + resource["scalar"]["value"]
    return total


class TaskLauncher(Scheduler):  # type: ignore[misc]  # pymesos is not typed
    """The pymesos scheduler of a test framework. Pymesos calls its methods in a thread of its own.

    Args:
        plan: Decides which tasks are launched.
        stop: Set by the scheduler when all tasks have finished or the framework has failed.
    """

    def __init__(self, plan: Plan, stop: threading.Event) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._stop = stop
        self.failure: str | None = None
        """Error message of a master that rejected the framework; None if no master did."""
        self._unknown = frozenset[str]()
        """Ids of tasks without a status update since the framework subscribed again."""

    def registered(
        self,
        driver: MesosSchedulerDriver,  # noqa: ARG002
        frameworkId: Mapping[str, Any],  # noqa: N803 - pymesos's names
        masterInfo: Mapping[str, Any],  # noqa: ARG002, N803
    ) -> None:
        """Log the framework's ID."""
        name = self._plan.workload.name
        _log.info("%s: subscribed as framework %s", name, frameworkId["value"])

    def reregistered(
        self,
        driver: MesosSchedulerDriver,
        masterInfo: Mapping[str, Any],  # noqa: ARG002, N803 - pymesos's names
    ) -> None:
        """Ask the new master for the states of all tasks, because it may not know them."""
        self.doubt()
        self.reconcile(driver)

    def doubt(self) -> None:
        """Mark all running tasks, so that the next `reconcile` asks the master for their states."""
        with self._lock:
            self._unknown = self._plan.live

    def reconcile(self, driver: MesosSchedulerDriver) -> None:
        """Ask the master for the states of tasks whose state is unknown, if there are any.

        The call is repeated regularly, because a new master does not answer while it waits for its
        agents.
        """
        with self._lock:
            self._unknown &= self._plan.live
            tasks = [{"task_id": {"value": task}} for task in sorted(self._unknown)]
        if tasks:
            driver.reconcileTasks(tasks)

    def resourceOffers(  # noqa: N802 - pymesos's name
        self, driver: MesosSchedulerDriver, offers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Launch tasks on offers where they fit. Decline all other offers for an hour."""
        useless = []
        for offer in offers:
            with self._lock:
                is_first = not self._plan.launched
                tasks = self._plan.fill(offer)
            if tasks:
                if is_first:
                    _log.info("first %d tasks launched on %s", len(tasks), offer["hostname"])
                driver.launchTasks(offer["id"], tasks, filters=LONG_FILTER)
            else:
                useless.append(offer["id"])
        if useless:
            driver.declineOffer(useless, filters=LONG_FILTER)
        if self._plan.wanted <= 0:
            driver.suppressOffers()

    def statusUpdate(  # noqa: N802 - pymesos's name
        self, driver: MesosSchedulerDriver, update: Mapping[str, Any]
    ) -> None:
        """Record a task's state. If the task must be launched again, ask for offers (REVIVE).

        An invalid task stops the framework, because all its tasks are identical.
        """
        if update["state"] == "TASK_ERROR":
            self.error(driver, f"TASK_ERROR: {update.get('message', '')}")
            return
        with self._lock:
            idle = self._plan.wanted <= 0
            self._plan.ended(update["task_id"]["value"], update["state"])
            self._unknown -= {update["task_id"]["value"]}
            if self._plan.done:
                self._stop.set()
        if update["state"] in ENDED:
            _log.warning("%s: %s", update["state"], update.get("message", ""))
            if idle and self._plan.wanted > 0:
                driver.reviveOffers()

    def error(self, driver: MesosSchedulerDriver, message: str) -> None:  # noqa: ARG002
        """Stop the framework, because the master has rejected it or its tasks."""
        self.failure = message
        self._stop.set()


class _Driver(MesosSchedulerDriver):  # type: ignore[misc]  # pymesos is not typed
    """A pymesos driver that logs a failed call to the master and continues.

    In pymesos, the error would end the thread that makes the calls.
    """

    def _send(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - signature of pymesos
        try:
            return super()._send(*args, **kwargs)
        except (OSError, RuntimeError, HTTPException) as error:
            _log.warning("a call to the master failed: %s", str(error).partition("\n")[0])
            self.sched.doubt()
            return None


def launch(workload: FrameworkWorkload, master: str, stop: threading.Event) -> None:
    """Run a test framework until all its tasks have finished, or until `stop` is set.

    Args:
        workload: The tasks to run.
        master: HOST:PORT of the master.
        stop: Event that ends the framework.

    Raises:
        RuntimeError: The address of the master is invalid, or the master rejected the framework.
    """
    plan = Plan(workload)
    scheduler = TaskLauncher(plan, stop)
    info = {
        "user": getpass.getuser(),
        "name": workload.name,
        "roles": [workload.role],
        "capabilities": [{"type": "MULTI_ROLE"}],
        "labels": {
            "labels": [{"key": key, "value": value} for key, value in workload.labels.items()]
        },
    }
    if not _reach(master, stop):
        return
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


def _reach(master: str, stop: threading.Event) -> bool:
    """Wait until the master's port accepts connections. Return False if `stop` was set before.

    A driver of pymesos that starts before the master would log a traceback, and register without
    the capability GPU_RESOURCES.

    Raises:
        RuntimeError: The address is invalid.
    """
    if master.startswith("zk://"):
        return True
    host, _, port = master.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise RuntimeError(f"{master!r} is not an address; give HOST:PORT of a master, or zk://…")
    is_logged = False
    while not stop.is_set():
        try:
            socket.create_connection(
                (host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT
            ).close()
        except OSError as error:
            if not is_logged:
                is_logged = True
                _log.warning(
                    "waiting for a Mesos master at %s (%s); start one with 'longshare "
                    "local-mesos', or give its address with --master",
                    master,
                    error.strerror or error,
                )
            stop.wait(_CONNECT_INTERVAL)
        else:
            if is_logged:
                _log.warning("the Mesos master at %s answers", master)
            return True
    return False
