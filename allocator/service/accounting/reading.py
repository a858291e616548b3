"""What the accounting database tells: usage by user and day, shares over hours, orders."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, and_, func, literal, select, true

from allocator.service.accounting import DAY, OTHERS
from allocator.service.accounting.batch import Ordered
from allocator.service.accounting.schema import (
    SUMS,
    activity,
    capacity,
    orders,
    role_activity,
    role_usage,
    usage,
)

By = Literal["user", "role", "day"]
"""What is added up: all of a user, of a role where users are none, or a user's on each day."""


@dataclass(frozen=True, slots=True)
class Hour:
    """Means of one user and one resource over the counted time of an hour, or of a day."""

    start: int
    """Seconds since the epoch."""
    seconds: int
    user: str
    resource: str
    share: float
    """What it held; this and what follows are fractions of the cluster."""
    commitment: float
    entitlement: float
    overuse: float


@dataclass(frozen=True, slots=True)
class Used:
    """What one user or role had of one resource: its units × seconds; a role only held."""

    resource: str
    held: float
    overused: float | None = None
    owed: float | None = None
    entitled: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What one user or role had in some time."""

    start: int | None
    """The day, in seconds since the epoch; None: the whole time."""
    user: str
    used: tuple[Used, ...]
    offers: int
    refused: int
    wanted: float | None = None
    """Seconds in which it wanted offers; None: it is a role."""
    waited: float | None = None
    """Of these, seconds in which it held less than it was entitled to."""


def hours(
    connection: Connection, since: float, until: float, users: Collection[str] | None = None
) -> list[Hour]:
    """Return how users, all or some, stood in the hours that begin within a time. O(rows)."""
    asked = usage.c.user.in_(users) if users is not None else true()
    same = and_(
        capacity.c.seconds == usage.c.seconds,
        capacity.c.start == usage.c.start,
        capacity.c.resource == usage.c.resource,
    )
    query = (
        select(usage, capacity.c.amount)
        .join_from(usage, capacity, same)
        .where(_within(usage, since, until), asked, capacity.c.amount > 0.0)
        .order_by(usage.c.start, usage.c.user, usage.c.resource)
    )
    return [
        Hour(
            start=row.start,
            seconds=row.seconds,
            user=row.user,
            resource=row.resource,
            share=row.held / row.amount,
            commitment=row.owed / row.amount,
            entitlement=row.entitled / row.amount,
            overuse=row.overused / row.amount,
        )
        for row in connection.execute(query)
    ]


def hours_of(
    connection: Connection, since: float, until: float, users: Collection[str]
) -> list[Hour]:
    """Return likewise for users who are named, and that they had nothing where that is certain.

    It is where an hour was counted, and nobody in it is without a row of its own.
    """
    told = hours(connection, since, until, {*users, OTHERS})
    had = {(hour.start, hour.seconds, hour.user) for hour in told}
    counted = select(capacity.c.start, capacity.c.seconds).distinct()
    certain = [
        (start, seconds)
        for start, seconds in connection.execute(counted.where(_within(capacity, since, until)))
        if (start, seconds, OTHERS) not in had
    ]
    return [hour for hour in told if hour.user in users] + [
        Hour(start, seconds, user, "", 0.0, 0.0, 0.0, 0.0)
        for start, seconds in certain
        for user in users
        if (start, seconds, user) not in had
    ]


def usages(connection: Connection, since: float, until: float, by: By) -> list[Usage]:
    """Return who had what in the hours that begin within a time, by user, role, or day and user."""
    amounts, acts = (usage, activity) if by != "role" else (role_usage, role_activity)
    used: dict[tuple[int | None, str], list[Used]] = {}
    for start, user, row in _sums(connection, amounts, ("resource",), (since, until, by)):
        resource, *sums = row
        used.setdefault((start, user), []).append(Used(resource, *map(float, sums)))
    return [
        Usage(start, user, tuple(used.get((start, user), ())), int(row[0]), int(row[1]), *row[2:])
        for start, user, row in _sums(connection, acts, (), (since, until, by))
    ]


def ordered(connection: Connection, since: float, until: float) -> list[Ordered]:
    """Return what operators have ordered within a time, the earliest first."""
    query = select(orders).where(orders.c.at >= since, orders.c.at < until).order_by(orders.c.at)
    return [Ordered(**row) for row in connection.execute(query).mappings()]


def _within(table: Table, since: float, until: float) -> ColumnElement[bool]:
    return and_(table.c.start >= since, table.c.start < until)


def _sums(
    connection: Connection, table: Table, keys: Sequence[str], asked: tuple[float, float, By]
) -> Iterator[tuple[int | None, str, Sequence[Any]]]:
    """Go through days (None: all of the time), users or roles, and further keys with the sums."""
    since, until, by = asked
    day: ColumnElement[Any] = literal(None) if by != "day" else table.c.start - table.c.start % DAY
    who = table.c.role if by == "role" else table.c.user
    grouped: list[ColumnElement[Any]] = [who, *(table.c[name] for name in keys)]
    if by == "day":
        grouped = [day, *grouped]
    query = (
        select(
            day.label("day"),
            who,
            *(table.c[name] for name in keys),
            *(func.sum(table.c[name]) for name in SUMS[table]),
        )
        .where(_within(table, since, until))
        .group_by(*grouped)
        .order_by(*grouped)
    )
    for start, user, *row in connection.execute(query):
        yield start, user, row
