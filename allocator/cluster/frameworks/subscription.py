"""What a framework says of itself, read: nothing that it says can make the reading fail.

No master checks labels, text or amounts. What cannot be accepted sets the framework aside, which
then gets no offers; what it holds stays counted.
"""

import difflib
from collections.abc import Iterator
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
    label_text,
    parse_labels,
)
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.text import is_path, is_text, levels, readable, shortened
from allocator.cluster.resources import InvalidResource, parse_total
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

DEMAND = "longshare.demand"
"""Label by which a framework says what one of its tasks needs: `cpus:1;mem:1024`."""
_OURS = "longshare."
"""What labels that are read here begin with."""
_LABELS = (DEMAND, WHITELIST, BLACKLIST, ATTRIBUTES)
_MOST_NAMED = 8
"""Unknown labels of a framework that are named."""
_LONGEST_SLIP = 64
"""Characters of a label that may still be a slip of the pen."""

Alternatives: TypeAlias = tuple[Quantities, ...]
"""Minimum allocatable resources: an offer must reach one of these; none at all: any will do."""

_MULTI_ROLE = mesos.FrameworkInfo.Capability.MULTI_ROLE


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a framework says of itself, as far as it can be read."""

    name: str = ""
    """What it calls itself; what is not UTF-8 of it is escaped."""
    principal: str = ""
    roles: frozenset[str] = frozenset()
    capabilities: frozenset[int] = frozenset()
    """Values of `FrameworkInfo.Capability.Type`."""
    min_allocatable: dict[str, Alternatives] = field(default_factory=dict)
    """By role; replaces the master's own."""
    demand: Quantities | None = None
    """What one task needs, as a label says."""
    unreadable: str = ""
    """What is wrong with that label, which is as good as none then; which labels mean nothing."""
    constraint: Constraint = field(default_factory=Constraint)
    """Where its tasks may run, as labels say."""
    flaw: ValidationError | None = None
    """Why it is set aside; None: it is not."""


class _Unacceptable(Exception):  # noqa: N818 - it names what was said
    def __init__(self, flaw: ValidationError) -> None:
        self.flaw = flaw


def read_subscription(framework_id: str, data: bytes, limits: Limits) -> Subscription:
    """Read a serialised FrameworkInfo. O(its size)."""
    if len(data) > limits.subscription:
        words = f"its FrameworkInfo has {len(data)} bytes, more than {limits.subscription}"
        return Subscription(flaw=ValidationError("limit", f"{words} (limits.subscription)"))
    try:
        info = mesos.FrameworkInfo.FromString(data)
    except DecodeError as error:
        words = f"its info is not a serialised mesos.FrameworkInfo: {error}"
        return Subscription(flaw=ValidationError("malformed", words))
    name, principal = readable(info.name), readable(info.principal)
    roles: frozenset[str] = frozenset()
    try:
        _check_names(framework_id, info, limits)
        roles = _roles(info, limits)
        min_allocatable = _min_allocatable(info, limits)
    except _Unacceptable as error:
        return Subscription(name, principal, roles, flaw=error.flaw)
    except UnicodeDecodeError:  # keys of maps are decoded, other text is not
        flaw = ValidationError(
            "text", "offer_filters: the name of a role or a resource is not UTF-8"
        )
        return Subscription(name, principal, roles, flaw=flaw)
    demand, unreadable = _demand(info, limits)
    complaints = [unreadable] if unreadable else []
    complaints += islice(_unknown(info), _MOST_NAMED)
    return Subscription(
        name,
        principal,
        roles,
        frozenset(capability.type for capability in info.capabilities),
        min_allocatable,
        demand,
        "; ".join(complaints),
        parse_labels(info.labels, limits),
    )


def read_request(
    data: bytes, limits: Limits, *, otherwise: Quantities | None
) -> tuple[Quantities | None, ValidationError | None]:
    """Read a serialised Request for what one task needs.

    Returns:
        The demand; `otherwise` and what is wrong, if it cannot be accepted.
    """
    if len(data) > limits.subscription:
        words = f"a request of {len(data)} bytes, more than {limits.subscription}"
        return otherwise, ValidationError("limit", f"{words} (limits.subscription)")
    try:
        wanted = mesos.Request.FromString(data).resources
        if len(wanted) > limits.resources:
            words = f"a request for {len(wanted)} resources, more than {limits.resources}"
            return otherwise, ValidationError("limit", f"{words} (limits.resources)")
        asked = parse_total(resource.SerializePartialToString() for resource in wanted)
    except DecodeError as error:
        return otherwise, ValidationError("malformed", f"a request is not a mesos.Request: {error}")
    except InvalidResource as error:
        return otherwise, ValidationError("malformed", f"a request: {error}")
    return asked.quantities or None, None


