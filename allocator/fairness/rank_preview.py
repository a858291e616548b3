"""Rank previews: the rank that a user would have with another allocation.

A rank is here the sort key of a priority (`Rank`), not a place in the order.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from allocator.fairness.priorities import Rank
from allocator.fairness.quantities import Quantities


class RankPreview(NamedTuple):
    """A user's present rank, and a function for its rank with another allocation.

    An allocation cycle uses the functions to compute the order after hypothetical allocations.
    """

    rank: tuple[Rank, float]
    """The present rank and its tolerance. Equal ranks are ordered by allocation count."""
    likeness: Hashable
    """Key of the user: users with equal keys get equal ranks for equal allocations."""
    rank_of: Callable[[Quantities], tuple[Rank, float]]
    """Function of an allocation: returns the user's rank with this allocation, and its tolerance.
    O(m) in m resources."""
