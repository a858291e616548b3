"""Checks of Slurm's configuration: settings that would keep the order from being followed."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from allocator.formatting import counted
from allocator.slurm.factors import USUAL_DIFFERENCE
from allocator.slurm.rows import RejectedRecords, ShapeError, reason_of
from allocator.slurm.state import MOST_UNKNOWN_ACCOUNTS
from allocator.slurm.users import UserKey, read_associations

_WEIGHTS = (
    "PriorityWeightAge",
    "PriorityWeightAssoc",
    "PriorityWeightFairShare",
    "PriorityWeightJobSize",
    "PriorityWeightPartition",
    "PriorityWeightQOS",
)
_LONGEST_SUBMIT_LINE = 64 * 1024
"""Maximum number of bytes of a job's command that delays no reading of many jobs."""
_SUBMIT_LINE = 1024 * 1024
"""Slurm's default of `max_submit_line_size`, in bytes."""
_NONE = ("", "(null)", "None", "none", "site_factor/none", "jobcomp/none")


class SettingFinding(NamedTuple):
    """A setting that has consequences for the order."""

    kind: Literal["problem", "warning", "note"]
    """problem: the order is not followed. warning: parts of it are not, or data is missing."""
    setting: str
    """The setting and its value, as in `slurm.conf`."""
    consequence: str
    advice: str


def check_configuration(
    configuration: Mapping[str, str],
    partitions: str,
    *,
    user_key: UserKey,
    rights: bool,
    queued: int = 0,
) -> list[SettingFinding]:
    """Return the settings that would keep Slurm from following the order, problems first.

    Args:
        configuration: Settings that `scontrol show config` prints, by name.
        partitions: Output of `scontrol --oneliner show partitions`.
        user_key: Whether resources count for users, for accounts, or in the tree of accounts.
        rights: Whether this process may set site factors.
        queued: Number of messages that slurmctld has not sent to slurmdbd yet.
    """
    findings = [
        *_priorities(configuration),
        *_scheduler(configuration),
        *_partitions(partitions),
        *_records(configuration),
        *_accounting(configuration, user_key),
        *_commands(configuration),
    ]
    if queued:
        findings.append(
            SettingFinding(
                "warning",
                f"DBD Agent queue size={queued}",
                "slurmdbd lacks records, so jobs that end while Longshare is away can be missed.",
                "Run `sdiag` again. If the number stays, check that slurmdbd runs.",
            )
        )
    if not rights:
        findings.append(
            SettingFinding(
                "problem",
                "AdminLevel",
                "This user may not set site factors.",
                "Run as SlurmUser, or: sacctmgr modify user NAME set adminlevel=Operator.",
            )
        )
    kinds = ("problem", "warning", "note")
    return sorted(findings, key=lambda finding: kinds.index(finding.kind))


def check_associations(printed: bytes) -> list[SettingFinding]:
    """Return a warning if associations cannot be read.

    Args:
        printed: Output of sacctmgr, for `read_associations`.
    """
    rejected = RejectedRecords()
    try:
        read_associations(printed, rejected)
    except ShapeError as error:
        rejected.add("sacctmgr", reason_of(error))
    number, reasons = rejected.take_new()
    if not reasons:
        return []
    return [
        SettingFinding(
            "warning",
            "sacctmgr show associations",
            f"{counted(number, 'error')}, so accounts or their shares are missing: {reasons[0]}.",
            "Remove or rename such accounts. If no association can be read, report the message.",
        )
    ]


def keeps_accounting(configuration: Mapping[str, str]) -> bool:
    """Return whether slurmdbd keeps the accounting.

    Args:
        configuration: Settings of slurmctld by name.
    """
    return configuration.get("AccountingStorageType", "") == "accounting_storage/slurmdbd"


