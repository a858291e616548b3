"""Validates schedulers' requests, by the rules of Mesos's `src/master/validation.cpp`."""

import math
import re
from collections.abc import Container, Sequence

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import ResourceBag
from frameworks.local_mesos.state import (
    Capability,
    EmbeddedFramework,
    EmbeddedTask,
    Executor,
    Offer,
    roles_of,
)

_LONGEST_ID = 255
"""Maximum length of an id in bytes. Mesos uses ids as names of folders."""
_LONGEST_DURATION = 2**63 / 1e9
"""Upper limit of a duration in seconds, because Mesos stores durations as 64-bit nanoseconds."""


class Refused(ValueError):  # noqa: N818 - Mesos's word
    """Raised if the master rejects a scheduler's request; the message is sent to the scheduler."""


def check_id(kind: str, value: str) -> None:
    """Reject an id that could not be the name of a folder, such as one with a slash.

    Args:
        kind: Kind of object that the id identifies, such as a task, for the error message.
        value: The id.

    Raises:
        Refused: The id is invalid.
    """
    problem = None
    if not value:
        problem = "must not be empty"
    elif len(value.encode()) > _LONGEST_ID:
        problem = f"must not be longer than {_LONGEST_ID} bytes"
    elif value in {".", ".."} or re.search(r"[\x00-\x1f\x7f/\\]", value):
        problem = "must not be a path, nor contain control characters"
    if problem is not None:
        raise Refused(f"{kind} id {value!r} {problem}")


def check_role(role: str) -> None:
    """Reject an invalid role. Valid roles are `*` and names joined by slashes, such as `eng/web`.

    Raises:
        Refused: The role is invalid.
    """
    if role != "*" and not all(
        re.fullmatch(r"[^\s\x7f/-][^\s\x7f/]*", part) and part not in {".", "..", "*"}
        for part in role.split("/")
    ):
        raise Refused(
            f"{role!r} is not a role: expecting '*', or names such as eng or eng/web that neither "
            "begin with a dash nor contain blanks"
        )


def check_quota(quota: mesos.QuotaInfo) -> None:
    """Check a quota of `POST /quota`, as Mesos's `quota::validation` does.

    Raises:
        Refused: The role cannot have a quota, or the guarantee is not a positive amount of
            different unreserved scalar resources.
    """
    check_role(quota.role)
    if quota.role == "*" or "/" in quota.role:
        raise Refused(f"Role {quota.role!r} cannot have a quota")
    if not quota.guarantee:
        raise Refused("Quota has no 'guarantee'")
    if len({resource.name for resource in quota.guarantee}) < len(quota.guarantee):
        raise Refused("Quota names a resource twice")
    for resource in quota.guarantee:
        scalar = resource.type == mesos.Value.SCALAR and not resource.reservations
        if not scalar or not 0 < resource.scalar.value < math.inf:
            raise Refused(f"Quota of {resource.name!r} is not a positive amount, unreserved")


def check_subscription(
    info: mesos.FrameworkInfo, suppressed: set[str], completed: Container[str]
) -> None:
    """Reject a framework whose description is invalid, or that was removed before.

    Args:
        info: The framework's description.
        suppressed: Roles that the framework suppresses.
        completed: Ids of removed frameworks.

    Raises:
        Refused: The subscription is invalid.
    """
    if any(declared.type == Capability.MULTI_ROLE for declared in info.capabilities):
        if info.HasField("role"):
            raise Refused("'FrameworkInfo.role' must not be set by a MULTI_ROLE framework")
        if len(set(info.roles)) < len(info.roles):
            raise Refused("'FrameworkInfo.roles' names a role twice")
    elif info.roles:
        raise Refused("'FrameworkInfo.roles' must not be set without the capability MULTI_ROLE")
    roles = roles_of(info)
    for role in sorted(roles):
        check_role(role)
    if info.id.value:
        check_id("framework", info.id.value)
    if not suppressed <= roles:
        raise Refused(
            f"Suppressed roles {sorted(suppressed - roles)} are not contained in the framework's"
        )
    if info.id.value in completed:
        raise Refused("Framework has been removed")
    timeout = info.failover_timeout
    if not math.isfinite(timeout) or abs(timeout) >= _LONGEST_DURATION:
        raise Refused(f"The framework failover_timeout ({timeout}) is invalid")


