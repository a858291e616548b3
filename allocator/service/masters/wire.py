"""Parser of masters' messages, which limits memory use and accepts text that is not UTF-8.

A few bytes of a message can take a hundred bytes once parsed, and thousands in the engine. Parts of
a message are therefore weighed before they are parsed. A part is a field or a nested message; its
weight estimates its memory, in units of about a hundred bytes. Long messages are read in
cooperative steps.

The contract's text must be UTF-8, but Mesos's text need not be. A role or host name that is not
UTF-8 makes protobuf's parser reject the whole message. The invalid text is then escaped, and the
message is parsed again.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import readable
from allocator.cluster.resources import merge_reservations, reserver, shortened
from allocator.cluster.resources.kinds import FEW_RESERVATIONS, RESERVATIONS_A_STEP, SMALL
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
"""Protobuf wire type → length of a fixed-size number, in bytes."""
M = TypeVar("M", bound=Message)
_CONTRACT: Descriptor = contract.FromMaster.DESCRIPTOR
MAX_STEP_BYTES = 2**16
"""Maximum length, in bytes, of a message that is parsed in one step. Longer messages are parsed in
steps of about this length."""
_QUICK = 2**18
"""Length in bytes up to which protobuf parses any message within 8 ms.

Ordinary messages of masters take 0.2 ms. Splitting them into steps would take several times as
long.
"""
_BLOCK = 2**20
"""Number of bytes whose weight is estimated in one step, which takes some milliseconds."""
_HEAVY: dict[str, int] = {
    contract.AddAgent.DESCRIPTOR.full_name: 20,
    contract.AddFramework.DESCRIPTOR.full_name: 24,
}
"""Weights of message types that take much memory even without content; other types weigh 1."""
_DENSEST = max(_HEAVY.values()) / 2
"""Maximum weight per byte: the heaviest message without content takes two bytes."""
_SHORT_KIND = 1000
"""Maximum length, as of `limits.resource_kind`, of resources on agents that weigh too much."""
_BYTES_A_FIELD = 512
"""Bytes for each field of a message from which it is faster to visit the fields than to count the
bytes with which fields can begin."""
_FIELDS_A_STEP = 1000
"""Number of fields that one step visits."""
_OPAQUE = 12
"""Weight of a Mesos message inside the contract's messages, before its length is added. Most of
them are resources."""
_BYTES = 16
"""Number of bytes of a Mesos message that add 1 to its weight."""
_BOUNDED = frozenset(
    {
        contract.AddFramework.DESCRIPTOR.full_name,
        contract.UpdateFramework.DESCRIPTOR.full_name,
    }
)
"""Contract messages in which a Mesos message weighs the same whatever its length.

The engine limits what it keeps of them. So a framework with a long description cannot make its
master's message too heavy.
"""


class WireError(ValueError):
    """The bytes are not a valid message of the contract; the exception's text states the reason."""


class HeavyEventsError(WireError):
    """A message with events is too heavy, although no framework's lists in it are too long.

    The weight estimates the memory of the parsed message. The service then requests a snapshot in
    place of the events.

    Args:
        reason: Why the events cannot be read.
        skipped: The same events, of which only the effects on offer filters can be read.
    """

    def __init__(self, reason: str, skipped: contract.Events) -> None:
        super().__init__(reason)
        self.skipped = skipped


