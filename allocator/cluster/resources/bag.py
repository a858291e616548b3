"""Bags of resources: kinds and how much there is of each, with the arithmetic of Mesos."""

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from typing import cast

from typing_extensions import override

from allocator.cluster.resources import ranges
from allocator.cluster.resources.amounts import Amount, covers, minus, plus, portion
from allocator.cluster.resources.cache import Cache
from allocator.cluster.resources.kinds import InvalidResource, Kind, decoded, encoded
from allocator.cluster.resources.lazily import lazily
from allocator.fairness.quantities import Quantities

_BAGS: "Cache[tuple[bytes, ...], tuple[str, Resources]]" = Cache(2**26)
_TOTALS: "Cache[tuple[bytes, ...], Resources]" = Cache(2**24)


class Resources(Mapping[Kind, Amount]):
    """An immutable bag of resources: kind → amount, without zero amounts.

    The amounts that it is made of are its own from then on.

    Operations cost O(kinds) of their operands. Where the outcome is one of the operands, it is
    that very object, with all that has been worked out about it: the same bag is offered,
    refused and free again many times.
    """

    __slots__ = ("__dict__", "_amounts")

    def __init__(self, amounts: dict[Kind, Amount] | None = None) -> None:
        self._amounts: dict[Kind, Amount] = {} if amounts is None else amounts

    def __getitem__(self, kind: Kind) -> Amount:
        return self._amounts[kind]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @override
    def items(self) -> ItemsView[Kind, Amount]:
        return self._amounts.items()  # the inherited view looks every kind up again

    def __add__(self, other: "Resources") -> "Resources":
        if not self._amounts:
            return other
        if not other._amounts:
            return self
        amounts = dict(self._amounts)
        for kind, amount in other._amounts.items():
            present = amounts.get(kind)
            amounts[kind] = amount if present is None else plus(present, amount)
        return Resources(amounts)

    def __sub__(self, other: "Resources") -> "Resources":
        """What is left, clipped at nothing; kinds that are not there are passed over."""
        if self._amounts == other._amounts:
            return NOTHING
        if not other._amounts:
            return self
        amounts = dict(self._amounts)
        for kind, amount in other._amounts.items():
            present = amounts.get(kind)
            if present is None:
                continue
            rest = minus(present, amount)
            if rest:
                amounts[kind] = rest
            else:
                del amounts[kind]
        return Resources(amounts)

    def __contains__(self, other: object) -> bool:
        """Whether all of `other` (a bag, or a kind) is in here."""
        if not isinstance(other, Resources):
            return other in self._amounts
        if other is self:
            return True
        for kind, amount in other.items():
            present = self._amounts.get(kind)
            if present is not amount and (present is None or not covers(present, amount)):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    __hash__ = None  # type: ignore[assignment]  # compared by value, but never a key

    def __repr__(self) -> str:
        return f"Resources({'; '.join(map(_text, self._amounts.items()))})"

    def where(self, keep: Callable[[Kind], bool]) -> "Resources":
        """Return the entries whose kind passes."""
        kept = {kind: amount for kind, amount in self._amounts.items() if keep(kind)}
        return self if len(kept) == len(self._amounts) else Resources(kept)

    def with_shared_of(self, total: "Resources") -> "Resources":
        """Return this and the shared volumes of a total: they are free, also in use (§2.3)."""
        if not total.has_shared:
            return self
        shared = {kind: amount for kind, amount in total.items() if kind.shared}
        return Resources(self._amounts | shared)

    @lazily
    def ordinary(self) -> bool:
        """Whether any framework of any role may have all of it."""
        for kind in self._amounts:
            if kind.reservation is not None or kind.revocable or kind.shared:
                return False
        return True

    @lazily
    def key(self) -> frozenset[tuple[Kind, Amount]]:
        """What two bags have in common when they are equal."""
        return frozenset(self._amounts.items())

    @lazily
    def plain(self) -> "Resources":
        """The unreserved entries that are not revocable."""
        return self if self.ordinary else self.where(lambda kind: kind.plain)

    @lazily
    def revocable(self) -> "Resources":
        """The entries that may be taken back at any time."""
        return NOTHING if self.ordinary else self.where(lambda kind: kind.revocable)

    @lazily
    def has_shared(self) -> bool:
        """Whether there are shared volumes among them."""
        return not self.ordinary and any(kind.shared for kind in self._amounts)

    @lazily
    def reserved(self) -> Mapping[str, Quantities]:
        """Reserved scalars by the role they are reserved for."""
        if self.ordinary:
            return {}
        roles = {kind.reservation for kind in self._amounts} - {None}
        return {
            role: self.where(lambda kind, role=role: kind.reservation == role).scalars  # type: ignore[misc]
            for role in cast("set[str]", roles)
        }

    @lazily
    def has_whole(self) -> bool:
        """Whether there are entries among them that can only be had whole."""
        return any(kind.whole is not None for kind in self._amounts)

    def shrunk(self, limit: Quantities) -> "Resources":
        """Return scalars up to a limit for each name; what is whole is in or out (§2.3)."""
        left = dict(limit.items())
        kept: dict[Kind, Amount] = {}
        for kind, amount in self._amounts.items():
            room = left.get(kind.name, 0)
            if not isinstance(amount, int) or room <= 0:
                continue
            if kind.whole is None:
                taken: Amount = min(amount, room)
                size = cast("int", taken)
            else:
                copies = min(amount, room // kind.whole)
                if not copies:
                    continue
                taken, size = copies, copies * kind.whole
            kept[kind] = taken
            left[kind.name] = room - size
        return Resources(kept)

    def taken(self, demand: Quantities) -> "Resources | None":
        """Return exactly so much of each name, a port or an item counting as one; None: too little.

        Whole entries are left out: nobody's task is as big as a disk by chance.
        """
        taken: dict[Kind, Amount] = {}
        left = dict(demand.items())
        for kind, amount in self._amounts.items():
            wanted = left.get(kind.name, 0)
            if wanted <= 0 or kind.whole is not None:
                continue
            part, size = portion(amount, wanted)
            if size:
                taken[kind] = part
                left[kind.name] = wanted - size
        return None if any(rest > 0 for rest in left.values()) else Resources(taken)

    @lazily
    def counted(self) -> frozenset[str]:
        """Names of what is there for everybody, and comes by the piece: ports, items of sets."""
        return frozenset(
            kind.name
            for kind, amount in self._amounts.items()
            if kind.plain and not isinstance(amount, int)
        )

    @lazily
    def divisible(self) -> Mapping[str, int]:
        """What there is for everybody by name, a port or an item counting as one, as `taken` takes.

        Of a name that stands for both amounts and pieces nothing is.
        """
        parts: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if kind.plain and kind.whole is None:
                _all, size = portion(amount, 1 << 80)
                mixed = isinstance(amount, int) and kind.name in self.counted
                none = mixed or parts.get(kind.name) == 0
                parts[kind.name] = 0 if none else parts.get(kind.name, 0) + size
        return parts

    @lazily
    def all_divisible(self) -> bool:
        """Whether there is nothing else."""
        return all(kind.plain and kind.whole is None for kind in self._amounts)

    @lazily
    def scalars(self) -> Quantities:
        """Quantities of scalars by name; of a shared volume, one copy (§2.3)."""
        total: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if isinstance(amount, int):
                size = amount
                if kind.whole is not None:
                    size = kind.whole * (1 if kind.shared else amount)
                total[kind.name] = total.get(kind.name, 0) + size
        return Quantities(total)

    @lazily
    def quantities(self) -> Quantities:
        """Quantities by name, a port or an item of a set counting as one (§3.6)."""
        counted: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if not isinstance(amount, int):
                size = ranges.size(amount) if isinstance(amount, tuple) else len(amount)
                counted[kind.name] = counted.get(kind.name, 0) + 1000 * size
        return self.scalars + Quantities(counted) if counted else self.scalars

    @lazily
    def copies(self) -> Quantities:
        """Quantities of scalars by name, each copy of a shared volume counting (§4.1)."""
        total: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if isinstance(amount, int):
                size = amount if kind.whole is None else kind.whole * amount
                total[kind.name] = total.get(kind.name, 0) + size
        return Quantities(total)

    def messages(self, role: str) -> list[bytes]:
        """Return serialised Resource messages, allocated to the role."""
        messages = self._messages.get(role)
        if messages is None:
            messages = self._messages[role] = [
                encoded(kind.template, amount if kind.whole is None else kind.whole, role)
                for kind, amount in self._amounts.items()
                for _copy in range(1 if kind.whole is None else cast("int", amount))
            ]
        return messages

    @lazily
    def _messages(self) -> dict[str, list[bytes]]:
        """What `messages` has returned, by role."""
        return {}


NOTHING = Resources()


def parse_total(messages: Iterable[bytes]) -> Resources:
    """Read an agent's total.

    Agents are alike: what is alike is one object, with all that has been worked out about it.

    Raises:
        InvalidResource: a message is malformed or carries an allocation.
    """
    together = tuple(messages)
    known = _TOTALS.get(together)
    if known is not None:
        return known
    return _TOTALS.put(together, _sum(together, None), sum(map(len, together)))


def parse_allocated(messages: Iterable[bytes]) -> tuple[str, Resources]:
    """Read resources that are all allocated to one role, and return that role.

    An empty list belongs to no role: ("", NOTHING).

    Raises:
        InvalidResource: a message is malformed, unallocated, or of another role than the first.
    """
    together = tuple(messages)
    known = _BAGS.get(together)
    if known is not None:
        return known
    if not together:
        return "", NOTHING
    role = decoded(together[0])[2]
    if role is None:
        raise InvalidResource(
            f"resource {decoded(together[0])[0].name!r} has no allocation_info.role; "
            "what is offered, used or recovered must carry one"
        )
    return _BAGS.put(together, (role, _sum(together, role)), sum(map(len, together)))


def parse_used(messages: Iterable[bytes]) -> dict[str, Resources]:
    """Read resources allocated to any number of roles: role → resources.

    Raises:
        InvalidResource: a message is malformed or unallocated.
    """
    by_role: dict[str, list[bytes]] = {}
    for data in messages:
        role = decoded(data)[2]
        if role is None:
            raise InvalidResource(
                f"used resource {decoded(data)[0].name!r} has no allocation_info.role"
            )
        by_role.setdefault(role, []).append(data)
    return {role: parse_allocated(entries)[1] for role, entries in by_role.items()}


def _sum(messages: Iterable[bytes], role: str | None) -> Resources:
    amounts: dict[Kind, Amount] = {}
    for data in messages:
        kind, amount, allocated_to = decoded(data)
        if allocated_to != role:
            raise InvalidResource(
                f"resource {kind.name!r} is allocated to role {allocated_to!r}, "
                f"but {'none' if role is None else repr(role)} was expected here"
            )
        if amount:
            present = amounts.get(kind)
            amounts[kind] = amount if present is None else plus(present, amount)
    return Resources(amounts)


def _text(entry: tuple[Kind, Amount]) -> str:
    kind, amount = entry
    marks = [f"({kind.reservation})"] if kind.reservation is not None else []
    marks += ["{REV}"] if kind.revocable else []
    marks += ["<SHARED>"] if kind.shared else []
    if isinstance(amount, tuple):
        value = f"[{','.join(f'{begin}-{end}' for begin, end in amount)}]"
    elif isinstance(amount, frozenset):
        value = f"{{{','.join(sorted(amount))}}}"
    elif kind.whole is None:
        value = f"{amount / 1000:g}"
    else:
        value = f"{amount}×{kind.whole / 1000:g}"
    return f"{kind.name}{''.join(marks)}:{value}"
