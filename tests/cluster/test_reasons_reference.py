"""Reasons for missing offers agree with the engine's offers without other clients."""

import random
from dataclasses import dataclass, field

import pytest

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.reasons import Explanation
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from tests.cluster.master_side import (
    ALL_AGENT_CAPABILITIES,
    MasterSide,
    Offered,
    framework_info,
    resource,
)
from tests.examples import scaled

ROLES = ["a", "b", "a/x", "b/y/z", "c"]
_Capability = mesos.FrameworkInfo.Capability
LASTING = {"inactive", "suppressed", "no_agents", None}


@dataclass
class World:
    """A random cluster; equal seeds build equal clusters."""

    seed: int
    quotas: str
    """The kind of quotas: none, limits, both (limits and guarantees), or capped (Mesos 1.8)."""
    master: MasterSide = field(default_factory=MasterSide)
    clients: list[Client] = field(default_factory=list)
    held: list[Offered] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        for number in range(chance.randint(2, 5)):
            self._add_framework(f"f{number}", chance)
        for role in chance.sample("abc", chance.randint(1, 2)) if self.quotas else ():
            self._set_quota(role, chance)
        for number in range(1, chance.randint(2, 5)):
            everything = ALL_AGENT_CAPABILITIES
            chosen = [kind for kind in everything if chance.random() < 0.6]
            kinds = everything if chance.random() < 0.8 else chosen
            self.held += self.master.add_agent(f"s{number}", _agent(chance), capabilities=kinds)
        for _ in range(chance.randint(0, 8)):
            if self.held and chance.random() < 0.7:
                offer = self.held.pop(chance.randrange(len(self.held)))
                refuse = chance.choice([0, 5, 300])
                self.held += self.master.recover(offer, refuse_seconds=refuse)
            else:
                self.held += self.master.tick(chance.choice([1, 6]))
        self.held += self.master.tick()

    def _add_framework(self, framework: str, chance: random.Random) -> None:
        roles = chance.sample(ROLES, chance.choice([1, 1, 2]))
        capabilities = [
            kind
            for kind in (_Capability.GPU_RESOURCES, _Capability.RESERVATION_REFINEMENT)
            if chance.random() < 0.5
        ]
        info = mesos.FrameworkInfo.FromString(
            framework_info(framework, *roles, capabilities=capabilities)
        )
        if chance.random() < 0.65:
            demand = f"cpus:{chance.choice([0.5, 1, 4])};mem:{chance.choice([32, 512])}"
            demand += chance.choice(["", "", ";ports:2", ";gpus:1"])
            info.labels.labels.add(key="longshare.demand", value=demand)
        if chance.random() < 0.2:
            info.labels.labels.add(key="longshare.whitelist", value="s1.*")
        call = contract.AddFramework(
            framework_id=framework, info=info.SerializeToString(), active=True
        )
        self.held += self.master.send(call)
        self.clients += [Client(role, framework) for role in roles]

    def _set_quota(self, role: str, chance: random.Random) -> None:
        cpus, memory = chance.choice([0, 1, 3, 6]), chance.choice([16, 64, 512])
        if self.quotas == "capped":
            guarantee = [resource("cpus", str(cpus + 1)), resource("mem", str(memory))]
            quota = mesos.QuotaInfo(role=role, guarantee=guarantee[: chance.randint(1, 2)])
            self.held += self.master.send(
                contract.SetQuota(role=role, info=quota.SerializeToString())
            )
            return
        limits = contract.Quantities(amounts={"cpus": cpus, "mem": memory})
        guaranteed = {"cpus": chance.choice([1, 4])} if self.quotas == "both" else {}
        guarantees = contract.Quantities(amounts=guaranteed)
        call = contract.UpdateQuota(role=role, limits=limits, guarantees=guarantees)
        self.held += self.master.send(call)

    def explain(self, client: Client) -> Explanation | None:
        survey = run_to_completion(self.master.engine.survey())
        return run_to_completion(survey.explain(client, closely=True))

    def offered_alone(self, client: Client) -> bool:
        """Return whether a client is offered resources once no other client wants offers."""
        for role, framework in self.clients:
            if (role, framework) != client:
                call = contract.SuppressOffers(framework_id=framework, roles=[role])
                self.master.send(call)
        offers = self.master.tick(0)
        return any((offer.role, offer.framework) == client for offer in offers)


def _agent(chance: random.Random) -> str:
    total = f"cpus:{chance.choice([1, 2, 8])};mem:{chance.choice([16, 64, 1024])}"
    total += chance.choice(["", ";ports:[31000-31005]"])
    total += chance.choice(["", "", ";gpus:1"])
    role = chance.choice(ROLES)
    return total + chance.choice(["", "", f";cpus({role}):4;mem({role}):512"])


@pytest.mark.parametrize("quotas", ["", "limits", "both", "capped"])
def test_a_client_waits_for_its_turn_if_and_only_if_it_is_offered_resources_alone(
    quotas: str,
) -> None:
    examined = 0
    for seed in range(scaled(25)):
        world = World(seed, quotas)
        for client in world.clients:
            explanation = world.explain(client)
            if explanation is not None and explanation.reason not in LASTING:
                waits = explanation.reason == "turn"
                alone = World(seed, quotas).offered_alone(client)
                assert waits == alone, (seed, client, dict(explanation.agents))
                examined += 1
    assert examined > scaled(25)


def test_a_reached_limit_is_named_if_and_only_if_the_client_is_served_without_limits() -> None:
    named = 0
    for seed in range(scaled(60)):
        world = World(seed, "limits")
        for client in world.clients:
            explanation = world.explain(client)
            if explanation is not None and explanation.reason == "quota":
                without = World(seed, "limits")
                top = client.role.partition("/")[0]
                without.master.send(contract.UpdateQuota(role=top))
                assert without.offered_alone(client)
                assert explanation.reached_limits
                named += 1
    assert named