_LISTS: dict[str, tuple[str, ...]] = {
    contract.AddFramework.DESCRIPTOR.full_name: ("suppressed_roles", "excluded"),
    contract.UpdateFramework.DESCRIPTOR.full_name: ("suppressed_roles", "excluded"),
    contract.RequestResources.DESCRIPTOR.full_name: ("requests",),
    contract.ReviveOffers.DESCRIPTOR.full_name: ("roles",),
    contract.SuppressOffers.DESCRIPTOR.full_name: ("roles",),
    contract.AddAgent.DESCRIPTOR.full_name: ("total", "used", "running"),
}
"""Message type → fields whose length the framework in `framework_id` decides. The length of an
agent's fields depends on the frameworks that reserve parts of the agent."""
_AGENT_RESOURCES: dict[str, tuple[str, ...]] = {
    contract.FromMaster.DESCRIPTOR.full_name: ("snapshot",),
    contract.Snapshot.DESCRIPTOR.full_name: ("agents",),
    contract.AddAgent.DESCRIPTOR.full_name: ("total", "used", "running"),
    contract.Allocation.DESCRIPTOR.full_name: ("resources",),
}
"""Message type → fields that contain resources of a snapshot's agents."""
_SHARE = 128
"""The lists of one framework in one call may weigh this fraction, 1/128, of a message."""
_TOO_LONG = mesos.Resource(
    name="(left out: too many parts for the master's message, listen.most_parts)",
    type=mesos.Value.SCALAR,
)
"""Stands for resources that weigh too much. Without an amount, it is rejected by name."""
_MARK: dict[str, bytes] = {
    message.DESCRIPTOR.full_name: message.SerializeToString()
    for message in (
        contract.AddFramework(excluded_unlisted=True),
        contract.UpdateFramework(excluded_unlisted=True),
        contract.RequestResources(
            requests=[mesos.Request(resources=[_TOO_LONG]).SerializePartialToString()]
        ),
        contract.AddAgent(total=[_TOO_LONG.SerializePartialToString()]),
    )
}
"""Message type → serialised field that tells the engine that a list was left out."""
_MARKS = 20
"""Weight of the marks for one framework or agent, at most."""
_EXCLUSIONS = contract.ExclusionList.DESCRIPTOR.full_name
_PRINCIPAL = mesos.FrameworkInfo.PRINCIPAL_FIELD_NUMBER
_BEFORE_PRINCIPAL = 32
"""Fields of a FrameworkInfo that are read to find its principal. At most nine come before it."""
_EXCLUSION = 3
"""Weight of one exclusion: the message, the framework ID and the role."""
_FRAMEWORK_ID = 1
"""Field number of the framework ID, or of the agent ID, in these messages."""
_ID_TAG = bytes([_FRAMEWORK_ID << 3 | _LENGTH_DELIMITED])
_FILTERING_CALLS = frozenset({"revive_offers", "recover_resources"})
"""Calls whose content changes offer filters."""
_CALLS_THAT_END_FILTERS = frozenset(
    {
        *(f"{verb}_framework" for verb in ("add", "update", "remove", "activate", "deactivate")),
        *(f"{verb}_agent" for verb in ("add", "update", "remove")),
    }
)
"""Calls that end the offer filters of the framework or agent in field `_FRAMEWORK_ID`."""
_LONG_CALL = 2**11
"""Bytes of a framework's call above which only its first entries are weighed one by one."""
_UNLIMITED = 2**62
"""More than any message weighs."""
_STEP = 2**14
"""Bytes of lists that are weighed in one step."""
_LIMITS = Limits()
"""Bounds of a service without other settings."""
_Owner: TypeAlias = tuple[Literal["framework", "request", "agent"], bytes]
"""The party that decides the length of lists: a kind, and a framework ID or an agent ID.

The lists of a framework's REQUEST calls have an owner of their own, of the kind "request". A kind
separates agent IDs from framework IDs, because a framework may choose any ID.
"""
_OWNERS: dict[str, Literal["request", "agent"]] = {
    contract.RequestResources.DESCRIPTOR.full_name: "request",
    contract.AddAgent.DESCRIPTOR.full_name: "agent",
}
"""Message type → kind of its owner, unless the kind is "framework"."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """Weights and field numbers of one message type, from which a message's weight is computed.

    The weight estimates a message's memory once parsed. Only length-delimited fields count:
    messages, text and bytes.
    """

    weight: int
    """Weight of the message itself, without its fields."""
    nested: dict[int, "Descriptor"]
    """Types of the fields that are messages of the contract."""
    texts: frozenset[int]
    """Numbers of the fields that hold text."""
    opaque: frozenset[int]
    """Numbers of the fields that hold serialised Mesos messages."""
    per_byte: float
    """Weight that each byte of an opaque field adds."""


def parse(data: bytes, most_parts: int, limits: Limits = _LIMITS) -> contract.FromMaster:
    """Parse a serialised message in one step.

    Args:
        data: The serialised message.
        most_parts: Maximum weight of the message, in parts of about a hundred bytes once parsed.
        limits: Bounds on the lists of one framework, for a message that is too heavy.

    Raises:
        HeavyEventsError: the message contains events, and weighs more than `most_parts`.
        WireError: the message is invalid, or is a snapshot and weighs more than `most_parts`.
    """
    if len(data) <= MAX_STEP_BYTES:
        return _read(contract.FromMaster, data)
    return run_to_completion(parse_in_steps(data, most_parts, limits))


def parse_in_steps(
    data: bytes, most_parts: int, limits: Limits = _LIMITS
) -> Cooperative[contract.FromMaster]:
    """Parse a serialised message, in cooperative steps if it is long.

    If the message is too heavy, overlong lists of single frameworks are left out, and a field tells
    the engine so. The lists are offer constraints, suppressed roles and requests. So one framework
    cannot make the message of its master unreadable, and frameworks of one principal cannot remove
    the lists of another principal's framework. Events that are too heavy lose requests only.

    Args:
        data: The serialised message.
        most_parts: Maximum weight of the message, in parts of about a hundred bytes once parsed.
        limits: Bounds on the lists of one framework, for a message that is too heavy.

    Raises:
        HeavyEventsError: the message contains events, and weighs more than `most_parts`.
        WireError: the message is invalid, or is a snapshot and weighs more than `most_parts`.
    """
    if len(data) <= MAX_STEP_BYTES:
        return _read(contract.FromMaster, data)
    if len(data) <= _QUICK and len(data) * _DENSEST <= most_parts:
        with suppress(DecodeError):  # text that is not UTF-8 is located part by part below
            return contract.FromMaster.FromString(data)
    bounds = _Bounds(most_parts, limits)
    try:
        limit = most_parts if (yield from _may_exceed(data, most_parts)) else math.inf
        return (yield from _reading_parts(data, limit, bounds))
    except _TooHeavyError:
        pass
    try:
        data = yield from _without_longest_lists(data, bounds)
        return (yield from _reading_parts(data, math.inf, bounds))
    except _TooHeavyError:
        words = f"it has more than {most_parts} parts (listen.most_parts)"
        kind = next(_fields(data, 0, len(data)))[0]
        if kind != contract.FromMaster.EVENTS_FIELD_NUMBER:
            raise WireError(words) from None
        skipped = contract.Events()
        with suppress(_TooHeavyError):
            skipped = yield from _skipped_events(data, most_parts)
        raise HeavyEventsError(words, skipped) from None


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of one message."""

    most_parts: int
    """Maximum weight of the message; only `_SHARE` of it is allowed to one framework."""
    limits: Limits
    """Bounds on the lists of one framework."""


def _reading_parts(
    data: bytes, remaining: float, bounds: _Bounds
) -> Cooperative[contract.FromMaster]:
    """Parse a long message field by field, in cooperative steps, up to a maximum weight.

    Args:
        data: The serialised message.
        remaining: Maximum weight of the message, in parts of about a hundred bytes once parsed;
            infinite for no limit.
        bounds: Bounds on the lists of one framework.

    Raises:
        _TooHeavyError: the message weighs more than `remaining`.
        WireError: the message is invalid.
    """
    whole = contract.FromMaster()
    for number, kind, start, stop in _fields(data, 0, len(data)):
        field = _CONTRACT.fields_by_number.get(number)
        if kind == _LENGTH_DELIMITED and field is not None:
            part = getattr(whole, field.name)
            part.SetInParent()
            remaining = yield from _merge_steps(part, data, (start, stop), remaining - 1, bounds)
    return whole


def _may_exceed(data: bytes, limit: int) -> Cooperative[bool]:
    """Return whether a message's weight (estimated memory) may exceed a limit.

    The function quickly counts the bytes that can begin a part of the message. The count gives an
    upper bound of the weight, about four times the weight of an ordinary snapshot. If the result is
    False, no part needs to be weighed.

    Args:
        data: The serialised message.
        limit: The maximum weight.
    """
    if len(data) * _DENSEST <= limit:
        return False
    with suppress(WireError):  # the parser reports the error later
        if (yield from _has_few_light_fields(data, limit)):
            return False
    remaining = limit - 1 - len(data) / _BYTES
    for begin in range(0, len(data), _BLOCK):
        block = data[begin : begin + _BLOCK]
        for weight, beginnings in _first_bytes():
            remaining -= weight * (len(block) - len(block.translate(None, beginnings)))
        if remaining < 0:
            return True
        yield
    return False


