"""Calls that add, change or remove agents, and calls about their maintenance."""

from collections.abc import Callable, Iterable
from sys import intern

from allocator.cluster.agents.agent import Agent, attributes, parse_agent_info
from allocator.cluster.agents.maintenance import read_status, read_unavailability
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.offers.offer_filters import parse_filter_duration
from allocator.cluster.resources import Resources
from allocator.cluster.resources.kinds import may_be_in_sum
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative

_LEFT_OUT = b"(left out: "
"""Beginning of the name of the resource that stands for all resources of an agent that service or
module left out, because they were too heavy for a message. The agent's `used` is then empty."""


def add(cluster: Cluster, call: contract.AddAgent) -> Callable[[], Cooperative[None]]:
    """Return a function that adds a registered agent, with the resources allocated on it.

    The function returns a generator for cooperative steps, because the agent may be tested against
    many placement constraints.

    Raises:
        InvalidEvent: The agent is known already.
    """
    if call.agent_id in cluster.ledger.agents:
        raise InvalidEvent(f"agent {call.agent_id} is known already; remove it first")
    info, flaw = parse_agent_info(call.agent_id, call.info, cluster.limits)
    parser = ResourceParser(cluster.limits)
    agent = Agent(
        id=call.agent_id,
        info=info,
        capabilities=frozenset(call.capabilities),
        total=parser.total(call.total),
        validation_error=flaw,
        left_out=cluster.left_out_agents_wait and any(_LEFT_OUT in data for data in call.total[:1]),
    )
    used = _read_allocations(parser, call.used)
    used_by_tasks = _read_allocations(parser, call.running)
    unavailability, unreadable = read_unavailability(call)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        if flaw or parser.flaw or unreadable or cluster.quarantine:
            cluster.quarantine.put("agent", agent.id, "subscription", flaw)
            cluster.quarantine.put("agent", agent.id, "resources", parser.flaw)
            cluster.quarantine.put("agent", agent.id, "maintenance", unreadable)
        if call.HasField("excluded") or cluster.ledger.exclusions.of(agent.id):
            yield from _exclude(cluster, agent.id, call.excluded)
        yield from cluster.ledger.add_agent(agent, used)
        _note_task_runs(cluster, agent, used)
        _begin_use(cluster, agent, used_by_tasks)
        cluster.maintenance.schedule(agent.id, unavailability)
        cluster.candidates.mark_changed(agent.id)
        cluster.candidates.schedule(agent.id)

    return change


def remove(cluster: Cluster, call: contract.RemoveAgent) -> Callable[[], Cooperative[None]]:
    """Return a function that removes an agent with all its allocations.

    The function returns a generator for cooperative steps, because the offer constraints of many
    frameworks may exclude the agent. Resources that are recovered later are ignored (Mesos
    semantics, §1.5).
    """
    agent = cluster.agent(call.agent_id)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        yield from cluster.ledger.remove_agent(agent)
        cluster.filters.drop_agent(agent.id)
        cluster.demands.forget_agent(agent.id)
        cluster.holds.forget_agent(agent.id)
        cluster.maintenance.schedule(agent.id, None)
        cluster.candidates.forget(agent.id)
        cluster.quarantine.forget("agent", agent.id)

    return change


