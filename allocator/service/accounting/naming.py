"""Selection of the users and roles that have rows of their own in the accounting database.

In a day at most `accounting.users` names have rows of their own, and the usage of further names is
summed up. While fewer names have rows, each new name gets rows. Afterwards a new name needs more
than twice the use of another name. It then displaces the other name, whose rows are added to the
sum. So names that only wait for offers cannot keep users that hold resources out of the accounts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from allocator.fairness.metering import HourlyUsage
from allocator.service.accounting import DAY, HOUR
from allocator.service.accounting.write_batch import Batch, storable, total

_AHEAD = 2.0
"""Factor by which the use of a newcomer must exceed the use of a name that it replaces. Names with
almost equal use do not replace each other again and again."""
_MOST_KNOWN = 25
"""Maximum number of names whose use is remembered for a day, as a multiple of the rows."""


@dataclass(slots=True)
class DayNames:
    """The users or roles that have rows of their own in the accounting database on one day."""

    named: set[str] = field(default_factory=set)
    use: dict[str, float] = field(default_factory=dict)
    """Use of the day by name, also of names without rows, as a share of the cluster times hours."""

    def add(self, use: Mapping[str, float], most: int, pinned: Collection[str] = ()) -> list[str]:
        """Add the use of names in a batch to the day, and choose which names have their own rows.

        Args:
            use: Use by name (see `use_by_day`). All these names need rows.
            most: Maximum number of names with rows.
            pinned: Names that always get rows, and keep them.

        Returns:
            The names that lose their rows.
        """
        for name, amount in use.items():
            self.use[name] = self.use.get(name, 0.0) + amount
        self.named.update(name for name in use if name in pinned)
        newcomers = sorted(use.keys() - self.named, key=self._order, reverse=True)
        room = max(most - len(self.named), 0)
        self.named.update(newcomers[:room])
        replaced = self._replace(newcomers[room:], pinned) if newcomers[room:] else []
        if len(self.use) > _MOST_KNOWN * max(most, len(self.named)):
            self.use = {name: self.use.get(name, 0.0) for name in self.named}
        return replaced

    def _replace(self, newcomers: Iterable[str], pinned: Collection[str]) -> list[str]:
        """Let names without rows displace names with less than half their use.

        Args:
            newcomers: Names without rows, those with the largest use first.
            pinned: Names that are never displaced.

        Returns:
            The displaced names.
        """
        least = sorted(self.named.difference(pinned), key=self._order)
        replaced = list[str]()
        for newcomer, name in zip(newcomers, least, strict=False):
            if self.use[newcomer] <= _AHEAD * self.use.get(name, 0.0):
                break
            self.named.add(newcomer)
            self.named.discard(name)
            replaced.append(name)
        return replaced

    def _order(self, name: str) -> tuple[float, str]:
        return self.use.get(name, 0.0), name


def use_by_day(batch: Batch) -> tuple[dict[int, dict[str, float]], dict[int, dict[str, float]]]:
    """Return how much each user and role in a batch used the cluster on each day.

    The use ranks names when rows are scarce. For each resource, the allocation as a share of the
    cluster is added to the commitment. The use is the largest of these sums, times hours. Names
    with nothing to write are left out.

    Returns:
        Two mappings, of users and of roles: start of the day → name → use.
    """
    hours = min(max(batch.until - batch.since, 1.0), HOUR) / HOUR
    uses = dict[int, dict[str, float]](), dict[int, dict[str, float]]()
    for days, counted in zip(uses, (batch.counted, batch.roles), strict=True):
        for hour, tallies in counted.users.items():
            start = hour * HOUR
            day = days.setdefault(start - start % DAY, {})
            capacity = batch.counted.capacity.get(hour, {})
            for user, tally in tallies.items():
                if total(tally):
                    name = storable(user)
                    day[name] = day.get(name, 0.0) + hours * _share(tally, capacity)
    return uses


def _share(tally: HourlyUsage, capacity: Mapping[str, float]) -> float:
    """Return the largest of the user's or role's sums of share and commitment, over all resources.

    The share is the allocation as a fraction of the cluster.

    Args:
        tally: Usage of a user or role in one hour.
        capacity: Capacity of the cluster by resource, integrated over the same hour.
    """
    return max(
        (
            (integrals.held + integrals.owed) / capacity[name]
            for name, integrals in tally.resources.items()
            if capacity.get(name)
        ),
        default=0.0,
    )
