"""Whose word a user's weight is: an operator's, for good or for a time, the master's, a file's."""

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
        self.next_end = math.inf
        """When the next boost ends, in seconds since the epoch."""

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
        self._note_end()

    def end_boost(self, name: str) -> None:
        """Forget a boost, if there is one."""
        if self._boosts.pop(name, None) is not None:
            self._note_end()

    def ended(self, now: float) -> list[str]:
        """Forget boosts that are over at an instant; return whose they were."""
        over = [name for name, boost in self._boosts.items() if boost.until <= now]
        for name in over:
            self.end_boost(name)
        return over

    def _note_end(self) -> None:
        self.next_end = min((boost.until for boost in self._boosts.values()), default=math.inf)
