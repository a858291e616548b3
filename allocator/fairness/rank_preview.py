"""Rank previews: the rank that a user would have with another allocation.

A rank is here the sort key of a priority (`Rank`), not a place in the order.
"""

from collections.abc import Callable, Hashable

from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities


class RankPreview:
    """A user's present rank, and a function for its rank with another allocation.

    An allocation cycle uses the functions to compute the order after hypothetical allocations.
    """

    __slots__ = ("likeness", "rank", "rank_of")

    def __init__(
        self,
        rank: tuple[Rank, float],
        likeness: Hashable,
        rank_of: Callable[[Quantities], tuple[Rank, float]],
    ) -> None:
        self.rank = rank
        """The present rank and its tolerance. Equal ranks are ordered by allocation count."""
        self.likeness = likeness
        """Key of the user: users with equal keys get equal ranks for equal allocations."""
        self.rank_of = rank_of
        """Function of an allocation: returns the user's rank with this allocation, and its
        tolerance. O(m) in m resources."""
