"""What Prometheus sees of users and roles, of whom there may be thousands: made in slices."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocator.cluster.engine import Engine
from allocator.service.loop.slices import Work
from allocator.service.show.shares import UserShare, reading
from allocator.service.show.waits import Waits

_AT_ONCE = 50
"""Samples that are written without a pause."""

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and of the metric."""


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[UserShare], Iterable[Sample]]


def _of_user(name: str, text: str, value: Callable[[UserShare], float | None]) -> _Family:
    def samples(row: UserShare) -> Iterator[Sample]:
        found = value(row)
        if found is not None:
            yield (row.user,), found

    return _Family(f"longshare_user_{name}", text, ("user",), samples)


def _of_resources(
    name: str, text: str, values: Callable[[UserShare], Iterable[tuple[str, float | None]]]
) -> _Family:
    def samples(row: UserShare) -> Iterator[Sample]:
        for resource, value in values(row):
            if value is not None:
                yield (row.user, resource), value

    return _Family(f"longshare_user_{name}", text, ("user", "resource"), samples)


_FAMILIES = (
    _of_user("weight", "Weight of a user.", lambda row: row.standing.weight),
    _of_user(
        "entitlement_ratio",
        "What a user is entitled to by its weight, as a fraction of the cluster.",
        lambda row: row.standing.entitlement,
    ),
    _of_user(
        "priority",
        "Priority value of a user; the lowest is next.",
        lambda row: row.standing.priority,
    ),
    _of_user("rank", "Place of a user in the order of priority, from 1.", lambda row: row.rank),
    _of_user("dominant_share_ratio", "Largest share of a user.", lambda row: row.standing.share),
    _of_user(
        "dominant_commitment_ratio",
        "Largest commitment of a user.",
        lambda row: row.owed,
    ),
    _of_user(
        "shortfall_ratio",
        "What a user that wants offers lacks to its entitlement.",
        lambda row: row.shortfall,
    ),
    _of_user(
        "task_share_ratio",
        "Tasks a user holds as a fraction of those it could run alone, without constraints.",
        lambda row: row.standing.task_share,
    ),
    _of_resources(
        "allocation",
        "Offered to or used by a user, in the units Mesos counts the resource in.",
        lambda row: ((name, holding.allocation) for name, holding in row.holdings.items()),
    ),
    _of_resources(
        "share_ratio",
        "What a user holds as a fraction of the cluster.",
        lambda row: ((name, holding.share) for name, holding in row.holdings.items()),
    ),
    _of_resources(
        "commitment_ratio",
        "What a user owes for past over-use, as a fraction of the cluster.",
        lambda row: row.standing.commitments.items(),
    ),
    _of_resources(
        "offered",
        "The part of a user's allocation that is offered and not running, if the master tells.",
        lambda row: ((name, holding.offered) for name, holding in row.holdings.items()),
    ),
)

_FILTERS = partial(
    GaugeMetricFamily,
    "longshare_role_offer_filters",
    "Offer filters in force, by the role that refused.",
    labels=("role",),
)
_WAITING = partial(
    GaugeMetricFamily,
    "longshare_waiting_frameworks",
    "Frameworks, each in each of its roles, by what keeps them from more than they hold.",
    labels=("reason",),
)
_WAITED = partial(
    CounterMetricFamily,
    "longshare_user_waited_seconds",
    "Time in which a user got nothing more than it held, by what kept it from that.",
    labels=("user", "reason"),
)


class _Only(Collector):
    """A single family, as the library wants it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def exposition(engine: Engine, registry: CollectorRegistry, waits: Waits) -> Work[bytes]:
    """Write everything that Prometheus sees: of a registry, and of users and roles."""
    parts = [generate_latest(registry)]
    yield
    counts = engine.filters_by_role()
    yield from _written(_FILTERS, (((role,), count) for role, count in counts.items()), parts)
    waiting = waits.clients().items()
    yield from _written(_WAITING, (((reason,), number) for reason, number in waiting), parts)
    users = list(engine.pool.users())
    waited = (
        ((user, reason), seconds)
        for user in users
        for reason, seconds in list(waits.seconds(user).items())
    )
    yield from _written(_WAITED, waited, parts)
    rows = yield from reading(engine, users)
    for family in _FAMILIES:
        samples = (sample for row in rows for sample in family.samples(row))
        yield from _written(
            partial(GaugeMetricFamily, family.name, family.text, labels=family.labels),
            samples,
            parts,
        )
    return b"".join(parts)


def _written(
    family: Callable[[], GaugeMetricFamily | CounterMetricFamily],
    samples: Iterator[Sample],
    parts: list[bytes],
) -> Work[None]:
    """Append a family to what has been written."""
    headed = False
    while (some := list(islice(samples, _AT_ONCE))) or not headed:
        made = family()
        for values, value in some:
            made.add_metric(values, value)
        only: Any = _Only(made)  # all that is asked of a registry here is to collect
        written = generate_latest(only)
        parts.append(written.split(b"\n", 2)[2] if headed else written)  # its HELP and TYPE, once
        headed = True
        yield
