"""The embedded master on real sockets, for tests: a scripted allocator, an HTTP scheduler."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc

from allocator.contract import allocator_pb2 as contract
from allocator.contract.allocator_pb2_grpc import AllocatorServicer, add_AllocatorServicer_to_server
from frameworks.local_mesos import wire
from frameworks.local_mesos.notation import parse_flag
from frameworks.local_mesos.server import AgentSpec, Embedded, MasterSettings, serving
from tests.frameworks.local_mesos.peers import Book

Context = grpc.aio.ServicerContext[contract.FromMaster, contract.ToMaster]
STREAM_ID = "Mesos-Stream-Id"


class GreedyAllocator(AllocatorServicer):
    """Offers all free resources to a framework at every tick, in turns; ignores filters.

    Checks the master's calls with `Book`, and fails at the first contradiction.
    """

    def __init__(self) -> None:
        self.book = Book()
        self.received: list[contract.FromMaster] = []
        """Messages of all sessions."""
        self.sessions = 0
        self.offering = True
        """Whether the allocator makes offers."""
        self.ask_anew = False
        """Whether to answer the next events with a request for a snapshot."""
        self._ignoring = False
        """Whether the allocator awaits a requested snapshot; by contract, it ignores events
        meanwhile.
        """
        self.failure: BaseException | None = None

    async def Session(  # noqa: N802 - the name is the contract's
        self,
        request_iterator: AsyncIterator[contract.FromMaster],
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[contract.ToMaster]:
        self.sessions += 1
        try:
            async for message in request_iterator:
                self.received.append(message)
                yield self._answer(message)
        except AssertionError as error:
            self.failure = error
            raise

    def _answer(self, message: contract.FromMaster) -> contract.ToMaster:
        kind = message.WhichOneof("message")
        if kind == "hello":
            return contract.ToMaster(welcome=contract.Welcome(contract_version=1, policy="greed"))
        if kind == "snapshot":
            self._ignoring = False
            self.book.restore(message.snapshot)
        elif self._ignoring:  # written before the request was heard
            return contract.ToMaster(
                decisions=contract.Decisions(applied_sequence=self.book.sequence)
            )
        elif self.ask_anew:
            self.ask_anew, self._ignoring = False, True
            request = contract.SnapshotRequest(reason="the test wants it")
            return contract.ToMaster(snapshot_request=request)
        else:
            for event in message.events.events:
                self.book.apply(event)
        decisions = contract.Decisions(applied_sequence=self.book.sequence)
        if self.offering and any(e.HasField("tick") for e in message.events.events):
            decisions = self.book.offer_all(turn=len(self.received))
        return contract.ToMaster(decisions=decisions)

    @property
    def snapshots(self) -> int:
        """How many have been received."""
        return sum(message.HasField("snapshot") for message in self.received)

    def events(self) -> list[contract.Event]:
        """Return all events received, ticks left out."""
        return [e for m in self.received for e in m.events.events if not e.HasField("tick")]


@asynccontextmanager
async def listening(allocator: AllocatorServicer, folder: Path) -> AsyncIterator[str]:
    """Serve an allocator on a Unix socket; yield its address."""
    server = grpc.aio.server()
    add_AllocatorServicer_to_server(allocator, server)
    address = f"unix://{folder}/a"
    server.add_insecure_port(address)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


def settings(allocator: str, **changes: Any) -> MasterSettings:  # noqa: ANN401
    """Return settings for tests: two agents, any port."""
    agents, resources = (
        changes.pop("agents", 2),
        changes.pop("resources", parse_flag("cpus:4;mem:1024")),
    )
    values: dict[str, Any] = {
        "agents": [AgentSpec(agents, resources)],
        "port": 0,
        "speed": 20.0,
        "offer_timeout": 0.0,  # no offer is rescinded while its test waits
    }
    return MasterSettings(allocator=allocator, **(values | changes))


@asynccontextmanager
async def system(
    folder: Path,
    **changes: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[GreedyAllocator, Embedded]]:
    """Run an allocator and an embedded master that has sent its snapshot."""
    allocator = GreedyAllocator()
    async with (
        listening(allocator, folder) as address,
        serving(settings(address, **changes)) as embedded,
    ):
        await until(lambda: embedded.link.connected and allocator.snapshots > 0)
        yield allocator, embedded
        assert not embedded.background.done()
    assert allocator.failure is None


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, within the time limit of the test."""
    while not condition():  # noqa: ASYNC110 - of all kinds, and none has an Event to wait for
        await asyncio.sleep(0.005)


