"""Metrics of users and roles for Prometheus, written in cooperative steps.

Writing takes long, because there may be thousands of users and roles.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from hashlib import sha256
from itertools import chain, islice
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from allocator.fairness.metering import HourlyUsage, Integrals
from allocator.service.accounting.accountant import Accountant
from allocator.service.loop.cooperative import Work
from allocator.service.show.label_limiter import LabelLimiter
from allocator.service.show.metric_definitions import (
    MetricDefinition,
    MetricGroup,
    Sample,
    SourceT,
)
from allocator.service.show.shadows import Shadows
from allocator.service.show.shares import Holding, UserShare, read_shares
from allocator.service.show.wait_reasons import Waits
from allocator.users.adapter import SchedulerAdapter

LONGEST = 200
"""Maximum length of a label value, in characters; a longer name is cut, and a hash is appended."""
_AT_ONCE = 50
"""Number of samples written in one step."""

_Usage: TypeAlias = tuple[str, HourlyUsage]
"""A user with its usage since the service began."""


def _holdings(value: Callable[[Holding], float | None]) -> Callable[[UserShare], Iterator[Sample]]:
    """Return a function that reads one metric of the resources that a user holds."""

    def samples(row: UserShare) -> Iterator[Sample]:
        for name, holding in row.holdings.items():
            number = value(holding)
            if number is not None:
                yield (row.user, name), number

    return samples


def _of_user(value: Callable[[UserShare], float | None]) -> Callable[[UserShare], Iterator[Sample]]:
    """Return a function that reads one metric of a user; a value of None yields no sample."""

    def samples(row: UserShare) -> Iterator[Sample]:
        number = value(row)
        if number is not None:
            yield (row.user,), number

    return samples


def _commitments(row: UserShare) -> Iterator[Sample]:
    for name, commitment in row.standing.commitments.items():
        yield (row.user, name), commitment


_USER = ("user",)
_USER_RESOURCE = ("user", "resource")

SHARES: MetricGroup[UserShare] = MetricGroup(
    "Shares and commitments of users",
    (
        MetricDefinition(
            "longshare_user_weight",
            "Weight of a user.",
            _of_user(lambda row: row.standing.weight),
            _USER,
        ),
        MetricDefinition(
            "longshare_user_entitlement_ratio",
            "Entitlement of a user by its weight, as a fraction of the cluster.",
            _of_user(lambda row: row.standing.entitlement),
            _USER,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_priority",
            "Priority of a user; the user with the lowest is next.",
            _of_user(lambda row: row.standing.priority),
            _USER,
        ),
        MetricDefinition(
            "longshare_user_rank",
            "Rank of a user by priority, from 1.",
            _of_user(lambda row: row.rank),
            _USER,
        ),
        MetricDefinition(
            "longshare_user_dominant_share_ratio",
            "Largest share of a user.",
            _of_user(lambda row: row.standing.share),
            _USER,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_dominant_commitment_ratio",
            "Largest commitment of a user.",
            _of_user(lambda row: row.dominant_commitment),
            _USER,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_shortfall_ratio",
            "Entitlement minus share of a user that wants offers, at least 0.",
            _of_user(lambda row: row.shortfall),
            _USER,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_task_share_ratio",
            "Tasks a user holds as a fraction of those it could run alone, without constraints; "
            "under policies that count tasks.",
            _of_user(lambda row: row.standing.task_share),
            _USER,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_allocation",
            "Offered to or used by a user.",
            _holdings(lambda holding: holding.allocation),
            _USER_RESOURCE,
            "amount",
        ),
        MetricDefinition(
            "longshare_user_share_ratio",
            "Allocation of a user as a fraction of the cluster.",
            _holdings(lambda holding: holding.share),
            _USER_RESOURCE,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_commitment_ratio",
            "Commitment of a user for past over-use, as a fraction of the cluster.",
            _commitments,
            _USER_RESOURCE,
            "fraction",
        ),
        MetricDefinition(
            "longshare_user_offered",
            "Part of a user's allocation that is offered but not used, if the master reports it.",
            _holdings(lambda holding: holding.offered),
            _USER_RESOURCE,
            "amount",
        ),
    ),
)

_UNLISTED: MetricDefinition[None] = MetricDefinition(
    "longshare_unlisted_users",
    "Users without metrics of their own, because of the limit metrics.users.",
)
_WAITING: MetricDefinition[None] = MetricDefinition(
    "longshare_waiting_frameworks",
    "Waiting frameworks, each in each of its roles, by reason.",
    labels=("reason",),
)
_TAKES_NOTHING: MetricDefinition[None] = MetricDefinition(
    "longshare_user_takes_nothing",
    "1 for a user that wants offers, but no agent could serve it or it declines all offers.",
    labels=("user", "why"),
    unit="0 or 1",
)
_WAITED: MetricDefinition[None] = MetricDefinition(
    "longshare_user_waited_seconds_total",
    "Time in which a user got nothing more, by reason.",
    labels=("user", "reason"),
    unit="seconds",
)
WAITING: MetricGroup[None] = MetricGroup(
    "Waiting users and frameworks",
    (_WAITING, _WAITED, _TAKES_NOTHING, _UNLISTED),
)


def _by_role(
    values: Callable[[SchedulerAdapter], Mapping[str, float]],
) -> Callable[[SchedulerAdapter], Iterator[Sample]]:
    """Return a function that reads one metric of each role."""
    return lambda adapter: (((role,), value) for role, value in values(adapter).items())


ROLES: MetricGroup[SchedulerAdapter] = MetricGroup(
    "Roles",
    (
        MetricDefinition(
            "longshare_role_offer_filters",
            "Offer filters in force, by the role that declined.",
            _by_role(lambda adapter: adapter.filters_by_role()),
            ("role",),
        ),
    ),
)
"""Metrics with the label `role` alone. `metrics.users` limits how many roles they have together."""

_SHADOW_TURN: MetricDefinition[None] = MetricDefinition(
    "longshare_shadow_turn",
    "Place among the users that want offers, in the order of a shadow; 0: wants no offers.",
    labels=("shadow", "user"),
)
_SHADOW_GAIN: MetricDefinition[None] = MetricDefinition(
    "longshare_shadow_gain_seconds",
    "Whole cluster × seconds that a user would have had more under a shadow.",
    labels=("shadow", "user"),
    unit="seconds",
)
SHADOW_USERS: MetricGroup[None] = MetricGroup(
    "Users under shadow policies", (_SHADOW_TURN, _SHADOW_GAIN), present="with `[[shadow]]`"
)


def _integrals(value: Callable[[Integrals], float]) -> Callable[[_Usage], Iterator[Sample]]:
    """Return a function that reads one metric of a user's usage of each resource."""

    def samples(usage: _Usage) -> Iterator[Sample]:
        user, hourly = usage
        for resource, integrals in hourly.resources.items():
            yield (user, resource), value(integrals) / 1000

    return samples


