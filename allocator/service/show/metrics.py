"""Metrics for Prometheus of any scheduler, read at each scrape, so that they match the state."""

from collections.abc import Iterator
from typing import Any, Protocol, get_args

from allocator import __version__, build
from allocator.fairness.pool import Pool
from allocator.service.accounting.accountant import AccountingStatistics
from allocator.service.connections import Connections
from allocator.service.loop.loop_latency import BUDGET, LoopLatency
from allocator.service.rights import Right, Rights
from allocator.service.show.guard import Guard
from allocator.service.show.metric_definitions import MetricDefinition, MetricGroup, Sample
from allocator.service.show.recorder import Recorder
from allocator.service.show.shadows import Shadows
from allocator.service.store.writer import StoreStatistics


class PoolOwner(Protocol):
    """An object with the pool of the top-level users. A snapshot may replace the pool."""

    @property
    def pool(self) -> Pool[str]:
        """The present pool."""


def _capacity(owner: PoolOwner) -> Iterator[Sample]:
    for name, amount in owner.pool.capacity.to_doubles().items():
        yield (name,), amount


def _next_crossing(owner: PoolOwner) -> float | None:
    crossing = next(owner.pool.crossings(), None)
    return None if crossing is None else crossing.when


def _refused_calls(grpc: tuple[Rights, Connections]) -> Iterator[Sample]:
    rights, _ = grpc
    for right in get_args(Right):
        yield (right,), rights.refused[right]


POOL: MetricGroup[PoolOwner] = MetricGroup(
    "The service and the order of its users",
    (
        MetricDefinition(
            "longshare_build_info",
            "Version, build (`compiled` or `pure`) and policy of the service; the value is 1.",
            lambda owner: [((__version__, build(), owner.pool.policy.name), 1)],
            labels=("version", "build", "policy"),
        ),
        MetricDefinition(
            "longshare_capacity",
            "Total of all machines.",
            _capacity,
            labels=("resource",),
            unit="amount",
        ),
        MetricDefinition(
            "longshare_live_tree_elements",
            "Users that the policy ranks.",
            lambda owner: owner.pool.active,
        ),
        MetricDefinition(
            "longshare_live_tree_events_total",
            "Position changes processed as time passed.",
            lambda owner: owner.pool.events,
        ),
        MetricDefinition(
            "longshare_live_tree_next_crossing_timestamp_seconds",
            "Scheduler's time at which two users may next change places.",
            _next_crossing,
            unit="seconds since 1970",
        ),
        MetricDefinition(
            "longshare_policy_faults_total",
            "Priorities that a plugin policy failed to calculate; the user came last instead.",
            lambda owner: owner.pool.policy.faults.count,
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
HTTP: MetricGroup[Guard] = MetricGroup(
    "The HTTP port",
    (
        MetricDefinition(
            "longshare_closed_http_connections_total",
            "Connections closed because there were too many, or too many unread bytes.",
            lambda guard: guard.closed,
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
            "longshare_store_users_left_out",
            "Users whose commitments the latest save left out, because the store has no room.",
            lambda statistics: statistics.left_out,
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
    POOL,
    LOOP,
    GRPC,
    HTTP,
    STORE,
    RECORDER,
    ACCOUNTING,
    SHADOWS,
)
"""All metrics of this module, in the order of the page on metrics."""
