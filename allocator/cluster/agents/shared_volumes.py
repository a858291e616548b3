"""Shared persistent volumes: a volume held by several clients of a user counts once for the user.

If the quantities of a user's clients were added, such a volume would count several times. Mesos
counts a shared volume once for each client of a sorter and agent. A shared volume therefore counts
once for each framework within a role, once for the role, and once for each role above it (Mesos
semantics, §2.3, `sorter/drf`).
"""

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import Kind, Resources
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.users.tree import NO_REPEATS, Repeats

Volume: TypeAlias = tuple[str, Kind]
"""Agent ID and resource kind of a shared volume."""
_Mask: TypeAlias = int
"""A set of an agent's shared volumes: an integer with one bit for each volume."""


class SharedVolumes:
    """Tracks which clients hold which shared volumes, to count each volume once for a user.

    A sum over a user's clients counts a volume n times if n of the clients hold it. The *repeated*
    quantities of a user are the surplus in this sum: n - 1 times the size of each volume.
    """

    def __init__(self) -> None:
        self._by_client: dict[Client, set[Volume]] = {}
        self._sizes: dict[Client, Quantities] = {}
        """client → total size of the shared volumes that it holds"""
        self._numbers: dict[str, _VolumeNumbers] = {}
        """agent ID → numbers of its shared volumes that a client holds"""
        self._holders: dict[str, dict[str, list[_Mask]]] = {}
        """user or virtual leaf → agent ID → numbers of the user's clients that hold each volume:
        mask i contains the volumes of which the number has the binary digit i"""
        self._repeated: dict[str, dict[str, Quantities]] = {}
        """user or virtual leaf → agent ID → repeated quantities of the agent's volumes"""

    def of(self, client: Client) -> Collection[Volume]:
        """Return the shared volumes that a client holds."""
        return frozenset(self._by_client.get(client, ()))

    def size(self, client: Client) -> Quantities:
        """Return the total size of the shared volumes that a client holds."""
        return self._sizes.get(client, NO_QUANTITIES)

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
        levels = list(names)
        increases = dict.fromkeys(levels, NO_QUANTITIES)
        decreases = dict.fromkeys(levels, NO_QUANTITIES)
        for agent, kinds in _by_agent(added).items():
            numbers = self._numbers.setdefault(agent, _VolumeNumbers())
            mask = numbers.hold(kinds)
            repeated = [(name, self._add(name, agent, mask)) for name in levels]
            for name, size in numbers.sizes(repeated):
                increases[name] += size
                by_agent = self._repeated.setdefault(name, {})
                by_agent[agent] = by_agent.get(agent, NO_QUANTITIES) + size
        for agent, kinds in _by_agent(removed).items():
            numbers = self._numbers[agent]
            mask = numbers.mask(kinds)
            repeated = [(name, self._remove(name, agent, mask)) for name in levels]
            for name, size in numbers.sizes(repeated):
                decreases[name] += size
                by_agent = self._repeated[name]
                by_agent[agent] -= size
                if not by_agent[agent]:
                    del by_agent[agent]
                if not by_agent:
                    del self._repeated[name]
            numbers.release(kinds)
            if not numbers.holders:
                del self._numbers[agent]
        return {name: (increases[name], decreases[name]) for name in levels}

    def repeated(self, name: str, agent: str | None = None) -> Quantities:
        """Return a user's repeated quantities, caused by volumes that several of its clients hold.

        A volume held by n clients is repeated n - 1 times.

        Args:
            name: A user or virtual leaf.
            agent: ID of an agent; count only the volumes of this agent. None: of all agents.
        """
        repeated = self._repeated.get(name, {})
        if agent is not None:
            return repeated.get(agent, NO_QUANTITIES)
        return sum(repeated.values(), start=NO_QUANTITIES)

    def _add(self, name: str, agent: str, volumes: _Mask) -> _Mask:
        """Record one more holder among the clients of a user or virtual leaf, for each volume.

        Args:
            name: The user or virtual leaf.
            agent: ID of the volumes' agent.
            volumes: The volumes.

        Returns:
            The volumes that another client of the user held already.
        """
        digits = self._holders.setdefault(name, {}).setdefault(agent, [])
        held, carry = 0, volumes
        for place, digit in enumerate(digits):
            held |= digit
            digits[place] = digit ^ carry
            carry &= digit
        if carry:
            digits.append(carry)
        return held & volumes

    def _remove(self, name: str, agent: str, volumes: _Mask) -> _Mask:
        """Record one holder less among the clients of a user or virtual leaf, for each volume.

        Args:
            name: The user or virtual leaf.
            agent: ID of the volumes' agent.
            volumes: The volumes.

        Returns:
            The volumes that another client of the user still holds.
        """
        by_agent = self._holders[name]
        digits = by_agent[agent]
        held, borrow = 0, volumes
        for place, digit in enumerate(digits):
            digits[place] = digit ^ borrow
            borrow &= ~digit
            held |= digits[place]
        while digits and not digits[-1]:
            digits.pop()
        if not digits:
            del by_agent[agent]
        if not by_agent:
            del self._holders[name]
        return held & volumes