USAGE: MetricGroup[_Usage] = MetricGroup(
    "Usage of users since the service began",
    (
        MetricDefinition(
            "longshare_user_held_resource_seconds_total",
            "Resources held × time.",
            _integrals(lambda integrals: integrals.held),
            _USER_RESOURCE,
            "amount × seconds",
        ),
        MetricDefinition(
            "longshare_user_overused_resource_seconds_total",
            "Resources held beyond the entitlement × time.",
            _integrals(lambda integrals: integrals.overused),
            _USER_RESOURCE,
            "amount × seconds",
        ),
        MetricDefinition(
            "longshare_user_owed_resource_seconds_total",
            "Commitment × capacity × time.",
            _integrals(lambda integrals: integrals.owed),
            _USER_RESOURCE,
            "amount × seconds",
        ),
        MetricDefinition(
            "longshare_user_offers_total",
            "Offers made to a user.",
            lambda usage: [((usage[0],), usage[1].offers)],
            _USER,
        ),
        MetricDefinition(
            "longshare_user_refused_offers_total",
            "Offers declined, as a whole or in part.",
            lambda usage: [((usage[0],), usage[1].refused)],
            _USER,
        ),
        MetricDefinition(
            "longshare_user_wanted_seconds_total",
            "Time in which a user wanted offers.",
            lambda usage: [((usage[0],), usage[1].wanted)],
            _USER,
            "seconds",
        ),
        MetricDefinition(
            "longshare_user_lacked_seconds_total",
            "Time in which a user wanted offers with a share below its entitlement.",
            lambda usage: [((usage[0],), usage[1].waited)],
            _USER,
            "seconds",
        ),
    ),
    present="with `[accounting]`, as of its latest write",
)

