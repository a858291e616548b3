"""Checks a master's `/state` repeatedly for double allocations and starvation."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.frameworks import ENDED, LOST, NEEDS, Framework

STARVING = 30.0
"""Seconds without an offer after which a runnable framework starves, if the allocator answers."""
LOOK = 1.0
"""Seconds between two looks."""
_SLACK = 1e-6


@dataclass
class Watcher:
    """The findings of all observations."""

    guarantees: dict[str, float] = field(default_factory=dict)
    """Quota guarantees in cores, by role. Roles with a quota are not checked for starvation,
    because they may have reached their limit.
    """
    looks: int = 0
    most_running: int = 0
    wrong: list[str] = field(default_factory=list)
    hungry: dict[str, float] = field(default_factory=dict)
    """Seconds for which each framework has wanted available resources since its last offer."""
    longest: dict[str, float] = field(default_factory=dict)
    """The longest such wait, by habit."""

    def look(
        self, state: Mapping[str, Any], frameworks: Iterable[Framework], passed: float
    ) -> None:
        """Check the master's state some seconds after the last check.

        Args:
            state: The master's `/state`.
            frameworks: The active frameworks.
            passed: Seconds since the last check during which the allocator answered.
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
            available = sum(cores for host, cores in room.items() if framework.may_run_on(host))
            could = framework.habit not in self.guarantees and available > missing
            self._feed(framework.habit, passed, wanting=could and framework.wants)

    def offered(self, habit: str) -> None:
        """Record an offer to a framework."""
        self.hungry[habit] = 0.0

    def _feed(self, habit: str, passed: float, *, wanting: bool) -> None:
        self.hungry[habit] = self.hungry.get(habit, 0.0) + passed if wanting else 0.0
        self.longest[habit] = max(self.longest.get(habit, 0.0), self.hungry[habit])
        if self.hungry[habit] > STARVING:
            self.wrong.append(f"{habit} could run, and got no offer for {self.hungry[habit]:.0f} s")
            self.hungry[habit] = 0.0

    def _missing(self, state: Mapping[str, Any]) -> float:
        """Return the cores that may be kept free for roles with a quota guarantee."""
        has = {
            framework["name"]: framework["used_resources"]["cpus"]
            for framework in state["frameworks"]
        }
        size = max((agent["resources"]["cpus"] for agent in state["slaves"]), default=0.0)
        return float(
            sum(
                size + max(cores - has.get(role, 0.0), 0.0)  # whole agents are kept, for Mesos 1.8
                for role, cores in self.guarantees.items()
            )
        )


def _held(state: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Add up the resources in tasks and offers, by agent."""
    held: dict[str, Counter[str]] = {}
    for framework in state["frameworks"]:
        # Ended tasks are listed until acknowledged, and hold no resources.
        tasks = [task for task in framework["tasks"] if task["state"] not in ENDED | LOST]
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
