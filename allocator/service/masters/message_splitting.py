"""Splits long messages of a master and long answers.

Other work and allocations happen between the parts of a message.

A Mesos master sends related calls in one message. In most sequences, the call that changes the
rules comes first: it deactivates, removes, unsubscribes, limits or reweighs. A split after such a
call is harmless, because resources recovered later are offered by the new rules. Between Pause and
Resume nothing is offered, with or without a split.

In the following sequences the deciding call comes last. The calls before it stay in the same part:

* offers rescinded for an operator's operation, with `UpdateAvailable`;
* offers and inverse offers rescinded for maintenance, with `UpdateUnavailability`;
* frameworks introduced by an agent or a resource provider, with `AddAgent` or
  `AddResourceProvider`. In a separate part, their resources on the agent would count for no client.
"""

from collections.abc import Iterable, Iterator, Sequence

from allocator.contract import allocator_pb2 as contract

MAX_EVENTS_PER_PART = 1000
"""Number of events in one part. The engine applies, logs and allocates a part before other work
proceeds.

Masters send fewer events per message, except after a standstill.
"""
_DECIDING_CALLS = frozenset({"update_available", "update_unavailability"})
"""Calls whose effect on allocation must precede any offer of resources that earlier calls returned.
"""
_RESCINDING_CALLS = frozenset({"recover_resources", "update_inverse_offer"})
"""Calls that return offered resources or inverse offers, and may belong to a later deciding call.
"""


def split_message(message: contract.FromMaster) -> Iterable[contract.FromMaster]:
    """Return the parts to process in sequence: a short message itself, or a long one's parts."""
    events = message.events
    return (message,) if len(events.events) <= MAX_EVENTS_PER_PART else _split(events)


def split_answer(
    answer: contract.Decisions, most_bytes: int, most_of_offer: int
) -> Iterator[contract.Decisions]:
    """Yield messages with the decisions of an answer, for a master that knows `Decisions.more`.

    Each but the last has `more` set. The offer of an agent with very many reservations becomes
    several offers.

    Args:
        answer: The answer; it stays unchanged.
        most_bytes: Maximum number of bytes of resources in a message with several offers.
        most_of_offer: Maximum number of bytes of resources in an offer, except of a single longer
            resource.
    """
    part, size = contract.Decisions(applied_sequence=answer.applied_sequence), 0
    for offers in answer.offers:
        begun = None
        for offer in offers.offers:
            for resources in _portions(offer.resources, most_of_offer):
                added = sum(map(len, resources))
                if size + added > most_bytes and part.offers:
                    part.more = True
                    yield part
                    part = contract.Decisions(applied_sequence=answer.applied_sequence)
                    size, begun = 0, None
                if begun is None:
                    begun = part.offers.add(framework_id=offers.framework_id)
                begun.offers.add(role=offer.role, agent_id=offer.agent_id, resources=resources)
                size += added
    part.inverse_offers.extend(answer.inverse_offers)
    part.replies.extend(answer.replies)
    if answer.HasField("statistics"):
        part.statistics.CopyFrom(answer.statistics)
    part.waiting_for = answer.waiting_for
    part.refused.extend(answer.refused)
    part.more = answer.more
    yield part


def _portions(resources: Iterable[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    """Yield serialised resources in lists of at most `most_bytes`, or of a single resource."""
    portion, size = list[bytes](), 0
    for resource in resources:
        size += len(resource)
        if size > most_bytes and portion:
            yield portion
            portion, size = [], len(resource)
        portion.append(resource)
    yield portion


def _split(message: contract.Events) -> Iterator[contract.FromMaster]:
    """Yield the parts of a message, of `MAX_EVENTS_PER_PART` events each.

    A part becomes longer if its last event must not be separated from the next event. If the next
    message continues this one, it also continues the last part.
    """
    events = message.events
    attached = _attached_to_previous(events, continued=message.more)
    first = 0
    while first < len(events):
        end = min(first + MAX_EVENTS_PER_PART, len(events))
        while end < len(events) and attached[end]:
            end += 1
        part = contract.Events(events=events[first:end])
        part.more = message.more and end == len(events)
        yield contract.FromMaster(events=part)
        first = end


def _attached_to_previous(events: Sequence[contract.Event], *, continued: bool) -> list[bool]:
    """Return for each event whether it must not be separated from the event before it.

    The sequences that must stay together are listed in the module's docstring.

    Args:
        events: The events of a message.
        continued: Whether the next message continues this one, perhaps with a deciding call.
    """
    calls = [event.WhichOneof("call") for event in events]
    attached = [False] * len(events)
    awaited, made_known = continued, False
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
