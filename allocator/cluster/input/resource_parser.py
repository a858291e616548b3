"""Resource parser: parses resources received from the master, and skips invalid ones."""

from collections.abc import Iterable, Sequence

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import Reason, ValidationError
from allocator.cluster.resources import (
    NOTHING,
    InvalidResource,
    Resources,
    decoded,
    parse_allocated,
    parse_total,
    parse_used,
)


class ResourceParser:
    """Parses the resources of one call, and skips invalid ones.

    All calls skip the same resources, so the ledger is consistent without them. `flaw` is the first
    error. Valid resources have no extra cost.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.flaw: ValidationError | None = None
        """Validation error of the first skipped resource; None if all resources are valid."""

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
        try:
            return parse_allocated(self._limited(messages))
        except InvalidResource:
            usable = self._usable(messages, allocated=True)
            return parse_allocated(usable) if usable else ("", NOTHING)

    def _limited(self, messages: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the messages as a tuple, after checking their lengths.

        Raises:
            InvalidResource: A message is longer than the limit.
        """
        all_messages = tuple(messages)
        if len(b"".join(all_messages)) > self._limits.resource:  # a cheap first test
            longest = max(map(len, all_messages))
            if longest > self._limits.resource:
                raise InvalidResource(
                    f"a resource has {longest} bytes, more than {self._limits.resource} "
                    "(limits.resource)",
                    "limit",
                )
        return all_messages

    def _usable(self, messages: Iterable[bytes], *, allocated: bool) -> list[bytes]:
        """Return the valid messages only; record the first error in `flaw`.

        Args:
            messages: Serialised resources.
            allocated: If true, a valid resource must be allocated to a role; if false, it must not.
        """
        usable = []
        for data in messages:
            try:
                self._limited([data])
                kind, _amount, role = decoded(data)
            except InvalidResource as error:
                self._note(error.reason, str(error))
                continue
            if (role is not None) == allocated:
                usable.append(data)
            else:
                word = "no" if allocated else "an"
                self._note("malformed", f"resource {kind.name!r} has {word} allocation_info.role")
        return usable

    def _note(self, reason: Reason, message: str) -> None:
        if self.flaw is None:
            self.flaw = ValidationError(reason, message)