def update(cluster: Cluster, call: contract.UpdateAgent) -> Callable[[], Cooperative[None]]:
    """Return a function that replaces an agent's description, total and capabilities.

    The function returns a generator for cooperative steps, as `add` does. If the call omits
    the total or the capabilities, the agent keeps them. An agent whose resources were left out also
    keeps its total, which is empty, because the engine does not know which of them are used.
    """
    agent = cluster.agent(call.agent_id)
    info, flaw = parse_agent_info(call.agent_id, call.info, cluster.limits)
    parser = ResourceParser(cluster.limits)
    has_total = call.HasField("total") and not agent.left_out
    total = parser.total(call.total.resources) if has_total else agent.total
    capabilities = (
        frozenset(call.capabilities.capabilities)
        if call.HasField("capabilities")
        else agent.capabilities
    )
    attributes_changed = attributes(info) != attributes(agent.info)
    contradiction = None
    if total is not agent.total and agent.total.roles_of_sums:
        total, contradiction = _with_known_sums(agent, total)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        cluster.quarantine.put("agent", agent.id, "subscription", flaw)
        if contradiction is not None:
            cluster.divergence = contradiction
        if has_total:
            cluster.quarantine.put("agent", agent.id, "resources", parser.flaw)
        if flaw != agent.validation_error:
            agent.validation_error = flaw
            cluster.candidates.mark_changed(agent.id)
        if attributes_changed:
            cluster.filters.drop_agent(agent.id)
            cluster.maintenance.drop_filters(agent=agent.id)
        exclusions_changed = call.HasField("excluded") and (
            yield from _exclude(cluster, agent.id, call.excluded)
        )
        if not exclusions_changed and (info, capabilities, total) == (
            agent.info,
            agent.capabilities,
            agent.total,
        ):
            return
        yield from cluster.ledger.update_agent(agent, info, capabilities, total)
        cluster.candidates.mark_changed(agent.id)
        cluster.candidates.schedule(agent.id)

    return change


def _with_known_sums(agent: Agent, total: Resources) -> tuple[Resources, str | None]:
    """Return a new total of an agent on which a snapshot has added reservations up.

    The new total names the reservations one by one, but the allocated resources contain sums. The
    engine would take the single reservations for free resources. So the agent keeps its recorded
    reservations. Operations keep this record up to date.

    Returns:
        The total, and a contradiction if the reservations have other amounts than before.
    """
    known, new = agent.total.where(may_be_in_sum), total.where(may_be_in_sum)
    contradiction = None
    if known.scalars != new.scalars:
        contradiction = f"the reservations on agent {agent.id} have other amounts than before"
    return total.where(lambda kind: not may_be_in_sum(kind)) + known, contradiction


def add_resource_provider(
    cluster: Cluster, call: contract.AddResourceProvider
) -> Callable[[], Cooperative[None]]:
    """Return a function that adds a resource provider's resources to an agent.

    The call also says which of these resources are allocated already. The function returns a
    generator for cooperative steps, because a new capacity concerns all users.
    """
    agent = cluster.agent(call.agent_id)
    parser = ResourceParser(cluster.limits)
    total = agent.total + parser.total(call.total)
    used = _read_allocations(parser, call.used)

    def change() -> Cooperative[None]:
        if parser.flaw is not None:
            cluster.quarantine.put("agent", agent.id, "resources", parser.flaw)
        yield from cluster.ledger.set_total(agent, total)
        cluster.ledger.add_used(agent, used)
        _note_task_runs(cluster, agent, used)
        if cluster.reports_used:
            _begin_use(cluster, agent, used)
        cluster.candidates.mark_changed(agent.id)

    return change


def activate(cluster: Cluster, call: contract.ActivateAgent) -> Callable[[], None]:
    """Return a function that resumes offers of an agent that has reconnected."""
    agent = cluster.agent(call.agent_id)

    def change() -> None:
        agent.active = True
        cluster.candidates.mark_changed(agent.id)

    return change


def deactivate(cluster: Cluster, call: contract.DeactivateAgent) -> Callable[[], None]:
    """Return a function that stops offers of a disconnected agent.

    The agent's resources still count in the capacity.
    """
    agent = cluster.agent(call.agent_id)

    def change() -> None:
        agent.active = False
        cluster.maintenance.withdraw(agent=agent.id)

    return change


