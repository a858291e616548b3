"""Placement constraints: the agents on which tasks may run, and the syntax of constraints."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from fnmatch import translate
from typing import TypeAlias

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_text, readable
from allocator.contract import mesos_pb2 as mesos
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
_WILDCARDS = 8
"""Maximum number of wildcards in a list of hosts, as a multiple of `limits.patterns`."""


_PATTERNS = "globs, ranges and networks (limits.patterns)"


@dataclass(frozen=True, slots=True)
class Host:
    """The properties of an agent that constraints refer to: name, addresses, attributes."""

    name: str
    """Host name in lower case."""
    addresses: tuple[_Address, ...]
    """IP addresses of the agent, as far as they are known."""
    attributes: tuple[mesos.Attribute, ...]
    """Attributes of the agent."""

    @classmethod
    def of(cls, info: mesos.SlaveInfo) -> "Host":
        """Return the host that an agent's SlaveInfo describes.

        Mesos does not send an agent's address to the allocator. The address is known if the host
        name is an address, or if the agent has the text attribute `ip`.
        """
        hostname, attributes = readable(info.hostname), tuple(info.attributes)
        texts = [hostname, *(a.text.value for a in attributes if a.name == _ADDRESS_ATTRIBUTE)]
        addresses = [_address(text) for text in texts if is_text(text)]
        return cls(
            name=hostname.lower(),
            addresses=tuple(address for address in addresses if address is not None),
            attributes=attributes,
        )


@dataclass(frozen=True, slots=True)
class Hosts:
    """A list of hosts: names, globs (`node-[1-9]*`), addresses, ranges (`A-B`) and CIDR networks.

    `host in hosts` tests whether an item matches a host.

    Args:
        items: The items as written; two lists with the same items are equal.
        most: Maximum number of globs, ranges and networks; None: without a limit.

    Raises:
        ValueError: There are too many globs, ranges and networks, or an item has an unknown form.
            The message names the item.
    """

    items: tuple[str, ...]
    most: InitVar[int | None] = None
    patterns: int = field(init=False, compare=False, repr=False)
    """The number of items that must be tried on each host: globs, ranges and networks."""
    _names: frozenset[str] = field(init=False, compare=False, repr=False)
    _globs: re.Pattern[str] | None = field(init=False, compare=False, repr=False)
    """One pattern for all globs; None without globs."""
    _ranges: tuple[tuple[_Address, _Address], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self, most: int | None) -> None:
        names, globs, ranges = set(), list[str](), []
        for item in self.items:
            if _PLAIN_NAME.fullmatch(item):
                names.add(item.lower())
                continue
            if len(item) > LONGEST_NAME:
                raise ValueError(f"{item[:40]!r}… is longer than the name of any host")
            addresses = _range(item)
            if addresses is not None:
                ranges.append(addresses)
            elif not _NAME.fullmatch(item):
                raise ValueError(
                    f"{item!r} is not a host name, glob, address, range of addresses or network"
                )
            elif _WILDCARD.search(item):
                globs.append(_glob(item.lower()))
            else:
                names.add(item.lower())
            if most is not None:
                at_most(most, len(globs) + len(ranges), _PATTERNS)
        object.__setattr__(self, "_names", frozenset(names))
        object.__setattr__(self, "_globs", re.compile("|".join(globs)) if globs else None)
        object.__setattr__(self, "_ranges", tuple(ranges))
        object.__setattr__(self, "patterns", len(globs) + len(ranges))

    @classmethod
    def parse(cls, text: str, most: int | None = None) -> "Hosts":
        """Parse items separated by commas or white space.

        Args:
            text: Names, globs, addresses, ranges and networks.
            most: Maximum number of globs, ranges and networks; None: without a limit.

        Raises:
            ValueError: An item has an unknown form, or there are too many patterns.
        """
        return cls(tuple(text.replace(",", " ").split()), most)

    def __contains__(self, host: Host) -> bool:
        """Return whether an item matches the host's name or one of its addresses."""
        return (
            host.name in self._names
            or (self._globs is not None and self._globs.match(host.name) is not None)
            or any(_between(address, r) for r in self._ranges for address in host.addresses)
        )

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return ", ".join(self.items)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A placement constraint; an agent must meet every part. An empty part admits all agents."""

    whitelist: Hosts = Hosts(())
    """Hosts on which tasks may run; empty: all hosts."""
    blacklist: Hosts = Hosts(())
    """Hosts on which tasks may not run."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Names and values of attributes; the agent must have all of them."""
    unreadable: str = ""
    """Error message of an invalid constraint, which admits no agent; empty if valid."""

    def __bool__(self) -> bool:
        return bool(self.whitelist or self.blacklist or self.attributes or self.unreadable)

    def admits(self, host: Host) -> bool:
        """Return whether the constraint allows tasks to run on a host."""
        return (
            not self.unreadable
            and (not self.whitelist or host in self.whitelist)
            and host not in self.blacklist
            and all(_has(host, name, value) for name, value in self.attributes)
        )

    def __str__(self) -> str:
        if self.unreadable:
            return self.unreadable
        parts = [f"whitelist {self.whitelist}"] if self.whitelist else []
        parts += [f"blacklist {self.blacklist}"] if self.blacklist else []
        if self.attributes:
            parts.append("attributes " + ";".join(f"{n}:{v}" for n, v in self.attributes))
        return " and ".join(parts)


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
        attributes = parse_attributes(items)
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
    if limits.entries:
        wildcards = sum(map(text.count, "*?["))
        at_most(_WILDCARDS * limits.patterns, wildcards, "wildcards (limits.patterns)")
    return Hosts.parse(text, limits.patterns)


def has_open_bracket(item: str) -> bool:
    """Return whether a glob has a `[` that no `]` follows. Such a glob matches almost no host."""
    return "[" in item.rpartition("]")[2]


def _glob(item: str) -> str:
    """Convert a glob, such as `node-[1-9]*`, into a regular expression.

    A `[` that no `]` follows is a literal character. The function escapes such brackets first,
    because `fnmatch.translate` would search the whole rest of the glob for each of them.
    """
    head, closing, tail = item.rpartition("]")
    return translate(head + closing + tail.replace("[", "[[]"))


def _has(host: Host, name: str, value: str) -> bool:
    return any(a.name == name and _equals(a, value) for a in host.attributes)


def _equals(attribute: mesos.Attribute, value: str) -> bool:
    """Return whether an agent's attribute has a required value.

    The value must equal a scalar or text attribute, or be contained in a set or in ranges.
    """
    if attribute.type == mesos.Value.TEXT:
        return attribute.text.value == value
    if attribute.type == mesos.Value.SET:
        return value in attribute.set.item
    try:
        number = float(value)
    except ValueError:
        return False
    if attribute.type == mesos.Value.SCALAR:
        return attribute.scalar.value == number
    return any(r.begin <= number <= r.end for r in attribute.ranges.range)


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


def _between(address: _Address, limits: tuple[_Address, _Address]) -> bool:
    first, last = limits
    return address.version == first.version and int(first) <= int(address) <= int(last)
