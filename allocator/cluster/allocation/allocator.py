"""The work of one allocation cycle: the agents visited, their stages, and the resulting offers.

`AllocationCycle` in `allocator.cluster.engine` decides when a cycle runs. The cycle visits the
allocation candidates in a random order. If there are quotas, the first stage
serves unmet guarantees (`QuotaStage`). The second stage allocates fair shares: agent by agent
(`FairShareStage`), or in groups of many identical agents at once (`BulkAllocator`). All stages
record allocations in an `OfferBuilder`, which makes the offers. Clients are visited in the order of
`CycleSorters`.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.allocation.bulk_allocation import BulkAllocator
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask
from allocator.cluster.allocation.client_order import ClientOrder, CycleSorters, first_client
from allocator.cluster.allocation.fair_share_stage import FairShareStage
from allocator.cluster.allocation.offer_builder import (
    OfferBuilder,
    OutstandingOfferLimit,
    minimum_offer,
    reaches,
)
from allocator.cluster.allocation.quota_stage import QuotaStage
from allocator.cluster.allocation.sharing_limit import SharingLimit
from allocator.cluster.backfill.choosing import choose, fits
from allocator.cluster.backfill.holds import BackfillHold
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.metering.metered import note_offer
from allocator.cluster.resources import NOTHING
from allocator.cluster.state import Cluster
from allocator.compilation import mypyc_attr
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, InParts

_AGENTS_A_STEP: Final = 50
"""Agents examined in one step. After a snapshot, the cycle must sum up each agent's free
resources."""
_SLICES: Final = 8
"""Approximate maximum number of slices of an answer. Each slice costs the master a message to each
framework that has offers in the slice."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Allocator:
    """Allocates the resources of one cluster in cycles and records the allocations.

    For each agent with free resources, a cycle costs O(clients visited · kinds of resources),
    whatever the number of tasks. For each agent, the cycle stops visiting clients when no client
    can be allocated more. An agent that every client has declined costs O(1).
    """

    bulk_allocator: ClassVar[type[BulkAllocator]] = BulkAllocator
    """The class that allocates groups of identical agents."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._filters = cluster.filters
        self._holds = cluster.holds
        self._index = ClientIndex(
            cluster.ledger,
            cluster.filters,
            cluster.rules.min_allocatable if cluster.skips_refusing_clients else None,
        )
        self._shares_singly = not (
            cluster.ledger.clients.users.per_machine or cluster.whole_from == 1
        )
        """Whether `_offer_single` applies: all agents have one order of users, and one agent is no
        group for bulk allocation."""
        self.considered: dict[str, ClientMask] = {}
        """The clients that a cycle considers, by agent; all clients on agents without an entry."""

    def agents_for(
        self, clients: Iterable[Client], changed: Iterable[str]
    ) -> Cooperative[dict[str, ClientMask]]:
        """Return a value for `considered`: more agents to examine, for some clients only.

        The agents have not changed, except that these clients may accept more of them. The method
        compares needs and free resources only, so `run` may allocate nothing.

        Args:
            clients: The clients.
            changed: IDs of the agents that the cycle examines for all clients.
        """
        index, minimum = self._index, self._cluster.rules.min_allocatable
        yield from index.update_in_steps()
        considered, agents, known = 0, dict[str, ClientMask](), set(changed)
        for client in clients:
            considered |= index.bit.get(client, 0)
        for number, agent in enumerate(self._ledger.agents.values() if considered else (), 1):
            if not number % _AGENTS_A_STEP:
                yield
            if agent.id in known or not self._is_open(agent):
                continue
            free = agent.available
            fitting = index.fitting(free.divisible) | index.unknown_demand
            if not free.ordinary:
                fitting |= index.admitted_to_restricted(free)
            eligible = considered & fitting
            if eligible and eligible & ~index.unreached(free.quantities, minimum):
                agents[agent.id] = considered
        return agents

    def open_agents(self, agents: Sequence[Agent]) -> Cooperative[list[Agent]]:
        """Return the agents, in the given order, that have free resources and are not withheld."""
        open_agents: list[Agent] = []
        for first in range(0, len(agents), _AGENTS_A_STEP):
            batch = agents[first : first + _AGENTS_A_STEP]
            open_agents += [agent for agent in batch if self._is_open(agent)]
            if first:
                yield
        return open_agents

    def run(self, open_agents: list[Agent], answer: Answer) -> InParts[contract.Decisions, int]:
        """Run one allocation cycle, and return the number of offers made.

        Args:
            open_agents: The result of the method `open_agents`: at least one agent.
            answer: Receives the offers. If the answer is cut, the method yields each slice.
        """
        index = self._index
        yield from index.update_in_steps()
        limit = OutstandingOfferLimit(self._cluster, index)
        may_use: ClientMask | None = None
        if len(open_agents) == 1 and index.unknown_demand and self._shares_singly:
            may_use = self._may_use(open_agents[0], index.wanting)
            offers = self._offer_single(open_agents[0], may_use, limit, answer)
            if offers is not None:
                return offers
        builder = OfferBuilder(self._cluster, limit, answer)
        order = ClientOrder(self._ledger.clients, builder.sorters, index)
        quotas = self._ledger.quotas
        if answer.slice_offers and not quotas:  # with quotas, an agent is served in two stages
            builder.slice_offers = max(answer.slice_offers, len(open_agents) // _SLICES)
        if quotas:
            may_use = None
            quota_stage = QuotaStage(builder, index, order)
            for agent in open_agents:
                eligible = limit.without(self._may_use(agent, quota_stage.guaranteed))
                yield from quota_stage.serve(agent, eligible)
                yield None
        agents = len(open_agents) if self._cluster.limits_sharing else 0
        sharing = SharingLimit(self._ledger, index, agents)
        fair_shares = FairShareStage(builder, index, order, sharing)
        yield from self._fair_shares(open_agents, builder, index, order, fair_shares, may_use)
        builder.sorters.commit()
        # Resources that were withheld in this cycle may be available in the next one.
        if quotas or limit.excluded_any:
            for agent in open_agents:
                if agent.available:
                    self._cluster.candidates.mark_changed(agent.id)
        for waiting in sharing.waiting:
            self._cluster.candidates.mark_changed(waiting)
        yield from builder.write_offers()
        return builder.written

    def hold_back(self) -> None:
        """Create backfill holds for clients whose next task fits on no agent, if holds are enabled.

        `AllocationCycle` calls this method only after a cycle that examined all changed agents of
        the cluster. Other cycles examine only agents that an event has affected.
        """
        agents = self._ledger.agents
        if self._holds.full or not agents:
            return
        index = self._index
        index.update()
        sorters = CycleSorters(self._ledger.clients)  # a separate copy that is never committed
        order = ClientOrder(self._ledger.clients, sorters, index)
        known, first_agent = index.wanting & ~index.unknown_demand, next(iter(agents.values()))
        choose(
            self._cluster,
            lambda: order.clients(first_agent, known),
            lambda client, task: sorters.allocate(client, task, 1),
        )

    def _offer_single(
        self, agent: Agent, may_use: ClientMask, limit: OutstandingOfferLimit, answer: Answer
    ) -> int | None:
        """Offer a whole agent to the first client in order, in a cycle with a single agent.

        A cycle after a single event is such a cycle. The stages would do the same in more steps.

        Args:
            agent: The only open agent.
            may_use: The clients that may use the agent and do not decline all of it.
            limit: Excludes frameworks with too many outstanding offers.
            answer: Receives the offer.

        Returns:
            The number of offers; None: nothing has changed, and the stages must decide.
        """
        cluster, ledger, index, free = self._cluster, self._ledger, self._index, agent.available
        if (
            ledger.quotas
            or ledger.assumed_usage is not None
            or self._holds.enabled
            or not free.ordinary
            or not free.scalars
        ):
            return None
        allowed = limit.without(may_use)
        if limit.excluded_any or allowed & ~index.unknown_demand:
            return None
        client = first_client(ledger.clients, index, allowed)
        if client is None or not any(free.divisible.values()):
            return None if allowed else 0
        framework, rules = ledger.frameworks[client.framework], cluster.rules
        minimum = minimum_offer(framework, client.role, rules)
        if not framework.can_use(agent, client.role, rules) or not reaches(free, minimum):
            return None
        quantities, _no_repeats = ledger.allocate(agent, client, free, NOTHING)
        ledger.clients.allocate(client, quantities)
        cluster.demands.note_offer(client, agent.id, free)
        offers = answer.last.offers.add(framework_id=client.framework).offers
        offers.add(role=client.role, agent_id=agent.id, resources=free.messages(client.role))
        if cluster.meter is not None:
            note_offer(cluster.meter, ledger.clients, client, cluster.now_ns / 1e9)
        return 1

    def _fair_shares(  # noqa: PLR0913, PLR0917 - the objects of one cycle
        self,
        agents: Sequence[Agent],
        builder: OfferBuilder,
        index: ClientIndex,
        order: ClientOrder,
        fair_shares: FairShareStage,
        may_use: ClientMask | None,
    ) -> InParts[contract.Decisions, None]:
        """Run the second stage of a cycle: allocate agents by fair share, singly or in groups.

        The offers of an agent are complete once the agent is served, so a slice may contain them.

        Args:
            agents: The agents to allocate, in the order to visit.
            builder: Records the allocations and collects the offers.
            index: The clients that want offers, as client masks.
            order: Iterates over the clients in sorter order.
            fair_shares: Allocates an agent.
            may_use: The clients that may use the only agent; None: they are not known yet.
        """
        quotas, limit = self._ledger.quotas, builder.outstanding
        separate = builder.headroom.separate_limits
        served = () if separate else [role for role, _ in quotas.items()]
        sharing = index.without_roles(served)

        if self._bulk_allowed(agents, order):
            bulk = self.bulk_allocator(
                self._filters, builder, index, order, limit, fair_shares.sharing
            )
            yield from self._serve_groups(agents, sharing, builder, bulk, fair_shares)
            return
        for number, agent in enumerate(agents):
            if number:
                yield None
            allowed = limit.without(self._may_use(agent, sharing) if may_use is None else may_use)
            if not allowed:
                continue
            hold = self._holds.on(agent.id)
            if hold is not None:
                allowed = yield from self._apply_hold(hold, agent, allowed, index, fair_shares)
                yield from fair_shares.serve(agent, allowed)
            elif not fair_shares.offer_whole(agent, allowed):
                yield from fair_shares.serve(agent, allowed)
            if builder.unwritten >= builder.slice_offers:
                yield from builder.cut_answer()

    def _serve_groups(
        self,
        agents: Sequence[Agent],
        sharing: ClientMask,
        builder: OfferBuilder,
        bulk: BulkAllocator,
        fair_shares: FairShareStage,
    ) -> InParts[contract.Decisions, None]:
        """Allocate agents by fair share, large groups of identical agents at once.

        Args:
            agents: The agents to allocate, in the order to visit.
            sharing: The clients that may be allocated fair shares.
            builder: Records the allocations and collects the offers.
            bulk: Allocates groups.
            fair_shares: Allocates an agent.
        """
        bulk_threshold = self._cluster.whole_from
        groups = bulk.group_agents(
            agents, lambda agent: self._may_use(agent, sharing), bulk_threshold
        )
        for group in (yield from groups):
            is_bulk = len(group.agents) >= bulk_threshold
            placements = (yield from bulk.allocate_group(group)) if is_bulk else {}
            for agent, may_use in zip(group.agents, group.may_use, strict=True):
                allowed = builder.outstanding.without(may_use)
                tasks = placements.get(agent.id, ())
                if allowed or tasks:
                    if tasks or not fair_shares.offer_whole(agent, allowed):
                        yield from fair_shares.serve(agent, allowed, tasks)
                    yield None
                    if builder.unwritten >= builder.slice_offers:
                        yield from builder.cut_answer()

    def _may_use(self, agent: Agent, clients: ClientMask) -> ClientMask:
        """Return the given clients that may use an agent and do not decline the whole agent.

        Args:
            agent: An agent with available resources.
            clients: Clients that want offers.
        """
        if self.considered:
            clients &= self.considered.get(agent.id, -1)
        allowed = clients & ~self._index.excluded_from(agent.id)
        return allowed & ~self._filters.declining_clients(agent.id, agent.available, allowed)

    def _bulk_allowed(self, agents: Sequence[Agent], order: ClientOrder) -> bool:
        """Return whether a cycle over these agents may use bulk allocation.

        Bulk allocation needs many agents, no quotas, no backfill holds, and a policy whose sorter
        order is the same on every agent.
        """
        enough = 0 < self._cluster.whole_from <= len(agents)
        return enough and not (self._ledger.quotas or self._holds.enabled or order.per_machine)

    def _apply_hold(
        self,
        hold: BackfillHold,
        agent: Agent,
        allowed: ClientMask,
        index: ClientIndex,
        fair_shares: FairShareStage,
    ) -> Cooperative[ClientMask]:
        """Allocate an agent first to the client of its backfill hold, if that client's task fits.

        While the held task does not fit, only clients with short tasks may use the agent. A task is
        short if it is estimated to end before the agent is ready for the held task.

        Args:
            hold: The hold of the agent.
            agent: The agent to allocate.
            allowed: Clients that could be allocated the agent if there were no hold.
            index: The clients that want offers, as client masks.
            fair_shares: Allocates the held task.

        Returns:
            The clients to which the agent's remaining resources may be allocated.
        """
        bit = index.bit.get(hold.client, 0)
        if not bit & allowed:
            self._holds.drop(hold)
        elif fits(agent, hold.task):
            yield from fair_shares.serve(agent, bit)
            self._holds.drop(hold)  # without an offer, a filter declined the task
        else:
            wait_ns = hold.ready_ns - self._cluster.now_ns
            ended = {
                name for name, length in self._holds.runtime_estimates.known() if length <= wait_ns
            }
            return allowed & sum(index.by_framework.get(name, 0) for name in ended)
        return allowed

    def _is_open(self, agent: Agent) -> bool:
        return self._cluster.withheld(agent) is None and bool(agent.available)