def _has_few_light_fields(data: bytes, limit: int) -> Cooperative[bool]:
    """Return whether a message has few fields for its length, and weighs no more than a limit.

    Resources with long labels make such messages. The function skips their bytes, which
    `_may_exceed` would count. The result is False as soon as the message has too many fields.

    Args:
        data: The serialised message.
        limit: The maximum weight.

    Raises:
        WireError: the message is invalid.
    """
    weight, remaining = 0.0, len(data) // _BYTES_A_FIELD
    pending = [(0, len(data), _CONTRACT)]
    while pending:
        begin, end, descriptor = pending.pop()
        shape = _shape(descriptor)
        weight += shape.weight
        for number, kind, start, stop in _fields(data, begin, end):
            remaining -= 1
            if remaining < 0:
                return False
            if not remaining % _FIELDS_A_STEP:
                yield
            if kind != _LENGTH_DELIMITED:
                continue
            nested = shape.nested.get(number)
            if nested is not None:
                pending.append((start, stop, nested))
            elif number in shape.opaque:
                weight += _OPAQUE + int((stop - start) * shape.per_byte)
            else:
                weight += 1
    return weight <= limit


def _merge_steps(
    message: Message, data: bytes, span: tuple[int, int], remaining: float, bounds: _Bounds
) -> Cooperative[float]:
    """Parse the fields in a range of the data into a message, in cooperative steps.

    Args:
        message: Receives the fields.
        data: The serialised bytes.
        span: Start and end of the range, as byte offsets.
        remaining: Weight (estimated memory) that this range and later ranges together may have;
            infinite for no limit.
        bounds: Bounds on the lists of one framework.

    Returns:
        The weight that later ranges may have.

    Raises:
        _TooHeavyError: the range weighs more than `remaining`.
        WireError: the range is invalid.
    """
    shape, (start_of_part, end) = _shape(message.DESCRIPTOR), span
    for number, kind, start, stop in _fields(data, start_of_part, end):
        nested = shape.nested.get(number) if kind == _LENGTH_DELIMITED else None
        if nested is not None and stop - start >= MAX_STEP_BYTES:
            tally = _Tally(bounds.limits)
            weight = yield from _weigh_in_steps(data, start, stop, nested, tally)
            most = bounds.most_parts / _SHARE
            owners = {owner for owner, share in tally.of_frameworks() if share > most}
            if owners:
                part = yield from _without_lists(data, (start, stop), nested, _Cut(owners))
                weight = _weight(part, nested)
                rest = data[start_of_part : start - len(varint(stop - start))]
                message.MergeFrom(_read(type(message), rest + varint(len(part)) + part))
                start_of_part = stop
            remaining -= weight
        elif kind == _LENGTH_DELIMITED and remaining < math.inf:
            remaining = _after_field(data, start, stop, number, shape, remaining)
            yield
        if remaining < 0:
            raise _TooHeavyError
        if stop - start_of_part >= MAX_STEP_BYTES:
            message.MergeFrom(_read(type(message), data[start_of_part:stop]))
            start_of_part = stop
            yield
    message.MergeFrom(_read(type(message), data[start_of_part:end]))
    return remaining


class _TooHeavyError(Exception):
    """The message, or a part of it, weighs more than is allowed; caught within this module."""


@dataclass(slots=True)
class _Cut:
    """The owners whose lists `_without_lists` leaves out, and caches for this purpose."""

    owners: AbstractSet[_Owner]
    """Frameworks and agents whose lists are left out."""
    marked: set[bytes] = field(default_factory=set)
    """Frameworks with a mark in some agent's exclusions. One mark is enough."""
    exclusions: bytes = b""
    """The last list of an agent's exclusions. Many agents have the same list."""
    kept: bytes = b""
    """Content of `exclusions` without the entries of `owners`; marks are not included."""


@dataclass(slots=True)
class _Tally:
    """Total weight of each framework's and each agent's lists in one message.

    The length of these lists is decided by frameworks. From the totals `_without_longest_lists`
    chooses the lists to leave out.
    """

    limits: Limits
    """Bounds on the lists of one framework."""
    shares: dict[_Owner, int] = field(default_factory=dict)
    """Owner → total weight of its lists."""
    exclusions: bytes = b""
    """The last list of an agent's exclusions. Many agents have the same list."""
    exclusions_shares: dict[_Owner, int] = field(default_factory=dict)
    """Weights of the entries in `exclusions`, by framework."""
    excessive: set[_Owner] = field(default_factory=set)
    """Owners with a list that exceeds `limits`."""
    principals: dict[bytes, bytes] = field(default_factory=dict)
    """Framework ID → principal, as far as the message contains the framework's description."""

    def group(self, owner: _Owner) -> tuple[str, bytes]:
        """Return the party that decides about an owner's lists: a principal, or the agent itself.

        All frameworks without a principal form one group.
        """
        kind, name = owner
        return owner if kind == "agent" else ("principal", self.principals.get(name, b""))

    def add(self, shares: dict[_Owner, int]) -> int:
        """Add weights to the totals, and return the sum of the added weights.

        Args:
            shares: Weights of lists, by owner.
        """
        for owner, weight in shares.items():
            self.shares[owner] = self.shares.get(owner, 0) + weight
        return sum(shares.values())

    def add_call(self, call: "_Call", descriptor: Descriptor) -> None:
        """Add the weight of a framework's lists in a call of a type to the totals."""
        owner = _owner(descriptor, call.framework)
        if call.listed:
            self.add({owner: call.listed})
        if call.principal is not None:
            self.principals[call.framework] = call.principal
        if call.excessive:
            self.excessive.add(owner)

    def of_frameworks(self) -> Iterator[tuple[_Owner, int]]:
        """Yield the owners with the total weight of their lists, but no agents."""
        for owner, weight in self.shares.items():
            if owner[0] != "agent":
                yield owner, weight


