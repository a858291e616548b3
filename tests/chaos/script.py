"""What happens in a while of chaos, and when: drawn from a seed."""

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
"""Seconds from one happening to the next."""
POLICIES = (
    'name = "sdrf"\nhalf_life = "1m"',
    'name = "tsf"',
    'name = "sdrf"\nhalf_life = "20s"\nform = "thesis"',
    'name = "drf"',
)


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that goes wrong, or is changed."""

    at: float
    """Seconds from the beginning."""
    kind: Kind
    agent: int
    """Whom it befalls, if it befalls an agent."""
    role: str
    """Whose quota or weight is changed."""
    amount: int
    """Cores of a quota, 0: it is removed; or a weight less one."""
    lasts: float
    """Seconds until what was frozen or killed goes on."""
    policy: str
    """What a service that is restarted is to follow."""


def drawn(seed: int, seconds: float, agents: int, roles: tuple[str, ...]) -> list[Happening]:
    """Return what happens: each kind comes as often as any other, in an order of its own."""
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
