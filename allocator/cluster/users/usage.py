"""Samples the resources that each user uses, if `counts_for` is set.

With this setting, a user's weight counts in entitlements only as far as the user uses resources.
Only resources that a client has used all the time since the last sample count. The times of
samples can be predicted, so tasks that run only around them count for nothing. Resources that are
merely offered do not count.

If several users of a pool use a shared volume, each is counted as using an equal part of the
volume. The sum of these parts therefore never exceeds the size of the volume.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from allocator.cluster.agents.shared_volumes import Volume, sizes
from allocator.cluster.agents.used_resources import LeastUse
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.state import Cluster
from allocator.cluster.users import User
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import NO_QUANTITIES, Quantities

_CLIENTS_A_STEP = 200
"""Clients in a cooperative step."""
_VOLUMES_A_STEP = 1000
"""Shared volumes in a cooperative step."""


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
    least, volumes = _least_use(cluster, reported=reported)
    shared: dict[User, set[Volume]] = {}
    for number, (client, own) in enumerate(least.items(), 1):
        if not number % _CLIENTS_A_STEP:
            yield
        user = ledger.clients.node(client)
        for _pool, name in user.memberships():
            used[name] = used.get(name, NO_QUANTITIES) + own
        if client in volumes:
            shared.setdefault(user, set()).update(volumes[client])
    for name, part in (yield from parts_of_volumes(shared)).items():
        used[name] += part
    return used


def parts_of_volumes(volumes: Mapping[User, set[Volume]]) -> Cooperative[dict[str, Quantities]]:
    """Return the parts of shared volumes that count for each user and virtual leaf.

    In each pool, a volume counts in equal parts for all members that use the volume. Costs
    O(v log v) for v pairs of a user and a volume, whatever the number of levels, because small sets
    of volumes are merged into large sets. Generator for cooperative steps.

    Args:
        volumes: The shared volumes that a user's own clients use.
    """
    parts: dict[str, Quantities] = {}
    levels: list[dict[User, list[_Branch]]] = []
    """Number of levels above a pool → the user with the pool → the pool's members with volumes."""
    seen = 0
    for user, own in volumes.items():
        seen += len(own)
        if seen > _VOLUMES_A_STEP:
            yield
            seen = 0
        leaf = user.sub_pool is not None
        branch = _Branch(user.leaf if leaf else user.name, set(own), sizes(own))
        _add_branch(levels, user if leaf else user.parent, branch)
    while levels:
        for parent, branches in levels[-1].items():
            numbers = [len(branch.volumes) for branch in branches]
            seen += sum(numbers) - max(numbers) + 1
            if seen > _VOLUMES_A_STEP:
                yield
                seen = 0
            _add_branch(levels, parent.parent, _merged(parent.name, branches, parts))
        levels.pop()
    return parts


class _Branch(NamedTuple):
    """A member of a pool, and the shared volumes that clients of the member or below it use."""

    name: str
    volumes: set[Volume]
    size: Quantities
    """Total size of the volumes."""


def _add_branch(
    levels: list[dict[User, list[_Branch]]], parent: User | None, branch: _Branch
) -> None:
    """Add a member to the pool of a user; above the root there is no pool."""
    if parent is None:
        return
    while len(levels) <= len(parent.ancestry):
        levels.append({})
    levels[len(parent.ancestry)].setdefault(parent, []).append(branch)


def _merged(name: str, branches: list[_Branch], parts: dict[str, Quantities]) -> _Branch:
    """Return the members of a pool as one branch; set the parts that count for each member.

    Args:
        name: The user with the pool.
        branches: All members of the pool that use volumes.
        parts: Receives the parts by member.
    """
    largest = max(branches, key=lambda branch: len(branch.volumes))
    smaller = [branch for branch in branches if branch is not largest]
    number = Counter(volume for branch in smaller for volume in branch.volumes)
    repeated = {volume for volume in number if volume in largest.volumes}
    number.update(repeated)
    for branch in branches:
        of_others = Counter[str]()
        for volume in repeated if branch is largest else branch.volumes:
            _agent, kind = volume
            size = kind.whole or 0
            of_others[kind.name] += size - size // number[volume]
        parts[branch.name] = branch.size - Quantities(of_others)
    added = number.keys() - repeated
    largest.volumes.update(added)
    return _Branch(name, largest.volumes, largest.size + sizes(added))


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