class HttpScheduler:
    """A scheduler that tests control call by call, over HTTP with JSON bodies."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self.url = f"http://{address}/api/v1/scheduler"
        self.framework_id = ""
        self.stream_id = ""
        self.events: defaultdict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        """Received events, by type."""
        self.ended = asyncio.Event()
        self._updates: set[str] = set()
        """Ids of received updates: a master repeats each update until its acknowledgement."""
        self._reader: asyncio.Task[None] | None = None

    async def subscribe(
        self,
        framework_id: str | None = None,
        constraints: dict[str, Any] | None = None,
        **info: object,
    ) -> dict[str, Any]:
        """Open the stream; return the content of the SUBSCRIBED event."""
        info = {"user": "u", "name": "n", **info}
        call: dict[str, Any] = {"type": "SUBSCRIBE", "subscribe": {"framework_info": info}}
        if constraints is not None:
            call["subscribe"]["offer_constraints"] = constraints
        if framework_id is not None:
            info["id"] = call["framework_id"] = {"value": framework_id}
        response = await self.session.post(self.url, json=call)
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == wire.JSON
        assert response.headers["Transfer-Encoding"] == "chunked"
        self.stream_id = response.headers[STREAM_ID]
        self._reader = asyncio.create_task(self._read(response))
        answers = [asyncio.create_task(self.next(kind)) for kind in ("SUBSCRIBED", "ERROR")]
        done, pending = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        answer = done.pop().result()
        if "framework_id" in answer:
            self.framework_id = answer["framework_id"]["value"]
        return answer

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        try:
            while length := await response.content.readline():
                event = json.loads(await response.content.readexactly(int(length)))
                self.events[event["type"]].put_nowait(event.get(event["type"].lower(), {}))
        except aiohttp.ClientError:
            pass  # the master was killed; the stream has ended without a reason
        finally:
            response.close()
            self.ended.set()

    async def next(self, kind: str) -> dict[str, Any]:
        """Wait for the next event of a kind; return its content."""
        return await self.events[kind].get()

    async def call(self, kind: str, **content: object) -> None:
        """Make a call, which must be accepted."""
        call = {"type": kind, "framework_id": {"value": self.framework_id}, **content}
        headers = {STREAM_ID: self.stream_id}
        async with self.session.post(self.url, json=call, headers=headers) as response:
            assert response.status == 202, await response.text()
            assert await response.read() == b""

    async def launch(self, offer: dict[str, Any], *names: str, command: str = "sleep 2") -> None:
        """Launch tasks of 1 CPU on an offer."""
        tasks = [
            {
                "name": name,
                "task_id": {"value": name},
                "agent_id": offer["agent_id"],
                "command": {"value": command},
                "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}],
            }
            for name in names
        ]
        operation = {"type": "LAUNCH", "launch": {"task_infos": tasks}}
        await self.call("ACCEPT", accept={"offer_ids": [offer["id"]], "operations": [operation]})

    async def acknowledge(self, status: dict[str, Any]) -> None:
        """Acknowledge an update."""
        acknowledgement = {key: status[key] for key in ("agent_id", "task_id", "uuid")}
        await self.call("ACKNOWLEDGE", acknowledge=acknowledgement)

    async def states_of(self, task: str, last: str) -> list[str]:
        """Acknowledge all updates until a task reaches a state; return the task's states.

        Each update counts once, even if repeated before the master receives the acknowledgement.
        """
        states: list[str] = []
        while not states or states[-1] != last:
            status = (await self.next("UPDATE"))["status"]
            if "uuid" in status:
                await self.acknowledge(status)
                if status["uuid"] in self._updates:
                    continue
                self._updates.add(status["uuid"])
            if status["task_id"]["value"] == task:
                assert status["state"] != "TASK_ERROR", status["message"]
                states.append(status["state"])
        return states

    def break_off(self) -> None:
        """Lose the connection."""
        assert self._reader is not None
        self._reader.cancel()
