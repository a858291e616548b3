"""Parses subscriptions (FrameworkInfo messages); no content can make the parsing fail.

No master validates labels, text or amounts. A framework with an unacceptable subscription is
quarantined: the framework gets no offers, but its resources still count.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from google.protobuf.message import DecodeError

from allocator.cluster.agents.placement_constraints import (
    ATTRIBUTES,
    BLACKLIST,
    WHITELIST,
    Constraint,
    at_most,
    has_open_bracket,
    label_text,
    parse_constraint,
)
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.resource_parser import check_limits
from allocator.cluster.input.text import (
    count_role_nodes,
    excerpt,
    is_text,
    is_valid_role,
    readable,
)
from allocator.cluster.resources import InvalidResource, parse_total
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from allocator.formatting import shortened

DEMAND = "longshare.demand"
"""Framework label: the resources of one of its tasks, such as `cpus:1;mem:1024`."""
_NAME = "longshare"
_PREFIX = f"{_NAME}."
"""Prefix of the labels that Longshare reads."""
_LABELS = (DEMAND, WHITELIST, BLACKLIST, ATTRIBUTES)
_LETTERS = frozenset(_NAME)
"""The letters of the name, which all differ."""
_EDITS = 2
"""Most characters by which a misspelt prefix differs from the name."""
_MOST_NAMED = 8
"""Maximum number of unknown labels of a framework that are reported."""
_QUANTITIES = 4
"""Maximum number of quantities in offer filters, as a multiple of `limits.entries`."""
_LONGEST_KEY = 1000
"""Maximum length of an unknown label of which anything is read; reports are shorter."""
_LONGEST_TYPO = 64
"""Maximum length in characters of a label for which a correction is suggested."""

Alternatives: TypeAlias = tuple[Quantities, ...]
"""Alternative minimums of an offer (`min_allocatable`): an offer must reach one. Empty: no
minimum."""

_Key: TypeAlias = frozenset[tuple[str, int]]
"""Entries of a minimum."""

_MULTI_ROLE = mesos.FrameworkInfo.Capability.MULTI_ROLE


@dataclass(frozen=True, slots=True)
class Subscription:
    """The fields of a framework's subscription that the allocator uses, parsed and validated.

    An invalid subscription has an error in `flaw`.
    """

    name: str = ""
    """The framework's name; bytes that are not UTF-8 are escaped."""
    principal: str = ""
    """The framework's principal; bytes that are not UTF-8 are escaped."""
    roles: frozenset[str] = frozenset()
    capabilities: frozenset[int] = frozenset()
    """Values of `FrameworkInfo.Capability.Type`."""
    min_allocatable: dict[str, Alternatives] = field(default_factory=dict)
    """role → minimum allocatable resources, in place of the master's minimum"""
    demand: Quantities | None = None
    """Resources of one task, as stated by a label; None if unknown."""
    unreadable: str = ""
    """Errors in the demand label, which is then ignored, and unknown labels; else empty."""
    constraint: Constraint = field(default_factory=Constraint)
    """Placement constraint of the framework's tasks, as stated by labels."""
    flaw: ValidationError | None = None
    """Why the framework is quarantined; None if the subscription is acceptable."""


class _Unacceptable(Exception):  # noqa: N818 - the name describes the subscription
    """Raised if a subscription is so invalid that its framework must not get any offers."""

    def __init__(self, flaw: ValidationError) -> None:
        self.flaw = flaw