def _weight(data: bytes, descriptor: Descriptor) -> float:
    """Return the weight of a serialised message: its estimated memory once parsed, in parts."""
    return _UNLIMITED - _after_message(data, 0, len(data), descriptor, _UNLIMITED)


def _weigh_in_steps(
    data: bytes, begin: int, end: int, descriptor: Descriptor, tally: _Tally
) -> Cooperative[float]:
    """Return a message's weight (estimated memory), and add the weights of its lists to a tally.

    Only the lists whose length a framework decides are added to the tally, for example offer
    constraints.

    Args:
        data: The serialised bytes.
        begin: Byte offset of the message.
        end: Byte offset of the message's end.
        descriptor: The message's type.
        tally: Receives the lists' weights, by owner.
    """
    if descriptor.full_name == _EXCLUSIONS:
        if data[begin:end] != tally.exclusions:
            shares = yield from _exclusion_shares(data, begin, end)
            tally.exclusions, tally.exclusions_shares = data[begin:end], shares
        return tally.add(tally.exclusions_shares) + 1
    if descriptor in _skeletons():
        call = yield from _weigh_call(data, (begin, end), descriptor, tally.limits)
        tally.add_call(call, descriptor)
        return call.listed + call.unlisted
    shape, lists = _shape(descriptor), _list_numbers(descriptor)
    weight, listed, last = float(shape.weight), 0.0, begin
    for number, kind, start, stop in _fields(data, begin, end):
        if kind != _LENGTH_DELIMITED:
            continue
        nested = shape.nested.get(number)
        if nested is not None and (
            stop - start >= MAX_STEP_BYTES or nested.full_name in _carriers()
        ):
            part = yield from _weigh_in_steps(data, start, stop, nested, tally)
        else:
            part = _UNLIMITED - _after_field(data, start, stop, number, shape, _UNLIMITED)
        weight += part
        listed += part * (number in lists)
        if stop - last >= _STEP:
            last = stop
            yield
    if listed:
        tally.add({_owner(descriptor, _framework_id(data, begin, end)): int(listed)})
    return weight


@dataclass(frozen=True, slots=True)
class _Call:
    """A framework's call with the weights (estimated memory) of its parts."""

    framework: bytes
    """The framework ID."""
    principal: bytes | None
    """The framework's principal; None if the call does not describe the framework."""
    listed: int
    """Weight of the lists whose length the framework decides."""
    unlisted: float
    """Weight of all other parts."""
    excessive: bool
    """Whether a list exceeds the limits. Its weight is then an upper bound."""


def _weigh_call(
    data: bytes, span: tuple[int, int], descriptor: Descriptor, limits: Limits
) -> Cooperative[_Call]:
    """Weigh a framework's call in cooperative steps.

    Args:
        data: The serialised bytes.
        span: Start and end of the call, as byte offsets.
        descriptor: The call's type.
        limits: Bounds on the lists of one framework.

    Raises:
        WireError: the call is invalid.
    """
    call = _without_own_lists(data[span[0] : span[1]], descriptor)
    yield
    listed, excessive = yield from _weigh_lists(data, span, descriptor, limits)
    principal = _principal(call.info) if "info" in descriptor.fields_by_name else None
    unlisted = _weight(call.SerializeToString(), descriptor)
    return _Call(call.framework_id, principal, listed, unlisted, excessive)


def _weigh_lists(
    data: bytes, span: tuple[int, int], descriptor: Descriptor, limits: Limits
) -> Cooperative[tuple[int, bool]]:
    """Return the weight of the lists in a framework's call, and whether a list exceeds the limits.

    No more entries are read than the limits allow. The weight of further entries is an upper bound.

    Args:
        data: The serialised bytes.
        span: Start and end of the call, as byte offsets.
        descriptor: The call's type.
        limits: Bounds on roles, and on pairs of a role and an agent that are excluded.

    Raises:
        WireError: the call is invalid.
    """
    (begin, end), shape, lists = span, _shape(descriptor), _list_numbers(descriptor)
    weight, entries, pairs, last = 0, 0, 0, begin
    for number, kind, start, stop in _fields(data, begin, end):
        if number not in lists or kind != _LENGTH_DELIMITED:
            continue
        if number in shape.nested:
            agents = _excluded_agents(data[start:stop])
            pairs += agents
            weight += 2 + agents
        else:
            entries += 1
            weight += _OPAQUE + (stop - start) // _BYTES if number in shape.opaque else 1
        if entries > limits.roles or 0 < limits.exclusions < pairs:
            return weight + _most_listed(data, stop, end, descriptor), True
        if stop - last >= _STEP:
            last = stop
            yield
    return weight, False


def _most_listed(data: bytes, begin: int, end: int, descriptor: Descriptor) -> int:
    """Return an upper bound of the weight of a framework's lists between two offsets of a call.

    The bound is the number of bytes with which entries can begin, so no entry is read. In an entry
    of `excluded`, the beginnings of the role and of the agents count.
    """
    shape, most = _shape(descriptor), 0
    for number in _list_numbers(descriptor):
        weight = _OPAQUE if number in shape.opaque else 1
        for entry, of_entry in [(1, 2), (2, 1)] if number in shape.nested else [(number, weight)]:
            tag = entry << 3 | _LENGTH_DELIMITED
            beginnings = (bytes([tag]), bytes([tag | 0x80]))
            most += of_entry * sum(data.count(each, begin, end) for each in beginnings)
        if number in shape.opaque:
            most += (end - begin) // _BYTES
    return most


def _excluded_agents(data: bytes) -> int:
    """Return the number of agents in a serialised `ExcludedAgents`.

    Raises:
        WireError: the bytes are not a valid message.
    """
    with suppress(DecodeError):  # the role need not be UTF-8
        return len(contract.ExcludedAgents.FromString(data).agent_ids)
    agents = contract.ExcludedAgents.AGENT_IDS_FIELD_NUMBER
    return sum(number == agents for number, _, _, _ in _fields(data, 0, len(data)))


