"""Runs allocation cycles when they are due, and calls the engine's watchers."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import ClassVar

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation import Allocator
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.input.quarantine import describe_error
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, InParts

_HOLDERS_A_STEP = 200
"""Number of frameworks with resources on an agent that one cooperative step considers for inverse
offers."""


class AllocationCycle:
    """Runs allocation cycles of one engine, and calls callbacks before and after each cycle.

    Args:
        cluster: The first cluster.
        seed: Seed of the random order in which a cycle visits agents.
    """

    allocator: ClassVar[type[Allocator]] = Allocator
    """The class that allocates the resources of a cluster."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - order of agents, not a secret
        self._before: Sequence[Callable[[], None]] = ()
        self._after: Sequence[Callable[[Sequence[contract.Decisions]], None]] = ()
        self.set_cluster(cluster)

    def set_cluster(self, cluster: Cluster) -> None:
        """Use another cluster, built from a snapshot, for all later cycles."""
        self._cluster = cluster
        self._allocator = self.allocator(cluster)

    def watch(
        self,
        before: Sequence[Callable[[], None]],
        after: Sequence[Callable[[Sequence[contract.Decisions]], None]],
    ) -> None:
        """Replace the callbacks that are called before and after each cycle with open agents.

        An agent is open if it has free resources and is not withheld.

        Args:
            before: Called before each of these cycles.
            after: Called after each of these cycles with its decisions, in one or more messages.
        """
        self._before, self._after = before, after

    def decide(self, answer: Answer) -> InParts[contract.Decisions, None]:
        """Run an allocation cycle if one is due, and yield each slice of the answer.

        An error in the allocator itself is caught and counted. The answer then has no offers of
        this cycle.

        Args:
            answer: Receives the decisions of the cycle.
        """
        try:
            yield from self._run(answer)
        except Exception as error:  # noqa: BLE001 - a crashed allocator offers nothing at all
            cluster = self._cluster
            cluster.statistics.faults += 1
            cluster.divergence = f"an allocation cycle: {describe_error(error)}"
            self._allocator.considered = {}
            answer.discard()

    def _run(self, answer: Answer) -> InParts[contract.Decisions, None]:
        cluster = self._cluster
        if not cluster.candidates.any_due or not cluster.allocates:
            return
        if cluster.holds.enabled:
            for agent in cluster.holds.expire(cluster.now_ns):
                cluster.mark_hold_ended(agent)
        if cluster.ledger.assumed_usage is not None:
            yield from cluster.ledger.assumed_usage.expire_in_steps(
                cluster.ledger.agents, cluster.now_ns
            )
        examined, due = cluster.candidates.take()
        considers = cluster.candidates.clients and due is None
        affected = (yield from self._consider(examined)) if considers else ()
        agents = [cluster.ledger.agents[name] for name in (*examined, *affected)]
        self._shuffle(agents)
        open_agents = (yield from self._allocator.open_agents(agents)) if agents else []
        if open_agents:
            clock = cluster.ledger.clients.users.clock
            if clock.unranked:
                yield from clock.rank_in_steps()
            for before in self._before:
                before()
            offers = yield from self._allocator.run(open_agents, answer)
            cluster.statistics.offers += offers
            self._allocator.considered = {}
        if due is None and cluster.holds.enabled:
            self._allocator.hold_back()
        yield from self._make_inverse_offers(due, answer)
        cluster.statistics.runs += 1
        cluster.statistics.candidates += len(agents)
        for after in self._after if open_agents else ():
            after(answer.parts)

    def _shuffle(self, agents: list[Agent]) -> None:
        """Put agents into random order, so that no agent is always used first."""
        if len(agents) > 1:  # the library takes many steps even for a single agent
            self._random.shuffle(agents)

    def _consider(self, examined: list[str]) -> Cooperative[Iterable[str]]:
        """Return other agents, by ID, that the cycle examines for some clients only.

        Args:
            examined: IDs of the agents that the cycle examines for all clients.
        """
        candidates = self._cluster.candidates
        clients, candidates.clients = candidates.clients, {}
        considered = yield from self._allocator.agents_for(clients, examined)
        self._allocator.considered = considered
        return considered

    def _make_inverse_offers(self, due: list[str] | None, answer: Answer) -> Cooperative[None]:
        """Make inverse offers for agents with scheduled maintenance (Mesos semantics, §3.9).

        Generator for cooperative steps.

        Args:
            due: The agents to consider; None: all agents.
            answer: Receives the inverse offers.
        """
        cluster = self._cluster
        agents = cluster.maintenance.agents()
        if not agents:
            return
        messages: dict[str, contract.InverseOffers] = {}
        considered = None if due is None else set(due)
        for agent in agents:
            if considered is not None and agent not in considered:
                continue
            for number, holder in enumerate(cluster.ledger.agents[agent].holders(), 1):
                if not number % _HOLDERS_A_STEP:
                    yield
                framework = cluster.ledger.frameworks.get(holder)
                if framework is None or not framework.active:
                    continue
                unavailability = cluster.maintenance.take_inverse_offer(
                    agent, holder, cluster.now_ns
                )
                if unavailability is not None:
                    offers = messages.setdefault(
                        holder, contract.InverseOffers(framework_id=holder)
                    )
                    offers.inverse_offers.add(agent_id=agent, unavailability=unavailability)
                    cluster.statistics.inverse_offers += 1
            yield
        answer.last.inverse_offers.extend(messages.values())
