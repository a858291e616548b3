"""Calls by which allocated resources are recovered, marked as used, or converted."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from allocator.cluster.agents.agent import Agent
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.metering.metered import note_refusal
from allocator.cluster.offers.offer_filters import parse_filter_duration
from allocator.cluster.offers.operations import (
    CONVERSIONS_PER_STEP,
    OperationError,
    ResourceConversion,
    convert,
    convert_in_steps,
    parse_operation,
)
from allocator.cluster.quota import top_level
from allocator.cluster.resources import (
    Kind,
    Resources,
    merge_reservations,
    parse_allocated_in_steps,
    parse_total,
    reserver,
)
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, run_to_completion


class _ParsedConversion(NamedTuple):
    """One conversion of an `UpdateAllocation` call, without resources that were skipped."""

    step: ResourceConversion
    consumes: bool
    """Whether the conversion consumes resources, perhaps skipped ones."""
    is_whole: bool
    """Whether no resource was skipped."""


def recover(cluster: Cluster, call: contract.RecoverResources) -> Cooperative[Callable[[], None]]:
    """Return a function that releases resources: declined, unused, rescinded, or of ended tasks.

    If the call has a filter, an offer filter is added for the client. Reading the resources takes
    cooperative steps.
    """
    parser, messages = ResourceParser(cluster.limits), call.resources[:]
    parsed = parser.known(messages)  # without a generator
    if parsed is None:
        parsed = yield from parser.allocated_in_steps(messages)
    role, resources = parsed
    declined, was_used = call.HasField("filters"), call.is_allocated
    refusal, flaw = parse_filter_duration(call.filters) if declined else (None, None)
    client, agent_id = cluster.ledger.clients.find(role, call.framework_id), call.agent_id
    framework = client.framework
    agent_before = cluster.ledger.agents.get(agent_id)
    if agent_before is not None and agent_before.total.roles_of_sums:
        resources = yield from _in_sums(agent_before, role, resources)

    def change() -> None:
        _put_flaw(cluster, framework, parser.flaw or flaw)
        if was_used:
            cluster.ledger.used.end(agent_id, client, resources)
        agent = _release(cluster, client, agent_id, resources)
        if cluster.ledger.assumed_usage is not None and agent is not None and refusal is not None:
            cluster.ledger.assumed_usage.answered(agent, client)
        _note_return(cluster, client, agent_id, resources, declined=declined)
        if agent is None or refusal is None or framework not in cluster.ledger.frameworks:
            return
        learned = cluster.demands.note_answer(client, agent.id, resources)
        if learned and client in cluster.ledger.clients:
            cluster.ledger.update_task(client)
        if resources:
            # A master puts PAUSE and RESUME around the calls of an ACCEPT, not of a DECLINE.
            left_over = cluster.paused
            add_filter(
                cluster, client, agent, resources, refusal, cluster.now_ns, left_over=left_over
            )
            if cluster.meter is not None:
                note_refusal(cluster.meter, cluster.ledger.clients, client, cluster.now_ns / 1e9)

    return change


def _in_sums(agent: Agent, role: str, resources: Resources) -> Cooperative[Resources]:
    """Return resources in the form in which a snapshot has added reservations up on their agent.

    Ends of tasks and operators' operations name such resources, but no offers do. Generator for
    cooperative steps.

    Args:
        agent: The agent, which has sums.
        role: The role that the resources are allocated to; empty for resources without allocation.
        resources: The resources. They are returned unchanged if the agent has all their kinds.
    """
    known = set(agent.total)
    if known.issuperset(resources):
        return resources
    messages = resources.where(lambda kind: kind not in known).messages(role)
    quotas = set(map(top_level, agent.total.roles_of_sums))
    for principal in dict.fromkeys(map(reserver, messages)):
        if principal is not None:
            messages = yield from merge_reservations(messages, principal, quotas, used=bool(role))
    if role:
        _role, sums = yield from parse_allocated_in_steps(messages)
    else:
        sums = parse_total(messages)
    return resources.where(lambda kind: kind in known) + sums


def transition_offered_to_allocated(
    cluster: Cluster, call: contract.TransitionOfferedToAllocated
) -> Callable[[], None]:
    """Return a function that marks resources as used, because their offer was accepted.

    Only displays and the limit on unanswered offers depend on used resources.
    """
    parser = ResourceParser(cluster.limits)
    by_role = parser.used(call.resources)
    agent_before = cluster.ledger.agents.get(call.agent_id)
    if agent_before is not None and agent_before.total.roles_of_sums:
        by_role = {
            role: run_to_completion(_in_sums(agent_before, role, resources))
            for role, resources in by_role.items()
        }

    def change() -> None:
        _put_flaw(cluster, call.framework_id, parser.flaw)
        agent = cluster.ledger.agents.get(call.agent_id)
        for role, resources in by_role.items():
            client = Client(role, call.framework_id)
            if agent is None or not cluster.ledger.used.begin(agent, client, resources):
                cluster.statistics.ignored += 1

    return change


def reject(cluster: Cluster, call: contract.RejectOffer) -> Callable[[], None]:
    """Return a function that releases the resources of an offer that the master's side rejected.

    The offer has not reached the framework, so no offer filter is added. `Cluster.refusals` makes
    the resources wait for the next tick, and longer after repeated refusals. Otherwise the engine
    would make an offer again without end if the master's side always refuses it.
    """
    parser = ResourceParser(cluster.limits)
    role, resources = parser.allocated(call.resources)

    def change() -> None:
        _put_flaw(cluster, call.framework_id, parser.flaw)
        client = Client(role, call.framework_id)
        refusals = cluster.refusals
        framework = cluster.ledger.frameworks.get(call.framework_id)
        waits = refusals is not None and refusals.concern(framework, role)
        agent = _release(cluster, client, call.agent_id, resources, waits=waits)
        if agent is not None and refusals is not None and waits:
            refusals.note(agent.id, resources, cluster.now_ns)
        _note_return(cluster, client, call.agent_id, resources, declined=True)
        cluster.statistics.rejected += 1

    return change


def update_allocation(
    cluster: Cluster, call: contract.UpdateAllocation
) -> Cooperative[Callable[[], Cooperative[None] | None]]:
    """Return a function that applies a framework's operations to the resources offered to it.

    A conversion that consumes nothing adds copies of a shared volume. The agent's total does not
    grow by these copies. See Mesos semantics, §4.1. The function returns a generator for
    cooperative steps, because a new capacity concerns all users. Reading the operations also takes
    cooperative steps.

    The engine leaves resources whose kind exceeds a limit out of all calls. So its records equal
    the records that a snapshot would give.

    Raises:
        InvalidEvent: The framework does not hold the resources, or a conversion does not apply.
    """
    agent = cluster.agent(call.agent_id)
    parser = ResourceParser(cluster.limits)
    role, offered = yield from parser.allocated_in_steps(call.offered)
    conversions = list[_ParsedConversion]()
    for message in call.conversions:
        conversion = yield from _parse_conversion(parser, message, role)
        conversions.append(conversion)
        if not len(conversions) % CONVERSIONS_PER_STEP:
            yield
    if not parser.skips_whole_kinds:
        return lambda: _skip_operations(cluster, call, parser.flaw)
    held = agent.held(call.framework_id, role)
    if offered not in held:
        raise InvalidEvent(
            f"framework {call.framework_id} does not hold {offered!r} for {role!r} on {agent.id}"
        )
    try:
        remaining = yield from convert_in_steps([step for step, _, _ in conversions], offered)
        of_total = [step for step, consumes, _ in conversions if consumes]
        total = yield from convert_in_steps(of_total, agent.total)
    except OperationError as error:
        raise InvalidEvent(f"a conversion does not apply: {error}") from error
    yield from _check_amounts([step for step, _, is_whole in conversions if is_whole])

    def change() -> Cooperative[None]:
        _put_flaw(cluster, call.framework_id, parser.flaw)
        yield from cluster.ledger.set_total(agent, total)
        cluster.ledger.convert(agent, call.framework_id, role, held - offered + remaining)
        if cluster.ledger.assumed_usage is not None:
            cluster.ledger.assumed_usage.answered(agent, Client(role, call.framework_id))
        cluster.candidates.mark_changed(agent.id)

    return change


def _check_amounts(steps: list[ResourceConversion]) -> Cooperative[None]:
    """Check that conversions keep the scalar quantities of resources, in cooperative steps.

    Raises:
        InvalidEvent: A conversion changes a quantity.
    """
    for number, step in enumerate(steps, 1):
        if not number % CONVERSIONS_PER_STEP:
            yield
        if step.consumed and step.converted and step.consumed.scalars != step.converted.scalars:
            raise InvalidEvent(f"{step.consumed!r} cannot become {step.converted!r}")


def update_available(
    cluster: Cluster, call: contract.UpdateAvailable
) -> Callable[[], Cooperative[None]]:
    """Return a function that applies an operator's operations to an agent's available resources.

    If the operations do not apply, the function only sends a reply with an error. See Mesos
    semantics, §4.2. The function returns a generator, as `update_allocation` does.
    """
    agent = cluster.agent(call.agent_id)
    total: Resources | None = None
    reply = contract.Reply()
    try:
        steps = [
            step for data in call.operations for step in _parse_operation(data, cluster.limits)
        ]
        steps = _with_sums(agent, steps)
        total = _total_after(agent, steps)
    except (OperationError, InvalidEvent) as error:
        reply.error = f"agent {agent.id}: {error}"

    def change() -> Cooperative[None]:
        cluster.replies.append(reply)
        if total is not None:
            yield from cluster.ledger.set_total(agent, total)
            cluster.candidates.mark_changed(agent.id)

    return change


def _with_sums(agent: Agent, steps: list[ResourceConversion]) -> list[ResourceConversion]:
    """Return conversions in which sums of reservations replace the resources that they contain.

    See `_in_sums`. Resources that an earlier conversion creates are in no sum.
    """
    if not agent.total.roles_of_sums:
        return steps
    changed, created = list[ResourceConversion](), set[Kind]()
    for step in steps:
        consumed = step.consumed
        if created.isdisjoint(consumed):
            consumed = run_to_completion(_in_sums(agent, "", consumed))
        changed.append(replace(step, consumed=consumed))
        created.update(step.converted)
    return changed


def _parse_operation(data: bytes, limits: Limits) -> list[ResourceConversion]:
    """Parse an operator's operation into its conversions.

    Raises:
        InvalidEvent: The message is malformed.
        OperationError: The operation is too long, or does not convert resources.
    """
    if limits.entries and len(data) > limits.resource:
        message = f"an operation has {len(data)} bytes, more than {limits.resource}"
        raise OperationError(f"{message} (limits.resource)")
    return parse_operation(data, limits)


def _total_after(agent: Agent, steps: list[ResourceConversion]) -> Resources:
    """Return the agent's total after an operator's conversions of its available resources.

    Raises:
        OperationError: A conversion does not apply, or the quantity of a resource would change.
    """
    convert(steps, agent.available)
    total = convert(steps, agent.total)
    if total.copies != agent.total.copies:
        raise OperationError("the operation would change the amount of a resource")
    return total


def _put_flaw(cluster: Cluster, framework: str, flaw: ValidationError | None) -> None:
    """Put an error in a framework's resources into quarantine; None clears an earlier error."""
    if flaw is None and not cluster.quarantine:
        return
    if framework in cluster.ledger.frameworks:
        cluster.quarantine.put("framework", framework, "resources", flaw)


