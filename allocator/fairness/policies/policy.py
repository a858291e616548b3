"""What every policy has to answer."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from allocator.fairness.account import Account
from allocator.fairness.ranking import Ranking

Id = TypeVar("Id", bound=Hashable)


class Policy(BaseModel, ABC):
    """How users are ranked. The fields of a policy are its validated parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]

    @cached_property
    def tau(self) -> float | None:
        """Time constant of commitments in seconds; None: the policy has no memory."""
        return None

    @abstractmethod
    def new_ranking(self, phase: float) -> Ranking[Any, Any]:
        """Return an empty ranking that stands at a phase."""

    @abstractmethod
    def attribute(self, account: Account, base: float, phase: float) -> Any:  # noqa: ANN401 - its own
        """Return what the ranking orders a settled and rated account by.

        Args:
            account: The user's account.
            base: Instant at which phases begin, in seconds.
            phase: The present phase.
        """

    @abstractmethod
    def priority(self, account: Account, commitments: dict[str, float]) -> float:
        """Return the priority value at an instant; the lowest is served first.

        Args:
            account: The user's account.
            commitments: Those of the instant, by resource.
        """
