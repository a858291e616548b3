"""How much a liar can gain, by how long a policy remembers, how many share, and what they share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.games.drawing import GameLimits
from allocator.theory.games.policies import POLICIES
from allocator.theory.games.search import Climbed, Effort, climb


@dataclass(frozen=True, slots=True)
class GainCell:
    """A search: games of three users and three stages, each played at most `longest` times."""

    policy: str
    resources: int
    members: int
    """n: with those that never want anything."""
    delta: Fraction
    longest: int
    """How many times in a row a stage may be played."""


_STAGES = 3
_PLAYERS = 3


def cells(
    policies: Sequence[str],
    resources: Sequence[int],
    members: Sequence[int],
    deltas: Sequence[Fraction],
    longest: int,
) -> list[GainCell]:
    """Return all combinations, in the order in which they are searched.

    Raises:
        ValueError: there are fewer members than players, or no such policy.
    """
    for n in members:
        if n < _PLAYERS:
            raise ValueError(f"{n} members are fewer than the {_PLAYERS} who play")
    for name in policies:
        if name not in POLICIES:
            raise ValueError(f"no games of {name!r} are known; there are: {', '.join(POLICIES)}")
    return [
        GainCell(p, m, n, d, longest)
        for p in policies
        for m in resources
        for n in members
        for d in deltas
    ]


def gains(
    asked: Sequence[GainCell], effort: Effort, watch: Callable[[int, int], None]
) -> Iterator[tuple[GainCell, Climbed]]:
    """Yield each cell with the worst game found; `watch` is told how many cells are done."""
    for done, cell in enumerate(asked):
        yield (
            cell,
            climb(
                POLICIES[cell.policy],
                effort,
                GameLimits(
                    resources=cell.resources,
                    users=_PLAYERS,
                    stages=_STAGES,
                    idle=cell.members - _PLAYERS,
                    delta=cell.delta,
                    longest=cell.longest,
                ),
            ),
        )
        watch(done + 1, len(asked))