def _principal(info: bytes) -> bytes:
    """Return the principal in a serialised FrameworkInfo; empty without one.

    Only the first fields are read. Mesos serialises the fields in the order of their numbers.
    """
    with suppress(WireError):
        for number, kind, start, stop in islice(_fields(info, 0, len(info)), _BEFORE_PRINCIPAL):
            if number == _PRINCIPAL and kind == _LENGTH_DELIMITED:
                return info[start:stop]
    return b""


def _exclusion_shares(data: bytes, begin: int, end: int) -> Cooperative[dict[_Owner, int]]:
    """Return the weight (estimated memory) of each framework's entries in an `ExclusionList`.

    The list contains one agent's exclusions: the frameworks whose offer constraints exclude the
    agent. The result maps each framework to a weight.

    Args:
        data: The serialised bytes of the message that contains the list.
        begin: Byte offset of the list.
        end: Byte offset of the list's end.
    """
    shares: dict[_Owner, int] = {}
    last = begin
    for _number, kind, start, stop in _fields(data, begin, end):
        if kind == _LENGTH_DELIMITED:
            owner: _Owner = ("framework", _framework_id(data, start, stop))
            shares[owner] = shares.get(owner, 0) + _EXCLUSION
        if stop - last >= _STEP:
            last = stop
            yield
    return shares


def _framework_id(data: bytes, begin: int, end: int) -> bytes:
    """Return the value of a message's first field: a framework ID or, in some types, an agent ID.

    The result is empty if the message lacks the field.

    Args:
        data: The serialised bytes.
        begin: Byte offset of the message.
        end: Byte offset of the message's end.
    """
    for number, kind, start, stop in _fields(data, begin, end):
        if number == _FRAMEWORK_ID and kind == _LENGTH_DELIMITED:
            return data[start:stop]
    return b""


def _owner(descriptor: Descriptor, name: bytes) -> _Owner:
    """Return the party that decides the length of a message's lists.

    The lists of an agent depend on the frameworks that reserve parts of it.

    Args:
        descriptor: The type of the message.
        name: The framework ID or agent ID in the message.
    """
    return _OWNERS.get(descriptor.full_name, "framework"), name


def _without_longest_lists(data: bytes, bounds: _Bounds) -> Cooperative[bytes]:
    """Return a message without its heaviest lists, so that it weighs at most `most_parts`.

    Only lists whose length a framework decides are left out: first each list that exceeds the
    limits of one framework. If a snapshot is still too heavy, the principal with the heaviest lists
    loses the lists of its framework with the heaviest lists, until the snapshot is light enough. An
    agent whose resources weigh more than each principal's lists loses its resources. Before agents
    lose resources, short forms replace resources of too long kinds, such as reservations with long
    labels: first those beyond `limits.resource_kind`, then labels beyond `_SHORT_KIND`. Then the
    reservations of the principal with the most on such an agent are added up.

    Events do not name all principals, so the heaviest REQUEST calls are left out of events.

    Args:
        data: The serialised message.
        bounds: Bounds of the message.

    Raises:
        _TooHeavyError: the message weighs more than `most_parts` even without these lists.
    """
    for longest in (max(bounds.limits.resource_kind, _SHORT_KIND), _SHORT_KIND, 0):
        owners = yield from _owners_of_longest_lists(data, bounds)
        if not longest or not any(kind == "agent" for kind, _ in owners):
            break
        data = yield from _with_short_resources(data, (0, len(data)), _CONTRACT, longest)
    quotas: Collection[str] | None = None
    while agents := {name for kind, name in owners if kind == "agent"}:
        length = len(data)
        if quotas is None:
            quotas = _roles_with_quotas(data)
        data = yield from _with_merged_reservations(data, (0, length), _CONTRACT, agents, quotas)
        if len(data) == length:
            break
        owners = yield from _owners_of_longest_lists(data, bounds)
    return (yield from _without_lists(data, (0, len(data)), _CONTRACT, _Cut(owners)))


def _owners_of_longest_lists(data: bytes, bounds: _Bounds) -> Cooperative[AbstractSet[_Owner]]:
    """Return the owners of the lists to leave out, until a message weighs at most `most_parts`.

    Args:
        data: The serialised message.
        bounds: Bounds of the message.

    Raises:
        _TooHeavyError: the message weighs more than `most_parts` even without all lists.
    """
    tally = _Tally(bounds.limits)
    weight = yield from _weigh_in_steps(data, 0, len(data), _CONTRACT, tally)
    owners = tally.excessive
    weight -= sum(tally.shares[owner] - _MARKS for owner in owners)
    snapshot = next(_fields(data, 0, len(data)))[0] == contract.FromMaster.SNAPSHOT_FIELD_NUMBER
    for owner in _heaviest_first(tally) if snapshot else _heaviest_requests(tally):
        if weight <= bounds.most_parts:
            break
        weight -= tally.shares[owner] - _MARKS
        owners.add(owner)
    if weight > bounds.most_parts:
        raise _TooHeavyError
    return owners


def _with_short_resources(
    data: bytes, span: tuple[int, int], descriptor: Descriptor, longest: int
) -> Cooperative[bytes]:
    """Return a message in which resources of too long kinds have their short forms.

    Only resources of agents in a snapshot are shortened.

    Args:
        data: Serialised bytes that contain the message.
        span: Start and end of the message, as byte offsets.
        descriptor: The type of the message.
        longest: Maximum length of a resource without its amount and allocation, in bytes.
    """
    out, last, step = bytearray(), span[0], span[0]
    for number, kind, start, stop in _fields(data, *span):
        field = descriptor.fields_by_number.get(number)
        if (
            kind == _LENGTH_DELIMITED
            and stop - start > SMALL
            and field is not None
            and field.name in _AGENT_RESOURCES.get(descriptor.full_name, ())
        ):
            nested = field.message_type
            if nested is None:
                value = shortened(data[start:stop], longest)
            else:
                value = yield from _with_short_resources(data, (start, stop), nested, longest)
            out += data[last : start - len(varint(stop - start))] + varint(len(value)) + value
            last = stop
        if stop - step >= _STEP:
            step = stop
            yield
    return bytes(out + data[last : span[1]])