def _note_return(
    cluster: Cluster, client: Client, agent_id: str, resources: Resources, *, declined: bool
) -> None:
    """Update runtime estimates and backfill holds after a client gave resources back.

    A backfill hold keeps an agent free for a client whose next task fits on no agent yet.

    Args:
        cluster: The cluster that has the client.
        client: The client that held the resources.
        agent_id: The ID of the resources' agent.
        resources: The recovered resources.
        declined: Whether the resources were declined or rejected, so that no task ran on them.
    """
    holds = cluster.holds
    if not holds.enabled:
        return
    if declined:
        holds.runtime_estimates.record_decline(client, agent_id, resources.scalars)
        holds.declined(client, agent_id, cluster.now_ns)
    else:
        holds.runtime_estimates.record_end(client, agent_id, resources.scalars, cluster.now_ns)


def _skip_operations(
    cluster: Cluster, call: contract.UpdateAllocation, flaw: ValidationError | None
) -> None:
    """Skip a call with malformed operations, and request a snapshot, which has their results.

    Args:
        cluster: Its `divergence` is set, so that the session requests the snapshot.
        call: The skipped call.
        flaw: The error in the operations.
    """
    _put_flaw(cluster, call.framework_id, flaw)
    cluster.divergence = (
        f"operations of framework {call.framework_id} on agent {call.agent_id} cannot be "
        f"followed: {flaw.words if flaw is not None else ''}"
    )


