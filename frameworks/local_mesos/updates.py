"""Status updates: one at a time for each task, sent again until the scheduler says it has it.

This is the agents' task status update manager and what the master makes of what it forwards.
"""

import uuid
from collections.abc import Callable
from random import Random

from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.clock import Clock
from frameworks.local_mesos.state import TERMINAL, Framework, Task

FIRST_RESEND = 10.0
"""Seconds, doubled each time …"""
LAST_RESEND = 600.0
"""… up to this."""


class Updates:
    """The update streams of all tasks.

    Args:
        clock: The master's time.
        random: Of the updates' ids.
        on_terminal: Told, once, when the master hears that a task has ended.
    """

    def __init__(
        self, clock: Clock, random: Random, on_terminal: Callable[[Framework, Task], None]
    ) -> None:
        self._clock = clock
        self._random = random
        self._on_terminal = on_terminal

    def add(
        self,
        framework: Framework,
        task: Task,
        state: "v1.TaskState.ValueType",
        *,
        reason: "v1.TaskStatus.Reason.ValueType | None" = None,
        message: str | None = None,
    ) -> None:
        """Have the task's agent report a state."""
        status = v1.TaskStatus(
            task_id=task.info.task_id,
            state=state,
            source=v1.TaskStatus.SOURCE_EXECUTOR,
            agent_id=task.info.agent_id,
            executor_id=v1.ExecutorID(value=task.executor or task.id),
            timestamp=self._clock.now,
            uuid=uuid.UUID(int=self._random.getrandbits(128), version=4).bytes,
        )
        if reason is not None:
            status.reason = reason
        if message is not None:
            status.message = message
        task.updates.append(status)
        if len(task.updates) == 1:
            self._forward(framework, task, FIRST_RESEND)

    def acknowledge(self, framework: Framework, task: Task, update: bytes) -> None:
        """Take the scheduler's word that it has an update; late repetitions are passed over."""
        if not task.updates or task.updates[0].uuid != update:
            return
        done = task.updates.popleft()
        if task.resend is not None:
            task.resend.cancel()
            task.resend = None
        if task.updates:
            self._forward(framework, task, FIRST_RESEND)
        elif done.state in TERMINAL:
            framework.completed.append(framework.tasks.pop(task.id))

    def flush(self, framework: Framework) -> None:
        """Send at once what is pending: the scheduler is back."""
        for task in list(framework.tasks.values()):
            if task.updates:
                if task.resend is not None:
                    task.resend.cancel()
                self._forward(framework, task, FIRST_RESEND)

    def stop(self, task: Task) -> None:
        """Forget what is pending: the task's agent or framework is gone."""
        task.updates.clear()
        for timer in (task.resend, task.end):
            if timer is not None:
                timer.cancel()

    def _forward(self, framework: Framework, task: Task, wait: float) -> None:
        """Let the master hear of the oldest update, and through it of the latest state."""
        task.state = task.updates[-1].state
        if task.state in TERMINAL and task.held:
            self._on_terminal(framework, task)
        framework.send(
            v1.Event(type=v1.Event.UPDATE, update=v1.Event.Update(status=task.updates[0]))
        )
        task.resend = self._clock.after(
            wait, lambda: self._forward(framework, task, min(2 * wait, LAST_RESEND))
        )
