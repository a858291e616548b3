"""Measure how much a hostile framework slows other frameworks down, in the worst known cases.

python -m tests.world.worst [--rounds N]

A good framework has a single task every now and then, and states the task's demand. Its wait is
virtual time: from its request (or from when running tasks leave enough free resources, if later) to
the offer. The work of the service for each message is processor time. Both are printed as multiples
of their values without the hostile framework; runs are interleaved; figures are medians.

Running tasks keep their resources: no allocator of Mesos preempts tasks. The limit for unanswered
offers is `limits.unanswered`, half of the cluster here. The limit applies where masters report used
resources (since Mesos 1.10), and in earlier versions if use is presumed (`limits.answered_after`).
The program also prints the figures for neither case, when only the master's offer timeout helps.

Frameworks with many roles, each of which is a user, dilute other users' entitlements in the papers'
form. The measure is the mean entitlement of a user when two users fill the cluster, with such names
and without, for both rules of `users.counts_for`.
"""

import argparse
import asyncio
import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
"""The factor by which the worst framework may slow the good framework down."""
HARM = (*hostile.ALL, "mute", "refuser", "liar", "flapper", "greedy")
PRESUMED = "mute, before Mesos 1.10"
UNBOUNDED = "mute, before Mesos 1.10, unbounded"
ANSWERED_AFTER = 25.0
"""Seconds: somewhat longer than the offer timeout of a world's masters."""
BEGINNING = 15.0
"""Seconds after which all agents have registered."""
NAMES = 50
"""Roles of a framework that exists only for its many roles."""
LEAVES_AFTER = 15.0
"""Seconds until users without frameworks are forgotten."""
DILUTING = ("names", "names that refuse", "names that leave", "names with a tiny task")
COUNTS_FOR = (4.0, math.inf)
LEAST_LEFT = 0.9
"""Smallest permitted ratio of entitlements with and without extra names, under the default rule."""
LOOK = 0.02
"""Seconds between two looks for room."""
_TASK = amounts("cpus:1;mem:512")


class Good(Scheduler):
    """Requests a task at a time, and records the wait for an offer."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as any scheduler
        super().__init__(*arguments)
        self.labels["longshare.demand"] = "cpus:1;mem:512"
        self.waits: list[float] = []
        self._asked: float | None = None
        self._since: float | None = None
        """The time since when a task would fit."""

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
        """Record since when running tasks leave enough free resources for good."""
        if self._asked is None:
            return
        if any(fits(_TASK, machine.free) for machine in self._places.site.machines.values()):
            self._since = master.clock.now() if self._since is None else self._since
        else:
            self._since = None
        asyncio.get_running_loop().call_later(LOOK, self._look, master)


class Names(Scheduler):
    """Has many roles: wants nothing, declines, leaves soon, or runs a tiny task in each role.

    Args:
        kind: The behaviour.
        what: Arguments of any scheduler.
    """

    def __init__(self, kind: str, *arguments: Any) -> None:  # noqa: ANN401 - as any scheduler
        super().__init__(*arguments)
        self.kind = kind
        self.roles = tuple(f"name-{number}" for number in range(NAMES))
        self._served = set[str]()

    @override
    def suppressed_roles(self) -> tuple[str, ...]:
        return () if self.kind in {"names that refuse", "names with a tiny task"} else self.roles

    @override
    def act(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.kind == "names that leave" and now > BEGINNING + LEAVES_AFTER and not self.gone:
            self.leave()

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        if self.kind == "names with a tiny task" and offer.role not in self._served:
            self._served.add(offer.role)
            self.launch(master, offer, [amounts("cpus:0.001;mem:1")], lambda: 1e6)
        else:
            master.decline(offer, 5.0)


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
    """Run a world; return the good framework's mean wait, and mean and maximum work per message."""

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


def entitled(kind: str, seed: int, counts_for: float) -> float:
    """Run a world with two users that fill the cluster; return the mean entitlement of one user."""
    seen: list[float] = []
    apply = Engine.apply

    def looking(engine: Engine, events: Any) -> Any:  # noqa: ANN401 - as the engine's
        standing = engine.standing("a")
        if standing is not None and asyncio.get_running_loop().time() > 2 * BEGINNING:
            seen.append(standing.entitlement)
        return apply(engine, events)

    def prepare(world: World) -> None:
        world.loop.call_soon(begin, world)

    def begin(world: World) -> None:
        for role in "ab":
            world.add_framework("greedy", f"greedy-{role}", role=role)
        if kind:
            made = partial(Names, kind)
            with mock.patch.dict(frameworks.CHARACTERS, {"names": made}):
                world.add_framework("names", "harm", role="n")

    plan = _plan(seed, 0.0, tells=True)
    plan.seconds, plan.frameworks = 60.0, {}
    plan.settings["users"]["counts_for"] = counts_for
    with mock.patch.object(Engine, "apply", looking):
        world = run(plan, prepare)
    if world.wrong is not None:
        raise world.wrong
    return statistics.mean(seen)


def dilution(rounds: int) -> float:
    """Print the remaining fraction of an entitlement; return the least under the default rule."""
    print(f"{'names beside two users':36} {'counts_for':>10} {'entitled':>9} {'left':>6}")
    least = 1.0
    for counts_for in COUNTS_FOR:
        alone = [entitled("", seed, counts_for) for seed in range(rounds)]
        for kind in DILUTING:
            shares = [entitled(kind, seed, counts_for) for seed in range(rounds)]
            ratio = min(a / b for a, b in zip(shares, alone, strict=True))
            if counts_for < math.inf:
                least = min(least, ratio)
            print(f"{kind:36} {counts_for:10g} {statistics.median(shares):9.3f} {ratio:6.3f}")
    return least


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
    """Measure all cases; the exit status is 1 if the good framework is slowed down too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="seeds")
    arguments = parser.parse_args()
    kinds = ["", *HARM, PRESUMED, UNBOUNDED]
    measured: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    for seed in range(arguments.rounds):
        for kind in kinds:
            if kind in {PRESUMED, UNBOUNDED}:
                after = ANSWERED_AFTER if kind == PRESUMED else 0.0
                result = measure("mute", seed, tells=False, answered_after=after)
            else:
                result = measure(kind, seed)
            measured[kind].append(result)
    print(
        f"{'connected':36} {'wait':>9} {'factor':>7} {'over the seeds':>15} {'per message':>12} "
        f"{'factor':>7} {'most':>9}"
    )
    worst = 0.0
    for kind, results in measured.items():
        slower = [_wait(a) / _wait(b) for a, b in zip(results, measured[""], strict=True)]
        (wait, mean, most), alone = _medians(results), _medians(measured[""])
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
    least = dilution(arguments.rounds)
    print(f"names leave at least {least:.3f} of what others are entitled to without them")
    return int(worst > FACTOR or least < LEAST_LEFT)


def _wait(result: tuple[float, float, float]) -> float:
    """Return virtual time and the processor's."""
    return result[0] + result[1]


def _medians(results: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    wait, mean, most = (statistics.median(column) for column in zip(*results, strict=True))
    return wait, mean, most


if __name__ == "__main__":
    sys.exit(main())
