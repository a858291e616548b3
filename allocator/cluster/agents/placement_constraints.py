"""Placement constraints: on which agents a framework's tasks may run, and how that is written."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TypeAlias

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_text, readable, shortened
from allocator.contract import mesos_pb2 as mesos

WHITELIST = "longshare.whitelist"
"""Label by which a framework names the hosts its tasks may run on, and no others."""
BLACKLIST = "longshare.blacklist"
"""Label by which a framework names hosts its tasks may not run on."""
ATTRIBUTES = "longshare.attributes"
"""Label by which a framework asks for attributes of agents: `rack:1;disk:ssd`."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_ADDRESS_ATTRIBUTE = "ip"
"""Text attribute that tells an agent's address where its host name does not."""
LONGEST_NAME = 255
"""Characters of an item in a list of hosts; no host has a longer name (RFC 1035)."""
_NAME = re.compile(r"[\w.*?\[\]!-]+")


@dataclass(frozen=True, slots=True)
class Host:
    """What of an agent constraints can speak of."""

    name: str
    """In small letters."""
    addresses: tuple[_Address, ...]
    attributes: tuple[mesos.Attribute, ...]

    @classmethod
    def of(cls, info: mesos.SlaveInfo) -> "Host":
        """Read an agent's description.

        Mesos does not tell the allocator an agent's address. It is known where the host name is
        one, or the agent has it as the text attribute `ip`.
        """
        hostname = readable(info.hostname)
        texts = [hostname]
        texts += [a.text.value for a in info.attributes if a.name == _ADDRESS_ATTRIBUTE]
        found = (_address(text) for text in texts if is_text(text))
        return cls(
            name=hostname.lower(),
            addresses=tuple(address for address in found if address is not None),
            attributes=tuple(info.attributes),
        )


