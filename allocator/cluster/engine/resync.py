"""Resync: keeps state that a snapshot does not contain, such as offer filters.

A snapshot contains everything that the master knows. The master does not know offer filters,
assumed usage, requests and learned demands. A contradiction by one framework must not cost other
frameworks this state, so the state is copied to the new cluster. Copying requires that the engine
has seen every event up to the snapshot. Otherwise, a framework may have revived its offers
unnoticed.
"""

from allocator.cluster.agents.agent import attributes
from allocator.cluster.calls.resources import add_filter
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.quarantine import Topic
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.offers.offer_filters import parse_filter_duration
from allocator.cluster.resources import InvalidResource
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative

_KEPT: tuple[Topic, ...] = ("request", "answer")
"""Topics of rejected input that a snapshot does not contain, so their errors are kept."""


def note_skipped(cluster: Cluster, event: contract.Event) -> None:
    """Apply an event's effect on offer filters, although the event itself is skipped.

    Events are skipped while the engine waits for a snapshot. The snapshot will contain all their
    other effects, but no filters, because the master does not know filters.
    """
    match event.WhichOneof("call"):
        case "revive_offers":
            revived = event.revive_offers
            roles = set(revived.roles)
            for client in cluster.ledger.clients.of(revived.framework_id):
                if not roles or client.role in roles:
                    cluster.filters.drop(client)
        case "recover_resources":
            _note_refusal(cluster, event.recover_resources, event.time_ns)
        case "add_framework" | "update_framework" | "remove_framework" as call:
            _drop_filters(cluster, getattr(event, call).framework_id)
        case "activate_framework" | "deactivate_framework" as call:
            _drop_filters(cluster, getattr(event, call).framework_id)
        case "add_agent" | "update_agent" | "remove_agent" as call:
            cluster.filters.drop_agent(getattr(event, call).agent_id)


def carry_over(before: Cluster, after: Cluster) -> Cooperative[None]:
    """Copy state that a snapshot does not contain from the previous cluster to the new cluster.

    `carry_demands` copies requests and learned demands. Generator for cooperative steps.

    Args:
        before: The previous cluster.
        after: The cluster built from the snapshot.
    """
    for agent in before.ledger.agents.values():
        agent_after = after.ledger.agents.get(agent.id)
        if agent_after is None or attributes(agent_after.info) != attributes(agent.info):
            before.filters.drop_agent(agent.id)
        yield
    for framework in before.ledger.frameworks.values():
        _keep_filters(before, after, framework)
        yield
    after.filters = before.filters
    if before.ledger.assumed_usage is not None and after.ledger.assumed_usage is not None:
        yield from after.ledger.assumed_usage.carry_over(
            before.ledger.assumed_usage, after.ledger.agents
        )
    for agent_id in after.maintenance.agents():
        after.maintenance.keep_refusals(agent_id, before.maintenance)
    for rejected in before.quarantine:
        if rejected.topic in _KEPT and rejected.name in after.ledger.frameworks:
            after.quarantine.put(*rejected)
        yield


def carry_demands(before: Cluster, after: Cluster) -> Cooperative[None]:
    """Copy the frameworks' requests and learned demands from the previous cluster to the new one.

    Generator for cooperative steps.

    Args:
        before: The previous cluster.
        after: The cluster built from the snapshot.
    """
    for framework in before.ledger.frameworks.values():
        framework_after = after.ledger.frameworks.get(framework.id)
        yield
        if framework_after is None:
            continue
        for client in before.ledger.clients.of(framework.id):
            if client.role in framework_after.roles:
                after.demands.recall(client, before.demands.learned(client))
        if framework_after.subscription == framework.subscription:
            framework_after.demand = framework.demand
            yield from after.ledger.refresh_in_steps(framework_after)


def _keep_filters(before: Cluster, after: Cluster, framework: Framework) -> None:
    """Drop a framework's filters that no longer apply.

    Filters are dropped for roles that the framework has left. All its filters are dropped if it is
    gone or inactive.

    Args:
        before: The previous cluster, whose filters are changed.
        after: The new cluster.
        framework: The framework in the previous cluster.
    """
    framework_after = after.ledger.frameworks.get(framework.id)
    for client in before.ledger.clients.of(framework.id):
        if framework_after is None or client.role not in framework_after.roles:
            before.filters.forget(client)
            continue
        if not framework_after.active:
            before.filters.drop(client)


def _note_refusal(cluster: Cluster, call: contract.RecoverResources, time_ns: int) -> None:
    try:
        role, resources = ResourceParser(cluster.limits).allocated(call.resources)
    except InvalidResource:
        return
    client, agent = Client(role, call.framework_id), cluster.ledger.agents.get(call.agent_id)
    if agent is not None and call.HasField("filters"):
        refuse_ns, _flaw = parse_filter_duration(call.filters)
        add_filter(cluster, client, agent, resources, refuse_ns, max(time_ns, cluster.now_ns))


def _drop_filters(cluster: Cluster, framework_id: str) -> None:
    """Drop all offer filters of a framework."""
    for client in cluster.ledger.clients.of(framework_id):
        cluster.filters.drop(client)
