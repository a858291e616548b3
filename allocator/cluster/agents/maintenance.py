"""Maintenance: schedules of unavailable agents, and inverse offers to their frameworks.

See Mesos semantics, §3.9.
"""

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from allocator.cluster.input.quarantine import ValidationError
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos


@dataclass(slots=True)
class _Schedule:
    """The maintenance schedule of one agent, and the state of its inverse offers.

    An inverse offer asks a framework to leave the agent before the maintenance.
    """

    unavailability: bytes
    """The serialised Unavailability message, as the master sent it."""
    outstanding: set[str] = field(default_factory=set)
    """Frameworks with an inverse offer that they have not answered."""
    statuses: dict[str, bytes] = field(default_factory=dict)
    """framework → its latest answer, a serialised InverseOfferStatus"""
    declined_until: dict[str, int] = field(default_factory=dict)
    """framework → last instant, in nanoseconds, of its inverse-offer filter"""


class Maintenance:
    """Maintenance schedules of agents, and the frameworks' answers to inverse offers.

    An inverse offer asks a framework to leave an agent before the maintenance.
    """

    def __init__(self) -> None:
        self._schedules: dict[str, _Schedule] = {}

    def schedule(self, agent: str, unavailability: bytes | None) -> None:
        """Replace an agent's schedule; forget inverse offers of the old schedule.

        Args:
            agent: The agent's ID.
            unavailability: The serialised Unavailability; None: no maintenance is scheduled.
        """
        self._schedules.pop(agent, None)
        if unavailability is not None:
            self._schedules[agent] = _Schedule(unavailability)

    def agents(self) -> list[str]:
        """Return the IDs of agents that have a maintenance schedule."""
        return list(self._schedules)

    def take_inverse_offer(self, agent: str, framework: str, now_ns: int) -> bytes | None:
        """Start an inverse offer to a framework: mark it outstanding, and return what to send.

        Args:
            agent: The agent's ID.
            framework: ID of the framework that is to receive the inverse offer.
            now_ns: The current time in nanoseconds.

        Returns:
            The serialised Unavailability. None if the agent has no schedule, an inverse offer is
            outstanding, or the framework filters inverse offers of the agent.
        """
        schedule = self._schedules.get(agent)
        if schedule is None or framework in schedule.outstanding:
            return None
        if schedule.declined_until.get(framework, -1) >= now_ns:
            return None
        schedule.outstanding.add(framework)
        return schedule.unavailability

    def record_answer(
        self, agent: str, framework: str, status: bytes | None, refused_until_ns: int | None
    ) -> None:
        """Record a framework's answer to an inverse offer, or the withdrawal of the inverse offer.

        An answer for an agent without a schedule is ignored.

        Args:
            agent: The agent's ID.
            framework: The framework that answers.
            status: The serialised InverseOfferStatus; None for a withdrawal.
            refused_until_ns: Last instant of an inverse-offer filter, in nanoseconds; None without
                a filter.
        """
        schedule = self._schedules.get(agent)
        if schedule is None:
            return
        if framework in schedule.outstanding:
            schedule.outstanding.discard(framework)
            if status is not None:
                schedule.statuses[framework] = status
        if refused_until_ns is not None:
            schedule.declined_until[framework] = refused_until_ns

    def restore(self, state: contract.InverseOfferState) -> None:
        """Restore from a snapshot whether an inverse offer is outstanding, and its answer."""
        schedule = self._schedules.get(state.agent_id)
        if schedule is None:
            return
        if state.outstanding:
            schedule.outstanding.add(state.framework_id)
        status, _flaw = read_status(state.status)
        if status is not None:
            schedule.statuses[state.framework_id] = status

    def filters(self, agent: str, unavailability: bytes) -> dict[str, int]:
        """Return the inverse-offer filters of an agent: framework ID → last instant in nanoseconds.

        The result is empty if the agent's schedule differs from `unavailability`.
        """
        schedule = self._schedules.get(agent)
        if schedule is None or schedule.unavailability != unavailability:
            return {}
        return dict(schedule.declined_until)

    def keep_refusals(self, agent: str, predecessor: "Maintenance") -> None:
        """Copy an agent's inverse-offer filters from the state before a snapshot.

        Nothing is copied if the snapshot has changed the agent's schedule.

        Args:
            agent: ID of an agent with a schedule.
            predecessor: The maintenance state before the snapshot.
        """
        schedule = self._schedules[agent]
        schedule.declined_until = predecessor.filters(agent, schedule.unavailability)

    def statuses(self) -> list[contract.InverseOfferState]:
        """Return the frameworks' latest answers to inverse offers, for all agents with a schedule.

        An agent without answers has one entry, with an empty framework ID.
        """
        no_answer: dict[str, bytes | None] = {"": None}
        return [
            contract.InverseOfferState(
                agent_id=agent,
                framework_id=framework,
                status=status,
                outstanding=framework in schedule.outstanding,
            )
            for agent, schedule in self._schedules.items()
            for framework, status in (schedule.statuses or no_answer).items()
        ]

    def drop_filters(self, *, framework: str | None = None, agent: str | None = None) -> None:
        """Remove inverse-offer filters: of a framework, of an agent, or all filters (both None)."""
        for name, schedule in self._schedules.items():
            if agent is not None and name != agent:
                continue
            if framework is None:
                schedule.declined_until.clear()
            else:
                schedule.declined_until.pop(framework, None)

    def withdraw(self, *, framework: str | None = None, agent: str | None = None) -> None:
        """Mark inverse offers as not outstanding: of a framework, of an agent, or all (both None).

        The master silently drops inverse offers to inactive frameworks and for inactive agents.
        """
        for name, schedule in self._schedules.items():
            if agent is not None and name != agent:
                continue
            if framework is None:
                schedule.outstanding.clear()
            else:
                schedule.outstanding.discard(framework)

    def forget(self, framework: str) -> None:
        """Forget the inverse offers, answers and filters of a removed framework."""
        for schedule in self._schedules.values():
            schedule.outstanding.discard(framework)
            schedule.statuses.pop(framework, None)
            schedule.declined_until.pop(framework, None)


def read_unavailability(
    call: contract.AddAgent | contract.UpdateUnavailability,
) -> tuple[bytes | None, ValidationError | None]:
    """Check a call's serialised Unavailability; return it unchanged, and an error, if any.

    An unreadable Unavailability is replaced by None, because frameworks could not read its start.
    """
    if not call.HasField("unavailability"):
        return None, None
    data = call.unavailability
    try:
        message = mesos.Unavailability.FromString(data)
    except DecodeError as error:
        return None, ValidationError("malformed", f"not a serialised mesos.Unavailability: {error}")
    if not message.IsInitialized():
        return None, ValidationError("malformed", "unavailability: a required field is missing")
    return data, None


def read_status(data: bytes) -> tuple[bytes | None, ValidationError | None]:
    """Check a serialised InverseOfferStatus; return the status unchanged, or None and an error."""
    try:
        status = mesos.InverseOfferStatus.FromString(data)
    except DecodeError as error:
        message = f"not a serialised mesos.allocator.InverseOfferStatus: {error}"
        return None, ValidationError("malformed", message)
    if not status.IsInitialized() or status.status == mesos.InverseOfferStatus.UNKNOWN:
        return None, ValidationError(
            "malformed", "an inverse offer is answered by ACCEPT or DECLINE"
        )
    return data, None
