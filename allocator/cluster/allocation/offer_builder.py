"""Offers of one allocation cycle, and the limit on a client's outstanding offers."""

from collections.abc import Iterable, Mapping

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.shared_volumes import Repeats
from allocator.cluster.allocation.client_index import ClientIndex
from allocator.cluster.allocation.progressive_filling import Needs
from allocator.cluster.allocation.sorter_view import SorterView
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.cluster.metering.metered import note_offer
from allocator.cluster.quota import Headroom
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.quantities import Quantities


class OutstandingOfferLimit:
    """Who may get no more in a run, because it has not answered so much.

    Asks O(clients) at the beginning, and nothing where nobody is bounded.
    """

    full = 0
    """Clients of frameworks that have reached the bound."""
    kept = False
    """Whether anybody has been passed over on an agent."""

    def __init__(self, cluster: Cluster, wanting: ClientIndex) -> None:
        self._bound = bound(cluster)
        if self._bound is None:
            return
        self._offered: dict[str, Quantities] = {}
        """By framework."""
        self._clients: dict[str, int] = {}
        for client, bit in wanting.bit.items():
            self._clients[client.framework] = self._clients.get(client.framework, 0) | bit
        for framework in self._clients:
            self._note(framework, offered(cluster, framework))

    def without(self, may: int) -> int:
        """Return those of a set who may get more."""
        if may & self.full:
            self.kept = True
        return may & ~self.full

    def admits(self, gifts: Iterable[tuple[Client, Quantities]]) -> bool:
        """Whether nobody reaches the bound with all of this."""
        if self._bound is None:
            return True
        offered = dict(self._offered)
        for client, quantities in gifts:
            offered[client.framework] += quantities
            if reached(offered[client.framework], self._bound):
                return False
        return True

    def give(self, client: Client, quantities: Quantities) -> None:
        """Note that a client is offered something."""
        if self._bound is not None and client.framework in self._clients:
            self._note(client.framework, self._offered[client.framework] + quantities)

    def _note(self, framework: str, quantities: Quantities) -> None:
        self._offered[framework] = quantities
        if self._bound is not None and reached(quantities, self._bound):
            self.full |= self._clients[framework]


def bound(cluster: Cluster) -> Mapping[str, float] | None:
    """Return of how much one framework may leave offers unanswered; None: of all there is."""
    part = cluster.limits.unanswered
    if part >= 1.0 or not (cluster.tells_running or cluster.ledger.presumed is not None):
        return None
    capacity = cluster.ledger.clients.users.pool.capacity
    return {name: part * amount for name, amount in capacity.items()}


def offered(cluster: Cluster, framework: str) -> Quantities:
    """Return what a framework has been offered and has not answered."""
    clients, total = cluster.ledger.clients, Quantities()
    for client in clients.of(framework):
        total += clients.held(client) - cluster.ledger.running.of(client)
    return total


def reached(quantities: Quantities, most: Mapping[str, float]) -> bool:
    """Whether a bound is reached in some resource."""
    return any(amount >= most.get(name, amount + 1) for name, amount in quantities.items())


_NO_QUOTAS = Headroom({}, {}, Quantities())
"""Where nothing is held back, nothing is written down either."""


