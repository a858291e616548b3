"""Samples the resources that each user uses, if `counts_for` is set.

With this setting, a user's weight counts in entitlements only as far as the user uses resources.
Only resources that a client has used all the time since the last sample count. The times of
samples can be predicted, so tasks that run only around them count for nothing. Resources that are
merely offered do not count.

If several users of a pool use a shared volume, each is counted as using an equal part of the
volume. The sum of these parts therefore never exceeds the size of the volume.
"""

from allocator.cluster.agents.shared_volumes import Volume, sizes
from allocator.cluster.agents.used_resources import LeastUse
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.state import Cluster
from allocator.fairness.quantities import Quantities


def update_usage(cluster: Cluster) -> None:
    """Sample the resources that users use now, and update their counted weights.

    A counted weight is the part of a user's weight that counts in entitlements.

    Costs O(clients with used resources) if the master reports usage, otherwise O(clients).
    """
    cluster.ledger.clients.users.look(_used(cluster))


def _used(cluster: Cluster) -> dict[str, Quantities]:
    """Return used resources by user and virtual leaf; if usage is unknown, allocated resources.

    The result has only resources used all the time since the last sample.
    """
    ledger = cluster.ledger
    reported = cluster.reports_used or ledger.assumed_usage is not None
    used: dict[str, Quantities] = {}
    sharing: dict[tuple[int, Volume], dict[str, None]] = {}
    """pool and volume → users that use the volume"""
    for client, (use, least) in _uses(cluster, reported=reported).items():
        shared = _shared(cluster, client, reported=reported)
        own = (use - sizes(shared) if shared else use).common(least)
        for pool, name in ledger.clients.node(client).memberships():
            used[name] = used.get(name, Quantities()) + own
            for volume in shared:
                sharing.setdefault((id(pool), volume), {})[name] = None
    for (_, volume), names in sharing.items():
        whole = sizes([volume])
        part = Quantities({name: amount // len(names) for name, amount in whole.items()})
        for name in names:
            used[name] += part
    return used


def _uses(cluster: Cluster, *, reported: bool) -> dict[Client, tuple[Quantities, Quantities]]:
    """Return by known client its use now, and its least use since the last sample.

    Args:
        cluster: The cluster that has the clients.
        reported: Whether used resources are known. If false, allocations are used.
    """
    ledger = cluster.ledger
    clients = ledger.clients
    if reported:
        now = {client: ledger.used.of(client) for client in ledger.used if client in clients}
        least = ledger.used.least.replace(now.copy())
    else:
        if clients.least_held is None:
            clients.least_held = LeastUse()
        now = {client: held for client in clients if (held := clients.held(client))}
        least = clients.least_held.replace(now.copy())
    return {client: (use, least[client]) for client, use in now.items()}


def _shared(cluster: Cluster, client: Client, *, reported: bool) -> list[Volume]:
    """Return the shared volumes that a client uses.

    Args:
        cluster: The cluster that has the client.
        client: The client that holds the volumes.
        reported: Whether used resources are known. If false, all volumes that the client holds are
            returned.
    """
    ledger = cluster.ledger
    return [
        (agent, kind)
        for agent, kind in ledger.clients.users.volumes.of(client)
        if not reported or kind in ledger.used.on(agent, client)
    ]
