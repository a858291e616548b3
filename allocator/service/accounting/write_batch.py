"""Batches of usage to write to the accounting database at once, and their rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from allocator.fairness.metering import AccountCheckpoint, HourlyUsage, UsageAccumulator
from allocator.service.accounting import HOUR, OTHERS

MOST_RESOURCES = 32
"""Maximum number of a user's resources, in order of their names; further resources are not
accounted."""
_MILLI = 1000.0

Row: TypeAlias = dict[str, Any]
Named: TypeAlias = Callable[[int, str], bool]
"""Returns whether a user or role has rows of its own in the hour with the given start."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An operator's order, executed or refused."""

    id: str
    """Unique identifier."""
    at: float
    """Time of the order, in seconds since the epoch by this machine's clock."""
    who: str
    """Name of the operator."""
    how: str
    """How the operator was identified: `certificate`, `socket` or `address`."""
    peer: str
    """Network address of the operator."""
    kind: str
    """Kind of the order, as named in the contract."""
    order: str
    """The contract's order as JSON."""
    before: str
    """JSON: by user, the values that the order was about to change."""
    after: str
    """JSON: by user, the values after the order."""
    refusal: str
    """Why the order was refused; empty if it was executed."""

    def row(self) -> Row:
        """Return the order as a row."""
        return {name: _storable(getattr(self, name)) for name in Ordered.__slots__}


@dataclass(slots=True)
class Batch:
    """Usage and orders since the latest write."""

    writer: str
    """Identifier of the accounting service process, new at each start."""
    number: int
    """Number of the batch, counted from 1."""
    since: float
    """Earliest accounted time, in seconds since the epoch."""
    until: float
    """Latest accounted time, in seconds since the epoch."""
    counted: UsageAccumulator
    """Usage of users and the cluster's capacity."""
    checkpoints: Mapping[str, AccountCheckpoint] = field(default_factory=dict)
    """Checkpoints of all users' accounts at `until`."""
    orders: list[Ordered] = field(default_factory=list)
    roles: UsageAccumulator = field(default_factory=UsageAccumulator)
    """Usage of roles, if users are not roles, up to the time of `role_checkpoints`."""
    role_checkpoints: Mapping[str, AccountCheckpoint] = field(default_factory=dict)
    """Checkpoints of all roles' accounts."""

    def rows(self, users: Named, roles: Named) -> dict[str, list[Row]]:
        """Return the rows to add, by table name.

        Users without usage, commitments and wishes are omitted.

        Args:
            users: Returns whether a user has rows of its own.
            roles: Returns whether a role has rows of its own.
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
    counted: UsageAccumulator, named: Named
) -> Iterator[tuple[int, str, HourlyUsage]]:
    """Yield start, user or role, and usage, for each hour; unnamed users are summed up."""
    for hour, tallies in counted.users.items():
        start, rest = hour * HOUR, HourlyUsage()
        for user, tally in sorted(tallies.items(), key=lambda item: -_total(item[1])):
            if not _total(tally):
                continue
            if named(start, _storable(user)):
                yield start, _storable(user), tally
            else:
                rest.add(tally)
        if _total(rest):
            yield start, OTHERS, rest


def _total(tally: HourlyUsage) -> float:
    """Return a number that is 0 for a user without usage, commitments, wishes and offers."""
    amounts = sum(integrals.held + integrals.owed for integrals in tally.resources.values())
    return amounts + tally.wanted + tally.offers + tally.refused


def _usage_rows(start: int, user: str, tally: HourlyUsage) -> list[Row]:
    """Return one row per resource of a user's usage in an hour."""
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
    """Return the row of a user's offers and waiting time in an hour."""
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
    """Return the first `MOST_RESOURCES` resources by name, with their amounts."""
    return [(_storable(name), amounts[name]) for name in sorted(amounts)[:MOST_RESOURCES]]


def _storable(value: Any) -> Any:  # noqa: ANN401 - only text is changed
    """Replace NUL characters in text, which PostgreSQL cannot store."""
    return value.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value
