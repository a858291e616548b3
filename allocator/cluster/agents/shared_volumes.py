"""Shared persistent volumes: several clients of one user may hold one; the user holds it once.

Mesos counts a shared volume once for each client of a sorter and agent. It therefore counts once
for each framework within a role, once for the role, and once for each role above it (§2.3,
`sorter/drf`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import Kind, Resources
from allocator.fairness.quantities import Quantities

Volume: TypeAlias = tuple[str, Kind]
"""The agent that a volume is on, and the volume."""

Repeats: TypeAlias = Mapping[str, tuple[Quantities, Quantities]]
"""By user or virtual leaf: what its clients hold repeatedly from now on, and no longer."""

NO_REPEATS: Repeats = {}
_NOTHING = Quantities()


class SharedVolumes:
    """Holders of shared volumes, and what sums over the clients of a user count repeatedly."""

    def __init__(self) -> None:
        self._of: dict[Client, set[Volume]] = {}
        self._holders: dict[str, dict[Volume, int]] = {}
        """user or virtual leaf → volume → how many of its clients hold it"""

    def of(self, client: Client) -> Collection[Volume]:
        """Return the volumes that a client holds."""
        return frozenset(self._of.get(client, ()))

    def change(
        self,
        client: Client,
        names: Iterable[str],
        lost: Iterable[Volume],
        gained: Iterable[Volume],
    ) -> Repeats:
        """Note which volumes a client holds no longer, and from now on.

        Args:
            client: The holder.
            names: The users and virtual leaves in which its holdings count.
            lost: Volumes that it has held.
            gained: Volumes that it holds now, whether lost or not.
        """
        held = self._of.setdefault(client, set())
        after = held.difference(lost).union(gained)
        gone, new = held - after, after - held
        held -= gone
        held |= new
        if not held:
            del self._of[client]
        if not gone and not new:
            return NO_REPEATS
        return {name: (self._add(name, new), self._remove(name, gone)) for name in names}

    def repeated(self, name: str, agent: str | None = None) -> Quantities:
        """Return what a sum over the clients of a user counts too much, on an agent or on all."""
        return sizes(
            volume
            for volume, holders in self._holders.get(name, {}).items()
            for _repeat in range(holders - 1)
            if agent is None or volume[0] == agent
        )

    def _add(self, name: str, volumes: Iterable[Volume]) -> Quantities:
        holders, repeated = self._holders.setdefault(name, {}), []
        for volume in volumes:
            holders[volume] = holders.get(volume, 0) + 1
            if holders[volume] > 1:
                repeated.append(volume)
        return sizes(repeated)

    def _remove(self, name: str, volumes: Iterable[Volume]) -> Quantities:
        holders, repeated = self._holders[name], []
        for volume in volumes:
            holders[volume] -= 1
            if holders[volume]:
                repeated.append(volume)
            else:
                del holders[volume]
        if not holders:
            del self._holders[name]
        return sizes(repeated)


def volumes(agent: str, resources: Resources) -> Iterator[Volume]:
    """Go through the shared volumes among resources of an agent."""
    if resources.has_shared:
        yield from ((agent, kind) for kind, _copies in resources.items() if kind.shared)


def sizes(volumes: Iterable[Volume]) -> Quantities:
    """Return how large volumes are together."""
    each = (Quantities({kind.name: kind.whole or 0}) for _agent, kind in volumes)
    return sum(each, start=_NOTHING)
