"""Cuts a long message into parts, between which others have their turn and offers are made.

Mesos's master says in one turn what belongs together. In most of its sequences the call that
decides comes first, so a cut does no harm: what has been deactivated, removed, unsubscribed from,
limited or reweighed is not offered the old way when its offers are taken back one by one. What must
look like one is between Pause and Resume, and nothing is offered there, cut or not. Where the call
that decides comes last, it stays together with those before it:

* offers that are taken back for an operator's operation stay with `UpdateAvailable`;
* offers and inverse offers that are taken back for maintenance, with `UpdateUnavailability`;
* frameworks that an agent, or a resource provider, makes known, with `AddAgent` or
  `AddResourceProvider`: what they hold there would count for nobody.
"""

from collections.abc import Iterable, Iterator, Sequence

from allocator.contract import allocator_pb2 as contract

PART = 1000
"""Events of a message that are applied, logged and decided upon at a time; then it is the turn of
others. A master batches fewer, but after a standstill."""
_DECIDING_LAST = frozenset({"update_available", "update_unavailability"})
_TAKING_BACK = frozenset({"recover_resources", "update_inverse_offer"})


def parts_of(message: contract.FromMaster) -> Iterable[contract.FromMaster]:
    """Take a long message for several, as if the master had sent them one after the other."""
    events = message.events.events
    return (message,) if len(events) <= PART else _cut(events)


def _cut(events: Sequence[contract.Event]) -> Iterator[contract.FromMaster]:
    together = _bound_to_the_one_before(events)
    first = 0
    while first < len(events):
        end = min(first + PART, len(events))
        while end < len(events) and together[end]:
            end += 1
        yield contract.FromMaster(events=contract.Events(events=events[first:end]))
        first = end


def _bound_to_the_one_before(events: Sequence[contract.Event]) -> list[bool]:
    """Tell of each event whether nothing may be offered between it and the one before."""
    calls = [event.WhichOneof("call") for event in events]
    together = [False] * len(events)
    awaited = made_known = False
    for number in range(len(events) - 1, 0, -1):
        awaited = calls[number] in _DECIDING_LAST or (awaited and calls[number] in _TAKING_BACK)
        together[number] = awaited and calls[number - 1] in _TAKING_BACK
    for number, (call, event) in enumerate(zip(calls, events, strict=True)):
        if call == "add_framework":
            after_provider = number > 0 and calls[number - 1] == "add_resource_provider"
            made_known = (made_known and not event.add_framework.active) or after_provider
            together[number] = together[number] or made_known
        else:
            made_known = call == "add_agent"
    return together
