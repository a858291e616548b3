"""ACCEPT: tasks out of offers."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Bag, upgraded
from frameworks.local_mesos.state import (
    TERMINAL,
    Capability,
    Executor,
    Framework,
    Offer,
    Task,
    allocated,
)

if TYPE_CHECKING:
    from frameworks.local_mesos.master import Master


class Launcher:
    """Validates and starts tasks on virtual agents.

    Args:
        master: Whose agents these are.
        task_seconds: How long a task runs whose command is not `sleep N`.
    """

    def __init__(self, master: "Master", task_seconds: float) -> None:
        self._master = master
        self._task_seconds = task_seconds

    def launch(
        self, framework: Framework, offers: list[Offer], operations: Iterable[v1.Offer.Operation]
    ) -> Bag:
        """Carry out the operations of a valid ACCEPT; return what is left of the offers."""
        agent, role = offers[0].agent, offers[0].role
        left = Bag(resource for offer in offers for resource in offer.resources)
        for operation in operations:
            if operation.type != v1.Offer.Operation.LAUNCH:
                self._unsupported(framework, operation)
                continue
            for info in operation.launch.task_infos:
                try:
                    task, executor = self._task(framework, agent, role, info, left)
                except ValueError as error:
                    self._refuse(framework, info, str(error))
                    continue
                left.remove(task.resources)
                if executor is not None:
                    left.remove(executor.resources)
                    framework.executors[agent, executor.id] = executor
                self._start(framework, task)
        return left

    def drop(
        self, framework: Framework, operations: Iterable[v1.Offer.Operation], complaint: str
    ) -> None:
        """Give up the operations of an invalid ACCEPT."""
        partition_aware = framework.capable(Capability.PARTITION_AWARE)
        for operation in operations:
            for info in (*operation.launch.task_infos, *operation.launch_group.task_group.tasks):
                self._master.counters["tasks_dropped"] += 1
                self._master.tell_status(
                    framework,
                    v1.TaskStatus(
                        task_id=info.task_id,
                        state=v1.TASK_DROPPED if partition_aware else v1.TASK_LOST,
                        agent_id=info.agent_id,
                        reason=v1.TaskStatus.REASON_INVALID_OFFERS,
                        message=f"Task launched with invalid offers: {complaint}",
                    ),
                )

    def _task(
        self, framework: Framework, agent: str, role: str, info: v1.TaskInfo, left: Bag
    ) -> tuple[Task, Executor | None]:
        """Make a task, and its executor if that is new.

        Raises:
            ValueError: Mesos would refuse it; the message says why.
        """
        name = info.task_id.value
        if not name or "/" in name or name in {".", ".."}:
            raise ValueError(f"'{name}' is not a valid task id")
        if name in framework.tasks:
            raise ValueError(f"Task has duplicate ID: {name}")
        if info.agent_id.value != agent:
            raise ValueError(f"Task uses invalid agent {info.agent_id.value}, not {agent}")
        if info.HasField("executor") == info.HasField("command"):
            raise ValueError("Task should have at least one (but not both) of command or executor")
        if not info.resources:
            raise ValueError("Task uses no resources")
        resources = allocated(map(upgraded, info.resources), role)
        wanted = Bag(resources)
        executor = None
        if info.HasField("executor"):
            key = (agent, info.executor.executor_id.value)
            if key not in framework.executors:
                executor = Executor(
                    key[1],
                    framework.id,
                    agent,
                    role,
                    allocated(map(upgraded, info.executor.resources), role),
                )
                wanted.add(executor.resources)
        if not left.contains(wanted):
            raise ValueError(f"Task uses more resources ({wanted}) than available ({left})")
        task = Task(
            info=info,
            framework=framework.id,
            agent=agent,
            role=role,
            resources=resources,
            executor=info.executor.executor_id.value if info.HasField("executor") else None,
        )
        return task, executor

    def _start(self, framework: Framework, task: Task) -> None:
        framework.tasks[task.id] = task
        self._master.counters["tasks_launched"] += 1
        updates = self._master.updates
        if task.executor is None:  # the command executor says so, a custom one need not
            updates.add(framework, task, v1.TASK_STARTING)
        updates.add(framework, task, v1.TASK_RUNNING)
        task.end = self._master.clock.after(
            _run_time(task.info, self._task_seconds), lambda: self._finish(framework, task)
        )

    def _finish(self, framework: Framework, task: Task) -> None:
        if task.state not in TERMINAL:
            self._master.updates.add(framework, task, v1.TASK_FINISHED)

    def _refuse(self, framework: Framework, info: v1.TaskInfo, complaint: str) -> None:
        self._master.counters["tasks_error"] += 1
        self._master.tell_status(
            framework,
            v1.TaskStatus(
                task_id=info.task_id,
                state=v1.TASK_ERROR,
                agent_id=info.agent_id,
                reason=v1.TaskStatus.REASON_TASK_INVALID,
                message=complaint,
            ),
        )

    def _unsupported(self, framework: Framework, operation: v1.Offer.Operation) -> None:
        name = v1.Offer.Operation.Type.Name(operation.type)
        complaint = f"{name} is not supported by the embedded Mesos"
        for info in operation.launch_group.task_group.tasks:
            self._refuse(framework, info, complaint)
        if operation.HasField("id"):
            framework.send(
                v1.Event(
                    type=v1.Event.UPDATE_OPERATION_STATUS,
                    update_operation_status=v1.Event.UpdateOperationStatus(
                        status=v1.OperationStatus(
                            operation_id=operation.id,
                            state=v1.OperationStatus.OPERATION_ERROR,
                            message=complaint,
                        )
                    ),
                )
            )


def _run_time(info: v1.TaskInfo, otherwise: float) -> float:
    """Return how long the task's command takes: `sleep N` is N seconds."""
    command = info.command
    text = command.value if command.shell else " ".join(command.arguments)
    match = re.fullmatch(r"\s*(?:exec\s+)?sleep\s+(\d+(?:\.\d+)?)\s*", text)
    return float(match[1]) if match else otherwise
