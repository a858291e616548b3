"""Queries of the accounting database: usage, shares over hours, and operators' commands."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, and_, func, literal, select, true

from allocator.service.accounting import DAY, HOUR, OTHERS, TooMuch
from allocator.service.accounting.schema import (
    SUMS,
    activity,
    capacity,
    orders,
    role_activity,
    role_usage,
    usage,
)
from allocator.service.accounting.write_batch import OrderRecord

MOST_LINES = 50_000
"""Maximum number of rows in an answer: one for each user or role, resource, and day."""
MOST_ORDERS = 10_000
"""Maximum number of executed commands in an answer."""
MOST_TEXT = 4 * 2**20
"""Maximum total length of the executed commands in an answer, in characters."""
MOST_REFUSALS = 2000
"""Maximum number of refused commands in an answer, in addition to the executed ones."""
MOST_TEXT_OF_REFUSALS = 2**20
"""Maximum total length of the refused commands in an answer, in characters."""

By = Literal["user", "role", "day"]
"""Grouping: per user, per role (if users are not roles), or per day and user."""


@dataclass(frozen=True, slots=True)
class Hour:
    """Mean share and commitment of one user in an hour, or in a day for which hours are summed up.

    The mean is over the part of the time for which usage was accounted.
    """

    start: int
    """Start of the hour or day, in seconds since the epoch; `seconds` is its length."""
    seconds: int
    user: str
    share: float
    """Mean dominant share as a fraction of the cluster; `commitment` is the mean dominant
    commitment."""
    commitment: float


@dataclass(frozen=True, slots=True)
class Used:
    """Usage of one resource, in Mesos's unit of the resource × seconds.

    For a role only `held` is set.
    """

    resource: str
    held: float
    """Integral of the allocation over time, including overuse."""
    overused: float | None = None
    """Integral of the allocation beyond the entitlement."""
    owed: float | None = None
    """Integral of the user's commitment over time."""
    entitled: float | None = None
    """Integral of the user's entitlement over time."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one user or role, on one day or in the whole requested interval."""

    start: int | None
    """Start of the day, in seconds since the epoch; None for the whole time."""
    user: str
    used: tuple[Used, ...]
    offers: int
    """Number of offers to the user or role."""
    refused: int
    """Number of offers declined, as a whole or in part."""
    wanted: float | None = None
    """Seconds in which the user wanted offers; None for a role."""
    waited: float | None = None
    """Seconds of `wanted` in which the user held less than its entitlement."""


def hours(
    connection: Connection, since: float, until: float, users: Collection[str] | None = None
) -> list[Hour]:
    """Return users' mean shares and commitments, for the hours that begin in an interval.

    Hours that are long ago are stored, and returned, as whole days. Time is linear in the number of
    rows.

    Args:
        connection: Connection to the database.
        since: Start of the interval, in seconds since the epoch.
        until: End of the interval, in seconds since the epoch.
        users: The users to return; None for all.
    """
    selected = usage.c.user.in_(users) if users is not None else true()
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
        .where(_in_interval(usage, since, until), selected, capacity.c.amount > 0.0)
        .group_by(*keys)
        .order_by(*keys)
    )
    return [Hour(*row) for row in connection.execute(query)]


def hourly_shares_of(
    connection: Connection, since: float, until: float, users: Collection[str]
) -> list[Hour]:
    """Return shares and commitments of given users, with zeros for hours without usage.

    Zeros are only added for hours in which every user has rows of its own. In other hours, a
    missing user may be included in the row that sums up further users.

    Args:
        connection: Connection to the database.
        since: Start of the interval, in seconds since the epoch.
        until: End of the interval, in seconds since the epoch.
        users: The users to return.
    """
    recorded = hours(connection, since, until, {*users, OTHERS})
    present = {(hour.start, hour.seconds, hour.user) for hour in recorded}
    counted = select(capacity.c.start, capacity.c.seconds).distinct()
    complete = [
        (start, seconds)
        for start, seconds in connection.execute(
            counted.where(_in_interval(capacity, since, until))
        )
        if (start, seconds, OTHERS) not in present
    ]
    return [hour for hour in recorded if hour.user in users] + [
        Hour(start, seconds, user, 0.0, 0.0)
        for start, seconds in complete
        for user in users
        if (start, seconds, user) not in present
    ]


