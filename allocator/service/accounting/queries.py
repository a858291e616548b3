"""Queries of the accounting database: usage, shares over hours, and operators' commands."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, literal, select, true

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
MOST_NAMES = 8 * 2**20
"""Maximum total length of the names in these rows, in characters."""
DAYS = 8
"""Maximum number of days of which one query sums up usage. A day with hourly rows takes a query of
its own. Other queries and writes then wait only briefly."""
SLICE = 0.1
"""Seconds after which a query of usage lets other queries and writes run; a part may take longer.
"""
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


_Key: TypeAlias = tuple[int | None, str]
"""Start of a day, or None for the whole time, and the name of a user or role."""


class UsageQuery:
    """Query of usage in the hours that begin in an interval, which reads some days at a time.

    Other queries and writes can take place between two parts. Each row is read once nevertheless,
    as a write moves rows within a day only.

    Args:
        since: Start of the interval, in seconds since the epoch.
        until: End of the interval, in seconds since the epoch.
        by: Grouping: by user, by role, or by day and user.
        users: The users or roles to return; empty for all.
    """

    def __init__(
        self, since: float, until: float, by: By, users: Collection[str] = frozenset()
    ) -> None:
        self._since, self._until, self._by, self._users = since, until, by, users
        is_role = by == "role"
        self._amounts = _Sums(role_usage if is_role else usage)
        self._acts = _Sums(role_activity if is_role else activity)
        self._order: list[_Key] = []
        """Days and names in the order of the rows; empty until the query is complete."""

    def advance(self, connection: Connection) -> bool:
        """Read parts for `SLICE` seconds, at least one; return whether the query is complete.

        Args:
            connection: Connection to the database.

        Raises:
            TooMuch: the answer would be too long.
        """
        end = time.monotonic() + SLICE
        while (part := self._next_part(connection)) is not None:
            start, self._since = part
            day = start - start % DAY if self._by == "day" else None
            for sums in (self._amounts, self._acts):
                sums.add(connection, part, day, self._users)
            if self._since >= self._until:
                break
            if time.monotonic() >= end:
                return False
        self._order = list(self._acts.values)
        if self._by != "day":  # the parts are ordered by day
            self._order.sort()
        return True

    def rows(self) -> Iterator[Usage]:
        """Yield the rows of a complete query, ordered by day and name."""
        for day, name in self._order:
            offers, refused, *seconds = self._acts.values[day, name][""]
            amounts = self._amounts.values.get((day, name), {})
            used = (Used(resource, *map(float, amounts[resource])) for resource in sorted(amounts))
            yield Usage(day, name, tuple(used), int(offers), int(refused), *seconds)

    def _next_part(self, connection: Connection) -> tuple[int, float] | None:
        """Return start and end of the next part with rows; None if there are no further rows.

        Args:
            connection: Connection to the database.
        """
        first: dict[int, int] = {}
        """Earliest start of a remaining row, by the row's seconds (HOUR or DAY)."""
        for table in (self._amounts.table, self._acts.table):
            for seconds in (HOUR, DAY):
                earliest = select(func.min(table.c.start)).where(
                    table.c.seconds == seconds,
                    table.c.start >= self._since,
                    table.c.start < self._until,
                )
                start = connection.execute(earliest).scalar()
                if start is not None:
                    first[seconds] = min(start, first.get(seconds, start))
        if not first:
            return None
        start = min(first.values())
        day = start - start % DAY
        end = day + DAY
        if self._by != "day":
            hourly = first.get(HOUR, day + DAYS * DAY)
            end = max(end, min(day + DAYS * DAY, hourly - hourly % DAY))
        return start, min(end, self._until)


class _Sums:
    """Sums over the rows of a usage or activity table, by day and name, and then by resource.

    Args:
        table: The table. Sums over a table without resources have "" as the resource.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.values: dict[_Key, dict[str, list[Any]]] = {}
        """Sums in the order of the table's columns."""
        self._texts: dict[str, str] = {}
        """One object for each name and resource, however many rows have it."""
        self._lines = self._length = 0
        """Number of sums, and the total length of their names in characters."""

    def add(
        self,
        connection: Connection,
        part: tuple[float, float],
        day: int | None,
        users: Collection[str],
    ) -> None:
        """Add the rows that begin in a part of the time.

        Args:
            connection: Connection to the database.
            part: Start and end of the part, in seconds since the epoch.
            day: Start of the day to which the sums belong; None for sums over the whole time.
            users: The users or roles to read; empty for all.

        Raises:
            TooMuch: there are more than `MOST_LINES` sums, or their names are longer than
                `MOST_NAMES`.
        """
        for row in connection.execute(self._query(part, users)):
            name, resource, *values = row
            name = self._texts.setdefault(name, name)
            resource = self._texts.setdefault(resource, resource)
            of_name = self.values.setdefault((day, name), {})
            former = of_name.get(resource)
            if former is None:
                of_name[resource] = values
                self._lines += 1
                self._length += len(name)
                self._check()
            else:
                of_name[resource] = [a + b for a, b in zip(former, values, strict=True)]

    def _check(self) -> None:
        """Raise TooMuch if there are too many sums, or if their names are too long."""
        if self._lines > MOST_LINES:
            raise TooMuch(f"more than {MOST_LINES:,} lines; ask for a shorter time, or not by day")
        if self._length > MOST_NAMES:
            raise TooMuch(
                f"names of more than {MOST_NAMES:,} characters; ask for a shorter time, for fewer "
                "users, or not by day"
            )

    def _query(self, part: tuple[float, float], users: Collection[str]) -> Select[Any]:
        """Return the query of a part's sums by name and resource, ordered by both.

        Args:
            part: Start and end of the part, in seconds since the epoch.
            users: The users or roles to read; empty for all.
        """
        table = self.table
        name = table.c.role if "role" in table.c else table.c.user
        resource = table.c.resource if "resource" in table.c else None
        grouped = [name] if resource is None else [name, resource]
        return (
            select(
                name,
                literal("") if resource is None else resource,
                *(func.sum(table.c[column]) for column in SUMS[table]),
            )
            .where(_in_interval(table, *part), name.in_(users) if users else true())
            .group_by(*grouped)
            .order_by(*grouped)
            .limit(MOST_LINES + 1)
        )


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
