"""Resources in use by tasks, by which users count in n; offered resources do not count.

Users of one pool that use a shared volume count for equal parts of it. So what they use together
is never more than what is there, however many hold it.
"""

from allocator.cluster.agents.shared_volumes import Volume, sizes
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.state import Cluster
from allocator.fairness.quantities import Quantities


def update_usage(cluster: Cluster) -> None:
    """Have users counted by what they use now. O(clients) that use something, if a master tells."""
    cluster.ledger.clients.users.look(_used(cluster))


def _used(cluster: Cluster) -> dict[str, Quantities]:
    """Return what is used, by user and virtual leaf: what tasks use, if a master tells that."""
    ledger = cluster.ledger
    tells = cluster.tells_running or ledger.presumed is not None
    used: dict[str, Quantities] = {}
    sharing: dict[tuple[int, Volume], dict[str, None]] = {}
    """pool and volume → users that use it"""
    for client in ledger.running if tells else ledger.clients:
        if client not in ledger.clients:
            continue  # its framework is not known yet
        use = ledger.running.of(client) if tells else ledger.clients.held(client)
        if not use:
            continue
        shared = _shared(cluster, client, tells=tells)
        own = use - sizes(shared) if shared else use
        for pool, name in ledger.clients.node(client).places():
            used[name] = used.get(name, Quantities()) + own
            for volume in shared:
                sharing.setdefault((id(pool), volume), {})[name] = None
    for (_, volume), names in sharing.items():
        whole = sizes([volume])
        part = Quantities({name: amount // len(names) for name, amount in whole.items()})
        for name in names:
            used[name] += part
    return used


def _shared(cluster: Cluster, client: Client, *, tells: bool) -> list[Volume]:
    """Return the shared volumes that a client uses."""
    ledger = cluster.ledger
    return [
        (agent, kind)
        for agent, kind in ledger.clients.users.volumes.of(client)
        if not tells or kind in ledger.running.on(agent, client)
    ]
