"""No resource is offered or allocated twice, to a forbidden role, or by two services at once."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import grpc
from typing_extensions import override

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.world.checkers.checker import Checker, Violated
from tests.world.model.amounts import (
    Amounts,
    fits,
    minus,
    plain,
    plus,
    read,
    reserved_for,
    scalars,
    total,
)
from tests.world.model.link import Link


@dataclass
class _Agent:
    amounts: Amounts
    rack: str
    held: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    active: bool = True

    @property
    def free(self) -> Amounts:
        return minus(self.amounts, total(self.held.values()))


@dataclass
class _Framework:
    roles: set[str]
    active: bool
    suppressed: set[str]
    rack: str
    """The only rack that the framework may use; empty for any rack."""


@dataclass
class _Stream:
    """The state of a stream as the service knows it after each answer."""

    waiting: deque[contract.FromMaster] = field(default_factory=deque)
    sliced: contract.FromMaster | None = None
    """The message of which the service has sent a slice of the answer."""
    agents: dict[str, _Agent] = field(default_factory=dict)
    frameworks: dict[str, _Framework] = field(default_factory=dict)
    quotas: dict[str, "_Quota"] = field(default_factory=dict)
    leads: bool = False
    served: bool = False
    """Whether the stream has received offers; a leader that must wait gets empty answers."""
    replies: dict[int, str] = field(default_factory=dict)
    """For the current answer: number of an event → the error in its reply."""


@dataclass
class _Quota:
    guarantees: Amounts
    limits: Amounts
    """Explicit limits only; a limit may be 0."""


class Conservation(Checker):
    """Keeps books of its own of each stream, message by message as they are answered."""

    def __init__(self) -> None:
        self.offers = 0
        """Number of checked offers."""
        self.operations = 0
        """Number of checked operations of operators."""
        self.bounded = 0
        """Number of offers checked against a quota."""
        self.confined = 0
        """Number of offers to frameworks that may use only some agents."""
        self._streams: dict[Link, _Stream] = {}

    @override
    def opened(self, link: Link) -> None:
        self._streams[link] = _Stream()

    @override
    def closed(self, link: Link, how: tuple[grpc.StatusCode, str]) -> None:
        self._streams.pop(link, None)

    @override
    def said(self, link: Link, message: contract.FromMaster) -> None:
        copy = contract.FromMaster()
        copy.CopyFrom(message)
        self._streams[link].waiting.append(copy)

    @override
    def heard(self, link: Link, message: contract.ToMaster) -> None:
        stream = self._streams[link]
        kind = message.WhichOneof("message")
        if not stream.waiting and stream.sliced is None:
            raise Violated(f"{link.hello.master}: {kind} answers nothing")
        continued, asked = stream.sliced is not None, stream.sliced or stream.waiting.popleft()
        stream.sliced = asked if message.decisions.more else None
        if kind == "welcome":
            if asked.WhichOneof("message") != "hello":
                raise Violated("a welcome answers what is no hello")
            return
        if kind == "snapshot_request":
            # Messages already under way get no answer.
            while stream.waiting and not stream.waiting[0].HasField("snapshot"):
                stream.waiting.popleft()
            return
        stream.replies = {reply.sequence: reply.error for reply in message.decisions.replies}
        if not continued:
            self._take(stream, asked)
        if stream.replies:
            raise Violated(f"nothing asks for replies to {sorted(stream.replies)}")
        self._decided(link, stream, asked, message.decisions)

    def _decided(
        self,
        link: Link,
        stream: _Stream,
        asked: contract.FromMaster,
        decisions: contract.Decisions,
    ) -> None:
        expected = _last(asked)
        if decisions.applied_sequence != expected:
            raise Violated(f"applied {decisions.applied_sequence} where {expected} was said last")
        if not stream.leads and (decisions.offers or decisions.inverse_offers):
            raise Violated(f"{link.hello.master} is on standby and was offered something")
        stream.served = stream.served or bool(decisions.offers)
        for offers in decisions.offers:
            for offer in offers.offers:
                self._book(stream, offers.framework_id, offer)
        self._within_quotas(stream, decisions)
        for agent, books in stream.agents.items():
            if not fits(total(books.held.values()), books.amounts):
                raise Violated(f"more is held on {agent} than it has: {books}")

    def _book(self, stream: _Stream, name: str, offer: contract.Offer) -> None:
        amounts, roles = read(offer.resources)
        description = f"{amounts} of {offer.agent_id} for {name} in {offer.role!r}"
        framework, agent = stream.frameworks.get(name), stream.agents.get(offer.agent_id)
        if framework is None or not framework.active or offer.role not in framework.roles:
            raise Violated(f"{description}: it is gone, or not in that role")
        if offer.role in framework.suppressed:
            raise Violated(f"{description}: it wants no offers")
        if agent is None or not agent.active:
            raise Violated(f"{description}: the agent is gone")
        if roles != {offer.role} or not amounts:
            raise Violated(f"{description}: nothing, or for {roles}")
        for name_of in amounts:
            owner = reserved_for(name_of)
            if owner is not None and offer.role != owner:
                raise Violated(f"{description}: {name_of} is reserved")
        if framework.rack and agent.rack != framework.rack:
            raise Violated(f"{description}: it may not run there, but in rack {framework.rack}")
        self.confined += bool(framework.rack)
        if not fits(amounts, agent.free):
            raise Violated(f"{description}: only {agent.free} is free")
        agent.held[name, offer.role] = plus(agent.held.get((name, offer.role), {}), amounts)
        self.offers += 1

    def _within_quotas(self, stream: _Stream, decisions: contract.Decisions) -> None:
        """Check that offers respect limits and leave enough for other roles' guarantees."""
        if not stream.quotas:
            return
        given: dict[str, Amounts] = {}
        for offers in decisions.offers:
            for offer in offers.offers:
                amounts, _ = read(offer.resources)
                given[offer.role] = plus(given.get(offer.role, {}), plain(amounts))
        free = total(plain(agent.free) for agent in stream.agents.values())
        missing = total(
            minus(quota.guarantees, self._consumed(stream, role))
            for role, quota in stream.quotas.items()
        )
        for role, amounts in given.items():
            quota = stream.quotas.get(role, _Quota({}, {}))
            consumed = self._consumed(stream, role)
            self.bounded += 1
            for name, milli in amounts.items():
                limit = quota.limits.get(name)
                if limit is not None and consumed.get(name, 0) > limit:
                    raise Violated(f"{role} gets {milli} of {name}, and has more than its limit")
                own = quota.guarantees.get(name, 0)
                beyond = consumed.get(name, 0) - own
                if beyond > 0 and free.get(name, 0) < missing.get(name, 0):
                    raise Violated(
                        f"{role} gets {milli} of {name}, {beyond} beyond its guarantee, and only "
                        f"{free.get(name, 0)} are left where {missing[name]} are guaranteed"
                    )

    @staticmethod
    def _consumed(stream: _Stream, role: str) -> Amounts:
        """Return a role's quota consumption: its reservations and its unreserved allocations."""
        reserved = total(
            {name: milli for name, milli in agent.amounts.items() if reserved_for(name) == role}
            for agent in stream.agents.values()
        )
        held = total(
            plain(amounts)
            for agent in stream.agents.values()
            for (_framework, of), amounts in agent.held.items()
            if of == role
        )
        return plus(scalars(reserved), held)

    def _take(self, stream: _Stream, message: contract.FromMaster) -> None:
        if message.HasField("snapshot"):
            snapshot = message.snapshot
            stream.leads = snapshot.leading_since_ns > 0
            stream.agents, stream.frameworks, stream.quotas = {}, {}, {}
            for old in snapshot.quotas:
                self._call(stream, "set_quota", old)
            for new in snapshot.limited_quotas:
                self._call(stream, "update_quota", new)
            for agent in snapshot.agents:
                self._call(stream, "add_agent", agent)
            for name in snapshot.inactive_agents:
                stream.agents[name].active = False
            for framework in snapshot.frameworks:
                self._call(stream, "add_framework", framework)
            return
        for event in message.events.events:
            call = event.WhichOneof("call")
            assert call is not None
            if call == "update_available":
                self._operated(stream, event.sequence, event.update_available)
            else:
                self._call(stream, call, getattr(event, call))

    def _operated(self, stream: _Stream, number: int, call: contract.UpdateAvailable) -> None:
        """An operator's operations are answered, and carried out if they can be."""
        error = stream.replies.pop(number, None)
        if error is None and not stream.served:
            return
        if error is None:
            raise Violated(f"{number}: an operator's operation is not answered")
        agent = stream.agents.get(call.agent_id)
        after = _operated(call.operations, agent.free) if agent is not None else None
        if agent is None or after is None:
            if not error and stream.leads:
                raise Violated(f"{number}: an operation that cannot be carried out was")
            return
        self.operations += 1
        if error:
            raise Violated(f"{number}: an operation on what is free is refused: {error}")
        agent.amounts = plus(minus(agent.amounts, agent.free), after)

    def _call(self, stream: _Stream, name: str, call: Any) -> None:  # noqa: ANN401 - any call
        handler = _CALLS.get(name)
        if handler is not None:
            handler(stream, call)


