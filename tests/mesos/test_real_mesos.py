"""A real Mesos works with Longshare as its allocator."""

import asyncio
import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frameworks import experiment
from frameworks.harness.processes import ChildFailed
from frameworks.harness.runner import ExperimentSettings, run
from tests.frameworks.local_mesos.shell import HttpScheduler
from tests.frameworks.test_end_to_end import SMALL
from tests.mesos.cluster import (
    AGENT,
    PAPERS_FORM,
    PATIENCE,
    SDRF,
    TAU,
    Cluster,
    amount,
    cpus,
    mesos_home,
    mesos_version,
    next_offer,
    nothing_running,
    offer_where,
    running,
)
from tests.service.served import service, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

RESERVATION = {"type": "DYNAMIC", "role": "a", "principal": "tester"}
RESERVED = {
    "name": "disk",
    "type": "SCALAR",
    "scalar": {"value": 64},
    "reservations": [RESERVATION],
}
VOLUME = {
    **RESERVED,
    "disk": {
        "persistence": {"id": "v1", "principal": "tester"},
        "volume": {"container_path": "data", "mode": "RW"},
    },
}


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as started:
        yield started


def allocated(resource: dict[str, Any], role: str = "a") -> dict[str, Any]:
    return {**resource, "allocation_info": {"role": role}}


async def accept(scheduler: HttpScheduler, offer: dict[str, Any], *operations: object) -> None:
    await scheduler.call(
        "ACCEPT",
        accept={
            "offer_ids": [offer["id"]],
            "operations": operations,
            "filters": {"refuse_seconds": 0.01},
        },
    )


async def decline(scheduler: HttpScheduler, offer: dict[str, Any], seconds: float) -> None:
    filters = {"refuse_seconds": seconds}
    await scheduler.call("DECLINE", decline={"offer_ids": [offer["id"]], "filters": filters})


async def nothing_comes(scheduler: HttpScheduler, seconds: float = 3.0) -> bool:
    try:
        await asyncio.wait_for(scheduler.next("OFFERS"), seconds)
    except TimeoutError:
        return True
    return False


async def operated(
    cluster: Cluster, scheduler: HttpScheduler, kind: str, **content: object
) -> None:
    """Make an operator's call succeed.

    While allocated resources are not offered yet, the master refuses the call with a conflict,
    because these resources cannot be taken back. The call is then repeated once the offer has
    arrived.
    """
    while True:
        status, text = await cluster.operate(kind, **content)
        if status == 202:
            return
        assert status == 409, text
        await asyncio.wait_for(scheduler.next("OFFERS"), PATIENCE)


def has_volume(offer: dict[str, Any]) -> bool:
    return any("persistence" in resource.get("disk", {}) for resource in offer["resources"])