def check_offers(framework: EmbeddedFramework, requested: int, offers: Sequence[Offer]) -> None:
    """Reject an ACCEPT call whose offers cannot be used together.

    All named offers must exist, and must belong to the same agent and role.

    Args:
        framework: The framework that sent the call.
        requested: Number of offers that the call names.
        offers: The offers among them that exist.

    Raises:
        Refused: The offers cannot be accepted together.
    """
    if not requested:
        raise Refused("No offers specified")
    if len({offer.id for offer in offers}) < len(offers):
        raise Refused("An offer is named twice")
    if len(offers) < requested:
        raise Refused("An offer is no longer valid")
    if any(offer.framework != framework.id for offer in offers):
        raise Refused("An offer is another framework's")
    if len({offer.role for offer in offers}) > 1:
        raise Refused("The offers are allocated to different roles")
    if len({offer.agent for offer in offers}) > 1:
        raise Refused("The offers are of different agents")


def check_launch(operation: v1.Offer.Operation) -> None:
    """Raise an error for a LAUNCH operation with an id.

    Such an id would ask for feedback, but Mesos reports on tasks only by status updates.

    Raises:
        Refused: The operation has an id.
    """
    if operation.HasField("id"):
        raise Refused("The 'id' field cannot be set on LAUNCH operations")


def check_task(
    framework: EmbeddedFramework,
    task: EmbeddedTask,
    executor: Executor | None,
    remaining: ResourceBag,
) -> None:
    """Reject a task that is invalid, or that needs more than the remaining resources of its offers.

    Args:
        framework: The framework that launches the task.
        task: The task as it would be launched on the offers' agent.
        executor: The task's custom executor, if it must be started; else None.
        remaining: Resources of the offers that earlier tasks of the call did not use.

    Raises:
        Refused: The task cannot be launched.
    """
    info = task.info
    check_id("task", task.id)
    if task.id in framework.tasks:
        raise Refused(f"Task has duplicate id {task.id!r}")
    if info.agent_id.value != task.agent:
        raise Refused(f"Task uses agent {info.agent_id.value!r}, its offers are of {task.agent!r}")
    if not info.resources:
        raise Refused("Task uses no resources")
    needed = _bag("Task", task)
    if info.HasField("executor") == info.HasField("command"):
        raise Refused("Task should have either a command or an executor, and not both")
    if info.HasField("executor"):
        _check_executor(framework, task, executor)
    if executor is not None:
        executor_resources = _bag("Executor", executor)
        if needed.overlaps(executor_resources):
            raise Refused(f"Task ({needed}) and executor ({executor_resources}) overlap")
        needed.add(executor.resources)
    if not remaining.contains(needed):
        raise Refused(f"Task and its executor use more ({needed}) than available ({remaining})")


def _check_executor(
    framework: EmbeddedFramework, task: EmbeddedTask, executor: Executor | None
) -> None:
    info = task.info.executor
    check_id("executor", info.executor_id.value)
    if info.HasField("type") and info.type != v1.ExecutorInfo.CUSTOM:
        raise Refused("'ExecutorInfo.type' must be 'CUSTOM'")
    if not info.HasField("command"):
        raise Refused("'ExecutorInfo.command' must be set")
    if info.framework_id.value != framework.id:
        raise Refused(
            f"'ExecutorInfo.framework_id' is {info.framework_id.value!r}, but this is framework "
            f"{framework.id!r}"
        )
    if executor is None and framework.executors[task.agent, info.executor_id.value].info != info:
        raise Refused(
            f"Another executor with the id {info.executor_id.value!r} runs on agent {task.agent!r}"
        )


def _bag(kind: str, holder: EmbeddedTask | Executor) -> ResourceBag:
    if any(r.allocation_info.role != holder.role for r in holder.resources):
        raise Refused(f"{kind} uses resources that are not allocated to role {holder.role!r}")
    if sum(resource.scalar.value for resource in holder.resources if resource.name == "gpus") % 1:
        raise Refused(f"{kind} uses invalid resources: 'gpus' must be an unsigned integer")
    try:
        return ResourceBag(holder.resources)
    except ValueError as error:
        raise Refused(f"{kind} uses invalid resources: {error}") from error
