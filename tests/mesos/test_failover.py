"""Three masters, ZooKeepers and services: if the leader fails, another master takes over.

Wants a real ZooKeeper as well: LONGSHARE_ZOOKEEPER_CLASSPATH names its jars.
"""

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.frameworks.local_mesos.shell import HttpScheduler
from tests.mesos.cluster import TAU, next_offer
from tests.mesos.ensemble import (
    PATIENCE,
    Ensemble,
    booked_twice,
    ensemble,
    go_on,
    rejoin,
    stop,
    wait_until,
)
from tests.mesos.test_real_mesos import decline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EXCESS = 0.25
"""Three of four cores, where half of them is one's own."""
BOUND = EXCESS * (1.0 - math.exp(-3.0 / TAU))
"""Commitment accrued in the second between two saves and the one or two seconds of reading."""


def kill(three: Ensemble, leader: int) -> None:
    three.masters[leader].kill()


def freeze(three: Ensemble, leader: int) -> None:
    stop(three.masters[leader])


def cut_off(three: Ensemble, leader: int) -> None:
    stop(three.zookeepers[leader])


def kill_with_service(three: Ensemble, leader: int) -> None:
    three.services[leader].process.kill()
    three.services[leader].process.wait()
    three.masters[leader].kill()


def assert_kept(before: float, after: float, elapsed: float) -> None:
    """Compare commitments after a failover with those before.

    The upper bound is a service without a failover, which accrues all the time. The lower bound is
    mere decay, because a service may not accrue while agents are missing.
    """
    fading = math.exp(-elapsed / TAU)
    twin, spared = EXCESS + (before - EXCESS) * fading, before * fading
    assert before > 3 * BOUND, "the commitment is too small for a meaningful comparison"
    assert spared - BOUND <= after <= twin + BOUND


@pytest.mark.parametrize("fail", [kill, freeze, cut_off, kill_with_service])
def test_after_a_failover_no_resource_is_lost_or_allocated_twice(
    tmp_path: Path, fail: Callable[[Ensemble, int], None]
) -> None:
    async def conduct(three: Ensemble) -> None:
        leader = three.leader()
        async with aiohttp.ClientSession() as session:
            greedy = HttpScheduler(session, three.addresses[leader])
            modest = HttpScheduler(session, three.addresses[leader])
            await rejoin(greedy, None, "greedy")
            offers: list[dict[str, Any]] = []
            while len(offers) < 2:
                event = await asyncio.wait_for(greedy.next("OFFERS"), PATIENCE)
                offers += event["offers"]
            await greedy.call("SUPPRESS")
            for offer, names in zip(offers, (("t1", "t2"), ("t3",)), strict=True):
                await greedy.launch(offer, *names, command="sleep 1000")
                await asyncio.wait_for(greedy.states_of(names[-1], "TASK_RUNNING"), PATIENCE)
            await rejoin(modest, None, "modest")
            await decline(modest, await next_offer(modest), 0.01)
            await modest.call("SUPPRESS")
            await asyncio.sleep(12.0)
            # Less has run up until now if the master has not told of its latest seconds.
            await asyncio.to_thread(
                wait_until,
                lambda: three.shares(leader)[1]["greedy"]["dominant_commitment"] > 3 * BOUND,
            )
            when, before = three.shares(leader)
            await asyncio.to_thread(three.wait_until_saved, leader)
            known = greedy.framework_id, modest.framework_id
            fail(three, leader)
            begun = time.monotonic()
            new = await asyncio.to_thread(three.leader, leader)
            led = time.monotonic() - begun
            rejoined = HttpScheduler(session, three.addresses[new])
            await rejoin(rejoined, known[1], "modest")
            offer = await asyncio.wait_for(next_offer(rejoined), PATIENCE)
            print(  # noqa: T201 - a measurement
                f"{fail.__name__}: led and served after {led:.1f} s, "
                f"next offer after {time.monotonic() - begun:.1f} s"
            )
            back = HttpScheduler(session, three.addresses[new])
            await rejoin(back, known[0], "greedy")
            await asyncio.to_thread(
                wait_until, lambda: three.metrics(new).get("master/tasks_running") == 3
            )
            assert three.metrics(new)["master/tasks_lost"] == 0
            assert booked_twice(three.state(new), [offer]) == []
            then, after = three.shares(new)
            owed, owes = (shares["greedy"]["dominant_commitment"] for shares in (before, after))
            assert_kept(owed, owes, then - when)
            if fail is freeze:
                go_on(three.masters[leader])
            if fail is cut_off:
                go_on(three.zookeepers[leader])
            await asyncio.to_thread(
                wait_until, lambda: three.metrics(leader).get("master/elected", 0) == 0
            )
            await asyncio.to_thread(wait_until, lambda: three.served() == [new])
            for scheduler in (greedy, modest, rejoined, back):
                scheduler.break_off()

    with ensemble(tmp_path) as three:
        three.start_agents(2, "cpus:2;mem:512;disk:64;ports:[1-9]")
        asyncio.run(conduct(three))
