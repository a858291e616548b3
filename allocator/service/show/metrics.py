"""Metrics for Prometheus, read from the engine at each scrape, so that they match its state."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Histogram

from allocator import __version__
from allocator.cluster.engine import Engine
from allocator.cluster.input.quarantine import Kind, Reason
from allocator.cluster.quota import Quota
from allocator.service.accounting.accountant import AccountingStatistics
from allocator.service.connections import Connections
from allocator.service.loop.loop_latency import BUDGET, LoopLatency
from allocator.service.masters.session import SessionStatistics
from allocator.service.record.event_log import EventLog
from allocator.service.rights import Right, Rights
from allocator.service.show.metric_definitions import (
    GroupCollector,
    MetricDefinition,
    MetricGroup,
    Sample,
)
from allocator.service.show.recorder import Recorder
from allocator.service.show.shadows import Shadows
from allocator.service.store.writer import StoreStatistics


def _rejected_inputs(engine: Engine) -> Iterator[Sample]:
    counts = Counter(dict.fromkeys(product(get_args(Kind), get_args(Reason)), 0))
    counts.update((rejected.kind, rejected.flaw.reason) for rejected in engine.rejected_inputs())
    yield from sorted(counts.items())


def _capacity(engine: Engine) -> Iterator[Sample]:
    for name, amount in engine.pool.capacity.to_doubles().items():
        yield (name,), amount


def _quotas(
    amounts: Callable[[Quota, Mapping[str, int]], Mapping[str, int]],
) -> Callable[[Engine], Iterator[Sample]]:
    """Return a function that reads one metric of all quotas.

    Args:
        amounts: Returns amounts in thousandths, from a quota and the role's consumed amounts.
    """

    def samples(engine: Engine) -> Iterator[Sample]:
        for role, (quota, consumed) in engine.quotas().items():
            for name, thousandths in amounts(quota, consumed).items():
                yield (role, name), thousandths / 1000

    return samples


def _next_crossing(engine: Engine) -> float | None:
    crossing = next(engine.pool.crossings(), None)
    return None if crossing is None else crossing.when


def _refused_calls(grpc: tuple[Rights, Connections]) -> Iterator[Sample]:
    rights, _ = grpc
    for right in get_args(Right):
        yield (right,), rights.refused[right]


CLUSTER: MetricGroup[Engine] = MetricGroup(
    "The cluster and its allocation cycles",
    (
        MetricDefinition(
            "longshare_build_info",
            "Version and policy of the service; the value is 1.",
            lambda engine: [((__version__, engine.pool.policy.name), 1)],
            labels=("version", "policy"),
        ),
        MetricDefinition(
            "longshare_capacity",
            "Total of all agents.",
            _capacity,
            labels=("resource",),
            unit="amount",
        ),
        MetricDefinition("longshare_agents", "Agents known.", lambda engine: engine.agents),
        MetricDefinition(
            "longshare_frameworks", "Frameworks known.", lambda engine: engine.frameworks
        ),
        MetricDefinition(
            "longshare_misfit_frameworks",
            "Frameworks whose constraint or task fits no agent, or whose labels are unreadable.",
            lambda engine: len(engine.misfits()),
        ),
        MetricDefinition(
            "longshare_set_aside",
            "Rejected input, by kind of source and reason.",
            _rejected_inputs,
            labels=("kind", "reason"),
        ),
        MetricDefinition(
            "longshare_offer_filters", "Offer filters in force.", lambda engine: engine.filters
        ),
        MetricDefinition(
            "longshare_quota_guarantee",
            "Guarantee of a role's quota.",
            _quotas(lambda quota, _: dict(quota.guarantees.items())),
            labels=("role", "resource"),
            unit="amount",
        ),
        MetricDefinition(
            "longshare_quota_limit",
            "Limit of a role's quota.",
            _quotas(lambda quota, _: quota.shown_limits),
            labels=("role", "resource"),
            unit="amount",
        ),
        MetricDefinition(
            "longshare_quota_consumed",
            "Resources that count against a role's quota: its reservations and allocation.",
            _quotas(
                lambda quota, consumed: {
                    name: consumed[name] for name in {**quota.guarantees, **quota.shown_limits}
                }
            ),
            labels=("role", "resource"),
            unit="amount",
        ),
        MetricDefinition(
            "longshare_live_tree_elements",
            "Users that the policy ranks.",
            lambda engine: engine.pool.active,
        ),
        MetricDefinition(
            "longshare_live_tree_events_total",
            "Position changes processed as time passed.",
            lambda engine: engine.pool.events,
        ),
        MetricDefinition(
            "longshare_live_tree_next_crossing_timestamp_seconds",
            "Master's time at which two users may next change places.",
            _next_crossing,
            unit="seconds since 1970",
        ),
        MetricDefinition(
            "longshare_events_total",
            "Events applied.",
            lambda engine: engine.statistics.events,
        ),
        MetricDefinition(
            "longshare_snapshots_total",
            "Snapshots restored.",
            lambda engine: engine.statistics.snapshots,
        ),
        MetricDefinition(
            "longshare_allocation_runs_total",
            "Allocation cycles.",
            lambda engine: engine.statistics.runs,
        ),
        MetricDefinition(
            "longshare_candidates_total",
            "Agents considered in allocation cycles.",
            lambda engine: engine.statistics.candidates,
        ),
        MetricDefinition(
            "longshare_offers_total",
            "Offers made, one for each role and agent.",
            lambda engine: engine.statistics.offers,
        ),
        MetricDefinition(
            "longshare_rejected_offers_total",
            "Offers that the master's side rejected.",
            lambda engine: engine.statistics.rejected,
        ),
        MetricDefinition(
            "longshare_inverse_offers_total",
            "Inverse offers made.",
            lambda engine: engine.statistics.inverse_offers,
        ),
        MetricDefinition(
            "longshare_holds_total",
            "Backfill holds: agents that were held for a client.",
            lambda engine: engine.statistics.holds.begun,
        ),
        MetricDefinition(
            "longshare_holds_served_total",
            "Backfill holds that ended with an offer to their client.",
            lambda engine: engine.statistics.holds.served,
        ),
        MetricDefinition(
            "longshare_holds_in_vain_total",
            "Backfill holds that ended because they lasted too long.",
            lambda engine: engine.statistics.holds.in_vain,
        ),
        MetricDefinition(
            "longshare_clamped_events_total",
            "Recoveries of more resources than were allocated.",
            lambda engine: engine.statistics.clamped,
        ),
        MetricDefinition(
            "longshare_ignored_events_total",
            "Calls about removed agents or frameworks.",
            lambda engine: engine.statistics.ignored,
        ),
        MetricDefinition(
            "longshare_passed_over_calls_total",
            "Calls that contradicted the known state within a minute of another, and were skipped.",
            lambda engine: engine.statistics.passed_over,
        ),
        MetricDefinition(
            "longshare_early_stamps_total",
            "Events with an earlier time than a previous event.",
            lambda engine: engine.statistics.early_stamps,
        ),
        MetricDefinition(
            "longshare_faults_total",
            "Errors in the allocator itself; each cost one call, or the offers of one cycle.",
            lambda engine: engine.statistics.faults,
        ),
        MetricDefinition(
            "longshare_policy_faults_total",
            "Priorities that a plugin policy failed to calculate; the user came last instead.",
            lambda engine: engine.settings.policy.faults.count,
        ),
    ),
)
MESSAGE_DURATION: MetricDefinition[SessionStatistics] = MetricDefinition(
    "longshare_message_duration_seconds",
    "Time to apply a message and allocate (decide), and to hand over the decisions (write).",
    labels=("phase",),
    unit="seconds",
    buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)
MASTERS: MetricGroup[SessionStatistics] = MetricGroup(
    "Masters",
    (
        MESSAGE_DURATION,
        MetricDefinition(
            "longshare_session_connected",
            "Whether a leading master is connected.",
            lambda statistics: statistics.connected,
            unit="0 or 1",
        ),
        MetricDefinition(
            "longshare_standby_sessions",
            "Connected masters that do not lead.",
            lambda statistics: statistics.standby,
        ),
        MetricDefinition(
            "longshare_sessions_total", "Sessions opened.", lambda statistics: statistics.sessions
        ),
        MetricDefinition(
            "longshare_resyncs_total",
            "Snapshots requested from masters.",
            lambda statistics: statistics.resyncs,
        ),
        MetricDefinition(
            "longshare_bounded_stamps_total",
            "Times of a master's clock that were bounded, because they were implausible.",
            lambda statistics: statistics.bounded_stamps,
        ),
        MetricDefinition(
            "longshare_session_lag_seconds",
            "Time from reading the latest message to having handed over its decisions.",
            lambda statistics: statistics.lag,
            unit="seconds",
        ),
    ),
)
LOOP: MetricGroup[LoopLatency] = MetricGroup(
    "Latency of the event loop",
    (
        MetricDefinition(
            "longshare_loop_longest_pause_seconds",
            "Longest time that the event loop worked without a pause, in the last minute or two.",
            lambda latency: latency.longest,
            unit="seconds",
        ),
        MetricDefinition(
            "longshare_loop_long_pauses_total",
            f"Times that the event loop worked over {1000 * BUDGET:.0f} ms without a pause.",
            lambda latency: latency.long,
        ),
    ),
)
GRPC: MetricGroup[tuple[Rights, Connections]] = MetricGroup(
    "Refused calls and connections",
    (
        MetricDefinition(
            "longshare_refused_calls_total",
            "Calls and streams whose peer lacked the right, by that right.",
            _refused_calls,
            labels=("right",),
        ),
        MetricDefinition(
            "longshare_closed_connections_total",
            "Connections on the gRPC ports closed because they kept others out.",
            lambda grpc: grpc[1].closed,
        ),
    ),
)
STORE: MetricGroup[StoreStatistics] = MetricGroup(
    "The store of commitments",
    (
        MetricDefinition(
            "longshare_store_degraded",
            "Whether commitments are in memory alone, because saving failed.",
            lambda statistics: statistics.degraded,
            unit="0 or 1",
        ),
        MetricDefinition(
            "longshare_store_saves_total",
            "Saves of commitments.",
            lambda statistics: statistics.saves,
        ),
        MetricDefinition(
            "longshare_store_failures_total",
            "Failed saves.",
            lambda statistics: statistics.failures,
        ),
        MetricDefinition(
            "longshare_store_last_save_timestamp_seconds",
            "Time of the last save of commitments.",
            lambda statistics: statistics.last_save,
            unit="seconds since 1970",
        ),
    ),
    present="with a store",
)
RECORDER: MetricGroup[Recorder] = MetricGroup(
    "The recorder",
    (
        MetricDefinition(
            "longshare_recorder_failed",
            "Whether the recorder has ended, because its file could not be written.",
            lambda recorder: recorder.failed,
            unit="0 or 1",
        ),
    ),
    present="with a recorder",
)
EVENT_LOG: MetricGroup[EventLog] = MetricGroup(
    "The event log",
    (
        MetricDefinition(
            "longshare_event_log_failed",
            "Whether the event log has ended, because its file could not be written.",
            lambda event_log: event_log.failed,
            unit="0 or 1",
        ),
    ),
    present="with `--record`",
)
ACCOUNTING: MetricGroup[AccountingStatistics] = MetricGroup(
    "The accounting database",
    (
        MetricDefinition(
            "longshare_accounting_degraded",
            "Whether usage is counted in memory alone, because writing failed.",
            lambda statistics: statistics.degraded,
            unit="0 or 1",
        ),
        MetricDefinition(
            "longshare_accounting_writes_total",
            "Writes of users' usage.",
            lambda statistics: statistics.writes,
        ),
        MetricDefinition(
            "longshare_accounting_failures_total",
            "Failed writes.",
            lambda statistics: statistics.failures,
        ),
        MetricDefinition(
            "longshare_accounting_lost_total",
            "Hours of users lost, because writing failed for too long.",
            lambda statistics: statistics.lost,
        ),
        MetricDefinition(
            "longshare_accounting_overtaken_total",
            "Writes skipped, because another service had counted the same time.",
            lambda statistics: statistics.overtaken,
        ),
        MetricDefinition(
            "longshare_accounting_last_write_timestamp_seconds",
            "Time of the last write of users' usage.",
            lambda statistics: statistics.last_write,
            unit="seconds since 1970",
        ),
    ),
    present="with `[accounting]`",
)
SHADOWS: MetricGroup[Shadows] = MetricGroup(
    "Shadow policies",
    (
        MetricDefinition(
            "longshare_shadow_failed",
            "Whether a shadow was stopped because of an error.",
            lambda shadows: [
                ((follower.name,), bool(follower.failure)) for follower in shadows.followers
            ],
            labels=("shadow",),
            unit="0 or 1",
        ),
        MetricDefinition(
            "longshare_shadow_seconds_total",
            "Processor time of a shadow.",
            lambda shadows: [
                ((follower.name,), follower.seconds) for follower in shadows.followers
            ],
            labels=("shadow",),
            unit="seconds",
        ),
    ),
    present="with `[[shadow]]`",
)
GROUPS: tuple[MetricGroup[Any], ...] = (
    CLUSTER,
    MASTERS,
    LOOP,
    GRPC,
    STORE,
    RECORDER,
    EVENT_LOG,
    ACCOUNTING,
    SHADOWS,
)
"""All metrics that are not about single users, in the order of the page on metrics."""


def registry(
    engine: Engine,
    statistics: SessionStatistics,
    *,
    recorder: Recorder | None = None,
    event_log: EventLog | None = None,
    stored: StoreStatistics | None = None,
) -> CollectorRegistry:
    """Return a registry of the metrics that are not about single users.

    Args:
        engine: The engine to read.
        statistics: Statistics of the masters' sessions; the function sets their `observe` callback.
        recorder: The recorder; None for a service without a recorder.
        event_log: The event log; None for a service without an event log.
        stored: Statistics of the store; None for a service without a store.
    """
    metrics = CollectorRegistry()
    durations = Histogram(
        MESSAGE_DURATION.name,
        MESSAGE_DURATION.text,
        labelnames=MESSAGE_DURATION.labels,
        buckets=MESSAGE_DURATION.buckets,
        registry=metrics,
    )
    phases = cache(durations.labels)
    statistics.observe = lambda phase, seconds: phases(phase).observe(seconds)
    metrics.register(GroupCollector(CLUSTER, engine))
    metrics.register(GroupCollector(MASTERS, statistics))
    if recorder is not None:
        metrics.register(GroupCollector(RECORDER, recorder))
    if event_log is not None:
        metrics.register(GroupCollector(EVENT_LOG, event_log))
    if stored is not None:
        metrics.register(GroupCollector(STORE, stored))
    return metrics
