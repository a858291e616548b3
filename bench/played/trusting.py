"""A service without input checks: its cost is the reference for the cost of limits.

python -m bench.played.trusting serve --config FILE
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from allocator.cli import main
from allocator.cluster.allocation import allocator as allocator_module
from allocator.cluster.frameworks import subscription
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.resources import parse_allocated, parse_total, parse_used
from allocator.cluster.resources.cache import Cache
from allocator.contract import allocator_pb2 as contract
from allocator.service.masters import message_splitting, session, timestamp_guard, wire


class _Unlimited:
    """Replaces `OutstandingOfferLimit`: no framework ever reaches the limit."""

    limited = 0
    excluded_any = False

    def __init__(self, *_: object) -> None:
        pass

    def without(self, eligible: int) -> int:
        return eligible

    def admits(self, _allocations: object) -> bool:
        return True

    def add(self, _client: object, _quantities: object) -> None:
        pass


def _kept(
    cache: Cache[Any, Any],
    key: object,
    result: object,
    _size: int,
    *,
    compact: bool = False,  # noqa: ARG001 - as `put` has
) -> object:
    cache._young[key] = result  # noqa: SLF001 - as `put` does, unweighed
    return result


@contextmanager
def trusting() -> Iterator[None]:
    """Accept all input unchecked during the block."""
    replaced: list[tuple[Any, str, Any]] = [
        *((wire, name, _read) for name in ("parse", "parse_in_steps")),
        *(
            (where, "split_message", lambda message: (message,))
            for where in (message_splitting, session)
        ),
        (timestamp_guard.TimestampGuard, "bound", lambda _stamps, _message: None),
        (timestamp_guard.TimestampGuard, "record", lambda _stamps, _stamp: None),
        (allocator_module, "OutstandingOfferLimit", _Unlimited),
        (Cache, "put", _kept),
        (ResourceParser, "total", lambda _sieve, messages: parse_total(messages)),
        (ResourceParser, "used", lambda _sieve, messages: parse_used(messages)),
        (ResourceParser, "allocated", lambda _sieve, messages: parse_allocated(messages)),
        (subscription, "_check_names", lambda *_: None),
        (subscription, "_check_length", lambda *_: None),
        (subscription, "_check_lists", lambda *_: None),
        (subscription, "count_role_nodes", lambda _roles: 0),
    ]
    with ExitStack() as stack:
        for where, name, replacement in replaced:
            stack.enter_context(mock.patch.object(where, name, replacement))
        yield


def _read(data: bytes, _most_parts: int, _limits: object = None) -> contract.FromMaster:
    return contract.FromMaster.FromString(data)


if __name__ == "__main__":
    with trusting():
        main()
