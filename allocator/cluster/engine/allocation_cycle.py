"""Allocation runs: when one is due, over which agents, and what is told of it."""

from collections.abc import Callable, Sequence
from random import Random

from allocator.cluster.allocation import Allocator
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.input.quarantine import in_words
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract


class AllocationCycle:
    """Allocates in one cluster after the other.

    Args:
        cluster: The first.
        seed: Of the order in which a run visits agents.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - order of agents, not a secret
        self._before: Sequence[Callable[[], None]] = ()
        self._after: Sequence[Callable[[contract.Decisions], None]] = ()
        self.go_on_in(cluster)

    def go_on_in(self, cluster: Cluster) -> None:
        """Allocate in another cluster from now on."""
        self._cluster = cluster
        self._allocation = Allocator(cluster)

    def watch(
        self,
        before: Sequence[Callable[[], None]],
        after: Sequence[Callable[[contract.Decisions], None]],
    ) -> None:
        """Tell some of each run from now on: before it begins, and what has come of it."""
        self._before, self._after = before, after

    def deciding(self) -> Cooperative[contract.Decisions]:
        """Allocate; a fault of the allocator itself costs the offers of one run."""
        cluster = self._cluster
        replies, cluster.replies = cluster.replies, []
        try:
            decisions = yield from self._running()
        except Exception as error:  # noqa: BLE001 - nobody gets offers from an allocator that is down
            cluster.statistics.faults += 1
            cluster.divergence = f"an allocation run: {in_words(error)}"
            decisions = contract.Decisions()
        if replies:
            decisions.replies.extend(replies)
        return decisions

    def _running(self) -> Cooperative[contract.Decisions]:
        cluster, decisions = self._cluster, contract.Decisions()
        if not cluster.marks.due or not cluster.allocates:
            return decisions
        if cluster.holds.enabled:
            for agent in cluster.holds.expire(cluster.now_ns):
                cluster.no_longer_held(agent)
        if cluster.ledger.presumed is not None:
            yield from cluster.ledger.presumed.expiring(cluster.ledger.agents, cluster.now_ns)
        changed, called = cluster.marks.take()
        agents = [cluster.ledger.agents[name] for name in changed]
        for tell in self._before:
            tell()
        self._random.shuffle(agents)  # so that no agent is always the first to be used
        made = yield from self._allocation.run(agents, decisions)
        if called is None and cluster.holds.enabled:
            self._allocation.hold_back()
        inverse_offers = self._inverse_offers(called)
        decisions.inverse_offers.extend(inverse_offers)
        done = cluster.statistics
        done.runs += 1
        done.candidates += len(agents)
        done.offers += made
        done.inverse_offers += sum(len(each.inverse_offers) for each in inverse_offers)
        for tell_after in self._after:
            tell_after(decisions)
        return decisions

    def _inverse_offers(self, called: list[str] | None) -> list[contract.InverseOffers]:
        """Ask active frameworks to leave agents that are going to be unavailable (§3.9)."""
        cluster = self._cluster
        made: dict[str, contract.InverseOffers] = {}
        for name in cluster.maintenance.agents():
            if called is not None and name not in called:
                continue
            for holder in cluster.ledger.agents[name].holders():
                framework = cluster.ledger.frameworks.get(holder)
                if framework is None or not framework.active:
                    continue
                unavailability = cluster.maintenance.ask(name, holder, cluster.now_ns)
                if unavailability is not None:
                    offers = made.setdefault(holder, contract.InverseOffers(framework_id=holder))
                    offers.inverse_offers.add(agent_id=name, unavailability=unavailability)
        return list(made.values())
