"""Turns the allocator's decisions into offers to schedulers, after checks.

The module in a real master makes the same checks (Mesos semantics, §5.4), because a Mesos master
trusts its allocator and some invalid decisions would crash it.
"""

from collections.abc import Collection
from functools import partial

from google.protobuf.message import DecodeError

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Resource, ResourceBag
from frameworks.local_mesos.books import MasterState
from frameworks.local_mesos.clock import Clock
from frameworks.local_mesos.drops import log_dropped_call
from frameworks.local_mesos.notation import downgraded
from frameworks.local_mesos.state import Capability, EmbeddedAgent, EmbeddedFramework, Offer
from frameworks.local_mesos.validation import Refused


class Offering:
    """Makes offers from the allocator's decisions, and handles declined and expired offers.

    Args:
        books: The master's state.
        clock: The master's clock.
        timeout: Seconds after which an unanswered offer is rescinded; 0 disables the timeout.
    """

    def __init__(self, books: MasterState, clock: Clock, timeout: float) -> None:
        self._books = books
        self._clock = clock
        self._timeout = timeout

    def decide(self, decisions: contract.Decisions) -> None:
        """Check the allocator's decisions, and send offers for those that are valid.

        Invalid decisions are reported to the allocator as rejected.
        """
        for offers in decisions.offers:
            made = []
            for offer in offers.offers:
                agent = self._books.agents.get(offer.agent_id)
                if agent is not None and decisions.applied_sequence < agent.added_at:
                    continue  # the decision is older than the agent's latest registration
                try:
                    made.append(self._admit(offers.framework_id, offer))
                except Refused as error:
                    self._reject(offers.framework_id, offer, str(error))
            if made:
                self._send(self._books.frameworks[offers.framework_id], made)

    def decline(self, framework: EmbeddedFramework, call: v1.Call.Decline) -> None:
        """Handle a DECLINE call: recover the offers' resources.

        Offers that no longer exist are ignored.
        """
        filters = call.filters if call.HasField("filters") else mesos.Filters()
        for offer_id in call.offer_ids:
            offer = framework.offers.get(offer_id.value)
            if offer is None:
                log_dropped_call(framework, f"DECLINE of {offer_id.value}", "it is no longer valid")
            else:
                self._books.remove_offer(offer)
                self._books.recover(framework.id, offer.agent, offer.role, offer.resources, filters)

    def _admit(self, framework_id: str, decided: contract.Offer) -> Offer:
        framework = self._books.frameworks.get(framework_id)
        agent = self._books.agents.get(decided.agent_id)
        if framework is None or not framework.connected:
            raise Refused("the framework is gone or not connected")
        if decided.role not in framework.roles:
            raise Refused(f"the framework is not subscribed to role {decided.role!r}")
        if agent is None or not agent.active:
            raise Refused("the agent is gone or not connected")
        resources = _resources(decided)
        offer = Offer(
            *(self._books.new_id("O"), framework_id, agent.id, decided.role, resources),
            made_ns=self._clock.now_ns,
        )
        try:
            self._books.add_offer(offer)
        except ValueError as error:
            raise Refused(f"the agent has not that much free: {error}") from error
        return offer

    def _reject(self, framework_id: str, offer: contract.Offer, reason: str) -> None:
        self._books.counters["offers_rejected"] += 1
        self._books.send_call(
            reject_offer=contract.RejectOffer(
                framework_id=framework_id,
                agent_id=offer.agent_id,
                resources=offer.resources,
                reason=reason,
            )
        )

    def _send(self, framework: EmbeddedFramework, offers: Collection[Offer]) -> None:
        event = v1.Event(type=v1.Event.OFFERS, offers=v1.Event.Offers())
        for offer in offers:
            event.offers.offers.append(
                _described(offer, framework, self._books.agents[offer.agent])
            )
        framework.send(event)
        if self._timeout:
            for offer in offers:
                self._clock.after(self._timeout, partial(self._time_out, offer))

    def _time_out(self, offer: Offer) -> None:
        if offer.id in self._books.offers:
            self._books.take_back(offer, rescind=True)


def _resources(offer: contract.Offer) -> list[Resource]:
    """Parse and check the resources of an offer that the allocator has decided.

    Raises:
        Refused: The resources are empty or invalid, are not allocated to the offer's role, or use a
            deprecated format that would crash a real master.
    """
    try:
        resources = [Resource.FromString(data) for data in offer.resources]
        empty = not ResourceBag(resources)
    except (DecodeError, ValueError) as error:
        raise Refused(f"the resources are invalid: {error}") from error
    if empty or any(r.allocation_info.role != offer.role for r in resources):
        raise Refused(f"the resources are not allocated to role {offer.role!r}, or none at all")
    if any(r.HasField("role") or r.HasField("reservation") for r in resources):
        raise Refused("the resources carry the deprecated fields role or reservation")
    return resources


def _described(offer: Offer, framework: EmbeddedFramework, agent: EmbeddedAgent) -> v1.Offer:
    """Build the Offer message that a scheduler receives for an offer.

    Resources are in the old or the new format, as the framework's capabilities require.
    """
    modern = framework.capable(Capability.RESERVATION_REFINEMENT)
    message = v1.Offer(
        id=v1.OfferID(value=offer.id),
        framework_id=mesos.FrameworkID(value=framework.id),
        agent_id=v1.AgentID(value=agent.id),
        hostname=agent.hostname,
        url=agent.url(),
        attributes=agent.attributes,
        executor_ids=[
            v1.ExecutorID(value=executor_id)
            for agent_id, executor_id in framework.executors
            if agent_id == agent.id
        ],
        resources=offer.resources if modern else map(downgraded, offer.resources),
    )
    if framework.capable(Capability.MULTI_ROLE):
        message.allocation_info.role = offer.role
    else:
        for resource in message.resources:
            resource.ClearField("allocation_info")
    return message
