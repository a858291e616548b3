"""Weights of users: set by an operator, sent by the scheduler, or configured."""

import heapq
import math
from collections.abc import Mapping
from copy import copy

from allocator.compilation import mypyc_attr
from allocator.users.memory import Boost
from allocator.users.settings import By, UserSettings


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Weights:
    """Determines the weight of each user, also of users that are not known yet.

    The first of these weights applies: a boost, which an operator has set for some time; an
    operator's permanent weight; the scheduler's weight; the configured weight.
    """

    def __init__(self, settings: UserSettings) -> None:
        self._declared = {declared.name: declared.weight for declared in settings.declared}
        self._scheduler = settings.scheduler
        self._from_scheduler: dict[str, float] = {}
        self._kept: dict[str, None] = {}
        """Users that stay known because of the scheduler's weight."""
        self._most_kept = settings.idle_users if settings.keeps_weighted_users else 0
        self._only_kept_are_named = settings.keeps_weighted_users
        self._ordered: dict[str, float] = {}
        self._boosts: dict[str, Boost] = {}
        self._ends: list[tuple[float, str]] = []
        """Heap of end times and users; includes boosts that have been replaced or cancelled."""

    @property
    def next_end(self) -> float:
        """The earliest end of a boost, in seconds since the Unix epoch; infinity without boosts."""
        ends = self._ends
        while ends and not self._is_present(*ends[0]):
            heapq.heappop(ends)
        return ends[0][0] if ends else math.inf

    def fork(self) -> "Weights":
        """Return an independent copy."""
        weights: Weights = copy(self)
        weights._ordered, weights._boosts = dict(self._ordered), dict(self._boosts)
        weights._from_scheduler, weights._ends = dict(self._from_scheduler), list(self._ends)
        weights._kept = dict(self._kept)
        return weights

    def of(self, name: str) -> float:
        """Return the weight that applies to a user now; 1 by default."""
        boost = self._boosts.get(name)
        return self.after_boost(name) if boost is None else boost.weight

    def after_boost(self, name: str) -> float:
        """Return the weight of a user without its boost, which applies once the boost has ended."""
        if name in self._ordered:
            return self._ordered[name]
        if name in self._from_scheduler:
            return self._from_scheduler[name]
        return self._declared.get(name, 1.0)

    def by(self, name: str) -> By:
        """Return the source of a user's weight: boost, operator, scheduler or configuration.

        The result is "" for the default weight.
        """
        if name in self._boosts:
            return "boost"
        if name in self._ordered:
            return "operator"
        if name in self._from_scheduler:
            return self._scheduler
        return "configuration" if name in self._declared else ""

    @property
    def boosts(self) -> int:
        """The number of boosts that have not ended."""
        return len(self._boosts)

    def boost(self, name: str) -> Boost | None:
        """Return the temporary weight (boost) of a user; None without a boost."""
        return self._boosts.get(name)

    def keeps(self, name: str) -> bool:
        """Return whether a user must not be forgotten while idle.

        This is so if the user is declared in the configuration, if an operator has set its weight
        or boost, or if the scheduler's weight keeps it.
        """
        ordered = name in self._ordered or name in self._boosts
        return ordered or name in self._declared or name in self._kept

    def is_kept_by_scheduler(self, name: str) -> bool:
        """Return whether a user stays known because of the scheduler's weight.

        This is so for weights other than 1 with the setting `keeps_weighted_users`, of at most
        `idle_users` users.
        """
        return name in self._kept

    def is_explicit(self, name: str) -> bool:
        """Return whether a user's weight was set explicitly, so that the user counts as named.

        With `keeps_weighted_users`, a weight of the scheduler counts only if it keeps the user.
        """
        return self.keeps(name) or (name in self._from_scheduler and not self._only_kept_are_named)

    def ordered(self, name: str) -> float | None:
        """Return the weight that an operator has set permanently for a user; None without one."""
        return self._ordered.get(name)

    def set_from_scheduler(self, weights: Mapping[str, float]) -> None:
        """Store weights that the scheduler has sent; other users keep their weights."""
        self._from_scheduler.update(weights)
        for name, weight in weights.items():
            if weight == 1.0:
                self._kept.pop(name, None)
            elif len(self._kept) < self._most_kept:
                self._kept[name] = None

    def order(self, name: str, weight: float | None) -> None:
        """Set a user's permanent weight by an operator's command, and end the user's boost.

        Args:
            name: The user's name; the user need not be known.
            weight: A positive number; None: remove the weight set by an earlier command.
        """
        self.end_boost(name)
        if weight is None:
            self._ordered.pop(name, None)
        else:
            self._ordered[name] = weight

    def order_boost(self, name: str, boost: Boost) -> None:
        """Set a user's temporary weight by an operator's command, in place of an earlier boost."""
        self._boosts[name] = boost
        if len(self._ends) > 2 * len(self._boosts):
            self._ends = [(known_boost.until, user) for user, known_boost in self._boosts.items()]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (boost.until, name))

    def end_boost(self, name: str) -> None:
        """Remove the boost of a user before its end, if the user has a boost."""
        self._boosts.pop(name, None)

    def ended(self, now: float) -> list[str]:
        """Remove the boosts that have ended; return the names of their users.

        Args:
            now: The current time in seconds since the Unix epoch.
        """
        ended = []
        while self.next_end <= now:
            _, name = heapq.heappop(self._ends)
            ended.append(name)
            self.end_boost(name)
        return ended

    def _is_present(self, end: float, name: str) -> bool:
        """Return whether an entry of `_ends` is current: the user has a boost with this end.

        The heap `_ends` keeps the entries of boosts that have been replaced or removed.

        Args:
            end: End of the boost in the entry, in seconds since the Unix epoch.
            name: The user in the entry.
        """
        boost = self._boosts.get(name)
        return boost is not None and boost.until == end
