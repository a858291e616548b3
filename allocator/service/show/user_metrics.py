"""Metrics of users and roles for Prometheus, written in cooperative steps.

Writing takes long, because there may be thousands of users and roles.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocator.cluster.engine import Engine
from allocator.fairness.metering import HourlyUsage, Integrals
from allocator.service.accounting.accountant import Accountant
from allocator.service.loop.cooperative import Work
from allocator.service.show.label_limiter import LabelLimiter
from allocator.service.show.shadows import Shadows
from allocator.service.show.shares import UserShare, read_shares
from allocator.service.show.wait_reasons import Waits

LONGEST = 200
"""Maximum length of a label value, in characters; a longer name is cut, and a hash is appended."""
_AT_ONCE = 50
"""Number of samples written in one step."""

Sample = tuple[tuple[str, ...], float]
"""Label values of a metric's sample, and the sample's value."""


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[UserShare], Iterable[Sample]]


def _of_user(name: str, text: str, value: Callable[[UserShare], float | None]) -> _Family:
    def samples(row: UserShare) -> Iterator[Sample]:
        number = value(row)
        if number is not None:
            yield (row.user,), number

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
        "Entitlement of a user by its weight, as a fraction of the cluster.",
        lambda row: row.standing.entitlement,
    ),
    _of_user(
        "priority",
        "Priority of a user; the user with the lowest is next.",
        lambda row: row.standing.priority,
    ),
    _of_user("rank", "Rank of a user by priority, from 1.", lambda row: row.rank),
    _of_user("dominant_share_ratio", "Largest share of a user.", lambda row: row.standing.share),
    _of_user(
        "dominant_commitment_ratio",
        "Largest commitment of a user.",
        lambda row: row.dominant_commitment,
    ),
    _of_user(
        "shortfall_ratio",
        "Entitlement minus share of a user that wants offers, at least 0.",
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
        "Allocation of a user as a fraction of the cluster.",
        lambda row: ((name, holding.share) for name, holding in row.holdings.items()),
    ),
    _of_resources(
        "commitment_ratio",
        "Commitment of a user for past over-use, as a fraction of the cluster.",
        lambda row: row.standing.commitments.items(),
    ),
    _of_resources(
        "offered",
        "Part of a user's allocation that is offered but not used, if the master reports it.",
        lambda row: ((name, holding.offered) for name, holding in row.holdings.items()),
    ),
)

_FILTERS = partial(
    GaugeMetricFamily,
    "longshare_role_offer_filters",
    "Offer filters in force, by the role that declined.",
    labels=("role",),
)
_UNLISTED = partial(
    GaugeMetricFamily,
    "longshare_unlisted_users",
    "Users without metrics of their own, because of the limit metrics.users.",
    labels=(),
)
_WAITING = partial(
    GaugeMetricFamily,
    "longshare_waiting_frameworks",
    "Waiting frameworks, each in each of its roles, by reason.",
    labels=("reason",),
)
_TAKES_NOTHING = partial(
    GaugeMetricFamily,
    "longshare_user_takes_nothing",
    "1 for a user that wants offers, but no agent could serve it or it declines all offers.",
    labels=("user", "why"),
)
_WAITED = partial(
    CounterMetricFamily,
    "longshare_user_waited_seconds",
    "Time in which a user got nothing more, by reason.",
    labels=("user", "reason"),
)
_SHADOW_TURN = partial(
    GaugeMetricFamily,
    "longshare_shadow_turn",
    "Place among the users that want offers, in the order of a shadow; 0: wants no offers.",
    labels=("shadow", "user"),
)
_SHADOW_GAIN = partial(
    GaugeMetricFamily,
    "longshare_shadow_gain_seconds",
    "Whole cluster × seconds that a user would have had more under a shadow.",
    labels=("shadow", "user"),
)


_OF_RESOURCES: dict[str, tuple[str, Callable[[Integrals], float]]] = {
    "held_resource_seconds": ("Resources held × time.", lambda each: each.held),
    "overused_resource_seconds": (
        "Resources held beyond the entitlement × time.",
        lambda each: each.overused,
    ),
    "owed_resource_seconds": ("Commitment × capacity × time.", lambda each: each.owed),
}
_OF_TALLIES: dict[str, tuple[str, Callable[[HourlyUsage], float]]] = {
    "offers": ("Offers made to a user.", lambda tally: tally.offers),
    "refused_offers": ("Offers declined with a filter.", lambda tally: tally.refused),
    "wanted_seconds": ("Time in which a user wanted offers.", lambda tally: tally.wanted),
    "lacked_seconds": (
        "Time in which a user wanted offers with a share below its entitlement.",
        lambda tally: tally.waited,
    ),
}


def families() -> Iterator[Metric]:
    """Yield every metric of users and roles that `exposition` writes, without samples."""
    for family in (_FILTERS, _WAITING, _UNLISTED, _WAITED, _TAKES_NOTHING):
        yield family()
    for name in _OF_RESOURCES:
        yield _of_resource_use(name)
    for name in _OF_TALLIES:
        yield _of_tally(name)
    yield from (_SHADOW_TURN(), _SHADOW_GAIN())
    for described in _FAMILIES:
        yield GaugeMetricFamily(described.name, described.text, labels=described.labels)


def _of_resource_use(name: str) -> CounterMetricFamily:
    """Return a counter in `_OF_RESOURCES`, without samples."""
    text, _ = _OF_RESOURCES[name]
    return CounterMetricFamily(f"longshare_user_{name}", text, labels=("user", "resource"))


def _of_tally(name: str) -> CounterMetricFamily:
    """Return a counter in `_OF_TALLIES`, without samples."""
    text, _ = _OF_TALLIES[name]
    return CounterMetricFamily(f"longshare_user_{name}", text, labels=("user",))


class _Only(Collector):
    """Adapter that lets `generate_latest` write a single metric family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def exposition(  # noqa: PLR0913 - every source of metrics
    engine: Engine,
    registry: CollectorRegistry,
    waits: Waits,
    shadows: Shadows,
    accountant: Accountant | None = None,
    *,
    listed: LabelLimiter,
    listed_roles: LabelLimiter,
) -> Work[bytes]:
    """Write all metrics in Prometheus's text format: those of a registry, of users, and of roles.

    Metrics are written for a limited number of users and roles, because frameworks may register
    thousands of roles. Users with the largest shares and commitments are selected first, then users
    that have been known longest.

    Args:
        engine: The engine to read.
        registry: Metrics that are not about single users.
        waits: Waiting times of users, by reason.
        shadows: Shadow policies.
        accountant: Source of the users' usage; None without accounting.
        listed: Selects the users whose metrics are written.
        listed_roles: Selects the roles whose metrics are written.
    """
    parts = [generate_latest(registry)]
    yield
    filters = engine.filters_by_role()
    roles = listed_roles.among(sorted(filters, key=filters.__getitem__, reverse=True))
    yield from _append_family(_FILTERS, (((role,), filters[role]) for role in roles), parts)
    waiting = waits.clients().items()
    yield from _append_family(_WAITING, (((reason,), number) for reason, number in waiting), parts)
    known = list(engine.pool.users())
    read = yield from read_shares(engine, known)
    row_of = {row.user: row for row in read}
    all_rows = [row_of[user] for user in known if user in row_of]
    all_rows.sort(key=lambda row: max(row.standing.share, row.dominant_commitment), reverse=True)
    users = listed.among(row.user for row in all_rows)
    rows = [row_of[user] for user in users]
    yield from _append_family(_UNLISTED, iter([((), len(all_rows) - len(rows))]), parts)
    waited = (
        ((user, reason), seconds)
        for user in users
        for reason, seconds in list(waits.seconds(user).items())
    )
    yield from _append_family(_WAITED, waited, parts)
    takers = ((user, waits.takes_nothing(user)) for user in users)
    nothing = (((user, why), 1.0) for user, why in takers if why is not None)
    yield from _append_family(_TAKES_NOTHING, nothing, parts)
    if accountant is not None:
        totals = [(user, accountant.totals[user]) for user in users if user in accountant.totals]
        yield from _accounts(totals, parts)
    yield from _of_shadows(engine, shadows, frozenset(users), parts)
    for family in _FAMILIES:
        samples = (sample for row in rows for sample in family.samples(row))
        yield from _append_family(
            partial(GaugeMetricFamily, family.name, family.text, labels=family.labels),
            samples,
            parts,
        )
    return b"".join(parts)


