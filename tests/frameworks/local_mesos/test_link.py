"""The stream to the allocator, on a real channel: order, batches, loss and return."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from frameworks.local_mesos import link as link_module
from frameworks.local_mesos.server import Embedded, serving
from tests.frameworks.local_mesos.shell import (
    Context,
    GreedyAllocator,
    HttpScheduler,
    listening,
    settings,
    system,
    until,
)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry often."""
    monkeypatch.setattr(link_module, "LAST_RETRY", 0.05)


def _kinds(allocator: GreedyAllocator) -> list[str | None]:
    return [message.WhichOneof("message") for message in allocator.received]


def _snapshots_exceed(allocator: GreedyAllocator, number: int) -> bool:
    return allocator.snapshots > number


def test_a_session_is_hello_then_a_snapshot_then_events(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path, agents=3) as (allocator, embedded):
            await until(lambda: len(allocator.received) > 5)
            assert _kinds(allocator)[:2] == ["hello", "snapshot"]
            assert set(_kinds(allocator)[2:]) == {"events"}
            hello = allocator.received[0].hello
            assert (hello.contract_version, hello.mesos_version) == (VERSION, "1.8.0")
            assert hello.session_id
            assert hello.options.allocation_interval_ns == 10**9
            assert [dict(q.amounts) for q in hello.options.min_allocatable] == [
                {"cpus": 0.01},
                {"mem": 32.0},
            ]
            assert len(allocator.received[1].snapshot.agents) == 3
            await until(lambda: embedded.link.metrics()["longshare/synchronised"] == 1)
            assert embedded.link.metrics() | {"longshare/queue_events": 0} == {
                "longshare/connected": 1,
                "longshare/synchronised": 1,
                "longshare/sessions_total": 1,
                "longshare/resyncs_total": 0,
                "longshare/queue_events": 0,
            }

    asyncio.run(scenario())


def test_simultaneous_events_go_into_one_message_with_one_tick(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path, speed=0.01) as (allocator, embedded):
            before = len(allocator.received)
            for call in ("tick", "pause", "resume", "tick", "tick"):
                event = contract.Event(time_ns=embedded.master.clock.now_ns)
                getattr(event, call).SetInParent()
                embedded.link.tell(event)
            await until(lambda: len(allocator.received) > before)
            [message] = allocator.received[before:]
            kinds = [event.WhichOneof("call") for event in message.events.events]
            assert kinds == ["tick", "pause", "resume"]

    asyncio.run(scenario())


