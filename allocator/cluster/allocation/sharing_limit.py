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
"""Maximum number of a principal's clients with an offer of the same agent in a cycle."""
_HELD = 4096
"""Number of a principal's allocations, on all agents together, at which agents are not shared any
more: a single client gets all free resources of an agent."""
_LEAST_OFFERS = 256
"""Number of offers in a cycle for each principal."""
_MOST_OFFERS = 1024
"""Number of offers in a cycle for a principal with this number of clients or more. A principal with
fewer clients, but more than `_LEAST_OFFERS`, may get an offer for each client."""
_RESERVED_OFFERS = 256
"""Number of further offers in a cycle, for clients of a principal with reserved resources."""
_MOST_CLIENTS = 64
"""Number of a principal's clients above which agents are not allocated in bulk if clients have
several task shapes. In each stage, bulk allocation may make an offer to each client."""


@dataclass(slots=True)
class _Sharers:
    """The clients of a principal on an agent, if they are more than may share the agent."""

    clients: ClientMask
    slots: int
    """Number of clients that may get an offer, in sorter order. Clients in turn need no slot."""
    in_turn: ClientMask
    """Clients with reserved resources of the agent, if the clients are next in turn."""

    def free_slots(self, served: ClientMask) -> int:
        """Return the number of free slots, if the clients `served` have got an offer."""
        return self.slots - (self.clients & served & ~self.in_turn).bit_count()


class AgentSharing:
    """Selects the clients that share an agent in a cycle.

    For an offer, a client needs a slot of the principal. Clients take slots in sorter order, so the
    order of clients does not change. Clients without a slot wait for the next cycle.
    """

    def __init__(self, sharers: list[_Sharers]) -> None:
        self._sharers = sharers
        self.limits = bool(sharers)
        """Whether the agent has fewer slots than clients of a principal."""
        self.served: ClientMask = 0
        """Clients that have been allocated resources of the agent in this cycle."""

    def admitted(self, eligible: ClientMask) -> ClientMask:
        """Return the given clients without the clients of principals that have no free slot.

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
    """Computes in an allocation cycle how many clients of a principal may share an agent.

    The number is at least 1. The more agents the cycle examines or the cluster has, the smaller is
    the number. The number is 1 if many clients of the principal hold resources of the agent
    already. Frameworks without a principal count together, as frameworks of a principal.

    Resources that are reserved for a role can be offered to this role only. So some clients with
    reserved resources need no slot, in turn from cycle to cycle. A role that is always last in
    sorter order is therefore not left out for long.

    Args:
        ledger: The agents and frameworks.
        index: The clients that want offers.
        agents: Number of agents that the cycle examines; 0: without a limit.
    """

    def __init__(self, ledger: Ledger, index: ClientIndex, agents: int) -> None:
        self._ledger, self._index, self._agents = ledger, index, agents
        self._most = max(min(_MOST_SHARERS, _HELD // max(len(ledger.agents), 1)), 1)
        """Maximum number of a principal's clients on an agent."""
        self.waiting: list[str] = []
        """IDs of agents with free resources for which clients wait."""

    def on(self, agent: Agent, allowed: ClientMask) -> AgentSharing:
        """Return the sharing of an agent, before any of it is allocated in this cycle.

        Args:
            agent: The agent to allocate.
            allowed: Clients that may use the agent.
        """
        all_sharers: list[_Sharers] = []
        held: dict[str, int] | None = None
        principals = self._index.of_shared_principals if self._agents else {}
        for principal, clients in principals.items():
            present = clients & allowed
            if not present & (present - 1):
                continue  # at most one client
            offers = min(max(clients.bit_count(), _LEAST_OFFERS), _MOST_OFFERS)
            slots = max(min(offers // self._agents, self._most), 1)
            if held is None:
                held = self._held(agent) if agent.allocation_count >= self._most else {}
            if held.get(principal, 0) >= self._most:
                slots = 1
            if present.bit_count() > slots:
                in_turn = self._in_turn(agent, principal, present)
                all_sharers.append(_Sharers(present, slots, in_turn))
        return AgentSharing(all_sharers)

    def allows_bulk(self, clients: ClientMask) -> bool:
        """Return whether clients with several task shapes may be allocated agents in bulk.

        Args:
            clients: All clients that bulk allocation would serve.
        """
        if not self._agents or clients.bit_count() <= _MOST_CLIENTS:
            return True
        by_principal = self._index.of_shared_principals.values()
        return all((clients & own).bit_count() <= _MOST_CLIENTS for own in by_principal)

    def _held(self, agent: Agent) -> dict[str, int]:
        """Return the number of allocations on an agent, by principal."""
        held: dict[str, int] = {}
        for name, _role, _resources in agent.allocations():
            framework = self._ledger.frameworks.get(name)
            if framework is not None:
                principal = framework.subscription.principal
                held[principal] = held.get(principal, 0) + 1
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
