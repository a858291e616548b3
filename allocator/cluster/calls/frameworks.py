"""Calls of the master that add, change or remove frameworks, or change which offers they want.

Each function checks one call, and returns a function without arguments that carries the call out.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.frameworks.role_places import PlaceRequest
from allocator.cluster.frameworks.subscription import Subscription, read_request, read_subscription
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.text import count_role_nodes
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative

_ABOUT_OFFERS = {"suppress_offers", "revive_offers"}
_OWN = _ABOUT_OFFERS | {
    "update_framework",
    "activate_framework",
    "deactivate_framework",
    "request_resources",
}
"""Calls that change only the framework that they name."""
_NEUTRAL = {"get_inverse_offer_statuses", "pause", "resume", "update_available"}
"""Calls that name no framework, and do not depend on which offers a framework wants."""
_REPORTS = {"add_agent", "add_resource_provider"}
"""Calls that may report resources of frameworks that are not added yet."""


def add(cluster: Cluster, call: contract.AddFramework) -> Callable[[], Cooperative[None]]:
    """Return a function that adds a framework (after SUBSCRIBE, or known from an agent's tasks).

    The function returns a generator for cooperative steps, because all agents may be tested against
    the framework's placement constraint, and its offer constraints may exclude many agents.

    Raises:
        InvalidEvent: A framework with this ID exists already.
    """
    if call.framework_id in cluster.ledger.frameworks:
        raise InvalidEvent(f"framework {call.framework_id} is known already")
    subscription = read_subscription(call.framework_id, call.info, cluster.limits)
    flaw = _rejection(cluster, _wish(call.framework_id, subscription))
    if flaw is not None:
        subscription = Subscription(subscription.name, subscription.principal, flaw=flaw)
    framework = Framework(call.framework_id, subscription, call.active, set(call.suppressed_roles))
    excluded = _excluded(call.excluded)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        placements = cluster.ledger.placements
        yield from placements.prepare_framework(framework.name, framework.constraint)
        cluster.quarantine.put("framework", framework.id, "subscription", subscription.flaw)
        _take_places(cluster, _wish(framework.id, subscription))
        if call.excluded_unlisted:
            yield from cluster.ledger.exclusions.unlist(framework.id)
        yield from cluster.ledger.add_framework(framework, excluded)
        yield from cluster.reject_unlisted()
        if framework.active:
            cluster.examine_all_for(cluster.ledger.clients.of(framework.id))
        else:
            cluster.mark_all_changed()

    return change


def update(cluster: Cluster, call: contract.UpdateFramework) -> Callable[[], Cooperative[None]]:
    """Return a function that replaces a framework's subscription.

    The function returns a generator for cooperative steps, as `add` does.

    New offers follow at the next `Tick` call. A framework whose new subscription is rejected keeps
    its former roles and its commitments in these roles.
    """
    framework = cluster.framework(call.framework_id)
    subscription = cluster.read_subscription(call.framework_id, call.info)
    old_wish, wish = _wish(framework.id, framework.subscription), _wish(framework.id, subscription)
    before = old_wish.places if subscription.principal == old_wish.principal else 0
    flaw = subscription.flaw or _rejection(cluster, wish, before)
    if flaw is not None:
        subscription = replace(framework.subscription, flaw=flaw)
    suppressed = set(call.suppressed_roles)
    excluded = _excluded(call.excluded)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        if not cluster.skips_void_calls:
            placements = cluster.ledger.placements
            yield from placements.prepare_framework(subscription.name, subscription.constraint)
        cluster.quarantine.put("framework", framework.id, "subscription", subscription.flaw)
        cluster.quarantine.put("framework", framework.id, "request", None)
        _free_places(cluster, old_wish)
        _take_places(cluster, _wish(framework.id, subscription))
        left_roles = framework.roles - subscription.roles
        is_new = not cluster.skips_void_calls or subscription != framework.subscription
        framework.update(subscription, suppressed)
        exclusions = cluster.ledger.exclusions
        yield from exclusions.put_framework_in_steps(framework.id, excluded, subscription.principal)
        if call.excluded_unlisted:
            yield from exclusions.unlist(framework.id)
        for role in left_roles:
            yield from cluster.forget(Client(role, framework.id))
        yield from cluster.refresh(framework)
        for client in cluster.ledger.clients.of(framework.id) if is_new else ():
            cluster.ledger.clients.mark_changed(client)  # its minimums may differ
        yield from cluster.reject_unlisted()
        cluster.examine_after_refresh(framework)

    return change


def remove(cluster: Cluster, call: contract.RemoveFramework) -> Callable[[], Cooperative[None]]:
    """Return a function that removes a framework and its allocations.

    The function returns a generator for cooperative steps, because the framework may hold resources
    on many agents. If the master later recovers resources of the removed framework, the call is
    ignored (Mesos semantics, §1.4).
    """
    framework = cluster.framework(call.framework_id)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        _free_places(cluster, _wish(framework.id, framework.subscription))
        clients = cluster.ledger.clients.of(framework.id)
        agents = yield from cluster.ledger.remove_framework(framework)
        for agent in agents:
            cluster.on_resources_recovered(agent)
        cluster.holds.runtime_estimates.forget_framework(framework.id, agents)
        for client in clients:
            yield from cluster.forget(client)
        cluster.pending.pop(framework.id, None)
        cluster.quarantine.forget("framework", framework.id)
        cluster.maintenance.forget(framework.id)

    return change


def activate(cluster: Cluster, call: contract.ActivateFramework) -> Callable[[], Cooperative[None]]:
    """Return a function that resumes offers to a framework whose scheduler has reconnected.

    The function returns a generator for cooperative steps.
    """
    framework = cluster.framework(call.framework_id)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        framework.active = True
        if cluster.skips_void_calls:
            yield from cluster.refresh_wanting(framework, framework.roles)
            cluster.examine_after_refresh(framework)
            cluster.candidates.schedule_all()
        else:
            yield from cluster.ledger.refresh_in_steps(framework)
            cluster.examine_all_for(cluster.ledger.clients.of(framework.id))

    return change


def deactivate(
    cluster: Cluster, call: contract.DeactivateFramework
) -> Callable[[], Cooperative[None]]:
    """Return a function that stops offers to a framework whose scheduler has disconnected.

    The framework keeps its resources. Its offer filters, inverse-offer filters and outstanding
    inverse offers are dropped (Mesos semantics, §1.4). The function returns a generator for
    cooperative steps.
    """
    framework = cluster.framework(call.framework_id)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        framework.active = False
        if cluster.skips_void_calls:
            yield from cluster.refresh_wanting(framework, framework.roles)
        else:
            yield from cluster.ledger.refresh_in_steps(framework)
        for client in cluster.ledger.clients.of(framework.id):
            yield from cluster.filters.drop_in_steps(client)
        cluster.maintenance.drop_filters(framework=framework.id)
        cluster.maintenance.withdraw(framework=framework.id)

    return change


def revive(cluster: Cluster, call: contract.ReviveOffers) -> Callable[[], Cooperative[None]]:
    """Return a function that resumes offers to a framework in given roles, and allocates at once.

    The framework's offer filters in these roles and all its inverse-offer filters are dropped. An
    empty list of roles means all roles of the framework. See Mesos semantics, §1.4. The function
    returns a generator for cooperative steps.
    """
    framework = cluster.framework(call.framework_id)
    roles = (set(call.roles) or framework.roles) & framework.roles

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        clients = [Client(role, framework.id) for role in sorted(roles)]
        revived = [
            client
            for client in clients
            if client.role in framework.suppressed or cluster.filters.count(client)
        ]
        framework.suppressed -= roles
        for client in clients:
            yield from cluster.filters.drop_in_steps(client)
        cluster.maintenance.drop_filters(framework=framework.id)
        yield from cluster.refresh_wanting(framework, roles)
        cluster.examine_all_for(revived)

    return change


def suppress(cluster: Cluster, call: contract.SuppressOffers) -> Callable[[], Cooperative[None]]:
    """Return a function that stops offers to a framework in given roles, as the framework asked.

    An empty list of roles means all roles of the framework. Offer filters are kept. See Mesos
    semantics, §1.4. The function returns a generator for cooperative steps.
    """
    framework = cluster.framework(call.framework_id)
    roles = (set(call.roles) or framework.roles) & framework.roles

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        framework.suppressed |= roles
        yield from cluster.refresh_wanting(framework, roles)

    return change


def void_calls(cluster: Cluster, events: Sequence[contract.Event]) -> Collection[int]:
    """Return the places of calls that later calls in a message make void.

    Args:
        cluster: The cluster before the events.
        events: The events of the message.
    """
    names: list[str] = [event.WhichOneof("call") or "" for event in events]
    void = _superseded(names, events)
    return void.union(_short_lived(cluster, names, events)) if "remove_framework" in names else void


def _named_framework(event: contract.Event, name: str) -> str:
    """Return the ID of the framework that a call of a given name is about; empty if none."""
    framework: str = getattr(getattr(event, name, None), "framework_id", "")
    return framework


def _short_lived(
    cluster: Cluster, names: Sequence[str], events: Sequence[contract.Event]
) -> Iterator[int]:
    """Yield the places of all calls about frameworks that a message adds and removes again.

    Only calls of frameworks and neutral calls lie between the two. No agent of the message reports
    resources of the framework.

    Args:
        cluster: The cluster before the events.
        names: The names of the calls.
        events: The events of the message.
    """
    waiting: dict[str, list[int]] = {}
    """Places of all calls about each framework that the message has added."""
    reported: set[str] = set()
    """Frameworks that may have resources on agents of the message."""
    for place, (name, event) in enumerate(zip(names, events, strict=True)):
        framework = _named_framework(event, name)
        if name in _NEUTRAL:
            continue
        if not framework:
            waiting.clear()
            if name in _REPORTS:
                reported.update(used.framework_id for used in getattr(event, name).used)
        elif name == "add_framework":
            if framework not in reported and not cluster.ledger.knows(framework):
                waiting[framework] = [place]
        elif framework not in waiting:
            continue
        elif name == "remove_framework":
            yield from waiting.pop(framework)
            yield place
        elif name in _OWN:
            waiting[framework].append(place)
        else:
            del waiting[framework]


def _superseded(names: Sequence[str], events: Sequence[contract.Event]) -> frozenset[int]:
    """Return the places of SUPPRESS and REVIVE calls that later calls in a message make void.

    A call about all roles of a framework is void if a REVIVE about all its roles follows, or if
    both calls are SUPPRESS. Only calls of other frameworks and neutral calls may lie between the
    two.

    Args:
        names: The names of the calls.
        events: The events of the message.
    """
    if sum(name in _ABOUT_OFFERS for name in names) <= 1:
        return frozenset()
    void = list[int]()
    waiting: dict[str, list[tuple[int, bool]]] = {}
    """Place of each call that is not void yet, and whether it is a REVIVE, by framework."""
    for place, (name, event) in enumerate(zip(names, events, strict=True)):
        framework = _named_framework(event, name)
        if name in _NEUTRAL:
            continue
        if name not in _ABOUT_OFFERS or getattr(event, name).roles:
            waiting.pop(framework, None)
            if not framework:
                waiting.clear()
            continue
        revives = name == "revive_offers"
        former = waiting.get(framework, [])
        void += [place for place, revived in former if revives or not revived]
        kept = [(place, revived) for place, revived in former if revived and not revives]
        waiting[framework] = [*kept, (place, revives)]
    return frozenset(void)


def request(cluster: Cluster, call: contract.RequestResources) -> Callable[[], Cooperative[None]]:
    """Return a function that sets the task demand of a framework from its REQUEST call.

    The call may contain several requests; the last one counts, and is taken as the demand of one
    task. Stock Mesos ignores this call. The function returns a generator for cooperative steps.
    """
    framework = cluster.framework(call.framework_id)
    demand, flaw = framework.demand, None
    if call.requests:
        demand, flaw = read_request(call.requests[-1], cluster.limits, otherwise=demand)

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        cluster.quarantine.put("framework", framework.id, "request", flaw)
        if cluster.skips_void_calls and demand == framework.demand:
            return
        framework.demand = demand
        yield from cluster.refresh(framework)
        cluster.examine_after_refresh(framework)

    return change


def _wish(framework: str, subscription: Subscription) -> PlaceRequest:
    """Return a framework's request for the role-tree nodes that its roles and their ancestors need.

    Args:
        framework: The framework's ID.
        subscription: The framework's parsed subscription.
    """
    return PlaceRequest(framework, subscription.principal, count_role_nodes(subscription.roles))


def _rejection(cluster: Cluster, wish: PlaceRequest, before: int = 0) -> ValidationError | None:
    """Return the error if a framework is rejected because of the limits of frameworks and roles.

    Args:
        cluster: The cluster.
        wish: All role-tree nodes that the framework requests.
        before: Number of role-tree nodes that it has already.
    """
    cluster.framework_places.end_reservations(cluster.now_ns)
    cluster.roles.end_reservations(cluster.now_ns)
    return cluster.framework_places.rejection(_admission(wish), min(before, 1)) or (
        cluster.roles.rejection(wish, before)
    )


def _take_places(cluster: Cluster, wish: PlaceRequest) -> None:
    """Count an admitted framework and its role-tree nodes."""
    cluster.framework_places.put(_admission(wish))
    cluster.roles.put(wish)


def _free_places(cluster: Cluster, wish: PlaceRequest) -> None:
    """Stop counting a framework and its role-tree nodes, which `_take_places` has counted."""
    cluster.framework_places.discard(_admission(wish))
    cluster.roles.discard(wish)


def _admission(wish: PlaceRequest) -> PlaceRequest:
    """Return the request for one place among all frameworks; for none without roles."""
    return wish._replace(places=min(wish.places, 1))


def _excluded(exclusions: Iterable[contract.ExcludedAgents]) -> dict[str, Iterator[str]]:
    """Return, by role, the IDs of agents that a framework's offer constraints exclude.

    The IDs, perhaps 100,000, are read from the call only when the iterator is read.
    """
    agents: dict[str, list[Iterable[str]]] = {}
    for exclusion in exclusions:
        agents.setdefault(exclusion.role, []).append(exclusion.agent_ids)
    return {role: chain.from_iterable(lists) for role, lists in agents.items()}