def _release(
    cluster: Cluster, client: Client, agent_id: str, resources: Resources, *, waits: bool = False
) -> Agent | None:
    """Release a client's resources; return their agent, or None if the agent was removed.

    Resources of a removed agent or framework are ignored. The master may recover resources after
    the removal (Mesos semantics, §1.6).

    Args:
        cluster: The cluster that has the client.
        client: The client that held the resources.
        agent_id: The ID of the resources' agent.
        resources: The released resources.
        waits: Whether the resources wait for an event that makes the agent due, such as a tick.
    """
    agent = cluster.ledger.agents.get(agent_id)
    if agent is None:
        cluster.statistics.ignored += 1
        return None
    if not resources:
        return agent  # an empty list of resources has no role
    unallocated = cluster.ledger.recover(agent, client, resources)
    if unallocated:
        if client.framework in cluster.ledger.frameworks:
            cluster.statistics.clamped += 1
            cluster.divergence = (
                f"framework {client.framework} gave back {resources!r} on agent {agent_id} for "
                f"role {client.role!r}, which is more than it held"
            )
        else:
            cluster.statistics.ignored += 1
    if not unallocated or unallocated != resources:
        if waits:
            cluster.candidates.mark_changed(agent_id)
        else:
            cluster.on_resources_recovered(agent_id)
    return agent


