"""A real `longshare serve` in a separate process, and the master's end of a session stream."""

import os
import queue
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract.allocator_pb2_grpc import AllocatorStub
from tests.cluster.master_side import SECOND
from tests.forks import Longshare

PATIENCE = 90.0
"""Seconds to wait for a condition before a test fails; enough for a crowded machine."""


def freeze(child: int) -> None:
    """Stop a child process with all its threads until it gets SIGCONT."""
    os.kill(child, signal.SIGSTOP)
    stopped = os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert stopped is not None
    assert stopped.si_code == os.CLD_STOPPED, "the process has ended"


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


def answers(url: str) -> bool:
    """Return whether a server answers; a server that listens but is stopped does not."""
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


class Service:
    """A service process with its addresses and its log."""

    def __init__(
        self,
        folder: Path,
        settings: str,
        listen: str | None = None,
        arguments: Sequence[str] = (),
        metrics: str = "127.0.0.1:0",
        *,
        virtual_clocks: bool = True,
    ) -> None:
        self.address = listen or f"unix://{folder}/allocator.sock"
        self.recording = folder / "recorder.csv"
        self.store = folder / "commitments.sqlite"
        self.log = folder / "log"
        config = folder / "longshare.toml"
        if "[store]" not in settings:
            settings += f'\n[store]\npath = "{self.store}"\n'
        if "[accounting]" not in settings:
            settings += '\n[accounting]\ndatabase = "none"\n'  # no import of SQLAlchemy
        if "[listen]" not in settings:
            settings += "\n[listen]\n"
        listening = f'[listen]\naddress = "{self.address}"\n'
        if virtual_clocks:
            listening += "virtual_clocks = true\n"
        settings = settings.replace("[listen]", listening)
        if "[metrics]" not in settings:
            settings += "\n[metrics]\n"
        settings = settings.replace("[metrics]", f'[metrics]\naddress = "{metrics}"')
        config.write_text(
            f'{settings}\n[recorder]\nfile = "{self.recording}"\n[log]\nformat = "json"\n'
        )
        with self.log.open("wb") as log:
            self.process = Longshare(["serve", "--config", str(config), *arguments], stderr=log)

    def wait_until_ready(self) -> None:
        self.wait_to_say('"ready"')

    def wait_to_say(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    @property
    def metrics_url(self) -> str:
        match = re.search(r'"(http://[^"]+/metrics)"', self.log.read_text())
        assert match is not None
        return match[1]

    def wait_for_metric(self, line: str) -> None:
        def told() -> bool:
            with urllib.request.urlopen(self.metrics_url) as answer:
                return line in answer.read().decode().splitlines()

        wait_for(told)

    def stand_still(self) -> None:
        freeze(self.process.pid)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def service(
    folder: Path,
    settings: str = "",
    listen: str | None = None,
    arguments: Sequence[str] = (),
    metrics: str = "127.0.0.1:0",
    *,
    virtual_clocks: bool = True,
) -> Iterator[Service]:
    started = Service(folder, settings, listen, arguments, metrics, virtual_clocks=virtual_clocks)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.process.kill()
        started.process.wait()


class Stream:
    """The master's end of a session, message by message."""

    def __init__(self, address: str, session_id: str = "test") -> None:
        self.hello = hello(session_id=session_id).hello
        # Each master has its own connection; by default, channels of a process share a connection.
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self._outbox: queue.SimpleQueue[contract.FromMaster | None] = queue.SimpleQueue()
        self._session = AllocatorStub(self._channel).Session
        self._answers: Iterator[contract.ToMaster] | None = None
        self._sequence = 0
        self.leading_since_ns = 1_500_000_000 * SECOND
        self.now_ns = 1_600_000_000 * SECOND

    def say(self, message: contract.FromMaster) -> None:
        self._outbox.put(message)
        if self._answers is None:  # not earlier: a stream without Hello is refused within seconds
            self._answers = self._session(iter(self._outbox.get, None), timeout=PATIENCE)

    def hear(self) -> contract.ToMaster:
        assert self._answers is not None, "no message has been sent"
        return next(self._answers)

    def open(self, **snapshot: object) -> contract.Decisions:
        """Say hello and send a snapshot."""
        self.say(contract.FromMaster(hello=self.hello))
        assert self.hear().WhichOneof("message") == "welcome"
        return self.resynchronise(**snapshot)

    def resynchronise(self, **snapshot: object) -> contract.Decisions:
        self.say(
            contract.FromMaster(
                snapshot=contract.Snapshot(
                    sequence=self._sequence,
                    time_ns=self.now_ns,
                    leading_since_ns=self.leading_since_ns,
                    **snapshot,  # type: ignore[arg-type]
                )
            )
        )
        return self.hear().decisions

    def tell(self, **call: object) -> contract.ToMaster:
        """Send a call as a single message, and return the answer."""
        self.send(**call)
        return self.hear()

    def send(self, **call: object) -> None:
        self._sequence += 1
        event = contract.Event(sequence=self._sequence, time_ns=self.now_ns, **call)  # type: ignore[arg-type]
        self.say(contract.FromMaster(events=contract.Events(events=[event])))

    def tell_at_once(self, *calls: dict[str, object]) -> contract.ToMaster:
        """Send calls in one message, and return the answer."""
        message = contract.FromMaster()
        for call in calls:
            self._sequence += 1
            event = contract.Event(sequence=self._sequence, time_ns=self.now_ns, **call)  # type: ignore[arg-type]
            message.events.events.append(event)
        self.say(message)
        return self.hear()

    def skip(self) -> None:
        """Skip a sequence number, as if an event were lost."""
        self._sequence += 1

    def vanish(self) -> None:
        """Drop the connection without ending the stream."""
        self._channel.close()
        self._outbox.put(None)

    def close(self) -> None:
        self._outbox.put(None)
        self._channel.close()


def hello(version: int = VERSION, session_id: str = "test") -> contract.FromMaster:
    return contract.FromMaster(
        hello=contract.Hello(
            contract_version=version,
            session_id=session_id,
            mesos_version="1.8.0",
            master="127.0.0.1:5050",
            virtual_clock=True,
            options=contract.Options(
                allocation_interval_ns=SECOND,
                min_allocatable=[contract.Quantities(amounts={"cpus": 0.01})],
            ),
        )
    )