def read_subscription(framework_id: str, data: bytes, limits: Limits) -> Subscription:
    """Parse a serialised FrameworkInfo. The result's `flaw` contains an error, if any.

    Costs O(size of the message).

    Args:
        framework_id: The framework's ID, for checks and error messages.
        data: The serialised FrameworkInfo.
        limits: Bounds on the subscription.
    """
    if len(data) > limits.subscription:
        message = f"its FrameworkInfo has {len(data)} bytes, more than {limits.subscription}"
        return Subscription(flaw=ValidationError("limit", f"{message} (limits.subscription)"))
    try:
        info = mesos.FrameworkInfo.FromString(data)
    except DecodeError as error:
        message = f"its info is not a serialised mesos.FrameworkInfo: {error}"
        return Subscription(flaw=ValidationError("malformed", message))
    longest = limits.name if limits.entries else len(data)
    name, principal = excerpt(info.name, longest), excerpt(info.principal, longest)
    roles: frozenset[str] = frozenset()
    try:
        _check_lists(info, limits)
        _check_names(framework_id, info, limits)
        roles = _roles(info, limits)
        min_allocatable = _min_allocatable(info, limits)
    except _Unacceptable as error:
        return Subscription(name, principal, roles, flaw=error.flaw)
    except UnicodeDecodeError:  # protobuf decodes the keys of maps, but no other text
        flaw = ValidationError(
            "text", "offer_filters: the name of a role or a resource is not UTF-8"
        )
        return Subscription(name, principal, roles, flaw=flaw)
    labels = _own_labels(info.labels)
    demand, unreadable = _demand(labels, limits)
    errors = [unreadable] if unreadable else []
    errors += islice(_unknown(key for key, _value in labels), _MOST_NAMED)
    constraint = parse_constraint(dict(labels), limits)
    if unclosed := next(filter(has_open_bracket, constraint.blacklist.items), ""):
        errors.append(shortened(f"label {BLACKLIST}: {unclosed!r} has a bracket without its end"))
    return Subscription(
        name,
        principal,
        roles,
        frozenset(capability.type for capability in info.capabilities),
        min_allocatable,
        demand,
        "; ".join(errors),
        constraint,
    )


def read_request(
    data: bytes, limits: Limits, *, otherwise: Quantities | None
) -> tuple[Quantities | None, ValidationError | None]:
    """Parse a serialised Mesos Request as the demand of one task.

    Args:
        data: The serialised Request.
        limits: Bounds on the size of the request.
        otherwise: The demand to return if the request is unacceptable.

    Returns:
        The demand, and None; or `otherwise`, and a validation error.
    """
    if len(data) > limits.subscription:
        message = f"a request of {len(data)} bytes, more than {limits.subscription}"
        return otherwise, ValidationError("limit", f"{message} (limits.subscription)")
    try:
        wanted = mesos.Request.FromString(data).resources
        if len(wanted) > limits.resources:
            message = f"a request for {len(wanted)} resources, more than {limits.resources}"
            return otherwise, ValidationError("limit", f"{message} (limits.resources)")
        resources = [resource.SerializePartialToString() for resource in wanted]
        if limits.entries:
            size = sum(map(len, resources))
            if size > limits.resource:
                message = f"a request for resources of {size} bytes, more than {limits.resource}"
                return otherwise, ValidationError("limit", f"{message} (limits.resource)")
            check_limits(resources, limits)
            _check_values(wanted, limits)
        asked = parse_total(resources)
    except DecodeError as error:
        return otherwise, ValidationError("malformed", f"a request is not a mesos.Request: {error}")
    except InvalidResource as error:
        return otherwise, ValidationError(error.reason, f"a request: {error}")
    # No agent has a resource with a longer name, so the rest of the name has no effect.
    quantities = {name[: limits.name]: amount for name, amount in asked.quantities.items()}
    return Quantities(quantities) or None, None


def _check_values(wanted: Iterable[mesos.Resource], limits: Limits) -> None:
    """Check the number of ranges and items that a request has in all its resources together.

    Raises:
        InvalidResource: There are too many.
    """
    number = sum(len(entry.ranges.range) + len(entry.set.item) for entry in wanted)
    if limits.requested and number > limits.requested:
        message = f"it has {number} ranges and items, more than {limits.requested}"
        raise InvalidResource(f"{message} (limits.entries)", "limit")


def _check_names(framework_id: str, info: mesos.FrameworkInfo, limits: Limits) -> None:
    """Check a framework's ID, name and principal, before its other fields are read.

    Raises:
        _Unacceptable: One of the three is invalid or too long.
    """
    if info.HasField("id") and info.id.value != framework_id:
        raise _Unacceptable(
            ValidationError(
                "contradiction", f"its info names another id, {excerpt(info.id.value)!r}"
            )
        )
    if not is_text(info.principal):
        raise _Unacceptable(
            ValidationError("text", f"its principal is not UTF-8: {excerpt(info.principal)}")
        )
    names = {"id": framework_id, "name": info.name, "principal": info.principal}
    for field_name, text in names.items():
        _check_length(field_name, text, limits)


