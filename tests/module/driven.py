"""A master's side with the C++ transport, controlled line by line; and misbehaving peers."""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import SECOND
from tests.module.built import Programs
from tests.service.served import PATIENCE, hello, wait_for

NOW = 1_600_000_000 * SECOND
ELECTED = 1_500_000_000 * SECOND


def event(**call: object) -> contract.Event:
    return contract.Event(time_ns=NOW, **call)  # type: ignore[arg-type]


TICK = event(tick=contract.Tick())
PATIENT = 600_000
"""Milliseconds without a message after which a master doubts, unless a test is about this patience:
longer than any test.
"""


class Master:
    """The driver's process. It answers snapshot requests with `snapshot`, unless `mute`."""

    def __init__(self, programs: Programs, address: str, **settings: object) -> None:
        self.snapshot = contract.Snapshot(time_ns=NOW, leading_since_ns=ELECTED)
        self.mute = False
        self.said: list[str] = []
        """Lines, as they come."""
        arguments = {
            "address": address,
            "first_retry": 5,
            "last_retry": 50,
            "connect_timeout": PATIENT,
            "keepalive_time": PATIENT,
            **settings,
        }
        self.process = subprocess.Popen(
            [
                *(programs.driver, programs.library),
                *(f"{name}={value}" for name, value in arguments.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=programs.environment,
        )
        self._writing = threading.Lock()
        self.listening = threading.Event()
        """While cleared, the driver's output piles up in the pipe until its callbacks block."""
        self.listening.set()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def start(self, message: contract.Hello | None = None) -> "Master":
        greeting = message or hello().hello
        self._tell("start", greeting.SerializeToString().hex())
        return self

    def push(self, *events: contract.Event) -> int:
        """Push events that belong together; return the number of the last event."""
        before = self.count("pushed")
        for event in events:
            self._tell("push", event.SerializeToString().hex())
        self._tell("flush")
        wait_for(lambda: self.count("pushed") == before + len(events))
        return int(self.lines("pushed")[-1])

    def burst(self, threads: int, times: int, event: contract.Event) -> None:
        """Let threads push the same event many times, and do not wait for them."""
        self._tell("burst", str(threads), str(times), event.SerializeToString().hex())

    def burst_over(self) -> int:
        """Wait for the only burst; return its last number."""
        wait_for(lambda: self.count("burst") == 1)
        return int(self.lines("burst")[0])

    def send_snapshot(self) -> int:
        """Send a snapshot, requested or not; return its number."""
        before = self.count("snapshot")
        self._tell("snapshot", self.snapshot.SerializeToString().hex())
        wait_for(lambda: self.count("snapshot") > before)
        return int(self.lines("snapshot")[-1])

    def statistics(self) -> dict[str, int]:
        before = self.count("statistics")
        self._tell("statistics")
        wait_for(lambda: self.count("statistics") > before)
        statistics: dict[str, int] = json.loads(self.lines("statistics")[-1])
        return statistics

    def lines(self, kind: str) -> list[str]:
        """Return the driver's output lines of a kind."""
        return [line[len(kind) + 1 :] for line in self.said.copy() if line.split(" ", 1)[0] == kind]

    def count(self, kind: str) -> int:
        return len(self.lines(kind))

    @property
    def decisions(self) -> list[contract.Decisions]:
        return [
            contract.Decisions.FromString(bytes.fromhex(line.partition(" ")[2]))
            for line in self.lines("decisions")
        ]

    @property
    def applied(self) -> int:
        """Number of the latest call that the service has confirmed."""
        return int(self.lines("decisions")[-1].split()[0]) if self.lines("decisions") else 0

    def wait_for(self, kind: str, times: int = 1) -> None:
        wait_for(lambda: self.count(kind) >= times)

    def wait_until_synchronised(self) -> None:
        wait_for(lambda: self.statistics()["synchronised"] == 1)

    def wait_until_applied(self, sequence: int) -> None:
        wait_for(lambda: self.applied >= sequence)

    def memory(self) -> int:
        """Return how many bytes of memory the process has ever held."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:  # noqa: PTH123
            match = re.search(r"VmHWM:\s*(\d+) kB", status.read())
        assert match is not None
        return int(match[1]) * 1024

    def stop(self) -> None:
        """Let the driver destroy its transport, which must succeed."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        with self._writing:
            self.process.stdin.close()
        complaint = self.process.stderr.read()
        assert self.process.wait(PATIENCE) == 0, complaint
        self._reader.join()
        assert self.said[-1] == "destroyed"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # input that the driver no longer reads
                pipe.close()

    def _tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        with self._writing:
            print(*words, file=self.process.stdin, flush=True)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.listening.wait()
            self.said.append(line.rstrip("\n"))
            if line.startswith("wanted") and not self.mute:
                self._answer()

    def _answer(self) -> None:
        """Send the requested snapshot, unless a test has ended the process meanwhile."""
        assert self.process.stdin is not None
        words = "snapshot", self.snapshot.SerializeToString().hex()
        with self._writing, suppress(BrokenPipeError):
            if not self.process.stdin.closed:
                print(*words, file=self.process.stdin, flush=True)


@contextmanager
def master(programs: Programs, address: str, **settings: object) -> Iterator[Master]:
    driven = Master(programs, address, **settings)
    try:
        yield driven
        driven.stop()
    finally:
        driven.kill()


class Peer:
    """Serves the method with a function of ours, bytes in and bytes out."""

    def __init__(self, serve: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            lambda requests, _: serve(requests)
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("longshare.v1.Allocator", {"Session": handler}),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()


@contextmanager
def peer(serve: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Iterator[Peer]:
    running = Peer(serve)
    try:
        yield running
    finally:
        running.stop()


class Scripted:
    """A peer that sends scripted messages, and keeps received messages."""

    def __init__(self) -> None:
        self.heard: list[contract.FromMaster] = []
        self._to_say: queue.SimpleQueue[contract.ToMaster | None] = queue.SimpleQueue()
        self._ended = False

    def say(self, **message: object) -> None:
        self._to_say.put(contract.ToMaster(**message))  # type: ignore[arg-type]

    def end(self) -> None:
        """End the stream; further streams end as soon as they begin."""
        self._ended = True
        self._to_say.put(None)

    def __call__(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        if self._ended:
            return
        hearing = threading.Thread(target=self._hear, args=(requests,))
        hearing.start()
        yield contract.ToMaster(
            welcome=contract.Welcome(contract_version=VERSION)
        ).SerializeToString()
        for message in iter(self._to_say.get, None):
            yield message.SerializeToString()

    def _hear(self, requests: Iterator[bytes]) -> None:
        try:
            for request in requests:
                self.heard.append(contract.FromMaster.FromString(request))
        except grpc.RpcError:
            pass  # the stream has ended
