"""Placement constraints: the agents on which tasks may run, and the syntax of constraints."""

import difflib
import ipaddress
import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, TypeAlias

from allocator.cluster.agents.globs import GlobSet, NameMask, NameTable, matcher
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import excerpt, is_text, readable
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative
from allocator.formatting import shortened

WHITELIST = "longshare.whitelist"
"""Framework label: the only hosts on which the framework's tasks may run."""
BLACKLIST = "longshare.blacklist"
"""Framework label: hosts on which the framework's tasks may not run."""
ATTRIBUTES = "longshare.attributes"
"""Framework label: attributes that agents must have, such as `rack:1;disk:ssd`."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_ADDRESS_ATTRIBUTE = "ip"
"""Text attribute with an agent's IP address, for agents whose host name is not an address."""
LONGEST_NAME = 255
"""Maximum length in characters of an item in a list of hosts: the longest host name (RFC 1035)."""
_NAME = re.compile(r"[\w.*?\[\]!-]+")
_PLAIN_NAME = re.compile(rf"[A-Za-z][\w.-]{{0,{LONGEST_NAME - 1}}}")
"""A name that is neither a glob nor an address: most items of a list of hosts."""
_WILDCARD = re.compile(r"[*?\[]")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_GLOBS_A_STEP = 8
"""Number of globs that one cooperative step compares with the hosts of a table."""
_HOSTS_A_STEP = 100
"""Number of hosts of which one cooperative step reads the names of all attributes."""
_VALUES_A_STEP = 500
"""Number of hosts of which one cooperative step reads the attributes of one name."""
_DIGITS = bytes.maketrans(b"\0\1", b"01")
_WILDCARDS = 8
"""Maximum number of wildcards in a list of hosts, as a multiple of `limits.patterns`."""
_FEW_TEXTS = 4
"""Number of an attribute's texts up to which they are a tuple, which is smaller than a set."""
_BLOCK = 256
"""Mean number of characters of the names in one block of a list, without commas."""
_MOST_SUGGESTED = 8
"""Maximum number of attributes or host names that a suggestion lists."""
_LONGEST_SUGGESTED = 64
"""Maximum length in characters of an attribute's name, or of a value, in a suggestion."""
_MOST_COLLECTED = 64
"""Number of names or values of attributes after which a suggestion collects no more."""
_SHOWN = 150
"""Number of names of a list that can be shown before the text is shortened."""
_PATTERNS = "globs, ranges and networks (limits.patterns)"


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of all of an agent's attributes of one name."""

    texts: Collection[str]
    """Text values and the items of sets."""
    ranges: tuple[tuple[float, float], ...]
    """First and last number of each range; a scalar is a range of one number."""

    @classmethod
    def of(cls, attributes: Iterable[mesos.Attribute]) -> "_Values":
        """Return the values of attributes of one name."""
        texts, ranges = list[str](), list[tuple[float, float]]()
        for attribute in attributes:
            if attribute.type == mesos.Value.TEXT:
                texts.append(attribute.text.value)
            elif attribute.type == mesos.Value.SET:
                texts += attribute.set.item
            elif attribute.type == mesos.Value.SCALAR:
                ranges.append((attribute.scalar.value, attribute.scalar.value))
            else:
                ranges += [(each.begin, each.end) for each in attribute.ranges.range]
        return cls(frozenset(texts) if len(texts) > _FEW_TEXTS else tuple(texts), tuple(ranges))

    def contain(self, required: "_Required") -> bool:
        """Return whether each required value is one of the texts, or a number in a range."""
        if not self.texts:
            return all(map(self._has_number, required.numbers))
        return all(
            value in self.texts or self._has_number(number)
            for value, number in required.values.items()
        )

    def _has_number(self, number: float) -> bool:
        return any(first <= number <= last for first, last in self.ranges)

    def described(self) -> list[str]:
        """Return the first values as texts: a number as `4`, a range of numbers as `[1-4]`."""
        texts = islice(self.texts, _MOST_SUGGESTED)
        ranges = islice(self.ranges, _MOST_SUGGESTED)
        return [excerpt(text, _LONGEST_SUGGESTED) for text in texts] + [
            f"{first:g}" if first == last else f"[{first:g}-{last:g}]" for first, last in ranges
        ]


