"""Calls about frameworks."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.frameworks.role_places import Wish
from allocator.cluster.frameworks.subscription import Subscription, read_request, read_subscription
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.text import levels
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract


def add(cluster: Cluster, call: contract.AddFramework) -> Callable[[], None]:
    """Take in a framework that subscribed, or whose tasks an agent reported."""
    if call.framework_id in cluster.ledger.frameworks:
        raise InvalidEvent(f"framework {call.framework_id} is known already")
    said = read_subscription(call.framework_id, call.info, cluster.limits)
    flaw = cluster.roles.flaw(_wish(call.framework_id, said))
    if flaw is not None:
        said = Subscription(said.name, said.principal, flaw=flaw)
    framework = Framework(call.framework_id, said, call.active, set(call.suppressed_roles))
    excluded = _excluded(call.excluded)

    def change() -> None:
        cluster.quarantine.put("framework", framework.id, "subscription", said.flaw)
        cluster.roles.put(_wish(framework.id, said))
        cluster.ledger.add_framework(framework, excluded)
        cluster.anybody()
        if framework.active:
            cluster.marks.call_all()

    return change


def update(cluster: Cluster, call: contract.UpdateFramework) -> Callable[[], None]:
    """Take over what a framework says of itself now; offers follow at the next tick.

    One that is set aside for it keeps its former roles, and with them its debts.
    """
    framework = cluster.framework(call.framework_id)
    said = read_subscription(call.framework_id, call.info, cluster.limits)
    former, wish = _wish(framework.id, framework.said), _wish(framework.id, said)
    before = former.places if said.principal == former.principal else 0
    flaw = said.flaw or cluster.roles.flaw(wish, before)
    if flaw is not None:
        said = replace(framework.said, flaw=flaw)
    suppressed = set(call.suppressed_roles)
    excluded = _excluded(call.excluded)

    def change() -> None:
        cluster.quarantine.put("framework", framework.id, "subscription", said.flaw)
        cluster.quarantine.put("framework", framework.id, "request", None)
        cluster.roles.discard(former)
        cluster.roles.put(_wish(framework.id, said))
        left = framework.roles - said.roles
        framework.update(said, suppressed)
        cluster.ledger.exclusions.put_framework(framework.id, excluded)
        for role in left:
            cluster.forget(Client(role, framework.id))
        cluster.ledger.refresh(framework)
        cluster.anybody()

    return change


def remove(cluster: Cluster, call: contract.RemoveFramework) -> Callable[[], None]:
    """Let a framework go with all that it holds; recoveries that follow are late (§1.4)."""
    framework = cluster.framework(call.framework_id)

    def change() -> None:
        cluster.roles.discard(_wish(framework.id, framework.said))
        clients = cluster.ledger.clients.of(framework.id)
        agents = cluster.ledger.remove_framework(framework)
        for agent in agents:
            cluster.freed(agent)
        cluster.holds.run_times.forget_framework(framework.id, agents)
        for client in clients:
            cluster.forget(client)
        cluster.quarantine.forget("framework", framework.id)
        cluster.maintenance.forget(framework.id)

    return change


def activate(cluster: Cluster, call: contract.ActivateFramework) -> Callable[[], None]:
    """Offer to a framework again whose scheduler is back."""
    framework = cluster.framework(call.framework_id)

    def change() -> None:
        framework.active = True
        cluster.ledger.refresh(framework)
        cluster.anybody()
        cluster.marks.call_all()

    return change


def deactivate(cluster: Cluster, call: contract.DeactivateFramework) -> Callable[[], None]:
    """Stop offering to a framework whose scheduler is gone; it keeps what it holds."""
    framework = cluster.framework(call.framework_id)

    def change() -> None:
        framework.active = False
        cluster.ledger.refresh(framework)
        for client in cluster.ledger.clients.of(framework.id):
            cluster.filters.drop(client)
        cluster.maintenance.drop_filters(framework=framework.id)
        cluster.maintenance.withdraw(framework=framework.id)

    return change


def revive(cluster: Cluster, call: contract.ReviveOffers) -> Callable[[], None]:
    """Forget what a framework has refused, and offer to it at once."""
    framework = cluster.framework(call.framework_id)
    roles = set(call.roles) or framework.roles

    def change() -> None:
        framework.suppressed -= roles
        for role in roles:
            cluster.filters.drop(Client(role, framework.id))
        cluster.maintenance.drop_filters(framework=framework.id)
        cluster.ledger.refresh(framework)
        cluster.anybody()
        cluster.marks.call_all()

    return change


def suppress(cluster: Cluster, call: contract.SuppressOffers) -> Callable[[], None]:
    """Stop offering to a framework, at its own wish."""
    framework = cluster.framework(call.framework_id)
    roles = (set(call.roles) or framework.roles) & framework.roles

    def change() -> None:
        framework.suppressed |= roles
        cluster.ledger.refresh(framework)

    return change


def request(cluster: Cluster, call: contract.RequestResources) -> Callable[[], None]:
    """Take the last of a framework's requests for what one of its tasks needs.

    Stock Mesos ignores this call; frameworks that make it have nothing to lose.
    """
    framework = cluster.framework(call.framework_id)
    demand, flaw = framework.demand, None
    if call.requests:
        demand, flaw = read_request(call.requests[-1], cluster.limits, otherwise=demand)

    def change() -> None:
        cluster.quarantine.put("framework", framework.id, "request", flaw)
        framework.demand = demand
        cluster.ledger.refresh(framework)
        cluster.anybody()

    return change


def _wish(framework: str, said: Subscription) -> Wish:
    return Wish(framework, said.principal, levels(said.roles))


def _excluded(told: Iterable[contract.ExcludedAgents]) -> dict[str, list[str]]:
    """Return of which agents a framework wants no offers, by role."""
    agents: dict[str, list[str]] = {}
    for each in told:
        agents.setdefault(each.role, []).extend(each.agent_ids)
    return agents
