"""Worlds that last: a thousand kills, a week of load.

python -m tests.world.endurance kills [--number N] | week [--days N]
"""

import argparse
import asyncio
import gc
import resource
import sys
import time
from pathlib import Path
from unittest import mock

from allocator.service import server
from tests.world.plan import POLICIES, Plan
from tests.world.world import World, run

DAY = 86400.0
GROWTH = 1.2
"""Objects and memory at the end may be so many times those after the first tenth."""


def kills(number: int) -> int:
    """Kill services until there were so many; return the exit status."""
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
    """Let a world live for so many days, and look at what grows; return the exit status."""
    samples: list[tuple[float, int, float]] = []
    begun = time.process_time()

    def look(world: World) -> None:
        gc.collect()
        size = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        samples.append((world.loop.instant / DAY, len(gc.get_objects()), size / 2**20))
        print(f"day {samples[-1][0]:.1f}: {samples[-1][1]} objects, {samples[-1][2]:.0f} MiB")

    async def looking(world: World) -> None:
        for _ in range(10):
            await asyncio.sleep(days * DAY / 10)
            look(world)

    def prepare(world: World) -> None:
        world.loop.create_task(looking(world))

    # What polls twenty times a second would be most of the week's work.
    with mock.patch.object(server, "_LOOK_EVERY", 10.0):
        world = run(_lasting(days), prepare)
    if world.wrong is not None:
        print(f"after {world.loop.instant / DAY:.2f} days: {world.wrong}")
        return 1
    (_, first, small), (_, last, large) = samples[0], samples[-1]
    print(
        f"{days:g} days in {time.process_time() - begun:.0f} s of CPU: {world.trace.count} "
        f"happenings, {world.conservation.offers} offers, {world.debts.compared} debts compared, "
        f"{world.host.disk.saves} saves, {world.gremlin.kills} kills; objects {first} → {last}, "
        f"memory {small:.0f} → {large:.0f} MiB"
    )
    return int(last > GROWTH * first or large > GROWTH * small + 16)


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
        settings={"policy": POLICIES[seed % len(POLICIES)], "users": {"forget_after": 1e9}},
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
        settings={"policy": {"name": "sdrf", "half_life": "1h"}, "users": {"forget_after": 1e9}},
    )


def main() -> int:
    """Run what is asked for; the exit status is 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kills", "week"])
    parser.add_argument("--number", type=int, default=1000, help="of kills")
    parser.add_argument("--days", type=float, default=7.0)
    arguments = parser.parse_args()
    return kills(arguments.number) if arguments.what == "kills" else week(arguments.days)


if __name__ == "__main__":
    sys.exit(main())