def _last(message: contract.FromMaster) -> int:
    if message.HasField("snapshot"):
        return message.snapshot.sequence
    return max((event.sequence for event in message.events.events), default=0)


def _add_agent(stream: _Stream, call: contract.AddAgent) -> None:
    attributes = mesos.SlaveInfo.FromString(call.info).attributes
    rack = "".join(attribute.text.value for attribute in attributes if attribute.name == "rack")
    agent = stream.agents[call.agent_id] = _Agent(read(call.total)[0], rack)
    for allocation in call.used:
        for data in allocation.resources:
            read_amounts, [role] = read([data])
            place = (allocation.framework_id, role)
            agent.held[place] = plus(agent.held.get(place, {}), read_amounts)


def _roles(info: bytes) -> set[str]:
    return set(mesos.FrameworkInfo.FromString(info).roles)


def _rack(info: bytes) -> str:
    labels = mesos.FrameworkInfo.FromString(info).labels.labels
    labelled = [label.value for label in labels if label.key == "longshare.attributes"]
    return labelled[0].removeprefix("rack:") if labelled else ""


def _add_framework(stream: _Stream, call: contract.AddFramework) -> None:
    suppressed, rack = set(call.suppressed_roles), _rack(call.info)
    known = _Framework(_roles(call.info), call.active, suppressed, rack)
    stream.frameworks[call.framework_id] = known