@dataclass(frozen=True, slots=True)
class _Required:
    """The values that the attributes of one name must have, all of them."""

    name: str
    """Name of the attributes."""
    values: dict[str, float]
    """Each value, and the same value as a number; not a number (NaN) for another text."""
    numbers: frozenset[float]
    """The different numbers; NaN if a value is another text."""


@dataclass(slots=True)  # frozen takes three times as long to construct; not mutated
class Host:
    """The properties of an agent that constraints refer to: name, addresses, attributes."""

    name: str
    """Host name in lower case."""
    addresses: tuple[int, ...]
    """IP addresses of the agent as numbers (`_number`), as far as they are known."""
    attributes: tuple[mesos.Attribute, ...]
    """Attributes of the agent."""
    listed_name: bytes = field(init=False, compare=False, repr=False)
    """The name in UTF-8 between commas, as in a list of names."""
    _values: dict[str, _Values] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Values of the attributes by name, for names that `values_of` had as an argument."""
    _unread: dict[str, list[mesos.Attribute]] | None = field(
        init=False, default=None, compare=False, repr=False
    )
    """The other attributes by name; None before the first call of `values_of`."""

    def __post_init__(self) -> None:
        self.listed_name = f",{self.name},".encode(errors="replace")

    @classmethod
    def of(cls, info: mesos.SlaveInfo) -> "Host":
        """Return the host that an agent's SlaveInfo describes.

        Mesos does not send an agent's address to the allocator. The address is known if the host
        name is an address, or if the agent has the text attribute `ip`.
        """
        hostname, attributes = readable(info.hostname), tuple(info.attributes)
        texts = [a.text.value for a in attributes if a.name == _ADDRESS_ATTRIBUTE]
        addresses = [_address(text) for text in (hostname, *texts) if is_text(text)]
        numbers = [_number(address) for address in addresses if address is not None]
        return cls(hostname.lower(), tuple(numbers), attributes)

    def has(self, required: _Required) -> bool:
        """Return whether the attributes of a name have, or contain, all required values."""
        values = self.values_of(required.name)
        return values is not None and values.contain(required)

    def values_of(self, name: str) -> _Values | None:
        """Return the values of the attributes of a name; None without such attributes."""
        values = self._values.get(name)
        if values is None and self.attributes:
            if self._unread is None:
                self._unread = {}
                for attribute in self.attributes:
                    self._unread.setdefault(attribute.name, []).append(attribute)
            group = self._unread.pop(name, None)
            if group is not None:
                values = self._values[name] = _Values.of(group)
        return values


class Hosts:
    """A list of hosts: names, globs (`node-[1-9]*`), addresses, ranges (`A-B`) and CIDR networks.

    `host in hosts` tests whether an item matches a host. Two lists are equal if they have the same
    items. A list takes about the memory of its text, because frameworks may have long lists.

    Args:
        items: The items. Upper and lower case are equal.
        most: Maximum number of globs, ranges and networks; None: without a limit.

    Raises:
        ValueError: There are too many globs, ranges and networks, or an item has an unknown form.
            The message names the item.
    """

    __slots__ = (
        "_begins",
        "_blocks",
        "_first",
        "_last",
        "_matcher",
        "_patterns",
        "_text",
        "globs",
    )

    def __init__(self, items: Iterable[str], most: int | None = None) -> None:
        names, patterns, globs = set[str](), dict[str, None](), list[str]()
        ranges = list[tuple[_Address, _Address]]()
        for item in items:
            if _PLAIN_NAME.fullmatch(item):
                names.add(item.lower())
                continue
            if len(item) > LONGEST_NAME:
                raise ValueError(f"{item[:40]!r}… is longer than the name of any host")
            addresses = _range(item)
            if addresses is not None:
                ranges.append(addresses)
                patterns[item] = None
            elif not _NAME.fullmatch(item):
                raise ValueError(
                    f"{item!r} is not a host name, glob, address, range of addresses or network"
                )
            elif _WILDCARD.search(item):
                globs.append(item.lower())
                patterns[item] = None
            else:
                names.add(item.lower())
            if most is not None:
                at_most(most, len(globs) + len(ranges), _PATTERNS)
        ordered = sorted(names)
        count = max(1, _BLOCK * len(names) // max(1, sum(map(len, names))))
        starts = range(0, len(ordered), count)
        self._begins = tuple(ordered[start] for start in starts)
        """The first name of each block, in ascending order."""
        self._blocks = tuple(
            f",{','.join(ordered[start : start + count])},".encode() for start in starts
        )
        """The names in ascending order, in blocks of UTF-8, with a comma before and after each."""
        self._patterns = tuple(patterns)
        """The other items as written, without repetitions."""
        self._text = _described(ordered, self._patterns)
        self.globs = tuple(dict.fromkeys(globs))
        """The globs in lower case, without repetitions."""
        self._matcher: re.Pattern[str] | GlobSet | None = None
        """Matches all globs; None before the first use."""
        merged = _merged((_number(first), _number(last)) for first, last in ranges)
        self._first = tuple(first for first, _ in merged)
        """First address of each range, in ascending order; ranges do not overlap."""
        self._last = tuple(last for _, last in merged)
        """Last address of each range, in the order of `_first`."""

    @classmethod
    def parse(cls, text: str, most: int | None = None) -> "Hosts":
        """Parse items separated by commas or white space.

        Args:
            text: Names, globs, addresses, ranges and networks.
            most: Maximum number of globs, ranges and networks; None: without a limit.

        Raises:
            ValueError: An item has an unknown form, or there are too many patterns.
        """
        return cls(text.replace(",", " ").split(), most)

    @property
    def items(self) -> tuple[str, ...]:
        """The names in ascending order and lower case, and the other items as written."""
        names = chain.from_iterable(block[1:-1].decode().split(",") for block in self._blocks)
        return (*names, *self._patterns)

    def __contains__(self, host: Host) -> bool:
        """Return whether an item matches the host's name or one of its addresses."""
        if self.lists(host):
            return True
        self.prepare()
        return self._matcher is not None and bool(self._matcher.match(host.name))

    def prepare(self) -> None:
        """Compile the globs, unless they are compiled, to test hosts one at a time."""
        if self.globs and self._matcher is None:
            self._matcher = matcher(self.globs)

    def lists(self, host: Host) -> bool:
        """Return whether an item other than a glob matches a host."""
        if self._blocks:
            block = bisect_right(self._begins, host.name) - 1
            if block >= 0 and host.listed_name in self._blocks[block]:
                return True
        return bool(self._first) and any(map(self._has_address, host.addresses))

    @property
    def has_only_globs(self) -> bool:
        """Whether all items are globs."""
        return not (self._blocks or self._first)

    def _has_address(self, address: int) -> bool:
        """Return whether an address is in one of the ranges and networks."""
        place = bisect_right(self._first, address) - 1
        return place >= 0 and address <= self._last[place]

    def __bool__(self) -> bool:
        return bool(self._blocks or self._patterns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hosts):
            return NotImplemented
        return (self._blocks, self._patterns) == (other._blocks, other._patterns)

    def __hash__(self) -> int:
        return hash((self._blocks, self._patterns))

    def __repr__(self) -> str:
        return f"Hosts({self.items!r})"

    def __str__(self) -> str:
        """Return the items; of a long list, the first items and the number of all."""
        return self._text


