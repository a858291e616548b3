"""Runs tasks on virtual agents: nothing is executed, a task just finishes after a given time."""

import re

from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.books import MasterState
from frameworks.local_mesos.drops import log_dropped_call
from frameworks.local_mesos.state import (
    Capability,
    EmbeddedAgent,
    EmbeddedFramework,
    EmbeddedTask,
    Executor,
)
from frameworks.local_mesos.updates import StatusUpdates

_SLEEP = re.compile(r"\s*(?:exec\s+)?sleep\s+(\d+(?:\.\d+)?)\s*")


class TaskReports:
    """Starts, kills and ends tasks, and reports their states.

    Args:
        books: The master's state.
        updates: Sends status updates.
        task_seconds: Run time in seconds of a task whose command is not `sleep N`.
    """

    def __init__(self, books: MasterState, updates: StatusUpdates, task_seconds: float) -> None:
        self._books = books
        self._updates = updates
        self._task_seconds = task_seconds

    def start(self, framework: EmbeddedFramework, task: EmbeddedTask) -> None:
        """Start a task that has passed validation. Its executor, if any, must exist."""
        framework.tasks[task.id] = task
        if task.executor is None:  # Mesos's own executor reports it, a custom executor need not
            self._updates.add(framework, task, v1.TASK_STARTING)
        self._updates.add(framework, task, v1.TASK_RUNNING)
        task.end = self._books.clock.after(
            self._run_time(task.info), lambda: self._updates.add(framework, task, v1.TASK_FINISHED)
        )

    def kill(self, framework: EmbeddedFramework, call: v1.Call.Kill) -> None:
        """Handle a KILL call.

        If the master does not know the task, it reports the task's state to the scheduler, as for
        RECONCILE. A call that names an agent other than the task's is ignored.
        """
        task = framework.tasks.get(call.task_id.value)
        if task is None:
            self.report(framework, call.task_id, call.agent_id)
        elif not call.HasField("agent_id") or call.agent_id.value == task.agent:
            self._kill(framework, task)
        else:
            named_agent = call.agent_id.value
            log_dropped_call(
                framework, f"KILL of {task.id}", f"it does not run on agent {named_agent!r}"
            )

    def shut_down(self, framework: EmbeddedFramework, call: v1.Call.Shutdown) -> None:
        """Handle a SHUTDOWN call: end a custom executor. Its remaining tasks fail."""
        key = (call.agent_id.value, call.executor_id.value)
        executor = framework.executors.get(key)
        if executor is None or not self._books.agents[executor.agent].active:
            reason = "no such executor runs on an agent that is connected"
            log_dropped_call(framework, f"SHUTDOWN of {call.executor_id.value}", reason)
            return
        for task in list(framework.tasks.values()):
            if (task.agent, task.executor) == key and not task.ended:
                self._cancel(task)
                self._updates.add(
                    framework,
                    task,
                    v1.TASK_FAILED,
                    reason=v1.TaskStatus.REASON_EXECUTOR_TERMINATED,
                    message="Executor terminated",
                )
        self._remove_executor(framework, executor)
        failure = v1.Event.Failure(agent_id=call.agent_id, executor_id=call.executor_id, status=0)
        framework.send(v1.Event(type=v1.Event.FAILURE, failure=failure))

    def agent_is_back(self, agent: EmbeddedAgent) -> None:
        """Send the status updates, and carry out the kills, that were delayed by a lost connection.

        Args:
            agent: The agent that has reconnected.
        """
        for framework in list(self._books.frameworks.values()):
            tasks = [task for task in framework.tasks.values() if task.agent == agent.id]
            self._updates.resume(framework, tasks)
            for task in tasks:
                if task.kill_when_back:
                    self._kill(framework, task)

    def lose(self, agent_id: str, reason: str) -> None:
        """End all tasks and executors on a removed agent, and report the tasks as lost.

        Args:
            agent_id: Id of the agent.
            reason: Explanation for people, as the message of the status updates.
        """
        for framework in self._books.frameworks.values():
            for task in [task for task in framework.tasks.values() if task.agent == agent_id]:
                self._remove(framework, task, v1.TASK_LOST)
                self._updates.tell(
                    framework,
                    v1.TaskStatus(
                        task_id=task.info.task_id,
                        agent_id=task.info.agent_id,
                        state=v1.TASK_LOST,
                        reason=v1.TaskStatus.REASON_AGENT_REMOVED,
                        message=reason,
                    ),
                )
            for executor in [
                executor for executor in framework.executors.values() if executor.agent == agent_id
            ]:
                self._remove_executor(framework, executor)

    def abandon(self, framework: EmbeddedFramework) -> None:
        """End all tasks and executors of a removed framework. No status updates are sent."""
        for task in list(framework.tasks.values()):
            self._remove(framework, task, v1.TASK_KILLED)
        for executor in list(framework.executors.values()):
            self._remove_executor(framework, executor)

    def report(
        self, framework: EmbeddedFramework, task_id: v1.TaskID, agent_id: v1.AgentID | None
    ) -> None:
        """Send a task's state to its framework, as the answer to a RECONCILE call.

        Args:
            framework: The framework that asks.
            task_id: Id of the task.
            agent_id: Agent on which the framework believes the task to be, or None.
        """
        task = framework.tasks.get(task_id.value)
        if task is not None:
            agent_id = task.info.agent_id
            state, message = task.reported or task.state, "Latest task state"
        elif not framework.capable(Capability.PARTITION_AWARE):
            state, message = v1.TASK_LOST, "Task is unknown"
        elif agent_id is not None and agent_id.value in self._books.agents:
            state, message = v1.TASK_GONE, "Task is unknown to the agent"
        else:
            state, message = v1.TASK_UNKNOWN, "Task is unknown"
        self._updates.tell(
            framework,
            v1.TaskStatus(
                task_id=task_id,
                agent_id=agent_id if agent_id is not None and agent_id.value else None,
                state=state,
                reason=v1.TaskStatus.REASON_RECONCILIATION,
                message=f"Reconciliation: {message}",
            ),
        )

    def _kill(self, framework: EmbeddedFramework, task: EmbeddedTask) -> None:
        if not self._books.agents[task.agent].active:
            task.kill_when_back = True
        elif not task.ended:
            self._cancel(task)
            if framework.capable(Capability.TASK_KILLING_STATE):
                self._updates.add(framework, task, v1.TASK_KILLING)
            self._updates.add(framework, task, v1.TASK_KILLED, message="Command terminated")

    def _cancel(self, task: EmbeddedTask) -> None:
        if task.end is not None:
            task.end.cancel()

    def _remove(
        self, framework: EmbeddedFramework, task: EmbeddedTask, state: v1.TaskState.ValueType
    ) -> None:
        self._cancel(task)
        self._updates.stop(task)
        self._updates.end(framework, task, state)
        framework.completed.append(framework.tasks.pop(task.id))

    def _remove_executor(self, framework: EmbeddedFramework, executor: Executor) -> None:
        del framework.executors[executor.agent, executor.id]
        self._books.recover(framework.id, executor.agent, executor.role, executor.resources)

    def _run_time(self, info: v1.TaskInfo) -> float:
        """Return a task's run time in seconds: N for the command `sleep N`, else the default."""
        command = info.command
        text = command.value if command.shell else " ".join(command.arguments)
        match = _SLEEP.fullmatch(text)
        return float(match[1]) if match else self._task_seconds
