"""Calls by which resources come back, or become other resources."""

from collections.abc import Callable

from allocator.cluster.agents.agent import Agent
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.metering.metered import note_refusal
from allocator.cluster.offers.filters import read_refusal
from allocator.cluster.offers.operations import (
    OperationError,
    ResourceConversion,
    applied,
    parse_operation,
)
from allocator.cluster.resources import Resources
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract


def recover(cluster: Cluster, call: contract.RecoverResources) -> Callable[[], None]:
    """Free what was declined, left over, rescinded, or used by a task that ended."""
    sieve = ResourceParser(cluster.limits)
    role, resources = sieve.allocated(call.resources)
    refusal, flaw = read_refusal(call.filters) if call.HasField("filters") else (None, None)
    client = Client(role, call.framework_id)

    def change() -> None:
        _note(cluster, call.framework_id, sieve.flaw or flaw)
        if call.is_allocated:
            cluster.ledger.running.end(call.agent_id, client, resources)
        agent = _release(cluster, client, call.agent_id, resources)
        if cluster.ledger.presumed is not None and agent is not None and refusal is not None:
            cluster.ledger.presumed.answered(agent, client)
        _note_stay(cluster, client, call.agent_id, resources, declined=call.HasField("filters"))
        if agent is None or refusal is None or call.framework_id not in cluster.ledger.frameworks:
            return
        cluster.demands.note_answer(client, agent.id, resources)
        if client in cluster.ledger.clients:
            cluster.ledger.note_task(client)
        if resources:
            # A master puts the calls of an ACCEPT between PAUSE and RESUME, not that of a DECLINE.
            left_over = cluster.paused
            refuse(cluster, client, agent, resources, refusal, cluster.now_ns, left_over=left_over)
            if cluster.meter is not None:
                note_refusal(cluster.meter, cluster.ledger.clients, client, cluster.now_ns / 1e9)

    return change


def transition_offered_to_allocated(
    cluster: Cluster, call: contract.TransitionOfferedToAllocated
) -> Callable[[], None]:
    """Note that what was offered is used; that is for people to see, and decides nothing."""
    sieve = ResourceParser(cluster.limits)
    by_role = sieve.used(call.resources)

    def change() -> None:
        _note(cluster, call.framework_id, sieve.flaw)
        agent = cluster.ledger.agents.get(call.agent_id)
        for role, resources in by_role.items():
            client = Client(role, call.framework_id)
            if agent is None or not cluster.ledger.running.begin(agent, client, resources):
                cluster.statistics.ignored += 1

    return change


def reject(cluster: Cluster, call: contract.RejectOffer) -> Callable[[], None]:
    """Free what the master's side did not let through."""
    sieve = ResourceParser(cluster.limits)
    role, resources = sieve.allocated(call.resources)

    def change() -> None:
        _note(cluster, call.framework_id, sieve.flaw)
        client = Client(role, call.framework_id)
        _release(cluster, client, call.agent_id, resources)
        _note_stay(cluster, client, call.agent_id, resources, declined=True)
        cluster.statistics.rejected += 1

    return change


def update_allocation(cluster: Cluster, call: contract.UpdateAllocation) -> Callable[[], None]:
    """Follow operations of a framework on what it was offered (§4.1).

    A step that consumes nothing makes more copies of a shared volume: there is not more of it.
    """
    agent = cluster.agent(call.agent_id)
    sieve = ResourceParser(cluster.limits)
    role, offered = sieve.allocated(call.offered)
    steps = [_parse_conversion(sieve, conversion, role) for conversion in call.conversions]
    if sieve.flaw is not None:
        return lambda: _lose_track(cluster, call, sieve.flaw)
    held = agent.held(call.framework_id, role)
    if offered not in held:
        raise InvalidEvent(
            f"framework {call.framework_id} does not hold {offered!r} for {role!r} on {agent.id}"
        )
    try:
        left = applied(steps, offered)
        total = applied([step for step in steps if step.consumed], agent.total)
    except OperationError as error:
        raise InvalidEvent(f"a conversion does not apply: {error}") from error
    for step in steps:
        if step.consumed and step.converted and step.consumed.scalars != step.converted.scalars:
            raise InvalidEvent(f"{step.consumed!r} cannot become {step.converted!r}")

    def change() -> None:
        _note(cluster, call.framework_id, None)
        cluster.ledger.set_total(agent, total)
        cluster.ledger.convert(agent, call.framework_id, role, held - offered + left)
        if cluster.ledger.presumed is not None:
            cluster.ledger.presumed.answered(agent, Client(role, call.framework_id))
        cluster.marks.change(agent.id)

    return change