def _described(names: Sequence[str], patterns: Sequence[str]) -> str:
    """Return the items of a list; of a long list, the first items and the number of all."""
    text = ", ".join(chain(islice(names, _SHOWN), patterns))
    short = shortened(text)
    return text if short == text else f"{short} ({len(names) + len(patterns)} items)"


def _no_hosts() -> Hosts:
    """Return the empty list, which is one object."""
    return _NO_HOSTS


@dataclass(frozen=True, slots=True)
class Constraint:
    """A placement constraint; an agent must meet every part. An empty part admits all agents."""

    whitelist: Hosts = field(default_factory=_no_hosts)
    """Hosts on which tasks may run; empty: all hosts."""
    blacklist: Hosts = field(default_factory=_no_hosts)
    """Hosts on which tasks may not run."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Names and values of attributes; the agent must have all of them."""
    unreadable: str = ""
    """Error message of an invalid constraint, which admits no agent; empty if valid."""
    required: tuple[_Required, ...] = field(init=False, compare=False, repr=False)
    """The attributes by name, with their values as numbers."""

    def __post_init__(self) -> None:
        by_name: dict[str, dict[str, float]] = {}
        for name, value in self.attributes:
            by_name.setdefault(name, {})[value] = _parse_number(value)
        required = tuple(
            _Required(name, values, frozenset(values.values())) for name, values in by_name.items()
        )
        object.__setattr__(self, "required", required)

    def __bool__(self) -> bool:
        return bool(self.whitelist or self.blacklist or self.attributes or self.unreadable)

    def admits(self, host: Host) -> bool:
        """Return whether the constraint allows tasks to run on a host."""
        return (
            not self.unreadable
            and (not self.whitelist or host in self.whitelist)
            and host not in self.blacklist
            and all(map(host.has, self.required))
        )

    def prepare(self) -> None:
        """Compile the globs, unless they are compiled, to test hosts one at a time."""
        self.whitelist.prepare()
        self.blacklist.prepare()

    def admitted(self, table: "HostTable") -> Cooperative[NameMask]:
        """Return the hosts of a table on which tasks may run. Generator for cooperative steps."""
        if self.unreadable:
            return 0
        admitted = table.known
        if self.whitelist:
            admitted = yield from table.listed(self.whitelist)
        if self.blacklist:
            blacklisted = yield from table.listed(self.blacklist)
            admitted &= ~blacklisted
        for required in self.required:
            if admitted:
                having = yield from table.having(required)
                admitted &= having
                yield
        return admitted

    def __str__(self) -> str:
        if self.unreadable:
            return self.unreadable
        parts = [f"whitelist {self.whitelist}"] if self.whitelist else []
        parts += [f"blacklist {self.blacklist}"] if self.blacklist else []
        if self.attributes:
            attributes = ";".join(f"{name}:{value}" for name, value in self.attributes)
            parts.append(f"attributes {shortened(attributes)}")
        return " and ".join(parts)


