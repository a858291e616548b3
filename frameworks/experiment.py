"""Experiments as data: who wants what, when, on which cluster, and what should come of it."""

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from allocator import plugins
from allocator.fairness.machines import Machines
from allocator.fairness.policies import Policy
from allocator.fairness.quantities import Quantities

SETTLED = 60.0
"""Seconds at the end of a phase over which CPUs are averaged."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Agents(_Part):
    """`[[cluster.agents]]`: some equal agents."""

    count: PositiveInt
    resources: str
    """Of each, in Mesos's flag syntax."""

    @property
    def quantities(self) -> Quantities:
        """What each has."""
        return Quantities.parse(self.resources)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


class ClusterSpec(_Part):
    """`[cluster]`: agents, numbered from 1 through all groups."""

    agents: Annotated[tuple[Agents, ...], Field(min_length=1)]

    @property
    def size(self) -> int:
        """The number of agents."""
        return sum(group.count for group in self.agents)

    @property
    def hosts(self) -> list[tuple[str, Agents]]:
        """Return each agent's host name, as an embedded Mesos gives it, and what it is like."""
        every = [group for group in self.agents for _ in range(group.count)]
        width = len(str(len(every)))
        return [(f"agent-{number:0{width}}", group) for number, group in enumerate(every, 1)]

    @property
    def capacity(self) -> Quantities:
        """The total of all agents."""
        return sum((group.quantities for _, group in self.hosts), start=Quantities())

    @property
    def cores(self) -> float:
        """The CPUs of all agents."""
        return self.capacity["cpus"] / 1000

    def monopoly(self, demand: Quantities) -> int:
        """Return how many whole tasks fit: h of the TSF paper."""
        machines: Machines[str] = Machines()
        for name, group in self.hosts:
            machines.put(name, group.quantities)
        return machines.monopoly(demand)


class TaskSpec(_Part):
    """`[tasks]`: what each task is like."""

    demand: str
    """In Mesos's flag syntax."""
    run_time: PositiveFloat
    """Mean, in seconds."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Run times vary evenly by this fraction to either side."""
    count: PositiveInt | None = None
    """How many a user has; None: without end."""

    @property
    def quantities(self) -> Quantities:
        """The demand of one task."""
        return Quantities.parse(self.demand)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


_NODES = re.compile(r"\d+(-\d+)?(,\s*\d+(-\d+)?)*")
Nodes = Annotated[str, Field(pattern=_NODES)]
"""Numbers of agents, as in `1-10, 26-35`."""


class UserSpec(_Part):
    """`[[users]]`: a user, and the tasks that its one framework launches."""

    name: Annotated[str, Field(min_length=1)]
    start: Annotated[float, Field(ge=0)] = 0.0
    """Seconds."""
    weight: PositiveFloat = 1.0
    commitment: Annotated[float, Field(ge=0, le=1)] = 0.0
    nodes: Nodes | None = None
    """Where alone its tasks may run: its whitelist."""
    tasks: TaskSpec | None = None
    """What its tasks are like, if not as all others'."""


class Variant(_Part):
    """`[[variants]]`: the same experiment with a difference."""

    name: Annotated[str, Field(min_length=1)]
    without: tuple[str, ...] = ()
    """Users who do not take part."""
    nodes: dict[str, Nodes] = {}
    """Other whitelists, by user."""
    hold_for: Literal["off", "one", "all"] = "off"
    """For how many jobs an agent is held back whose next task fits nowhere."""


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


class TaskShares(_Part):
    """What parts of the tasks they could run alone users run on average."""

    kind: Literal["task-shares"]
    shares: dict[str, PositiveFloat]
    """By user."""
    start: float
    end: float
    within_tasks: PositiveFloat


class NoLater(_Part):
    """Users finish no later in one variant than in another, in the mean over seeds."""

    kind: Literal["no-later"]
    users: tuple[str, ...]
    variant: str
    than: str
    within_noise: bool = False
    """Whether two standard errors of the difference are allowed for."""


