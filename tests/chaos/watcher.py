"""Looks at a master's `/state` again and again: is anything booked twice, does anybody starve?"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.frameworks import ENDED, LOST, NEEDS, Framework

STARVING = 30.0
"""Seconds in which a framework that could run gets no offer from an allocator that answers."""
LOOK = 1.0
"""Seconds between two looks."""
_SLACK = 1e-6


@dataclass
class Watcher:
    """What all looks have shown."""

    guarantees: dict[str, float] = field(default_factory=dict)
    """Cores, by role; who has a quota is not looked after, for it may have reached its limit."""
    looks: int = 0
    most_running: int = 0
    wrong: list[str] = field(default_factory=list)
    hungry: dict[str, float] = field(default_factory=dict)
    """Seconds for which each has wanted something that was there, since its last offer."""
    longest: dict[str, float] = field(default_factory=dict)
    """The most of that, by habit."""

    def look(
        self, state: Mapping[str, Any], frameworks: Iterable[Framework], passed: float
    ) -> None:
        """Look at what the master says, some seconds after the look before.

        Args:
            state: Its `/state`.
            frameworks: Those that live.
            passed: Seconds, in which the allocator has answered.
        """
        self.looks += 1
        held = _held(state)
        self.most_running = max(
            self.most_running, sum(len(f["tasks"]) for f in state["frameworks"])
        )
        for agent in state["slaves"]:
            for name, amount in held.get(agent["id"], {}).items():
                if amount > agent["resources"][name] + _SLACK:
                    self.wrong.append(
                        f"{amount:g} {name} are booked of {agent['hostname']}, which has "
                        f"{agent['resources'][name]:g}: {held[agent['id']]}"
                    )
        room = _room(state, held)
        missing = self._missing(state)
        for framework in frameworks:
            there = sum(cores for host, cores in room.items() if framework.may_run_on(host))
            could = framework.habit not in self.guarantees and there > missing
            self._feed(framework.habit, passed, wanting=could and framework.wants)

    def offered(self, habit: str) -> None:
        """Somebody has been offered something."""
        self.hungry[habit] = 0.0

    def _feed(self, habit: str, passed: float, *, wanting: bool) -> None:
        self.hungry[habit] = self.hungry.get(habit, 0.0) + passed if wanting else 0.0
        self.longest[habit] = max(self.longest.get(habit, 0.0), self.hungry[habit])
        if self.hungry[habit] > STARVING:
            self.wrong.append(f"{habit} could run, and got no offer for {self.hungry[habit]:.0f} s")
            self.hungry[habit] = 0.0

    def _missing(self, state: Mapping[str, Any]) -> float:
        """Return the cores that may be kept free for those that are guaranteed some."""
        has = {one["name"]: one["used_resources"]["cpus"] for one in state["frameworks"]}
        size = max((agent["resources"]["cpus"] for agent in state["slaves"]), default=0.0)
        return float(
            sum(
                size + max(cores - has.get(role, 0.0), 0.0)  # whole agents are kept, for Mesos 1.8
                for role, cores in self.guarantees.items()
            )
        )


def _held(state: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Add up what tasks and offers hold, by agent."""
    held: dict[str, Counter[str]] = {}
    for framework in state["frameworks"]:
        # What has ended is listed until its framework has acknowledged that, and holds nothing.
        tasks = [one for one in framework["tasks"] if one["state"] not in ENDED | LOST]
        for holder in (*tasks, *framework["offers"]):
            sums = held.setdefault(holder["slave_id"], Counter())
            for name in NEEDS:
                sums[name] += holder["resources"].get(name, 0.0)
    return held


def _room(state: Mapping[str, Any], held: Mapping[str, Counter[str]]) -> dict[str, float]:
    """Return the free cores of agents on which a task fits, by host."""
    room = {}
    for agent in state["slaves"]:
        taken = held.get(agent["id"], Counter())
        free = {name: agent["resources"][name] - taken[name] for name in NEEDS}
        drained = "drain_info" in agent or agent.get("deactivated", False)
        if agent["active"] and not drained and all(free[n] >= NEEDS[n] - _SLACK for n in NEEDS):
            room[agent["hostname"]] = float(free["cpus"])
    return room
