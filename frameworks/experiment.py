"""Experiments as data: users, tasks, cluster, and the claims to verify."""

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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Agents(_Section):
    """`[[cluster.agents]]`: a group of identical agents."""

    count: PositiveInt
    resources: str
    """Resources of each agent, in Mesos's flag syntax."""

    @property
    def quantities(self) -> Quantities:
        """Resources of each agent."""
        return Quantities.parse(self.resources)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


class ClusterSpec(_Section):
    """`[cluster]`: the agents, numbered from 1 across all groups."""

    agents: Annotated[tuple[Agents, ...], Field(min_length=1)]

    @property
    def size(self) -> int:
        """Number of agents."""
        return sum(group.count for group in self.agents)

    @property
    def hosts(self) -> list[tuple[str, Agents]]:
        """Host name and group of each agent; the names are those of an embedded Mesos."""
        groups = [group for group in self.agents for _ in range(group.count)]
        width = len(str(len(groups)))
        return [(f"agent-{number:0{width}}", group) for number, group in enumerate(groups, 1)]

    @property
    def capacity(self) -> Quantities:
        """Total resources of all agents."""
        return sum((group.quantities for _, group in self.hosts), start=Quantities())

    @property
    def cores(self) -> float:
        """Total CPUs of all agents."""
        return self.capacity["cpus"] / 1000

    def monopoly(self, demand: Quantities) -> int:
        """Return the number of whole tasks that fit into the cluster: h of the TSF paper."""
        machines: Machines[str] = Machines()
        for name, group in self.hosts:
            machines.put(name, group.quantities)
        return machines.monopoly(demand)


class TaskSpec(_Section):
    """`[tasks]`: a description of each task."""

    demand: str
    """Resources of one task, in Mesos's flag syntax."""
    run_time: PositiveFloat
    """Mean run time in seconds."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Run times are uniformly distributed around the mean, up to this fraction below and above."""
    count: PositiveInt | None = None
    """Number of tasks of a user; None sets no limit."""

    @property
    def quantities(self) -> Quantities:
        """Resources of one task."""
        return Quantities.parse(self.demand)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


_NODES = re.compile(r"\d+(-\d+)?(,\s*\d+(-\d+)?)*")
Nodes = Annotated[str, Field(pattern=_NODES)]
"""Numbers of agents, as in `1-10, 26-35`."""


class UserSpec(_Section):
    """`[[users]]`: a user and the tasks of its single framework."""

    name: Annotated[str, Field(min_length=1)]
    start: Annotated[float, Field(ge=0)] = 0.0
    """Start time in seconds."""
    weight: PositiveFloat = 1.0
    commitment: Annotated[float, Field(ge=0, le=1)] = 0.0
    nodes: Nodes | None = None
    """Agents on which the user's tasks may run (its whitelist); None allows all agents."""
    tasks: TaskSpec | None = None
    """Description of this user's tasks; None selects the experiment's default."""


class Variant(_Section):
    """`[[variants]]`: the same experiment with a difference."""

    name: Annotated[str, Field(min_length=1)]
    without: tuple[str, ...] = ()
    """Names of users that do not take part."""
    nodes: dict[str, Nodes] = {}
    """Changed whitelists by user."""
    hold_for: Literal["off", "one", "all"] = "off"
    """Jobs for which agents are held if their next task fits nowhere: none, one or all."""


class PhasesAgree(_Section):
    """Claim: each user's mean CPUs at the end of each phase match the divisible optimum."""

    kind: Literal["phases-agree"]
    within_cpus: PositiveFloat


class Utilization(_Section):
    """Claim: utilization of the CPUs after the first user's ramp-up exceeds a fraction."""

    kind: Literal["utilization"]
    above: Annotated[float, Field(gt=0, lt=1)]


class CommitmentAt(_Section):
    """Claim: a user has a given commitment at a given time."""

    kind: Literal["commitment-at"]
    user: str
    at: float
    value: float
    within: PositiveFloat


class LargestLead(_Section):
    """Claim: bounds of a user's largest lead in CPUs over other users during a phase."""

    kind: Literal["largest-lead"]
    user: str
    over: tuple[str, ...]
    """Names of the other users; the lead is relative to the user with the most CPUs at the time."""
    phase: PositiveInt
    """Number of the phase, counted from 1."""
    at_least: float | None = None
    at_most: float | None = None


class TaskShares(_Section):
    """Claim: users' mean task shares, as fractions of the tasks that each could run alone."""

    kind: Literal["task-shares"]
    shares: dict[str, PositiveFloat]
    """Task share by user."""
    start: float
    end: float
    within_tasks: PositiveFloat


class NoLater(_Section):
    """Claim: users finish no later in one variant than in another, on average over seeds."""

    kind: Literal["no-later"]
    users: tuple[str, ...]
    variant: str
    than: str
    within_noise: bool = False
    """True if a difference of up to two standard errors is accepted."""


Claim = Annotated[
    PhasesAgree | Utilization | CommitmentAt | LargestLead | TaskShares | NoLater,
    Field(discriminator="kind"),
]


class Phase(_Section):
    """The time from one user's start to the next user's start."""

    start: float
    end: float
    users: tuple[str, ...]
    """Names of the users that have started."""


