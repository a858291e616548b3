"""Status updates: one at a time for each task, sent again until the scheduler says it has it.

This is the agents' task status update manager, what the master makes of what it forwards, and
the master's own updates, which are sent once.
"""

import uuid
from collections.abc import Iterable
from random import Random

from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.books import Books
from frameworks.local_mesos.state import TERMINAL, EmbeddedFramework, EmbeddedTask

FIRST_RESEND = 10.0
"""Seconds, doubled each time …"""
LAST_RESEND = 600.0
"""… up to this."""

_CONTAINER = v1.ContainerStatus(
    network_infos=[v1.NetworkInfo(ip_addresses=[v1.NetworkInfo.IPAddress(ip_address="127.0.0.1")])]
)


class Updates:
    """The update streams of all tasks.

    Args:
        books: The master's.
        random: Of the updates' ids.
    """

    def __init__(self, books: Books, random: Random) -> None:
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
        """Have the task's agent report a state."""
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
        """Send an update of the master's own, which needs no acknowledgement."""
        status.source = v1.TaskStatus.SOURCE_MASTER
        status.timestamp = self._books.clock.now
        framework.send(v1.Event(type=v1.Event.UPDATE, update=v1.Event.Update(status=status)))

    def acknowledge(self, framework: EmbeddedFramework, task: EmbeddedTask, update: bytes) -> None:
        """Take the scheduler's word that it has an update; late repetitions are passed over."""
        if not task.updates or task.updates[0].uuid != update:
            return
        done = task.updates.popleft()
        self._pause(task)
        if task.updates:
            self._forward(framework, task, FIRST_RESEND)
        elif done.state in TERMINAL:
            framework.completed.append(framework.tasks.pop(task.id))

    def resume(self, framework: EmbeddedFramework, tasks: Iterable[EmbeddedTask]) -> None:
        """Send at once what is pending: the scheduler or the agent is back."""
        for task in list(tasks):
            if task.updates:
                self._pause(task)
                self._forward(framework, task, FIRST_RESEND)

    def stop(self, task: EmbeddedTask) -> None:
        """Forget what is pending: the task's agent or framework is gone."""
        self._pause(task)
        task.updates.clear()

    def end(
        self,
        framework: EmbeddedFramework,
        task: EmbeddedTask,
        state: v1.TaskState.ValueType | None = None,
    ) -> None:
        """Free a task's resources once, as the master hears that it has ended.

        Args:
            framework: Whose task it is.
            task: The task.
            state: What the master says it ended in, if it is not the agent who says so.
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
        """Let the master hear of the oldest update, and through it of the latest state."""
        if not self._books.agents[task.agent].active:
            return  # until it is connected again
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
