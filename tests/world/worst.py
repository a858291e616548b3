"""How much a framework that means harm slows others down: the worst that the world can invent.

python -m tests.world.worst [--rounds N]

A good framework comes with one task every now and then, and says what it needs. Its wait is virtual
time: from asking, or from when running tasks leave room for its own if that is later, to being
offered it; what the service works for each message is time of the processor. Both are told as
multiples of what they are without the other framework, interleaved, medians.

What runs has its place: no allocator of Mesos takes that back. Who leaves offers unanswered is
bounded by `limits.unanswered`, which is half of the cluster here, where masters tell what is
only offered (since Mesos 1.10), and before if it is presumed (`limits.answered_after`). What it is
where neither is so, and the master's offer timeout alone helps, is told, too.
"""

import argparse
import asyncio
import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from typing_extensions import override

from allocator.cluster.engine import Engine
from tests.world.model.amounts import amounts, fits
from tests.world.model.books import Offer
from tests.world.model.master import Master
from tests.world.plan import Plan
from tests.world.traffic import frameworks, hostile
from tests.world.traffic.scheduler import Scheduler
from tests.world.world import World, run

FACTOR = 2.0
"""By which the worst may slow the good one down."""
HARM = (*hostile.ALL, "mute", "refuser", "liar", "flapper", "greedy")
PRESUMED = "mute, before Mesos 1.10"
UNBOUNDED = "mute, before Mesos 1.10, unbounded"
ANSWERED_AFTER = 25.0
"""Seconds: somewhat longer than the offer timeout of a world's masters."""
BEGINNING = 15.0
"""Seconds after which all agents have registered."""
LOOK = 0.02
"""Seconds between two looks for room."""
_TASK = amounts("cpus:1;mem:512")


class Good(Scheduler):
    """Asks for one task at a time, and notes how long it waits for an offer."""

    def __init__(self, *what: Any) -> None:  # noqa: ANN401 - as any scheduler
        super().__init__(*what)
        self.labels["longshare.demand"] = "cpus:1;mem:512"
        self.waits: list[float] = []
        self._asked: float | None = None
        self._since: float | None = None
        """Since when there is room."""

    @override
    def suppressed_roles(self) -> tuple[str, ...]:
        return self.roles

    @override
    def act(self) -> None:
        master = self.master
        if self._asked is None and master is not None and self._begins(master):
            self._asked = master.clock.now()
            self._look(master)
            master.revive(self.id)

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        if self._asked is None or not fits(_TASK, offer.amounts):
            master.decline(offer, 0.0)
            return
        now = master.clock.now()
        self.waits.append(now - (now if self._since is None else self._since))
        self._asked = self._since = None
        master.suppress(self.id)
        self.launch(master, offer, [_TASK], lambda: 5.0)

    def _begins(self, master: Master) -> bool:
        """Whether the cluster is whole, and this framework known."""
        return asyncio.get_running_loop().time() > BEGINNING and self.id in master.frameworks

    def _look(self, master: Master) -> None:
        """Count from when what runs leaves room for good."""
        if self._asked is None:
            return
        if any(fits(_TASK, machine.free) for machine in self._places.site.machines.values()):
            self._since = master.clock.now() if self._since is None else self._since
        else:
            self._since = None
        asyncio.get_running_loop().call_later(LOOK, self._look, master)


class _Work:
    """Seconds of the processor for each message."""

    def __init__(self) -> None:
        self.each: list[float] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        apply = Engine.apply

        def measuring(engine: Engine, events: Any) -> Any:  # noqa: ANN401 - as the engine's
            begun = time.process_time()
            try:
                return apply(engine, events)
            finally:
                self.each.append(time.process_time() - begun)

        with mock.patch.object(Engine, "apply", measuring):
            yield


def measure(
    kind: str, seed: int, *, tells: bool = True, answered_after: float = 0.0
) -> tuple[float, float, float]:
    """Run one world; return the good one's mean wait, and work for a message: mean and most."""

    def prepare(world: World) -> None:
        world.loop.call_soon(begin, world)

    def begin(world: World) -> None:
        with mock.patch.dict(frameworks.CHARACTERS, {"good": Good}):
            good.append(world.add_framework("good", "good", role="c"))
        if kind in hostile.ALL:
            framework = world.add_framework("hostile", "harm", role="a")
            assert isinstance(framework, hostile.Hostile)
            framework.poison = kind
        elif kind:
            world.add_framework(kind, "harm", role="a")

    good: list[Scheduler] = []
    work = _Work()
    with work.measured():
        world = run(_plan(seed, answered_after, tells=tells), prepare)
    if world.wrong is not None:
        raise world.wrong
    assert isinstance(good[0], Good)
    return statistics.mean(good[0].waits), statistics.mean(work.each), max(work.each)


def _plan(seed: int, answered_after: float, *, tells: bool) -> Plan:
    return Plan(
        seed,
        seconds=120.0,
        healing=10.0,
        masters=1,
        machines=6,
        frameworks={"waiter": 2},
        mesos=(1, 11) if tells else (1, 8),
        settings={
            "policy": {"name": "sdrf", "half_life": 60},
            "users": {"forget_after": 1e9, "counts_for": math.inf},
            "limits": {"unanswered": 0.5, "answered_after": answered_after},
        },
    )


def main() -> int:
    """Measure all; the exit status is 1 if one slows the good framework down too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="seeds")
    arguments = parser.parse_args()
    kinds = ["", *HARM, PRESUMED, UNBOUNDED]
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    for seed in range(arguments.rounds):
        for kind in kinds:
            if kind in {PRESUMED, UNBOUNDED}:
                after = ANSWERED_AFTER if kind == PRESUMED else 0.0
                result = measure("mute", seed, tells=False, answered_after=after)
            else:
                result = measure(kind, seed)
            found[kind].append(result)
    print(
        f"{'connected':36} {'wait':>9} {'factor':>7} {'over the seeds':>15} {'per message':>12} "
        f"{'factor':>7} {'most':>9}"
    )
    worst = 0.0
    for kind, results in found.items():
        slower = [_wait(a) / _wait(b) for a, b in zip(results, found[""], strict=True)]
        (wait, mean, most), alone = _medians(results), _medians(found[""])
        factor = statistics.median(slower)
        if kind != UNBOUNDED:
            worst = max(worst, factor)
        print(
            f"{kind or 'nobody else':36} {wait * 1e3:6.1f} ms {factor:7.2f} "
            f"{min(slower):6.2f} … {max(slower):5.2f}  {mean * 1e3:9.2f} ms "
            f"{mean / alone[1]:7.2f} {most * 1e3:6.1f} ms"
        )
    print(
        f"the worst that somebody can say or do makes the good framework wait {worst:.2f} times as "
        f"long (median of {arguments.rounds} seeds)"
    )
    return int(worst > FACTOR)


def _wait(result: tuple[float, float, float]) -> float:
    """Return virtual time and the processor's."""
    return result[0] + result[1]


def _medians(results: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    wait, mean, most = (statistics.median(column) for column in zip(*results, strict=True))
    return wait, mean, most


if __name__ == "__main__":
    sys.exit(main())