def usages(
    connection: Connection,
    since: float,
    until: float,
    by: By,
    users: Collection[str] = (),
) -> list[Usage]:
    """Return usage in the hours that begin in an interval, grouped as requested.

    Args:
        connection: Connection to the database.
        since: Start of the interval, in seconds since the epoch.
        until: End of the interval, in seconds since the epoch.
        by: Grouping: by user, by role, or by day and user.
        users: The users or roles to return; empty for all.

    Raises:
        TooMuch: the answer would be too long.
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
) -> tuple[list[OrderRecord], bool]:
    """Return the operator commands given within an interval, the earliest first.

    If there are more than the limits allow, the latest commands are returned. Refused commands have
    limits of their own, so that they cannot hide executed commands.

    Args:
        connection: Connection to the database.
        since: Start of the interval, in seconds since the epoch.
        until: End of the interval, in seconds since the epoch.
        refused: Whether to return the refused commands instead of the executed ones.

    Returns:
        The commands, and whether earlier commands were left out.
    """
    kind = orders.c.refusal != "" if refused else orders.c.refusal == ""
    most = MOST_REFUSALS if refused else MOST_ORDERS
    most_text = MOST_TEXT_OF_REFUSALS if refused else MOST_TEXT
    query = select(orders).where(orders.c.at >= since, orders.c.at < until, kind)
    latest = query.order_by(orders.c.at.desc()).limit(most + 1)
    result, text = list[OrderRecord](), 0
    for row in connection.execute(latest).mappings():
        text += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(result) == most or text > most_text:
            return result[::-1], True
        result.append(OrderRecord(**row))
    return result[::-1], False


def _in_interval(table: Table, since: float, until: float) -> ColumnElement[bool]:
    """Return the SQL condition that a row's hour or day begins in an interval.

    Args:
        table: The table of the rows.
        since: Start of the interval, in seconds since the epoch.
        until: End of the interval; rows that begin at this time are not included.
    """
    by_index = table.c.seconds.in_((HOUR, DAY))  # the index begins with the seconds
    return and_(by_index, table.c.start >= since, table.c.start < until)


def _sums(
    connection: Connection,
    table: Table,
    keys: Sequence[str],
    request: tuple[float, float, By, Collection[str]],
) -> Iterator[tuple[int | None, str, Sequence[Any]]]:
    """Yield sums over the rows of a usage or activity table, grouped as requested.

    Args:
        connection: Connection to the database.
        table: The table.
        keys: Columns to group by, in addition to the requested grouping.
        request: Start and end of the interval, grouping, and users (empty for all).

    Yields:
        Start of the day (None unless grouped by day), the user or role, and a row with the values
            of `keys` and the sums.

    Raises:
        TooMuch: there are more than `MOST_LINES` rows.
    """
    since, until, by, users = request
    day: ColumnElement[Any] = literal(None) if by != "day" else table.c.start - table.c.start % DAY
    name_column = table.c.role if by == "role" else table.c.user
    grouped: list[ColumnElement[Any]] = [name_column, *(table.c[name] for name in keys)]
    if by == "day":
        grouped = [day, *grouped]
    query = (
        select(
            day.label("day"),
            name_column,
            *(table.c[name] for name in keys),
            *(func.sum(table.c[name]) for name in SUMS[table]),
        )
        .where(_in_interval(table, since, until), name_column.in_(users) if users else true())
        .group_by(*grouped)
        .order_by(*grouped)
        .limit(MOST_LINES + 1)
    )
    for number, (start, user, *row) in enumerate(connection.execute(query)):
        if number == MOST_LINES:
            raise TooMuch(f"more than {MOST_LINES:,} lines; ask for a shorter time, or not by day")
        yield start, user, row
