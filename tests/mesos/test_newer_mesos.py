"""Features of Mesos 1.9 to 1.11 that 1.8 lacks, on a real master of the newer version."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.mesos.cluster import (
    AGENT,
    PATIENCE,
    Cluster,
    amount,
    cpus,
    needs_mesos,
    next_offer,
    nothing_running,
    running,
)
from tests.mesos.test_real_mesos import decline, nothing_comes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ON_RACK_1 = {
    "role_constraints": {
        "a": {
            "groups": [
                {
                    "attribute_constraints": [
                        {
                            "selector": {"attribute_name": "rack"},
                            "predicate": {"text_equals": {"value": "r1"}},
                        }
                    ]
                }
            ]
        }
    }
}


async def set_quota(cluster: Cluster, role: str, **config: dict[str, float]) -> None:
    amounts = {
        section: {name: {"value": value} for name, value in by_name.items()}
        for section, by_name in config.items()
    }
    update = {"force": True, "quota_configs": [{"role": role, **amounts}]}
    status, text = await cluster.operate("UPDATE_QUOTA", update_quota=update)
    assert status == 200, text


def test_a_role_is_offered_no_more_than_its_limit(tmp_path: Path) -> None:
    needs_mesos(1, 9)

    async def conduct(cluster: Cluster) -> None:
        await set_quota(cluster, "a", limits={"cpus": 5.0})
        async with cluster.scheduler("a") as limited:
            event = await asyncio.wait_for(limited.next("OFFERS"), PATIENCE)
            assert cpus(event) == 5.0
            assert await nothing_comes(limited)
            async with cluster.scheduler("b") as free:
                assert cpus(await asyncio.wait_for(free.next("OFFERS"), PATIENCE)) == 3.0
            limit = "allocator/mesos/quota/roles/a/resources/cpus/limit"
            metrics = cluster.wait_for(
                lambda metrics: limit in metrics
            )  # from the next tick's answer on
            assert metrics[limit] == 5.0

    with running(tmp_path, 2) as cluster:
        asyncio.run(conduct(cluster))


def test_limits_outlive_the_service(tmp_path: Path) -> None:
    needs_mesos(1, 9)

    async def conduct(cluster: Cluster) -> None:
        await set_quota(cluster, "a", limits={"cpus": 1.0})
        cluster.kill_service()
        cluster.wait_for(lambda metrics: metrics["longshare/connected"] == 0)
        cluster.start_service()
        async with cluster.scheduler("a") as scheduler:
            assert amount(await next_offer(scheduler), "cpus") == 1.0
            assert await nothing_comes(scheduler)

    with running(tmp_path) as cluster:
        asyncio.run(conduct(cluster))


def test_used_resources_are_distinguished_from_offered_resources(tmp_path: Path) -> None:
    needs_mesos(1, 10)

    async def offered(cluster: Cluster, expected: float) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                standing: dict[str, Any] = cluster.shares()["a"]
                if standing["offered_share"] == expected:
                    return
                await asyncio.sleep(0.2)

    async def conduct(cluster: Cluster) -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            await offered(cluster, 1.0)
            await scheduler.call("SUPPRESS")
            await scheduler.launch(offer, "t1", command="sleep 100")
            await asyncio.wait_for(scheduler.states_of("t1", "TASK_RUNNING"), PATIENCE)
            await offered(cluster, 0.0)
            assert cluster.shares()["a"]["dominant_share"] == 0.25
            cluster.kill_service()
            cluster.wait_for(lambda metrics: metrics["longshare/connected"] == 0)
            cluster.start_service()
            cluster.wait_for(lambda metrics: metrics["longshare/synchronised"] == 1)
            await offered(cluster, 0.0)  # the snapshot contains the running tasks
            await scheduler.call("REVIVE")
            await next_offer(scheduler)
            await offered(cluster, 0.75)

    with running(tmp_path) as cluster:
        asyncio.run(conduct(cluster))


def test_offer_constraints_select_among_earlier_and_later_agents(tmp_path: Path) -> None:
    needs_mesos(1, 11)

    async def conduct(cluster: Cluster) -> None:
        cluster.mesos.agent(cluster.address, "wrong", AGENT, "--attributes=rack:r2")
        cluster.mesos.agent(cluster.address, "right", AGENT, "--attributes=rack:r1")
        cluster.wait_for(lambda metrics: metrics["master/slaves_active"] == 2)
        async with cluster.scheduler("a", constraints=ON_RACK_1) as scheduler:
            offer = await next_offer(scheduler)
            assert offer["hostname"] == "right"
            assert await nothing_comes(scheduler)
            cluster.mesos.agent(cluster.address, "later-wrong", AGENT, "--attributes=rack:r2")
            cluster.mesos.agent(cluster.address, "later-right", AGENT, "--attributes=rack:r1")
            assert (await next_offer(scheduler))["hostname"] == "later-right"
            assert await nothing_comes(scheduler)
            cluster.kill_service()
            cluster.wait_for(lambda metrics: metrics["longshare/connected"] == 0)
            cluster.start_service()
            cluster.wait_for(lambda metrics: metrics["longshare/synchronised"] == 1)
            assert await nothing_comes(scheduler), "constraints are in the snapshot"
            await decline(scheduler, offer, 0.01)
            assert (await next_offer(scheduler))["hostname"] == "right"

    with nothing_running(tmp_path) as cluster:
        cluster.start_service()
        cluster.start_master()
        asyncio.run(conduct(cluster))
