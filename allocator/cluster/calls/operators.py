"""Calls about the cluster as a whole: time, recovery, quota, weights, the whitelist."""

import math
from collections.abc import Callable

from allocator.cluster.errors import InvalidEvent
from allocator.cluster.quota import parse_quota
from allocator.cluster.recovery import TIMEOUT_NS, Recovery
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract

RECOVERY_FACTOR = 0.8
"""Fraction of the expected agents at which allocation begins after a failover."""


def tick(cluster: Cluster, _: contract.Tick) -> Callable[[], None]:
    """Look at all agents again."""

    def change() -> None:
        for agent in cluster.filters.expire(cluster.now_ns):
            cluster.marks.change(agent)
        cluster.ledger.clients.users.forget_idle()
        cluster.marks.call_all()

    return change


def pause(cluster: Cluster, _: contract.Pause) -> Callable[[], None]:
    """Begin a bracket in which nothing is allocated."""

    def change() -> None:
        cluster.paused = True

    return change


def resume(cluster: Cluster, _: contract.Resume) -> Callable[[], None]:
    """End the bracket; a recovery's hold-off goes on."""

    def change() -> None:
        cluster.paused = False

    return change


def recover(cluster: Cluster, call: contract.Recover) -> Callable[[], None]:
    """Hold off until most agents are back.

    Not only for quota's sake, as in stock Mesos: on a fraction of the cluster everybody's share
    looks large, and a policy with a memory would remember that.
    """
    if call.expected_agents < 0:
        raise InvalidEvent(f"{call.expected_agents} agents cannot be expected")
    if cluster.ledger.agents:
        raise InvalidEvent("agents are known already; a recovery comes first")
    guarantees = {quota.role: parse_quota(quota) for quota in call.quotas}
    if len(guarantees) < len(call.quotas):
        raise InvalidEvent("a role has two quotas")
    needed = int(RECOVERY_FACTOR * call.expected_agents)

    def change() -> None:
        for role, guarantee in guarantees.items():
            cluster.ledger.quotas.set(role, guarantee, cluster.ledger.agents)
        if call.expected_agents:
            until_ns = cluster.now_ns + TIMEOUT_NS
            cluster.begin_recovery(Recovery(needed, call.expected_agents, until_ns))

    return change


def set_quota(cluster: Cluster, call: contract.SetQuota) -> Callable[[], None]:
    """Guarantee a role something from the next tick on."""
    guarantee = parse_quota(call)
    if call.role in cluster.ledger.quotas:
        raise InvalidEvent(f"role {call.role!r} has a quota already; remove it first")

    def change() -> None:
        cluster.ledger.quotas.set(call.role, guarantee, cluster.ledger.agents)
        cluster.anybody()

    return change


def remove_quota(cluster: Cluster, call: contract.RemoveQuota) -> Callable[[], None]:
    """Guarantee a role nothing; masters of 1.8.0 may say so twice (MESOS-9786)."""

    def change() -> None:
        cluster.ledger.quotas.remove(call.role)
        cluster.anybody()

    return change


def update_weights(cluster: Cluster, call: contract.UpdateWeights) -> Callable[[], None]:
    """Weigh roles differently from now on."""
    for entry in call.weights:
        if not 0.0 < entry.weight < math.inf:
            raise InvalidEvent(
                f"weight {entry.weight} of role {entry.role!r} is not a positive, finite number"
            )
        if not entry.role:
            raise InvalidEvent("a weight for a role without a name")
    weights = {entry.role: entry.weight for entry in call.weights}

    def change() -> None:
        cluster.ledger.clients.users.set_weights(weights)

    return change


def update_whitelist(cluster: Cluster, call: contract.UpdateWhitelist) -> Callable[[], None]:
    """Offer only these agents from the next tick on."""
    allowed = frozenset(call.whitelist.hostnames) if call.HasField("whitelist") else None

    def change() -> None:
        cluster.whitelist = allowed
        cluster.anybody()

    return change
