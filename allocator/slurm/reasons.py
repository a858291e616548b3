"""Reasons why jobs are pending: Slurm's many codes in few groups, with words for people."""

from typing import Literal, TypeAlias, get_args

ReasonGroup: TypeAlias = Literal[
    "turn",
    "resources",
    "licenses",
    "nodes",
    "reservation",
    "group_limit",
    "own_limit",
    "array_limit",
    "partition",
    "begin_time",
    "dependency",
    "held",
    "invalid",
    "other",
]
"""Groups of reasons. The group closest to a start comes first."""
GROUP_ORDER: tuple[ReasonGroup, ...] = get_args(ReasonGroup)

_GROUPS: dict[str, ReasonGroup] = {
    "None": "turn",
    "Priority": "turn",
    "Prolog": "resources",
    "Resources": "resources",
    "Licenses": "licenses",
    "BurstBufferResources": "licenses",
    "BurstBufferStageIn": "licenses",
    "Nodes": "nodes",
    "NodeDown": "nodes",
    "ReqNodeNotAvail": "nodes",
    "FrontEndDown": "nodes",
    "Reservation": "reservation",
    "ReservationDeleted": "invalid",
    "QOSResourceLimit": "group_limit",
    "QOSUsageThreshold": "group_limit",
    "AssociationResourceLimit": "group_limit",
    "AssociationTimeLimit": "own_limit",
    "AssociationJobLimit": "own_limit",
    "QOSJobLimit": "own_limit",
    "QOSTimeLimit": "own_limit",
    "JobArrayTaskLimit": "array_limit",
    "PartitionDown": "partition",
    "PartitionInactive": "partition",
    "PartitionNodeLimit": "partition",
    "PartitionTimeLimit": "partition",
    "PartitionConfig": "partition",
    "BeginTime": "begin_time",
    "Cleaning": "begin_time",
    "DeadLine": "invalid",
    "Dependency": "dependency",
    "DependencyNeverSatisfied": "invalid",
    "JobHeldAdmin": "held",
    "JobHeldUser": "held",
    "job requeued in held state": "held",
    "launch failed requeued held": "held",
    "BadConstraints": "invalid",
    "AccountNotAllowed": "invalid",
    "QOSNotAllowed": "invalid",
    "InvalidAccount": "invalid",
    "InvalidQOS": "invalid",
    "JobLaunchFailure": "invalid",
    "NonZeroExitCode": "invalid",
    "TimeLimit": "invalid",
    "SystemFailure": "invalid",
}
_PREFIXES: tuple[tuple[str, ReasonGroup], ...] = (
    ("QOSGrp", "group_limit"),
    ("AssocGrp", "group_limit"),
    ("QOSMax", "own_limit"),
    ("AssocMax", "own_limit"),
    ("QOSMin", "invalid"),
    ("Max", "own_limit"),
)

BRIEFLY: dict[str, str] = {
    "no_controller": "no answer of slurmctld",
    "turn": "waits for its turn",
    "resources": "waits for resources",
    "licenses": "waits for licences",
    "nodes": "nodes not available",
    "reservation": "waits for a reservation",
    "group_limit": "limit of its group",
    "own_limit": "limit of its own",
    "array_limit": "limit of its array",
    "partition": "partition not available",
    "begin_time": "begins later",
    "dependency": "waits for other jobs",
    "held": "held",
    "invalid": "can never start",
    "other": "another reason of Slurm",
}
"""Each group in a few words, for tables. The first is the loss of the controller."""


def group_of(code: str) -> ReasonGroup:
    """Return the group of a reason of Slurm; "other" for a reason that is not known here."""
    if code in _GROUPS:
        return _GROUPS[code]
    return next((group for prefix, group in _PREFIXES if code.startswith(prefix)), "other")
