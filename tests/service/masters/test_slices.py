"""A long answer leaves in slices while the engine allocates, and a long turn arrives in slices."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from allocator.cluster.allocation import Allocator
from allocator.cluster.allocation import answer as answer_module
from allocator.cluster.engine.allocation_cycle import AllocationCycle
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.service.masters import session
from allocator.service.masters.session import Ended
from allocator.service.record.event_log import read
from allocator.service.record.replay import replay
from tests.cluster.conformance.quota_side import reserve
from tests.cluster.master_side import START_NS, agent_call, framework_info, resources
from tests.service.masters.site import Site, snapshot

SLICE = 4
UNSLICED = 3
"""The last version of the contract without slices."""


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SLICE_OFFERS", SLICE)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "log")
    yield made
    made.event_log.close()


def message(*calls: object, first: int = 1, more: bool = False) -> contract.Events:
    """Return a message with calls, whose sequence numbers begin with `first`."""
    events = contract.Events(more=more)
    for sequence, call in enumerate(calls, first):
        event = events.events.add(sequence=sequence, time_ns=START_NS + sequence)
        field = next(
            field.name
            for field in contract.Event.DESCRIPTOR.oneofs_by_name["call"].fields
            if field.message_type is call.DESCRIPTOR  # type: ignore[attr-defined]
        )
        getattr(event, field).CopyFrom(call)
    return events


def new_agents(many: int, first: int = 1) -> list[contract.AddAgent]:
    return [agent_call(f"n{number}", "cpus:4;mem:4096") for number in range(first, first + many)]


SECOND_FRAMEWORK = contract.AddFramework(
    framework_id="f2", info=framework_info("f2", "b"), active=True
)


def answers(
    site: Site, *messages: contract.Snapshot | contract.Events, version: int = VERSION
) -> list[contract.Decisions]:
    async def main() -> list[contract.Decisions]:
        served = site.serve(snapshot(1), *messages, version=version)
        return [answer.decisions async for answer in served][1:]

    return asyncio.run(main())


def offers(answers: Iterable[contract.Decisions]) -> list[tuple[str, str, str]]:
    """Return framework, role and agent of all offers, by framework in the order of the offers."""
    made = [
        (of_framework.framework_id, offer.role, offer.agent_id)
        for answer in answers
        for of_framework in answer.offers
        for offer in of_framework.offers
    ]
    return sorted(made, key=lambda offer: offer[0])


def agrees(path: Path) -> bool:
    """Return whether an event log replays without a difference."""
    return replay(path).difference is None


def test_slices_contain_the_offers_of_an_undivided_answer(site: Site, tmp_path: Path) -> None:
    calls = message(SECOND_FRAMEWORK, *new_agents(14))
    sliced = answers(site, calls)
    assert [answer.more for answer in sliced] == [True] * (14 // SLICE) + [False]
    assert {answer.applied_sequence for answer in sliced} == {15}
    assert all(sum(len(o.offers) for o in answer.offers) == SLICE for answer in sliced[:-1])
    older = Site(tmp_path / "older")
    [whole] = answers(older, calls, version=UNSLICED)
    older.event_log.close()
    assert len(offers([whole])) == 14
    assert offers(sliced) == offers([whole])
    site.event_log.flush()
    recorded = [[*read(path)][-1].apply.outcome for path in (tmp_path / "log", tmp_path / "older")]
    assert recorded[0] == recorded[1]
    assert agrees(tmp_path / "log")


def test_a_slice_leaves_before_the_cycle_ends(site: Site) -> None:
    async def main() -> list[int]:
        served = site.serve(snapshot(1), message(SECOND_FRAMEWORK, *new_agents(14)))
        return [site.engine.statistics.runs async for _answer in served]

    runs = asyncio.run(main())
    assert runs == [1, 1, 1, 1, 2]


def test_replies_leave_with_the_first_slice(site: Site) -> None:
    reserving = contract.UpdateAvailable(
        agent_id="n1", operations=[reserve(resources("cpus(b):3"))]
    )
    sliced = answers(site, message(*new_agents(9), reserving))
    assert [[reply.sequence for reply in answer.replies] for answer in sliced] == [[10], [], []]


def test_the_answer_to_a_snapshot_is_one_message(site: Site) -> None:
    async def main() -> list[contract.Decisions]:
        return [answer.decisions async for answer in site.serve(snapshot(20))]

    [answer] = asyncio.run(main())
    assert not answer.more
    assert len(offers([answer])) == 20


def test_with_quotas_an_answer_is_one_message(site: Site) -> None:
    quota = contract.UpdateQuota(
        role="a", guarantees=contract.Quantities(amounts={"cpus": 8.0}), limits=None
    )
    [answer] = answers(site, message(quota, *new_agents(9)))
    assert not answer.more
    assert offers([answer])


def test_events_that_the_next_message_continues_cause_no_cycle(site: Site, tmp_path: Path) -> None:
    first, last = new_agents(2), new_agents(1, first=3)
    held, answered = answers(site, message(*first, more=True), message(*last, first=3))
    assert (held.applied_sequence, len(held.offers)) == (2, 0)
    assert len(offers([answered])) == 3
    assert site.engine.statistics.runs == 2, "of the snapshot and of the whole turn"
    site.event_log.flush()
    assert agrees(tmp_path / "log")


def test_a_stream_ended_between_two_slices_gets_no_more_and_the_cycle_is_completed(
    site: Site, tmp_path: Path
) -> None:
    calls = message(SECOND_FRAMEWORK, *new_agents(14))

    received = []

    async def serve() -> None:
        async for answer in site.serve(snapshot(1), calls):
            received.append(answer)
            if answer.decisions.more:
                site.session.end("superseded")

    async def main() -> None:
        with pytest.raises(Ended, match="superseded"):
            await serve()
        async with site.turn:
            assert site.engine.statistics.runs == 2

    asyncio.run(main())
    assert [answer.decisions.more for answer in received] == [False, True]
    site.event_log.flush()
    assert agrees(tmp_path / "log")


def test_after_a_lost_connection_a_new_stream_continues_with_a_snapshot(
    site: Site, tmp_path: Path
) -> None:
    calls = message(SECOND_FRAMEWORK, *new_agents(14))

    async def main() -> list[contract.Decisions]:
        async with aclosing(site.serve(snapshot(1), calls)) as served:
            async for answer in served:
                if answer.decisions.more:
                    break
        again = snapshot(20)
        again.sequence = 15
        served = site.serve(again, message(*new_agents(9, first=50), first=16))
        return [answer.decisions async for answer in served]

    restored, *sliced = asyncio.run(main())
    assert len(offers([restored])) == 20
    assert len(offers(sliced)) == 9
    assert [answer.more for answer in sliced] == [True, True, False]
    site.event_log.flush()
    assert agrees(tmp_path / "log")


class Failing(Allocator):
    """An allocator with a fault: it fails at the tenth new agent."""

    def _may_use(self, agent: object, clients: int) -> int:
        if getattr(agent, "id", "") == "n10":
            raise ZeroDivisionError
        return super()._may_use(agent, clients)  # type: ignore[arg-type]


@pytest.mark.interpreted
def test_a_fault_after_a_slice_requests_a_snapshot_in_place_of_the_last_decisions(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = message(*new_agents(14))

    async def main() -> list[contract.ToMaster]:
        answers = []
        async for answer in site.serve(snapshot(1), calls):
            answers.append(answer)
            monkeypatch.setattr(AllocationCycle, "allocator", Failing)
            site.engine._cycle.set_cluster(site.engine._cluster)
        return answers

    received = asyncio.run(main())[1:]
    kinds = [answer.WhichOneof("message") for answer in received]
    assert kinds[-1] == "snapshot_request"
    assert all(answer.decisions.more for answer in received[:-1])
    site.event_log.flush()
    *_, entry = read(tmp_path / "log")
    recorded = contract.Decisions.FromString(entry.apply.outcome.decisions)
    assert recorded == contract.Decisions(applied_sequence=14)


def resources_by_agent(answers: Iterable[contract.Decisions]) -> dict[str, list[bytes]]:
    """Return the offered resources of each agent, in order."""
    offered: dict[str, list[bytes]] = {}
    for answer in answers:
        for of_framework in answer.offers:
            for offer in of_framework.offers:
                offered.setdefault(offer.agent_id, []).extend(offer.resources)
    return offered


def size(answer: contract.Decisions) -> int:
    """Return the bytes of all offered resources."""
    return sum(map(len, itertools.chain(*resources_by_agent([answer]).values())))


def with_reservations(many: int) -> list[contract.AddAgent]:
    """Return agents with a reservation of each size up to 20 for the role `a`."""
    reserved = ";".join(f"cpus(a/{number}):{number}" for number in range(1, 21))
    return [agent_call(f"n{number}", f"mem(a):64;{reserved}") for number in range(many)]


MOST = 200
SLICES = [(session, "SLICE_BYTES"), (answer_module, "SLICE_BYTES")]


@pytest.mark.parametrize("version", [VERSION, UNSLICED])
@pytest.mark.parametrize("begins", [True, False])
def test_very_long_offers_are_sent_in_several_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, version: int, begins: bool
) -> None:
    """The offers are made for a snapshot, or after the arrival of the agents."""
    monkeypatch.setattr(session, "SLICE_OFFERS", 1000)
    agents, framework = with_reservations(3), framework_info("f2", *(f"a/{n}" for n in range(21)))
    calls = contract.AddFramework(framework_id="f2", info=framework, active=True)
    begun = snapshot(1)
    if begins:
        begun.agents.extend(agents)
        begun.frameworks.append(calls)
    event = message(*([] if begins else [calls, *agents]), contract.Tick())
    undivided = answers_of(tmp_path / "1", begun, event, version=version)
    for module, name in [(session, "MAX_OFFER_BYTES"), *SLICES]:
        monkeypatch.setattr(module, name, MOST)
    divided = answers_of(tmp_path / "2", begun, event, version=version)
    assert resources_by_agent(divided) == resources_by_agent(undivided)
    assert [part.more for part in undivided] == [False, False]
    if version == UNSLICED:
        assert len(divided) == len(undivided), "an older module knows no further messages"
        return
    assert [part.more for part in divided].count(False) == 2
    assert len(divided) > 10
    longest = max(map(len, itertools.chain(*resources_by_agent(undivided).values())))
    assert max(map(size, divided)) <= max(MOST, longest) < max(map(size, undivided))
    assert any(part.HasField("statistics") for part in divided if not part.more)


def test_offers_of_many_long_resources_leave_in_short_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = message(SECOND_FRAMEWORK, *new_agents(14))
    monkeypatch.setattr(session, "SLICE_OFFERS", 1000)
    [undivided] = answers_of(tmp_path / "1", snapshot(1), calls, version=VERSION)[1:]
    for module, name in SLICES:
        monkeypatch.setattr(module, name, MOST)
    sliced = answers_of(tmp_path / "2", snapshot(1), calls, version=VERSION)[1:]
    assert len(sliced) >= 3
    assert max(map(size, sliced)) <= MOST
    assert [slice_.more for slice_ in sliced] == [True] * (len(sliced) - 1) + [False]
    assert offers(sliced) == offers([undivided])
    assert all(of_framework.offers for slice_ in sliced for of_framework in slice_.offers)
    recorded = [[*read(tmp_path / log)][-1].apply.outcome for log in ("1", "2")]
    assert recorded[0] == recorded[1]
    assert agrees(tmp_path / "2")


def answers_of(
    log: Path, begun: contract.Snapshot, events: contract.Events, *, version: int
) -> list[contract.Decisions]:
    """Return all answers of a new service to a snapshot and a message."""
    site = Site(log)

    async def main() -> list[contract.Decisions]:
        return [answer.decisions async for answer in site.serve(begun, events, version=version)]

    with closing(site.event_log):
        return asyncio.run(main())
