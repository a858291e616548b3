"""What the accounting database tells: usage by user and day, shares over hours, orders."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, and_, func, literal, select, true

from allocator.service.accounting import DAY, OTHERS, TooMuch
from allocator.service.accounting.schema import (
    SUMS,
    activity,
    capacity,
    orders,
    role_activity,
    role_usage,
    usage,
)
from allocator.service.accounting.write_batch import Ordered

MOST_LINES = 50_000
"""Of users or roles and resources, on days, in an answer."""
MOST_ORDERS = 10_000
"""In an answer."""
MOST_TEXT = 4 * 2**20
"""Characters of orders in an answer."""
MOST_REFUSALS = 2000
"""Refused orders in an answer, beside the others."""
MOST_TEXT_OF_REFUSALS = 2**20
"""Characters of refused orders in an answer."""

By = Literal["user", "role", "day"]
"""What is added up: all of a user, of a role where users are none, or a user's on each day."""


@dataclass(frozen=True, slots=True)
class Hour:
    """Means of one user over the counted time of an hour, or of a day."""

    start: int
    """Seconds since the epoch."""
    seconds: int
    user: str
    share: float
    """What it held; this and what follows are fractions of the cluster, of the resource of which it
    was most."""
    commitment: float


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
    keys = usage.c.start, usage.c.seconds, usage.c.user
    query = (
        select(
            *keys,
            func.max(usage.c.held / capacity.c.amount),
            func.max(usage.c.owed / capacity.c.amount),
        )
        .join_from(usage, capacity, same)
        .where(_within(usage, since, until), asked, capacity.c.amount > 0.0)
        .group_by(*keys)
        .order_by(*keys)
    )
    return [Hour(*row) for row in connection.execute(query)]


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
        Hour(start, seconds, user, 0.0, 0.0)
        for start, seconds in certain
        for user in users
        if (start, seconds, user) not in had
    ]


def usages(
    connection: Connection,
    since: float,
    until: float,
    by: By,
    users: Collection[str] = (),
) -> list[Usage]:
    """Return who had what in the hours that begin within a time, by user, role, or day and user.

    Args:
        connection: To the database.
        since: Seconds since the epoch.
        until: Seconds since the epoch.
        by: The key of a row.
        users: The users or roles to return; empty: all.

    Raises:
        TooMuch: an answer would be too long.
    """
    amounts, acts = (usage, activity) if by != "role" else (role_usage, role_activity)
    used: dict[tuple[int | None, str], list[Used]] = {}
    for start, user, row in _sums(connection, amounts, ("resource",), (since, until, by, users)):
        resource, *sums = row
        used.setdefault((start, user), []).append(Used(resource, *map(float, sums)))
    return [
        Usage(start, user, tuple(used.get((start, user), ())), int(row[0]), int(row[1]), *row[2:])
        for start, user, row in _sums(connection, acts, (), (since, until, by, users))
    ]


def ordered(
    connection: Connection, since: float, until: float, *, refused: bool
) -> tuple[list[Ordered], bool]:
    """Return the orders within a time that were carried out, or refused, the earliest first.

    The latest are told, as many as there may be in an answer. Refused orders have limits of their
    own, so no number of them hides an order that was carried out.

    Returns:
        The orders, and whether there were earlier ones.
    """
    kind = orders.c.refusal != "" if refused else orders.c.refusal == ""
    most = MOST_REFUSALS if refused else MOST_ORDERS
    most_text = MOST_TEXT_OF_REFUSALS if refused else MOST_TEXT
    query = select(orders).where(orders.c.at >= since, orders.c.at < until, kind)
    latest = query.order_by(orders.c.at.desc()).limit(most + 1)
    found, text = list[Ordered](), 0
    for row in connection.execute(latest).mappings():
        text += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(found) == most or text > most_text:
            return found[::-1], True
        found.append(Ordered(**row))
    return found[::-1], False


def _within(table: Table, since: float, until: float) -> ColumnElement[bool]:
    return and_(table.c.start >= since, table.c.start < until)


def _sums(
    connection: Connection,
    table: Table,
    keys: Sequence[str],
    asked: tuple[float, float, By, Collection[str]],
) -> Iterator[tuple[int | None, str, Sequence[Any]]]:
    """Go through days (None: all of the time), users or roles, and further keys with the sums."""
    since, until, by, users = asked
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
        .where(_within(table, since, until), who.in_(users) if users else true())
        .group_by(*grouped)
        .order_by(*grouped)
        .limit(MOST_LINES + 1)
    )
    for number, (start, user, *row) in enumerate(connection.execute(query)):
        if number == MOST_LINES:
            raise TooMuch(f"more than {MOST_LINES:,} lines; ask for a shorter time, or not by day")
        yield start, user, row