def _priorities(configuration: Mapping[str, str]) -> list[SettingFinding]:
    findings = []
    kind = configuration.get("PriorityType", "")
    if kind != "priority/multifactor":
        findings.append(
            SettingFinding(
                "problem",
                f"PriorityType={kind}",
                "Slurm ignores site factors.",
                "Set PriorityType=priority/multifactor and restart slurmctld.",
            )
        )
    weights = {name: _weight(configuration.get(name, "0")) for name in _WEIGHTS}
    largest = sum(weights.values())
    named = ", ".join(f"{name}={value:g}" for name, value in weights.items() if value)
    if largest > USUAL_DIFFERENCE:
        findings.append(
            SettingFinding(
                "warning",
                named,
                "Other factors can exceed the difference between neighbours in the order.",
                f"Set these weights to 0, or to at most {USUAL_DIFFERENCE} together.",
            )
        )
    elif largest:
        findings.append(
            SettingFinding(
                "note",
                named,
                "These factors order the jobs of one user, and jobs outside the order.",
                "Nothing needs to be done.",
            )
        )
    if configuration.get("PriorityWeightTRES", "(null)") not in _NONE:
        findings.append(
            SettingFinding(
                "warning",
                f"PriorityWeightTRES={configuration['PriorityWeightTRES']}",
                "Large jobs can pass the order.",
                "Remove PriorityWeightTRES.",
            )
        )
    if "INCR_ONLY" in configuration.get("PriorityFlags", "").upper():
        findings.append(
            SettingFinding(
                "problem",
                f"PriorityFlags={configuration['PriorityFlags']}",
                "Priorities never fall, so a user that is served does not go back in the order.",
                "Remove INCR_ONLY from PriorityFlags.",
            )
        )
    plugin = configuration.get("PrioritySiteFactorPlugin")
    if plugin is not None and plugin not in _NONE:
        findings.append(
            SettingFinding(
                "problem",
                f"PrioritySiteFactorPlugin={plugin}",
                "This plugin replaces the site factors.",
                "Set PrioritySiteFactorPlugin=site_factor/none.",
            )
        )
    return findings


def _weight(text: str) -> float:
    match = re.match(r"\d+", text)
    return float(match[0]) if match else 0.0


def _scheduler(configuration: Mapping[str, str]) -> list[SettingFinding]:
    findings = []
    scheduler = configuration.get("SchedulerType", "")
    if scheduler != "sched/backfill":
        findings.append(
            SettingFinding(
                "problem",
                f"SchedulerType={scheduler}",
                "A job that cannot start holds back all jobs behind it in its partition.",
                "Set SchedulerType=sched/backfill.",
            )
        )
    parameters = configuration.get("SchedulerParameters", "")
    if "enable_user_top" in re.split(r"[,\s]+", parameters):
        findings.append(
            SettingFinding(
                "problem",
                f"SchedulerParameters={parameters}",
                "With enable_user_top, `scontrol top` gives a negative nice, which exceeds the "
                "order.",
                "Remove enable_user_top from SchedulerParameters.",
            )
        )
    if configuration.get("PreemptType", "preempt/none") not in {"preempt/none", "(null)", ""}:
        findings.append(
            SettingFinding(
                "note",
                f"PreemptType={configuration['PreemptType']}",
                "Preemption follows QOS or partitions, not the order.",
                "Nothing needs to be done; preempted jobs count as long as they hold resources.",
            )
        )
    return findings


def _partitions(partitions: str) -> list[SettingFinding]:
    findings = []
    exclusive = re.findall(r"PartitionName=(\S+)[^\n]*? ExclusiveUser=YES", partitions)
    if exclusive:
        findings.append(
            SettingFinding(
                "note",
                f"ExclusiveUser=YES ({', '.join(sorted(exclusive))})",
                "A user with a job on a node counts as holding the whole node.",
                "Nothing needs to be done.",
            )
        )
    tiers = dict(re.findall(r"PartitionName=(\S+).*?PriorityTier=(\d+)", partitions))
    if len(set(tiers.values())) > 1:
        named = ", ".join(f"{name}: {tier}" for name, tier in sorted(tiers.items()))
        findings.append(
            SettingFinding(
                "note",
                f"PriorityTier ({named})",
                "Slurm starts jobs of higher tiers first; the order holds inside each tier.",
                "Give partitions with common nodes the same PriorityTier if users should compete.",
            )
        )
    return findings


