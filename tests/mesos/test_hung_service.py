"""A hung service: callers soon get an error, and no state is lost."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.mesos.cluster import Cluster, amount, next_offer, offer_where, running
from tests.mesos.test_real_mesos import RESERVED, decline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

RUNS = "allocator/mesos/allocation_runs"
"""The service's count of allocation cycles, as reported with its answers to ticks."""


def test_an_operator_soon_gets_an_error_while_the_service_is_stopped(tmp_path: Path) -> None:
    async def reserve(cluster: Cluster, agent: object) -> tuple[int, str, float]:
        begun = time.monotonic()
        resources = {"agent_id": agent, "resources": [RESERVED]}
        status, text = await cluster.operate("RESERVE_RESOURCES", reserve_resources=resources)
        return status, text, time.monotonic() - begun

    async def conduct(cluster: Cluster) -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            agent = offer["agent_id"]
            await scheduler.call("SUPPRESS")
            await decline(scheduler, offer, 0.01)
            cluster.wait_for(lambda metrics: metrics["longshare/queue_events"] == 0)
            cluster.service.stand_still()
            first = await reserve(cluster, agent)
            # A call is not forwarded once answers are late; before the first late answer, the
            # service must have answered recently.
            while "nothing was done" not in first[1]:
                assert "has not answered" in first[1], first
                cluster.service.go_on()
                runs = cluster.metrics()[RUNS]
                cluster.wait_for(lambda metrics, runs=runs: metrics[RUNS] > runs)  # type: ignore[misc]
                cluster.service.stand_still()
                first = await reserve(cluster, agent)
            second = await reserve(cluster, agent)
            cluster.service.go_on()
            print("an operator waited", first[2], "then", second[2])  # noqa: T201 - a measurement
            assert (first[0], second[0]) == (409, 409), (first, second)
            assert "has not answered" in first[1]
            assert "has not answered" in second[1]
            # A snapshot replaces the effects of calls that the service processed after waking up.
            cluster.wait_for(lambda _: cluster.resyncs() == 1)
            await scheduler.call("REVIVE")
            await offer_where(
                scheduler, lambda candidate: amount(candidate, "disk", reserved=False) == 1024
            )

    with running(tmp_path) as cluster:
        asyncio.run(conduct(cluster))
