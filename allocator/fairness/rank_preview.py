"""Where a user would stand in order if it held something else."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities


class RankPreview(NamedTuple):
    """Where a user stands in order at an instant, and would if it held something else."""

    rank: tuple[Rank, float]
    """With its blur; of equal ranks who got gifts less often comes first."""
    likeness: Hashable
    """Users of equal likeness rank alike where they hold alike."""
    rank_of: Callable[[Quantities], tuple[Rank, float]]
    """What the rank would be if the user held so much from now on. O(m)."""
