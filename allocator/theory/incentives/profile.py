"""Demands of users over epochs: the game that the incentives paper studies, validated."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from allocator.theory.divisible.content import Amount, FileModel, Name, Positive, validated


def _at_most_one(value: Fraction) -> Fraction:
    if value > 1:
        raise ValueError(f"{float(value)} is more than 1")
    return value


Part = Annotated[Amount, AfterValidator(_at_most_one)]
Ratios = Annotated[dict[Name, Part], Field(min_length=1)]


class ProfileUser(FileModel):
    """A user, and in which proportions it needs resources unless an epoch says otherwise."""

    name: Name
    weight: Positive = Fraction(1)
    ratios: Ratios = {"resource": Fraction(1)}  # noqa: RUF012 - frozen, and nobody changes it
    """a_iq in 0 … 1: of resource q for each unit of allocation."""


class Epoch(FileModel):
    """A span in which demands and resources stay what they are."""

    capacity: Positive
    """What there is of each resource."""
    demands: dict[Name, Amount]
    """Allocation that is of use to a user; absent: 0."""
    ratios: dict[Name, Ratios] = {}  # noqa: RUF012 - frozen, and nobody changes it
    """Of users whose proportions differ in this epoch."""


class Profile(FileModel):
    """Users and epochs."""

    alpha: Part = Fraction(0)
    """Part of its fair share that a user is guaranteed in each epoch, whatever it had before."""
    users: Annotated[tuple[ProfileUser, ...], Field(min_length=1)]
    epochs: Annotated[tuple[Epoch, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, times in Counter(user.name for user in self.users).items():
            if times > 1:
                raise ValueError(f"users: {times} have the name {name!r}; one may")
        known = {user.name for user in self.users}
        for place, epoch in enumerate(self.epochs):
            for table in ("demands", "ratios"):
                for name in getattr(epoch, table):
                    if name not in known:
                        raise ValueError(
                            f"epochs[{place}].{table}: there is no user {name!r}; there are: "
                            f"{', '.join(sorted(known))}"
                        )
            for user in self.users:
                if not any(self.ratios(user, epoch).values()):
                    raise ValueError(
                        f"epochs[{place}]: {user.name!r} needs nothing of any resource; one of "
                        "its ratios must be more than 0"
                    )
        return self

    @staticmethod
    def ratios(user: ProfileUser, epoch: Epoch) -> dict[str, Fraction]:
        """Return the proportions in which a user needs resources in an epoch, those above 0."""
        found = epoch.ratios.get(user.name, user.ratios)
        return {resource: ratio for resource, ratio in found.items() if ratio}

    def demands(self, user: ProfileUser) -> list[Fraction]:
        """Return a user's demand in each epoch."""
        return [epoch.demands.get(user.name, Fraction(0)) for epoch in self.epochs]


def read_profile(content: Mapping[str, Any]) -> Profile:
    """Make a profile of what a profile file holds.

    Raises:
        ValueError: something in it cannot be used; the message says where, what and why.
    """
    return validated(Profile, content)
