"""Messages of many events are split: other tasks run in between, and replay is exact."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.service.loop import engine_lock
from allocator.service.loop.cooperative import run_in_slices
from allocator.service.masters.message_splitting import MAX_EVENTS_PER_PART, split_message
from allocator.service.masters.session import Session
from allocator.service.record.event_log import read
from allocator.service.record.replay import replay
from allocator.service.show.shares import read_shares
from tests.cluster.conformance.quota_side import reserve
from tests.cluster.master_side import agent_call, framework_info, resources
from tests.service.masters.site import Site, snapshot, ticks
from tests.service.served import hello

ORDER = operator.Order(set_weight=operator.SetWeight(user="b", weight=2.0))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "log")
    yield made
    made.event_log.close()


@pytest.mark.parametrize(
    "many", [0, 1, MAX_EVENTS_PER_PART, MAX_EVENTS_PER_PART + 1, 2 * MAX_EVENTS_PER_PART + 500]
)
def test_a_long_message_is_answered_part_by_part_and_counts_once(site: Site, many: int) -> None:
    async def main() -> list[int]:
        heard = [answer.decisions.applied_sequence async for answer in site.answers(*ticks(many))]
        return heard[1:]

    assert asyncio.run(main()) == [*range(MAX_EVENTS_PER_PART, many, MAX_EVENTS_PER_PART), many]
    assert site.messages == 2, "the snapshot and the message"


def test_resources_recovered_for_an_operator_are_not_offered_before_the_reservation(
    site: Site,
) -> None:
    events = ticks(MAX_EVENTS_PER_PART + 5)
    back = contract.RecoverResources(
        framework_id="f1", agent_id="s1", resources=resources("cpus:4;mem:4096", "a")
    )
    reserving = contract.UpdateAvailable(
        agent_id="s1", operations=[reserve(resources("cpus(b):3"))]
    )
    events[MAX_EVENTS_PER_PART - 1].recover_resources.CopyFrom(back)
    events[MAX_EVENTS_PER_PART].update_available.CopyFrom(reserving)

    async def main() -> list[contract.Decisions]:
        return [answer.decisions async for answer in site.answers(*events)][1:]

    heard = asyncio.run(main())
    assert [decisions.applied_sequence for decisions in heard] == [
        MAX_EVENTS_PER_PART + 1,
        MAX_EVENTS_PER_PART + 5,
    ]
    assert [(reply.sequence, reply.error) for reply in heard[0].replies] == [
        (MAX_EVENTS_PER_PART + 1, "")
    ]


BACK = contract.RecoverResources(
    framework_id="f1", agent_id="s1", resources=resources("cpus:4;mem:4096", "a")
)
TENANT = contract.AddFramework(framework_id="f2", info=framework_info("f2", "b"))
NEWCOMER = contract.AddFramework(framework_id="f3", info=framework_info("f3", "b"), active=True)
AGENT = agent_call("s2", "cpus:2;mem:64", {"f2": resources("cpus:1", "b")})
ASKED = contract.UpdateInverseOffer(agent_id="s1", framework_id="f1")
PROVIDER = contract.AddResourceProvider(agent_id="s1")


SAID: dict[str, dict[str, object]] = {
    "add_agent": {"add_agent": AGENT},
    "add_resource_provider": {"add_resource_provider": PROVIDER},
    "deactivate_framework": {"deactivate_framework": contract.DeactivateFramework()},
    "newcomer": {"add_framework": NEWCOMER},
    "recover_resources": {"recover_resources": BACK},
    "set_quota": {"set_quota": contract.SetQuota()},
    "tenant": {"add_framework": TENANT},
    "update_available": {"update_available": contract.UpdateAvailable()},
    "update_inverse_offer": {"update_inverse_offer": ASKED},
    "update_unavailability": {"update_unavailability": contract.UpdateUnavailability()},
}


def lengths(*calls: str) -> list[int]:
    """Return the numbers of events in the parts, with these calls at the first part boundary."""
    events = [
        *ticks(MAX_EVENTS_PER_PART - 1),
        *(contract.Event(**SAID[call]) for call in calls),  # type: ignore[arg-type]
        *ticks(9),
    ]
    message = contract.FromMaster(events=contract.Events(events=events))
    return [len(part.events.events) for part in split_message(message)]


@pytest.mark.parametrize(
    "calls",
    [
        ("recover_resources", "update_available"),
        ("recover_resources", "update_inverse_offer", "update_unavailability"),
        ("add_agent", "tenant", "tenant"),
        ("add_resource_provider", "newcomer"),
    ],
    ids="-".join,
)
def test_calls_stay_together_if_the_last_call_completes_the_group(
    calls: tuple[str, ...],
) -> None:
    assert lengths(*calls) == [MAX_EVENTS_PER_PART - 1 + len(calls), 9]


@pytest.mark.parametrize(
    "calls",
    [
        ("update_unavailability", "update_unavailability"),
        ("recover_resources", "recover_resources"),
        ("add_agent", "newcomer"),
        ("deactivate_framework", "recover_resources"),
        ("set_quota", "recover_resources"),
    ],
    ids="-".join,
)
def test_independent_calls_are_split_at_the_part_boundary(
    calls: tuple[str, ...],
) -> None:
    assert lengths(*calls) == [MAX_EVENTS_PER_PART, len(calls) + 8]


def test_nothing_is_offered_between_pause_and_resume_across_a_part_boundary(
    site: Site,
) -> None:
    events = ticks(MAX_EVENTS_PER_PART + 5)
    events[MAX_EVENTS_PER_PART - 3].pause.SetInParent()
    events[MAX_EVENTS_PER_PART - 1].recover_resources.CopyFrom(BACK)
    events[MAX_EVENTS_PER_PART + 2].resume.SetInParent()

    async def main() -> list[contract.Decisions]:
        return [answer.decisions async for answer in site.answers(*events)][1:]

    heard = asyncio.run(main())
    assert [decisions.applied_sequence for decisions in heard] == [
        MAX_EVENTS_PER_PART,
        MAX_EVENTS_PER_PART + 5,
    ]
    assert [bool(decisions.offers) for decisions in heard] == [False, True]


def test_an_order_and_a_query_between_two_parts_are_handled_and_replayed(
    site: Site, tmp_path: Path
) -> None:
    seen = []

    async def main() -> None:
        async for answer in site.answers(*ticks(3 * MAX_EVENTS_PER_PART)):
            if answer.decisions.applied_sequence == MAX_EVENTS_PER_PART:
                async with site.turn:
                    site.engine.order(ORDER)
                seen.extend(
                    await run_in_slices(read_shares(site.engine, site.engine.users()), site.turn)
                )

    asyncio.run(main())
    assert {row.user: row.standing.weight for row in seen} == {"a": 1.0, "b": 2.0}
    site.event_log.flush()
    kinds = [entry.WhichOneof("entry") for entry in read(tmp_path / "log")]
    assert kinds == ["header", "restore", "apply", "order", "apply", "apply"]
    assert replay(tmp_path / "log").difference is None


def test_a_task_waits_for_the_engine_lock_for_at_most_one_part(site: Site) -> None:
    sequences: list[int] = []

    async def look() -> None:
        async with site.turn:
            sequences.append(site.engine.sequence)

    async def main() -> None:
        looking = [
            asyncio.create_task(look())
            async for _answer in site.answers(*ticks(4 * MAX_EVENTS_PER_PART))
        ]
        await asyncio.gather(*looking)

    asyncio.run(main())
    assert sequences[0] <= MAX_EVENTS_PER_PART
    assert sequences[1] <= 2 * MAX_EVENTS_PER_PART
    assert sequences[2] <= 3 * MAX_EVENTS_PER_PART


def test_an_inconsistency_in_a_long_message_requests_a_single_snapshot(
    site: Site, tmp_path: Path
) -> None:
    lost = ticks(3 * MAX_EVENTS_PER_PART)
    del lost[MAX_EVENTS_PER_PART + 10]

    async def main() -> list[str | None]:
        return [answer.WhichOneof("message") async for answer in site.answers(*lost)]

    assert asyncio.run(main()) == ["decisions", "decisions", "snapshot_request"]
    site.event_log.flush()
    assert replay(tmp_path / "log").difference is None


def test_a_snapshot_takes_effect_only_when_it_is_complete() -> None:
    engine = Engine(EngineSettings(policies.create("drf", {})))
    engine.restore(contract.Options(), snapshot(3))
    steps = engine.restore_in_steps(contract.Options(), snapshot(40))
    for _part in range(41):
        next(steps)
        assert (engine.agents, engine.sequence) == (3, 0)
    decisions = run_to_completion(steps)
    assert engine.agents == 40
    assert len(decisions.offers[0].offers) == 40


def test_during_a_snapshot_other_tasks_run_and_engine_readers_wait(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_lock, "BUDGET", 0.0)
    beats: list[int] = []
    counts: list[int] = []

    async def look() -> None:
        async with site.turn:
            counts.append(site.engine.agents)

    async def main() -> None:
        async def listen() -> None:
            async for _answer in site.answers(*ticks(1), agents=60):
                pass

        listening = asyncio.create_task(listen())
        looking: asyncio.Task[None] | None = None
        while not listening.done():
            if site.messages and looking is None:
                looking = asyncio.create_task(look())
            beats.append(site.engine.agents)
            await asyncio.sleep(0)
        assert looking is not None
        await looking

    asyncio.run(main())
    assert beats.count(0) > 60, "other tasks run between any two agents"
    assert counts == [60]


def test_a_master_that_disconnects_before_its_snapshot_is_read_does_not_lead(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_lock, "BUDGET", 0.0)

    async def main() -> None:
        session = Session(site.engine, site.statistics, site.sessions)

        async def requests() -> AsyncIterator[contract.FromMaster]:
            yield hello()
            yield contract.FromMaster(snapshot=snapshot(60))

        async def listen() -> None:
            messages = requests()
            await session.greet(messages)
            async for _answer in session.serve(messages):
                pass

        listening = asyncio.create_task(listen())
        while not site.messages:  # noqa: ASYNC110 - as many turns of the loop as it takes
            await asyncio.sleep(0)
        listening.cancel()
        site.sessions._remove(session)
        async with site.turn:
            assert not site.statistics.connected

    asyncio.run(main())
    assert site.engine.agents == 60
