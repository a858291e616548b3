"""Long-running worlds: a thousand kills, a week of load.

python -m tests.world.endurance kills [--number N] | week [--days N]
"""

import argparse
import asyncio
import gc
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from aiohttp import web_app

from allocator.service import shared_parts
from tests.world.plan import POLICIES, Plan
from tests.world.world import World, run

DAY = 86400.0
LOOKS = 40
"""Number of measurements in a run."""
GROWTH = 1.03
"""Largest permitted ratio of objects in the last third to objects in the first third."""
ROOM = 16.0
"""MiB by which memory may have grown, because memory allocators keep reserves."""


@dataclass(frozen=True)
class Look:
    """A measurement at an instant: objects by type, and memory in MiB."""

    day: float
    objects: Counter[str]
    memory: float

    @property
    def number(self) -> int:
        """Of objects."""
        return self.objects.total()


def kills(number: int) -> int:
    """Kill services until the given number is reached; return the exit status."""
    killed = seed = begun = orders = 0
    worst = lost = 0.0
    while killed < number:
        seed += 1
        world = run(_killed(seed))
        killed += world.gremlin.kills
        begun, orders = begun + world.remembrance.begun, orders + world.operator.answered
        worst, lost = max(worst, world.remembrance.worst), max(lost, world.remembrance.lost)
        if world.wrong is not None:
            print(f"seed {seed}: {world.wrong}")
            return 1
        print(f"{killed} kills in {seed} worlds", flush=True)
    print(
        f"{killed} kills with disk faults in {seed} worlds: nothing wrong. {begun} services began "
        f"with what another one had left on a disk that was well; a crash cost {lost:.2f} s, and "
        f"changed a commitment by {worst:.5f}, at most. Operators were answered {orders} times."
    )
    return 0


def week(days: float) -> int:
    """Run a world for some days of virtual time, and check for growth; return the exit status."""
    looks: list[Look] = []
    begun = time.process_time()

    async def looking(world: World) -> None:
        for _ in range(LOOKS):
            await asyncio.sleep(days * DAY / LOOKS)
            looks.append(_look(world))
            look = looks[-1]
            print(f"day {look.day:.1f}: {look.number} objects, {look.memory:.0f} MiB", flush=True)

    def prepare(world: World) -> None:
        world.loop.create_task(looking(world))

    # Polling twenty times a second would take most of the week's processing time.
    with mock.patch.object(shared_parts, "_LOOK_EVERY", 10.0):
        world = run(_lasting(days), prepare)
    if world.wrong is not None:
        print(f"after {world.loop.instant / DAY:.2f} days: {world.wrong}")
        return 1
    first, last = least(looks)
    print(
        f"{days:g} days in {time.process_time() - begun:.0f} s of CPU: {world.trace.count} "
        f"happenings, {world.conservation.offers} offers, {world.debts.compared} debts compared, "
        f"{world.host.disk.saves} saves, {world.gremlin.kills} kills; objects {first.number} → "
        f"{last.number}, memory {first.memory:.0f} → {last.memory:.0f} MiB"
    )
    growth = grown(looks)
    if growth:
        print(f"growing: {growth}")
    return int(bool(growth))


def least(looks: Sequence[Look]) -> tuple[Look, Look]:
    """Return the minimum of the first third, after caches are filled, and of the last third.

    A service's data ends with the service, and a fault kills a service every few hours. The figures
    therefore go up and down, and only the minima, when a service has just begun, show growth.
    """
    third = len(looks) // 3
    parts = looks[max(third // 4, 1) : third], looks[-third:]
    first, last = (min(part, key=lambda look: look.number) for part in parts)
    return first, last


def grown(looks: Sequence[Look]) -> str:
    """Return a description of the growth; empty without growth."""
    first, last = least(looks)
    if last.number > GROWTH * first.number:
        growth = (last.objects - first.objects).most_common(12)
        return ", ".join(f"{kind} by {number}" for kind, number in growth)
    if last.memory > first.memory + ROOM:
        return f"memory, from {first.memory:.0f} to {last.memory:.0f} MiB"
    return ""


def _look(world: World) -> Look:
    """Measure objects and memory, without the global caches of libraries.

    A process normally has a single service, and here a week of services; aiohttp caches the pages
    of each.
    """
    web_app._cached_build_middleware.cache_clear()
    gc.collect()
    objects = Counter(
        f"{type(tracked).__module__}.{type(tracked).__qualname__}" for tracked in gc.get_objects()
    )
    size = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return Look(world.loop.instant / DAY, objects, size / 2**20)


def _killed(seed: int) -> Plan:
    return Plan(
        seed,
        seconds=600.0,
        healing=120.0,
        machines=4,
        frameworks={"worker": 2, "greedy": 1, "waiter": 1},
        faults={
            "kill service": 15.0,
            "break stream": 1.0,
            "fill disk": 0.5,
            "slow disk": 0.5,
            "lying disk": 0.3,
            "upgrade service": 0.5,
        },
        settings={
            "policy": POLICIES[seed % len(POLICIES)],
            "users": {"forget_after": 1e9, "counts_for": math.inf},
        },
    )


def _lasting(days: float) -> Plan:
    return Plan(
        7,
        seconds=days * DAY,
        healing=600.0,
        masters=2,
        machines=6,
        interval=20.0,
        offer_timeout=240.0,
        pace=120.0,
        frameworks={"worker": 4, "greedy": 1, "mute": 1, "waiter": 1, "liar": 1, "flapper": 1},
        faults={
            name: often / 60.0
            for name, often in {
                "kill service": 0.2,
                "stop service": 0.1,
                "break stream": 0.5,
                "vanish stream": 0.1,
                "fail over": 0.2,
                "jump clock": 0.2,
                "lose agent": 0.2,
                "disconnect agent": 0.5,
                "fill disk": 0.1,
                "upgrade service": 0.1,
            }.items()
        },
        settings={
            "policy": {"name": "sdrf", "half_life": "1h"},
            "users": {"forget_after": 1e9, "counts_for": math.inf},
        },
    )


def main() -> int:
    """Run the program; the exit status is 1 after a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kills", "week"])
    parser.add_argument("--number", type=int, default=1000, help="of kills")
    parser.add_argument("--days", type=float, default=7.0)
    arguments = parser.parse_args()
    return kills(arguments.number) if arguments.what == "kills" else week(arguments.days)


if __name__ == "__main__":
    sys.exit(main())
