"""Whose word a user's weight is: an operator's, for good or for a time, the master's, a file's."""

import heapq
import math
from collections.abc import Mapping
from typing import Literal

from allocator.cluster.memory import Boost
from allocator.cluster.settings import EngineSettings

By = Literal["boost", "operator", "master", "configuration", ""]


class Weights:
    """What has been said about the weights of users, also of such as are not known yet."""

    def __init__(self, settings: EngineSettings) -> None:
        self._declared = {declared.name: declared.weight for declared in settings.users}
        self._masters: dict[str, float] = {}
        self._of_roles = settings.user_key == "role"
        self._ordered: dict[str, float] = {}
        self._boosts: dict[str, Boost] = {}
        self._ends: list[tuple[float, str]] = []
        """A heap of ends and users, also of boosts that have been replaced or cancelled."""

    @property
    def next_end(self) -> float:
        """When the next boost ends, in seconds since the epoch; infinity: there is no boost."""
        ends = self._ends
        while ends and not self._is_present(*ends[0]):
            heapq.heappop(ends)
        return ends[0][0] if ends else math.inf

    def of(self, name: str) -> float:
        """Return the weight of a user; 1: nobody has said anything."""
        boost = self._boosts.get(name)
        return self.after_boost(name) if boost is None else boost.weight

    def after_boost(self, name: str) -> float:
        """Return the weight that a user has but for a boost."""
        if name in self._ordered:
            return self._ordered[name]
        if self._of_roles and name in self._masters:
            return self._masters[name]
        return self._declared.get(name, 1.0)

    def by(self, name: str) -> By:
        """Return whose word a user's weight is."""
        if name in self._boosts:
            return "boost"
        if name in self._ordered:
            return "operator"
        if self._of_roles and name in self._masters:
            return "master"
        return "configuration" if name in self._declared else ""

    @property
    def boosts(self) -> int:
        """The number of boosts that have not ended."""
        return len(self._boosts)

    def boost(self, name: str) -> Boost | None:
        """Return the boost of a user."""
        return self._boosts.get(name)

    def keeps(self, name: str) -> bool:
        """Whether a user is to stay known because of what was said."""
        return name in self._declared or name in self._ordered or name in self._boosts

    def ordered(self, name: str) -> float | None:
        """Return what an operator has ordered for good."""
        return self._ordered.get(name)

    def take_over(self, masters: Mapping[str, float]) -> None:
        """Follow the master; roles that are not named keep their weights."""
        self._masters.update(masters)

    def order(self, name: str, weight: float | None) -> None:
        """Follow an order that holds for good; None: nothing holds that was ordered before."""
        self.end_boost(name)
        if weight is None:
            self._ordered.pop(name, None)
        else:
            self._ordered[name] = weight

    def order_boost(self, name: str, boost: Boost) -> None:
        """Follow an order that holds for a time."""
        self._boosts[name] = boost
        if len(self._ends) > 2 * len(self._boosts):
            self._ends = [(known_boost.until, user) for user, known_boost in self._boosts.items()]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (boost.until, name))

    def end_boost(self, name: str) -> None:
        """Forget a boost, if there is one."""
        self._boosts.pop(name, None)

    def ended(self, now: float) -> list[str]:
        """Forget boosts that are over at an instant; return whose they were."""
        over = []
        while self.next_end <= now:
            _, name = heapq.heappop(self._ends)
            over.append(name)
            self.end_boost(name)
        return over

    def _is_present(self, end: float, name: str) -> bool:
        boost = self._boosts.get(name)
        return boost is not None and boost.until == end
