"""Snapshots: all that a master knows, put into an empty cluster part by part."""

from collections.abc import Iterator, Mapping
from typing import Any

from allocator.cluster.agents.failover_recovery import Failover
from allocator.cluster.calls import PREPARE
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.role_places import Wish
from allocator.cluster.frameworks.subscription import read_subscription
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.quarantine import Kind, ValidationError, in_words
from allocator.cluster.input.text import levels
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract


class BadSnapshotPart(Exception):  # noqa: N818 - the cluster is
    """A part broke the allocator itself, and the cluster with it.

    Args:
        part: Its number.
        flaw: What went wrong.
    """

    def __init__(self, part: int, flaw: ValidationError) -> None:
        self.part = part
        self.flaw = flaw


def filling(
    cluster: Cluster,
    snapshot: contract.Snapshot,
    before: Cluster,
    places: Mapping[str, int],
    without: Mapping[int, ValidationError],
) -> Cooperative[None]:
    """Put what a snapshot says into an empty cluster; parts that cannot be used are set aside.

    Args:
        cluster: An empty one.
        snapshot: All that is.
        before: The cluster that was known before.
        places: Counted places of frameworks in the tree of roles, before and as remembered.
        without: Numbers of parts to leave out, and why.

    Raises:
        Spoiled: a part has left the cluster in an unknown state.
    """
    if snapshot.HasField("whitelist"):
        cluster.whitelist = frozenset(snapshot.whitelist.hostnames)
    if cluster.roles.leaves_room:
        yield from _planning_roles(cluster, snapshot, places)
    for number, (call, said) in enumerate(_parts(snapshot)):
        flaw = without.get(number)
        if flaw is None:
            flaw = _put(cluster, number, call, said)
        if flaw is not None:
            cluster.quarantine.put(*subject(call, said), "call", flaw)
        yield
    cluster.roles.end_plan()
    for state in snapshot.inverse_offers:
        cluster.maintenance.restore(state)
    cluster.paused = snapshot.paused
    if snapshot.HasField("hold_off"):
        told = snapshot.hold_off
        expected = max(told.agents_expected, told.agents_needed)
        capacity = before.ledger.clients.users.pool.capacity
        until_ns = min(told.until_ns, cluster.now_ns + cluster.recovery.timeout_ns)
        cluster.begin_failover(Failover(told.agents_needed, expected, until_ns, capacity))


def _planning_roles(
    cluster: Cluster, snapshot: contract.Snapshot, before: Mapping[str, int]
) -> Cooperative[None]:
    """Decide which frameworks get places in the tree of roles, whatever order they come in."""
    wishes = []
    for framework in snapshot.frameworks:
        try:
            subscription = read_subscription(framework.framework_id, framework.info, cluster.limits)
        except Exception:  # noqa: BLE001, S112 - it costs this part alone, where it is put
            continue
        wishes.append(
            Wish(framework.framework_id, subscription.principal, levels(subscription.roles))
        )
        yield
    holding = set[str]()
    for agent in snapshot.agents:
        holding.update(each.framework_id for each in agent.running or agent.used)
        yield
    cluster.roles.plan(wishes, before, holding)


def subject(call: str, said: Any) -> tuple[Kind, str]:  # noqa: ANN401 - any of the contract's calls
    """Return of whom, or about what, a call speaks."""
    fields = type(said).DESCRIPTOR.fields_by_name
    if "framework_id" in fields:
        return "framework", said.framework_id
    if "agent_id" in fields:
        return "agent", said.agent_id
    if "role" in fields:
        return "role", said.role
    if call == "update_weights" and len(said.weights) == 1:
        return "role", said.weights[0].role
    return "master", call


def _parts(snapshot: contract.Snapshot) -> Iterator[tuple[str, Any]]:
    """Go through the calls that a snapshot amounts to."""
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


def _put(cluster: Cluster, number: int, call: str, said: Any) -> ValidationError | None:  # noqa: ANN401
    try:
        change = PREPARE[call](cluster, said)
    except InvalidEvent as error:
        return ValidationError("contradiction", f"{call}: {error}")
    except Exception as fault:  # noqa: BLE001 - it costs this part alone
        cluster.statistics.faults += 1
        return ValidationError("fault", f"{call}: {in_words(fault)}")
    try:
        change()
    except Exception as fault:
        raise BadSnapshotPart(
            number, ValidationError("fault", f"{call}: {in_words(fault)}")
        ) from fault
    return None
