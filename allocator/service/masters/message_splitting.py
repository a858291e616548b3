"""Splits long messages into parts, so that other work and allocations happen between the parts.

A Mesos master sends related calls in one message. In most sequences of related calls, the deciding
call comes first: a call that deactivates, removes, unsubscribes, limits or reweighs. A split after
such a call is harmless: resources recovered later are not offered by the former rules. Between
Pause and Resume nothing is offered, with or without a split.

Where the deciding call comes last, the calls before it stay in the same part:

* offers rescinded for an operator's operation, with `UpdateAvailable`;
* offers and inverse offers rescinded for maintenance, with `UpdateUnavailability`;
* frameworks introduced by an agent or a resource provider, with `AddAgent` or
  `AddResourceProvider`. In a separate part, their resources on the agent would count for no client.
"""

from collections.abc import Iterable, Iterator, Sequence

from allocator.contract import allocator_pb2 as contract

PART = 1000
"""Number of events that are applied, logged and allocated for at a time, before other work
proceeds. Masters batch fewer events, except after a standstill."""
_DECIDING_CALLS = frozenset({"update_available", "update_unavailability"})
"""Calls that decide about the calls before them."""
_RESCINDING_CALLS = frozenset({"recover_resources", "update_inverse_offer"})
"""Calls that return offered resources or inverse offers, and may precede a deciding call."""


def parts_of(message: contract.FromMaster) -> Iterable[contract.FromMaster]:
    """Return a message, or the parts of a long message in sequence."""
    events = message.events.events
    return (message,) if len(events) <= PART else _split(events)


def _split(events: Sequence[contract.Event]) -> Iterator[contract.FromMaster]:
    """Yield the parts: `PART` events each, and the events attached to the last of them."""
    attached = _attached_to_previous(events)
    first = 0
    while first < len(events):
        end = min(first + PART, len(events))
        while end < len(events) and attached[end]:
            end += 1
        yield contract.FromMaster(events=contract.Events(events=events[first:end]))
        first = end


def _attached_to_previous(events: Sequence[contract.Event]) -> list[bool]:
    """Return for each event whether nothing may be offered between it and the preceding event."""
    calls = [event.WhichOneof("call") for event in events]
    attached = [False] * len(events)
    awaited = made_known = False
    for number in range(len(events) - 1, 0, -1):
        awaited = calls[number] in _DECIDING_CALLS or (
            awaited and calls[number] in _RESCINDING_CALLS
        )
        attached[number] = awaited and calls[number - 1] in _RESCINDING_CALLS
    for number, (call, event) in enumerate(zip(calls, events, strict=True)):
        if call == "add_framework":
            after_provider = number > 0 and calls[number - 1] == "add_resource_provider"
            made_known = (made_known and not event.add_framework.active) or after_provider
            attached[number] = attached[number] or made_known
        else:
            made_known = call == "add_agent"
    return attached
