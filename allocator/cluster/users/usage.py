"""Samples the resources that each user uses, if `counts_for` is set.

With this setting, a user's weight counts in entitlements only as far as the user uses resources.
Only resources that a client has used all the time since the last sample count. The times of
samples can be predicted, so tasks that run only around them count for nothing. Resources that are
merely offered do not count.

If several users of a pool use a shared volume, each is counted as using an equal part of the
volume. The sum of these parts therefore never exceeds the size of the volume.
"""

from collections.abc import Collection, Mapping

from allocator.cluster.agents.shared_volumes import Volume, sizes
from allocator.cluster.agents.used_resources import LeastUse
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.state import Cluster
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import Quantities

_CLIENTS_A_STEP = 200
"""Clients in a cooperative step."""


def update_usage(cluster: Cluster) -> Cooperative[None]:
    """Sample the resources that users use now, and update their counted weights.

    A counted weight is the part of a user's weight that counts in entitlements. Generator for
    cooperative steps.

    Costs O(clients with used resources) if the master reports usage, otherwise O(clients).
    """
    used = yield from _used(cluster)
    yield from cluster.ledger.clients.users.look_in_steps(used)


def _used(cluster: Cluster) -> Cooperative[dict[str, Quantities]]:
    """Return used resources by user and virtual leaf; if usage is unknown, allocated resources.

    The result has only resources used all the time since the last sample. Generator for cooperative
    steps.
    """
    ledger = cluster.ledger
    reported = cluster.reports_used or ledger.assumed_usage is not None
    used: dict[str, Quantities] = {}
    sharing: dict[tuple[int, Volume], dict[str, None]] = {}
    """pool and volume → users that use the volume"""
    least, volumes = _least_use(cluster, reported=reported)
    for number, (client, own) in enumerate(least.items(), 1):
        if not number % _CLIENTS_A_STEP:
            yield
        shared = volumes.get(client, ())
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


def _least_use(
    cluster: Cluster, *, reported: bool
) -> tuple[Mapping[Client, Quantities], Mapping[Client, Collection[Volume]]]:
    """Return what each known client has used all the time since the last sample.

    Args:
        cluster: The cluster that has the clients.
        reported: Whether used resources are known. If false, allocations are used.

    Returns:
        By client, quantities without shared volumes; and by client, shared volumes.
    """
    ledger = cluster.ledger
    clients = ledger.clients
    if reported:
        used = ledger.used
        present = [client for client in used if client in clients]
        now = {client: used.apart_from_volumes(client) for client in present}
        volumes = {client: used.volumes[client] for client in present if client in used.volumes}
        return used.least.replace(now, volumes)
    if clients.least_held is None:
        clients.least_held = LeastUse()
    held = {client: amounts for client in clients if (amounts := clients.held(client))}
    shared = {client: clients.users.volumes.of(client) for client in held}
    now = {client: amounts - clients.users.volumes.size(client) for client, amounts in held.items()}
    return clients.least_held.replace(now, shared)