class OfferBuilder:
    """The books of one run."""

    def __init__(self, cluster: Cluster, unanswered: OutstandingOfferLimit) -> None:
        self._cluster = cluster
        self._unanswered = unanswered
        self._ledger = cluster.ledger
        self.quotas = cluster.ledger.quotas
        self.order = SorterView(cluster.ledger.clients)
        self.headroom = self.quotas.headroom() if self.quotas else _NO_QUOTAS
        self._shared: dict[str, Resources] = {}
        """Shared volumes offered in this run, by agent."""
        self._made: dict[str, dict[tuple[str, str], Resources]] = {}
        """framework → (agent, role) → resources"""
        self._cuts: dict[tuple[int, int, int], tuple[Resources, Needs, Resources]] = {}
        self._reached: dict[tuple[int, int], tuple[Resources, object, bool]] = {}
        self._rests: dict[tuple[int, int], tuple[Resources, Resources, Resources]] = {}

    def framework(self, client: Client) -> Framework:
        """Return the framework of a client."""
        return self._ledger.frameworks[client.framework]

    def usable(self, agent: Agent, client: Client) -> Resources | None:
        """Return what of an agent a client can take now; None: nothing."""
        framework = self.framework(client)
        if not framework.can_use(agent, client.role, self._cluster.rules):
            return None
        offered = self._shared.get(agent.id)  # a shared volume goes out once in a run (§3.8)
        free = agent.available if offered is None else agent.available - offered
        return framework.share_of(free, client.role) or None

    def wanted(self, agent: Agent, client: Client, give: Resources) -> bool:
        """Whether this reaches the minimum, and the client has not refused it."""
        return (
            bool(give)
            and self._reaches(client, give)
            and not self._cluster.filters.refuses(client, agent.id, give)
        )

    def surely_wanted(self, agent: Agent, client: Client, needs: Needs) -> bool:
        """Whether a client takes one task, whichever part of the agent it is."""
        return not self._cluster.filters.any_by(client, agent.id) and self._reaches(
            client, self.cut(agent, needs, 1)
        )

    def fewest(self, client: Client, task: Needs) -> int:
        """Return the least number of tasks that reach a client's minimum; 0: no number does."""
        numbers = [_fewest(task, minimum) for minimum in self._alternatives(client)]
        return min(filter(None, numbers), default=0) if numbers else 1

    def cut(self, agent: Agent, needs: Needs, number: int) -> Resources:
        """Return what so many tasks take of what an agent has free; there must be enough.

        Agents are alike, and so are tasks: each different cut is worked out once in a run.
        """
        free = agent.available
        key = id(free), id(needs), number
        found = self._cuts.get(key)
        if found is None:
            wanted = Quantities(
                {n: number * amount for n, amount in needs.items() if isinstance(n, str)}
            )
            cut = free.plain.taken(wanted)
            assert cut is not None
            found = self._cuts[key] = free, needs, cut  # whose ids stay theirs for the run
        return found[2]

    def give(self, agent: Agent, client: Client, give: Resources) -> None:
        """Book resources, count them, and make an offer of them."""
        self.charge(agent, client, give)
        self.make(agent, client, give)

    def charge(self, agent: Agent, client: Client, give: Resources) -> None:
        """Book resources on an agent, and count them."""
        counted, repeats = self.book(agent, client, give)
        self.order.give(client, counted, 1 if counted else 0, repeats)

    def book(self, agent: Agent, client: Client, give: Resources) -> tuple[Quantities, Repeats]:
        """Book resources on an agent; return what the client, and its users, hold more then."""
        booked = self._ledger.book(agent, client, give, self._rest(agent, give))
        if give.has_shared:
            self._shared[agent.id] = self._shared.get(agent.id, NOTHING) + give.where(
                lambda kind: kind.shared
            )
        return booked

    def count(self, client: Client, quantities: Quantities, gifts: int) -> None:
        """Count for its user and all above what a client holds more; nothing is no gift."""
        self.order.give(client, quantities, gifts if quantities else 0)

    def make(self, agent: Agent, client: Client, give: Resources) -> None:
        """Make an offer of what is booked."""
        parts = self._made.setdefault(client.framework, {})
        place = (agent.id, client.role)
        parts[place] = parts[place] + give if place in parts else give
        self._unanswered.give(client, give.scalars)
        self._cluster.demands.note_offer(client, agent.id, parts[place])
        if self._ledger.presumed is not None:
            self._ledger.presumed.offered(agent.id, client, self._cluster.now_ns)
        holds = self._cluster.holds
        if holds.enabled:
            holds.run_times.given(client, agent.id, give.scalars, self._cluster.now_ns)
            self._cluster.no_longer_held(holds.served(client, agent.id))

    def offering(self, decisions: contract.Decisions) -> Cooperative[int]:
        """Put all offers into decisions, at most one `Offers` for each framework; return how many.

        Made where they are to be, for a copy of a message costs more than making it.
        """
        number, meter, now = 0, self._cluster.meter, self._cluster.now_ns / 1e9
        for framework, parts in self._made.items():
            offers = decisions.offers.add(framework_id=framework).offers
            number += len(parts)
            for (agent, role), give in parts.items():
                offers.add(role=role, agent_id=agent, resources=give.messages(role))
                if meter is not None:
                    note_offer(meter, self._ledger.clients, Client(role, framework), now)
            yield
        return number

    def _rest(self, agent: Agent, give: Resources) -> Resources | None:
        """Return what an agent has free without this; None: that must be added up."""
        if give.has_shared:
            return None
        free = agent.available
        if free is give:
            return NOTHING
        key = id(free), id(give)
        found = self._rests.get(key)
        if found is None:
            found = self._rests[key] = free, give, free - give
        return found[2]

    def _reaches(self, client: Client, give: Resources) -> bool:
        """Whether this is one of a client's alternatives at least; there need be none."""
        alternatives = self._alternatives(client)
        key = id(give), id(alternatives)
        found = self._reached.get(key)
        if found is None:
            reached = not alternatives or any(
                give.quantities.contains(minimum) for minimum in alternatives
            )
            found = self._reached[key] = give, alternatives, reached
        return found[2]

    def _alternatives(self, client: Client) -> Alternatives:
        """Return of what an offer must reach one at least, if there are any."""
        return self.framework(client).min_allocatable.get(
            client.role, self._cluster.rules.min_allocatable
        )


def _fewest(task: Needs, minimum: Quantities) -> int:
    """Return the least number of tasks that reach a minimum; 0: no number does."""
    if any(name not in task for name in minimum):
        return 0
    return max((-(-amount // task[name]) for name, amount in minimum.items()), default=1)