def _check_names(framework_id: str, info: mesos.FrameworkInfo, limits: Limits) -> None:
    if info.HasField("id") and info.id.value != framework_id:
        raise _Unacceptable(
            ValidationError(
                "contradiction", f"its info names another id, {readable(info.id.value)!r}"
            )
        )
    if not is_text(info.principal):
        raise _Unacceptable(
            ValidationError("text", f"its principal is not UTF-8: {readable(info.principal)}")
        )
    names = {"id": framework_id, "name": readable(info.name), "principal": info.principal}
    for what, text in names.items():
        _check_length(what, text, limits)


def _check_length(what: str, text: str, limits: Limits) -> None:
    size = len(text.encode())
    if size > limits.name:
        raise _Unacceptable(
            ValidationError(
                "limit", f"its {what} has {size} bytes, more than {limits.name} (limits.name)"
            )
        )


def _roles(info: mesos.FrameworkInfo, limits: Limits) -> frozenset[str]:
    multi_role = any(capability.type == _MULTI_ROLE for capability in info.capabilities)
    roles = info.roles if multi_role else (info.role,)
    if len(roles) > limits.roles:
        words = f"it has {len(roles)} roles, more than {limits.roles} (limits.roles)"
        raise _Unacceptable(ValidationError("limit", words))
    for role in roles:
        if not is_text(role):
            raise _Unacceptable(ValidationError("text", f"a role is not UTF-8: {readable(role)}"))
        _check_length("role", role, limits)
        depth = role.count("/") + 1
        if depth > limits.role_depth:
            words = f"a role has {depth} levels, more than {limits.role_depth}"
            raise _Unacceptable(ValidationError("limit", f"{words} (limits.role_depth)"))
        if not is_path(role):
            raise _Unacceptable(ValidationError("malformed", f"{role!r} is no role"))
    places = levels(roles)
    if places > limits.roles:
        words = f"its roles and those above them are {places}, more than {limits.roles}"
        raise _Unacceptable(ValidationError("limit", f"{words} (limits.roles)"))
    return frozenset(roles)


def _min_allocatable(info: mesos.FrameworkInfo, limits: Limits) -> dict[str, Alternatives]:
    where = "offer_filters: min_allocatable_resources"
    made: dict[str, Alternatives] = {}
    for role, filters in info.offer_filters.items():
        if not filters.HasField("min_allocatable_resources"):
            continue
        alternatives = filters.min_allocatable_resources.quantities
        amounts = [{n: s.value for n, s in each.quantities.items()} for each in alternatives]
        if any(not is_text(name) for names in amounts for name in names):
            raise _Unacceptable(
                ValidationError("text", f"{where}: the name of a resource is not UTF-8")
            )
        if max(len(amounts), *map(len, amounts), 0) > limits.resources:
            words = f"{where}: more than {limits.resources} (limits.resources)"
            raise _Unacceptable(ValidationError("limit", words))
        try:
            made[role] = tuple(map(Quantities.from_doubles, amounts))
        except ValueError as error:
            raise _Unacceptable(ValidationError("malformed", f"{where}: {error}")) from error
    return made


def _demand(info: mesos.FrameworkInfo, limits: Limits) -> tuple[Quantities | None, str]:
    """Return the demand, and what is wrong with the label."""
    for label in info.labels.labels:
        if label.key == DEMAND:
            try:
                demand = Quantities.parse(label_text(label.value, limits))
                at_most(limits.resources, len(demand), "resources (limits.resources)")
            except ValueError as error:
                return None, shortened(f"label {DEMAND}: {error}")
            return demand or None, ""
    return None, ""


def _unknown(info: mesos.FrameworkInfo) -> Iterator[str]:
    """Go through labels that look like ours and mean nothing, with what was probably meant."""
    for label in info.labels.labels:
        key = readable(label.key)
        if not key.lower().startswith(_OURS) or key in _LABELS:
            continue
        said = f"label {shortened(key)} is not known"
        slip = key.lower() if len(key) <= _LONGEST_SLIP else ""
        close = difflib.get_close_matches(slip, _LABELS, n=1, cutoff=0.7)
        yield f"{said}; did you mean {close[0]}?" if close else said