Claim = Annotated[
    PhasesAgree | Utilization | CommitmentAt | LargestLead | TaskShares | NoLater,
    Field(discriminator="kind"),
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
    cluster: ClusterSpec
    policy: dict[str, Any]
    """A policy's name and parameters, as in the service's configuration."""
    hold_for: Literal["off", "one", "all"] = "off"
    """`offers.hold_for` of the service's configuration."""
    tasks: TaskSpec | None = None
    """What everybody's tasks are like who says nothing else."""
    users: Annotated[tuple[UserSpec, ...], Field(min_length=1)]
    variants: tuple[Variant, ...] = ()
    """Compared with each other by when users have finished."""
    seeds: PositiveInt = 3
    """How often each variant is run, each time with other run times."""
    claims: tuple[Claim, ...] = ()

    def tasks_of(self, user: UserSpec) -> TaskSpec:
        """Return what a user's tasks are like."""
        tasks = user.tasks or self.tasks
        assert tasks is not None
        return tasks

    @property
    def finite(self) -> bool:
        """Whether everybody has a number of tasks, so that it may end before its time."""
        return all(self.tasks_of(user).count is not None for user in self.users)

    @property
    def counts_tasks(self) -> bool:
        """Whether its policy goes by tasks, so that demands must be known."""
        return self.create_policy().counts_tasks

    @property
    def divisible(self) -> bool:
        """Whether there is nothing that the divisible optimum over time knows not of."""
        return self.policy["name"] in {"drf", "sdrf"} and all(
            user.nodes is None and user.tasks is None for user in self.users
        )

    def whitelist(self, user: UserSpec) -> list[str]:
        """Return the hosts on which alone a user's tasks may run; empty: on all."""
        if user.nodes is None:
            return []
        hosts = [name for name, _ in self.cluster.hosts]
        return [hosts[number - 1] for number in _numbers(user.nodes)]

    def under(self, policy: dict[str, Any]) -> "Experiment":
        """Return the same with another policy; what is claimed is of the one it has.

        Args:
            policy: A name and parameters.

        Raises:
            ValueError: there is no such policy or parameter.
        """
        changed = self.model_copy(update={"policy": policy, "claims": ()})
        changed.create_policy()
        return changed

    def variant(self, variant: Variant) -> "Experiment":
        """Return a variant as an experiment of its own, without claims."""
        return self.model_copy(
            update={
                "name": f"{self.name}: {variant.name}",
                "users": tuple(
                    user.model_copy(update={"nodes": variant.nodes.get(user.name, user.nodes)})
                    for user in self.users
                    if user.name not in variant.without
                ),
                "hold_for": variant.hold_for,
                "variants": (),
                "claims": (),
            }
        )

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

    def create_policy(self) -> Policy:
        """Make the policy."""
        parameters = {key: value for key, value in self.policy.items() if key != "name"}
        return plugins.create(str(self.policy.get("name")), parameters)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [user.name for user in self.users]
        if len(set(names)) < len(names):
            raise ValueError("two users have the same name")
        self.create_policy()
        for user in self.users:
            self._check_user(user)
        for variant in self.variants:
            _require(f"variant {variant.name}", [*variant.without, *variant.nodes], names)
            for nodes in variant.nodes.values():
                self._check_nodes(variant.name, nodes)
        if self.variants and not self.finite:
            raise ValueError("variants are compared by when users finish, so tasks need a count")
        for claim in self.claims:
            self._check_claim(claim, names)
        return self

    def _check_user(self, user: UserSpec) -> None:
        if user.tasks is None and self.tasks is None:
            raise ValueError(f"user {user.name}: nothing says what its tasks are like")
        demand = self.tasks_of(user).quantities
        if not any(group.quantities.contains(demand) for group in self.cluster.agents):
            raise ValueError(f"user {user.name}: a task ({demand}) is larger than any agent")
        if user.start >= self.duration:
            raise ValueError(f"user {user.name} starts after the end")
        if user.nodes is not None:
            self._check_nodes(user.name, user.nodes)

    def _check_nodes(self, whose: str, nodes: str) -> None:
        wrong = [number for number in _numbers(nodes) if not 1 <= number <= self.cluster.size]
        if wrong:
            raise ValueError(f"{whose}: there is no agent {wrong[0]}")

    def _check_claim(self, claim: "Claim", names: list[str]) -> None:
        said = [getattr(claim, "user", names[0]), *getattr(claim, "over", ())]
        said += [*getattr(claim, "shares", ()), *getattr(claim, "users", ())]
        _require(f"claim {claim.kind}", said, names)
        if isinstance(claim, LargestLead) and claim.phase > len(self.phases):
            raise ValueError(f"claim {claim.kind}: there is no phase {claim.phase}")
        if isinstance(claim, PhasesAgree) and not self.divisible:
            raise ValueError(f"claim {claim.kind}: users' tasks differ, or the policy counts them")
        if isinstance(claim, NoLater):
            known = [variant.name for variant in self.variants]
            _require(f"claim {claim.kind}", [claim.variant, claim.than], known, "variant")


def _require(where: str, said: list[str], known: list[str], what: str = "user") -> None:
    unknown = [name for name in said if name not in known]
    if unknown:
        raise ValueError(f"{where}: no {what} is named {unknown[0]!r}")


def _numbers(nodes: str) -> list[int]:
    """Read `1-3, 7` as 1, 2, 3, 7."""
    numbers: list[int] = []
    for part in nodes.split(","):
        first, _, last = part.strip().partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


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
