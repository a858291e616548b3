"""State of the embedded master: its agents, frameworks and offers.

Every change is also sent to the allocator. Snapshots for an allocator that connects are built from
this state, and every offer of the allocator is checked against it. (In the module for a real
master, this state is called the mirror.)
"""

import uuid
from collections import Counter
from random import Random

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Resource
from frameworks.local_mesos.clock import Clock
from frameworks.local_mesos.state import (
    AllocatorSide,
    EmbeddedAgent,
    EmbeddedFramework,
    Offer,
    allocated,
    serialised,
)

ALL_AGENT_CAPABILITIES = tuple(value for value in mesos.SlaveInfo.Capability.Type.values() if value)


class MasterState:
    """Keeps the agents, frameworks and offers of a master, and reports changes to the allocator.

    Args:
        clock: The master's clock.
        allocator: Receives the calls with which the master reports changes.
        random: Random generator for the master's id.
    """

    def __init__(self, clock: Clock, allocator: AllocatorSide, random: Random) -> None:
        self.clock = clock
        self.allocator = allocator
        self.master_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.agents: dict[str, EmbeddedAgent] = {}
        self.frameworks: dict[str, EmbeddedFramework] = {}
        self.offers: dict[str, Offer] = {}
        self.quotas: dict[str, mesos.QuotaInfo] = {}
        """Quotas by role."""
        self.counters: Counter[str] = Counter()
        """Counters for `/metrics/snapshot` by name, without the prefix `master/`."""
        self._serials: Counter[str] = Counter()
        self._elected_ns = clock.now_ns  # a single master leads from the start

    def new_id(self, kind: str) -> str:
        """Create an id in Mesos's format.

        Args:
            kind: Prefix of the number: `S` for agents, `O` for offers, empty for frameworks.
        """
        serial = self._serials[kind]
        self._serials[kind] += 1
        return f"{self.master_id}-{kind}{serial}" if kind else f"{self.master_id}-{serial:04}"

    def send_call(self, **call: object) -> None:
        """Send a call to the allocator, with the current time of the master's clock.

        Args:
            call: Exactly one keyword argument. Its name is the name of the call in the contract,
                its value the call's message.
        """
        self.allocator.tell(contract.Event(time_ns=self.clock.now_ns, **call))  # type: ignore[arg-type]

    def add_agent(self, agent: EmbeddedAgent) -> None:
        """Add an agent that runs no tasks yet, and report it to the allocator."""
        self.agents[agent.id] = agent
        self.send_call(add_agent=_agent_call(agent, {}))
        agent.added_at = self.allocator.sequence

    def add_framework(self, framework: EmbeddedFramework) -> None:
        """Add a framework, and report it to the allocator."""
        self.frameworks[framework.id] = framework
        self.send_call(add_framework=_framework_call(framework))

    def update_framework(self, framework: EmbeddedFramework) -> None:
        """Report a framework's changed description and suppressed roles to the allocator."""
        self.send_call(
            update_framework=contract.UpdateFramework(
                framework_id=framework.id,
                info=framework.info.SerializeToString(),
                suppressed_roles=sorted(framework.suppressed),
            )
        )

    def add_offer(self, offer: Offer) -> None:
        """Record an offer. Its resources are then no longer among the free resources of the agent.

        Raises:
            ValueError: The resources are not free or are invalid.
        """
        self.agents[offer.agent].free.remove(offer.resources)
        self.offers[offer.id] = offer
        self.frameworks[offer.framework].offers[offer.id] = offer

    def remove_offer(self, offer: Offer) -> None:
        """Remove an offer, because it was answered or has ended.

        The offer's resources do not become free. The caller uses them for tasks or calls `recover`.
        """
        del self.offers[offer.id]
        del self.frameworks[offer.framework].offers[offer.id]

    def take_back(self, offer: Offer, *, rescind: bool) -> None:
        """End an unanswered offer, and report its resources to the allocator as recovered.

        Args:
            offer: The offer to end.
            rescind: True to send a RESCIND event to the scheduler.
        """
        self.remove_offer(offer)
        self.recover(offer.framework, offer.agent, offer.role, offer.resources)
        if rescind:
            self.frameworks[offer.framework].send(
                v1.Event(
                    type=v1.Event.RESCIND,
                    rescind=v1.Event.Rescind(offer_id=v1.OfferID(value=offer.id)),
                )
            )

    def recover(
        self,
        framework_id: str,
        agent_id: str,
        role: str,
        resources: list[Resource],
        filters: mesos.Filters | None = None,
    ) -> None:
        """Free resources that a framework held on an agent, and report them to the allocator.

        Args:
            framework_id: Id of the framework that held the resources.
            agent_id: Id of the agent, which may have been removed already.
            role: Role to which the resources were allocated.
            resources: The resources; if empty, nothing happens.
            filters: Offer filters from the scheduler's DECLINE or ACCEPT call.
        """
        if not resources:
            return
        agent = self.agents.get(agent_id)
        if agent is not None:
            agent.free.add(resources)
        call = contract.RecoverResources(
            framework_id=framework_id,
            agent_id=agent_id,
            resources=serialised(allocated(resources, role)),
        )
        if filters is not None:
            call.filters = filters.SerializeToString()
        self.send_call(recover_resources=call)

    def set_quota(self, quota: mesos.QuotaInfo) -> None:
        """Set the quota of a role that has none, and report it to the allocator."""
        self.quotas[quota.role] = quota
        self.send_call(set_quota=_quota_call(quota))

    def remove_quota(self, role: str) -> None:
        """Remove a role's quota, and report the removal to the allocator."""
        del self.quotas[role]
        self.send_call(remove_quota=contract.RemoveQuota(role=role))

    def snapshot(self) -> contract.Snapshot:
        """Return the master's complete state, as the first message to an allocator that connects.

        The snapshot includes the effects of all calls numbered so far.
        """
        used: dict[str, dict[str, list[bytes]]] = {agent_id: {} for agent_id in self.agents}
        for framework in self.frameworks.values():
            for agent_id, role, resources in framework.holdings():
                held = used[agent_id].setdefault(framework.id, [])
                held += serialised(allocated(resources, role))
        return contract.Snapshot(
            sequence=self.allocator.sequence,
            time_ns=self.clock.now_ns,
            agents=[_agent_call(agent, used[agent.id]) for agent in self.agents.values()],
            inactive_agents=[agent.id for agent in self.agents.values() if not agent.active],
            frameworks=[_framework_call(framework) for framework in self.frameworks.values()],
            quotas=[_quota_call(quota) for quota in self.quotas.values()],
            leading_since_ns=self._elected_ns,
        )


def _quota_call(quota: mesos.QuotaInfo) -> contract.SetQuota:
    return contract.SetQuota(role=quota.role, info=quota.SerializeToString())


def _agent_call(agent: EmbeddedAgent, used: dict[str, list[bytes]]) -> contract.AddAgent:
    return contract.AddAgent(
        agent_id=agent.id,
        info=agent.info().SerializeToString(),
        capabilities=ALL_AGENT_CAPABILITIES,
        total=serialised(agent.total),
        used=[
            contract.Allocation(framework_id=framework_id, resources=resources)
            for framework_id, resources in used.items()
        ],
    )


def _framework_call(framework: EmbeddedFramework) -> contract.AddFramework:
    return contract.AddFramework(
        framework_id=framework.id,
        info=framework.info.SerializeToString(),
        active=framework.connected,
        suppressed_roles=sorted(framework.suppressed),
    )