def _with_merged_reservations(
    data: bytes,
    span: tuple[int, int],
    descriptor: Descriptor,
    agents: AbstractSet[bytes],
    quotas: Collection[str],
) -> Cooperative[bytes]:
    """Return a snapshot in which the reservations of one principal on each of some agents are sums.

    Args:
        data: Serialised bytes that contain the message.
        span: Start and end of the message, as byte offsets.
        descriptor: The type of the message.
        agents: IDs of the agents.
        quotas: Top-level roles with quotas.
    """
    out, last, step = bytearray(), span[0], span[0]
    for number, kind, start, stop in _fields(data, *span):
        if stop - step >= _STEP:
            step = stop
            yield
        field = descriptor.fields_by_number.get(number)
        if kind != _LENGTH_DELIMITED or field is None or field.name not in {"snapshot", "agents"}:
            continue
        nested = field.message_type
        if nested is not None and nested != contract.AddAgent.DESCRIPTOR:
            value = yield from _with_merged_reservations(
                data, (start, stop), nested, agents, quotas
            )
        elif _framework_id(data, start, stop) in agents:
            value = yield from _merged(data[start:stop], quotas)
        else:
            continue
        out += data[last : start - len(varint(stop - start))] + varint(len(value)) + value
        last = stop
    return bytes(out + data[last : span[1]])


def _roles_with_quotas(data: bytes) -> frozenset[str]:
    """Return the roles with quotas in a serialised snapshot; empty for other messages."""
    snapshot = contract.FromMaster.SNAPSHOT_FIELD_NUMBER
    lists = {
        contract.Snapshot.QUOTAS_FIELD_NUMBER: contract.SetQuota,
        contract.Snapshot.LIMITED_QUOTAS_FIELD_NUMBER: contract.UpdateQuota,
    }
    return frozenset(
        _read(lists[number], data[start:stop]).role
        for outer, _kind, begin, end in _fields(data, 0, len(data))
        for number, _kind, start, stop in _fields(data, begin, end if outer == snapshot else begin)
        if number in lists
    )


def _merged(data: bytes, quotas: Collection[str]) -> Cooperative[bytes]:
    """Return a serialised agent on which the reservations of one principal are added up.

    The principal is that whose reserved resources have the most bytes. A principal with few of them
    keeps its reservations, because otherwise others could make the agent heavy and end its offers.
    If no sum is shorter, the agent is returned unchanged. Generator for cooperative steps.
    """
    agent = _read(contract.AddAgent, data)
    sizes, numbers = Counter[bytes](), Counter[bytes]()
    for number, resource in enumerate(agent.total, 1):
        principal = reserver(resource)
        if principal is not None:
            sizes[principal] += len(resource)
            numbers[principal] += 1
        if not number % RESERVATIONS_A_STEP:
            yield
    for principal, _ in sizes.most_common():
        if numbers[principal] <= FEW_RESERVATIONS:
            continue
        total = yield from merge_reservations(agent.total, principal, quotas, used=False)
        if len(total) < len(agent.total):
            agent.total[:] = total
            for allocation in (*agent.used, *agent.running):
                held = yield from merge_reservations(
                    allocation.resources, principal, quotas, used=True
                )
                allocation.resources[:] = held
            merged: bytes = agent.SerializeToString(deterministic=True)
            return merged
    return data


def _skipped_events(data: bytes, most_parts: int) -> Cooperative[contract.Events]:
    """Return events with only the content that `Engine.note_skipped_events` needs.

    Otherwise a framework with too heavy operations would cost other frameworks their offer filters.

    Args:
        data: A serialised message that contains events.
        most_parts: Maximum weight of the result.

    Raises:
        _TooHeavyError: the result weighs more than `most_parts`.
    """
    events, remaining, last = contract.Events(), float(most_parts), 0
    for _number, kind, begin, end in _fields(data, 0, len(data)):
        for number, _kind, start, stop in _fields(
            data, begin, end if kind == _LENGTH_DELIMITED else begin
        ):
            if number != contract.Events.EVENTS_FIELD_NUMBER:
                continue
            event = _skipped_event(data, start, stop)
            remaining -= _weight(event, contract.Event.DESCRIPTOR)
            if remaining < 0:
                raise _TooHeavyError
            events.events.append(_read(contract.Event, event))
            if stop - last >= _STEP:
                last = stop
                yield
    return events


def _skipped_event(data: bytes, begin: int, end: int) -> bytes:
    """Return a serialised event without the call, unless the call changes offer filters.

    A long call, or a call whose lists change no filters, keeps only the ID in field 1.

    Args:
        data: The serialised bytes.
        begin: Byte offset of the event.
        end: Byte offset of the event's end.
    """
    out, last = bytearray(), begin
    for number, kind, start, stop in _fields(data, begin, end):
        call = contract.Event.DESCRIPTOR.fields_by_number.get(number)
        name = "" if call is None else call.name
        if kind != _LENGTH_DELIMITED or (
            name in _FILTERING_CALLS and stop - start <= MAX_STEP_BYTES
        ):
            out += data[last:stop]
        elif name in _FILTERING_CALLS or name in _CALLS_THAT_END_FILTERS:
            identifier = _framework_id(data, start, stop)
            value = _ID_TAG + varint(len(identifier)) + identifier
            out += varint(number << 3 | _LENGTH_DELIMITED) + varint(len(value)) + value
        last = stop
    return bytes(out)


def _heaviest_requests(tally: _Tally) -> list[_Owner]:
    """Return the owners of REQUEST calls, except excessive ones; those with most weight first."""
    requests = [
        owner for owner in tally.shares if owner[0] == "request" and owner not in tally.excessive
    ]
    return sorted(requests, key=lambda owner: (-tally.shares[owner], owner))


