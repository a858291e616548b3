"""Input of the analysis of Dynamic DRF: users' demands in each epoch.

The analysis follows the paper "Incentives in Dominant Resource Fair Allocation under Dynamic
Demands".
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from allocator.complaints import require_one_spelling
from allocator.theory.divisible.content import Amount, FileModel, Name, Positive, validated


def _at_most_one(value: Fraction) -> Fraction:
    if value > 1:
        raise ValueError(f"{float(value)} is more than 1")
    return value


Part = Annotated[Amount, AfterValidator(_at_most_one)]
Ratios = Annotated[dict[Name, Part], Field(min_length=1)]


class ProfileUser(FileModel):
    """A user: its weight, and its resource ratios in epochs that do not define other ratios."""

    name: Name
    weight: Positive = Fraction(1)
    ratios: Ratios = {"resource": Fraction(1)}  # noqa: RUF012 - frozen, so the default is never changed
    """a_iq, from 0 to 1: amount of resource q that one unit of allocation needs."""


class Epoch(FileModel):
    """A period in which demands and capacity are constant."""

    capacity: Positive
    """Available amount, the same for each resource."""
    demands: dict[Name, Amount]
    """Each user's demand in units of allocation; 0 for an absent user."""
    ratios: dict[Name, Ratios] = {}  # noqa: RUF012 - frozen, so the default is never changed
    """Resource ratios by user, for users whose ratios differ in this epoch."""


class Profile(FileModel):
    """All users, and their demands in successive epochs."""

    alpha: Part = Fraction(0)
    """Fraction of its fair share that each user receives in every epoch, whatever came before."""
    users: Annotated[tuple[ProfileUser, ...], Field(min_length=1)]
    epochs: Annotated[tuple[Epoch, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, count in Counter(user.name for user in self.users).items():
            if count > 1:
                raise ValueError(f"users: {count} have the name {name!r}; names must be unique")
        tables = [(f"users[{i}].ratios", user.ratios) for i, user in enumerate(self.users)]
        for index, epoch in enumerate(self.epochs):
            tables += [
                (f"epochs[{index}].ratios.{name}", ratios) for name, ratios in epoch.ratios.items()
            ]
        require_one_spelling((place, name) for place, ratios in tables for name in ratios)
        known = {user.name for user in self.users}
        for index, epoch in enumerate(self.epochs):
            for table in ("demands", "ratios"):
                for name in getattr(epoch, table):
                    if name not in known:
                        raise ValueError(
                            f"epochs[{index}].{table}: user {name!r} is unknown; there are: "
                            f"{', '.join(sorted(known))}"
                        )
            for user in self.users:
                if not any(self.ratios(user, epoch).values()):
                    raise ValueError(
                        f"epochs[{index}]: {user.name!r} needs nothing of any resource; one of "
                        "its ratios must be more than 0"
                    )
        return self

    @staticmethod
    def ratios(user: ProfileUser, epoch: Epoch) -> dict[str, Fraction]:
        """Return a user's resource ratios in an epoch: the epoch's if given, else the user's.

        A ratio is the amount of a resource that one unit of allocation needs. Ratios of 0 are left
        out.
        """
        ratios = epoch.ratios.get(user.name, user.ratios)
        return {resource: ratio for resource, ratio in ratios.items() if ratio}

    def demands(self, user: ProfileUser) -> list[Fraction]:
        """Return a user's demand in each epoch."""
        return [epoch.demands.get(user.name, Fraction(0)) for epoch in self.epochs]


def read_profile(content: Mapping[str, Any]) -> Profile:
    """Build and validate a profile from the content of a profile file.

    Raises:
        ValueError: A value is invalid; the message names its key in the file, the value and the
            reason.
    """
    return validated(Profile, content)
