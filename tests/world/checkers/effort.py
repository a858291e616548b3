"""Each message is decided in a bounded number of steps, whatever anybody has said."""

import cProfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from tests.world.checkers.checker import Violated

BASE = 20_000
EACH = 10_000
"""Calls of functions that a message may take: some, and so many for each agent and framework that
is there, each event and each offer made."""


class Effort:
    """Counts calls of functions while an engine decides.

    Args:
        fail: Told when there were too many.
    """

    def __init__(self, fail: Callable[[Violated], None]) -> None:
        self.most = 0
        """Calls for one message."""
        self._fail = fail

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count in the block."""
        apply, restore = Engine.apply, Engine.restore

        def counting(
            decide: Callable[..., contract.Decisions],
            engine: Engine,
            *what: Any,  # noqa: ANN401 - whatever it decides on
        ) -> contract.Decisions:
            profile = cProfile.Profile(builtins=False)
            profile.enable()
            try:
                decisions = decide(engine, *what)
            finally:
                profile.disable()
                steps = sum(entry.callcount for entry in profile.getstats())
                self.most = max(self.most, steps)
            events = len(what[0].events) if isinstance(what[0], contract.Events) else 0
            made = sum(len(offers.offers) for offers in decisions.offers)
            size = engine.agents + engine.frameworks + events + made
            if steps > BASE + EACH * size:
                self._fail(Violated(f"a message took {steps} steps, with {size} things to see to"))
            return decisions

        with (
            mock.patch.object(Engine, "apply", lambda *a: counting(apply, *a)),
            mock.patch.object(Engine, "restore", lambda *a: counting(restore, *a)),
        ):
            yield
