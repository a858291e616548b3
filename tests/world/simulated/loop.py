"""An event loop on virtual time, which jumps to the next event and runs threads inline."""

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from typing_extensions import override

SPINNING = 200_000
"""Turns of the loop at a single instant that indicate an endless loop."""
T = TypeVar("T")


class Spinning(AssertionError):  # noqa: N818 - it is what it does
    """The loop turns and turns, and time does not pass."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs all code in a single thread without waiting, in an order that the seed decides.

    Work for other threads runs inside the loop, uninterrupted, at an instant drawn from
    `thread_time`.

    Args:
        chance: Draws the durations of threads' work.
    """

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.instant = 0.0
        """Seconds since the world began."""
        self.servers: dict[tuple[str, int], Listener] = {}
        """The HTTP listeners, by address."""
        self.on_signal: Callable[[int, Callable[[], object]], None] = lambda _number, _run: None
        """Called with each signal for which a handler is added."""
        self.thread_time: Callable[[], tuple[float, float]] = self._some_milliseconds
        """Returns the seconds until a thread starts its work, and until the work is done."""
        self._chance = chance
        self._turns = 0
        self._selector = self
        self._clock_resolution = 1e-9

    @override
    def time(self) -> float:
        return self.instant

    def select(self, timeout: float | None) -> list[object]:
        """Jump to the instant of the next event, instead of waiting."""
        if timeout is None:
            raise RuntimeError("nothing is ever going to happen again")
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if timeout > 0 and scheduled:
            self.instant = max(self.instant, scheduled[0].when())
            self._turns = 0
        self._turns += 1
        if self._turns > SPINNING:
            raise Spinning(f"the event loop spins at {self.instant:.3f} s")
        return []

    @override
    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = self.create_future()
        works, answers = self.thread_time()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - handed on, as from a thread
                self.call_later(answers - works, _fail, done, error)
            else:
                self.call_later(answers - works, _finish, done, result)

        self.call_later(works, work, context=contextvars.copy_context())
        return done

    @override
    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        self.on_signal(sig, lambda: callback(*args))

    @override
    def remove_signal_handler(self, sig: int) -> bool:
        return True

    @override
    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        **_options: object,
    ) -> "Listener":
        listener = Listener(self, protocol_factory, (host, port))
        self.servers[host, port] = listener
        return listener

    def _some_milliseconds(self) -> tuple[float, float]:
        answers = self._chance.uniform(0.0005, 0.01)
        return self._chance.uniform(0.0, answers), answers

    def _process_events(self, events: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Listener:
    """The server object of asyncio; only `make` can connect to the listener."""

    def __init__(
        self,
        loop: VirtualLoop,
        make: Callable[[], asyncio.Protocol],
        address: tuple[str, int],
    ) -> None:
        self._loop = loop
        self.make = make
        self.context = contextvars.copy_context()
        """The context of the listening code."""
        self._address = address
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        """Return the listening address, as a socket would."""
        return self._address

    @contextmanager
    def dup(self) -> Iterator["Listener"]:
        """Yield a second descriptor of the listening socket."""
        yield self

    def listen(self, _backlog: int) -> None:
        """Accept the length of the queue: in the simulation, connections never wait."""

    def close(self) -> None:
        """Listen no longer."""
        if self._loop.servers.get(self._address) is self:
            del self._loop.servers[self._address]

    async def wait_closed(self) -> None:
        """Return at once: the listener is already closed."""


def _finish(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
