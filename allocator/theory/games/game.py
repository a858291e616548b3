"""Definition of a repeated game: the amounts that users need and claim in each stage."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from allocator.complaints import require_one_spelling
from allocator.theory.divisible.content import Amount, FileModel, Name, Positive, validated

Vector: TypeAlias = tuple[Fraction, ...]
"""Amount of each resource, as a fraction of its capacity."""
Plan: TypeAlias = tuple[Vector, ...]
"""A user's needs or claims: one vector for each stage played."""


def _at_most_one(value: Fraction) -> Fraction:
    if value > 1:
        raise ValueError(f"{float(value)} is more than 1, the whole capacity")
    return value


def _below_one(value: Fraction) -> Fraction:
    if value >= 1:
        raise ValueError(f"{float(value)} is not less than 1")
    return value


Part = Annotated[Amount, AfterValidator(_at_most_one)]
Discount = Annotated[Amount, AfterValidator(_below_one)]
Stages = Annotated[tuple[dict[Name, Part], ...], Field(min_length=1)]
Length = Annotated[int, Field(ge=1, le=10_000, strict=True)]


class Player(FileModel):
    """A user of a repeated game, with its true needs and its claims."""

    name: Name
    needs: Stages
    """θ_ir: amounts that are useful to the user, by stage and resource.

    A missing resource means 0.
    """
    claims: Stages | None = None
    """θ̂_ir: amounts that the user claims, by stage and resource.

    None: the user tells the truth.
    """
    weight: Positive = Fraction(1)


class Game(FileModel):
    """A repeated game: users share the same resources in a sequence of stages.

    The capacity of each resource is 1. In each stage, a user has needs and claims.
    """

    users: Annotated[tuple[Player, ...], Field(min_length=1)]
    idle: Annotated[int, Field(ge=0, strict=True)] = 0
    """Number of further users, of weight 1, that never need anything.

    Idle users count in n and so lower all users' entitlements.
    """
    delta: Discount = Fraction(1, 2)
    """δ: fraction of a commitment that remains after a stage (Eq. 6)."""
    patience: Part = Fraction(9, 10)
    """δ_i: value of an allocation in the next stage, relative to the present stage (Eq. 3)."""
    alpha: Part = Fraction(0)
    """Fraction of its entitlement that each user is guaranteed (dynamic-drf, dynamic-mmf)."""
    lengths: tuple[Length, ...] = ()
    """How often each stage is played in a row; empty: each stage is played once."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, count in Counter(user.name for user in self.users).items():
            if count > 1:
                raise ValueError(f"users: {count} have the name {name!r}; names must be unique")
        stages = len(self.users[0].needs)
        for index, user in enumerate(self.users):
            for table in ("needs", "claims"):
                plan = getattr(user, table)
                if plan is not None and len(plan) != stages:
                    raise ValueError(
                        f"users[{index}].{table}: {len(plan)} stages, and {self.users[0].name!r} "
                        f"needs something in {stages}; all must have the same"
                    )
        require_one_spelling(
            (f"users[{index}].{table}[{stage}]", name)
            for index, user in enumerate(self.users)
            for table in ("needs", "claims")
            for stage, amounts in enumerate(getattr(user, table) or ())
            for name in amounts
        )
        if self.lengths and len(self.lengths) != stages:
            raise ValueError(
                f"lengths: {len(self.lengths)} numbers, and {self.users[0].name!r} needs something "
                f"in {stages} stages; give one length for each stage"
            )
        return self

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of all resources, in the order in which users name them."""
        return tuple(
            dict.fromkeys(
                name
                for user in self.users
                for stage in (*user.needs, *(user.claims or ()))
                for name in stage
            )
        )

    @property
    def stages(self) -> int:
        """Number of different stages; repetitions do not count."""
        return len(self.users[0].needs)

    @property
    def times(self) -> tuple[int, ...]:
        """Number of times that each stage is played in a row, by stage."""
        return self.lengths or (1,) * self.stages

    @property
    def duration(self) -> int:
        """Total number of stages played in the game, repetitions included."""
        return sum(self.times)

    @cached_property
    def entitlements(self) -> Vector:
        """e_i: by user, the fraction of each resource to which the user is entitled."""
        total = sum((user.weight for user in self.users), Fraction(self.idle))
        return tuple(user.weight / total for user in self.users)

    @cached_property
    def truth(self) -> tuple[Plan, ...]:
        """For each user, its true needs in every stage played (repetitions included)."""
        return tuple(self._plan(user.needs) for user in self.users)

    @cached_property
    def claimed(self) -> tuple[Plan, ...]:
        """For each user, its claims in every stage played (repetitions included).

        The claims of a truthful user are its needs.
        """
        return tuple(self._plan(user.claims or user.needs) for user in self.users)

    def _plan(self, stages: Stages) -> Plan:
        return tuple(
            vector
            for stage, repetitions in zip(stages, self.times, strict=True)
            for vector in (tuple(stage.get(r, Fraction(0)) for r in self.resources),) * repetitions
        )


def read_game(content: Mapping[str, Any]) -> Game:
    """Build and validate a game from the content of a game file.

    Raises:
        ValueError: A value is invalid; the message names its key in the file, the value and the
            reason.
    """
    return validated(Game, content)


def file_of(game: Game) -> dict[str, Any]:
    """Convert a game to the content of a game file. Fractions become floating-point numbers."""
    content: dict[str, Any] = {
        "idle": game.idle,
        "delta": float(game.delta),
        "patience": float(game.patience),
    }
    if game.alpha:
        content["alpha"] = float(game.alpha)
    if game.duration > game.stages:
        content["lengths"] = list(game.lengths)
    content["users"] = [
        {
            "name": user.name,
            **({} if user.weight == 1 else {"weight": float(user.weight)}),
            "needs": [_floats(stage) for stage in user.needs],
            **({"claims": [_floats(s) for s in user.claims]} if user.claims else {}),
        }
        for user in game.users
    ]
    return content


def _floats(stage: Mapping[str, Fraction]) -> dict[str, float]:
    return {name: float(amount) for name, amount in stage.items() if amount}
