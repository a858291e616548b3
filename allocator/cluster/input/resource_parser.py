"""Resource parser: parses resources received from the master, and skips invalid ones."""

from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import Reason, ValidationError
from allocator.cluster.resources import (
    NOTHING,
    InvalidResource,
    Resources,
    decoded,
    entries,
    known_allocated,
    parse_allocated_in_steps,
    parse_total,
    parse_used,
    shortened,
)
from allocator.cluster.resources.kinds import SMALL, has_short_form
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion

_RESOURCES_A_STEP = 20
"""Number of resources that one cooperative step checks. Each can have `limits.resource` bytes."""


class ResourceParser:
    """Parses the resources of one call, shortens too long kinds, and skips invalid resources.

    A resource of a too long kind still counts, so a tenant cannot hide what it holds behind long
    labels. It is not offered.

    An invalid resource is skipped in every call that contains it. The ledger is therefore
    consistent without the resource. Each resource is validated singly only if parsing all of them
    at once fails, so valid resources have no extra cost.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.flaw: ValidationError | None = None
        """Validation error of the first skipped or shortened resource; None if there is none."""
        self.skipped: list[bytes] = []
        """The skipped resources, serialised."""

    def total(self, messages: Sequence[bytes]) -> Resources:
        """Parse resources that must have no allocation, such as an agent's total."""
        try:
            return parse_total(self._limited(messages))
        except InvalidResource:
            return parse_total(self._usable(messages, allocated=False))

    def used(self, messages: Sequence[bytes]) -> dict[str, Resources]:
        """Parse resources that are allocated to any number of roles; return them by role."""
        try:
            return parse_used(self._limited(messages))
        except InvalidResource:
            return parse_used(self._usable(messages, allocated=True))

    def allocated(self, messages: Sequence[bytes]) -> tuple[str, Resources]:
        """Parse resources that are all allocated to one role; return the role and the resources.

        Raises:
            InvalidResource: The resources are allocated to several roles.
        """
        return run_to_completion(self.allocated_in_steps(messages))

    def known(self, messages: Sequence[bytes]) -> tuple[str, Resources] | None:
        """Return the result of `allocated` if the resources are short, and were parsed before."""
        known = known_allocated(tuple(messages))
        return known if known is not None and len(b"".join(messages)) <= SMALL else None

    def allocated_in_steps(self, messages: Sequence[bytes]) -> Cooperative[tuple[str, Resources]]:
        """Generator form of `allocated`, because a call may have thousands of resources."""
        try:
            limited = yield from self._limited_in_steps(messages)
            parsed = yield from parse_allocated_in_steps(limited)
        except InvalidResource:
            usable = self._usable(messages, allocated=True)
            if not usable:
                return "", NOTHING
            parsed = yield from parse_allocated_in_steps(usable)
        return parsed

    @property
    def skips_whole_kinds(self) -> bool:
        """Whether each skipped resource is skipped because of its kind, whatever its amount.

        No record then contains a part of it. Without `limits.entries`, as in old event logs, the
        result is false if any resource is skipped.
        """
        limits = self._limits
        return not self.skipped or (
            limits.entries > 0 and all(_kind_exceeds_limits(data, limits) for data in self.skipped)
        )

    def _limited(self, messages: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return serialised resources as a tuple, after checking that none exceeds a limit.

        Resources of too long kinds are shortened.

        Raises:
            InvalidResource: A message exceeds a limit.
        """
        return run_to_completion(self._limited_in_steps(messages))

    def _limited_in_steps(self, messages: Iterable[bytes]) -> Cooperative[tuple[bytes, ...]]:
        """Generator form of `_limited`."""
        all_messages = tuple(messages)
        if sum(map(len, all_messages)) <= SMALL:  # a cheap first test
            return all_messages
        shortens = self._limits.resource_kind > 0  # then no resource has too many entries
        checked = list[bytes]()
        for begin in range(0, len(all_messages), _RESOURCES_A_STEP):
            if begin:
                yield
            part: Sequence[bytes] = all_messages[begin : begin + _RESOURCES_A_STEP]
            if shortens:
                part = list(map(self._shortened, part))
            check_limits(part, self._limits, counts_entries=not shortens)
            checked += part
        return tuple(checked)

    def _shortened(self, data: bytes) -> bytes:
        """Return a serialised resource, in a short form if its kind exceeds a limit."""
        short = data if len(data) <= SMALL else shortened(data, self._limits.resource_kind)
        if short is not data and self.flaw is None and has_short_form(decoded(short)[0]):
            self.flaw = ValidationError(
                "limit",
                f"a resource of {len(data)} bytes counts, but is not offered: its labels or "
                "identifiers exceed limits.resource_kind",
            )
        return short

    def _usable(self, messages: Iterable[bytes], *, allocated: bool) -> list[bytes]:
        """Return the valid messages only; record the first error in `flaw`.

        Args:
            messages: Serialised resources.
            allocated: If true, a valid resource must be allocated to a role; if false, it must not.
        """
        usable = []
        for data in messages:
            try:
                (short,) = self._limited([data])
                kind, _amount, role = decoded(short)
            except InvalidResource as error:
                self._note(data, error.reason, str(error))
                continue
            if (role is not None) == allocated:
                usable.append(short)
            else:
                word = "no" if allocated else "an"
                message = f"resource {kind.name!r} has {word} allocation_info.role"
                self._note(data, "malformed", message)
        return usable

    def _note(self, data: bytes, reason: Reason, message: str) -> None:
        self.skipped.append(data)
        if self.flaw is None:
            self.flaw = ValidationError(reason, message)


def check_limits(messages: Sequence[bytes], limits: Limits, *, counts_entries: bool = True) -> None:
    """Check sizes of serialised resources, and numbers of reservations with their labels.

    Args:
        messages: The resources.
        limits: Bounds on each of them.
        counts_entries: Whether to check the numbers.

    Raises:
        InvalidResource: A resource exceeds a limit.
    """
    longest = max(map(len, messages), default=0)
    if longest > limits.resource:
        message = f"a resource has {longest} bytes, more than {limits.resource}"
        raise InvalidResource(f"{message} (limits.resource)", "limit")
    for data in messages if counts_entries and limits.entries else ():
        if len(data) > 2 * limits.entries and (number := entries(data)) > limits.entries:
            message = f"a resource has {number} reservations and labels, more than {limits.entries}"
            raise InvalidResource(f"{message} (limits.entries)", "limit")


def _kind_exceeds_limits(data: bytes, limits: Limits) -> bool:
    """Return whether a resource without its ranges and its set still exceeds a limit."""
    try:
        message = mesos.Resource.FromString(data)
    except DecodeError:
        return False
    message.ClearField("ranges")
    message.ClearField("set")
    try:
        check_limits([message.SerializePartialToString()], limits)
    except InvalidResource:
        return True
    return False