def _update_framework(stream: _Stream, call: contract.UpdateFramework) -> None:
    known = stream.frameworks[call.framework_id]
    known.roles, known.suppressed = _roles(call.info), set(call.suppressed_roles)
    known.rack = _rack(call.info)


def _remove_framework(stream: _Stream, call: contract.RemoveFramework) -> None:
    del stream.frameworks[call.framework_id]
    for agent in stream.agents.values():
        agent.held = {place: h for place, h in agent.held.items() if place[0] != call.framework_id}


def _release(stream: _Stream, call: contract.RecoverResources | contract.RejectOffer) -> None:
    agent = stream.agents.get(call.agent_id)
    amounts, [role] = read(call.resources)
    if agent is not None:
        place = (call.framework_id, role)
        agent.held[place] = minus(agent.held.get(place, {}), amounts)


def _suppress(stream: _Stream, call: contract.SuppressOffers) -> None:
    known = stream.frameworks[call.framework_id]
    known.suppressed |= set(call.roles) or known.roles


def _revive(stream: _Stream, call: contract.ReviveOffers) -> None:
    known = stream.frameworks[call.framework_id]
    known.suppressed -= set(call.roles) or known.roles


def _recover(stream: _Stream, call: contract.Recover) -> None:
    for old in call.quotas:
        _set_quota(stream, old)
    for new in call.limited_quotas:
        _update_quota(stream, new)