def _heaviest_first(tally: _Tally) -> Iterator[_Owner]:
    """Yield the owners of lists, except excessive ones, in the order in which to leave them out.

    Each time, the group with the heaviest remaining lists loses its heaviest owner.
    """
    groups: defaultdict[tuple[str, bytes], list[tuple[int, _Owner]]] = defaultdict(list)
    for owner, share in tally.shares.items():
        if owner not in tally.excessive:
            groups[tally.group(owner)].append((share, owner))
    heap = []
    for group, members in groups.items():
        members.sort(key=lambda member: (member[0], member[1]))
        heap.append((-sum(share for share, _ in members), group))
    heapq.heapify(heap)
    while heap:
        total, group = heap[0]
        share, owner = groups[group].pop()
        if groups[group]:
            heapq.heapreplace(heap, (total + share, group))
        else:
            heapq.heappop(heap)
        yield owner


def _without_lists(
    data: bytes, span: tuple[int, int], descriptor: Descriptor, cut: _Cut
) -> Cooperative[bytes]:
    """Return a message in which a marker field replaces the lists of some frameworks.

    The marker tells the engine that a list was left out.

    Args:
        data: Serialised bytes that contain the message.
        span: Start and end of the message, as byte offsets.
        descriptor: The type of the message.
        cut: The frameworks whose lists are left out.
    """
    name, shape, (begin, end) = descriptor.full_name, _shape(descriptor), span
    if name == _EXCLUSIONS:
        return (yield from _without_exclusions(data[begin:end], cut))
    if descriptor in _skeletons():
        if _owner(descriptor, _framework_id(data, begin, end)) not in cut.owners:
            return data[begin:end]
        yield
        without: bytes = _without_own_lists(data[begin:end], descriptor).SerializeToString()
        return without + _MARK.get(name, b"")
    lists = _list_numbers(descriptor)
    if lists and _owner(descriptor, _framework_id(data, begin, end)) not in cut.owners:
        lists = frozenset()
    out, last, step = bytearray(), begin, begin
    for number, kind, start, stop in _fields(data, begin, end):
        nested = shape.nested.get(number) if kind == _LENGTH_DELIMITED else None
        if nested is not None and nested.full_name in _carriers():
            value = yield from _without_lists(data, (start, stop), nested, cut)
            out += data[last : start - len(varint(stop - start))] + varint(len(value)) + value
        elif number not in lists:
            out += data[last:stop]
        last = stop
        if stop - step >= _STEP:
            step = stop
            yield
    return bytes(out + _MARK.get(name, b"") if lists else out)


def _without_own_lists(data: bytes, descriptor: Descriptor) -> Any:  # noqa: ANN401 - its type is made at run time
    """Return a framework's call without its lists, as a message with the call's other fields.

    Protobuf skips the lists in C, and creates no object for an entry.

    Args:
        data: The serialised call.
        descriptor: The call's type.

    Raises:
        WireError: the bytes are not a valid message.
    """
    try:
        call = _skeletons()[descriptor].FromString(data)
    except DecodeError as error:
        raise WireError(str(error)) from error
    call.DiscardUnknownFields()
    return call


def _without_exclusions(data: bytes, cut: _Cut) -> Cooperative[bytes]:
    """Return a serialised `ExclusionList` without the entries of some frameworks.

    The list contains the frameworks whose offer constraints exclude one agent. If a framework's
    entries are left out, a field in the first such list tells the engine so.

    Args:
        data: The serialised list of one agent.
        cut: The frameworks whose entries are left out.
    """
    if data == cut.exclusions:
        return cut.kept
    kept, marks, last, step = bytearray(), bytearray(), 0, 0
    for _number, kind, start, stop in _fields(data, 0, len(data)):
        owner = _framework_id(data, start, stop) if kind == _LENGTH_DELIMITED else None
        if owner is None or ("framework", owner) not in cut.owners:
            kept += data[last:stop]
        elif owner not in cut.marked:
            cut.marked.add(owner)
            marks += _unlisted_mark(owner)
        last = stop
        if stop - step >= _STEP:
            step = stop
            yield
    cut.exclusions, cut.kept = data, bytes(kept)
    return bytes(kept + marks)


def _unlisted_mark(framework: bytes) -> bytes:
    """Return a serialised field that tells the engine which framework's exclusions were left out.

    Args:
        framework: The framework ID.
    """
    tag = contract.ExclusionList.UNLISTED_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
    return bytes([tag]) + varint(len(framework)) + framework


