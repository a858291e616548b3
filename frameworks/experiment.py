"""Experiments as data: who wants what, when, on which cluster, and what should come of it."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from allocator.fairness import policies
from allocator.fairness.quantities import Quantities

SETTLED = 60.0
"""Seconds at the end of a phase over which CPUs are averaged."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cluster(_Part):
    """`[cluster]`: equal agents."""

    agents: PositiveInt
    resources: str
    """Of each agent, in Mesos's flag syntax."""

    @property
    def capacity(self) -> Quantities:
        """The total of all agents."""
        each = Quantities.parse(self.resources)
        return Quantities({name: self.agents * amount for name, amount in each.items()})

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.capacity
        return self


class User(_Part):
    """`[[users]]`: a user, and the tasks that its one framework launches."""

    name: Annotated[str, Field(min_length=1)]
    start: Annotated[float, Field(ge=0)] = 0.0
    """Seconds."""
    weight: PositiveFloat = 1.0
    commitment: Annotated[float, Field(ge=0, le=1)] = 0.0


class Tasks(_Part):
    """`[tasks]`: what each task is like."""

    demand: str
    """In Mesos's flag syntax."""
    run_time: PositiveFloat
    """Mean, in seconds."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Run times vary evenly by this fraction to either side."""

    @property
    def quantities(self) -> Quantities:
        """The demand of one task."""
        return Quantities.parse(self.demand)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


class PhasesAgree(_Part):
    """Each user's mean CPUs at the end of each phase are those of the divisible optimum."""

    kind: Literal["phases-agree"]
    within_cpus: PositiveFloat


class Utilization(_Part):
    """More than this fraction of the CPUs is in use once the first user has ramped up."""

    kind: Literal["utilization"]
    above: Annotated[float, Field(gt=0, lt=1)]


class CommitmentAt(_Part):
    """A user's commitment at an instant."""

    kind: Literal["commitment-at"]
    user: str
    at: float
    value: float
    within: PositiveFloat


class LargestLead(_Part):
    """How many more CPUs a user holds than the others, when it leads most in a phase."""

    kind: Literal["largest-lead"]
    user: str
    over: tuple[str, ...]
    """Compared with the one of these that then holds most."""
    phase: PositiveInt
    """From 1."""
    at_least: float | None = None
    at_most: float | None = None


Claim = Annotated[
    PhasesAgree | Utilization | CommitmentAt | LargestLead, Field(discriminator="kind")
]


class Phase(_Part):
    """From one user's start to the next one's."""

    start: float
    end: float
    users: tuple[str, ...]
    """Those that have started."""


class Experiment(_Part):
    """One experiment. Times are in the master's seconds from the start."""

    name: str
    title: str
    figure: str
    """What it reproduces."""
    shows: str
    duration: PositiveFloat
    cluster: Cluster
    policy: dict[str, Any]
    """A policy's name and parameters, as in the service's configuration."""
    tasks: Tasks
    users: Annotated[tuple[User, ...], Field(min_length=1)]
    claims: tuple[Claim, ...] = ()

    @property
    def phases(self) -> list[Phase]:
        """Return the stretches of time in which the same users are there."""
        starts = sorted({user.start for user in self.users})
        return [
            Phase(
                start=start,
                end=end,
                users=tuple(user.name for user in self.users if user.start <= start),
            )
            for start, end in pairwise([*starts, self.duration])
        ]

    def create_policy(self) -> policies.Policy:
        """Make the policy."""
        parameters = {key: value for key, value in self.policy.items() if key != "name"}
        return policies.create(str(self.policy.get("name")), parameters)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [user.name for user in self.users]
        if len(set(names)) < len(names):
            raise ValueError("two users have the same name")
        if not self.cluster.capacity.contains(self.tasks.quantities):
            raise ValueError(f"a task ({self.tasks.demand}) is larger than the cluster")
        if any(user.start >= self.duration for user in self.users):
            raise ValueError("a user starts after the end")
        for claim in self.claims:
            said = [getattr(claim, "user", names[0]), *getattr(claim, "over", ())]
            unknown = [name for name in said if name not in names]
            if unknown:
                raise ValueError(f"claim {claim.kind}: no user is named {unknown[0]!r}")
            if isinstance(claim, LargestLead) and claim.phase > len(self.phases):
                raise ValueError(f"claim {claim.kind}: there is no phase {claim.phase}")
        self.create_policy()
        return self


def names() -> list[str]:
    """Return the names of all experiments that come with Longshare."""
    folder = files("frameworks") / "experiments"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def load(name: str) -> Experiment:
    """Return an experiment by its name.

    Raises:
        KeyError: there is none of this name.
    """
    if name not in names():
        raise KeyError(f"no experiment is named {name!r}; there are: {', '.join(names())}")
    text = (files("frameworks") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Experiment:
    """Read an experiment from TOML.

    Raises:
        ValueError: the text is not TOML or says something that cannot be.
    """
    return Experiment.model_validate({"name": name, **tomllib.loads(text)})


def load_all() -> Iterator[Experiment]:
    """Go through all experiments that come with Longshare."""
    return map(load, names())
