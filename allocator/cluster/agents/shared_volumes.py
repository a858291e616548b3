"""Shared persistent volumes: a volume held by several clients of a user counts once for the user.

If the quantities of a user's clients were added, such a volume would count several times. Mesos
counts a shared volume once for each client of a sorter and agent. A shared volume therefore counts
once for each framework within a role, once for the role, and once for each role above it (Mesos
semantics, §2.3, `sorter/drf`).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import Kind, Resources
from allocator.fairness.quantities import Quantities
from allocator.users.tree import NO_REPEATS, Repeats

Volume: TypeAlias = tuple[str, Kind]
"""Agent ID and resource kind of a shared volume."""

_NOTHING = Quantities()


class SharedVolumes:
    """Tracks which clients hold which shared volumes, to count each volume once for a user.

    A sum over a user's clients counts a volume n times if n of the clients hold it. The *repeated*
    quantities of a user are the surplus in this sum: n - 1 times the size of each volume.
    """

    def __init__(self) -> None:
        self._by_client: dict[Client, set[Volume]] = {}
        self._sizes: dict[Client, Quantities] = {}
        """client → total size of the shared volumes that it holds"""
        self._holders: dict[str, dict[Volume, int]] = {}
        """user or virtual leaf → volume → number of its clients that hold the volume"""
        self._repeated: dict[str, dict[str, Quantities]] = {}
        """user or virtual leaf → agent ID → repeated quantities of the agent's volumes"""

    def of(self, client: Client) -> Collection[Volume]:
        """Return the shared volumes that a client holds."""
        return frozenset(self._by_client.get(client, ()))

    def size(self, client: Client) -> Quantities:
        """Return the total size of the shared volumes that a client holds."""
        return self._sizes.get(client, _NOTHING)

    def change(
        self,
        client: Client,
        names: Iterable[str],
        lost: Iterable[Volume],
        gained: Iterable[Volume],
    ) -> Repeats:
        """Update the set of volumes that a client holds.

        Args:
            client: The client whose holdings have changed.
            names: Users and virtual leaves whose allocation includes the client's.
            lost: Volumes that the client held before.
            gained: Volumes that the client holds now; a volume may be in `lost`, too.

        Returns:
            By user or virtual leaf, how much its repeated quantities increase, and how much they
            decrease.
        """
        held = self._by_client.setdefault(client, set())
        present = set(gained)
        removed = held.intersection(lost) - present
        added = present - held
        held -= removed
        held |= added
        if held:
            self._sizes[client] = self.size(client) - sizes(removed) + sizes(added)
        else:
            del self._by_client[client]
            self._sizes.pop(client, None)
        if not removed and not added:
            return NO_REPEATS
        return {name: (self._add(name, added), self._remove(name, removed)) for name in names}

    def repeated(self, name: str, agent: str | None = None) -> Quantities:
        """Return a user's repeated quantities, caused by volumes that several of its clients hold.

        A volume held by n clients is repeated n - 1 times.

        Args:
            name: A user or virtual leaf.
            agent: ID of an agent; count only the volumes of this agent. None: of all agents.
        """
        repeated = self._repeated.get(name, {})
        if agent is not None:
            return repeated.get(agent, _NOTHING)
        return sum(repeated.values(), start=_NOTHING)

    def _add(self, name: str, volumes: Iterable[Volume]) -> Quantities:
        """Record one more holder among the clients of a user or virtual leaf, for each volume.

        Returns:
            Total size of the volumes that another client of the user held already.
        """
        holders, repeated = self._holders.setdefault(name, {}), []
        by_agent = self._repeated.setdefault(name, {})
        for volume in volumes:
            holders[volume] = holders.get(volume, 0) + 1
            if holders[volume] > 1:
                repeated.append(volume)
                by_agent[volume[0]] = by_agent.get(volume[0], _NOTHING) + sizes([volume])
        return sizes(repeated)

    def _remove(self, name: str, volumes: Iterable[Volume]) -> Quantities:
        """Record one holder less among the clients of a user or virtual leaf, for each volume.

        Returns:
            Total size of the volumes that another client of the user still holds.
        """
        holders, repeated = self._holders[name], []
        by_agent = self._repeated[name]
        for volume in volumes:
            holders[volume] -= 1
            if holders[volume]:
                repeated.append(volume)
                by_agent[volume[0]] -= sizes([volume])
                if not by_agent[volume[0]]:
                    del by_agent[volume[0]]
            else:
                del holders[volume]
        if not holders:
            del self._holders[name], self._repeated[name]
        return sizes(repeated)


def volumes(agent: str, resources: Resources) -> Iterator[Volume]:
    """Iterate over the shared volumes in resources of an agent: pairs of agent ID and kind."""
    if resources.has_shared:
        yield from ((agent, kind) for kind, _copies in resources.items() if kind.shared)


def sizes(volumes: Iterable[Volume]) -> Quantities:
    """Return the total size of volumes as quantities; a volume given twice counts twice."""
    total: dict[str, int] = {}
    for _agent, kind in volumes:
        total[kind.name] = total.get(kind.name, 0) + (kind.whole or 0)
    return Quantities(total)
