"""Batches of usage and operator commands to write to the accounting database in one transaction."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from allocator.fairness.metering import AccountCheckpoint, HourlyUsage, UsageAccumulator
from allocator.service.accounting import HOUR, OTHERS

MOST_RESOURCES = 32
"""Maximum number of resources per user, in alphabetical order; further resources are not accounted.
"""
_MILLI = 1000.0

Row: TypeAlias = dict[str, Any]
HasOwnRows: TypeAlias = Callable[[int, str], bool]
"""Function that receives the start of an hour, in seconds since the epoch, and the name of a user
or role.

It returns whether the user or role has rows of its own in that hour.
"""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An operator command, executed or refused, as a row of the database's table of commands."""

    id: str
    """Unique identifier of the command, so that it is stored once."""
    at: float
    """Time of the command, in seconds since the epoch by this machine's clock."""
    who: str
    """Name of the operator who gave the command."""
    how: str
    """How the operator was identified: `certificate`, `socket` or `address`."""
    peer: str
    """Network address of the operator."""
    kind: str
    """Kind of the command, such as `set_weight`, as named in the contract."""
    order: str
    """The command's content as JSON."""
    before: str
    """Values that the command was about to change, as JSON by user."""
    after: str
    """Values after the command, as JSON by user."""
    refusal: str
    """Why the command was refused; empty if it was executed."""

    def row(self) -> Row:
        """Return the command as a database row: column name → value."""
        return {name: storable(getattr(self, name)) for name in OrderRecord.__slots__}


@dataclass(slots=True)
class Batch:
    """Usage and operator commands since the latest write, to be written in one transaction."""

    writer: str
    """Identifier of the service process that writes; a new process has a new identifier."""
    number: int
    """Number of the batch, counted from 1 in each process."""
    since: float
    """Earliest accounted time, in seconds since the epoch."""
    until: float
    """Latest accounted time, in seconds since the epoch."""
    counted: UsageAccumulator
    """Usage of users, and the cluster's capacity, by hour."""
    checkpoints: Mapping[str, AccountCheckpoint] = field(default_factory=dict)
    """Checkpoints of all users' accounts at `until`."""
    orders: list[OrderRecord] = field(default_factory=list)
    roles: UsageAccumulator = field(default_factory=UsageAccumulator)
    """Usage of roles, if users are not roles, up to the time of `role_checkpoints`."""
    role_checkpoints: Mapping[str, AccountCheckpoint] = field(default_factory=dict)
    """Checkpoints of all roles' accounts."""

    def rows(self, users: HasOwnRows, roles: HasOwnRows) -> dict[str, list[Row]]:
        """Return the rows to add to the database, by table name.

        Users and roles without usage, commitments, offers and demand for offers get no rows.

        Args:
            users: Function that returns whether a user has rows of its own in an hour.
            roles: Function that returns whether a role has rows of its own in an hour.
        """
        usage_rows, activity_rows = list[Row](), list[Row]()
        for start, user, tally in _hourly_usages(self.counted, users):
            usage_rows += _usage_rows(start, user, tally)
            activity_rows.append(_activity_row(start, user, tally))
        role_usage_rows, role_activity_rows = list[Row](), list[Row]()
        for start, role, tally in _hourly_usages(self.roles, roles):
            key = {"seconds": HOUR, "start": start, "role": role}
            role_usage_rows += [
                {**key, "resource": name, "held": integrals.held / _MILLI}
                for name, integrals in _first_resources(tally.resources)
            ]
            role_activity_rows.append({**key, "offers": tally.offers, "refused": tally.refused})
        capacity_rows = [
            {"seconds": HOUR, "start": hour * HOUR, "resource": name, "amount": amount / _MILLI}
            for hour, amounts in self.counted.capacity.items()
            for name, amount in _first_resources(amounts)
        ]
        return {
            "usage": usage_rows,
            "activity": activity_rows,
            "capacity": capacity_rows,
            "role_usage": role_usage_rows,
            "role_activity": role_activity_rows,
        }


def _hourly_usages(
    counted: UsageAccumulator, named: HasOwnRows
) -> Iterator[tuple[int, str, HourlyUsage]]:
    """Yield the usage of each user or role in each hour; users without own rows are summed up.

    Args:
        counted: The usage by hour and user.
        named: Function that returns whether a user has rows of its own in an hour.

    Yields:
        Start of the hour in seconds since the epoch, the user or `OTHERS`, and the usage.
    """
    for hour, tallies in counted.users.items():
        start, rest = hour * HOUR, HourlyUsage()
        for user, tally in sorted(tallies.items(), key=lambda item: -total(item[1])):
            if not total(tally):
                continue
            if named(start, storable(user)):
                yield start, storable(user), tally
            else:
                rest.add(tally)
        if total(rest):
            yield start, OTHERS, rest


def total(tally: HourlyUsage) -> float:
    """Return a positive number if an hour of a user or role has to be written, and 0 otherwise.

    An hour with usage, commitments, offers, declines or demand for offers has to be written.
    """
    amounts = sum(integrals.held + integrals.owed for integrals in tally.resources.values())
    return amounts + tally.wanted + tally.offers + tally.refused


def _usage_rows(start: int, user: str, tally: HourlyUsage) -> list[Row]:
    """Return one user's or role's usage in an hour as rows of a usage table, one per resource.

    Args:
        start: Start of the hour, in seconds since the epoch.
        user: The user or role.
        tally: Usage in the hour.
    """
    return [
        {
            "seconds": HOUR,
            "start": start,
            "user": user,
            "resource": name,
            "held": integrals.held / _MILLI,
            "overused": integrals.overused / _MILLI,
            "owed": integrals.owed / _MILLI,
            "entitled": integrals.entitled / _MILLI,
        }
        for name, integrals in _first_resources(tally.resources)
    ]


def _activity_row(start: int, user: str, tally: HourlyUsage) -> Row:
    """Return one user's or role's offers and waiting time in an hour, as a row of a table.

    The tables of such rows are separate from the tables of resource usage.

    Args:
        start: Start of the hour, in seconds since the epoch.
        user: The user or role.
        tally: Usage in the hour.
    """
    return {
        "seconds": HOUR,
        "start": start,
        "user": user,
        "offers": tally.offers,
        "refused": tally.refused,
        "wanted": tally.wanted,
        "waited": tally.waited,
    }


def _first_resources(amounts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the alphabetically first `MOST_RESOURCES` resources, each with its amount."""
    return [(storable(name), amounts[name]) for name in sorted(amounts)[:MOST_RESOURCES]]


def storable(value: Any) -> Any:  # noqa: ANN401 - only text is changed
    """Return a value in a form that PostgreSQL can store: NUL characters in text are replaced."""
    return value.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value