def suggest(constraints: Sequence[Constraint], hosts: Collection[Host]) -> Cooperative[str]:
    """Return a sentence about what hosts have in place of a requirement that none meets.

    The first required attribute that no host has comes first, then a whitelist. Generator for
    cooperative steps.

    Args:
        constraints: Constraints that no host meets together.
        hosts: All hosts.

    Returns:
        The sentence; empty for an unreadable constraint, or if hosts have each attribute.
    """
    if not hosts or any(constraint.unreadable for constraint in constraints):
        return ""
    for constraint in constraints:
        for required in constraint.required:
            sentence = yield from _suggest_attributes(required, hosts)
            if sentence:
                return sentence
    if any(constraint.whitelist for constraint in constraints):
        names = (host.name[:_LONGEST_SUGGESTED] for host in islice(hosts, _MOST_COLLECTED))
        return f"Agents have host names such as {_first(names)}."
    return ""


def _suggest_attributes(required: _Required, hosts: Iterable[Host]) -> Cooperative[str]:
    """Return a sentence about the attributes of hosts; empty if a host has the required values."""
    names, values = set[str](), set[str]()
    for number, host in enumerate(hosts):
        if number % _HOSTS_A_STEP == 0:
            yield
        named = [each for each in host.attributes if each.name == required.name]
        if named:
            own = _Values.of(named)
            if own.contain(required):
                return ""
            if len(values) < _MOST_COLLECTED:
                values.update(own.described())
        if len(names) < _MOST_COLLECTED:
            attributes = islice(host.attributes, _MOST_COLLECTED)
            names.update(excerpt(each.name, _LONGEST_SUGGESTED) for each in attributes)
    wanted = required.name[:_LONGEST_SUGGESTED]
    if values:
        return f"Agents have {_first(f'{wanted}:{value}' for value in values)}."
    if not names:
        return "No agent has attributes."
    close = difflib.get_close_matches(wanted, sorted(names), n=1)
    meant = f"did you mean {close[0]}?" if close else f"agents have {_first(names)}."
    return f"No agent has the attribute {wanted}; {meant}"


