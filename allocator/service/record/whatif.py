"""Estimate of how another policy would have treated the tasks of an event log.

The recorded frameworks answered the recorded offers, so the result is a model:

* Each user has the tasks that it ran, with their recorded durations.
* A task is ready from the time at which its framework began to accept all offers.
* All agents are treated as one machine.
* When resources are free, the user that the policy ranks first starts its next task. A user
  whose task does not fit is skipped.

The recorded policy is modelled, too, to show the error of the model itself.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

from allocator.cluster.settings import EngineSettings
from allocator.fairness.plugin_sandbox import require_success
from allocator.fairness.policies import Policy
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.service.record.history import History, RecordedTask


@dataclass(slots=True)
class UserOutcome:
    """Result for one user, such as share and waiting time: as recorded, or as simulated."""

    tasks: int = 0
    share: float = 0.0
    """Mean dominant share over the log's time, between 0 and 1."""
    wait: float = 0.0
    """Mean seconds from ready to start, over all tasks. Tasks that never start wait until the log's
    end."""
    cpu_seconds: float = 0.0
    """CPUs held × seconds, within the log's time."""
    commitment: float = 0.0
    """Dominant commitment at the log's end."""


@dataclass(slots=True)
class _Queue:
    """One user's waiting tasks and sums over its started tasks, recorded or simulated."""

    tasks: deque[RecordedTask] = field(default_factory=deque)
    """Tasks of the user that are ready, but have not started."""
    started: int = 0
    waited: float = 0.0
    """Total waiting time of the started tasks, in seconds."""
    held: dict[str, float] = field(default_factory=dict)
    """Integral of the held resources over time, by resource: thousandths of Mesos's unit × seconds.
    """


def recorded(history: History) -> dict[str, UserOutcome]:
    """Return each user's recorded result, such as share, waiting time and commitment.

    It is compared with the result of `modelled`.
    """
    queues: dict[str, _Queue] = {}
    for task in history.tasks:
        _record_start(queues.setdefault(task.user, _Queue()), task, task.start, task.end)
    return _fates(history, queues, history.commitments)


def modelled(history: History, settings: EngineSettings, policy: Policy) -> dict[str, UserOutcome]:
    """Simulate the recorded tasks under a policy, and return each user's result.

    Cost: O((n log n)·m) for n tasks and m resources, times the number of users whose next task does
    not fit.

    Args:
        history: The reconstructed history of a log.
        settings: The recorded settings, for users that they declare.
        policy: The policy to model.

    Raises:
        PolicyFailedError: the policy's code raised an error, so the simulated ranking is invalid.
    """
    fates = _Model(history, settings, policy).run()
    require_success(policy)
    return fates


class _Model:
    """Simulation of the recorded tasks under a given policy, with the cluster as one machine."""

    def __init__(self, history: History, settings: EngineSettings, policy: Policy) -> None:
        self._history = history
        self._pool: Pool[str] = Pool(policy, now=history.begin, excluded=history.excluded)
        self._capacity = self._held = Quantities()
        self._queues: dict[str, _Queue] = {}
        self._ends: list[tuple[float, int, str, Quantities]] = []
        """Heap of running tasks: end, serial number, user and demand."""
        self._serial = 0
        declared = (user.name for user in settings.users)
        for name in dict.fromkeys([*declared, *(task.user for task in history.tasks)]):
            self._pool.add(name, weight=history.weights.get(name, 1.0))
            commitments, others = history.debts.get(name, ({}, 0.0))
            self._pool.set_commitment(name, commitments, others=others)
            self._queues[name] = _Queue()

    def run(self) -> dict[str, UserOutcome]:
        """Run the simulation from the log's beginning to its end, and return each user's result."""
        ready = deque(sorted(self._history.tasks, key=lambda task: (task.ready, task.start)))
        capacities = deque(self._history.capacities)
        while ready or self._ends or capacities:
            instants = [when for when, *_ in self._ends[:1]]
            instants += [ready[0].ready] if ready else []
            instants += [capacities[0][0]] if capacities else []
            now = min(instants)
            if now > self._history.end:
                break
            self._pool.advance(now)
            while capacities and capacities[0][0] <= now:
                self._set_capacity(capacities.popleft()[1])
            while self._ends and self._ends[0][0] <= now:
                _, _, user, demand = heapq.heappop(self._ends)
                self._pool.release(user, demand)
                self._held = self._held - demand
            while ready and ready[0].ready <= now:
                task = ready.popleft()
                self._queues[task.user].tasks.append(task)
            self._start_fitting(now)
        self._pool.advance(self._history.end)
        commitments = {name: self._pool.standing(name).commitment for name in self._queues}
        return _fates(self._history, self._queues, commitments)

    def _set_capacity(self, capacity: Quantities) -> None:
        self._capacity = capacity
        self._pool.set_capacity(capacity)

    def _start_fitting(self, now: float) -> None:
        """Start tasks until no user's next task fits: always that of the user that ranks first.

        A user whose next task does not fit into the free resources is skipped.

        Args:
            now: Present time of the simulation, in seconds since the epoch.
        """
        for name, queue in self._queues.items():
            self._pool.set_active(name, bool(queue.tasks))
        while self._pool.active:
            user = self._pool.minimum()
            queue = self._queues[user]
            task = queue.tasks[0]
            if not self._capacity.contains(self._held + task.demand):
                self._pool.set_active(user, False)
                continue
            queue.tasks.popleft()
            self._pool.allocate(user, task.demand)
            self._held = self._held + task.demand
            end = now + (task.end - task.start)
            self._serial += 1
            heapq.heappush(self._ends, (end, self._serial, user, task.demand))
            _record_start(queue, task, now, min(end, self._history.end))
            if not queue.tasks:
                self._pool.set_active(user, False)


def _record_start(queue: _Queue, task: RecordedTask, start: float, end: float) -> None:
    """Add a started task's waiting time, and its resources × time, to its user's sums.

    Args:
        queue: The user's waiting tasks and sums.
        task: The task.
        start: Start of the task, in seconds.
        end: End of the task or of the log, in seconds.
    """
    queue.started += 1
    queue.waited += start - task.ready
    for name, amount in task.demand.items():
        queue.held[name] = queue.held.get(name, 0.0) + amount * (end - start)


def _fates(
    history: History, queues: dict[str, _Queue], commitments: dict[str, float]
) -> dict[str, UserOutcome]:
    """Return each user's outcome from its sums: share, mean waiting time, CPU time and so on.

    Args:
        history: The history of the log.
        queues: Sums and waiting tasks of each user at the log's end.
        commitments: Dominant commitment of each user at the log's end.
    """
    supplied: dict[str, float] = {}
    for number, (since, capacity) in enumerate(history.capacities):
        following = history.capacities[number + 1 : number + 2]
        until = following[0][0] if following else history.end
        for name, amount in capacity.items():
            supplied[name] = supplied.get(name, 0.0) + amount * (until - since)
    fates = {}
    for user, queue in sorted(queues.items()):
        tasks = queue.started + len(queue.tasks)
        total_wait = queue.waited + sum(history.end - task.ready for task in queue.tasks)
        fates[user] = UserOutcome(
            tasks=tasks,
            share=max(
                (held / supplied[name] for name, held in queue.held.items() if supplied.get(name)),
                default=0.0,
            ),
            wait=total_wait / tasks if tasks else 0.0,
            cpu_seconds=queue.held.get("cpus", 0.0) / 1000,
            commitment=commitments.get(user, 0.0),
        )
    return fates
