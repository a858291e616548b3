"""Calls about agents, and about their maintenance."""

from collections.abc import Callable, Iterable

from allocator.cluster.agents.agent import Agent, attributes, read_agent_info
from allocator.cluster.agents.maintenance import read_status, read_unavailability
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.offers.filters import read_refusal
from allocator.cluster.resources import Resources
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract


def add(cluster: Cluster, call: contract.AddAgent) -> Callable[[], None]:
    """Take in an agent that registered, with all that is allocated on it."""
    if call.agent_id in cluster.ledger.agents:
        raise InvalidEvent(f"agent {call.agent_id} is known already; remove it first")
    info, flaw = read_agent_info(call.agent_id, call.info, cluster.limits)
    sieve = ResourceParser(cluster.limits)
    agent = Agent(
        id=call.agent_id,
        info=info,
        capabilities=frozenset(call.capabilities),
        total=sieve.total(call.total),
        flaw=flaw,
    )
    used = _read_allocations(sieve, call.used)
    running = _read_allocations(sieve, call.running)
    unavailability, unreadable = read_unavailability(call)

    def change() -> None:
        cluster.quarantine.put("agent", agent.id, "subscription", flaw)
        cluster.quarantine.put("agent", agent.id, "resources", sieve.flaw)
        cluster.quarantine.put("agent", agent.id, "maintenance", unreadable)
        cluster.ledger.exclude(agent.id, _clients(call.excluded))
        cluster.ledger.add_agent(agent, used)
        _note_stays(cluster, agent, used)
        _begin(cluster, agent, running)
        cluster.maintenance.schedule(agent.id, unavailability)
        cluster.marks.change(agent.id)
        cluster.marks.call(agent.id)

    return change


def remove(cluster: Cluster, call: contract.RemoveAgent) -> Callable[[], None]:
    """Let an agent go with all that is on it; recoveries that follow are late (§1.5)."""
    agent = cluster.agent(call.agent_id)

    def change() -> None:
        cluster.ledger.remove_agent(agent)
        cluster.filters.drop_agent(agent.id)
        cluster.demands.forget_agent(agent.id)
        cluster.holds.forget_agent(agent.id)
        cluster.maintenance.schedule(agent.id, None)
        cluster.marks.forget(agent.id)
        cluster.quarantine.forget("agent", agent.id)

    return change


def update(cluster: Cluster, call: contract.UpdateAgent) -> Callable[[], None]:
    """Take over what an agent says of itself now."""
    agent = cluster.agent(call.agent_id)
    info, flaw = read_agent_info(call.agent_id, call.info, cluster.limits)
    sieve = ResourceParser(cluster.limits)
    total = sieve.total(call.total.resources) if call.HasField("total") else agent.total
    capabilities = (
        frozenset(call.capabilities.capabilities)
        if call.HasField("capabilities")
        else agent.capabilities
    )
    excluded = _clients(call.excluded) if call.HasField("excluded") else None
    moved = attributes(info) != attributes(agent.info)

    def change() -> None:
        cluster.quarantine.put("agent", agent.id, "subscription", flaw)
        if call.HasField("total"):
            cluster.quarantine.put("agent", agent.id, "resources", sieve.flaw)
        if flaw != agent.flaw:
            agent.flaw = flaw
            cluster.marks.change(agent.id)
        if moved:
            cluster.filters.drop_agent(agent.id)
            cluster.maintenance.drop_filters(agent=agent.id)
        reconsidered = excluded is not None and cluster.ledger.exclude(agent.id, excluded)
        if not reconsidered and (info, capabilities, total) == (
            agent.info,
            agent.capabilities,
            agent.total,
        ):
            return
        cluster.ledger.update_agent(agent, info, capabilities, total)
        cluster.marks.change(agent.id)
        cluster.marks.call(agent.id)

    return change