def _records(configuration: Mapping[str, str]) -> list[SettingFinding]:
    findings = []
    age = _weight(configuration.get("MinJobAge", "300"))
    if 0 < age < 60:
        findings.append(
            SettingFinding(
                "warning",
                f"MinJobAge={age:g}",
                "Slurm forgets ended jobs so soon that a pause of Longshare can miss them.",
                "Set MinJobAge=300.",
            )
        )
    completion = configuration.get("JobCompType", "jobcomp/none")
    if not keeps_accounting(configuration) and completion != "jobcomp/filetxt":
        findings.append(
            SettingFinding(
                "warning",
                f"JobCompType={completion}",
                f"Jobs that end while Longshare is away for more than {age:g} s are not seen.",
                "Run slurmdbd, or set JobCompType=jobcomp/filetxt and JobCompLoc=FILE.",
            )
        )
    return findings


def _accounting(configuration: Mapping[str, str], user_key: UserKey) -> list[SettingFinding]:
    findings = []
    storage = configuration.get("AccountingStorageType", "")
    if not keeps_accounting(configuration) and user_key != "user":
        findings.append(
            SettingFinding(
                "warning",
                f"AccountingStorageType={storage}",
                "Without slurmdbd there is no tree of accounts, and accounts have no shares.",
                "Run slurmdbd, or let resources count for users.",
            )
        )
    enforced = configuration.get("AccountingStorageEnforce", "none")
    if keeps_accounting(configuration) and user_key != "user" and "associations" not in enforced:
        findings.append(
            SettingFinding(
                "warning",
                f"AccountingStorageEnforce={enforced}",
                "A user may submit jobs for invented accounts, and each of them gets turns. Jobs "
                f"of more than {MOST_UNKNOWN_ACCOUNTS} such accounts are left out of the order.",
                "Set AccountingStorageEnforce=associations.",
            )
        )
    generic = configuration.get("GresTypes", "(null)")
    tracked = configuration.get("AccountingStorageTRES", "")
    missing = [
        name
        for name in generic.split(",")
        if generic not in _NONE and f"gres/{name}" not in tracked.split(",")
    ]
    if missing:
        findings.append(
            SettingFinding(
                "warning",
                f"AccountingStorageTRES={tracked}",
                f"Slurm does not tell how many of these a job holds: {', '.join(missing)}.",
                "Add "
                + ",".join(f"gres/{name}" for name in missing)
                + " to AccountingStorageTRES (needs slurmdbd).",
            )
        )
    return findings


def _commands(configuration: Mapping[str, str]) -> list[SettingFinding]:
    """Return a note if long job commands can make readings slow.

    slurmctld before 23.02 sends the arguments of all jobs to squeue. sacct always gets them; since
    23.11, slurmctld can refuse jobs with long commands.
    """
    text = configuration.get("SLURM_VERSION", "")
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        return []
    version = (int(match[1]), int(match[2]))
    if version < (23, 2):
        return [
            SettingFinding(
                "note",
                f"SLURM_VERSION={text}",
                "squeue gets the arguments of all jobs, so jobs of one user with long commands "
                "make each reading slow.",
                "Update to Slurm 23.02 or later, or limit each user's jobs with MaxSubmitJobs.",
            )
        ]
    parameters = configuration.get("SchedulerParameters", "")
    limit = re.search(r"max_submit_line_size=(\d+)", parameters, re.IGNORECASE)
    size = int(limit[1]) if limit else _SUBMIT_LINE
    if version < (23, 11) or not keeps_accounting(configuration) or size <= _LONGEST_SUBMIT_LINE:
        return []
    return [
        SettingFinding(
            "note",
            f"max_submit_line_size={size}",
            "sacct gets the commands of all jobs, so jobs with long commands make the first "
            "reading after a pause slow.",
            f"Add max_submit_line_size={_LONGEST_SUBMIT_LINE} to SchedulerParameters.",
        )
    ]
