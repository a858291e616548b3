"""The HTTP face, over real sockets: codes, streams, endpoints."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from allocator.cluster.quota import parse_quota
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos import wire
from frameworks.local_mesos.http import MAX_BACKLOG_BYTES, Stream
from frameworks.local_mesos.server import Embedded
from tests.frameworks.local_mesos.shell import STREAM_ID, HttpScheduler, system, until

UUID = "AAAAAAAAAAAAAAAAAAAAAA=="
JSON = {"Content-Type": wire.JSON}


def _misspelt() -> bytes:
    call = v1.Call(type=v1.Call.SUBSCRIBE)
    call.subscribe.framework_info.MergeFrom(mesos.FrameworkInfo(user="u", name="n", role="ROLE"))
    return call.SerializeToString().replace(b"ROLE", b"R\xffLE")


def _filtered() -> bytes:
    call = v1.Call(type=v1.Call.SUBSCRIBE)
    info = call.subscribe.framework_info
    info.MergeFrom(mesos.FrameworkInfo(user="u", name="n"))
    info.offer_filters["ROLE"].SetInParent()
    return call.SerializeToString().replace(b"ROLE", b"R\xffLE")


def _bad_requests(framework: str, stream: str, away: str) -> dict[str, Any]:
    """Return requests: name → (method, headers, body, status, part of the answer)."""

    def call(kind: str, **fields: object) -> dict[str, Any]:
        return {"type": kind, "framework_id": {"value": framework}, **fields}

    mine = {**JSON, STREAM_ID: stream}
    info = {"user": "u", "name": "n"}
    subscribe = {"type": "SUBSCRIBE", "subscribe": {"framework_info": info}}
    acknowledge = {"agent_id": {"value": "S0"}, "task_id": {"value": "t"}, "uuid": "AAAA"}
    return {
        "another method": ("GET", JSON, None, 405, "Method Not Allowed"),
        "no content type": ("POST", {}, b"{}", 400, "'Content-Type'"),
        "another content type": ("POST", {"Content-Type": "text/xml"}, b"", 415, "x-protobuf"),
        "no JSON": ("POST", JSON, b"{", 400, "parse body into JSON"),
        "no protobuf": ("POST", {"Content-Type": wire.PROTOBUF}, b"\xff", 400, "Call protobuf"),
        "a role that is not text": (
            *("POST", {"Content-Type": wire.PROTOBUF}, _misspelt(), 400),
            "FrameworkInfo.role is not UTF-8",
        ),
        "an offer filter of a role that is not text": (
            *("POST", {"Content-Type": wire.PROTOBUF}, _filtered(), 400),
            "FrameworkInfo.offer_filters has a key that is not UTF-8",
        ),
        "no type": ("POST", JSON, {}, 400, "Expecting 'type'"),
        "a type there is not": ("POST", mine, call("FLY"), 400, "Expecting 'type'"),
        "a type that says nothing": ("POST", mine, call("UNKNOWN"), 501, ""),
        "no framework": ("POST", mine, {"type": "REVIVE"}, 400, "'framework_id'"),
        "no part": ("POST", mine, call("ACCEPT"), 400, "Expecting 'accept'"),
        "no part, inverse": (
            *("POST", mine, call("ACCEPT_INVERSE_OFFERS"), 400, "'accept_inverse_offers'"),
        ),
        "a part that lacks what it needs": ("POST", mine, call("KILL", kill={}), 400, "task_id"),
        "a short uuid": ("POST", mine, call("ACKNOWLEDGE", acknowledge=acknowledge), 400, "uuid"),
        "an unknown framework": (
            *("POST", mine, {"type": "REVIVE", "framework_id": {"value": "?"}}, 400),
            "Framework cannot be found",
        ),
        "a framework that is away": (
            *("POST", mine, {"type": "REVIVE", "framework_id": {"value": away}}, 403),
            "not subscribed",
        ),
        "no stream": ("POST", JSON, call("REVIVE"), 400, STREAM_ID),
        "another stream": (
            "POST",
            {**JSON, STREAM_ID: "x"},
            call("TEARDOWN"),
            400,
            "stream ID 'x'",
        ),
        "a stream while subscribing": ("POST", mine, subscribe, 400, STREAM_ID),
        "nothing acceptable": ("POST", {**JSON, "Accept": "text/html"}, subscribe, 406, "'Accept'"),
        "two framework ids": (
            *("POST", JSON, {**subscribe, "framework_id": {"value": "x"}}, 400),
            "differs",
        ),
    }


@pytest.mark.parametrize("mistake", _bad_requests("", "", ""))
def test_a_malformed_request_gets_mesos_s_code_and_a_reason_and_changes_nothing(
    mistake: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with system(tmp_path, speed=0.01) as (_, embedded), aiohttp.ClientSession() as http:
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe()
            away = HttpScheduler(http, embedded.address)
            await away.subscribe(failover_timeout=1000)
            away.break_off()
            framework = embedded.master.frameworks[away.framework_id]
            await until(lambda: not framework.connected)
            before = embedded.link.sequence
            method, headers, body, status, message = _bad_requests(
                scheduler.framework_id, scheduler.stream_id, away.framework_id
            )[mistake]
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            async with http.request(
                method,
                scheduler.url,
                data=data,
                headers=headers,
                skip_auto_headers=["Content-Type"],
            ) as response:
                assert response.status == status
                assert message in await response.text()
                assert status != 405 or response.headers["Allow"] == "POST"
            assert embedded.link.sequence == before
            assert len(embedded.master.frameworks) == 2

    asyncio.run(scenario())


def test_a_scheduler_that_does_not_read_loses_its_stream_and_costs_no_memory(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (_, embedded), aiohttp.ClientSession() as http:
            host, port = embedded.master.address
            mute = socket.create_connection((host, port))
            body = json.dumps(
                {
                    "type": "SUBSCRIBE",
                    "subscribe": {
                        "framework_info": {"user": "u", "name": "mute", "failover_timeout": 1e6}
                    },
                }
            ).encode()
            head = f"POST /api/v1/scheduler HTTP/1.1\r\nHost: {host}\r\n"
            head += f"Content-Type: {wire.JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
            mute.sendall(head.encode() + body)
            await until(lambda: embedded.master.frameworks)
            [framework] = embedded.master.frameworks.values()
            stream = framework.subscriber
            assert isinstance(stream, Stream)
            event = v1.Event(type=v1.Event.ERROR, error=v1.Event.Error(message="x" * 2**20))
            for _ in range(8 * MAX_BACKLOG_BYTES // 2**20):
                framework.send(event)
                assert stream.backlog <= MAX_BACKLOG_BYTES + 2**21
                await asyncio.sleep(0)
            await until(lambda: not framework.connected)
            reader = HttpScheduler(http, embedded.address)
            await reader.subscribe()
            mute.close()

    asyncio.run(scenario())


def test_a_scheduler_subscribes_launches_acknowledges_and_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            scheduler = HttpScheduler(http, embedded.address)
            subscribed = await scheduler.subscribe()
            assert subscribed["heartbeat_interval_seconds"] == 15
            port = int(embedded.address.split(":")[1])
            assert subscribed["master_info"]["port"] == port
            offer = (await scheduler.next("OFFERS"))["offers"][0]
            assert offer["hostname"] == "agent-1"
            assert offer["resources"][0]["scalar"] == {"value": 4}
            await scheduler.launch(offer, "t1", "t2")
            expected = ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
            assert await scheduler.states_of("t1", "TASK_FINISHED") == expected
            await scheduler.call("RECONCILE", reconcile={"tasks": []})
            await scheduler.call("REQUEST", request={"requests": []})
            await scheduler.call("MESSAGE", message={**_message(offer), "data": "AAAA"})
            await scheduler.call("ACCEPT_INVERSE_OFFERS", accept_inverse_offers={})
            await scheduler.call("TEARDOWN")
            await scheduler.ended.wait()
            await until(lambda: not allocator.book.frameworks)
            assert not embedded.master.frameworks

    asyncio.run(scenario())


def _message(offer: Mapping[str, Any]) -> dict[str, Any]:
    return {"agent_id": offer["agent_id"], "executor_id": {"value": "e"}}


def test_protobuf_is_accepted_like_json(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            call = v1.Call(type=v1.Call.SUBSCRIBE)
            call.subscribe.framework_info.CopyFrom(mesos.FrameworkInfo(user="u", name="n"))
            url = f"http://{embedded.address}/api/v1/scheduler"
            headers = {"Content-Type": wire.PROTOBUF, "Accept": wire.PROTOBUF}
            body = call.SerializeToString()
            async with http.post(url, data=body, headers=headers) as stream:
                assert stream.headers["Content-Type"] == wire.PROTOBUF
                events: list[v1.Event] = []
                while not events or events[-1].type != v1.Event.OFFERS:
                    length = int(await stream.content.readline())
                    events.append(v1.Event.FromString(await stream.content.readexactly(length)))
                allocator.offering = False
                decline = v1.Call(type=v1.Call.DECLINE)
                decline.framework_id.CopyFrom(events[0].subscribed.framework_id)
                decline.decline.offer_ids.append(events[-1].offers.offers[0].id)
                headers = {"Content-Type": wire.PROTOBUF, STREAM_ID: stream.headers[STREAM_ID]}
                async with http.post(
                    url, data=decline.SerializeToString(), headers=headers
                ) as answer:
                    assert answer.status == 202
                assert len(embedded.master.offers) == 1

    asyncio.run(scenario())


def test_a_disconnect_of_a_scheduler_is_noticed_before_the_next_heartbeat(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with system(tmp_path, speed=1.0) as (_, embedded), aiohttp.ClientSession() as http:
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe(failover_timeout=1000)
            framework = embedded.master.frameworks[scheduler.framework_id]
            before = embedded.master.clock.now
            scheduler.break_off()
            await until(lambda: not framework.connected)
            assert embedded.master.clock.now - before < 10

    asyncio.run(scenario())


def test_health_is_an_empty_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            system(tmp_path) as (_, embedded),
            aiohttp.request("GET", f"http://{embedded.address}/health") as response,
        ):
            assert (response.status, await response.read()) == (200, b"")

    asyncio.run(scenario())


def test_an_operator_s_call_is_refused_with_the_name_of_the_program_that_lacks_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (_, embedded):
            for path in ("/api/v1", "/weights", "/master/machine/down"):
                url = f"http://{embedded.address}{path}"
                async with aiohttp.request("POST", url, json={}) as response:
                    assert response.status == 404
                    text = await response.text()
                    assert f"'longshare local-mesos' has no {path}: " in text
                    assert "on a real Mesos master" in text

    asyncio.run(scenario())


def test_a_quota_reaches_the_allocator_and_each_snapshot_until_its_removal(tmp_path: Path) -> None:
    guarantee = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 4.0}}]
    web = {"role": "web", "guarantee": guarantee}
    invalid: dict[str, dict[str, Any]] = {
        "cannot have a quota": {**web, "role": "*"},
        "no 'guarantee'": {"role": "db"},
        "twice": {"role": "db", "guarantee": guarantee * 2},
        "'cpus' is not a positive amount": {
            "role": "db",
            "guarantee": [{**guarantee[0], "scalar": {"value": -1.0}}],
        },
        "already has quota": web,
    }

    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            url = f"http://{embedded.address}/quota"
            assert (await http.post(url, json=web)).status == 200
            for reason, quota in invalid.items():
                refused = await http.post(url, json=quota)
                assert (refused.status, reason in await refused.text()) == (400, True), reason
            assert await (await http.get(url)).json() == {"infos": [web]}
            (call,) = embedded.master.snapshot().quotas
            assert parse_quota(call).guarantees == Quantities.parse("cpus:4")
            assert (await http.delete(f"{url}/web")).status == 200
            assert (await http.delete(f"{url}/web")).status == 400
            assert not embedded.master.snapshot().quotas

            def calls() -> list[str | None]:
                events = (event for m in allocator.received for event in m.events.events)
                kinds = [event.WhichOneof("call") for event in events]
                return [kind for kind in kinds if kind and "quota" in kind]

            await until(lambda: calls() == ["set_quota", "remove_quota"])

    asyncio.run(scenario())


def test_an_operator_removes_a_framework_and_its_tasks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            url = f"http://{embedded.address}/teardown"
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe()
            framework_id = scheduler.framework_id
            for body in ("", "framework=x", "frameworkId=none"):
                assert (await http.post(url, data=body)).status == 400
            assert (await http.get(f"{url}?frameworkId={framework_id}")).status == 405
            assert allocator.book.frameworks
            assert (await http.post(url, data=f"frameworkId={framework_id}")).status == 200
            await scheduler.ended.wait()
            await until(lambda: not allocator.book.frameworks)
            assert (await http.post(url, data=f"frameworkId={framework_id}")).status == 400

    asyncio.run(scenario())


def test_a_second_subscription_takes_over_and_the_first_stream_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (allocator, embedded), aiohttp.ClientSession() as http:
            first, second = (HttpScheduler(http, embedded.address) for _ in range(2))
            await first.subscribe()
            resubscribed = await second.subscribe(first.framework_id)
            assert resubscribed["framework_id"]["value"] == first.framework_id
            assert await first.next("ERROR") == {"message": "Framework failed over"}
            await first.ended.wait()
            await second.next("OFFERS")
            assert allocator.book.active == {first.framework_id}

    asyncio.run(scenario())


def test_a_refused_subscription_is_a_stream_with_an_error_that_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (_, embedded), aiohttp.ClientSession() as http:
            scheduler = HttpScheduler(http, embedded.address)
            answer = await scheduler.subscribe(role="no role")
            assert "'no role' is not a role" in answer["message"]
            await scheduler.ended.wait()

    asyncio.run(scenario())


def test_the_endpoints_show_the_state_of_the_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            system(tmp_path, resources=_RESERVED, agents=1) as (allocator, embedded),
            aiohttp.ClientSession() as http,
        ):
            scheduler = HttpScheduler(http, embedded.address)
            await scheduler.subscribe(role="eng")
            [offer] = (await scheduler.next("OFFERS"))["offers"]
            allocator.offering = False
            await scheduler.launch(offer, "t", command="sleep 1000000")
            await scheduler.states_of("t", "TASK_RUNNING")
            get = partial(_get, http, embedded.address)
            await _check_running(get, embedded, scheduler.framework_id, offer["agent_id"]["value"])
            await scheduler.call("KILL", kill={"task_id": {"value": "t"}})
            assert await scheduler.states_of("t", "TASK_KILLED") == ["TASK_KILLED"]
            assert (await get("/metrics/snapshot"))["master/tasks_killed"] == 1
            await until(lambda: not embedded.master.frameworks[scheduler.framework_id].tasks)
            [framework] = (await get("/state"))["frameworks"]
            assert [task["state"] for task in framework["completed_tasks"]] == ["TASK_KILLED"]
            await scheduler.call("TEARDOWN")
            [framework] = (await get("/state"))["completed_frameworks"]
            assert framework["unregistered_time"] > framework["registered_time"]

    asyncio.run(scenario())


async def _get(http: aiohttp.ClientSession, address: str, path: str) -> Any:  # noqa: ANN401
    async with http.get(f"http://{address}{path}") as response:
        assert response.status == 200
        return await response.json()


async def _check_running(
    get: Callable[[str], Awaitable[Any]], embedded: Embedded, framework_id: str, agent_id: str
) -> None:
    """Check a framework of role eng with the task t of one CPU on the only agent."""
    assert (await get("/version"))["version"] == "1.8.0"
    state = await get("/state")
    assert state["start_time"] == embedded.master.started
    [framework] = state["frameworks"]
    assert (framework["id"], framework["role"]) == (framework_id, "eng")
    assert framework["used_resources"] == {"cpus": 1, "gpus": 0, "mem": 0, "disk": 0}
    [task] = framework["tasks"]
    assert (task["id"], task["state"], task["slave_id"]) == ("t", "TASK_RUNNING", agent_id)
    assert [status["state"] for status in task["statuses"]] == ["TASK_STARTING", "TASK_RUNNING"]

    [agent] = (await get("/slaves"))["slaves"]
    assert agent["hostname"] == "agent-1"
    expected = {"cpus": 4, "gpus": 0, "mem": 1024, "disk": 0, "ports": "[1-9]"}
    assert agent["resources"] == expected
    assert agent["reserved_resources"]["eng"]["mem"] == 64
    assert agent["used_resources_full"] == [
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}, "role": "*"}
    ]
    summary = await get("/state-summary")
    assert summary["frameworks"][0]["TASK_RUNNING"] == 1
    assert summary["slaves"][0]["framework_ids"] == [framework_id]

    metrics = await get("/metrics/snapshot")
    expected = {"cpus_total": 4, "cpus_used": 1, "cpus_percent": 0.25, "tasks_running": 1}
    assert {key: metrics[f"master/{key}"] for key in expected} == expected
    assert metrics["master/messages_launch_tasks"] == 1
    assert metrics["master/messages_kill_task"] == 0
    assert metrics["master/frameworks_active"] == 1
    assert metrics["longshare/connected"] == 1
    now = embedded.master.clock.now
    await until(lambda: embedded.master.clock.now > now)
    later = await get("/master/metrics/snapshot")
    assert later["master/uptime_secs"] > metrics["master/uptime_secs"] > 0
    for path in ("/master/state", "/master/slaves", "/master/state-summary"):
        assert await get(path)


_RESERVED = [
    mesos.Resource(name="cpus", type=mesos.Value.SCALAR, scalar=mesos.Value.Scalar(value=4)),
    mesos.Resource(name="mem", type=mesos.Value.SCALAR, scalar=mesos.Value.Scalar(value=960)),
    mesos.Resource(
        name="mem",
        type=mesos.Value.SCALAR,
        scalar=mesos.Value.Scalar(value=64),
        reservations=[
            mesos.Resource.ReservationInfo(type=mesos.Resource.ReservationInfo.STATIC, role="eng")
        ],
    ),
    mesos.Resource(
        name="ports",
        type=mesos.Value.RANGES,
        ranges=mesos.Value.Ranges(range=[mesos.Value.Range(begin=1, end=9)]),
    ),
]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"framework": "a", "uptime": "0"}, 202),
        ({"framework": "a"}, 400),
        ({"framework": "a", "uptime": "soon"}, 400),
        ({"framework": "a", "uptime": "nan"}, 400),
        ({"framework": "a", "uptime": "1e999"}, 400),
    ],
)
def test_expected_frameworks_are_announced_with_a_name_and_a_time(
    asked: dict[str, str], status: int, tmp_path: Path
) -> None:
    async def scenario() -> bool:
        async with system(tmp_path) as (_, embedded), aiohttp.ClientSession() as http:
            url = f"http://{embedded.address}/longshare/expect"
            async with http.post(url, params=asked) as response:
                assert response.status == status
            if status == 202:
                await until(lambda: embedded.master.answer_due)
            return embedded.master.answer_due

    assert asyncio.run(scenario()) == (status == 202)


def test_a_scheduler_that_is_refused_again_has_to_wait_for_the_end_of_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pymesos scheduler of role "team I" wrote 421,172 error lines in 15 minutes."""
    monkeypatch.setattr("frameworks.local_mesos.http.REJECTED_STREAM_PAUSE_S", 3600.0)

    async def scenario() -> None:
        async with system(tmp_path) as (_, embedded), aiohttp.ClientSession() as session:
            first, second = (HttpScheduler(session, embedded.address) for _ in range(2))
            assert "not a role" in (await first.subscribe(role="team I"))["message"]
            await first.ended.wait()
            assert "not a role" in (await second.subscribe(role="team I"))["message"]
            for _ in range(20):  # one event per round trip on an open stream
                await session.get(f"http://{embedded.address}/health")
            assert not second.ended.is_set()
            good = HttpScheduler(session, embedded.address)
            await good.subscribe(role="team")
            assert good.framework_id, "other streams are not blocked"

    asyncio.run(scenario())


