"""Handles ACCEPT calls: launches tasks on offers."""

from collections.abc import Iterable

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Resource, ResourceBag
from frameworks.local_mesos.books import MasterState
from frameworks.local_mesos.drops import log_dropped_call
from frameworks.local_mesos.notation import upgraded
from frameworks.local_mesos.state import (
    Capability,
    EmbeddedFramework,
    EmbeddedTask,
    Executor,
    Offer,
)
from frameworks.local_mesos.tasks import TaskReports
from frameworks.local_mesos.updates import StatusUpdates
from frameworks.local_mesos.validation import Refused, check_launch, check_offers, check_task

Operation = v1.Offer.Operation


class Launching:
    """Carries out the operations in schedulers' ACCEPT calls.

    Args:
        books: The master's state.
        tasks: Starts the launched tasks.
        updates: Reports tasks that cannot be launched.
    """

    def __init__(self, books: MasterState, tasks: TaskReports, updates: StatusUpdates) -> None:
        self._books = books
        self._tasks = tasks
        self._updates = updates

    def accept(self, framework: EmbeddedFramework, call: v1.Call.Accept) -> None:
        """Handle an ACCEPT call: launch its tasks, and recover the resources that no task uses."""
        self._count(call.operations)
        known = (self._books.offers.get(offer_id.value) for offer_id in call.offer_ids)
        offers = [offer for offer in known if offer is not None]
        try:
            check_offers(framework, len(call.offer_ids), offers)
        except Refused as error:
            for offer in {
                offer.id: offer for offer in offers if offer.framework == framework.id
            }.values():
                self._books.take_back(offer, rescind=False)
            self._drop(framework, call.operations, str(error))
            if not call.operations:
                log_dropped_call(framework, "ACCEPT", str(error))
            return
        for offer in offers:
            self._books.remove_offer(offer)
        unused = self._launch(framework, offers, call.operations)
        if unused:
            filters = call.filters if call.HasField("filters") else mesos.Filters()
            self._books.send_call(pause=contract.Pause())
            self._books.recover(
                framework.id, offers[0].agent, offers[0].role, unused.resources(), filters
            )
            self._books.send_call(resume=contract.Resume())

    def _launch(
        self, framework: EmbeddedFramework, offers: list[Offer], operations: Iterable[Operation]
    ) -> ResourceBag:
        """Launch the tasks of an ACCEPT call. Return the offers' resources that remain unused.

        Invalid tasks and operations other than LAUNCH are rejected, and the scheduler is told.

        Args:
            framework: The framework that sent the call.
            offers: The offers, which are valid and on one agent.
            operations: The operations of the call.
        """
        agent, role = offers[0].agent, offers[0].role
        unused = ResourceBag(resource for offer in offers for resource in offer.resources)
        for operation in operations:
            if operation.type != Operation.LAUNCH:
                self._reject_operation(framework, operation)
                continue
            for info in operation.launch.task_infos:
                task, executor = _planned(framework, agent, role, info)
                try:
                    check_launch(operation)
                    check_task(framework, task, executor, unused)
                except Refused as error:
                    self._reject_task(framework, info, str(error))
                    continue
                unused.remove(task.resources)
                if executor is not None:
                    unused.remove(executor.resources)
                    framework.executors[agent, executor.id] = executor
                self._tasks.start(framework, task)
        return unused

    def _count(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if operation.type == Operation.LAUNCH:
                has_tasks = bool(operation.launch.task_infos)
                name = "messages_launch_tasks" if has_tasks else "messages_decline_offers"
                self._books.counters[name] += 1

    def _drop(
        self, framework: EmbeddedFramework, operations: Iterable[Operation], complaint: str
    ) -> None:
        """Report all operations of an invalid ACCEPT call as failed.

        Args:
            framework: The framework that sent the call.
            operations: The operations.
            complaint: Why the call is invalid.
        """
        partition_aware = framework.capable(Capability.PARTITION_AWARE)
        for operation in operations:
            for info in (*operation.launch.task_infos, *operation.launch_group.task_group.tasks):
                self._books.counters["tasks_dropped" if partition_aware else "tasks_lost"] += 1
                self._updates.tell(
                    framework,
                    v1.TaskStatus(
                        task_id=info.task_id,
                        agent_id=info.agent_id,
                        state=v1.TASK_DROPPED if partition_aware else v1.TASK_LOST,
                        reason=v1.TaskStatus.REASON_INVALID_OFFERS,
                        message=f"Task launched with invalid offers: {complaint}",
                    ),
                )
            self._fail(
                framework, operation, f"Operation attempted with invalid offers: {complaint}"
            )

    def _reject_task(self, framework: EmbeddedFramework, info: v1.TaskInfo, complaint: str) -> None:
        self._books.counters["tasks_error"] += 1
        log_dropped_call(framework, f"task {info.task_id.value}", complaint)
        self._updates.tell(
            framework,
            v1.TaskStatus(
                task_id=info.task_id,
                agent_id=info.agent_id,
                state=v1.TASK_ERROR,
                reason=v1.TaskStatus.REASON_TASK_INVALID,
                message=complaint,
            ),
        )

    def _reject_operation(self, framework: EmbeddedFramework, operation: Operation) -> None:
        name = Operation.Type.Name(operation.type)
        complaint = f"{name} is not supported by the embedded Mesos"
        for info in operation.launch_group.task_group.tasks:
            self._reject_task(framework, info, complaint)
        self._fail(framework, operation, complaint)

    def _fail(self, framework: EmbeddedFramework, operation: Operation, complaint: str) -> None:
        """Log that an operation failed. If the operation has an id, also tell the scheduler.

        Args:
            framework: The framework that asked for the operation.
            operation: The operation.
            complaint: Why it failed.
        """
        log_dropped_call(framework, Operation.Type.Name(operation.type), complaint)
        if operation.HasField("id") and operation.type not in {
            Operation.LAUNCH,
            Operation.LAUNCH_GROUP,
        }:
            status = v1.OperationStatus(
                operation_id=operation.id,
                state=v1.OperationStatus.OPERATION_ERROR,
                message=complaint,
            )
            framework.send(
                v1.Event(
                    type=v1.Event.UPDATE_OPERATION_STATUS,
                    update_operation_status=v1.Event.UpdateOperationStatus(status=status),
                )
            )


def _planned(
    framework: EmbeddedFramework, agent: str, role: str, info: v1.TaskInfo
) -> tuple[EmbeddedTask, Executor | None]:
    """Build the records of a task to launch, and of the executor that must be started for it.

    Args:
        framework: The framework that launches the task.
        agent: Id of the agent.
        role: Role to which the offers were allocated.
        info: The task as described by the scheduler.

    Returns:
        The task. Also its custom executor, or None if it has no custom executor or the executor
        runs already.
    """
    executor_id = None
    executor = None
    if info.HasField("executor"):
        executor_id = info.executor.executor_id.value
        if not info.executor.HasField("framework_id"):
            info.executor.framework_id.value = framework.id
        if (agent, executor_id) not in framework.executors:
            resources = _with_allocation(info.executor.resources, role)
            executor = Executor(info.executor, agent, role, resources)
    task = EmbeddedTask(
        info=info,
        framework=framework.id,
        agent=agent,
        role=role,
        resources=_with_allocation(info.resources, role),
        executor=executor_id,
    )
    return task, executor


def _with_allocation(resources: Iterable[Resource], role: str) -> list[Resource]:
    """Return copies of a task's resources in the format of Mesos 1.4 and later, with allocation.

    Args:
        resources: The resources of a task or executor.
        role: Role to which resources are allocated if they name none.
    """
    copies = []
    for resource in resources:
        copy = Resource()
        copy.CopyFrom(upgraded(resource))
        if not copy.HasField("allocation_info"):
            copy.allocation_info.role = role
        copies.append(copy)
    return copies
