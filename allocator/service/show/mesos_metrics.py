"""Metrics of a Mesos engine and its masters' sessions, read at each scrape."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, product
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

from allocator.cluster.engine import Engine
from allocator.cluster.input.quarantine import Kind, Reason
from allocator.cluster.quota import Quota
from allocator.service.masters.session import SessionStatistics
from allocator.service.record.event_log import EventLog
from allocator.service.show.metric_definitions import (
    MetricDefinition,
    MetricGroup,
    Sample,
    register,
)

_MOST_WAITING = 256
"""Durations of a processing step that wait to be counted, at most."""


def _rejected_inputs(engine: Engine) -> Iterator[Sample]:
    counts = Counter(dict.fromkeys(product(get_args(Kind), get_args(Reason)), 0))
    counts.update((rejected.kind, rejected.flaw.reason) for rejected in engine.rejected_inputs())
    yield from sorted(counts.items())


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


CLUSTER: MetricGroup[Engine] = MetricGroup(
    "The Mesos cluster and its allocation cycles",
    (
        MetricDefinition("longshare_agents", "Agents known.", lambda engine: engine.agents),
        MetricDefinition(
            "longshare_frameworks", "Frameworks known.", lambda engine: engine.frameworks
        ),
        MetricDefinition(
            "longshare_misfit_frameworks",
            "Frameworks whose constraint or task fits no agent, or whose labels are unreadable.",
            lambda engine: engine.number_of_misfits(),
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


class MessageDurations(Collector):
    """Histogram of the durations of each processing step of messages.

    The library's histogram makes six calls for each value, and takes two locks. This one counts
    durations together, once `_MOST_WAITING` wait or the metrics are read.
    """

    def __init__(self) -> None:
        self._waiting: defaultdict[str, list[float]] = defaultdict(list)
        """Processing step → durations that have not been counted, in seconds."""
        self._counts: dict[str, list[int]] = {}
        """Processing step → number of durations in each bucket; the last bucket has no bound."""
        self._sums: dict[str, float] = {}
        """Processing step → sum of its durations, in seconds."""

    def observe(self, phase: str, seconds: float) -> None:
        """Count the duration of a processing step, "decide" or "write"."""
        waiting = self._waiting[phase]
        waiting.append(seconds)
        if len(waiting) >= _MOST_WAITING:
            self._count(phase, waiting)

    def _count(self, phase: str, waiting: list[float]) -> None:
        """Count durations of a processing step, and remove them from the list."""
        counts = self._counts.setdefault(phase, [0] * (len(MESSAGE_DURATION.buckets) + 1))
        self._sums[phase] = sum(waiting, self._sums.get(phase, 0.0))
        waiting.sort()
        below = 0
        for bucket, bound in enumerate(MESSAGE_DURATION.buckets):
            until = bisect_right(waiting, bound)
            counts[bucket] += until - below
            below = until
        counts[-1] += len(waiting) - below
        waiting.clear()

    @override
    def collect(self) -> Iterator[Metric]:
        name, text = MESSAGE_DURATION.name, MESSAGE_DURATION.text
        family = HistogramMetricFamily(name, text, labels=MESSAGE_DURATION.labels)
        bounds = [*map(floatToGoString, MESSAGE_DURATION.buckets), "+Inf"]
        for phase, waiting in list(self._waiting.items()):
            self._count(phase, waiting)
        for phase, counts in list(self._counts.items()):
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric((phase,), buckets, self._sums[phase])
        yield family


GROUPS: tuple[MetricGroup[Any], ...] = (CLUSTER, MASTERS, EVENT_LOG)
"""All metrics of this module, in the order of the page on metrics."""


def registry(
    engine: Engine, statistics: SessionStatistics, *, event_log: EventLog | None = None
) -> CollectorRegistry:
    """Return a registry of the metrics of the engine and its masters.

    Args:
        engine: The engine to read.
        statistics: Statistics of the masters' sessions; the function sets their `observe` callback.
        event_log: The event log; None for a service without an event log.
    """
    metrics = CollectorRegistry()
    durations = MessageDurations()
    metrics.register(durations)
    statistics.observe = durations.observe
    register(metrics, (CLUSTER, engine), (MASTERS, statistics), (EVENT_LOG, event_log))
    return metrics