GROUPS: tuple[MetricGroup[Any], ...] = (SHARES, WAITING, ROLES, USAGE, SHADOW_USERS)
"""All metrics of users and roles, in the order of the page on metrics."""


class _Only(Collector):
    """Adapter that lets `generate_latest` write a single metric family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def exposition(  # noqa: PLR0913 - every source of metrics
    adapter: SchedulerAdapter,
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
    that have been known longest. Roles with the largest value of the first metric in `ROLES` are
    selected first, then roles with the largest value of the next metric.

    Args:
        adapter: The adapter to read.
        registry: Metrics that are not about single users.
        waits: Waiting times of users, by reason.
        shadows: Shadow policies.
        accountant: Source of the users' usage; None without accounting.
        listed: Selects the users whose metrics are written.
        listed_roles: Selects the roles whose metrics are written.
    """
    parts: list[bytes] = []
    for family in registry.collect():  # reads each metric when the loop asks for it
        parts.append(_text(family))
        yield
    yield from _of_roles(adapter, listed_roles, parts)
    waiting = waits.clients().items()
    yield from _append_family(_WAITING, (((reason,), number) for reason, number in waiting), parts)
    known = list(adapter.pool.users())
    read = yield from read_shares(adapter, known)
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
        yield from _append_group(USAGE, totals, parts)
    yield from _of_shadows(adapter, shadows, frozenset(users), parts)
    yield from _append_group(SHARES, rows, parts)
    return b"".join(parts)


def _of_roles(adapter: SchedulerAdapter, listed: LabelLimiter, parts: list[bytes]) -> Work[None]:
    """Append the metrics of roles to the output, in cooperative steps.

    Args:
        adapter: The adapter to read.
        listed: Selects the roles, once for all metrics.
        parts: Output so far, in Prometheus's text format.
    """
    values = [dict(metric.samples(adapter)) for metric in ROLES.metrics]
    known = list(dict.fromkeys(chain.from_iterable(values)))
    known.sort(key=lambda labels: [of_role.get(labels, 0.0) for of_role in values], reverse=True)
    roles = [(role,) for role in listed.among(role for (role,) in known)]
    for metric, of_role in zip(ROLES.metrics, values, strict=True):
        samples = ((labels, of_role[labels]) for labels in roles if labels in of_role)
        yield from _append_family(metric, samples, parts)


def _of_shadows(
    adapter: SchedulerAdapter, shadows: Shadows, users: Container[str], parts: list[bytes]
) -> Work[None]:
    """Append two metrics of users under each shadow policy to the output, in cooperative steps.

    The first is the user's position in the policy's order. The second is how much more the user
    would have used under the policy.

    Args:
        adapter: The adapter to read.
        shadows: The shadow policies.
        users: Users whose metrics are written.
        parts: Output so far, in Prometheus's text format.
    """
    differences = []
    for follower in shadows.followers:
        shadow_differences = yield from shadows.compare(adapter, follower)
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


def _append_group(
    group: MetricGroup[SourceT], sources: list[SourceT], parts: list[bytes]
) -> Work[None]:
    """Append the metrics of a group to the output, in cooperative steps.

    Args:
        group: Metrics with labels.
        sources: The objects to read, such as one for each user.
        parts: Output so far, in Prometheus's text format.
    """
    for metric in group.metrics:
        samples = chain.from_iterable(metric.samples(source) for source in sources)
        yield from _append_family(metric, samples, parts)


def _text(family: Metric) -> bytes:
    """Return a metric family in Prometheus's text format."""
    collector: Any = _Only(family)  # of a registry, only `collect` is called here
    return generate_latest(collector)


def _append_family(
    metric: MetricDefinition[Any], samples: Iterator[Sample], parts: list[bytes]
) -> Work[None]:
    """Append the text of a metric to the output, in cooperative steps.

    Args:
        metric: The metric.
        samples: The samples of the metric.
        parts: Output so far, in Prometheus's text format.
    """
    headed = False
    while (batch := list(islice(samples, _AT_ONCE))) or not headed:
        batch_family = metric.family()
        for values, value in batch:
            batch_family.add_metric(list(map(_label, values)), value)
        written = _text(batch_family)
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
