"""Limits how many clients of one principal share an agent in one allocation cycle.

Without a limit, a principal with many roles or frameworks could split each agent into as many
offers, and one event would cost the service as many times as much.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, islice

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask, ones

_MOST_SHARERS = 64
"""Maximum number of a principal's clients that get an offer of one agent in a cycle."""
_HELD = 4096
"""Number of allocations of a principal, on all agents together, up to which its clients share
agents. With more, one client a cycle gets all that is free on an agent."""
_LEAST_OFFERS = 256
"""Number of offers that each principal may get in a cycle."""
_MOST_OFFERS = 1024
"""Number of offers in a cycle for principals with as many clients; others with more than
`_LEAST_OFFERS` clients may get an offer for each client."""
_RESERVED_OFFERS = 4096
"""Number of further offers in a cycle, for clients of a principal with reserved resources."""

_MOST_CLIENTS = 64
"""Number of a principal's clients beyond which agents are not allocated in bulk if clients have
several task shapes. In each stage, bulk allocation may make an offer to each client."""


@dataclass(slots=True)
class _Sharers:
    """The clients of one principal that may use an agent, if not all of them may share it."""

    clients: ClientMask
    slots: int
    """Number of clients that may get an offer, in sorter order. Clients in turn need no slot."""
    in_turn: ClientMask
    """Clients for which resources of the agent are reserved, and that are next in turn."""

    def free_slots(self, served: ClientMask) -> int:
        """Return the number of free slots, if the clients `served` have got an offer."""
        return self.slots - (self.clients & served & ~self.in_turn).bit_count()


class AgentSharing:
    """Decides which clients share one agent in one cycle.

    A client needs a slot of its principal for an offer. Slots are taken in sorter order, so the
    order of clients does not change. Other clients wait for the next cycle.
    """

    def __init__(self, sharers: list[_Sharers]) -> None:
        self._sharers = sharers
        self.served: ClientMask = 0
        """Clients that have been allocated resources of the agent in this cycle."""

    def admitted(self, eligible: ClientMask) -> ClientMask:
        """Return the given clients except those that must wait, because no slot is free.

        Args:
            eligible: Clients that may be allocated resources of the agent.
        """
        for sharers in self._sharers:
            new = eligible & sharers.clients & ~self.served & ~sharers.in_turn
            if new and sharers.free_slots(self.served) <= 0:
                eligible &= ~new
        return eligible

    def simultaneous(
        self, admitted: ClientMask, in_order: Callable[[ClientMask], Iterable[ClientMask]]
    ) -> ClientMask:
        """Return clients that may all get an offer, with at most one new client for a free slot.

        Args:
            admitted: The result of `admitted`.
            in_order: Yields the given clients that can use the agent, in sorter order, each as a
                mask.
        """
        for sharers in self._sharers:
            new = admitted & sharers.clients & ~self.served & ~sharers.in_turn
            free_slots = sharers.free_slots(self.served)
            if new.bit_count() <= free_slots:
                continue
            admitted &= ~new
            for number, bit in enumerate(in_order(new), 1):
                admitted |= bit
                if number == free_slots:
                    break
        return admitted


class SharingLimit:
    """Computes in one allocation cycle how many clients of a principal may share an agent.

    The number is at least 1. It is smaller if the cycle examines many agents, if the cluster has
    many agents, or if many clients of the principal hold resources of the agent already. Each
    principal may therefore get a number of offers that depends on its clients only, or one offer
    of each agent. All frameworks without a principal count as frameworks of one principal.

    A client with resources that are reserved for its role may be left out although no other client
    can be offered these resources. Some clients with reserved resources therefore need no slot, in
    turn from cycle to cycle: a client that is always last in sorter order is not left out for long.

    Args:
        ledger: The agents and frameworks.
        index: The clients that want offers.
        agents: Number of agents that the cycle examines; 0: without a limit.
    """

    def __init__(self, ledger: Ledger, index: ClientIndex, agents: int) -> None:
        self._ledger, self._index, self._agents = ledger, index, agents
        self._most = max(min(_MOST_SHARERS, _HELD // max(len(ledger.agents), 1)), 1)
        """Number of a principal's clients that may hold resources of an agent and share it."""
        self.waiting: list[str] = []
        """IDs of agents with free resources for which clients wait."""

    def on(self, agent: Agent, allowed: ClientMask) -> AgentSharing:
        """Return the sharing of an agent, before any of it is allocated in this cycle.

        Args:
            agent: The agent to allocate.
            allowed: Clients that may use the agent.
        """
        found: list[_Sharers] = []
        held: dict[str, int] | None = None
        for principal, clients in self._index.by_principal.items() if self._agents else ():
            present = clients & allowed
            if not present & (present - 1):
                continue  # at most one client
            if held is None:
                held = self._held(agent)
            offers = min(max(clients.bit_count(), _LEAST_OFFERS), _MOST_OFFERS) // self._agents
            slots = max(min(offers, self._most - held.get(principal, 0)), 1)
            if present.bit_count() > slots:
                found.append(_Sharers(present, slots, self._in_turn(agent, principal, present)))
        return AgentSharing(found)

    def allows_bulk(self, clients: ClientMask) -> bool:
        """Return whether clients with several task shapes may be allocated agents in bulk.

        Args:
            clients: All clients that bulk allocation would serve.
        """
        if not self._agents or clients.bit_count() <= _MOST_CLIENTS:
            return True
        by_principal = self._index.by_principal.values()
        return all((clients & own).bit_count() <= _MOST_CLIENTS for own in by_principal)

    def _held(self, agent: Agent) -> dict[str, int]:
        """Return the number of allocations on an agent, by principal."""
        held: dict[str, int] = {}
        for name in agent.holders():
            framework = self._ledger.frameworks.get(name)
            if framework is not None:
                principal = framework.subscription.principal
                held[principal] = held.get(principal, 0) + agent.number_held_by(name)
        return held

    def _in_turn(self, agent: Agent, principal: str, clients: ClientMask) -> ClientMask:
        """Return the clients of a principal with reserved resources of an agent that are in turn.

        The next call for the agent continues after these clients.
        """
        free = agent.available
        reserved = clients & self._index.reserved_for(free.reservations) if not free.ordinary else 0
        number = max(min(_MOST_SHARERS, _RESERVED_OFFERS // self._agents), 1)
        if reserved.bit_count() <= number:
            return reserved
        first = agent.turns.get(principal, 0)
        later = reserved >> first << first
        in_turn = [*islice(chain(ones(later), ones(reserved ^ later)), number)]
        agent.turns[principal] = in_turn[-1].bit_length()
        return sum(in_turn)
