"""The composition of a world, drawn from its seed."""

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

ROLES = ("a", "b", "c")
POLICIES: list[dict[str, Any]] = [
    {"name": "sdrf", "half_life": 30},
    {"name": "sdrf", "half_life": "2m"},
    {"name": "sdrf", "half_life": 3600},
    {"name": "sdrf", "half_life": 60, "form": "thesis"},
    {"name": "sdrf", "delta": 0.99, "ranking": "scan"},
    {"name": "drf"},
]


@dataclass
class Plan:
    """The composition of a world; unspecified parts are drawn from the seed."""

    seed: int
    seconds: float = 300.0
    """Seconds with faults."""
    healing: float = 150.0
    """Further seconds without faults."""
    masters: int = 3
    machines: int = 6
    interval: float = 1.0
    """Seconds between a master's ticks."""
    offer_timeout: float = 20.0
    frameworks: dict[str, int] = field(default_factory=dict)
    """How many of which character."""
    faults: dict[str, float] = field(default_factory=dict)
    """How often a minute each fault happens."""
    together: float = 0.0
    """The probability that a fault brings another fault at the same instant."""
    operators: dict[str, float] = field(default_factory=dict)
    """Probabilities that an action of operators sets a "quota", or makes a "reserve"."""
    mesos: tuple[int, int] = (1, 8)
    store: str = "sqlite"
    """Or "zookeeper"."""
    services: int = 1
    """Number of services; each has its own masters, and all share a ZooKeeper."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The service's configuration."""
    pace: float = 1.0
    """How many times as long people and tasks take as usual."""
    effort: bool = False
    """Whether to count the steps of each message."""
    clock_offset: float = 2.0
    """Seconds by which clocks are off at most in the beginning."""
    clock_drift: float = 1e-4
    """The most seconds that a clock gains or loses per second."""
    latency: tuple[float, float] = (0.0005, 0.01)
    """Seconds for a message in each direction: least and most."""


def drawn(seed: int) -> Plan:
    """Return an ordinary world of a seed."""
    chance = Random(f"plan {seed}")
    plan = Plan(
        seed,
        machines=chance.randrange(1, 8),
        interval=chance.choice([0.5, 1.0, 1.0, 2.0]),
        frameworks={
            "worker": chance.randrange(1, 5),
            "greedy": chance.randrange(3),
            "mute": chance.randrange(2),
            "waiter": chance.randrange(2),
            "refuser": chance.randrange(2),
            "liar": chance.randrange(2),
            "flapper": chance.randrange(3),
            "picky": chance.randrange(2),
            "hostile": chance.randrange(3),
            "stateful": chance.randrange(2),
        },
        faults={
            name: chance.choice([0.0, often])
            for name, often in {
                "kill service": 0.5,
                "stop service": 0.3,
                "break stream": 1.0,
                "vanish stream": 0.2,
                "fail over": 0.3,
                "jump clock": 0.3,
                "lose agent": 0.5,
                "disconnect agent": 1.0,
                "fill disk": 0.3,
                "slow disk": 0.3,
                "lying disk": 0.2,
                "upgrade service": 0.3,
                "lose zookeeper": 0.3,
                "silent zookeeper": 0.3,
                "lagging zookeeper": 1.0,
                "expire sessions": 0.5,
            }.items()
        },
        together=chance.choice([0.0, 0.5]),
        operators={
            "quota": chance.choice([0.0, 0.0, 0.05]),
            "reserve": chance.choice([0.0, 0.1]),
        },
        store=chance.choice(["sqlite", "sqlite", "zookeeper"]),
        mesos=chance.choice([(1, 8), (1, 9), (1, 11)]),
        settings={
            "policy": chance.choice(POLICIES),
            "users": {"forget_after": 1e9, "counts_for": math.inf},
            "offers": {"allocation": chance.choice(["event", "event", "batch"])},
        },
    )
    later_random = Random(f"plan {seed}, what came later")
    plan.faults["depose master"] = later_random.choice([0.0, 0.5])
    if plan.store == "zookeeper" and later_random.random() < 0.7:
        plan.services = 2
        plan.faults["lose host"] = later_random.choice([0.0, 0.3])
        plan.faults["fail over"] = max(plan.faults["fail over"], 0.3)
    if later_random.random() < 0.25:
        plan.settings["users"]["counts_for"] = 4.0
    return plan