def _check_lists(info: mesos.FrameworkInfo, limits: Limits) -> None:
    """Check that no list in a subscription is too long, before the lists are read.

    Raises:
        _Unacceptable: A list is too long.
    """
    if not limits.entries:
        return
    lengths = {
        "labels": len(info.labels.labels),
        "capabilities": len(info.capabilities),
        "offer filters": len(info.offer_filters),
    }
    for field_name, number in lengths.items():
        if number > limits.entries:
            message = f"it has {number} {field_name}, more than {limits.entries} (limits.entries)"
            raise _Unacceptable(ValidationError("limit", message))


def _check_length(field_name: str, value: str | bytes, limits: Limits) -> None:
    """Check that a text field is not longer than the limits allow.

    The length is counted in bytes, after bytes that are not UTF-8 are replaced by escapes.

    Args:
        field_name: Name of the field, for the error message.
        value: The text.
        limits: Bounds on the subscription.

    Raises:
        _Unacceptable: The text is too long.
    """
    size = len(value)
    if size <= limits.name:
        size = len(readable(value).encode())
    if size > limits.name:
        raise _Unacceptable(
            ValidationError(
                "limit", f"its {field_name} has {size} bytes, more than {limits.name} (limits.name)"
            )
        )


def _roles(info: mesos.FrameworkInfo, limits: Limits) -> frozenset[str]:
    """Return the roles that the framework subscribes with.

    Raises:
        _Unacceptable: A role is invalid, or the roles exceed a limit.
    """
    multi_role = any(capability.type == _MULTI_ROLE for capability in info.capabilities)
    roles = info.roles if multi_role else (info.role,)
    if len(roles) > limits.roles:
        message = f"it has {len(roles)} roles, more than {limits.roles} (limits.roles)"
        raise _Unacceptable(ValidationError("limit", message))
    for role in roles:
        if not is_text(role):
            raise _Unacceptable(ValidationError("text", f"a role is not UTF-8: {excerpt(role)}"))
        _check_length("role", role, limits)
        depth = role.count("/") + 1
        if depth > limits.role_depth:
            message = f"a role has {depth} levels, more than {limits.role_depth}"
            raise _Unacceptable(ValidationError("limit", f"{message} (limits.role_depth)"))
        if not is_valid_role(role):
            raise _Unacceptable(
                ValidationError("malformed", f"{role!r} is not a valid name of a role")
            )
    places = count_role_nodes(roles)
    if places > limits.roles:
        message = f"its roles and those above them are {places}, more than {limits.roles}"
        raise _Unacceptable(ValidationError("limit", f"{message} (limits.roles)"))
    return frozenset(roles)


def _min_allocatable(info: mesos.FrameworkInfo, limits: Limits) -> dict[str, Alternatives]:
    """Return, by role, the minimum offer sizes that the framework has set (`min_allocatable`).

    An offer in the role must reach at least one of these alternative minimums.

    Raises:
        _Unacceptable: The quantities are invalid or exceed a limit.
    """
    where = "offer_filters: min_allocatable_resources"
    by_role: dict[str, Alternatives] = {}
    different: dict[_Key, Quantities] = {}
    same: dict[tuple[_Key, ...], Alternatives] = {}
    quantities, most = 0, _QUANTITIES * limits.entries
    for role, filters in info.offer_filters.items():
        if not filters.HasField("min_allocatable_resources"):
            continue
        given = filters.min_allocatable_resources.quantities
        lengths = [len(minimum.quantities) for minimum in given[: limits.resources]]
        if max(len(given), *lengths, 0) > limits.resources:
            message = f"{where}: more than {limits.resources} (limits.resources)"
            raise _Unacceptable(ValidationError("limit", message))
        quantities += sum(lengths)
        if limits.entries and quantities > most:
            message = f"{where}: more than {most} quantities (4 × limits.entries)"
            raise _Unacceptable(ValidationError("limit", message))
        amounts = [
            {n[: limits.name]: s.value for n, s in minimum.quantities.items()} for minimum in given
        ]
        if any(not is_text(name) for names in amounts for name in names):
            raise _Unacceptable(
                ValidationError("text", f"{where}: the name of a resource is not UTF-8")
            )
        try:
            minimums = list(map(Quantities.from_doubles, amounts))
        except ValueError as error:
            raise _Unacceptable(ValidationError("malformed", f"{where}: {error}")) from error
        keys = {_key(minimum): minimum for minimum in minimums}
        for key, minimum in keys.items():
            different.setdefault(key, minimum)
        if 0 < limits.minimums < len(different):
            message = f"{where}: more than {limits.minimums} different ones (limits.minimums)"
            raise _Unacceptable(ValidationError("limit", message))
        # Roles with the same alternatives share one object, so that each is compared once.
        alternatives = tuple(different[key] for key in keys)
        by_role[role] = same.setdefault(tuple(keys), alternatives)
    return by_role