def _first(items: Iterable[str]) -> str:
    """Return the first items in alphabetical order; "…" replaces further items."""
    ordered = sorted(items)
    return ", ".join(ordered[:_MOST_SUGGESTED]) + (", …" if len(ordered) > _MOST_SUGGESTED else "")


class HostTable:
    """A sequence of hosts, indexed so that a constraint is tested on all of them at once.

    A set of hosts is an integer, in which bit i represents host i. Each glob costs a few operations
    on such integers. A required attribute is compared with each different value that hosts have.
    The table keeps no object for each host, so that garbage collection has nothing to visit.

    Args:
        hosts: The hosts; None for a place without a host.
    """

    def __init__(self, hosts: Sequence[Host | None]) -> None:
        self._hosts = hosts
        self.known = _mask(host is not None for host in hosts)
        """All hosts."""
        self._names: NameTable | None = None
        """The names of the hosts; None before the first glob."""
        self._layouts: list[tuple[str, ...]] = []
        """The different sequences of names of attributes; empty before the first attribute."""
        self._layout_of = array("I")
        """For each host, the index of its layout."""
        self._values: dict[str, tuple[list[_Values | None], array[int]]] = {}
        """The different values of the attributes of a name, and for each host their index."""

    def __len__(self) -> int:
        return len(self._hosts)

    def listed(self, hosts: Hosts) -> Cooperative[NameMask]:
        """Return the hosts that a list contains. Generator for cooperative steps."""
        listed = 0
        if not hosts.has_only_globs:
            listed = _mask(host is not None and hosts.lists(host) for host in self._hosts)
            yield
        for number, glob in enumerate(hosts.globs):
            if self._names is None:
                self._names = NameTable(["" if host is None else host.name for host in self._hosts])
                yield
            listed |= self._names.matching(glob)
            if number % _GLOBS_A_STEP == 0:
                yield
        return listed & self.known

    def having(self, required: _Required) -> Cooperative[NameMask]:
        """Return the hosts that have all required values of the attributes of one name.

        Generator for cooperative steps.
        """
        known = self._values.get(required.name)
        if known is None:
            if not self._layouts:
                yield from self._read_layouts()
            if not any(required.name in layout for layout in self._layouts):
                return 0  # not kept, because frameworks may name any number of attributes
            known = self._values[required.name] = yield from self._read_values(required.name)
        different, indexes = known
        verdicts = list[bool]()
        for first in range(0, len(different), _VALUES_A_STEP):
            if first:
                yield
            batch = different[first : first + _VALUES_A_STEP]
            verdicts += [values is not None and values.contain(required) for values in batch]
        return _mask(map(verdicts.__getitem__, indexes))

    def _read_layouts(self) -> Cooperative[None]:
        """Read the names of all hosts' attributes. Generator for cooperative steps."""
        layouts: dict[tuple[str, ...], int] = {}
        layout_of = array("I")
        for number, host in enumerate(self._hosts):
            if number % _HOSTS_A_STEP == 0:
                yield
            names = () if host is None else tuple([each.name for each in host.attributes])
            layout_of.append(layouts.setdefault(names, len(layouts)))
        self._layouts, self._layout_of = [*layouts], layout_of

    def _read_values(self, name: str) -> Cooperative[tuple[list[_Values | None], "array[int]"]]:
        """Return the different values of the attributes of a name, and each host's index of them.

        Attributes are compared as bytes, and only different ones are read. Generator for
        cooperative steps.
        """
        places_of = [
            [place for place, each in enumerate(layout) if each == name] for layout in self._layouts
        ]
        different: list[_Values | None] = [None]
        indexes, known = array("I"), dict[bytes | tuple[bytes, ...], int]()
        for number, host in enumerate(self._hosts):
            if number % _VALUES_A_STEP == 0:
                yield
            places = places_of[self._layout_of[number]]
            if host is None or not places:
                indexes.append(0)
                continue
            attributes = host.attributes
            key: bytes | tuple[bytes, ...]
            if len(places) == 1:
                key = attributes[places[0]].SerializePartialToString()
            else:
                key = tuple([attributes[place].SerializePartialToString() for place in places])
            index = known.get(key)
            if index is None:
                index = known[key] = len(different)
                different.append(_Values.of(attributes[place] for place in places))
            indexes.append(index)
        return different, indexes


