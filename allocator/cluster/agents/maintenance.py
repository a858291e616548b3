"""Maintenance: agents that are going to be unavailable, and who has been asked to leave (§3.9)."""

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from allocator.cluster.input.quarantine import ValidationError
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos


@dataclass(slots=True)
class _Schedule:
    unavailability: bytes
    outstanding: set[str] = field(default_factory=set)
    """Frameworks that have been asked and have not answered."""
    statuses: dict[str, bytes] = field(default_factory=dict)
    """framework → its latest answer, a serialised InverseOfferStatus"""
    refused: dict[str, int] = field(default_factory=dict)
    """framework → last instant until which it is not to be asked again"""


class Maintenance:
    """All agents with a maintenance schedule."""

    def __init__(self) -> None:
        self._schedules: dict[str, _Schedule] = {}

    def schedule(self, agent: str, unavailability: bytes | None) -> None:
        """Set or remove an agent's schedule; what was asked about the old one is forgotten."""
        self._schedules.pop(agent, None)
        if unavailability is not None:
            self._schedules[agent] = _Schedule(unavailability)

    def agents(self) -> list[str]:
        """Return the agents that have a schedule."""
        return list(self._schedules)

    def ask(self, agent: str, framework: str, now_ns: int) -> bytes | None:
        """Return the unavailability to tell a framework, which is outstanding then; else None."""
        schedule = self._schedules.get(agent)
        if schedule is None or framework in schedule.outstanding:
            return None
        if schedule.refused.get(framework, -1) >= now_ns:
            return None
        schedule.outstanding.add(framework)
        return schedule.unavailability

    def answer(
        self, agent: str, framework: str, status: bytes | None, refused_until_ns: int | None
    ) -> None:
        """Take an answer, or the withdrawal of an inverse offer; late ones are passed over."""
        schedule = self._schedules.get(agent)
        if schedule is None:
            return
        if framework in schedule.outstanding:
            schedule.outstanding.discard(framework)
            if status is not None:
                schedule.statuses[framework] = status
        if refused_until_ns is not None:
            schedule.refused[framework] = refused_until_ns

    def restore(self, state: contract.InverseOfferState) -> None:
        """Take over what a snapshot says."""
        schedule = self._schedules.get(state.agent_id)
        if schedule is None:
            return
        if state.outstanding:
            schedule.outstanding.add(state.framework_id)
        status, _flaw = read_status(state.status)
        if status is not None:
            schedule.statuses[state.framework_id] = status

    def refusals(self, agent: str, unavailability: bytes) -> dict[str, int]:
        """Return who does not want to be asked about a schedule: framework → until when."""
        schedule = self._schedules.get(agent)
        if schedule is None or schedule.unavailability != unavailability:
            return {}
        return dict(schedule.refused)

    def keep_refusals(self, agent: str, before: "Maintenance") -> None:
        """Take over who did not want to be asked, if the agent's schedule is the same."""
        schedule = self._schedules[agent]
        schedule.refused = before.refusals(agent, schedule.unavailability)

    def statuses(self) -> list[contract.InverseOfferState]:
        """Return all answers; an agent without any has an entry without a framework."""
        nobody: dict[str, bytes | None] = {"": None}
        return [
            contract.InverseOfferState(
                agent_id=agent,
                framework_id=framework,
                status=status,
                outstanding=framework in schedule.outstanding,
            )
            for agent, schedule in self._schedules.items()
            for framework, status in (schedule.statuses or nobody).items()
        ]

    def drop_filters(self, *, framework: str | None = None, agent: str | None = None) -> None:
        """Ask again those who did not want to be asked for a while."""
        for name, schedule in self._schedules.items():
            if agent is not None and name != agent:
                continue
            if framework is None:
                schedule.refused.clear()
            else:
                schedule.refused.pop(framework, None)

    def withdraw(self, *, framework: str | None = None, agent: str | None = None) -> None:
        """Forget that anybody, or an agent's frameworks, or a framework, was asked.

        The master drops inverse offers to those who are not active without a word.
        """
        for name, schedule in self._schedules.items():
            if agent is not None and name != agent:
                continue
            if framework is None:
                schedule.outstanding.clear()
            else:
                schedule.outstanding.discard(framework)

    def forget(self, framework: str) -> None:
        """Forget a framework that is gone."""
        for schedule in self._schedules.values():
            schedule.outstanding.discard(framework)
            schedule.statuses.pop(framework, None)
            schedule.refused.pop(framework, None)


def read_unavailability(
    call: contract.AddAgent | contract.UpdateUnavailability,
) -> tuple[bytes | None, ValidationError | None]:
    """Return a call's serialised Unavailability as it is, and what is wrong with it.

    One that cannot be read is as good as none: nobody could be told when to leave.
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
    """Return a serialised InverseOfferStatus as it is, or what is wrong with it."""
    try:
        status = mesos.InverseOfferStatus.FromString(data)
    except DecodeError as error:
        words = f"not a serialised mesos.allocator.InverseOfferStatus: {error}"
        return None, ValidationError("malformed", words)
    if not status.IsInitialized() or status.status == mesos.InverseOfferStatus.UNKNOWN:
        return None, ValidationError(
            "malformed", "an inverse offer is answered by ACCEPT or DECLINE"
        )
    return data, None
