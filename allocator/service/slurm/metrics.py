"""Metrics of the readings of one Slurm, and of the site factors."""

from collections.abc import Callable, Iterator

from allocator.service.show.metric_definitions import MetricDefinition, MetricGroup, Sample
from allocator.service.slurm.follower import SlurmContact
from allocator.slurm.bridge import Cycle
from allocator.slurm.reasons import GROUP_ORDER
from allocator.slurm.rows import SOURCES
from allocator.slurm.state import ClusterState


def _unseen(state: ClusterState) -> float:
    return sum(max(end - begin, 0.0) for begin, end in state.findings.unseen)


def _of_cycle(value: Callable[[Cycle], float]) -> Callable[[SlurmContact], float | None]:
    """Return a function that reads a value of the latest cycle; None before the first cycle."""
    return lambda contact: None if contact.cycle is None else value(contact.cycle)


def _passed_over(contact: SlurmContact) -> Iterator[Sample] | None:
    cycle = contact.cycle
    if cycle is None:
        return None
    return (((reason,), float(cycle.passed_over[reason])) for reason in GROUP_ORDER)


def _rejected(contact: SlurmContact) -> Iterator[Sample]:
    return (((source,), float(contact.rejected[source])) for source in SOURCES)


CONTACT: MetricGroup[SlurmContact] = MetricGroup(
    "Readings of Slurm and site factors",
    (
        MetricDefinition(
            "longshare_slurm_connected",
            "Whether the latest reading succeeded.",
            lambda contact: contact.connected,
            unit="0 or 1",
        ),
        MetricDefinition(
            "longshare_slurm_reading_seconds",
            "Duration of the latest reading.",
            lambda contact: contact.seconds,
            unit="seconds",
        ),
        MetricDefinition(
            "longshare_slurm_latest_reading_timestamp_seconds",
            "Time of the latest successful reading.",
            _of_cycle(lambda cycle: cycle.now),
            unit="seconds since 1970",
        ),
        MetricDefinition(
            "longshare_slurm_readings_total",
            "Successful readings of Slurm.",
            lambda contact: contact.readings,
        ),
        MetricDefinition(
            "longshare_slurm_failed_readings_total",
            "Failed readings of Slurm.",
            lambda contact: contact.failures,
        ),
        MetricDefinition(
            "longshare_slurm_rejected_records_total",
            "Unreadable jobs, accounts and records of Slurm, which are set aside.",
            _rejected,
            labels=("source",),
        ),
        MetricDefinition(
            "longshare_slurm_factor_updates_total",
            "Site factors set, or in a dry run planned.",
            lambda contact: contact.updates,
        ),
        MetricDefinition(
            "longshare_slurm_rejected_factor_updates_total",
            "Site factors that Slurm did not accept.",
            lambda contact: contact.rejected_updates,
        ),
        MetricDefinition(
            "longshare_slurm_dry_run",
            "Whether site factors are only planned.",
            _of_cycle(lambda cycle: cycle.dry_run),
            unit="0 or 1",
        ),
        MetricDefinition(
            "longshare_slurm_ordered_jobs",
            "Jobs in the order.",
            _of_cycle(lambda cycle: len(cycle.order.placed)),
        ),
        MetricDefinition(
            "longshare_slurm_postponed_updates",
            "Site factors that a later reading sets.",
            _of_cycle(lambda cycle: cycle.postponed),
        ),
        MetricDefinition(
            "longshare_slurm_foreign_factors",
            "Jobs whose site factor another person or program set.",
            _of_cycle(lambda cycle: len(cycle.foreign)),
        ),
        MetricDefinition(
            "longshare_slurm_passed_over_jobs",
            "Pending jobs that are not in the order, by the group of Slurm's reason.",
            _passed_over,
            labels=("reason",),
        ),
    ),
    present="by the service for Slurm",
)
STATE: MetricGroup[ClusterState] = MetricGroup(
    "The Slurm cluster",
    (
        MetricDefinition("longshare_slurm_nodes", "Nodes known.", lambda state: len(state.nodes)),
        MetricDefinition(
            "longshare_slurm_running_jobs",
            "Jobs that hold resources.",
            lambda state: state.running,
        ),
        MetricDefinition(
            "longshare_slurm_pending_jobs",
            "Pending jobs and arrays.",
            lambda state: len(state.pending),
        ),
        MetricDefinition(
            "longshare_slurm_unseen_seconds",
            "Time in which jobs may have been missed.",
            _unseen,
            unit="seconds",
        ),
        MetricDefinition(
            "longshare_slurm_late_changes_total",
            "Changes seen after their time was final.",
            lambda state: state.findings.late.total,
        ),
        MetricDefinition(
            "longshare_slurm_assumed_times_total",
            "Changes whose time Slurm did not tell.",
            lambda state: state.findings.corrections.total,
        ),
        MetricDefinition(
            "longshare_slurm_lost_jobs_total",
            "Jobs forgotten by Slurm before their end was seen.",
            lambda state: state.findings.lost.total,
        ),
    ),
    present="by the service for Slurm",
)
GROUPS = (CONTACT, STATE)
"""All metrics of this module, in the order of the page on metrics."""
