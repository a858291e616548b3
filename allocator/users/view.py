"""Read-only view of the users: standings, ranks, weights, and the levels of the tree."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from allocator.fairness.pool import Pool
from allocator.fairness.standing import Standing
from allocator.users.tree import UserTree
from allocator.users.weights import Weights


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """One step on the path from the top of the user tree to a user.

    A step consists of a pool, and the member of this pool through which the path leads.
    """

    pool: Pool[str]
    """The pool of this level."""
    member: str
    """The user, or the user above it, that is a member of the pool."""


class UserView(ABC):
    """Answers questions about the users of a scheduler adapter, without changing the users."""

    @property
    @abstractmethod
    def _users(self) -> UserTree[Any]:
        """The present users. An adapter may replace the tree, for example with a snapshot."""

    @property
    def pool(self) -> Pool[str]:
        """The pool of the top-level users, which ranks them by allocations and commitments."""
        return self._users.pool

    def standings(self) -> list[Standing[str]]:
        """Return the standings of all users: rank, allocation, commitments and more.

        Users are sorted by priority within each level of the tree.
        """
        return self._users.standings()

    def users(self) -> list[str]:
        """Return the names of all users and virtual leaves, top-level users first."""
        return self._users.names()

    def standing(self, user: str) -> Standing[str] | None:
        """Return a user's rank, allocation and commitments; None if the user is not known.

        Costs O(resources).
        """
        return self._users.standing(user)

    def twin(self, user: str) -> Pool[str] | None:
        """Return a copy of the pool in which a user competes with its siblings.

        Callers allocate resources in the copy to predict the effect on the order of users. The
        result is None if the user is not known. Costs O(users of the pool).
        """
        return self._users.twin(user)

    def path(self, user: str) -> list[TreeLevel]:
        """Return the levels at which a user competes, top first; empty if the user is not known.

        At each level, the user or one of its ancestors competes with its siblings in one pool. The
        user is served next if it or its ancestor is first at every level.
        """
        return [TreeLevel(pool, member) for pool, member in self._users.path(user)]

    def ranks(self) -> dict[str, int]:
        """Return each active user's rank among its active siblings in the tree.

        Ranks begin at 1 in each pool of siblings.
        """
        return {user: rank for pool in self._users.pools() for rank, user in enumerate(pool, 1)}

    @property
    def weights(self) -> Weights:
        """The users' weights, and for each weight its source, such as an operator."""
        return self._users.weights
