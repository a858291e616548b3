"""Study of how much a liar can gain, depending on δ and the numbers of users and resources.

δ is the fraction of a commitment that remains after a stage.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.complaints import alternatives
from allocator.theory.games.drawing import GameLimits
from allocator.theory.games.policies import POLICIES
from allocator.theory.games.search import Effort, WorstLie, climb


@dataclass(frozen=True, slots=True)
class GainCell:
    """One cell of the study: a policy, and the kind of games to search for the largest gain.

    All games of a cell have the same δ and the same numbers of users and resources. Three users are
    active, and there are three stages.
    """

    policy: str
    resources: int
    members: int
    """Number of users n, including idle users."""
    delta: Fraction
    longest: int
    """Maximum number of times that a stage may be played in a row."""


_STAGES = 3
_PLAYERS = 3


def cells(
    policies: Sequence[str],
    resources: Sequence[int],
    members: Sequence[int],
    deltas: Sequence[Fraction],
    longest: int,
) -> list[GainCell]:
    """Return the cells of all combinations, in the order in which `gains` searches them.

    Args:
        policies: Names of policies.
        resources: Numbers of resources.
        members: Numbers of users, including idle users.
        deltas: Decay factors δ: fractions of a commitment that remain after a stage.
        longest: Maximum number of times that a stage may be played in a row.

    Raises:
        ValueError: A number of members is less than the number of players, or a policy is unknown.
    """
    for n in members:
        if n < _PLAYERS:
            raise ValueError(f"{n} members are fewer than the {_PLAYERS} who play")
    for name in policies:
        if name not in POLICIES:
            raise ValueError(f"policy {name!r} has no games here{alternatives(name, POLICIES)}")
    return [
        GainCell(p, m, n, d, longest)
        for p in policies
        for m in resources
        for n in members
        for d in deltas
    ]


def gains(
    requested: Sequence[GainCell], effort: Effort, watch: Callable[[int, int], None]
) -> Iterator[tuple[GainCell, WorstLie]]:
    """Search each cell for the game with the largest gain, and yield the cell with this game.

    Args:
        requested: The cells to search.
        effort: Number of steps and restarts of the search in each cell.
        watch: Progress callback: receives the number of finished cells and the number of all cells.
    """
    for done, cell in enumerate(requested):
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
        watch(done + 1, len(requested))
