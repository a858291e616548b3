"""Ratios of figures of one run, which are similar on other machines.

Without arguments the program prints the ratios beside the record in bench/ratios.json; --renew
writes them into the file. Run it on an idle machine. docs/lab/over-commits.md shows the history.
"""

import argparse
import json
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import live_tree, service

FILE = Path(__file__).with_name("ratios.json")
ROUNDS = 5


def measured(agents: int, events: int, rounds_of_each: int, seconds: float) -> dict[str, float]:
    """Return the present measurements: name of a ratio → its median; larger is better.

    Args:
        agents: Number of agents of the service.
        events: Number of events of a measurement of the service.
        rounds_of_each: Number of rounds of each measurement.
        seconds: Seconds of each measurement of rankings.
    """
    ratios = {}
    for batch, rounds in service.rounds(agents, 50, rounds_of_each, events):
        of_echo = statistics.median(through / limit for *_, through, limit in rounds)
        ratios[f"service / bare echo, {batch} events in a message"] = float(f"{of_echo:.2g}")
    for users in (50, 1000):
        ratios[f"scan / Live Tree, {users:,} users"] = round(
            statistics.median(
                live_tree.per_decision(live_tree.pool(users, "scan"), seconds)[0]
                / live_tree.per_decision(live_tree.pool(users, "live-tree"), seconds)[0]
                for _ in range(rounds_of_each)
            ),
            1,
        )
    return ratios


def recorded() -> dict[str, float]:
    """Return the recorded ratios; empty without a record."""
    if not FILE.exists():
        return {}
    held: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    return held


def main() -> None:
    """Measure; print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--renew", action="store_true", help="write bench/ratios.json")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--events", type=int, default=service.EVENTS, help="of a figure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=live_tree.PATIENCE, help="of a ranking")
    arguments = parser.parse_args()
    before = recorded()
    now = measured(arguments.agents, arguments.events, arguments.rounds, arguments.seconds)
    table = Table("ratio, larger is better", "recorded", "now")
    for name, ratio in now.items():
        table.add_row(name, str(before.get(name, "-")), str(ratio))
    Console().print(table)
    if arguments.renew:
        FILE.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
