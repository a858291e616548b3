"""Every message is answered soon, no unexpected error occurs, and no service ends by itself."""

import asyncio
from collections import deque

import grpc
from typing_extensions import override

from allocator.contract import allocator_pb2 as contract
from tests.world.checkers.checker import Checker, Line, Violated
from tests.world.model.link import Link
from tests.world.service import Incarnation

PATIENCE = 60.0
"""Seconds from a message to its answer, or to the end of its stream."""
EXPECTED_ENDS = {
    grpc.StatusCode.ABORTED,  # superseded, or the service is stopping
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.FAILED_PRECONDITION,  # superseded
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}


class Answers(Checker):
    """Checks that every message is answered, and that services log no errors."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Link, deque[float]] = {}

    @override
    def opened(self, link: Link) -> None:
        self._waiting[link] = deque()

    @override
    def said(self, link: Link, message: contract.FromMaster) -> None:
        self._waiting[link].append(self._loop.time())

    @override
    def heard(self, link: Link, message: contract.ToMaster) -> None:
        waiting = self._waiting[link]
        if message.HasField("snapshot_request"):
            waiting.clear()
        elif waiting:
            waiting.popleft()

    @override
    def closed(self, link: Link, how: tuple[grpc.StatusCode, str]) -> None:
        self._waiting.pop(link, None)
        if how[0] not in EXPECTED_ENDS:
            raise Violated(f"the stream of {link.hello.master} ended with {how[0].name}: {how[1]}")

    @override
    def told(self, life: Incarnation, line: Line) -> None:
        if line.level in {"critical", "exception"} or "exception" in line.fields:
            raise Violated(f"{life} logged: {line.event} {line.fields}")

    @override
    def second(self) -> None:
        now = self._loop.time()
        for link, waiting in self._waiting.items():
            if waiting and now - waiting[0] > self.patience:
                raise Violated(
                    f"{link.hello.master} has waited {now - waiting[0]:.0f} s for an answer"
                )
