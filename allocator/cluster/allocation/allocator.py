"""One run after the other: which agents are looked at, and what all of that comes to."""

from collections.abc import Sequence

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.bulk_allocation import BulkAllocator
from allocator.cluster.allocation.client_index import ClientIndex
from allocator.cluster.allocation.fair_share_stage import FairShareStage
from allocator.cluster.allocation.offer_builder import OfferBuilder, OutstandingOfferLimit
from allocator.cluster.allocation.quota_stage import QuotaStage
from allocator.cluster.allocation.sorter_view import RoleTreeIterator, SorterView
from allocator.cluster.backfill.choosing import choose, fits
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract

_AGENTS_A_STEP = 50
"""Agents that are looked at in a step: after a snapshot, what is free has to be added up."""


class Allocator:
    """Makes offers in one cluster, and books what it offers.

    A run costs, for each agent with something free, O(clients looked at before nobody is left who
    can have any) times O(kinds of resources), however many tasks they get; an agent that everybody
    refuses costs O(1).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._filters = cluster.filters
        self._holds = cluster.holds
        self._wanting: ClientIndex | None = None
        self._version: tuple[object, ...] = ()

    def run(self, agents: Sequence[Agent], decisions: contract.Decisions) -> Cooperative[int]:
        """Offer what agents have free; return how many offers have come into the decisions."""
        if not agents or not (open_agents := (yield from self._open(agents))):
            return 0
        wanting = self._renewed()
        unanswered = OutstandingOfferLimit(self._cluster, wanting)
        books = OfferBuilder(self._cluster, unanswered)
        walk = RoleTreeIterator(self._ledger.clients, books.order, wanting)
        quotas = self._ledger.quotas
        if quotas:
            guarantees = QuotaStage(books, wanting, walk)
            for agent in open_agents:
                may = wanting.everybody & ~wanting.not_on(agent.id)
                guarantees.serve(agent, unanswered.without(may))
                yield
        yield from self._fair_shares(open_agents, books, wanting, walk, unanswered)
        books.order.commit()
        # What is held back today may be free to go when the next run looks.
        if quotas or unanswered.kept:
            for agent in open_agents:
                if agent.available:
                    self._cluster.marks.change(agent.id)
        return (yield from books.offering(decisions))

    def hold_back(self) -> None:
        """Hold back agents for those whose tasks fit nowhere, if that is wished. Once a tick."""
        agents = self._ledger.agents
        if self._holds.full or not agents:
            return
        wanting = self._renewed()
        order = SorterView(self._ledger.clients)  # one of its own, which is never carried out
        walk = RoleTreeIterator(self._ledger.clients, order, wanting)
        known, some = wanting.everybody & ~wanting.unknown, next(iter(agents.values()))
        choose(
            self._cluster,
            lambda: walk.clients(some, known),
            lambda client, task: order.give(client, task, 1),
        )

    def _fair_shares(
        self,
        agents: Sequence[Agent],
        books: OfferBuilder,
        wanting: ClientIndex,
        walk: RoleTreeIterator,
        unanswered: OutstandingOfferLimit,
    ) -> Cooperative[None]:
        """Give fair shares of agents: of each that everybody gets, or of many at once."""
        quotas, sharing = self._ledger.quotas, FairShareStage(books, wanting, walk)
        shared = wanting.everybody if books.headroom.divisible else wanting.unguaranteed(quotas)

        def may_use(agent: Agent) -> int:
            blocked = self._filters.blocked(agent.id, agent.available)
            return shared & ~(blocked | wanting.not_on(agent.id))

        if not self._may_be_whole(agents, walk):
            for number, agent in enumerate(agents):
                may = unanswered.without(may_use(agent))
                if may:
                    if number:
                        yield
                    sharing.serve(agent, self._kept_for(agent, may, wanting, sharing))
            return
        dealing = BulkAllocator(self._filters, books, wanting, walk, unanswered)
        whole_from = self._cluster.whole_from
        for hand in (yield from dealing.hands(agents, may_use, whole_from)):
            many = len(hand.agents) >= whole_from
            laid = (yield from dealing.deal(hand)) if many else {}
            for agent, those in zip(hand.agents, hand.may, strict=True):
                may, tasks = unanswered.without(those), laid.get(agent.id, ())
                if may or tasks:
                    sharing.serve(agent, may, tasks)
                    yield

    def _may_be_whole(self, agents: Sequence[Agent], walk: RoleTreeIterator) -> bool:
        """Whether so many agents may be dealt out whole."""
        enough = 0 < self._cluster.whole_from <= len(agents)
        return enough and not (self._ledger.quotas or self._holds.enabled or walk.per_machine)

    def _kept_for(
        self, agent: Agent, may: int, wanting: ClientIndex, sharing: FairShareStage
    ) -> int:
        """Serve the one that an agent is held back for; return who may have what is left.

        As long as its task does not fit, that is those whose tasks end before it is expected to.
        """
        hold = self._holds.on(agent.id)
        if hold is None:
            return may
        bit = wanting.bit.get(hold.client, 0)
        if not bit & may:
            self._holds.drop(hold)
        elif fits(agent, hold.task):
            sharing.serve(agent, bit)
            self._holds.drop(hold)  # where it was not offered: it has refused as much
        else:
            left_ns = hold.ready_ns - self._cluster.now_ns
            gone = {name for name, long in self._holds.run_times.known() if long <= left_ns}
            return may & sum(each for client, each in wanting.bit.items() if client[1] in gone)
        return may

    def _open(self, agents: Sequence[Agent]) -> Cooperative[list[Agent]]:
        found: list[Agent] = []
        for first in range(0, len(agents), _AGENTS_A_STEP):
            some = agents[first : first + _AGENTS_A_STEP]
            found += [agent for agent in some if self._may_be_offered(agent)]
            if first:
                yield
        return found

    def _may_be_offered(self, agent: Agent) -> bool:
        return self._cluster.withheld(agent) is None and bool(agent.available)

    def _renewed(self) -> ClientIndex:
        """Return who wants what, made anew if anything of that has changed."""
        if self._wanting is None or self._version != self._current():
            self._wanting = ClientIndex(self._ledger, self._filters)
            self._version = self._current()
        return self._wanting

    def _current(self) -> tuple[object, ...]:
        return self._ledger.clients.version, self._filters.version, self._ledger.floor.version