def test_tasks_run_and_their_resources_are_offered_again(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            assert amount(offer, "cpus") == 4.0
            await scheduler.launch(offer, "t1", "t2", command="sleep 1")
            states = await asyncio.wait_for(scheduler.states_of("t1", "TASK_FINISHED"), PATIENCE)
            assert "TASK_RUNNING" in states
            await offer_where(scheduler, lambda offer: amount(offer, "cpus") >= 1.0)

    asyncio.run(conduct())


def test_the_keys_of_the_stock_allocator_are_in_the_masters_metrics(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            await decline(scheduler, await next_offer(scheduler), 3600.0)
            cluster.wait_for(
                lambda metrics: metrics.get("allocator/mesos/offer_filters/roles/a/active") == 1
            )
            # The master sums up allocated resources once a second.
            cluster.wait_for(
                lambda metrics: metrics["allocator/mesos/resources/cpus/offered_or_allocated"] == 0
            )
            metrics = cluster.metrics()
            suppressed = f"master/frameworks/n/{scheduler.framework_id}/roles/a/suppressed"
            assert metrics[suppressed] == 0
        assert metrics["allocator/mesos/roles/a/shares/dominant"] == 0
        assert metrics["allocator/mesos/resources/cpus/total"] == 4
        assert metrics["allocator/mesos/resources/cpus/offered_or_allocated"] == 0
        assert metrics["allocator/mesos/allocation_runs"] >= 1
        assert metrics["allocator/mesos/allocation_run_ms"] > 0
        assert metrics["allocator/mesos/event_queue_dispatches"] >= 0
        assert metrics["longshare/connected"] == 1
        assert metrics["longshare/round_trip_ms"] > 0
        assert cluster.resyncs() == 0

    asyncio.run(conduct())


def test_a_framework_creates_and_removes_a_reservation_and_a_volume(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a", None, "RESERVATION_REFINEMENT") as scheduler:
            offer = await next_offer(scheduler)
            reserve = {"type": "RESERVE", "reserve": {"resources": [allocated(RESERVED)]}}
            create = {"type": "CREATE", "create": {"volumes": [allocated(VOLUME)]}}
            await accept(scheduler, offer, reserve, create)
            offer = await offer_where(scheduler, has_volume)
            assert amount(offer, "disk", reserved=True) == 64.0
            assert amount(offer, "disk", reserved=False) == 960.0
            destroy = {"type": "DESTROY", "destroy": {"volumes": [allocated(VOLUME)]}}
            unreserve = {"type": "UNRESERVE", "unreserve": {"resources": [allocated(RESERVED)]}}
            await accept(scheduler, offer, destroy, unreserve)
            await offer_where(
                scheduler, lambda offer: amount(offer, "disk", reserved=False) == 1024.0
            )
        assert cluster.resyncs() == 0

    asyncio.run(conduct())


def test_a_reservation_with_a_long_label_is_not_offered_until_an_operator_removes_it(
    cluster: Cluster,
) -> None:
    label = {"key": "k", "value": "v" * 100_000}
    reservation = {**RESERVATION, "labels": {"labels": [label]}}
    reserved = {**RESERVED, "reservations": [reservation]}

    async def conduct() -> None:
        async with cluster.scheduler("a", None, "RESERVATION_REFINEMENT") as scheduler:
            offer = await next_offer(scheduler)
            reserve = {"type": "RESERVE", "reserve": {"resources": [allocated(reserved)]}}
            await accept(scheduler, offer, reserve)
            offer = await offer_where(scheduler, lambda offer: amount(offer, "disk") == 960.0)
            assert cluster.resyncs() == 0
            cluster.kill_service()
            cluster.wait_for(lambda metrics: metrics["longshare/connected"] == 0)
            await decline(scheduler, offer, 0.01)
            cluster.start_service()  # the module's snapshot contains the reservation
            offer = await next_offer(scheduler)
            assert amount(offer, "disk") == 960.0
            assert amount(offer, "disk", reserved=True) == 0.0
            resources = {"agent_id": offer["agent_id"], "resources": [reserved]}
            await operated(cluster, scheduler, "UNRESERVE_RESOURCES", unreserve_resources=resources)
            await decline(scheduler, offer, 0.01)
            await offer_where(scheduler, lambda offer: amount(offer, "disk") == 1024.0)
            assert cluster.metrics()["longshare/sessions_total"] == 2

    asyncio.run(conduct())


def test_an_operator_creates_and_removes_a_reservation_and_a_volume(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a", None, "RESERVATION_REFINEMENT") as scheduler:
            offer = await next_offer(scheduler)
            of_agent = {"agent_id": offer["agent_id"]}
            resources = {**of_agent, "resources": [RESERVED]}
            volumes = {**of_agent, "volumes": [VOLUME]}
            # All resources are in offers; the master rescinds an offer for the operator.
            await operated(cluster, scheduler, "RESERVE_RESOURCES", reserve_resources=resources)
            await operated(cluster, scheduler, "CREATE_VOLUMES", create_volumes=volumes)
            offer = await offer_where(scheduler, has_volume)
            await decline(scheduler, offer, 0.01)
            await operated(cluster, scheduler, "DESTROY_VOLUMES", destroy_volumes=volumes)
            await operated(cluster, scheduler, "UNRESERVE_RESOURCES", unreserve_resources=resources)
            await offer_where(
                scheduler, lambda offer: amount(offer, "disk", reserved=False) == 1024.0
            )

    asyncio.run(conduct())


def test_an_operation_on_used_resources_is_refused(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            await scheduler.launch(offer, *(f"t{n}" for n in range(4)), command="sleep 100")
            await asyncio.wait_for(scheduler.states_of("t3", "TASK_RUNNING"), PATIENCE)
            cpus = {**RESERVED, "name": "cpus", "scalar": {"value": 1}}
            status, text = await cluster.operate(
                "RESERVE_RESOURCES",
                reserve_resources={"agent_id": offer["agent_id"], "resources": [cpus]},
            )
            assert status == 409, text

    asyncio.run(conduct())


def test_quota_guarantees_are_kept_from_other_roles_until_the_quota_is_removed(
    tmp_path: Path,
) -> None:
    async def conduct(cluster: Cluster) -> None:
        guarantee = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 6}}]
        request = {"quota_request": {"role": "q", "guarantee": guarantee}}
        status, text = await cluster.operate("SET_QUOTA", set_quota=request)
        assert status == 200, text
        async with cluster.scheduler("a") as scheduler:
            if mesos_version() < (1, 9):
                assert await nothing_comes(scheduler), "8 cores less 6 are no whole agent"
            else:
                event = await asyncio.wait_for(scheduler.next("OFFERS"), PATIENCE)
                assert cpus(event) == 2.0
                assert await nothing_comes(scheduler), "the rest is guaranteed"
            cluster.wait_for(
                lambda metrics: (
                    metrics.get("allocator/mesos/quota/roles/q/resources/cpus/guarantee") == 6
                )
            )
            status, text = await cluster.operate("REMOVE_QUOTA", remove_quota={"role": "q"})
            assert status == 200, text
            await offer_where(scheduler, lambda offer: amount(offer, "cpus") > 2.0)

    with running(tmp_path, 2) as cluster:
        asyncio.run(conduct(cluster))


def test_weights_reach_the_policy(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            await next_offer(scheduler)
            weights = {"weight_infos": [{"role": "a", "weight": 2.5}]}
            status, text = await cluster.operate("UPDATE_WEIGHTS", update_weights=weights)
            assert status == 200, text
            await asyncio.wait_for(scheduler.next("RESCIND"), PATIENCE)
            await next_offer(scheduler)
            assert cluster.shares()["a"]["weight"] == 2.5

    asyncio.run(conduct())


def test_only_agents_on_the_whitelist_are_offered(tmp_path: Path) -> None:
    listed = tmp_path / "whitelist"
    listed.write_text("agent-1\n")

    async def conduct(cluster: Cluster) -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            assert offer["hostname"] == "agent-1"
            assert await nothing_comes(scheduler)
            listed.write_text("agent-0\nagent-1\n")
            assert (await next_offer(scheduler))["hostname"] == "agent-0"

    with running(tmp_path, 2, f"--whitelist={listed}") as cluster:
        asyncio.run(conduct(cluster))


def test_maintenance_asks_frameworks_to_leave_and_shows_their_answer(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            await scheduler.launch(offer, "t1", command="sleep 100")
            machine = {"hostname": "agent-0", "ip": "127.0.0.1"}
            window = {
                "machine_ids": [machine],
                "unavailability": {
                    "start": {"nanoseconds": 4_000_000_000 * 10**9},
                    "duration": {"nanoseconds": 3600 * 10**9},
                },
            }
            status, text = await cluster.operate(
                "UPDATE_MAINTENANCE_SCHEDULE",
                update_maintenance_schedule={"schedule": {"windows": [window]}},
            )
            assert status == 200, text
            event = await asyncio.wait_for(scheduler.next("INVERSE_OFFERS"), PATIENCE)
            inverse = event["inverse_offers"][0]
            assert inverse["agent_id"] == offer["agent_id"]
            accepted = {"inverse_offer_ids": [inverse["id"]]}
            await scheduler.call("ACCEPT_INVERSE_OFFERS", accept_inverse_offers=accepted)
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while True:
                status, text = await cluster.operate("GET_MAINTENANCE_STATUS")
                draining = json.loads(text)["get_maintenance_status"]["status"]["draining_machines"]
                if draining[0].get("statuses"):
                    break
                assert asyncio.get_running_loop().time() < deadline, text
                await asyncio.sleep(0.1)
            assert draining[0]["statuses"][0]["status"] == "ACCEPT"

    asyncio.run(conduct())


def test_a_resubscribed_framework_keeps_its_task_and_is_offered_the_remaining_resources(
    cluster: Cluster,
) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            await scheduler.launch(await next_offer(scheduler), "t1", command="sleep 100")
            await asyncio.wait_for(scheduler.states_of("t1", "TASK_RUNNING"), PATIENCE)
            known = scheduler.framework_id
        async with cluster.scheduler("a", known) as scheduler:
            assert amount(await next_offer(scheduler), "cpus") == 3.0
            assert cluster.metrics()["master/tasks_running"] == 1

    asyncio.run(conduct())


def test_suppressed_frameworks_get_nothing_until_they_revive(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            await scheduler.call("SUPPRESS")
            await decline(scheduler, offer, 0.01)
            assert await nothing_comes(scheduler)
            await scheduler.call("REVIVE")
            offer = await next_offer(scheduler)
            await decline(scheduler, offer, 3600.0)
            assert await nothing_comes(scheduler), "the framework declined the agent for an hour"
            await scheduler.call("REVIVE")
            await next_offer(scheduler)

    asyncio.run(conduct())


def test_an_agent_that_is_killed_and_started_again_keeps_its_task(tmp_path: Path) -> None:
    async def conduct(cluster: Cluster) -> None:
        async with cluster.scheduler("a") as scheduler:
            await scheduler.launch(await next_offer(scheduler), "t1", command="sleep 15")
            await asyncio.wait_for(scheduler.states_of("t1", "TASK_RUNNING"), PATIENCE)
            agent.kill()
            cluster.wait_for(lambda metrics: metrics["master/slaves_active"] == 0)
            # The master kills an executor that has not reconnected by then, after two seconds by
            # default.
            cluster.mesos.agent(
                cluster.address, "agent-0", AGENT, "--executor_reregistration_timeout=10secs"
            )
            await asyncio.wait_for(scheduler.states_of("t1", "TASK_FINISHED"), PATIENCE)
            await offer_where(scheduler, lambda offer: amount(offer, "cpus") == 4.0)
            assert cluster.resyncs() == 0

    with nothing_running(tmp_path) as cluster:
        cluster.start_service()
        cluster.start_master()
        agent = cluster.mesos.agent(cluster.address, "agent-0", AGENT)
        asyncio.run(conduct(cluster))


def test_only_frameworks_that_can_use_gpus_are_offered_an_agent_that_has_some(
    tmp_path: Path,
) -> None:
    async def conduct(cluster: Cluster) -> None:
        async with (
            cluster.scheduler("a") as without,
            cluster.scheduler("b", None, "GPU_RESOURCES") as able,
        ):
            assert amount(await next_offer(able), "gpus") == 2.0
            assert await nothing_comes(without)

    with nothing_running(tmp_path) as cluster:
        cluster.start_service()
        cluster.start_master()
        try:
            cluster.start_agents(1, resources=f"{AGENT};gpus:2")
        except ChildFailed as error:
            pytest.skip(f"this Mesos has no agents with GPUs: {error}")
        asyncio.run(conduct(cluster))


def test_after_kill_9_of_the_service_offers_go_on_and_no_task_is_lost(cluster: Cluster) -> None:
    async def conduct() -> None:
        async with cluster.scheduler("a") as scheduler:
            await scheduler.launch(await next_offer(scheduler), "t1", command="sleep 100")
            await asyncio.wait_for(scheduler.states_of("t1", "TASK_RUNNING"), PATIENCE)
            offer = await next_offer(scheduler)
            cluster.kill_service()
            cluster.wait_for(lambda metrics: metrics["longshare/connected"] == 0)
            # An earlier offer is still valid; an operator soon gets the error that no allocator
            # decides.
            await scheduler.launch(offer, "t2", command="sleep 1")
            resources = {"agent_id": offer["agent_id"], "resources": [RESERVED]}
            status, text = await cluster.operate("RESERVE_RESOURCES", reserve_resources=resources)
            assert status == 409
            assert "allocator service is" in text
            await asyncio.wait_for(scheduler.states_of("t2", "TASK_FINISHED"), PATIENCE)
            cluster.start_service()
            offer = await offer_where(scheduler, lambda offer: amount(offer, "cpus") >= 1.0)
            assert amount(offer, "cpus") == 3.0
            metrics = cluster.metrics()
            assert metrics["master/tasks_running"] == 1
            assert metrics["master/tasks_lost"] == 0
            assert metrics["longshare/sessions_total"] == 2

    asyncio.run(conduct())


@pytest.mark.parametrize(
    "registry", [("--registry=in_memory",), ("--registry=replicated_log", "--quorum=1")]
)
def test_after_kill_9_of_the_master_all_frameworks_return_and_commitments_are_kept(
    tmp_path: Path, registry: tuple[str, ...]
) -> None:
    async def conduct(cluster: Cluster) -> None:
        async with cluster.scheduler("a") as scheduler:
            offer = await next_offer(scheduler)
            await scheduler.launch(offer, *(f"t{n}" for n in range(4)), command="sleep 100")
            await asyncio.wait_for(scheduler.states_of("t3", "TASK_RUNNING"), PATIENCE)
            known = scheduler.framework_id
        async with cluster.scheduler("b"):
            await asyncio.sleep(3.0)
            wait_for(lambda: cluster.shares()["a"]["dominant_commitment"] > 0.0)
            when, before = cluster.shares_then()
        cluster.kill_master()
        cluster.start_master()
        async with cluster.scheduler("a", known):
            cluster.wait_for(lambda metrics: metrics["master/slaves_active"] == 1)
            cluster.wait_for(lambda metrics: metrics["master/tasks_running"] == 4)
            wait_for(lambda: cluster.shares()["a"]["dominant_share"] == 1.0)
            then, after = cluster.shares_then()
            owed, owes = (shares["a"]["dominant_commitment"] for shares in (before, after))
            # While masters and agents were away, only decay has reduced the commitment.
            assert owes >= owed * math.exp((when - then) / TAU) * (1.0 - 1e-6) > 0.0

    # An agent with a fixed master address searches for its master again after a time without pings,
    # namely the time for which the agent itself may be silent without losing tasks.
    pings = ("--agent_ping_timeout=5secs", "--max_agent_ping_timeouts=2")
    with nothing_running(tmp_path) as cluster:
        # Otherwise b, which uses no CPUs, would not count in the entitlement to CPUs of a.
        cluster.start_service(SDRF + PAPERS_FORM)
        cluster.start_master(*registry, *pings)
        cluster.start_agents(1)
        asyncio.run(conduct(cluster))


def test_an_invalid_module_parameter_ends_the_start_of_the_master_with_a_reason(
    tmp_path: Path,
) -> None:
    wrong = {"address": "nowhere", "connect_timeout": "5parsecs"}
    failure = pytest.raises(ChildFailed, match="'5parsecs' is not a duration")
    with nothing_running(tmp_path) as cluster, failure:
        cluster.mesos.master(wrong)


def test_a_master_starts_without_a_service_and_reports_the_missing_service(tmp_path: Path) -> None:
    with nothing_running(tmp_path) as cluster:
        address = cluster.mesos.master({"address": f"unix://{tmp_path}/nobody.sock"})
        metrics = cluster.mesos.wait_for(
            address, "to lead", lambda metrics: metrics.get("master/elected") == 1
        )
        assert metrics["longshare/connected"] == 0


def test_the_start_of_a_master_is_detected_even_if_the_environment_silences_masters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESOS_QUIET", "true")
    monkeypatch.setenv("MESOS_LOGGING_LEVEL", "ERROR")
    with nothing_running(tmp_path) as cluster:
        address = cluster.mesos.master(None)
        assert cluster.mesos.wait_for(
            address, "to lead", lambda metrics: metrics["master/elected"] == 1
        )


@pytest.mark.timeout(600)
def test_a_small_experiment_matches_the_equations_in_real_time(tmp_path: Path) -> None:
    chosen = experiment.parse("small", SMALL.replace("run_time = 4", "run_time = 10"))
    home = mesos_home().folder
    settings = ExperimentSettings(speed=1.0, seed=1, out=tmp_path, mesos_home=home)
    verdict = run(chosen, settings, lambda _: None)
    assert verdict.agrees, verdict.claims


def test_calls_from_many_threads_at_once_leave_module_and_service_agreed(tmp_path: Path) -> None:
    program = mesos_home().folder / "adapter_stress"
    if not program.exists():
        pytest.skip("there is no adapter_stress: the module was built without MESOS_LIBRARY")
    with service(tmp_path, SDRF) as running_service:
        done = subprocess.run(
            [program, running_service.address, "5"], capture_output=True, check=False, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"calls \d{3,} offers \d{2,} resyncs 0", done.stdout), done.stdout


def test_mirror_agrees_with_a_plain_model_in_random_sequences_of_calls() -> None:
    program = mesos_home().folder / "adapter_mirror_check"
    if not program.exists():
        pytest.skip("there is no adapter_mirror_check: the module was built without MESOS_LIBRARY")
    for seed in range(5):
        done = subprocess.run(
            [program, str(seed), "2000"], capture_output=True, check=False, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