def test_each_call_or_operation_that_has_no_effect_is_logged(tmp_path: Path) -> None:
    """RESERVE without an id was dropped without a word."""

    async def scenario() -> None:
        async with system(tmp_path) as (_, embedded), aiohttp.ClientSession() as session:
            scheduler = HttpScheduler(session, embedded.address)
            await scheduler.subscribe(role="team")
            offer = (await scheduler.next("OFFERS"))["offers"][0]
            reserve = {"type": "RESERVE", "reserve": {"resources": offer["resources"]}}
            accept = {"offer_ids": [offer["id"]], "operations": [reserve]}
            await scheduler.call("ACCEPT", accept=accept)
            await scheduler.call("ACCEPT", accept={"offer_ids": [offer["id"]]})
            await scheduler.call("DECLINE", decline={"offer_ids": [offer["id"]]})
            await scheduler.call("REVIVE", revive={"roles": ["other"]})
            await scheduler.call("SUPPRESS", suppress={"roles": ["other"]})
            executor = {"executor_id": {"value": "e"}, "agent_id": offer["agent_id"]}
            await scheduler.call("SHUTDOWN", shutdown=executor)
            await scheduler.call("MESSAGE", message={**executor, "data": ""})
            reconcile: dict[str, Any] = {"operations": []}
            await scheduler.call("RECONCILE_OPERATIONS", reconcile_operations=reconcile)

    with capture_logs() as logs:
        asyncio.run(scenario())
    dropped = [entry["what"].split()[0] for entry in logs if entry["event"] == "dropped"]
    assert dropped == [
        *("RESERVE", "ACCEPT", "DECLINE", "REVIVE", "SUPPRESS", "SHUTDOWN", "MESSAGE"),
        "RECONCILE_OPERATIONS",
    ]


def test_a_framework_that_the_allocator_refuses_gets_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with system(tmp_path) as (_, embedded), aiohttp.ClientSession() as session:
            scheduler = HttpScheduler(session, embedded.address)
            await scheduler.subscribe(role="team")
            refused = contract.Refused(
                framework_id=scheduler.framework_id, reason="it has 300 roles"
            )
            gone = contract.Refused(framework_id="gone", reason="it has 300 roles")
            embedded.master.decide(contract.Decisions(refused=[gone, refused]))
            assert "it has 300 roles" in (await scheduler.next("ERROR"))["message"]

    asyncio.run(scenario())