def add_resource_provider(
    cluster: Cluster, call: contract.AddResourceProvider
) -> Callable[[], None]:
    """Add a provider's resources to an agent, and what is allocated of them."""
    agent = cluster.agent(call.agent_id)
    sieve = ResourceParser(cluster.limits)
    total = agent.total + sieve.total(call.total)
    used = _read_allocations(sieve, call.used)

    def change() -> None:
        if sieve.flaw is not None:
            cluster.quarantine.put("agent", agent.id, "resources", sieve.flaw)
        cluster.ledger.set_total(agent, total)
        cluster.ledger.add_used(agent, used)
        _note_stays(cluster, agent, used)
        if cluster.tells_running:
            _begin(cluster, agent, used)
        cluster.marks.change(agent.id)

    return change


def activate(cluster: Cluster, call: contract.ActivateAgent) -> Callable[[], None]:
    """Offer an agent again that is back in contact."""
    agent = cluster.agent(call.agent_id)

    def change() -> None:
        agent.active = True
        cluster.marks.change(agent.id)

    return change


def deactivate(cluster: Cluster, call: contract.DeactivateAgent) -> Callable[[], None]:
    """Stop offering an agent that lost contact; it stays counted."""
    agent = cluster.agent(call.agent_id)

    def change() -> None:
        agent.active = False
        cluster.maintenance.withdraw(agent=agent.id)

    return change


def update_unavailability(
    cluster: Cluster, call: contract.UpdateUnavailability
) -> Callable[[], None]:
    """Schedule maintenance of an agent, or cancel it."""
    agent = cluster.agent(call.agent_id)
    unavailability, flaw = read_unavailability(call)

    def change() -> None:
        cluster.quarantine.put("agent", agent.id, "maintenance", flaw)
        cluster.maintenance.schedule(agent.id, unavailability)
        cluster.marks.change(agent.id)
        cluster.marks.call(agent.id)

    return change


def update_inverse_offer(cluster: Cluster, call: contract.UpdateInverseOffer) -> Callable[[], None]:
    """Take a framework's answer to an inverse offer, or its withdrawal."""
    status, flaw = read_status(call.status) if call.HasField("status") else (None, None)
    refusal, unreadable = read_refusal(call.filters) if call.HasField("filters") else (0, None)
    until = cluster.now_ns + refusal if refusal else None

    def change() -> None:
        if call.agent_id in cluster.ledger.agents and (
            call.framework_id in cluster.ledger.frameworks
        ):
            cluster.quarantine.put("framework", call.framework_id, "answer", flaw or unreadable)
            cluster.maintenance.answer(call.agent_id, call.framework_id, status, until)
        else:
            cluster.statistics.ignored += 1

    return change


def get_inverse_offer_statuses(
    cluster: Cluster, _: contract.GetInverseOfferStatuses
) -> Callable[[], None]:
    """Reply with the answers to inverse offers."""

    def change() -> None:
        cluster.replies.append(contract.Reply(statuses=cluster.maintenance.statuses()))

    return change


def _clients(excluded: contract.ExclusionList) -> set[Client]:
    return {Client(each.role, each.framework_id) for each in excluded.exclusions}


def _begin(cluster: Cluster, agent: Agent, running: dict[str, dict[str, Resources]]) -> None:
    for framework, roles in running.items():
        for role, resources in roles.items():
            cluster.ledger.running.begin(agent, Client(role, framework), resources)


def _read_allocations(
    sieve: ResourceParser, used: Iterable[contract.Allocation]
) -> dict[str, dict[str, Resources]]:
    allocations: dict[str, dict[str, Resources]] = {}
    for allocation in used:
        roles = allocations.setdefault(allocation.framework_id, {})
        for role, resources in sieve.used(allocation.resources).items():
            roles[role] = roles[role] + resources if role in roles else resources
    return allocations


def _note_stays(cluster: Cluster, agent: Agent, used: dict[str, dict[str, Resources]]) -> None:
    """Follow what runs on an agent since nobody knows when: as if it had begun now."""
    if cluster.holds.enabled:
        for framework, roles in used.items():
            for role, resources in roles.items():
                client = Client(role, framework)
                cluster.holds.run_times.given(client, agent.id, resources.scalars, cluster.now_ns)
