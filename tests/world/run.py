"""Run worlds, seed by seed, and report the seeds of worlds with violations.

python -m tests.world.run [--seed N] [--from N] [--worlds N | --minutes M]
"""

import argparse
import itertools
import sys
import time

from tests.world.plan import drawn
from tests.world.world import World, run


def main() -> int:
    """Run the program; the exit status is 1 after a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one world, and show how it ended")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--worlds", type=int, help="how many")
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        world = run(drawn(arguments.seed))
        print("\n".join(world.trace.lines))
        print(_described(arguments.seed, world, 0.0))
        return int(world.wrong is not None)
    begun, failing = time.monotonic(), []
    for seed in itertools.count(arguments.first):
        enough = (
            time.monotonic() - begun > 60 * arguments.minutes
            if arguments.worlds is None
            else seed >= arguments.first + arguments.worlds
        )
        if enough:
            break
        before = time.process_time()
        world = run(drawn(seed))
        print(_described(seed, world, time.process_time() - before), flush=True)
        if world.wrong is not None:
            failing.append(seed)
    for seed in failing:
        print(f"found something: make world SEED={seed}")
    return int(bool(failing))


def _described(seed: int, world: World, seconds: float) -> str:
    outcome = f"WRONG: {world.wrong}" if world.wrong is not None else "fine"
    return (
        f"seed {seed}: {world.trace.count} happenings, {world.conservation.offers} offers, "
        f"{world.debts.compared} debts, {world.conservation.operations} operations, "
        f"{world.conservation.bounded} offers under quotas, {world.conservation.confined} under "
        f"constraints, {world.gremlin.together} times several "
        f"faults at once, "
        f"{world.host.disk.saves} saves in {seconds:.1f} s, {world.trace.digest()[:12]}: {outcome}"
    )


if __name__ == "__main__":
    sys.exit(main())
