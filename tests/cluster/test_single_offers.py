"""A cycle with a single agent offers it as the stages of a larger cycle would, in fewer steps."""

from random import Random
from unittest.mock import patch

import pytest
from typing_extensions import override

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation import Allocator
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.allocation.client_index import ClientMask
from allocator.cluster.allocation.offer_builder import OutstandingOfferLimit
from allocator.cluster.engine.allocation_cycle import AllocationCycle
from allocator.fairness import policies
from tests.cluster.master_side import MasterSide, Offered, agent_call
from tests.cluster.test_client_index import AGENTS, events

POLICIES: dict[str, dict[str, object]] = {"sdrf": {"half_life": 60.0}, "stsf": {"half_life": 60.0}}


class Counted(Allocator):
    """Counts the agents that are offered without the stages."""

    single = 0

    @override
    def _offer_single(
        self, agent: Agent, may_use: ClientMask, limit: OutstandingOfferLimit, answer: Answer
    ) -> int | None:
        offers = super()._offer_single(agent, may_use, limit, answer)
        Counted.single += offers or 0
        return offers


class InStages(Allocator):
    """Allocates each agent in stages."""

    @override
    def _offer_single(
        self, agent: Agent, may_use: ClientMask, limit: OutstandingOfferLimit, answer: Answer
    ) -> int | None:
        return None


def offered(
    allocator: type[Allocator], policy: str, seed: int
) -> tuple[list[list[Offered]], dict[str, float]]:
    """Return the offers after each of many random calls, and the final priorities."""
    with patch.object(AllocationCycle, "allocator", allocator):
        master = MasterSide(policy, POLICIES.get(policy, {}))
        chance, offers, known = Random(seed), list[Offered](), set[str]()
        made = [master.send(agent_call("s0", AGENTS[0]))]
        for _ in range(100):
            made.append(master.send(*events(master, chance, offers, known)))
            made.append(master.tick() if chance.random() < 0.3 else [])
            offers += [offer for new in made[-2:] for offer in new]
        assert not master.engine.statistics.faults
        standings = master.engine.pool.standings()
        return made, {standing.user: standing.priority for standing in standings}


@pytest.mark.parametrize("policy", policies.names())
def test_a_single_agent_is_offered_as_the_stages_would_offer_it(policy: str) -> None:
    before = Counted.single
    for seed in range(2):
        assert offered(Counted, policy, seed) == offered(InStages, policy, seed)
    per_machine = policies.create(policy, POLICIES.get(policy, {})).per_machine
    assert (Counted.single > before) is not per_machine