@dataclass(frozen=True, slots=True)
class Hosts:
    """A list of hosts: names, globs (`node-[1-9]*`), addresses, ranges (`A-B`) and CIDR networks.

    Args:
        items: As they were written; two lists are equal if these are.

    Raises:
        ValueError: an item is none of these; the message names it.
    """

    items: tuple[str, ...]
    _names: frozenset[str] = field(init=False, compare=False, repr=False)
    _globs: tuple[re.Pattern[str], ...] = field(init=False, compare=False, repr=False)
    _ranges: tuple[tuple[_Address, _Address], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        names, globs, ranges = set(), [], []
        for item in self.items:
            if len(item) > LONGEST_NAME:
                raise ValueError(f"{item[:40]!r}… is longer than the name of any host")
            addresses = _range(item)
            if addresses is not None:
                ranges.append(addresses)
            elif not _NAME.fullmatch(item):
                raise ValueError(
                    f"{item!r} is no host name, glob, address, range of addresses or network"
                )
            elif any(letter in item for letter in "*?["):
                globs.append(_glob(item.lower()))
            else:
                names.add(item.lower())
        object.__setattr__(self, "_names", frozenset(names))
        object.__setattr__(self, "_globs", tuple(globs))
        object.__setattr__(self, "_ranges", tuple(ranges))

    @classmethod
    def parse(cls, text: str) -> "Hosts":
        """Read items with commas or blanks between them.

        Raises:
            ValueError: one is not understood.
        """
        return cls(tuple(text.replace(",", " ").split()))

    @property
    def patterns(self) -> int:
        """How many items there are that must be tried on each host."""
        return len(self._globs) + len(self._ranges)

    def __contains__(self, host: Host) -> bool:
        return (
            host.name in self._names
            or any(glob.match(host.name) for glob in self._globs)
            or any(_between(address, r) for r in self._ranges for address in host.addresses)
        )

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return ", ".join(self.items)


@dataclass(frozen=True, slots=True)
class Constraint:
    """Where tasks may run; an agent must meet all of it. An empty part asks for nothing."""

    whitelist: Hosts = Hosts(())
    blacklist: Hosts = Hosts(())
    attributes: tuple[tuple[str, str], ...] = ()
    """Name and value; the agent must have all."""
    unreadable: str = ""
    """What is wrong with it; nobody knows what was meant, so it admits no agent."""

    def __bool__(self) -> bool:
        return bool(self.whitelist or self.blacklist or self.attributes or self.unreadable)

    def admits(self, host: Host) -> bool:
        """Whether tasks may run on a host."""
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
    """Read attributes that are asked for, each as NAME:VALUE.

    Raises:
        ValueError: one is not written so.
    """
    wanted = []
    for item in items:
        name, colon, value = (part.strip() for part in item.partition(":"))
        if not name or not colon or not value:
            raise ValueError(f"{item.strip()!r} is not NAME:VALUE")
        wanted.append((name, value))
    return tuple(wanted)


def parse_labels(labels: mesos.Labels, limits: Limits) -> Constraint:
    """Read the constraint that a framework's labels state; O(their size)."""
    texts = {label.key: label.value for label in labels.labels}
    key = WHITELIST
    try:
        whitelist = _parse_hosts(texts.get(key, ""), limits)
        key = BLACKLIST
        blacklist = _parse_hosts(texts.get(key, ""), limits)
        key = ATTRIBUTES
        items = label_text(texts.get(key, ""), limits).split(";")
        attributes = parse_attributes(item for item in items if item.strip())
        at_most(limits.attributes, len(attributes), "attributes (limits.attributes)")
    except ValueError as error:
        return Constraint(unreadable=shortened(f"label {key}: {error}"))
    return Constraint(whitelist, blacklist, attributes)


def label_text(value: str, limits: Limits) -> str:
    """Return the value of a label that is read here.

    Raises:
        ValueError: it is not UTF-8, or beyond a limit.
    """
    if not is_text(value):
        raise ValueError("it is not UTF-8")
    at_most(limits.label, len(value), "characters (limits.label)")
    return value


def at_most(limit: int, number: int, what: str) -> None:
    """Hold a number against a limit.

    Raises:
        ValueError: it is beyond.
    """
    if number > limit:
        raise ValueError(f"more than {limit} {what}")


def _parse_hosts(value: str, limits: Limits) -> Hosts:
    hosts = Hosts.parse(label_text(value, limits))
    what = "globs, ranges and networks (limits.patterns)"
    at_most(limits.patterns, hosts.patterns, what)
    return hosts


def _glob(item: str) -> re.Pattern[str]:
    """Read a glob. Brackets after the last that closes one stand for themselves.

    Told so, the translation need not look for their end, each to the end of the text.
    """
    head, closing, tail = item.rpartition("]")
    return re.compile(translate(head + closing + tail.replace("[", "[[]")))


def _has(host: Host, name: str, value: str) -> bool:
    return any(a.name == name and _equals(a, value) for a in host.attributes)


def _equals(attribute: mesos.Attribute, value: str) -> bool:
    """Whether an attribute is a value, or one of several that it stands for."""
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
    if ":" not in text and not text[:1].isdigit():
        return None  # as a rule; to be told by an exception takes long
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _range(item: str) -> tuple[_Address, _Address] | None:
    """Return the first and the last address of an item; None: it does not speak of addresses.

    Raises:
        ValueError: it does, but not in a way that makes sense.
    """
    if "/" in item:
        network = ipaddress.ip_network(item)  # raises what names the item
        return network[0], network[-1]
    begin, dash, end = item.partition("-")
    first = _address(begin)
    if first is None:
        return None
    if not dash:
        return first, first
    last = _address(end)
    if last is None or last.version != first.version or int(last) < int(first):
        raise ValueError(f"{item!r} is no range of addresses: write FIRST-LAST")
    return first, last


def _between(address: _Address, limits: tuple[_Address, _Address]) -> bool:
    first, last = limits
    return address.version == first.version and int(first) <= int(address) <= int(last)
