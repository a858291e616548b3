"""Calls about the cluster as a whole: time, failover recovery, quota, weights, the whitelist."""

import math
from collections.abc import Callable

from allocator.cluster.agents.failover_recovery import FailoverRecovery
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.text import readable
from allocator.cluster.quota import parse_limited_quota, parse_quota
from allocator.cluster.resources import NOBODY
from allocator.cluster.state import Cluster
from allocator.cluster.users.usage import update_usage
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative
from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.users.tree import in_range


def tick(cluster: Cluster, _: contract.Tick) -> Callable[[], Cooperative[None]]:
    """Return a function for periodic work: expire filters, forget idle users, allocate agents.

    The function returns a generator for cooperative steps, because many users may be forgotten.
    Once in each sampling period, the function also samples the resources that users use. These
    samples limit the weights of users in entitlements (setting `counts_for`).
    """

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        for agent in (yield from cluster.filters.expire_in_steps(cluster.now_ns)):
            cluster.candidates.mark_changed(agent)
        if cluster.refusals is not None:
            for agent in cluster.refusals.expire(cluster.now_ns):
                if agent in cluster.ledger.agents:
                    cluster.candidates.mark_changed(agent)
        cluster.candidates.begin_interval()
        users = cluster.ledger.clients.users
        yield from users.forget_idle_in_steps()
        if users.look_is_due:
            yield from update_usage(cluster)
        cluster.candidates.schedule_all()

    return change


def pause(cluster: Cluster, _: contract.Pause) -> Callable[[], None]:
    """Return a function that suspends allocation until `resume`.

    The master suspends allocation while it sends several calls that belong together.
    """

    def change() -> None:
        cluster.paused = True

    return change


def resume(cluster: Cluster, _: contract.Resume) -> Callable[[], None]:
    """Return a function that ends the suspension begun by `pause`.

    A failover recovery, which also suspends allocation, is not ended.
    """

    def change() -> None:
        cluster.paused = False

    return change


def recover(cluster: Cluster, call: contract.Recover) -> Callable[[], None]:
    """Return a function that sets quotas and suspends offers until most expected agents are back.

    Stock Mesos holds offers off only to protect quota. While only a fraction of the cluster is
    known, shares look too large, and SDRF would remember them as commitments. Offers are therefore
    held off without quotas, too.
    """
    if call.expected_agents < 0:
        raise InvalidEvent(f"the number of expected agents, {call.expected_agents}, is negative")
    if cluster.ledger.agents:
        raise InvalidEvent("agents are known already; a recovery comes first")
    quotas = {quota.role: parse_quota(quota) for quota in call.quotas}
    quotas |= {quota.role: parse_limited_quota(quota) for quota in call.limited_quotas}
    if len(quotas) < len(call.quotas) + len(call.limited_quotas):
        raise InvalidEvent("a role has two quotas")
    needed = int(cluster.recovery.factor * call.expected_agents)

    def change() -> None:
        for role, quota in quotas.items():
            cluster.ledger.quotas.set(role, quota, cluster.ledger.agents)
        if call.expected_agents:
            until_ns = cluster.now_ns + cluster.recovery.timeout_ns
            cluster.begin_failover(FailoverRecovery(needed, call.expected_agents, until_ns))

    return change


def set_quota(cluster: Cluster, call: contract.SetQuota) -> Callable[[], None]:
    """Return a function that sets a role's quota guarantee, as the call of Mesos 1.8 does.

    The quota takes effect at the next `Tick` call.
    """
    quota = parse_quota(call)
    if call.role in cluster.ledger.quotas:
        raise InvalidEvent(f"role {call.role!r} has a quota already; remove it first")

    def change() -> None:
        if quota:
            _require_own_sums(cluster, call.role)
        cluster.ledger.quotas.set(call.role, quota, cluster.ledger.agents)
        cluster.mark_all_changed()

    return change


def update_quota(cluster: Cluster, call: contract.UpdateQuota) -> Callable[[], None]:
    """Return a function that sets or removes a role's quota guarantee and limit.

    The change takes effect at the next `Tick` call.
    """
    quota = parse_limited_quota(call)

    def change() -> None:
        if quota:
            _require_own_sums(cluster, call.role)
        cluster.ledger.quotas.set(call.role, quota, cluster.ledger.agents)
        cluster.mark_all_changed()

    return change


def _require_own_sums(cluster: Cluster, role: str) -> None:
    """Request a snapshot if a role is about to get its first quota, and agents have sums.

    The last snapshot may have added reservations of the role up with reservations of roles without
    a quota. The next snapshot adds them up separately, so that they count against the quota.

    Args:
        cluster: The cluster; its `divergence` is set if a snapshot is needed.
        role: The top-level role.
    """
    ledger = cluster.ledger
    if role in ledger.quotas:
        return
    if any(NOBODY in agent.total.roles_of_sums for agent in ledger.agents.values()):
        cluster.divergence = (
            f"the new quota of role {readable(role)} counts reservations that the last snapshot "
            "has added up with other roles' reservations"
        )


def remove_quota(cluster: Cluster, call: contract.RemoveQuota) -> Callable[[], None]:
    """Return a function that removes a role's quota, if the role has one.

    Mesos 1.8.0 may send this call twice (MESOS-9786).
    """

    def change() -> None:
        cluster.ledger.quotas.remove(call.role)
        cluster.mark_all_changed()

    return change


def update_weights(
    cluster: Cluster, call: contract.UpdateWeights
) -> Callable[[], Cooperative[None]]:
    """Return a function that sets weights of roles.

    Weights outside the supported range are clipped to it. The function returns a generator for
    cooperative steps, because a weight concerns all roles beside it.
    """
    for entry in call.weights:
        if not 0.0 < entry.weight < math.inf:
            raise InvalidEvent(
                f"weight {entry.weight} of role {entry.role!r} is not a positive, finite number"
            )
        if not entry.role:
            raise InvalidEvent("a weight for a role without a name")
    weights = {entry.role: in_range(entry.weight) for entry in call.weights}
    flaws = {
        entry.role: ValidationError(
            "limit",
            f"weight {entry.weight:g} is counted as {weights[entry.role]:g}: weights are from "
            f"{LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}",
        )
        for entry in call.weights
        if entry.weight != weights[entry.role]
    }

    def change() -> "Cooperative[None]":  # a string, which costs each call nothing
        for role in weights:
            cluster.quarantine.put("role", role, "weight", flaws.get(role))
        yield from cluster.ledger.clients.users.set_weights_in_steps(weights)

    return change


def update_whitelist(cluster: Cluster, call: contract.UpdateWhitelist) -> Callable[[], None]:
    """Return a function that sets the whitelist of hostnames, effective at the next `Tick` call.

    Only agents on the whitelist may be offered. Without a whitelist in the call, all agents may be
    offered.
    """
    hostnames = frozenset(call.whitelist.hostnames) if call.HasField("whitelist") else None

    def change() -> None:
        cluster.whitelist = hostnames
        cluster.mark_all_changed()

    return change