def _key(quantities: Quantities) -> _Key:
    """Return a hashable key of quantities, to detect equal alternatives."""
    return frozenset(quantities.items())


def _own_labels(labels: mesos.Labels) -> list[tuple[str | bytes, str | bytes]]:
    """Return (key, value) of labels whose key begins with Longshare's name, perhaps misspelt.

    Blanks before the name do not count, nor does the case. The name in a misspelt prefix, such as
    `longshre.`, differs by at most `_EDITS` characters. At most `_MOST_NAMED` keys are compared
    with the name, because that takes time.
    """
    own: list[tuple[str | bytes, str | bytes]] = []
    compared = 0
    for label in labels.labels:
        key: str | bytes = label.key
        begin = readable(key[:_LONGEST_TYPO]).lstrip().lower()
        if begin.startswith(_NAME):
            own.append((key, label.value))
        elif compared < _MOST_NAMED and _resembles_name(head := begin.partition(".")[0], begin):
            compared += 1
            if _edits(head, _NAME) <= _EDITS:
                own.append((key, label.value))
    return own


def _resembles_name(head: str, key: str) -> bool:
    """Return whether the part of a key before its dot has about the letters of Longshare's name."""
    alike = len(_LETTERS.intersection(head)) >= len(_NAME) - _EDITS
    return alike and head != key and abs(len(head) - len(_NAME)) <= _EDITS


def _edits(text: str, other: str) -> int:
    """Return how many characters must be inserted, removed or replaced to make two texts equal.

    Costs O(product of the lengths).
    """
    row = list(range(len(other) + 1))
    for number, character in enumerate(text, start=1):
        diagonal, row[0] = row[0], number
        for position, wanted in enumerate(other, start=1):
            best = min(row[position] + 1, row[position - 1] + 1, diagonal + (character != wanted))
            diagonal, row[position] = row[position], best
    return row[-1]


def _demand(
    labels: Iterable[tuple[str | bytes, str | bytes]], limits: Limits
) -> tuple[Quantities | None, str]:
    """Read the demand of one task from a framework's labels.

    Returns:
        The demand, or None without a valid label; and an error message about the label, or "".
    """
    for key, value in labels:
        if key == DEMAND:
            try:
                text = label_text(value, limits)
                if limits.entries:
                    entries = sum(not entry.isspace() for entry in text.split(";") if entry)
                    at_most(limits.resources, entries, "resources (limits.resources)")
                demand = Quantities.parse(text)
                at_most(limits.resources, len(demand), "resources (limits.resources)")
            except ValueError as error:
                return None, shortened(f"label {DEMAND}: {error}")
            if not demand and text.strip():
                return None, f"label {DEMAND}: a task must need more than 0 of some resource"
            return demand or None, ""
    return None, ""


def _unknown(keys: Iterable[str | bytes]) -> Iterator[str]:
    """Yield an error message for each unknown label that is meant for Longshare.

    These labels have Longshare's prefix, perhaps misspelt (`longshre.demand`), or are similar to a
    known key (`longshare_demand`). A message suggests a known key, if a similar one exists, or else
    the correct prefix.

    Args:
        keys: Keys of the labels that begin with Longshare's name, perhaps misspelt.
    """
    other_programs = 0
    for field_name in keys:
        key = excerpt(field_name, _LONGEST_KEY)
        if key in _LABELS or other_programs > _MOST_NAMED:
            continue
        message = f"label {shortened(key)} is not known"
        typo = key.lower() if len(key) <= _LONGEST_TYPO else ""
        is_misspelt = not key.lower().lstrip().startswith(_NAME)
        has_prefix = is_misspelt or key.lower().startswith(_PREFIX)
        close = difflib.get_close_matches(typo, _LABELS, n=1, cutoff=0.7 if has_prefix else 0.8)
        if not has_prefix and not close:
            other_programs += 1  # such as longshare-team
            continue
        meant = close[0] if close else "a label with the prefix longshare." if is_misspelt else ""
        yield f"{message}; did you mean {meant}?" if meant else message