def test_the_clock_waits_until_the_allocator_has_all_events_or_is_disconnected(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        allocator = GreedyAllocator()
        async with serving(settings(f"unix://{tmp_path}/a", speed=0.01)) as embedded:
            link, master = embedded.link, embedded.master
            async with listening(allocator, tmp_path):
                await until(lambda: link.connected and not link.awaiting)
                for _ in range(2):
                    link.tell(contract.Event(time_ns=master.clock.now_ns, pause=contract.Pause()))
                    assert link.awaiting
                    await until(lambda: not link.awaiting)
                    assert allocator.book.sequence == link.sequence
                    link.tell(contract.Event(time_ns=master.clock.now_ns, resume=contract.Resume()))
                    await until(lambda: not link.awaiting)
            await until(lambda: not link.connected)
            link.tell(contract.Event(time_ns=master.clock.now_ns, pause=contract.Pause()))
            assert not link.awaiting

    asyncio.run(scenario())


def test_the_master_runs_without_an_allocator_and_connects_once_the_allocator_starts(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            serving(settings(f"unix://{tmp_path}/a")) as embedded,
            aiohttp.ClientSession() as http,
        ):
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe()
            assert not embedded.link.connected
            allocator = GreedyAllocator()
            async with listening(allocator, tmp_path):
                offers = await scheduler.next("OFFERS")
                assert len(offers["offers"]) == 2
                [framework] = allocator.received[1].snapshot.frameworks
                assert framework.framework_id == scheduler.framework_id
                assert framework.active

    asyncio.run(scenario())


def test_tasks_run_on_and_nothing_is_lost_when_the_allocator_is_killed_and_restarted(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        first = GreedyAllocator()
        async with (
            serving(settings(f"unix://{tmp_path}/a")) as embedded,
            aiohttp.ClientSession() as http,
        ):
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe()
            async with listening(first, tmp_path):
                first_offer, second_offer = (await scheduler.next("OFFERS"))["offers"]
                first.offering = False
                await scheduler.launch(first_offer, "short", command="sleep 10")
                await scheduler.launch(second_offer, "long", command="sleep 1000000")
            await until(lambda: not embedded.link.connected)
            assert embedded.link.metrics()["longshare/synchronised"] == 0
            states = await scheduler.states_of("short", "TASK_FINISHED")
            assert states == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
            assert embedded.master.frameworks[scheduler.framework_id].connected
            for _ in range(3):  # and again, and again
                await _check_restart(tmp_path, embedded, second_offer["agent_id"]["value"])
            assert "long" in embedded.master.frameworks[scheduler.framework_id].tasks

    asyncio.run(scenario())


async def _check_restart(folder: Path, embedded: Embedded, agent_id: str) -> None:
    """Start an allocator, check the messages that it receives, and kill the allocator."""
    restarted = GreedyAllocator()
    restarted.offering = False
    async with listening(restarted, folder):
        await until(lambda: len(restarted.received) > 4)
        assert _kinds(restarted)[:2] == ["hello", "snapshot"]
        assert set(_kinds(restarted)[2:]) == {"events"}
        held = {key: +amounts for key, amounts in restarted.book.held.items() if +amounts}
        [(place, amounts)] = held.items()
        assert place[0] == agent_id
        assert amounts == {("cpus", (), None): 1000}
    assert restarted.failure is None
    await until(lambda: not embedded.link.connected)


def test_an_allocator_that_requests_a_snapshot_gets_the_snapshot_and_later_events(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe()
            await scheduler.next("OFFERS")
            for rounds in range(1, 4):
                allocator.ask_anew = True
                await until(partial(_snapshots_exceed, allocator, rounds))
            sequence = allocator.book.sequence
            await until(lambda: allocator.book.sequence > sequence + 3)
            assert allocator.sessions == 1
            assert embedded.link.metrics()["longshare/resyncs_total"] == 3

    asyncio.run(scenario())


def test_the_unused_part_of_an_accept_is_in_one_message_with_pause_and_resume(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe()
            for offer in (await scheduler.next("OFFERS"))["offers"]:
                await scheduler.launch(offer, f"t-{offer['id']['value']}")
            await until(lambda: any(e.HasField("resume") for e in allocator.events()))
            for message in allocator.received:
                kinds = [event.WhichOneof("call") for event in message.events.events]
                assert kinds.count("pause") == kinds.count("resume")

    asyncio.run(scenario())


def test_a_refusing_allocator_is_retried_and_its_reason_is_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stern(GreedyAllocator):
        async def Session(  # noqa: N802 - the name is the contract's
            self,
            request_iterator: AsyncIterator[contract.FromMaster],  # noqa: ARG002 - not even read
            context: Context,
        ) -> AsyncIterator[contract.ToMaster]:
            self.sessions += 1
            yield contract.ToMaster()  # says nothing yet
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not this one")

    async def scenario() -> None:
        stern = Stern()
        async with (
            listening(stern, tmp_path) as address,
            serving(settings(address)) as embedded,
        ):
            await until(lambda: stern.sessions > 3)
            assert not embedded.link.connected
            assert not embedded.background.done()

    asyncio.run(scenario())
    assert capsys.readouterr().out.count("not this one") == 1


def test_many_schedulers_and_the_allocator_agree_to_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            system(tmp_path, agents=4, speed=50.0) as (allocator, embedded),
            aiohttp.ClientSession() as http,
        ):
            schedulers = [HttpScheduler(http, embedded.address) for _ in range(4)]
            for scheduler in schedulers:
                await scheduler.subscribe()

            await asyncio.gather(*(_work(*numbered) for numbered in enumerate(schedulers)))
            await until(lambda: not allocator.book.frameworks)
            assert not any(+amounts for amounts in allocator.book.held.values())
            assert embedded.link.metrics()["longshare/resyncs_total"] == 0
            rejected = [
                e.reject_offer.reason for e in allocator.events() if e.HasField("reject_offer")
            ]
            # The call was made while the agent's removal was under way; no other call is ever
            # rejected.
            assert set(rejected) <= {"the framework is gone or not connected"}
            assert embedded.master.counters["tasks_finished"] >= 20

    asyncio.run(scenario())


async def _work(number: int, scheduler: HttpScheduler) -> None:
    """Run five pairs of tasks, each pair on a single offer, and leave."""
    for lap in range(5):
        await scheduler.call("REVIVE")
        offer = await _offer_of_two_cpus(scheduler)
        task = f"{number}-{lap}"
        await scheduler.launch(offer, task, f"{task}-b")
        await scheduler.states_of(task, "TASK_FINISHED")
    await scheduler.call("TEARDOWN")


async def _offer_of_two_cpus(scheduler: HttpScheduler) -> dict[str, Any]:
    """Wait for an offer, suppress further offers, and decline all remaining ones."""
    fitting: list[dict[str, Any]] = []
    small_offers: list[dict[str, Any]] = []
    while not fitting:
        offers = (await scheduler.next("OFFERS"))["offers"]
        if any(_cpus(offer) >= 2 for offer in offers):
            await scheduler.call("SUPPRESS")
        while not scheduler.events["OFFERS"].empty():
            offers += (await scheduler.next("OFFERS"))["offers"]
        fitting += [offer for offer in offers if _cpus(offer) >= 2]
        small_offers += [offer for offer in offers if _cpus(offer) < 2]
    for offer in [*fitting[1:], *small_offers]:
        await scheduler.call("DECLINE", decline={"offer_ids": [offer["id"]]})
    return fitting[0]


def _cpus(offer: dict[str, Any]) -> float:
    return float(sum(r["scalar"]["value"] for r in offer["resources"] if r["name"] == "cpus"))


def test_the_master_can_stop_at_any_moment_of_a_connection_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "FIRST_RETRY_S", 0.0)
    monkeypatch.setattr(link_module, "LAST_RETRY", 0.0)

    async def stop_often() -> None:
        address = f"unix://{tmp_path}/nobody"
        async with serving(settings(address)) as embedded:
            for attempt in range(150):
                link = link_module.AllocatorLink(address, contract.Hello())
                attempts = asyncio.create_task(link.run(embedded.master))
                for _ in range(attempt):
                    await asyncio.sleep(0)
                attempts.cancel()
                ended, _ = await asyncio.wait([attempts], timeout=20.0)
                assert ended, "the link is still trying to connect"

    asyncio.run(stop_often())
