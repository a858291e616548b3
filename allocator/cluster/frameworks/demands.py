"""Task demands: the resources that one task of a client needs.

Clients with a known demand are allocated resources task by task.
"""

import difflib
import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterable

from typing_extensions import override

from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.text import readable
from allocator.cluster.resources import Resources
from allocator.cluster.settings import EngineSettings
from allocator.fairness.largest import Largest
from allocator.fairness.quantities import Quantities

_LONGEST_TYPO = 64
"""Maximum length in characters of a resource name for which a correction is suggested."""
_MOST_COMPARED = 32
"""Maximum number of known resource names that are compared with an unknown name."""
_MESOS_NAMES = frozenset({"cpus", "gpus", "mem", "disk", "ports"})
"""Names of the resources that Mesos defines."""
MOST_DESCRIBED = 8
"""Maximum number of a framework's unknown resources that are described, over all its roles, and of
roles whose offer constraints are described."""
_MOST_LEARNED = 8
"""Number of latest accepted offers from which a demand is learned."""


class Demands:
    """Determines each client's task demand: from the operator, the framework, or earlier offers.

    For a learned demand, the class records which part of each accepted offer the client kept. The
    smallest of the latest parts is the learned demand. A client that keeps nothing of an offer may
    have changed its demand. The learned demand is then forgotten, and the client is offered whole
    agents again.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._by_operator = settings.demands
        self._learns = settings.learn_demands
        self._smallest = settings.limits.smallest_demand
        self._offered: dict[Client, dict[str, Quantities]] = {}
        """client → agent → quantities of the latest offer, if still unanswered"""
        self._kept: dict[Client, deque[Quantities]] = {}

    def new_floor(self) -> "DemandFloor":
        """Return a demand floor for a new cluster, which has no agents yet."""
        return DemandFloor(self._smallest)

    def of(self, client: Client, framework: Framework) -> Quantities | None:
        """Return the resources that one task of a client needs; None if unknown.

        Args:
            client: The client.
            framework: The client's framework, which may have declared a demand.
        """
        given = self._by_operator.get(framework.name, framework.demand)
        if given is not None or not self._learns:
            return given
        kept = self._kept.get(client)
        return min(kept, key=_size) if kept else None

    def note_offer(self, client: Client, agent: str, offer: Resources) -> None:
        """Record an offer, so that the client's demand can be learned from the answer.

        Args:
            client: The client that is offered the resources.
            agent: The agent's ID.
            offer: The offered resources.
        """
        if self._learns:
            self._offered.setdefault(client, {})[agent] = offer.plain.scalars

    def note_answer(self, client: Client, agent: str, returned: Resources) -> bool:
        """Learn a client's demand from its answer to an offer: the part that the client kept.

        Args:
            client: The client that answers.
            agent: The agent's ID.
            returned: The resources of the offer that the client returned unused.

        Returns:
            Whether the client has a learned demand, or had one before. Otherwise `of` has not
            changed.
        """
        had_learned = client in self._kept
        offered = self._offered.get(client, {}).pop(agent, None)
        if offered is None:
            return had_learned
        plain = returned.plain.scalars
        kept = Quantities({name: max(milli - plain[name], 0) for name, milli in offered.items()})
        if kept:
            self._kept.setdefault(client, deque(maxlen=_MOST_LEARNED)).append(kept)
        else:
            self._kept.pop(client, None)
        return had_learned or client in self._kept

    def learned(self, client: Client) -> list[Quantities]:
        """Return the quantities that a client kept of its latest accepted offers, oldest first."""
        return list(self._kept.get(client, ()))

    def recall(self, client: Client, learned: list[Quantities]) -> None:
        """Restore what was learned about a client, for example after a restart.

        Args:
            client: The client.
            learned: The kept quantities, as returned by `learned` before.
        """
        if learned:
            self._kept[client] = deque(learned, maxlen=_MOST_LEARNED)

    def forget(self, client: Client) -> None:
        """Forget the offers and the learned demand of a removed client."""
        self._kept.pop(client, None)
        self._offered.pop(client, None)

    def forget_agent(self, agent: str) -> None:
        """Forget offers of a removed agent that clients have not answered."""
        for offered in self._offered.values():
            offered.pop(agent, None)


class DemandFloor(Largest):
    """The minimum size of a unit of tasks: a fraction of the largest agent, in some resource.

    If one task is smaller than the floor, several tasks are allocated together, as a unit. The
    floor therefore bounds the number of allocations on an agent, however small a framework's
    demand is. The class also knows the resource names of all agents, to explain demands that no
    agent can meet.

    Args:
        part: The floor as a fraction of the largest agent, for example 0.001; 0: no floor.
    """

    def __init__(self, part: float) -> None:
        super().__init__()
        self._part = part
        self._seen = set[str]()
        """Names of scalar resources that an agent has ever had."""
        self._names = set[str]()
        """Names of resources that an agent has ever had, including ports and items of sets."""
        self.comparisons = 0
        """Number of comparisons of an unknown name with a known name so far, for corrections."""
        self._agents_with = Counter[frozenset[str]]()
        """names of an agent's resources → number of present agents with exactly these names"""

    def put_names(self, names: Collection[str]) -> None:
        """Record the names of an agent's resources, including ports and items of sets.

        From then on, the names count as known, even if the agent is removed. If a name is new,
        `version` changes.
        """
        all_names = frozenset(names)
        if all_names not in self._agents_with and not self._names.issuperset(all_names):
            self._names.update(all_names)
            self.version += 1
        self._agents_with[all_names] += 1

    def discard_names(self, names: Collection[str]) -> None:
        """Record that an agent with these resource names is gone or has changed.

        The names stay known, but count as present only while another agent has them (`unnamed`).
        """
        all_names = frozenset(names)
        self._agents_with[all_names] -= 1
        if not self._agents_with[all_names]:
            del self._agents_with[all_names]

    @override
    def put(self, quantities: Quantities) -> None:
        """Add an agent, given by its total scalar quantities."""
        super().put(quantities)
        self._seen.update(quantities)

    def beyond(self, demand: Quantities) -> str:
        """Return an explanation of demanded amounts that no agent's total reaches; "" if none."""
        return " and ".join(
            f"{readable(name)}:{amount / 1000:g}, and no agent has more than {largest / 1000:g}"
            for name, amount in demand.items()
            if name in self._seen and amount > (largest := self.of.get(name, 0))
        )

    def unknown(self, demand: Quantities, most: int = MOST_DESCRIBED) -> list[str]:
        """Return descriptions of the demanded resources that no agent has ever had.

        Each description costs up to `_MOST_COMPARED` comparisons, to suggest a correction.

        Args:
            demand: The demanded resources.
            most: Maximum number of descriptions.
        """
        descriptions = []
        for name in heapq.nsmallest(most, demand.keys() - self._names):
            close = self._correction(name)
            meant = f"; did you mean {readable(close)}?" if close else ""
            descriptions.append(f"the cluster has no {readable(name)}{meant}")
        return descriptions

    @property
    def names(self) -> Collection[str]:
        """Names of resources that an agent has ever had, including ports and items of sets."""
        return self._names

    def knows(self, demand: Quantities) -> bool:
        """Return whether an agent has ever had each of the demanded resources."""
        return demand.keys() <= self._names

    def _correction(self, name: str) -> str:
        """Return the known resource name that is most similar to an unknown name, or "".

        A resource of Mesos that the cluster lacks is not a misspelling of another one.
        """
        typo = name.lower()[:_LONGEST_TYPO]
        if typo in _MESOS_NAMES.difference(self._names):
            return ""
        letters = set(typo)
        names = heapq.nsmallest(
            _MOST_COMPARED,
            self._names,
            key=lambda known: (len(letters.symmetric_difference(known)), known),
        )
        self.comparisons += len(names)
        return next(iter(difflib.get_close_matches(typo, names, n=1)), "")

    def unnamed(self, named: Iterable[str]) -> list[str]:
        """Return the names of resources that present agents have, but that are not in `named`."""
        present = set[str]().union(*self._agents_with)
        return sorted(map(readable, present.difference(named)))

    def unit_size(self, demand: Quantities) -> int:
        """Return the number of tasks in a unit: the fewest that reach the floor in some resource.

        Args:
            demand: Demand of one task in thousandths, by resource.
        """
        tasks = (
            -(-round(self._part * self.of[name]) // amount)
            for name, amount in demand.items()
            if name in self.of
        )
        return max(min(tasks, default=1), 1)


def _size(quantities: Quantities) -> tuple[int, int]:
    """Return the key by which the smallest learned quantities are found: CPUs, then memory."""
    return quantities["cpus"], quantities["mem"]
