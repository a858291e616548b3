"""The number of steps for each message is bounded by sizes, regardless of its contents."""

import cProfile
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.world.checkers.checker import Violated
from tests.world.model.amounts import Amounts, amounts, copies

EVENT = 600
"""Function calls per event, and the constant part per message. Parsed resources are cached, so the
first events that name them take more calls.
"""
PART = 300
"""For an agent or a framework of a snapshot."""
CLIENT = 4
"""Function calls per client considered on an agent, times the cube of the logarithm of the number
of tasks that fit on the agent. There are three nested searches: for the client's number of tasks;
for the level of the other clients of its role; and for the best way to fill the agent.
"""
FINEST = 1000
"""Maximum number of tasks that fit on an agent (`limits.smallest_demand`)."""


class Effort:
    """Counts function calls while an engine decides.

    Args:
        fail: Called when there were too many calls.
        said: Returns the framework infos.
        largest: Returns the largest agents.
    """

    def __init__(
        self,
        fail: Callable[[Violated], None],
        messages: Callable[[], list[bytes]],
        largest: Callable[[], list[Amounts]],
    ) -> None:
        self.closest = 0.0
        """The largest fraction of its bound that a message has used."""
        self._fail = fail
        self._said = messages
        self._largest = largest

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count in the block."""
        applying, restoring = Engine.apply_in_steps, Engine.restore_in_steps

        def apply(engine: Engine, events: contract.Events, *arguments: Any) -> Any:  # noqa: ANN401
            steps = applying(engine, events, *arguments)
            return self._counting(engine, steps, lambda: EVENT * len(events.events))

        def restore(engine: Engine, *arguments: Any) -> Any:  # noqa: ANN401 - likewise
            steps = restoring(engine, *arguments)
            return self._counting(engine, steps, lambda: PART * (engine.agents + engine.frameworks))

        with (
            mock.patch.object(Engine, "apply_in_steps", apply),
            mock.patch.object(Engine, "restore_in_steps", restore),
        ):
            yield

    def _counting(self, engine: Engine, steps: Any, parts: Callable[[], int]) -> Any:  # noqa: ANN401
        """Run a cooperative computation and count its calls; other work may run between steps."""
        profile, before = cProfile.Profile(builtins=False), engine.statistics.candidates
        while True:
            profile.enable()
            try:
                part = next(steps)
            except StopIteration as done:
                profile.disable()
                self._compare(engine, profile, engine.statistics.candidates - before, parts())
                return done.value
            finally:
                profile.disable()
            yield part

    def _compare(
        self, engine: Engine, profile: cProfile.Profile, candidates: int, parts: int
    ) -> None:
        steps = sum(entry.callcount for entry in profile.getstats())
        clients = 1 + len(engine.clients())
        divided = 1.0 + math.log2(self._divided())
        bound = EVENT + parts + CLIENT * candidates * clients * divided**3
        self.closest = max(self.closest, steps / bound)
        if steps > bound:
            self._fail(
                Violated(
                    f"a message took {steps} steps, where {bound:.0f} are enough: {candidates} "
                    f"agents to look at, {clients - 1} clients, {2 ** (divided - 1):.0f} tasks"
                )
            )

    def _divided(self) -> int:
        """Return the number of tasks that fit on an agent, by the frameworks' stated demands."""
        most = 1
        for data in self._said():
            for label in mesos.FrameworkInfo.FromString(data).labels.labels:
                if label.key == "longshare.demand":
                    most = max(most, *(_tasks(label.value, amounts) for amounts in self._largest()))
        return min(most, FINEST)


def _tasks(demand: str, agent: Amounts) -> int:
    try:
        task = amounts(demand)
    except (ValueError, OverflowError):
        return 1
    return copies(task, agent) if task else FINEST
