"""Inverse offers compared with a plain record of each pair of an agent and a framework."""

import random
from dataclasses import dataclass

import pytest

from allocator.cluster.agents.maintenance import Maintenance, read_status, read_unavailability
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.examples import scaled

AGENTS, FRAMEWORKS = ("s1", "s2"), ("f1", "f2", "f3")
Status = mesos.InverseOfferStatus


def status(answer: mesos.InverseOfferStatus.Status.ValueType) -> bytes:
    framework, instant = mesos.FrameworkID(value="f1"), mesos.TimeInfo(nanoseconds=1)
    return Status(status=answer, framework_id=framework, timestamp=instant).SerializeToString()


ACCEPTED, DECLINED = status(Status.ACCEPT), status(Status.DECLINE)


@dataclass
class Said:
    """State of one framework on one agent."""

    asked: bool = False
    answer: bytes | None = None
    not_before: int = -1


class Both:
    """The tested object, and a plain record by pairs, with the same calls applied to both."""

    def __init__(self, seed: int) -> None:
        self.lot = random.Random(seed)
        self.real = Maintenance()
        self.schedules: dict[str, bytes] = {}
        self.said = {(agent, framework): Said() for agent in AGENTS for framework in FRAMEWORKS}
        self.now = 100

    def pairs(self, agent: str | None = None, framework: str | None = None) -> list[Said]:
        """Return the records of pairs whose agent has a schedule."""
        return [
            answer
            for (a, f), answer in self.said.items()
            if a in self.schedules and agent in {None, a} and framework in {None, f}
        ]

    def schedule(self, agent: str, _framework: str) -> None:
        unavailability = self.lot.choice([None, b"soon", b"later"])
        self.real.schedule(agent, unavailability)
        self.schedules.pop(agent, None)
        self.said |= {(agent, framework): Said() for framework in FRAMEWORKS}
        if unavailability is not None:
            self.schedules[agent] = unavailability

    def ask(self, agent: str, framework: str) -> None:
        may = [p for p in self.pairs(agent, framework) if not p.asked and p.not_before < self.now]
        taken = self.real.take_inverse_offer(agent, framework, self.now)
        assert taken == (self.schedules[agent] if may else None)
        for pair in may:
            pair.asked = True

    def answer(self, agent: str, framework: str) -> None:
        status = self.lot.choice([None, ACCEPTED, DECLINED])
        until = self.lot.choice([None, self.now, self.now + 1, self.now + 3])
        self.real.record_answer(agent, framework, status, until)
        for pair in self.pairs(agent, framework):
            pair.answer = status if pair.asked and status else pair.answer
            pair.not_before = pair.not_before if until is None else until
            pair.asked = False

    def restore(self, agent: str, framework: str) -> None:
        state = contract.InverseOfferState(agent_id=agent, framework_id=framework)
        state.outstanding = self.lot.random() < 0.5
        if self.lot.random() < 0.7:
            state.status = self.lot.choice([ACCEPTED, b"\xff"])
        self.real.restore(state)
        for pair in self.pairs(agent, framework):
            pair.asked |= state.outstanding
            pair.answer = ACCEPTED if state.status == ACCEPTED else pair.answer

    def some(self, agent: str, framework: str) -> dict[str, str]:
        return self.lot.choice([{"agent": agent}, {"framework": framework}])

    def drop_filters(self, agent: str, framework: str) -> None:
        whom = self.some(agent, framework)
        self.real.drop_filters(**whom)
        for pair in self.pairs(**whom):
            pair.not_before = -1

    def withdraw(self, agent: str, framework: str) -> None:
        whom = self.some(agent, framework)
        self.real.withdraw(**whom)
        for pair in self.pairs(**whom):
            pair.asked = False

    def forget(self, _agent: str, framework: str) -> None:
        self.real.forget(framework)
        self.said |= {(agent, framework): Said() for agent in AGENTS}

    def statuses(self) -> list[contract.InverseOfferState]:
        states = []
        for agent in self.schedules:
            answers = {f: s for (a, f), s in self.said.items() if a == agent and s.answer}
            states += [
                contract.InverseOfferState(
                    agent_id=agent, framework_id=f, status=s.answer, outstanding=s.asked
                )
                for f, s in answers.items()
            ] or [contract.InverseOfferState(agent_id=agent, framework_id="", outstanding=False)]
        return states

    def check(self) -> None:
        assert self.real.agents() == list(self.schedules)
        assert ordered(self.real.statuses()) == ordered(self.statuses())
        for agent in AGENTS:
            known = {f: self.said[agent, f].not_before for f in FRAMEWORKS}
            refused = {f: u for f, u in known.items() if agent in self.schedules and u >= 0}
            assert self.real.filters(agent, self.schedules.get(agent, b"soon")) == refused
            assert self.real.filters(agent, b"another schedule") == {}


def ordered(states: list[contract.InverseOfferState]) -> list[bytes]:
    return sorted(state.SerializeToString(deterministic=True) for state in states)


def test_each_framework_gets_one_inverse_offer_and_another_as_soon_as_filters_allow() -> None:
    for seed in range(scaled(200)):
        both = Both(seed)
        lot = both.lot
        steps = [both.schedule, both.answer, both.restore, both.forget, both.ask, both.ask]
        steps += [both.drop_filters, both.withdraw, both.ask]
        for _ in range(30):
            both.now += lot.randrange(2)
            lot.choice(steps)(lot.choice(AGENTS), lot.choice(FRAMEWORKS))
            both.check()


@pytest.mark.parametrize(("schedule", "kept"), [(b"soon", {"f1": 7}), (b"later", {})])
def test_inverse_offer_filters_are_kept_while_the_schedule_is_unchanged(
    schedule: bytes, kept: dict[str, int]
) -> None:
    before, after = Maintenance(), Maintenance()
    before.schedule("s1", b"soon")
    before.record_answer("s1", "f1", None, 7)
    after.schedule("s1", schedule)
    after.keep_refusals("s1", before)
    assert after.filters("s1", schedule) == kept
    after.drop_filters(framework="f1")
    assert before.filters("s1", b"soon") == {"f1": 7}, "the two objects do not share filters"


def test_an_inverse_offer_answer_is_accept_or_decline() -> None:
    for answer_status in (ACCEPTED, DECLINED):
        assert read_status(answer_status) == (answer_status, None)
    unknown = status(Status.UNKNOWN)
    half = Status(status=Status.ACCEPT).SerializePartialToString()
    for answer_status, words in (
        (unknown, "ACCEPT or DECLINE"),
        (half, "ACCEPT"),
        (b"\xff", "serialised"),
    ):
        data, flaw = read_status(answer_status)
        assert data is None
        assert flaw is not None
        assert words in flaw.words


def test_an_unavailability_has_a_start_or_is_absent() -> None:
    start = mesos.TimeInfo(nanoseconds=5)
    serialised = mesos.Unavailability(start=start).SerializeToString()
    assert read_unavailability(contract.UpdateUnavailability()) == (None, None)
    call = contract.UpdateUnavailability(unavailability=serialised)
    assert read_unavailability(call) == (serialised, None)
    for wrong, words in ((b"\xff", "serialised"), (b"", "missing")):
        data, flaw = read_unavailability(contract.UpdateUnavailability(unavailability=wrong))
        assert data is None
        assert flaw is not None
        assert words in flaw.words