def add_filter(  # noqa: PLR0913, PLR0917 - all arguments describe one filter
    cluster: Cluster,
    client: Client,
    agent: Agent,
    resources: Resources,
    refusal: int,
    now_ns: int,
    *,
    left_over: bool = False,
) -> None:
    """Add an offer filter for declined resources.

    Only ticks remove filters whose time is over. With a requested length of zero and
    `Cluster.offers_freed_at_once`, a filter is added that the next tick removes. Otherwise the
    declining framework would get the same resources again at once, without end. If offers are made
    at ticks only, a requested length of zero adds no filter.

    A framework that has left the role gets no offers for the role, and therefore no filter.

    Args:
        cluster: The cluster that receives the filter.
        client: The client that declines.
        agent: The agent that has the resources.
        resources: The declined resources.
        refusal: Requested length of the filter in nanoseconds.
        now_ns: The current time in nanoseconds.
        left_over: Whether the resources are the unused part of an accepted offer.
    """
    framework = cluster.ledger.frameworks.get(client.framework)
    if framework is None or client.role not in framework.roles:
        return
    if refusal > cluster.interval_ns:
        until = now_ns + refusal - 1  # the filter has ended at a tick on its last instant
    elif refusal:
        until = now_ns + cluster.interval_ns  # the filter still applies at the next tick
    elif cluster.offers_freed_at_once:
        until = now_ns - 1
    else:
        return
    principal = framework.subscription.principal
    cluster.filters.add(
        client, agent.id, resources, until, left_over=left_over, principal=principal
    )


def _parse_conversion(
    parser: ResourceParser, conversion: contract.Conversion, role: str
) -> "Cooperative[_ParsedConversion]":
    """Parse one conversion of an `UpdateAllocation` call. Generator for cooperative steps.

    Raises:
        InvalidEvent: The conversion is for another role than the offers.
    """
    sides, skipped = [], len(parser.skipped)
    for messages in (conversion.consumed, conversion.converted):
        side_role, resources = yield from parser.allocated_in_steps(messages)
        if resources and side_role != role:
            raise InvalidEvent(f"a conversion is for role {side_role!r}, the offers for {role!r}")
        sides.append(resources)
    step, is_whole = ResourceConversion(*sides), len(parser.skipped) == skipped
    consumes = bool(step.consumed) or (not is_whole and bool(conversion.consumed))
    return _ParsedConversion(step, consumes, is_whole)
