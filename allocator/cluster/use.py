"""Resources in use by tasks, by which users count in n; offered resources do not count."""

from allocator.cluster.state import Cluster
from allocator.fairness.quantities import Quantities


def look(cluster: Cluster) -> None:
    """Have users counted by what they use now. O(clients)."""
    cluster.ledger.clients.users.look(_used(cluster))


def _used(cluster: Cluster) -> dict[str, Quantities] | None:
    """Return what tasks use, by user and virtual leaf; None: no master tells offers apart."""
    ledger = cluster.ledger
    if not cluster.tells_running and ledger.presumed is None:
        return None
    used: dict[str, Quantities] = {}
    for client in ledger.clients:
        running = ledger.running.of(client)
        if running:
            for _, name in ledger.clients.node(client).places():
                used[name] = used.get(name, Quantities()) + running
    return used