def _read(kind: type[M], data: bytes) -> M:
    """Parse bytes as a message of a type; escape text that is not UTF-8 if necessary.

    Raises:
        WireError: the bytes are not a message of this type.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        descriptor: Any = kind.DESCRIPTOR
        try:
            return kind.FromString(_escape_text(data, descriptor))
        except (DecodeError, WireError):
            raise WireError(str(error)) from error


def _after_field(  # noqa: PLR0913, PLR0917 - a field, where it is, and in what
    data: bytes, start: int, stop: int, number: int, shape: _Shape, remaining: float
) -> float:
    """Subtract the weight (estimated memory) of a field and its content from a remaining weight.

    Args:
        data: The serialised bytes.
        start: Byte offset of the field's value.
        stop: Byte offset of the value's end.
        number: The field's number.
        shape: Shape of the message type that contains the field.
        remaining: Weight that this field and later fields together may have.

    Returns:
        The weight that later fields may have; below 0 if this field is too heavy.
    """
    nested = shape.nested.get(number)
    if nested in _skeletons() and stop - start > _LONG_CALL:
        call = run_to_completion(_weigh_call(data, (start, stop), nested, _LIMITS))
        return remaining - call.listed - call.unlisted
    if nested is not None:
        return _after_message(data, start, stop, nested, remaining)
    if number in shape.opaque:
        return remaining - _OPAQUE - int((stop - start) * shape.per_byte)
    return remaining - 1


def _after_message(
    data: bytes, begin: int, end: int, descriptor: Descriptor, remaining: float
) -> float:
    """Subtract the weight (estimated memory) of a message and its content from a remaining weight.

    Args:
        data: The serialised bytes.
        begin: Byte offset of the message.
        end: Byte offset of the message's end.
        descriptor: The message's type.
        remaining: Weight that this message and later messages together may have.

    Returns:
        The weight that later messages may have; below 0 if this message is too heavy.
    """
    shape = _shape(descriptor)
    remaining -= shape.weight
    for number, kind, start, stop in _fields(data, begin, end):
        if remaining < 0:
            break
        if kind == _LENGTH_DELIMITED:
            remaining = _after_field(data, start, stop, number, shape, remaining)
    return remaining


def _escape_text(data: bytes, descriptor: Descriptor) -> bytes:
    """Return a serialised message in which text that is not UTF-8 is escaped.

    Args:
        data: The serialised message.
        descriptor: The message's type.
    """
    shape, out, last = _shape(descriptor), bytearray(), 0
    for number, kind, start, stop in _fields(data, 0, len(data)):
        if kind != _LENGTH_DELIMITED:
            continue
        value = data[start:stop]
        if number in shape.nested:
            value = _escape_text(value, shape.nested[number])
        elif number in shape.texts and not _is_utf8(value):
            value = readable(value).encode()
        if value != data[start:stop]:
            out += data[last : start - len(varint(stop - start))] + varint(len(value)) + value
            last = stop
    return bytes(out + data[last:])


def _fields(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a serialised message within a range of bytes.

    Yields:
        Field number, wire type, and byte offsets of the value's start and end.

    Raises:
        WireError: the message ends within a field or is invalid.
    """
    at = begin
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:  # usually a tag is one byte, and there are many tags
            tag, at = _read_varint(data, at - 1, end)
        kind = tag & 7
        start = at
        if kind == _LENGTH_DELIMITED:
            if at + 1 < end and data[at + 1] <= 0x7F < data[at]:  # two bytes, as for an agent
                length, start = data[at] & 0x7F | data[at + 1] << 7, at + 2
            else:
                length, start = _read_varint(data, at, end)
            at = start + length
        elif kind == 0:
            _number, at = _read_varint(data, at, end)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise WireError("a group")
        if at > end:
            raise WireError("a field is longer than its message")
        yield tag >> 3, kind, start, at


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Decode a protobuf variable-length integer.

    Args:
        data: The serialised bytes.
        at: Byte offset at which the number begins.
        end: Byte offset at which the message ends.

    Returns:
        The number, and the byte offset after it.

    Raises:
        WireError: the number does not end within the message.
    """
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("a number that does not end")


def varint(number: int) -> bytes:
    """Encode a number as protobuf's variable-length integer."""
    if number <= 0x7F:
        return bytes((number,))
    if number <= 0x3FFF:  # the length of most messages
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _is_utf8(value: bytes) -> bool:
    """Return whether bytes are valid UTF-8."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@cache
def _shape(descriptor: Descriptor) -> _Shape:
    """Return what `_weigh_in_steps` needs to know of a message type; computed once per type."""
    return _Shape(
        _HEAVY.get(descriptor.full_name, 1),
        {
            field.number: field.message_type
            for field in descriptor.fields
            if field.message_type is not None
        },
        frozenset(f.number for f in descriptor.fields if f.type == FieldDescriptor.TYPE_STRING),
        frozenset(f.number for f in descriptor.fields if f.type == FieldDescriptor.TYPE_BYTES),
        0.0 if descriptor.full_name in _BOUNDED else 1 / _BYTES,
    )


@cache
def _list_numbers(descriptor: Descriptor) -> frozenset[int]:
    """Return the numbers of the fields of a message type whose length one framework decides.

    They are the lists that are left out of a message that is too heavy.
    """
    names = _LISTS.get(descriptor.full_name, ())
    return frozenset(descriptor.fields_by_name[name].number for name in names)


@cache
def _skeletons() -> dict[Descriptor, type[Message]]:
    """Return, for each call of a framework with lists, a message type without these lists.

    The other fields have the same numbers. Text is declared as bytes, so it need not be UTF-8.
    """
    file = descriptor_pb2.FileDescriptorProto(name="skeletons", package="longshare.skeletons")
    calls = [
        descriptor
        for descriptor in _reachable(_CONTRACT)
        if descriptor.full_name in _LISTS and descriptor is not contract.AddAgent.DESCRIPTOR
    ]
    for descriptor in calls:
        skeleton = file.message_type.add(name=descriptor.name)
        for each in descriptor.fields:
            if each.number not in _list_numbers(descriptor):
                skeleton.field.add(
                    name=each.name,
                    number=each.number,
                    label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
                    type=(
                        descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
                        if each.type == FieldDescriptor.TYPE_BOOL
                        else descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                    ),
                )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        descriptor: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{file.package}.{descriptor.name}")
        )
        for descriptor in calls
    }


@cache
def _carriers() -> frozenset[str]:
    """Return the names of message types that can contain lists whose length a framework decides.

    Examples of such lists are offer constraints and suppressed roles.
    """
    lists = {_EXCLUSIONS, *_LISTS}
    return frozenset(
        descriptor.full_name
        for descriptor in _reachable(_CONTRACT)
        if lists & {inner.full_name for inner in _reachable(descriptor)}
    )


@cache
def _first_bytes() -> list[tuple[int, bytes]]:
    """Return, for each possible first byte of a field, the maximum weight of such a field.

    The weight estimates the field's memory once parsed. `_may_exceed` uses the result. A field
    unknown to the contract weighs 1, as a text field does.

    Returns:
        Pairs of a maximum weight and a byte string with all first bytes that have this maximum.
    """
    weights = {byte: 1 for byte in range(256) if byte & 7 == _LENGTH_DELIMITED}
    for descriptor in _reachable(_CONTRACT):
        shape = _shape(descriptor)
        for number in (*shape.nested, *shape.opaque):
            nested = shape.nested.get(number)
            weight = _OPAQUE if nested is None else _shape(nested).weight
            first = (number << 3 | _LENGTH_DELIMITED) & 0x7F
            for byte in (first, first | 0x80):  # 0x80: further bytes of the number follow
                weights[byte] = max(weights[byte], weight)
    return [
        (distinct, bytes(byte for byte, weight in weights.items() if weight == distinct))
        for distinct in sorted(set(weights.values()))
    ]


def _reachable(descriptor: Descriptor) -> set[Descriptor]:
    """Return the type of a message, and the types of all contract messages that it may contain."""
    descriptors, pending = set[Descriptor](), {descriptor}
    while pending:
        descriptors |= pending
        pending = {
            inner for parent in pending for inner in _shape(parent).nested.values()
        } - descriptors
    return descriptors
