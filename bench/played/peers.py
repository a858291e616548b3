"""Peers of a played master, each in a process of its own: a service, a bare engine, an echo."""

import queue
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from bench.played.bare import SERVICE as ALLOCATOR
from bench.played.cluster import OPTIONS, PlayedCluster
from bench.played.echo import SERVICE as ECHO

START_LIMIT = 300.0
"""Seconds within which a peer starts. A busy machine needs minutes."""
_CPU_OF_ALL_THREADS = 2
"""The clock of a process, in Linux's numbering of such clocks."""


@dataclass(frozen=True)
class Process:
    """A peer's process, and its CPU time and memory."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def cpu(self) -> float:
        """Return the processor seconds used so far by all threads of the process."""
        return time.clock_gettime(~self.process.pid << 3 | _CPU_OF_ALL_THREADS)

    def memory(self) -> float:
        """Return the peak memory of the process so far, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        match = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) / 1024

    def url(self) -> str:
        """Return where the service serves HTTP."""
        match = re.search(r"http://[^/]+", self.log.read_text(encoding="utf-8"))
        assert match is not None
        return match[0]


class ServiceStream:
    """A stream with a single message in flight, as bytes.

    The first message opens the stream, because a service expects it within seconds.
    """

    def __init__(self, channel: grpc.Channel, service: str) -> None:
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._session: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            f"/{service}/Session"
        )
        self._answers: Iterator[bytes] | None = None

    def ask(self, message: bytes) -> bytes:
        """Send, and wait for the answer."""
        self._outbox.put(message)
        if self._answers is None:
            self._answers = self._session(iter(self._outbox.get, None))
        return next(self._answers)

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Send events; return the service's decisions."""
        message = contract.FromMaster(events=events).SerializeToString()
        return contract.ToMaster.FromString(self.ask(message)).decisions

    def begin(self, cluster: PlayedCluster, *, virtual_clock: bool = True) -> contract.Decisions:
        """Introduce a cluster to the service."""
        hello = contract.Hello(
            contract_version=VERSION, master="bench", options=OPTIONS, virtual_clock=virtual_clock
        )
        self.ask(contract.FromMaster(hello=hello).SerializeToString())
        return self.restore(contract.FromMaster(snapshot=cluster.snapshot()).SerializeToString())

    def restore(self, snapshot: bytes) -> contract.Decisions:
        """Send a snapshot; return the service's decisions."""
        return contract.ToMaster.FromString(self.ask(snapshot)).decisions

    def end(self) -> None:
        """Half-close."""
        self._outbox.put(None)


@contextmanager
def service(
    folder: Path, settings: str = "", module: str = "allocator.cli"
) -> Iterator[tuple[ServiceStream, Process]]:
    """Run a real service, with its store and the extras of the settings.

    Args:
        folder: The folder for its files.
        settings: Text appended to its configuration.
        module: The module to run as `longshare`.
    """
    config = folder / "longshare.toml"
    config.write_text(
        f'[listen]\naddress = "unix://{folder}/s"\nvirtual_clocks = true\n'
        f'[metrics]\naddress = "127.0.0.1:0"\n'
        f'[store]\npath = "{folder}/commitments.sqlite"\n{settings}',
        encoding="utf-8",
    )
    command = (sys.executable, "-m", module, "serve", "--config", str(config))
    with _peer(folder, command, ALLOCATOR) as peer:
        yield peer


@contextmanager
def bare(folder: Path) -> Iterator[tuple[ServiceStream, Process]]:
    """Run an engine without any other component of a service."""
    command = (sys.executable, "-m", "bench.played.bare", f"unix://{folder}/s")
    with _peer(folder, command, ALLOCATOR) as peer:
        yield peer


@contextmanager
def echo(folder: Path) -> Iterator[tuple[ServiceStream, Process]]:
    """Run an echo."""
    command = (sys.executable, "-m", "bench.played.echo", f"unix://{folder}/s")
    with _peer(folder, command, ECHO) as peer:
        yield peer


@contextmanager
def _peer(
    folder: Path, command: tuple[str, ...], service: str
) -> Iterator[tuple[ServiceStream, Process]]:
    socket, log = folder / "s", folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors)  # noqa: S603 - our own command
    unbounded = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        deadline = time.monotonic() + START_LIMIT
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"does not start: {log.read_text(encoding='utf-8')}")
            time.sleep(0.05)
        with grpc.insecure_channel(f"unix://{socket}", unbounded) as channel:
            grpc.channel_ready_future(channel).result(timeout=START_LIMIT)
            stream = ServiceStream(channel, service)
            yield stream, Process(process, log)
            stream.end()
    finally:
        process.terminate()
        process.wait()
