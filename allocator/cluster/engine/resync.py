"""What outlives a snapshot: filters, offers that wait for an answer, requests, what was learned.

A snapshot says all that a master knows. What frameworks have refused, its side does not know; so
whoever makes a snapshot necessary must not cost others their filters. They are kept if every
event between them and the snapshot has been heard: a framework may have revived its offers.
"""

from allocator.cluster.agents.agent import attributes
from allocator.cluster.calls.resources import refuse
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.quarantine import Topic
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.offers.filters import read_refusal
from allocator.cluster.resources import InvalidResource
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract

_KEPT: tuple[Topic, ...] = ("request", "answer")
"""Topics of which no snapshot says anything."""


def note_unheard(cluster: Cluster, event: contract.Event) -> None:
    """Follow what an event means for filters, though it is not applied.

    It is part of the snapshot that is under way.
    """
    match event.WhichOneof("call"):
        case "revive_offers":
            revived = event.revive_offers
            for client in cluster.ledger.clients.of(revived.framework_id):
                if not revived.roles or client.role in revived.roles:
                    cluster.filters.drop(client)
        case "recover_resources":
            _note_refusal(cluster, event.recover_resources, event.time_ns)
        case "add_framework" | "update_framework" | "remove_framework" as call:
            _drop(cluster, getattr(event, call).framework_id)
        case "activate_framework" | "deactivate_framework" as call:
            _drop(cluster, getattr(event, call).framework_id)
        case "add_agent" | "update_agent" | "remove_agent" as call:
            cluster.filters.drop_agent(getattr(event, call).agent_id)


def carrying_over(before: Cluster, after: Cluster) -> Cooperative[None]:
    """Take into a cluster that a snapshot describes what the one before knew beside."""
    for agent in before.ledger.agents.values():
        now = after.ledger.agents.get(agent.id)
        if now is None or attributes(now.info) != attributes(agent.info):
            before.filters.drop_agent(agent.id)
        yield
    for framework in before.ledger.frameworks.values():
        _carry_framework(before, after, framework)
        yield
    after.filters = before.filters
    if before.ledger.presumed is not None and after.ledger.presumed is not None:
        yield from after.ledger.presumed.carry_over(before.ledger.presumed, after.ledger.agents)
    for scheduled in after.maintenance.agents():
        after.maintenance.keep_refusals(scheduled, before.maintenance)
    for each in before.quarantine:
        if each.topic in _KEPT and each.name in after.ledger.frameworks:
            after.quarantine.put(*each)


def _carry_framework(before: Cluster, after: Cluster, framework: Framework) -> None:
    now = after.ledger.frameworks.get(framework.id)
    for client in before.ledger.clients.of(framework.id):
        if now is None or client.role not in now.roles:
            before.filters.forget(client)
            continue
        if not now.active:
            before.filters.drop(client)
        after.demands.recall(client, before.demands.learned(client))
    if now is not None and now.said == framework.said:
        now.demand = framework.demand
        after.ledger.refresh(now)


def _note_refusal(cluster: Cluster, call: contract.RecoverResources, time_ns: int) -> None:
    try:
        role, resources = ResourceParser(cluster.limits).allocated(call.resources)
    except InvalidResource:
        return
    client, agent = Client(role, call.framework_id), cluster.ledger.agents.get(call.agent_id)
    if agent is not None and call.HasField("filters"):
        refusal, _flaw = read_refusal(call.filters)
        refuse(cluster, client, agent, resources, refusal, max(time_ns, cluster.now_ns))


def _drop(cluster: Cluster, framework_id: str) -> None:
    for client in cluster.ledger.clients.of(framework_id):
        cluster.filters.drop(client)
