"""Metrics for Prometheus, read from the engine at each scrape, so that they match its state."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import get_args

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from allocator import __version__
from allocator.cluster.engine import Engine
from allocator.cluster.input.quarantine import Kind, Reason
from allocator.service.accounting.accountant import AccountingStatistics
from allocator.service.connections import Connections
from allocator.service.loop.loop_latency import BUDGET, LoopLatency
from allocator.service.masters.session import SessionStatistics
from allocator.service.record.event_log import EventLog
from allocator.service.rights import Right, Rights
from allocator.service.show.recorder import Recorder
from allocator.service.store.writer import StoreStatistics

_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


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
        "longshare_message_duration_seconds",
        "Time to apply a message and allocate (decide), and to hand over the decisions (write).",
        labelnames=["phase"],
        buckets=_BUCKETS,
        registry=metrics,
    )
    phases = cache(durations.labels)
    statistics.observe = lambda phase, seconds: phases(phase).observe(seconds)
    metrics.register(_EngineCollector(engine, statistics, recorder))
    if event_log is not None:
        failed = Gauge(
            "longshare_event_log_failed",
            "Whether the event log has ended, because its file could not be written.",
            registry=metrics,
        )
        failed.set_function(lambda: event_log.failed)
    if stored is not None:
        metrics.register(_StoreCollector(stored))
    return metrics


class _EngineCollector(Collector):
    def __init__(
        self, engine: Engine, statistics: SessionStatistics, recorder: Recorder | None
    ) -> None:
        self._engine = engine
        self._statistics = statistics
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        build = {"version": __version__, "policy": self._engine.pool.policy.name}
        yield InfoMetricFamily("longshare_build", "Version and policy of the service.", value=build)
        yield from self._cluster()
        yield from self._session()
        if self._recorder is not None:
            yield GaugeMetricFamily(
                "longshare_recorder_failed",
                "Whether the recorder has ended, because its file could not be written.",
                value=self._recorder.failed,
            )

    def _cluster(self) -> Iterator[Metric]:
        engine = self._engine
        capacity = GaugeMetricFamily(
            "longshare_capacity",
            "Total of all agents, in the units Mesos counts the resource in.",
            labels=["resource"],
        )
        for name, amount in engine.pool.capacity.to_doubles().items():
            capacity.add_metric([name], amount)
        yield capacity
        gauges = {
            "agents": ("Agents known.", engine.agents),
            "frameworks": ("Frameworks known.", engine.frameworks),
            "misfit_frameworks": (
                "Frameworks that no agent suits, or whose labels cannot be read or are not known.",
                len(engine.misfits()),
            ),
            "offer_filters": ("Offer filters in force.", engine.filters),
            "live_tree_elements": ("Users that are ranked.", engine.pool.active),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"longshare_{name}", text, value=value)
        yield from self._roles()
        yield self._set_aside()
        upcoming = next(engine.pool.crossings(), None)
        yield _optional(
            "longshare_live_tree_next_crossing_timestamp_seconds",
            "Master's time at which two users may next change places.",
            None if upcoming is None else upcoming.when,
        )
        counts = engine.statistics
        counters = {
            "live_tree_events": ("Position changes processed as time passed.", engine.pool.events),
            "events": ("Events applied.", counts.events),
            "allocation_runs": ("Allocation cycles.", counts.runs),
            "candidates": ("Agents considered in allocation cycles.", counts.candidates),
            "offers": ("Offers made, one for each role and agent.", counts.offers),
            "inverse_offers": ("Inverse offers made.", counts.inverse_offers),
            "clamped_events": ("Recoveries of more resources than were allocated.", counts.clamped),
            "ignored_events": ("Calls about removed agents or frameworks.", counts.ignored),
            "rejected_offers": ("Offers that the master's side rejected.", counts.rejected),
            "early_stamps": (
                "Events with an earlier time than a previous event.",
                counts.early_stamps,
            ),
            "snapshots": ("Snapshots restored.", counts.snapshots),
            "passed_over_calls": (
                "Calls that contradicted the known state and were skipped.",
                counts.passed_over,
            ),
            "holds": ("Agents that were held for a client.", counts.holds.begun),
            "holds_served": (
                "Holds that ended with an offer to their client.",
                counts.holds.served,
            ),
            "holds_in_vain": (
                "Holds that ended because they lasted too long.",
                counts.holds.in_vain,
            ),
            "faults": (
                "Errors in the allocator itself; each cost one call or cycle.",
                counts.faults,
            ),
            "policy_faults": (
                "Priorities that a plugin policy failed to calculate; the user came last instead.",
                engine.settings.policy.faults.count,
            ),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"longshare_{name}", text, value=value)

    def _set_aside(self) -> Metric:
        family = GaugeMetricFamily(
            "longshare_set_aside",
            "Rejected input, by kind of source and reason.",
            labels=["kind", "reason"],
        )
        counts = Counter(dict.fromkeys(product(get_args(Kind), get_args(Reason)), 0))
        counts.update(
            (rejected.kind, rejected.flaw.reason) for rejected in self._engine.rejected_inputs()
        )
        for labels, number in sorted(counts.items()):
            family.add_metric(list(labels), number)
        return family

    def _roles(self) -> Iterator[Metric]:
        guarantee = GaugeMetricFamily(
            "longshare_quota_guarantee",
            "Guarantee of a role, in the units in which Mesos counts the resource.",
            labels=["role", "resource"],
        )
        consumed = GaugeMetricFamily(
            "longshare_quota_consumed",
            "Resources that count against a role's quota: its reservations and allocation.",
            labels=["role", "resource"],
        )
        limit = GaugeMetricFamily(
            "longshare_quota_limit",
            "Limit of a role, in the units in which Mesos counts the resource.",
            labels=["role", "resource"],
        )
        for role, (quota, counted) in self._engine.quotas().items():
            for name, amount in quota.guarantees.to_doubles().items():
                guarantee.add_metric([role, name], amount)
            for name, milli in quota.shown_limits.items():
                limit.add_metric([role, name], milli / 1000)
            for name in dict.fromkeys((*quota.guarantees, *quota.shown_limits)):
                consumed.add_metric([role, name], counted[name] / 1000)
        yield from (guarantee, limit, consumed)

    def _session(self) -> Iterator[Metric]:
        statistics = self._statistics
        yield GaugeMetricFamily(
            "longshare_session_connected",
            "Whether a leading master is connected.",
            value=statistics.connected,
        )
        yield GaugeMetricFamily(
            "longshare_standby_sessions",
            "Connected masters that do not lead.",
            value=statistics.standby,
        )
        yield GaugeMetricFamily(
            "longshare_session_lag_seconds",
            "Time from reading the latest message to having handed over its decisions.",
            value=statistics.lag,
        )
        yield CounterMetricFamily(
            "longshare_sessions", "Sessions opened.", value=statistics.sessions
        )
        yield CounterMetricFamily(
            "longshare_resyncs", "Snapshots requested from masters.", value=statistics.resyncs
        )
        yield CounterMetricFamily(
            "longshare_bounded_stamps",
            "Times of a master's clock that were bounded, because they were implausible.",
            value=statistics.bounded_stamps,
        )


class LoopCollector(Collector):
    """Metrics of event-loop latency: how long a callback keeps the loop from other work."""

    def __init__(self, latency: LoopLatency) -> None:
        self._latency = latency

    def collect(self) -> Iterator[Metric]:
        """Yield the present values of the metrics."""
        yield GaugeMetricFamily(
            "longshare_loop_longest_pause_seconds",
            "Longest time that the event loop worked without a pause, in the last minute or two.",
            value=self._latency.longest,
        )
        yield CounterMetricFamily(
            "longshare_loop_long_pauses",
            f"Times that the event loop worked over {1000 * BUDGET:.0f} ms without a pause.",
            value=self._latency.long,
        )


class RefusalCollector(Collector):
    """Metrics of refused gRPC calls, and of connections closed because they kept others out."""

    def __init__(self, rights: Rights, connections: Connections) -> None:
        self._rights = rights
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        """Yield the present values of the metric."""
        refused = CounterMetricFamily(
            "longshare_refused_calls",
            "Calls and streams whose peer lacked the right, by that right.",
            labels=["right"],
        )
        for right in get_args(Right):
            refused.add_metric([right], self._rights.refused[right])
        yield refused
        yield CounterMetricFamily(
            "longshare_closed_connections",
            "Connections on the gRPC ports closed because they kept others out.",
            value=self._connections.closed,
        )


class AccountingCollector(Collector):
    """Metrics of the writes to the accounting database."""

    def __init__(self, statistics: AccountingStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """Yield the present values of the metrics."""
        statistics = self._statistics
        yield GaugeMetricFamily(
            "longshare_accounting_degraded",
            "Whether usage is counted in memory alone, because writing failed.",
            value=statistics.degraded,
        )
        for name, text, value in (
            ("writes", "Writes of users' usage.", statistics.writes),
            ("failures", "Failed writes.", statistics.failures),
            ("lost", "Hours of users lost, because writing failed for too long.", statistics.lost),
            (
                "overtaken",
                "Writes skipped, because another service had counted.",
                statistics.overtaken,
            ),
        ):
            yield CounterMetricFamily(f"longshare_accounting_{name}", text, value=value)
        yield _optional(
            "longshare_accounting_last_write_timestamp_seconds",
            "Time of the last write of users' usage.",
            statistics.last_write,
        )


class _StoreCollector(Collector):
    def __init__(self, statistics: StoreStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        statistics = self._statistics
        yield GaugeMetricFamily(
            "longshare_store_degraded",
            "Whether commitments are in memory alone, because saving failed.",
            value=statistics.degraded,
        )
        yield CounterMetricFamily(
            "longshare_store_saves", "Saves of commitments.", value=statistics.saves
        )
        yield CounterMetricFamily(
            "longshare_store_failures", "Failed saves.", value=statistics.failures
        )
        yield _optional(
            "longshare_store_last_save_timestamp_seconds",
            "Time of the last save of commitments.",
            statistics.last_save,
        )


def _optional(name: str, text: str, value: float | None) -> Metric:
    """Return a gauge that has a sample only if there is a value."""
    family = GaugeMetricFamily(name, text, labels=())
    if value is not None:
        family.add_metric((), value)
    return family