class _VolumeNumbers:
    """Numbers the shared volumes of an agent that a client holds, as bits of masks."""

    def __init__(self) -> None:
        self.holders: dict[Kind, int] = {}
        """volume → number of clients that hold it"""
        self._number: dict[Kind, int] = {}
        self._kinds: list[Kind] = []
        """Volumes by number; free numbers have outdated entries."""
        self._free: list[int] = []
        """Free numbers below the length of `_kinds`; a heap."""

    def hold(self, kinds: Iterable[Kind]) -> _Mask:
        """Record one more holder of each volume; return the volumes as a mask."""
        holders, number = self.holders, self._number
        for kind in kinds:
            holders[kind] = holders.get(kind, 0) + 1
            if kind in number:
                continue
            if self._free:
                number[kind] = heapq.heappop(self._free)
                self._kinds[number[kind]] = kind
            else:
                number[kind] = len(self._kinds)
                self._kinds.append(kind)
        return self.mask(kinds)

    def release(self, kinds: Iterable[Kind]) -> None:
        """Record one holder less of each volume."""
        for kind in kinds:
            self.holders[kind] -= 1
            if not self.holders[kind]:
                del self.holders[kind]
                heapq.heappush(self._free, self._number.pop(kind))

    def mask(self, kinds: Iterable[Kind]) -> _Mask:
        """Return volumes that a client holds as a mask."""
        octets = bytearray(len(self._kinds) // 8 + 1)
        for kind in kinds:
            number = self._number[kind]
            octets[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(octets, "little")

    def sizes(self, masks: Iterable[tuple[str, _Mask]]) -> Iterator[tuple[str, Quantities]]:
        """Yield the total size of the volumes of each mask, with the name that belongs to the mask.

        A user repeats the volumes that a user below it repeats, so mostly each volume is added
        once for all levels. Empty sizes are left out.

        Args:
            masks: Pairs of a name and a mask, those of users above others last.
        """
        before, total = 0, NO_QUANTITIES
        for name, mask in masks:
            if before & ~mask:
                before, total = 0, NO_QUANTITIES
            total += self._size(mask & ~before)
            before = mask
            if total:
                yield name, total

    def _size(self, mask: _Mask) -> Quantities:
        digits, sizes = bin(mask)[:1:-1], dict[str, int]()
        number = digits.find("1")
        while number >= 0:
            kind = self._kinds[number]
            sizes[kind.name] = sizes.get(kind.name, 0) + (kind.whole or 0)
            number = digits.find("1", number + 1)
        return Quantities(sizes)


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


def _by_agent(volumes: Iterable[Volume]) -> dict[str, list[Kind]]:
    """Return the kinds of volumes by the ID of their agent."""
    kinds: dict[str, list[Kind]] = {}
    for agent, kind in volumes:
        kinds.setdefault(agent, []).append(kind)
    return kinds