class Experiment(_Section):
    """One experiment. All times are in the master's seconds since the start."""

    name: str
    title: str
    figure: str
    """The figure or table of a paper that the experiment reproduces."""
    shows: str
    duration: PositiveFloat
    cluster: ClusterSpec
    policy: dict[str, Any]
    """Name and parameters of the policy, as in the service's configuration."""
    hold_for: Literal["off", "one", "all"] = "off"
    """`offers.hold_for` of the service's configuration."""
    tasks: TaskSpec | None = None
    """Description of the tasks of all users without a description of their own."""
    users: Annotated[tuple[UserSpec, ...], Field(min_length=1)]
    variants: tuple[Variant, ...] = ()
    """Variants, whose completion times are compared."""
    seeds: PositiveInt = 3
    """Number of runs of each variant; each run has other task run times."""
    claims: tuple[Claim, ...] = ()

    def tasks_of(self, user: UserSpec) -> TaskSpec:
        """Return the description of a user's tasks."""
        tasks = user.tasks or self.tasks
        assert tasks is not None
        return tasks

    @property
    def finite(self) -> bool:
        """True if each user's number of tasks is limited, so that the experiment may end early."""
        return all(self.tasks_of(user).count is not None for user in self.users)

    @property
    def counts_tasks(self) -> bool:
        """True if the policy counts tasks, so that the allocator must know demands."""
        return self.create_policy().counts_tasks

    @property
    def divisible(self) -> bool:
        """True if the divisible optimum over time can describe the experiment."""
        return self.policy["name"] in {"drf", "sdrf"} and all(
            user.nodes is None and user.tasks is None for user in self.users
        )

    def whitelist(self, user: UserSpec) -> list[str]:
        """Return the hosts on which a user's tasks may run; an empty list means all hosts."""
        if user.nodes is None:
            return []
        hosts = [name for name, _ in self.cluster.hosts]
        return [hosts[number - 1] for number in _numbers(user.nodes)]

    def under(self, policy: dict[str, Any]) -> "Experiment":
        """Return the experiment with another policy and without claims.

        Args:
            policy: Name and parameters of the policy.

        Raises:
            ValueError: The policy or a parameter does not exist.
        """
        changed = self.model_copy(update={"policy": policy, "claims": ()})
        changed.create_policy()
        return changed

    def variant(self, variant: Variant) -> "Experiment":
        """Return a variant as an experiment without claims."""
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
        """Periods of time with a constant set of started users."""
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
        """Create the policy object."""
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
            raise ValueError(
                f"user {user.name}: its tasks are not described; add [users.tasks] or [tasks]"
            )
        demand = self.tasks_of(user).quantities
        if not any(group.quantities.contains(demand) for group in self.cluster.agents):
            raise ValueError(f"user {user.name}: a task ({demand}) is larger than any agent")
        if user.start >= self.duration:
            raise ValueError(f"user {user.name} starts after the end of the experiment")
        if user.nodes is not None:
            self._check_nodes(user.name, user.nodes)

    def _check_nodes(self, owner: str, nodes: str) -> None:
        invalid = [number for number in _numbers(nodes) if not 1 <= number <= self.cluster.size]
        if invalid:
            raise ValueError(f"{owner}: there is no agent {invalid[0]}")

    def _check_claim(self, claim: "Claim", names: list[str]) -> None:
        users = [getattr(claim, "user", names[0]), *getattr(claim, "over", ())]
        users += [*getattr(claim, "shares", ()), *getattr(claim, "users", ())]
        _require(f"claim {claim.kind}", users, names)
        if isinstance(claim, LargestLead) and claim.phase > len(self.phases):
            raise ValueError(f"claim {claim.kind}: there is no phase {claim.phase}")
        if isinstance(claim, PhasesAgree) and not self.divisible:
            raise ValueError(f"claim {claim.kind}: users' tasks differ, or the policy counts them")
        if isinstance(claim, NoLater):
            known = [variant.name for variant in self.variants]
            _require(f"claim {claim.kind}", [claim.variant, claim.than], known, "variant")


def _require(place: str, names: list[str], known: list[str], kind: str = "user") -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{place}: no {kind} is named {unknown[0]!r}")


def _numbers(nodes: str) -> list[int]:
    """Parse `1-3, 7` as 1, 2, 3, 7."""
    numbers: list[int] = []
    for part in nodes.split(","):
        first, _, last = part.strip().partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def names() -> list[str]:
    """Return the names of all experiments that are part of Longshare."""
    folder = files("frameworks") / "experiments"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def load(name: str) -> Experiment:
    """Return the experiment with a given name.

    Raises:
        KeyError: No experiment has this name.
    """
    if name not in names():
        raise KeyError(f"no experiment is named {name!r}; there are: {', '.join(names())}")
    text = (files("frameworks") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Experiment:
    """Parse an experiment from TOML.

    Raises:
        ValueError: The text is not TOML or contradicts itself.
    """
    return Experiment.model_validate({"name": name, **tomllib.loads(text)})


def load_all() -> Iterator[Experiment]:
    """Yield all experiments that are part of Longshare."""
    return map(load, names())
