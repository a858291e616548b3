"""A repeated game: what users need in each stage, what they claim, and how the past counts."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from allocator.theory.divisible.content import Amount, FileModel, Name, Positive, validated

Vector: TypeAlias = tuple[Fraction, ...]
"""By resource, as fractions of what there is."""
Plan: TypeAlias = tuple[Vector, ...]
"""By stage."""


def _at_most_one(value: Fraction) -> Fraction:
    if value > 1:
        raise ValueError(f"{float(value)} is more than 1, which is all there is")
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
    """A user of a repeated game."""

    name: Name
    needs: Stages
    """θ_ir: by stage, what is of use to it; a resource that is absent: nothing of it."""
    claims: Stages | None = None
    """θ̂_ir: what it says; None: the truth."""
    weight: Positive = Fraction(1)


class Game(FileModel):
    """Users who share all resources, of each of which there is 1, in stage after stage."""

    users: Annotated[tuple[Player, ...], Field(min_length=1)]
    idle: Annotated[int, Field(ge=0, strict=True)] = 0
    """Users of weight 1 that never want anything; they count in n, so in what users may have."""
    delta: Discount = Fraction(1, 2)
    """δ: how much of a commitment is left after a stage (Eq. 6)."""
    patience: Part = Fraction(9, 10)
    """δ_i: what a stage later is worth (Eq. 3)."""
    alpha: Part = Fraction(0)
    """Part of its entitlement that a user is guaranteed, under dynamic-drf and dynamic-mmf."""
    lengths: tuple[Length, ...] = ()
    """How many times in a row each stage is played; empty: each stage once."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, times in Counter(user.name for user in self.users).items():
            if times > 1:
                raise ValueError(f"users: {times} have the name {name!r}; one may")
        stages = len(self.users[0].needs)
        for place, user in enumerate(self.users):
            for table in ("needs", "claims"):
                told = getattr(user, table)
                if told is not None and len(told) != stages:
                    raise ValueError(
                        f"users[{place}].{table}: {len(told)} stages, and {self.users[0].name!r} "
                        f"needs something in {stages}; all must have the same"
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
        """Number of stages; a stage that is played several times in a row counts once."""
        return len(self.users[0].needs)

    @property
    def times(self) -> tuple[int, ...]:
        """Return how many times in a row each stage is played."""
        return self.lengths or (1,) * self.stages

    @property
    def duration(self) -> int:
        """Return how many times a stage is played in the whole game."""
        return sum(self.times)

    @cached_property
    def entitlements(self) -> Vector:
        """e_i: what each user may have without owing anything."""
        total = sum((user.weight for user in self.users), Fraction(self.idle))
        return tuple(user.weight / total for user in self.users)

    @cached_property
    def truth(self) -> tuple[Plan, ...]:
        """The needs of each user, each time that a stage is played."""
        return tuple(self._plan(user.needs) for user in self.users)

    @cached_property
    def told(self) -> tuple[Plan, ...]:
        """The claims of each user, each time that a stage is played."""
        return tuple(self._plan(user.claims or user.needs) for user in self.users)

    def _plan(self, stages: Stages) -> Plan:
        return tuple(
            vector
            for stage, times in zip(stages, self.times, strict=True)
            for vector in (tuple(stage.get(r, Fraction(0)) for r in self.resources),) * times
        )


def read_game(content: Mapping[str, Any]) -> Game:
    """Make a game of what a game file holds.

    Raises:
        ValueError: something in it cannot be used; the message says where, what and why.
    """
    return validated(Game, content)


def file_of(game: Game) -> dict[str, Any]:
    """Return what a game file of this game holds, with numbers as near as TOML can write them."""
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
