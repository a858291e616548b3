"""What one task of a framework needs: with that known, agents are filled task by task."""

import difflib
from collections import Counter, deque
from collections.abc import Collection, Iterable

from typing_extensions import override

from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.text import readable
from allocator.cluster.resources import Resources
from allocator.cluster.resources.largest import Largest
from allocator.cluster.settings import EngineSettings
from allocator.fairness.quantities import Quantities

_LONGEST_SLIP = 64
"""Characters of a resource's name that may still be a slip of the pen."""
_REMEMBERED = 8
"""Accepted offers from which a demand is learned."""


class Demands:
    """Demands by client: the operator's word, else the framework's, else what was learned.

    What is learned is the least that a client kept of one of its latest offers. One that keeps
    nothing of an offer made to measure may have changed its mind: it is forgotten, and whole
    agents are offered again.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._given = settings.demands
        self._learns = settings.learn_demands
        self._smallest = settings.limits.smallest_demand
        self._offered: dict[Client, dict[str, Quantities]] = {}
        """Latest offers that nothing has come back of yet, by agent."""
        self._kept: dict[Client, deque[Quantities]] = {}

    def new_floor(self) -> "DemandFloor":
        """Return what keeps demands from being too small for a cluster without agents yet."""
        return DemandFloor(self._smallest)

    def of(self, client: Client, framework: Framework) -> Quantities | None:
        """Return what one task of a client needs; None: nobody knows."""
        given = self._given.get(framework.name, framework.demand)
        if given is not None or not self._learns:
            return given
        kept = self._kept.get(client)
        return min(kept, key=_size) if kept else None

    def note_offer(self, client: Client, agent: str, offer: Resources) -> None:
        """Learn that an offer is made."""
        if self._learns:
            self._offered.setdefault(client, {})[agent] = offer.plain.scalars

    def note_answer(self, client: Client, agent: str, returned: Resources) -> None:
        """Learn what a framework gives back of an offer."""
        offered = self._offered.get(client, {}).pop(agent, None)
        if offered is None:
            return
        plain = returned.plain.scalars
        kept = Quantities({name: max(milli - plain[name], 0) for name, milli in offered.items()})
        if kept:
            self._kept.setdefault(client, deque(maxlen=_REMEMBERED)).append(kept)
        else:
            self._kept.pop(client, None)

    def learned(self, client: Client) -> list[Quantities]:
        """Return what a client kept of its latest offers."""
        return list(self._kept.get(client, ()))

    def recall(self, client: Client, learned: list[Quantities]) -> None:
        """Take over what another has learned about a client."""
        if learned:
            self._kept[client] = deque(learned, maxlen=_REMEMBERED)

    def forget(self, client: Client) -> None:
        """Forget a client that is gone."""
        self._kept.pop(client, None)
        self._offered.pop(client, None)

    def forget_agent(self, agent: str) -> None:
        """Forget what was offered of an agent that is gone."""
        for offered in self._offered.values():
            offered.pop(agent, None)


class DemandFloor(Largest):
    """The least that a task counts as: a part of the largest agent, in some resource.

    A smaller demand is multiplied until it reaches that: its framework gets as many tasks' worth
    at a time. So whatever it says, an agent is never divided into more parts than that.

    Args:
        part: Of the largest agent; 0: there is no floor.
    """

    def __init__(self, part: float) -> None:
        super().__init__()
        self._part = part
        self._seen = set[str]()
        """What some agent has had."""
        self._names = set[str]()
        """Likewise, with what comes by the piece, such as ports."""
        self._agents_with = Counter[str]()
        """The number of present agents with a resource, by the resource's name."""

    def put_names(self, names: Collection[str]) -> None:
        """Learn which resources an agent has, with those that come by the piece."""
        self._names.update(names)
        self._agents_with.update(list(names))

    def discard_names(self, names: Collection[str]) -> None:
        """Note that an agent with these resources has gone."""
        self._agents_with.subtract(list(names))

    @override
    def put(self, quantities: Quantities) -> None:
        """Learn of an agent."""
        super().put(quantities)
        self._seen.update(quantities)

    def beyond(self, demand: Quantities) -> str:
        """Return in words what a demand asks for more of than any agent has; empty: nothing."""
        return " and ".join(
            f"{readable(name)}:{amount / 1000:g}, and no agent has more than {largest / 1000:g}"
            for name, amount in demand.items()
            if name in self._seen and amount > (largest := self.of.get(name, 0))
        )

    def unknown(self, demand: Quantities) -> str:
        """Return in words which resources of a demand no agent has ever had; empty: none."""
        known, words = sorted(self._names), []
        for name in sorted(demand.keys() - self._names):
            close = difflib.get_close_matches(name.lower()[:_LONGEST_SLIP], known, n=1)
            meant = f"; did you mean {readable(close[0])}?" if close else ""
            words.append(f"the cluster has no {readable(name)}{meant}")
        return "; ".join(words)

    def unnamed(self, named: Iterable[str]) -> list[str]:
        """Return the resources of present agents that are not named."""
        present = {name for name, agents in self._agents_with.items() if agents > 0}
        return sorted(map(readable, present.difference(named)))

    def at_a_time(self, demand: Quantities) -> int:
        """Return the least number of tasks that are not below the floor together."""
        tasks = (
            -(-round(self._part * self.of[name]) // amount)
            for name, amount in demand.items()
            if name in self.of
        )
        return max(min(tasks, default=1), 1)


def _size(quantities: Quantities) -> tuple[int, int]:
    return quantities["cpus"], quantities["mem"]