def update_unavailability(
    cluster: Cluster, call: contract.UpdateUnavailability
) -> Callable[[], None]:
    """Return a function that schedules or cancels maintenance of an agent."""
    agent = cluster.agent(call.agent_id)
    unavailability, flaw = read_unavailability(call)

    def change() -> None:
        cluster.quarantine.put("agent", agent.id, "maintenance", flaw)
        cluster.maintenance.schedule(agent.id, unavailability)
        cluster.candidates.mark_changed(agent.id)
        cluster.candidates.schedule(agent.id)

    return change


def update_inverse_offer(cluster: Cluster, call: contract.UpdateInverseOffer) -> Callable[[], None]:
    """Return a function that records a framework's answer to an inverse offer.

    The call may also report that the master withdrew the inverse offer.
    """
    status, flaw = read_status(call.status) if call.HasField("status") else (None, None)
    refusal, unreadable = (
        parse_filter_duration(call.filters) if call.HasField("filters") else (0, None)
    )
    until = cluster.now_ns + refusal if refusal else None

    def change() -> None:
        if call.agent_id in cluster.ledger.agents and (
            call.framework_id in cluster.ledger.frameworks
        ):
            cluster.quarantine.put("framework", call.framework_id, "answer", flaw or unreadable)
            cluster.maintenance.record_answer(call.agent_id, call.framework_id, status, until)
        else:
            cluster.statistics.ignored += 1

    return change


def get_inverse_offer_statuses(
    cluster: Cluster, _: contract.GetInverseOfferStatuses
) -> Callable[[], None]:
    """Return a function that replies with the frameworks' answers to inverse offers."""

    def change() -> None:
        cluster.replies.append(contract.Reply(statuses=cluster.maintenance.statuses()))

    return change


def _exclude(cluster: Cluster, agent: str, excluded: contract.ExclusionList) -> Cooperative[bool]:
    """Replace the offer-constraint exclusions of an agent; return whether they changed.

    Frameworks with too many exclusions are quarantined. Generator for cooperative steps.

    Args:
        cluster: The cluster that has the agent.
        agent: The agent's ID.
        excluded: The clients that may not be offered the agent, as sent by the master.
    """
    clients = {
        Client(intern(exclusion.role), intern(exclusion.framework_id))
        for exclusion in excluded.exclusions
    }
    changed = yield from cluster.ledger.set_exclusions(agent, clients)
    for framework in excluded.unlisted:
        yield from cluster.ledger.exclusions.unlist(framework)
    yield from cluster.reject_unlisted()
    return changed


def _begin_use(cluster: Cluster, agent: Agent, used: dict[str, dict[str, Resources]]) -> None:
    """Mark resources on an agent as used, as reported by the master.

    Args:
        cluster: The cluster that has the agent.
        agent: The agent on which tasks run.
        used: Used resources: framework → role → resources.
    """
    for framework, roles in used.items():
        for role, resources in roles.items():
            cluster.ledger.used.begin(agent, Client(role, framework), resources)


def _read_allocations(
    parser: ResourceParser, used: Iterable[contract.Allocation]
) -> dict[str, dict[str, Resources]]:
    """Parse the allocations on an agent; return them as framework → role → resources.

    Args:
        parser: Skips invalid resources, and notes the first error.
        used: The allocations in the call.
    """
    allocations: dict[str, dict[str, Resources]] = {}
    for allocation in used:
        roles = allocations.setdefault(intern(allocation.framework_id), {})
        for role, resources in parser.used(allocation.resources).items():
            roles[role] = roles[role] + resources if role in roles else resources
    return allocations


def _note_task_runs(cluster: Cluster, agent: Agent, used: dict[str, dict[str, Resources]]) -> None:
    """Record that tasks run on a new agent's allocated resources, to estimate tasks' runtimes.

    The true start of the tasks is unknown, so they count as started now.
    """
    if cluster.holds.enabled:
        for framework, roles in used.items():
            for role, resources in roles.items():
                client = Client(role, framework)
                cluster.holds.runtime_estimates.record_offer(
                    client, agent.id, resources.scalars, cluster.now_ns
                )