def update_available(cluster: Cluster, call: contract.UpdateAvailable) -> Callable[[], None]:
    """Carry out an operator's operation on what is free, or reply why not (§4.2)."""
    agent = cluster.agent(call.agent_id)
    total: Resources | None = None
    reply = contract.Reply()
    try:
        steps = [step for data in call.operations for step in parse_operation(data)]
        total = _total_after(agent, steps)
    except (OperationError, InvalidEvent) as error:
        reply.error = f"agent {agent.id}: {error}"

    def change() -> None:
        cluster.replies.append(reply)
        if total is not None:
            cluster.ledger.set_total(agent, total)
            cluster.marks.change(agent.id)

    return change


def _total_after(agent: Agent, steps: list[ResourceConversion]) -> Resources:
    """Return what becomes of an agent's total when what is free of it is converted.

    Raises:
        OperationError: that cannot be, or there would be more or less of something afterwards.
    """
    applied(steps, agent.available)
    total = applied(steps, agent.total)
    if total.copies != agent.total.copies:
        raise OperationError("there would be more or less of something afterwards")
    return total


def _note(cluster: Cluster, framework: str, flaw: ValidationError | None) -> None:
    """Remember what of a framework's resources could not be used, or that all could."""
    if flaw is None and not cluster.quarantine:
        return
    if framework in cluster.ledger.frameworks:
        cluster.quarantine.put("framework", framework, "resources", flaw)


def _note_stay(
    cluster: Cluster, client: Client, agent_id: str, resources: Resources, *, declined: bool
) -> None:
    """Learn from what comes back how long a framework's tasks run."""
    holds = cluster.holds
    if not holds.enabled:
        return
    if declined:
        holds.run_times.declined(client, agent_id, resources.scalars)
        holds.declined(client, agent_id, cluster.now_ns)
    else:
        holds.run_times.ended(client, agent_id, resources.scalars, cluster.now_ns)


def _lose_track(
    cluster: Cluster, call: contract.UpdateAllocation, flaw: ValidationError | None
) -> None:
    """Pass over operations that cannot be followed; a snapshot will say what came of them."""
    _note(cluster, call.framework_id, flaw)
    cluster.divergence = (
        f"operations of framework {call.framework_id} on agent {call.agent_id} cannot be "
        f"followed: {flaw.words if flaw is not None else ''}"
    )


def _release(cluster: Cluster, client: Client, agent_id: str, resources: Resources) -> Agent | None:
    """Free resources; that their agent or framework is gone already is normal (§1.6)."""
    agent = cluster.ledger.agents.get(agent_id)
    if agent is None:
        cluster.statistics.ignored += 1
        return None
    if not resources:
        return agent  # there is no role that nothing is held for
    missing = cluster.ledger.recover(agent, client.framework, client.role, resources)
    if missing:
        if client.framework in cluster.ledger.frameworks:
            cluster.statistics.clamped += 1
            cluster.divergence = (
                f"framework {client.framework} gave back {resources!r} on agent {agent_id} for "
                f"role {client.role!r}, which is more than it held"
            )
        else:
            cluster.statistics.ignored += 1
    if not missing or missing != resources:
        cluster.freed(agent_id)
    return agent


def refuse(  # noqa: PLR0913, PLR0917 - what is refused, by whom, where, and for how long from when
    cluster: Cluster,
    client: Client,
    agent: Agent,
    resources: Resources,
    refusal: int,
    now_ns: int,
    *,
    left_over: bool = False,
) -> None:
    """Install a filter that no refuser escapes before the next batch.

    Mesos re-offers in batches, so even "no filter" keeps a refuser waiting for one. Where freed
    resources are offered at once, the wait is a filter that ends before the next tick is
    served: otherwise refuser and allocator would play ping-pong.

    Who has left the role is offered nothing for it, so there is nothing to refuse.
    """
    framework = cluster.ledger.frameworks.get(client.framework)
    if framework is None or client.role not in framework.roles:
        return
    if refusal > cluster.interval_ns:
        until = now_ns + refusal - 1  # it is over at the tick that falls on its end
    elif refusal:
        until = now_ns + cluster.interval_ns  # the next tick is not to escape it
    elif cluster.at_once:
        until = now_ns - 1
    else:
        return
    cluster.filters.add(client, agent.id, resources, until, left_over=left_over)


def _parse_conversion(
    sieve: ResourceParser, conversion: contract.Conversion, role: str
) -> ResourceConversion:
    sides = []
    for messages in (conversion.consumed, conversion.converted):
        held_for, resources = sieve.allocated(messages)
        if resources and held_for != role and sieve.flaw is None:
            raise InvalidEvent(f"a conversion is for role {held_for!r}, the offers for {role!r}")
        sides.append(resources)
    return ResourceConversion(*sides)
