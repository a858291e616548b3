"""Applies a master's snapshot to an empty cluster, part by part."""

from collections.abc import Iterator, Mapping
from typing import Any

from allocator.cluster.agents.failover_recovery import FailoverRecovery
from allocator.cluster.calls import PREPARE
from allocator.cluster.frameworks.role_places import PlaceRequest
from allocator.cluster.frameworks.subscription import read_subscription
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.quarantine import Kind, ValidationError, describe_error
from allocator.cluster.input.text import count_role_nodes
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative
from allocator.users.memory import OccupiedPlaces


class BadSnapshotPart(Exception):  # noqa: N818 - not an error of the snapshot
    """A part of a snapshot caused an allocator error and left the cluster in an unknown state.

    The caller tries again with a new cluster, without this part.

    Args:
        part: The index of the part in the snapshot.
        flaw: The error.
    """

    def __init__(self, part: int, flaw: ValidationError) -> None:
        self.part = part
        self.flaw = flaw


def fill_cluster(
    cluster: Cluster,
    snapshot: contract.Snapshot,
    before: Cluster,
    places: Mapping[str, OccupiedPlaces],
    without: Mapping[int, ValidationError],
) -> Cooperative[None]:
    """Apply a snapshot to an empty cluster. Parts that cannot be used are quarantined.

    Generator for cooperative steps. A part is one agent, framework or other object of the snapshot.

    Args:
        cluster: An empty cluster.
        snapshot: The master's whole state.
        before: The previous cluster, whose capacity is used in a failover recovery.
        places: Nodes of the role tree that frameworks occupied before. Frameworks with an entry
            were admitted.
        without: Errors of the parts to leave out, by index of the part.

    Raises:
        BadSnapshotPart: A part has left the cluster in an unknown state.
    """
    if snapshot.HasField("whitelist"):
        cluster.whitelist = frozenset(snapshot.whitelist.hostnames)
    if cluster.roles.rules.leaves_room:
        frameworks = before.framework_places.counted()
        if cluster.framework_places.rules.outlive_restarts:
            admitted = {name: place._replace(nodes=1) for name, place in places.items()}
            frameworks = admitted | frameworks
        nodes = {name: place for name, place in places.items() if place.nodes}
        yield from _plan_places(cluster, snapshot, frameworks, nodes)
    cluster.ledger.begin_adding_agents()
    for number, (call, message) in enumerate(_parts(snapshot)):
        if call == "add_framework":
            yield from cluster.ledger.end_adding_agents()
        flaw = without.get(number)
        if flaw is None:
            flaw = yield from _apply_part(cluster, number, call, message)
        if flaw is not None:
            cluster.quarantine.put(*subject(call, message), "call", flaw)
        yield
    yield from cluster.ledger.end_adding_agents()
    cluster.framework_places.end_plan()
    cluster.roles.end_plan()
    for state in snapshot.inverse_offers:
        cluster.maintenance.restore(state)
    cluster.paused = snapshot.paused
    if snapshot.HasField("hold_off"):
        hold_off = snapshot.hold_off
        expected = max(hold_off.agents_expected, hold_off.agents_needed)
        capacity = before.ledger.clients.users.pool.capacity
        until_ns = min(hold_off.until_ns, cluster.now_ns + cluster.recovery.timeout_ns)
        cluster.begin_failover(
            FailoverRecovery(hold_off.agents_needed, expected, until_ns, capacity)
        )


def _plan_places(
    cluster: Cluster,
    snapshot: contract.Snapshot,
    before: Mapping[str, OccupiedPlaces],
    roles_before: Mapping[str, OccupiedPlaces],
) -> Cooperative[None]:
    """Decide which frameworks of a snapshot are admitted with the roles that they request.

    The decision is needed because the numbers of frameworks and of role-tree nodes are limited. It
    does not depend on the order of frameworks in the snapshot.

    Args:
        cluster: The cluster to fill.
        snapshot: The master's whole state.
        before: Frameworks that were admitted before.
        roles_before: Nodes of the role tree that frameworks occupied before.
    """
    wishes = []
    for framework in snapshot.frameworks:
        try:
            subscription = read_subscription(framework.framework_id, framework.info, cluster.limits)
        except Exception:  # noqa: BLE001, S112 - `_apply_part` reports it
            continue
        cluster.ledger.exclusions.set_principal(framework.framework_id, subscription.principal)
        wishes.append(
            PlaceRequest(
                framework.framework_id, subscription.principal, count_role_nodes(subscription.roles)
            )
        )
        yield
    holding = set[str]()
    for agent in snapshot.agents:
        holding.update(allocation.framework_id for allocation in agent.running or agent.used)
        yield
    admissions = [wish._replace(places=min(wish.places, 1)) for wish in wishes]
    cluster.framework_places.plan(admissions, before, holding, cluster.now_ns)
    admitted = [wish for wish in wishes if cluster.framework_places.rejection(wish) is None]
    cluster.roles.plan(admitted, roles_before, holding, cluster.now_ns)


def subject(call: str, message: Any) -> tuple[Kind, str]:  # noqa: ANN401 - any call of the contract
    """Return the object that a call is about: its kind, such as "agent", and its ID or name.

    Args:
        call: The name of the call.
        message: The call's message.
    """
    fields = type(message).DESCRIPTOR.fields_by_name
    if "framework_id" in fields:
        return "framework", message.framework_id
    if "agent_id" in fields:
        return "agent", message.agent_id
    if "role" in fields:
        return "role", message.role
    if call == "update_weights" and len(message.weights) == 1:
        return "role", message.weights[0].role
    return "master", call


def _parts(snapshot: contract.Snapshot) -> Iterator[tuple[str, Any]]:
    """Yield the calls that together have the effect of a snapshot, as pairs of name and message."""
    for quota in snapshot.quotas:
        yield "set_quota", quota
    for limited in snapshot.limited_quotas:
        yield "update_quota", limited
    for weight in snapshot.weights:
        yield "update_weights", contract.UpdateWeights(weights=[weight])
    for agent in snapshot.agents:
        yield "add_agent", agent
    for agent_id in snapshot.inactive_agents:
        yield "deactivate_agent", contract.DeactivateAgent(agent_id=agent_id)
    for framework in snapshot.frameworks:
        yield "add_framework", framework


def _apply_part(
    cluster: Cluster,
    number: int,
    call: str,
    message: Any,  # noqa: ANN401
) -> Cooperative[ValidationError | None]:
    try:
        prepared = PREPARE[call](cluster, message)
        change = prepared if callable(prepared) else (yield from prepared)
    except InvalidEvent as error:
        return ValidationError("contradiction", f"{call}: {error}")
    except Exception as fault:  # noqa: BLE001 - rejects this part only
        cluster.statistics.faults += 1
        return ValidationError("fault", f"{call}: {describe_error(fault)}")
    try:
        steps = change()
        if steps is not None:
            yield from steps
    except Exception as fault:
        raise BadSnapshotPart(
            number, ValidationError("fault", f"{call}: {describe_error(fault)}")
        ) from fault
    return None
