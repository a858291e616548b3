"""Nothing is offered or booked twice, nor to anybody who must not have it, nor by two at once."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import grpc
from typing_extensions import override

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.world.checkers.checker import Checker, Violated
from tests.world.model.amounts import Amounts, fits, minus, plus, read, total
from tests.world.model.link import Link


@dataclass
class _Agent:
    amounts: Amounts
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


@dataclass
class _Stream:
    """Books of one stream: what the service knows when it has answered so much."""

    waiting: deque[contract.FromMaster] = field(default_factory=deque)
    agents: dict[str, _Agent] = field(default_factory=dict)
    frameworks: dict[str, _Framework] = field(default_factory=dict)
    leads: bool = False
    asked: bool = False


class Conservation(Checker):
    """Keeps books of its own of each stream, message by message as they are answered."""

    def __init__(self) -> None:
        self.offers = 0
        """That have been checked."""
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
        if not stream.waiting:
            raise Violated(f"{link.hello.master}: {kind} answers nothing")
        asked = stream.waiting.popleft()
        if kind == "welcome":
            if asked.WhichOneof("message") != "hello":
                raise Violated("a welcome answers what is no hello")
            return
        if kind == "snapshot_request":
            # Whatever was on its way already is not answered.
            while stream.waiting and not stream.waiting[0].HasField("snapshot"):
                stream.waiting.popleft()
            return
        self._take(stream, asked)
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
        for offers in decisions.offers:
            for offer in offers.offers:
                self._book(stream, offers.framework_id, offer)
        for agent, books in stream.agents.items():
            if not fits(total(books.held.values()), books.amounts):
                raise Violated(f"more is held on {agent} than it has: {books}")

    def _book(self, stream: _Stream, name: str, offer: contract.Offer) -> None:
        amounts, roles = read(offer.resources)
        what = f"{amounts} of {offer.agent_id} for {name} in {offer.role!r}"
        framework, agent = stream.frameworks.get(name), stream.agents.get(offer.agent_id)
        if framework is None or not framework.active or offer.role not in framework.roles:
            raise Violated(f"{what}: it is gone, or not in that role")
        if offer.role in framework.suppressed:
            raise Violated(f"{what}: it wants no offers")
        if agent is None or not agent.active:
            raise Violated(f"{what}: the agent is gone")
        if roles != {offer.role} or not amounts:
            raise Violated(f"{what}: nothing, or for {roles}")
        if not fits(amounts, agent.free):
            raise Violated(f"{what}: only {agent.free} is free")
        agent.held[name, offer.role] = plus(agent.held.get((name, offer.role), {}), amounts)
        self.offers += 1

    def _take(self, stream: _Stream, message: contract.FromMaster) -> None:
        if message.HasField("snapshot"):
            snapshot = message.snapshot
            stream.leads = snapshot.leading_since_ns > 0
            stream.agents, stream.frameworks = {}, {}
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
            self._call(stream, call, getattr(event, call))

    def _call(self, stream: _Stream, name: str, call: Any) -> None:  # noqa: ANN401 - any call
        handler = _CALLS.get(name)
        if handler is not None:
            handler(stream, call)


def _last(message: contract.FromMaster) -> int:
    if message.HasField("snapshot"):
        return message.snapshot.sequence
    return max((event.sequence for event in message.events.events), default=0)


def _add_agent(stream: _Stream, call: contract.AddAgent) -> None:
    agent = stream.agents[call.agent_id] = _Agent(read(call.total)[0])
    for allocation in call.used:
        for data in allocation.resources:
            one, [role] = read([data])
            place = (allocation.framework_id, role)
            agent.held[place] = plus(agent.held.get(place, {}), one)


def _roles(info: bytes) -> set[str]:
    return set(mesos.FrameworkInfo.FromString(info).roles)


def _add_framework(stream: _Stream, call: contract.AddFramework) -> None:
    suppressed = set(call.suppressed_roles)
    stream.frameworks[call.framework_id] = _Framework(_roles(call.info), call.active, suppressed)


def _update_framework(stream: _Stream, call: contract.UpdateFramework) -> None:
    known = stream.frameworks[call.framework_id]
    known.roles, known.suppressed = _roles(call.info), set(call.suppressed_roles)


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


def _active(kind: str, *, active: bool) -> Any:  # noqa: ANN401 - a handler
    def handler(stream: _Stream, call: Any) -> None:  # noqa: ANN401 - any call
        getattr(stream, f"{kind}s")[getattr(call, f"{kind}_id")].active = active

    return handler


_CALLS: dict[str, Any] = {
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
    "recover_resources": _release,
    "reject_offer": _release,
}