def _active(kind: str, *, active: bool) -> Any:  # noqa: ANN401 - a handler
    def handler(stream: _Stream, call: Any) -> None:  # noqa: ANN401 - any call
        getattr(stream, f"{kind}s")[getattr(call, f"{kind}_id")].active = active

    return handler


def _operated(operations: Any, free: Amounts) -> Amounts | None:  # noqa: ANN401 - repeated bytes
    """Return the free resources after operations; None if the operations are impossible."""
    for data in operations:
        operation = mesos.Operation.FromString(data)
        kind = mesos.Operation.Type.Name(operation.type)
        affected = {
            "RESERVE": operation.reserve.resources,
            "UNRESERVE": operation.unreserve.resources,
            "CREATE": operation.create.volumes,
            "DESTROY": operation.destroy.volumes,
        }.get(kind)
        if affected is None:
            return None
        quantities, _ = read(resource.SerializeToString() for resource in affected)
        mark = "#" if kind in {"CREATE", "DESTROY"} else "("
        bare = total({name.partition(mark)[0]: milli} for name, milli in quantities.items())
        before, after = (bare, quantities) if kind in {"RESERVE", "CREATE"} else (quantities, bare)
        if not quantities or not fits(before, free):
            return None
        free = plus(minus(free, before), after)
    return free


def _converted(stream: _Stream, call: contract.UpdateAllocation) -> None:
    """Apply a framework's operations on offered resources."""
    agent = stream.agents[call.agent_id]
    for step in call.conversions:
        before, [role] = read(step.consumed)
        after, _ = read(step.converted)
        place = (call.framework_id, role)
        agent.held[place] = plus(minus(agent.held.get(place, {}), before), after)
        agent.amounts = plus(minus(agent.amounts, before), after)


def _set_quota(stream: _Stream, call: contract.SetQuota) -> None:
    """As in Mesos 1.8: a quota's guarantee is also its limit."""
    info = mesos.QuotaInfo.FromString(call.info)
    amounts, _ = read(resource.SerializeToString() for resource in info.guarantee)
    stream.quotas[call.role] = _Quota(amounts, amounts)


def _update_quota(stream: _Stream, call: contract.UpdateQuota) -> None:
    def milli(quantities: contract.Quantities) -> Amounts:
        return {name: round(1000 * amount) for name, amount in quantities.amounts.items()}

    limits = milli(call.limits)
    guarantees = {
        name: min(amount, limits.get(name, amount))
        for name, amount in milli(call.guarantees).items()
    }
    stream.quotas[call.role] = _Quota(guarantees, limits)
    if not guarantees and not limits:
        del stream.quotas[call.role]


_CALLS: dict[str, Any] = {
    "update_allocation": _converted,
    "set_quota": _set_quota,
    "remove_quota": lambda stream, call: stream.quotas.pop(call.role, None),
    "update_quota": _update_quota,
    "add_agent": _add_agent,
    "remove_agent": lambda stream, call: stream.agents.pop(call.agent_id),
    "activate_agent": _active("agent", active=True),
    "deactivate_agent": _active("agent", active=False),
    "add_framework": _add_framework,
    "update_framework": _update_framework,
    "remove_framework": _remove_framework,
    "activate_framework": _active("framework", active=True),
    "deactivate_framework": _active("framework", active=False),
    "suppress_offers": _suppress,
    "revive_offers": _revive,
    "recover": _recover,
    "recover_resources": _release,
    "reject_offer": _release,
}
