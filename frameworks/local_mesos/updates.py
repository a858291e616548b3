"""Sends status updates of tasks: one at a time per task, repeated until acknowledged.

This module combines three parts of Mesos: the agents' task status update manager, the master's
handling of forwarded updates, and the master's own updates. The master sends its own updates once.
"""

import uuid
from collections.abc import Iterable
from random import Random

from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.books import MasterState
from frameworks.local_mesos.state import TERMINAL, EmbeddedFramework, EmbeddedTask

FIRST_RESEND = 10.0
"""First delay in seconds before an unacknowledged update is sent again; doubled each time."""
LAST_RESEND = 600.0
"""Longest delay in seconds before an unacknowledged update is sent again."""

_CONTAINER = v1.ContainerStatus(
    network_infos=[v1.NetworkInfo(ip_addresses=[v1.NetworkInfo.IPAddress(ip_address="127.0.0.1")])]
)


class StatusUpdates:
    """Queues each task's status updates, and sends them in order to its scheduler.

    Args:
        books: The master's state.
        random: Random generator for ids of updates.
    """

    def __init__(self, books: MasterState, random: Random) -> None:
        self._books = books
        self._random = random

    def add(
        self,
        framework: EmbeddedFramework,
        task: EmbeddedTask,
        state: v1.TaskState.ValueType,
        *,
        reason: v1.TaskStatus.Reason.ValueType | None = None,
        message: str | None = None,
    ) -> None:
        """Queue an update with a task's new state, as the task's agent would.

        Args:
            framework: The framework of the task.
            task: The task.
            state: The new state.
            reason: Mesos's reason code for the state, or None.
            message: Explanation for people, or None.
        """
        status = v1.TaskStatus(
            task_id=task.info.task_id,
            state=state,
            source=v1.TaskStatus.SOURCE_EXECUTOR,
            reason=reason,
            message=message,
            agent_id=task.info.agent_id,
            executor_id=v1.ExecutorID(value=task.executor or task.id),
            timestamp=self._books.clock.now,
            uuid=uuid.UUID(int=self._random.getrandbits(128), version=4).bytes,
            container_status=_CONTAINER,
        )
        task.ended |= state in TERMINAL
        task.updates.append(status)
        if len(task.updates) == 1:
            self._forward(framework, task, FIRST_RESEND)

    def tell(self, framework: EmbeddedFramework, status: v1.TaskStatus) -> None:
        """Send an update that comes from the master itself, not from an agent.

        It is sent once and needs no acknowledgement.
        """
        status.source = v1.TaskStatus.SOURCE_MASTER
        status.timestamp = self._books.clock.now
        framework.send(v1.Event(type=v1.Event.UPDATE, update=v1.Event.Update(status=status)))

    def acknowledge(self, framework: EmbeddedFramework, task: EmbeddedTask, update: bytes) -> None:
        """Handle an ACKNOWLEDGE call, and send the task's next update. Repeated calls are ignored.

        Args:
            framework: The framework that acknowledges.
            task: The task.
            update: Id (uuid) of the acknowledged update.
        """
        if not task.updates or task.updates[0].uuid != update:
            return
        acknowledged = task.updates.popleft()
        self._pause(task)
        if task.updates:
            self._forward(framework, task, FIRST_RESEND)
        elif acknowledged.state in TERMINAL:
            framework.completed.append(framework.tasks.pop(task.id))

    def resume(self, framework: EmbeddedFramework, tasks: Iterable[EmbeddedTask]) -> None:
        """Send each task's oldest pending update again at once.

        Called after the scheduler or the task's agent has reconnected.
        """
        for task in list(tasks):
            if task.updates:
                self._pause(task)
                self._forward(framework, task, FIRST_RESEND)

    def stop(self, task: EmbeddedTask) -> None:
        """Discard a task's pending updates, because its agent or framework is gone."""
        self._pause(task)
        task.updates.clear()

    def end(
        self,
        framework: EmbeddedFramework,
        task: EmbeddedTask,
        state: v1.TaskState.ValueType | None = None,
    ) -> None:
        """Record in the master that a task has ended, and report its resources as recovered.

        If this was recorded before, nothing is reported.

        Args:
            framework: The framework of the task.
            task: The task.
            state: Terminal state to give to a task that has none yet; None keeps the task's state.
        """
        if state is not None and task.state not in TERMINAL:
            task.state = state
        if task.held:
            task.held = False
            name = v1.TaskState.Name(task.state).removeprefix("TASK_").lower()
            self._books.counters[f"tasks_{name}"] += 1
            self._books.recover(framework.id, task.agent, task.role, task.resources)

    def _pause(self, task: EmbeddedTask) -> None:
        if task.resend is not None:
            task.resend.cancel()
            task.resend = None

    def _forward(self, framework: EmbeddedFramework, task: EmbeddedTask, wait: float) -> None:
        """Send a task's oldest pending update to the scheduler, with the task's latest state.

        Args:
            framework: The framework of the task.
            task: The task.
            wait: Seconds before the update is sent again if it is not acknowledged.
        """
        if not self._books.agents[task.agent].active:
            return  # until the agent is connected again
        self._books.counters["messages_status_update"] += 1
        if framework.connected:
            task.reported = task.updates[0].state
        framework.send(
            v1.Event(type=v1.Event.UPDATE, update=v1.Event.Update(status=task.updates[0]))
        )
        if not task.statuses or task.statuses[-1] is not task.updates[0]:
            task.statuses.append(task.updates[0])
        task.state = task.updates[-1].state
        if task.state in TERMINAL:
            self.end(framework, task)
        task.resend = self._books.clock.after(
            wait, lambda: self._forward(framework, task, min(2 * wait, LAST_RESEND))
        )
