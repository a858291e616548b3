"""What is written to the accounting database at once, and in which rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from allocator.fairness.metering import AccountCheckpoint, HourlyUsage, UsageAccumulator
from allocator.service.accounting import HOUR, OTHERS

MOST_RESOURCES = 32
"""Of a user, by name; a cluster that has more is not accounted for further."""
_MILLI = 1000.0

Row: TypeAlias = dict[str, Any]
Named: TypeAlias = Callable[[int, str], bool]
"""Whether somebody has rows of its own in the hour that begins then."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An operator's order, carried out or refused."""

    id: str
    """Unique."""
    at: float
    """By this machine's clock, in seconds since the epoch."""
    who: str
    how: str
    """How that is known: `certificate`, `socket` or `address`."""
    peer: str
    """From where."""
    kind: str
    order: str
    """JSON, as the contract has it."""
    before: str
    """JSON: by user what the order was about to change."""
    after: str
    refusal: str
    """Why it was not carried out; empty: it was."""

    def row(self) -> Row:
        """Return it as a row."""
        return {name: _storable(getattr(self, name)) for name in Ordered.__slots__}


@dataclass(slots=True)
class Batch:
    """What has come together since the latest write."""

    writer: str
    """Who counts: another name for each service that is started."""
    number: int
    """One more than that of the batch before."""
    since: float
    """The earliest instant that is counted in it, in seconds since the epoch."""
    until: float
    counted: UsageAccumulator
    formers: Mapping[str, AccountCheckpoint] = field(default_factory=dict)
    """How all users stood at the end."""
    orders: list[Ordered] = field(default_factory=list)
    roles: UsageAccumulator = field(default_factory=UsageAccumulator)
    """What was held in roles, where users are none, up to an instant of its own."""
    role_formers: Mapping[str, AccountCheckpoint] = field(default_factory=dict)
    """How all roles stood then."""

    def rows(self, users: Named, roles: Named) -> dict[str, list[Row]]:
        """Return what is to be added to which table, by its name.

        Who neither held, owed nor wanted anything is left out.

        Args:
            users: Which of them are named.
            roles: Likewise.
        """
        used, acted = list[Row](), list[Row]()
        for start, user, tally in _tallies(self.counted, users):
            used += _of_resources(start, user, tally)
            acted.append(_of_activity(start, user, tally))
        role_used, role_acted = list[Row](), list[Row]()
        for start, role, tally in _tallies(self.roles, roles):
            first = {"seconds": HOUR, "start": start, "role": role}
            role_used += [
                {**first, "resource": name, "held": each.held / _MILLI}
                for name, each in _first(tally.resources)
            ]
            role_acted.append({**first, "offers": tally.offers, "refused": tally.refused})
        had = [
            {"seconds": HOUR, "start": hour * HOUR, "resource": name, "amount": amount / _MILLI}
            for hour, amounts in self.counted.capacity.items()
            for name, amount in _first(amounts)
        ]
        return {
            "usage": used,
            "activity": acted,
            "capacity": had,
            "role_usage": role_used,
            "role_activity": role_acted,
        }


def _tallies(counted: UsageAccumulator, named: Named) -> Iterator[tuple[int, str, HourlyUsage]]:
    """Go through hours, those who are named and all others, and what they had."""
    for hour, tallies in counted.users.items():
        start, others = hour * HOUR, HourlyUsage()
        for user, tally in sorted(tallies.items(), key=lambda each: -_weight_of(each[1])):
            if not _weight_of(tally):
                continue
            if named(start, _storable(user)):
                yield start, _storable(user), tally
            else:
                others.add(tally)
        if _weight_of(others):
            yield start, OTHERS, others


def _weight_of(tally: HourlyUsage) -> float:
    """Return what is 0 of a user that neither held, owed, wanted nor was given anything."""
    had = sum(each.held + each.owed for each in tally.resources.values())
    return had + tally.wanted + tally.offers + tally.refused


def _of_resources(start: int, user: str, tally: HourlyUsage) -> list[Row]:
    return [
        {
            "seconds": HOUR,
            "start": start,
            "user": user,
            "resource": name,
            "held": each.held / _MILLI,
            "overused": each.overused / _MILLI,
            "owed": each.owed / _MILLI,
            "entitled": each.entitled / _MILLI,
        }
        for name, each in _first(tally.resources)
    ]


def _of_activity(start: int, user: str, tally: HourlyUsage) -> Row:
    return {
        "seconds": HOUR,
        "start": start,
        "user": user,
        "offers": tally.offers,
        "refused": tally.refused,
        "wanted": tally.wanted,
        "waited": tally.waited,
    }


def _first(amounts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(_storable(name), amounts[name]) for name in sorted(amounts)[:MOST_RESOURCES]]


def _storable(value: Any) -> Any:  # noqa: ANN401 - text is changed, what is none is not
    """Return text without the one character that PostgreSQL cannot store."""
    return value.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value
