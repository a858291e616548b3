"""The random schedule of faults and changes in a chaos run, drawn from a seed."""

from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "service killed",
    "service frozen",
    "policy changed",
    "agent killed",
    "agent drained",
    "agent flaps",
    "master killed",
    "quota changed",
    "weight changed",
]
EVERY = 10.0
"""Seconds between events."""
POLICIES = (
    'name = "sdrf"\nhalf_life = "1m"',
    'name = "tsf"',
    'name = "sdrf"\nhalf_life = "20s"\nform = "thesis"',
    'name = "drf"',
)


@dataclass(frozen=True, slots=True)
class Happening:
    """A fault or a change of configuration."""

    at: float
    """Seconds from the beginning."""
    kind: Kind
    agent: int
    """The affected agent, for faults of agents."""
    role: str
    """The role whose quota or weight changes."""
    amount: int
    """Cores of a quota (0 removes the quota), or a weight minus one."""
    lasts: float
    """Seconds until a frozen or killed process continues."""
    policy: str
    """The policy of the restarted service."""


def drawn(seed: int, seconds: float, agents: int, roles: tuple[str, ...]) -> list[Happening]:
    """Return the events of a run: all kinds equally often, in random order."""
    random = Random(seed)
    script: list[Happening] = []
    deck: list[Kind] = []
    while (at := EVERY * (len(script) + 1)) < seconds:
        if not deck:
            deck = random.sample(get_args(Kind), len(get_args(Kind)))
        script.append(
            Happening(
                at,
                kind=deck.pop(),
                agent=random.randrange(agents),
                role=random.choice(roles),
                amount=random.randrange(5),
                lasts=random.uniform(1.0, 6.0),
                policy=random.choice(POLICIES),
            )
        )
    return script
