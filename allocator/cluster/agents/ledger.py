"""The ledger of allocations, which keeps agents, fair shares and quotas consistent."""

from collections.abc import Collection, Iterable, Mapping

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.failover_recovery import FailoverRecovery
from allocator.cluster.agents.placement_constraints import Host
from allocator.cluster.agents.placements import Placements
from allocator.cluster.agents.shared_volumes import Volume, volumes
from allocator.cluster.agents.used_resources import AssumedUsage, UsedResources
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.demands import Demands
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.offers.offer_constraints import Exclusions
from allocator.cluster.quota import Quotas
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.users import UserTask
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.users.tree import NO_REPEATS, Repeats

_ALLOCATIONS_A_STEP = 50
"""Allocations to a framework, of an agent and a role each, that a step counts or ends."""
_CLIENTS_A_STEP = 200
"""Clients in a cooperative step, whose tasks are updated after a change of exclusions."""
_ROLES_A_STEP = 25
"""Roles of a framework in a cooperative step, whose users are created or whose clients end."""


class Ledger:
    """All agents and frameworks, and which agents' resources are allocated to which frameworks.

    Every change of an allocation is written on the agent's side. The allocations of frameworks,
    roles and users are derived from there, so no allocation is counted twice (Mesos semantics,
    §1.4). Resources of unknown frameworks are recorded on the agent, and counted in fair shares
    once the framework is added.

    Args:
        clients: Receives the clients, and counts their allocations in fair shares.
        demands: Determines the resources that one task of a client needs.
        placements: Determines the agents on which frameworks' tasks may run.
        exclusions: Records the agents that offer constraints exclude.
        quotas: The quotas, initially none.
        answered_after_ns: Nanoseconds after which an unanswered offer is assumed to be used; None:
            no usage is assumed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of one ledger
        self,
        clients: Clients,
        demands: Demands,
        placements: Placements,
        exclusions: Exclusions,
        quotas: Quotas,
        answered_after_ns: int | None = None,
    ) -> None:
        self.clients = clients
        self._demands = demands
        self.placements = placements
        self.exclusions = exclusions
        self.quotas = quotas
        self.floor = demands.new_floor()
        self.used = UsedResources()
        self.assumed_usage = (
            AssumedUsage(self.used, answered_after_ns) if answered_after_ns is not None else None
        )
        """Assumed usage of offered resources; None if the master reports used resources, or if
        no limit depends on them."""
        self.agents: dict[str, Agent] = {}
        self.frameworks: dict[str, Framework] = {}
        self._agents_of: dict[str, dict[str, None]] = {}
        """framework → agents on which resources are allocated to it, in order of arrival"""
        self._capacity = Quantities()
        self._recovery: FailoverRecovery | None = None
        """The current failover recovery, whose late agents count in the capacity; None: no
        recovery."""
        self._adding_agents = False
        """Whether fair shares learn of the new capacity later (`begin_adding_agents`)."""

    def knows(self, framework: str) -> bool:
        """Return whether a framework, given by its ID, has been added or holds resources."""
        return framework in self.frameworks or framework in self._agents_of

    def outstanding_offers(self) -> Mapping[str, Quantities]:
        """Return the quantities in outstanding offers, by framework; without those that have none.

        Costs O(clients whose allocation or use has changed since the last call). An allocation
        cycle must have committed its allocations.
        """
        assert self.used.outstanding is not None, "no limit applies to outstanding offers"
        return self.used.outstanding.update(self.outstanding_of)

    def outstanding_of(self, client: Client) -> Quantities:
        """Return the quantities that a client has been offered and has not yet answered."""
        if client not in self.clients:
            return Quantities()
        return self.clients.held(client) - self.used.of(client)

    def begin_adding_agents(self) -> None:
        """Do not update fair shares for each agent of a snapshot, until `end_adding_agents`.

        Between both calls, time does not advance, and no framework is added.
        """
        self._adding_agents = True

    def end_adding_agents(self) -> Cooperative[None]:
        """Update the capacity for fair shares, if `begin_adding_agents` has postponed this.

        Generator for cooperative steps.
        """
        if self._adding_agents:
            self._adding_agents = False
            yield from self._set_capacity(self._capacity)

    def add_agent(self, agent: Agent, used: dict[str, dict[str, Resources]]) -> Cooperative[None]:
        """Add an agent with the resources allocated on it.

        Generator for cooperative steps.

        Args:
            agent: A new agent with an empty ledger.
            used: Allocated resources: framework → role → resources.
        """
        self.agents[agent.id] = agent
        yield from self.placements.put_agent(agent.id, Host.of(agent.info))
        self.clients.users.put_machine(agent.id, agent.total.scalars)
        self.quotas.note_total(NOTHING, agent.total)
        self.floor.put(agent.total.scalars)
        self.floor.put_names(agent.total.quantities)
        if self._adding_agents:  # one agent of many: without a further generator
            self._capacity += agent.total.scalars
        else:
            yield from self._set_capacity(self._capacity + agent.total.scalars)
        self.add_used(agent, used)

    def set_exclusions(self, agent: str, clients: Collection[Client]) -> Cooperative[bool]:
        """Replace the clients that may not be offered an agent because of offer constraints.

        Generator for cooperative steps.

        Args:
            agent: ID of an agent, which need not be known.
            clients: Clients that may not be offered the agent.

        Returns:
            True if the set of clients has changed.
        """
        changed = yield from self.exclusions.put_agent_in_steps(agent, clients)
        for number, client in enumerate(changed, 1):
            if not number % _CLIENTS_A_STEP:
                yield
            if client in self.clients:
                self.update_task(client)
        if changed and agent in self.agents:
            self.clients.users.put_machine(agent, self.agents[agent].total.scalars)
        return bool(changed)

    def add_used(self, agent: Agent, used: dict[str, dict[str, Resources]]) -> None:
        """Add allocations that the master reports for an agent.

        Args:
            agent: A known agent.
            used: Allocated resources: framework → role → resources.
        """
        for framework, roles in used.items():
            for role, resources in roles.items():
                client, before = Client(role, framework), agent.held(framework, role)
                if framework in self.frameworks:
                    self._set_held(agent, framework, role, before + resources)
                else:
                    self._record_allocation(agent, client, before, before + resources)
                if self.assumed_usage is not None:
                    self.assumed_usage.used(agent, client)

    def update_agent(
        self,
        agent: Agent,
        info: mesos.SlaveInfo,
        capabilities: Iterable[int],
        total: Resources,
    ) -> Cooperative[None]:
        """Replace an agent's description, capabilities and total.

        Generator for cooperative steps.

        Args:
            agent: A known agent.
            info: The new description.
            capabilities: Values of `SlaveInfo.Capability.Type`.
            total: The new total, which may be less than the allocated resources.
        """
        if (yield from self.placements.put_agent(agent.id, Host.of(info))):
            self.clients.users.put_machine(agent.id, total.scalars)
        yield from self.set_total(agent, total)
        agent.update(info, capabilities, total)

    def set_total(self, agent: Agent, total: Resources) -> Cooperative[None]:
        """Change an agent's total, which may become less than the resources allocated on it.

        Generator for cooperative steps.
        """
        if total == agent.total:
            return
        self.quotas.note_total(agent.total, total)
        self.floor.put_names(total.quantities)
        self.floor.discard_names(agent.total.quantities)
        if total.scalars != agent.total.scalars:
            self.clients.users.put_machine(agent.id, total.scalars)
            self.floor.put(total.scalars)
            self.floor.discard(agent.total.scalars)
            yield from self._set_capacity(self._capacity - agent.total.scalars + total.scalars)
        agent.update(agent.info, agent.capabilities, total)

    def remove_agent(self, agent: Agent) -> Cooperative[None]:
        """Remove an agent, and end all allocations on it. Generator for cooperative steps."""
        for framework, role, _held in list(agent.allocations()):
            self._set_held(agent, framework, role, NOTHING)
        del self.agents[agent.id]
        self.clients.users.discard_machine(agent.id)
        self.placements.discard_agent(agent.id)
        yield from self.set_exclusions(agent.id, ())
        self.exclusions.note_removed(agent.id)
        self.quotas.note_total(agent.total, NOTHING)
        self.floor.discard(agent.total.scalars)
        self.floor.discard_names(agent.total.quantities)
        yield from self._set_capacity(self._capacity - agent.total.scalars)

    def add_framework(
        self, framework: Framework, excluded: Mapping[str, Iterable[str]]
    ) -> Cooperative[None]:
        """Add a framework; count the resources already allocated to it on known agents.

        Generator for cooperative steps.

        Args:
            framework: A framework that is not known yet.
            excluded: IDs of agents excluded by the framework's offer constraints, by role.
        """
        self.frameworks[framework.id] = framework
        self.placements.put_framework(framework)
        principal = framework.subscription.principal
        yield from self.exclusions.add_framework_in_steps(framework.id, excluded, principal)
        for number, role in enumerate(sorted(framework.roles), 1):
            if not number % _ROLES_A_STEP:
                yield
            self._ensure_client(Client(role, framework.id))
        ordinary: dict[str, list[Quantities]] = {}
        number = 0
        for agent_id in self._agents_of.get(framework.id, ()):
            for role, held in self.agents[agent_id].held_by(framework.id).items():
                number += 1
                if not number % _ALLOCATIONS_A_STEP:
                    yield
                if held.ordinary and role in ordinary:
                    ordinary[role].append(held.scalars)
                    continue
                client = Client(role, framework.id)
                self._ensure_client(client)
                if held.ordinary:
                    ordinary[role] = [held.scalars]
                else:
                    self.clients.allocate(client, held.scalars, gained=[*volumes(agent_id, held)])
                if self.used.outstanding is not None:
                    self.used.outstanding.note(client)
        for role, several in ordinary.items():
            self.clients.allocate(
                Client(role, framework.id), sum(several, start=NO_QUANTITIES), count=len(several)
            )
        yield from self.refresh_in_steps(framework)

    def remove_framework(self, framework: Framework) -> Cooperative[list[str]]:
        """Remove a framework and its allocations; return IDs of the agents that it used.

        Generator for cooperative steps.
        """
        agent_ids = list(self._agents_of.get(framework.id, ()))
        number = 0
        for agent_id in agent_ids:
            agent = self.agents[agent_id]
            for role in agent.held_by(framework.id):
                number += 1
                if not number % _ALLOCATIONS_A_STEP:
                    yield
                self._set_held(agent, framework.id, role, NOTHING)
        for number, client in enumerate(self.clients.of(framework.id), 1):
            if not number % _ROLES_A_STEP:
                yield
            self.clients.remove(client)
        del self.frameworks[framework.id]
        self.placements.discard_framework(framework.id)
        yield from self.exclusions.discard_framework_in_steps(framework.id)
        return agent_ids

    def refresh_in_steps(self, framework: Framework) -> Cooperative[None]:
        """Update everything that depends on a framework, after the framework object has changed.

        The change may concern the subscription, suppressed roles, demand or activity. Clients,
        users and placement constraints are updated. Generator for cooperative steps.
        """
        self.placements.put_framework(framework)
        self.clients.reassign(framework)
        new = [Client(role, framework.id) for role in sorted(framework.roles)]
        new = [client for client in new if client not in self.clients]
        for number, client in enumerate(new, 1):
            if not number % _ROLES_A_STEP:
                yield
            self._ensure_client(client)
        known = set(new)
        for number, client in enumerate(self.clients.of(framework.id), 1):
            if not number % _ROLES_A_STEP:
                yield
            if client not in known:
                self.update_task(client)
            self.clients.set_wanting(client, wanting=framework.wants(client.role))
            self._forget_if_unused(client)

    def update_wanting_in_steps(
        self, framework: Framework, roles: Collection[str]
    ) -> Cooperative[None]:
        """Update whether a framework wants offers in some of its roles.

        Only the suppression of these roles may have changed. Clients are visited in order of
        arrival. Generator for cooperative steps.

        Args:
            framework: A known framework.
            roles: The roles whose suppression has changed.
        """
        clients = [client for client in self.clients.of(framework.id) if client.role in roles]
        for number, client in enumerate(clients, 1):
            if not number % _ROLES_A_STEP:
                yield
            self.clients.set_wanting(client, wanting=framework.wants(client.role))

    def update_task(self, client: Client) -> None:
        """Pass a client's current task demand and eligible agents on to the client's user.

        Policies that count tasks need both.

        Args:
            client: A known client.
        """
        demand = self.demand_of(client)
        may_use = self.exclusions.may_use(client, self.placements.may_use(client.framework))
        self.clients.set_task(client, UserTask(demand, may_use))

    def admits(self, client: Client, agent: str) -> bool:
        """Return whether placement and offer constraints allow offers of an agent to a client."""
        return self.placements.admits(client.framework, agent) and not (
            self.exclusions.excludes(client, agent)
        )

    def demand_of(self, client: Client) -> Quantities | None:
        """Return the resources of one of a client's tasks; None if the demand is unknown."""
        return self._demands.of(client, self.frameworks[client.framework])

    def unit_demand(self, client: Client) -> Quantities | None:
        """Return the resources of one unit of a client's tasks; None if its demand is unknown.

        A unit is what a client is allocated at a time: one task, or several tasks that reach the
        demand floor together (`limits.smallest_demand`).
        """
        demand = self.demand_of(client)
        return demand.times(self.floor.unit_size(demand)) if demand else None

    def unit_size(self, client: Client) -> int:
        """Return the number of a client's tasks in one unit; 1 if its demand is unknown."""
        demand = self.demand_of(client)
        return self.floor.unit_size(demand) if demand else 1

    def allocate(
        self, agent: Agent, client: Client, resources: Resources, free: Resources | None
    ) -> tuple[Quantities, Repeats]:
        """Record available resources as allocated to a client, but not yet in fair shares.

        Args:
            agent: The agent that has the resources.
            client: A known client, which is offered the resources.
            resources: The offered resources, all of them available.
            free: The agent's available resources afterwards; None: they must be recomputed.

        Returns:
            The changes that the caller must count in fair shares: the increase of the client's
            scalar quantities, and the change of each user's repeated quantities (see
            `SharedVolumes.change`).
        """
        held = agent.held(client.framework, client.role)
        allocated = held + resources
        self._record_allocation(agent, client, held, allocated)
        if free is not None:
            agent.set_available(free)
        if not resources.has_shared:
            return resources.scalars, NO_REPEATS
        repeats = self.clients.change_volumes(client, (), [*volumes(agent.id, resources)])
        return allocated.scalars - held.scalars, repeats

    def recover(self, agent: Agent, client: Client, resources: Resources) -> Resources:
        """Release resources of a client, which need not be known, on an agent.

        Returns:
            The part of the resources that was not allocated. This part is not released.
        """
        role, framework = client
        allocated = agent.held(framework, role)
        remaining = allocated.without(resources)
        if remaining is None or resources.has_shared:
            self._set_held(agent, framework, role, allocated - resources)
            return NOTHING if remaining is not None else resources - allocated
        available = agent.available_after_release(resources)
        self._record_allocation(agent, client, allocated, remaining)
        # A client that held no scalar quantities, in a role that it has left, was forgotten.
        released = resources.scalars
        if framework in self.frameworks and (released or client in self.clients):
            self.clients.release(client, released)
            self._forget_if_unused(client)
        if available is not None:
            agent.set_available(available)
        return NOTHING

    def convert(self, agent: Agent, framework: str, role: str, held: Resources) -> None:
        """Replace a framework's resources on an agent after operations have converted them.

        Args:
            agent: The agent that has the resources.
            framework: The framework's ID.
            role: The role that the resources are allocated to.
            held: All resources of the framework and role on the agent after the conversion.
        """
        self._set_held(agent, framework, role, held)

    def _set_held(self, agent: Agent, framework: str, role: str, after: Resources) -> None:
        """Replace the resources of a framework and role on an agent, and update fair shares.

        Args:
            agent: The agent that has the resources.
            framework: The framework's ID.
            role: The role that the resources are allocated to.
            after: All resources of the framework and role on the agent from now on.
        """
        client, before = Client(role, framework), agent.held(framework, role)
        self._record_allocation(agent, client, before, after)
        if framework in self.frameworks:
            lost, gained = [*volumes(agent.id, before)], [*volumes(agent.id, after)]
            self._count_held(client, before.scalars, after.scalars, lost, gained)

    def _record_allocation(
        self, agent: Agent, client: Client, before: Resources, after: Resources
    ) -> None:
        """Record a changed allocation in the agent, the quotas and the used resources.

        Fair shares are not updated; `_count_held` does so.

        Args:
            agent: The agent that has the resources.
            client: The client that holds the resources.
            before: Resources of the client on the agent before the change.
            after: These resources after the change.
        """
        role, framework = client
        agent.set_held(framework, role, after)
        if self.used.outstanding is not None:
            self.used.outstanding.note(client)
        if self.quotas:
            self.quotas.note_held(role, before, after)
        if self.used.by_agent:
            self.used.clip(agent, client)
        if self.assumed_usage is not None and not after:
            self.assumed_usage.forget(agent.id, client)
        if after:
            self._agents_of.setdefault(framework, {})[agent.id] = None
        elif not agent.holds(framework):
            agents = self._agents_of.get(framework, {})
            agents.pop(agent.id, None)
            if not agents:
                self._agents_of.pop(framework, None)

    def _count_held(
        self,
        client: Client,
        before: Quantities,
        after: Quantities,
        lost: Collection[Volume],
        gained: Collection[Volume],
    ) -> None:
        """Update fair shares after a change of a client's resources on one agent.

        A shared volume used by several tasks counts once, so quantities are not simply added. The
        caller passes scalar quantities and shared volumes from before and after the change.

        Args:
            client: The client that holds the resources; if unknown, the client is added.
            before: Scalar quantities that the client held on the agent before the change.
            after: Scalar quantities that the client holds on the agent now.
            lost: Shared volumes that the client held on the agent before the change.
            gained: Shared volumes that the client holds on the agent now.
        """
        self._ensure_client(client)
        if before.contains(after):
            self.clients.release(client, before - after, lost=lost, gained=gained)
            self._forget_if_unused(client)
        elif after.contains(before):
            self.clients.allocate(client, after - before, lost=lost, gained=gained)
        else:
            self.clients.release(client, before, lost=lost)
            self.clients.allocate(client, after, gained=gained)

    def _ensure_client(self, client: Client) -> None:
        """Add a client with its task demand to `clients`, if the client is not known yet."""
        if client not in self.clients:
            self.clients.add(client, self.frameworks[client.framework])
            self.update_task(client)

    def _forget_if_unused(self, client: Client) -> None:
        """Remove a client if it holds no resources and its framework no longer has the role."""
        framework = self.frameworks[client.framework]
        if client.role not in framework.roles and not self.clients.held(client):
            self.clients.remove(client)

    def set_failover(self, failover: FailoverRecovery | None) -> None:
        """Set the failover recovery whose late agents count in the capacity; None ends it."""
        self._recovery = failover
        run_to_completion(self._set_capacity(self._capacity))

    def _set_capacity(self, capacity: Quantities) -> Cooperative[None]:
        """Set the total resources of all known agents, and update the capacity for fair shares.

        During a failover recovery, the capacity for fair shares is larger, because agents that are
        not back yet count, too (`FailoverRecovery.share_capacity`). Generator for cooperative
        steps.
        """
        self._capacity = capacity
        if self._adding_agents:
            return
        if self._recovery is not None:
            capacity = self._recovery.share_capacity(capacity, len(self.agents))
        yield from self.clients.users.set_capacity_in_steps(capacity)