def _mask(flags: Iterable[bool]) -> NameMask:
    """Return a set of hosts, given a flag for each host."""
    digits = bytes(flags)[::-1].translate(_DIGITS)
    return int(digits, 2) if digits else 0


def _parse_number(text: str) -> float:
    """Return the number that a text states; not a number (NaN) for another text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_attributes(items: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse required attributes, each written as NAME:VALUE, into pairs of name and value.

    Raises:
        ValueError: An item is not NAME:VALUE.
    """
    wanted = []
    for item in items:
        name, colon, value = (part.strip() for part in item.partition(":"))
        if not name or not colon or not value:
            raise ValueError(f"{item.strip()!r} is not NAME:VALUE")
        wanted.append((name, value))
    return tuple(wanted)


def parse_constraint(texts: Mapping[str | bytes, str | bytes], limits: Limits) -> Constraint:
    """Parse the constraint that a framework's labels state.

    O(size of the texts). An unreadable label raises no error; `Constraint.unreadable` describes it.

    Args:
        texts: Values of the framework's labels, by key; further keys are ignored.
        limits: Maximum sizes of the values.
    """
    key = WHITELIST
    try:
        whitelist = _parse_hosts(texts.get(key, ""), limits)
        key = BLACKLIST
        blacklist = _parse_hosts(texts.get(key, ""), limits)
        key = ATTRIBUTES
        text = label_text(texts.get(key, ""), limits)
        items = [item for item in text.split(";") if item and not item.isspace()]
        at_most(limits.attributes, len(items), "attributes (limits.attributes)")
        attributes = tuple(dict.fromkeys(parse_attributes(items)))
    except ValueError as error:
        return Constraint(unreadable=shortened(f"label {key}: {error}"))
    return Constraint(whitelist, blacklist, attributes)


def label_text(value: str | bytes, limits: Limits) -> str:
    """Return the value of one of Longshare's labels.

    Raises:
        ValueError: The value is not UTF-8, or is longer than the limit.
    """
    if not is_text(value):
        raise ValueError("it is not UTF-8")
    at_most(limits.label, len(value), "characters (limits.label)")
    return value


def at_most(limit: int, number: int, unit: str) -> None:
    """Raise an error if the number of some things in a constraint exceeds a limit.

    Args:
        limit: The largest valid number.
        number: The number to check.
        unit: The plural of the counted things, for the error message.

    Raises:
        ValueError: The number exceeds the limit.
    """
    if number > limit:
        raise ValueError(f"more than {limit} {unit}")


def _parse_hosts(value: str | bytes, limits: Limits) -> Hosts:
    text = label_text(value, limits)
    if not text:
        return _NO_HOSTS
    if limits.entries:
        wildcards = sum(map(text.count, "*?["))
        at_most(_WILDCARDS * limits.patterns, wildcards, "wildcards (limits.patterns)")
    return Hosts.parse(text, limits.patterns)


def has_open_bracket(item: str) -> bool:
    """Return whether a glob has a `[` that no `]` follows. Such a glob matches almost no host."""
    return "[" in item.rpartition("]")[2]


def _address(text: str) -> _Address | None:
    if ":" not in text and not _IPV4.fullmatch(text):
        return None  # the common case; an exception would be slow
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _range(item: str) -> tuple[_Address, _Address] | None:
    """Parse an item of a host list as an address, a range of addresses, or a network.

    Returns:
        The first and the last address; None if the item is neither of the three, such as a name.

    Raises:
        ValueError: The item is an invalid range of addresses or network.
    """
    if "/" in item:
        network = ipaddress.ip_network(item)  # its ValueError names the item
        return network[0], network[-1]
    begin, dash, end = item.partition("-")
    first = _address(begin)
    if first is None:
        return None
    if not dash:
        return first, first
    last = _address(end)
    if last is None or last.version != first.version or int(last) < int(first):
        raise ValueError(f"{item!r} is not a range of addresses; write FIRST-LAST")
    return first, last


def _number(address: _Address) -> int:
    """Return an address as a number; the numbers of IPv6 follow the numbers of IPv4."""
    return int(address) + (2**32 if address.version == 6 else 0)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in ascending order, with overlapping ranges merged."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


_NO_HOSTS: Final = Hosts(())