def _of_shadows(
    engine: Engine, shadows: Shadows, users: Container[str], parts: list[bytes]
) -> Work[None]:
    """Append two metrics of users under each shadow policy to the output, in cooperative steps.

    The first is the user's position in the policy's order. The second is how much more the user
    would have used under the policy.

    Args:
        engine: The engine to read.
        shadows: The shadow policies.
        users: Users whose metrics are written.
        parts: Output so far, in Prometheus's text format.
    """
    differences = []
    for follower in shadows.followers:
        shadow_differences = yield from shadows.compare(engine, follower)
        differences += [
            (follower.name, difference)
            for difference in shadow_differences
            if difference.user in users
        ]
    if shadows.followers:
        turns = (
            ((name, difference.user), float(difference.shadow_turn))
            for name, difference in differences
        )
        yield from _append_family(_SHADOW_TURN, turns, parts)
        gains = (((name, difference.user), difference.gain) for name, difference in differences)
        yield from _append_family(_SHADOW_GAIN, gains, parts)


def _accounts(totals: list[tuple[str, HourlyUsage]], parts: list[bytes]) -> Work[None]:
    """Append metrics of the users' usage since the service began, in cooperative steps.

    Args:
        totals: Users with their usage.
        parts: Output so far, in Prometheus's text format.
    """
    for name, (_, of_resource) in _OF_RESOURCES.items():
        samples = (
            ((user, resource), of_resource(integrals) / 1000)
            for user, tally in totals
            for resource, integrals in tally.resources.items()
        )
        yield from _append_family(partial(_of_resource_use, name), samples, parts)
    for name, (_, of_tally) in _OF_TALLIES.items():
        yield from _append_family(
            partial(_of_tally, name),
            (((user,), of_tally(tally)) for user, tally in totals),
            parts,
        )


def _append_family(
    family: Callable[[], GaugeMetricFamily | CounterMetricFamily],
    samples: Iterator[Sample],
    parts: list[bytes],
) -> Work[None]:
    """Append the text of a metric family to the output, in cooperative steps.

    Args:
        family: Returns a new family without samples.
        samples: The samples of the family.
        parts: Output so far, in Prometheus's text format.
    """
    headed = False
    while (batch := list(islice(samples, _AT_ONCE))) or not headed:
        batch_family = family()
        for values, value in batch:
            batch_family.add_metric(list(map(_label, values)), value)
        collector: Any = _Only(batch_family)  # of a registry, only `collect` is called here
        written = generate_latest(collector)
        parts.append(
            written.split(b"\n", 2)[2] if headed else written
        )  # HELP and TYPE lines are written once
        headed = True
        yield


def _label(name: str) -> str:
    """Return a name as a label value: a long name is cut, and a hash is appended."""
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}…{sha256(name.encode()).hexdigest()[:16]}"
