"""Reads resources that come over the wire, and keeps apart those that cannot be used."""

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
    """Leaves out what is unreadable, everywhere alike, so that the books agree without it.

    Where all is well this costs nothing.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.flaw: ValidationError | None = None
        """What is wrong with the first resource that was left out; None: none was."""

    def total(self, messages: Sequence[bytes]) -> Resources:
        """Read resources that are allocated to nobody."""
        try:
            return parse_total(self._limited(messages))
        except InvalidResource:
            return parse_total(self._usable(messages, allocated=False))

    def used(self, messages: Sequence[bytes]) -> dict[str, Resources]:
        """Read resources that are allocated to any number of roles: role → resources."""
        try:
            return parse_used(self._limited(messages))
        except InvalidResource:
            return parse_used(self._usable(messages, allocated=True))

    def allocated(self, messages: Sequence[bytes]) -> tuple[str, Resources]:
        """Read resources that are all allocated to one role, and return that role.

        Raises:
            InvalidResource: they are allocated to several roles.
        """
        try:
            return parse_allocated(self._limited(messages))
        except InvalidResource:
            usable = self._usable(messages, allocated=True)
            return parse_allocated(usable) if usable else ("", NOTHING)

    def _limited(self, messages: Iterable[bytes]) -> tuple[bytes, ...]:
        together = tuple(messages)
        if len(b"".join(together)) > self._limits.resource:  # all together are not, as a rule
            longest = max(map(len, together))
            if longest > self._limits.resource:
                raise InvalidResource(
                    f"a resource has {longest} bytes, more than {self._limits.resource} "
                    "(limits.resource)",
                    "limit",
                )
        return together

    def _usable(self, messages: Iterable[bytes], *, allocated: bool) -> list[bytes]:
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
                which = "no" if allocated else "an"
                self._note("malformed", f"resource {kind.name!r} has {which} allocation_info.role")
        return usable

    def _note(self, reason: Reason, words: str) -> None:
        if self.flaw is None:
            self.flaw = ValidationError(reason, words)
