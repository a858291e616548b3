"""Weights of users, set by an operator, the master or the configuration."""

import heapq
import math
from collections.abc import Mapping
from typing import Literal

from allocator.cluster.memory import Boost
from allocator.cluster.settings import EngineSettings

By = Literal["boost", "operator", "master", "configuration", ""]
"""Source of a user's weight; "" for the default."""


class Weights:
    """Weights of known and unknown users, by source."""

    def __init__(self, settings: EngineSettings) -> None:
        self._declared = {declared.name: declared.weight for declared in settings.users}
        self._from_master: dict[str, float] = {}
        self._of_roles = settings.user_key == "role"
        self._ordered: dict[str, float] = {}
        self._boosts: dict[str, Boost] = {}
        self._ends: list[tuple[float, str]] = []
        """Heap of end times and users; includes boosts that have been replaced or cancelled."""

    @property
    def next_end(self) -> float:
        """End of the next boost to end, in seconds since the epoch; infinity without boosts."""
        ends = self._ends
        while ends and not self._is_present(*ends[0]):
            heapq.heappop(ends)
        return ends[0][0] if ends else math.inf

    def of(self, name: str) -> float:
        """Return the weight of a user; 1 by default."""
        boost = self._boosts.get(name)
        return self.after_boost(name) if boost is None else boost.weight

    def after_boost(self, name: str) -> float:
        """Return the weight of a user once its boost has ended."""
        if name in self._ordered:
            return self._ordered[name]
        if self._of_roles and name in self._from_master:
            return self._from_master[name]
        return self._declared.get(name, 1.0)

    def by(self, name: str) -> By:
        """Return the source of a user's weight."""
        if name in self._boosts:
            return "boost"
        if name in self._ordered:
            return "operator"
        if self._of_roles and name in self._from_master:
            return "master"
        return "configuration" if name in self._declared else ""

    @property
    def boosts(self) -> int:
        """The number of boosts that have not ended."""
        return len(self._boosts)

    def boost(self, name: str) -> Boost | None:
        """Return the boost of a user; None without a boost."""
        return self._boosts.get(name)

    def keeps(self, name: str) -> bool:
        """Whether a user must stay known because of a declaration, an order or a boost."""
        return name in self._declared or name in self._ordered or name in self._boosts

    def ordered(self, name: str) -> float | None:
        """Return the weight that an operator has ordered permanently; None without an order."""
        return self._ordered.get(name)

    def take_over(self, weights: Mapping[str, float]) -> None:
        """Set weights of roles, as the master sends them; other roles keep their weights."""
        self._from_master.update(weights)

    def order(self, name: str, weight: float | None) -> None:
        """Set the permanent weight of a user by an operator's order, and end its boost.

        Args:
            name: The user.
            weight: The weight; None: cancel an earlier order.
        """
        self.end_boost(name)
        if weight is None:
            self._ordered.pop(name, None)
        else:
            self._ordered[name] = weight

    def order_boost(self, name: str, boost: Boost) -> None:
        """Set a boost by an operator's order."""
        self._boosts[name] = boost
        if len(self._ends) > 2 * len(self._boosts):
            self._ends = [(known_boost.until, user) for user, known_boost in self._boosts.items()]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (boost.until, name))

    def end_boost(self, name: str) -> None:
        """Cancel the boost of a user, if any."""
        self._boosts.pop(name, None)

    def ended(self, now: float) -> list[str]:
        """Remove boosts that have ended; return their users."""
        ended = []
        while self.next_end <= now:
            _, name = heapq.heappop(self._ends)
            ended.append(name)
            self.end_boost(name)
        return ended

    def _is_present(self, end: float, name: str) -> bool:
        """Whether an entry of the heap is the user's current boost."""
        boost = self._boosts.get(name)
        return boost is not None and boost.until == end
