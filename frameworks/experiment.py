"""Format of experiment files: users, their tasks, the cluster, and claims to check."""

import difflib
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from allocator import plugins
from allocator.fairness.machines import Machines
from allocator.fairness.policies import Policy
from allocator.fairness.quantities import Quantities

AVERAGED_S = 60.0
"""Seconds at the end of a phase over which users' CPUs are averaged."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Agents(_Section):
    """`[[cluster.agents]]`: a group of identical agents."""

    count: PositiveInt
    resources: str
    """Resources of each agent, in the syntax of Mesos's flag --resources."""

    @property
    def quantities(self) -> Quantities:
        """Resources of each agent, parsed."""
        return Quantities.parse(self.resources)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


class ClusterSpec(_Section):
    """`[cluster]`: the agents of the cluster, numbered from 1 across all groups."""

    agents: Annotated[tuple[Agents, ...], Field(min_length=1)]

    @property
    def size(self) -> int:
        """Total number of agents."""
        return sum(group.count for group in self.agents)

    @property
    def hosts(self) -> list[tuple[str, Agents]]:
        """For each agent, its host name in an embedded Mesos, and its group."""
        groups = [group for group in self.agents for _ in range(group.count)]
        width = len(str(len(groups)))
        return [(f"agent-{number:0{width}}", group) for number, group in enumerate(groups, 1)]

    @property
    def capacity(self) -> Quantities:
        """Total resources of all agents."""
        return sum((group.quantities for _, group in self.hosts), start=Quantities())

    @property
    def cores(self) -> float:
        """Total number of CPU cores of all agents."""
        return self.capacity["cpus"] / 1000

    def monopoly(self, demand: Quantities) -> int:
        """Return how many whole tasks of a demand fit on the empty agents (h in the TSF paper)."""
        machines: Machines[str] = Machines()
        for name, group in self.hosts:
            machines.put(name, group.quantities)
        return machines.monopoly(demand)


class TaskSpec(_Section):
    """`[tasks]`: the tasks of a user, which are all alike."""

    demand: str
    """Resources of one task, in the syntax of Mesos's flag --resources."""
    run_time: PositiveFloat
    """Mean run time of a task in seconds."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Largest deviation of a run time from the mean, as a fraction.

    Run times are uniformly distributed.
    """
    count: PositiveInt | None = None
    """Number of tasks of the user; None sets no limit."""

    @property
    def quantities(self) -> Quantities:
        """Resources of one task, parsed."""
        return Quantities.parse(self.demand)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        _ = self.quantities
        return self


_NODES = re.compile(r"\d+(-\d+)?(,\s*\d+(-\d+)?)*")
Nodes = Annotated[str, Field(pattern=_NODES)]
"""Numbers of agents as text, such as `1-10, 26-35`."""


class UserSpec(_Section):
    """`[[users]]`: a user, whose only framework runs its tasks."""

    name: Annotated[str, Field(min_length=1)]
    start: Annotated[float, Field(ge=0)] = 0.0
    """Seconds after the start of the experiment at which the user's framework starts."""
    weight: PositiveFloat = 1.0
    commitment: Annotated[float, Field(ge=0, le=1)] = 0.0
    nodes: Nodes | None = None
    """Agents on which the user's tasks may run; None allows all agents."""
    tasks: TaskSpec | None = None
    """The user's tasks; None selects the experiment's default `[tasks]`."""


SlurmOrder: TypeAlias = Literal["policy", "fair-tree"]
"""Order of pending jobs on Slurm: by the policy, or by Slurm's own Fair Tree. Fair Tree then has
the half-life of the policy."""


class Variant(_Section):
    """`[[variants]]`: a variation of the experiment, to be compared with other variants.

    A variant can omit users, change placement constraints, or hold agents for users. On Slurm, it
    can have another order.
    """

    name: Annotated[str, Field(min_length=1)]
    without: tuple[str, ...] = ()
    """Names of users that do not take part in this variant."""
    nodes: dict[str, Nodes] = {}
    """By user: agents on which the user's tasks may run in this variant."""
    hold_for: Literal["off", "one", "all"] = "off"
    """Setting `offers.hold_for` in this variant.

    The allocator holds agents for users whose next task fits on no agent: for none, one or all.
    """
    order: SlurmOrder = "policy"
    """Order of pending jobs in this variant. Mesos has no Fair Tree."""


class PhasesAgree(_Section):
    """Claim: in each phase, users' final mean CPUs are close to the divisible optimum.

    The divisible optimum is the ideal allocation, as if tasks could be divided.
    """

    kind: Literal["phases-agree"]
    within_cpus: PositiveFloat


class Utilization(_Section):
    """Claim: once the first user has filled the cluster, more than a fraction of CPUs is used."""

    kind: Literal["utilization"]
    above: Annotated[float, Field(gt=0, lt=1)]


class CommitmentAt(_Section):
    """Claim: at a given time, a user's commitment is close to a given value."""

    kind: Literal["commitment-at"]
    user: str
    at: float
    value: float
    within: PositiveFloat


class LargestLead(_Section):
    """Claim: limits of a user's largest lead, its surplus of CPUs over others, in a phase.

    The lead is the user's CPUs minus the largest number of CPUs of the other users. The claim can
    limit the largest lead in the phase from above, from below, or both.
    """

    kind: Literal["largest-lead"]
    user: str
    over: tuple[str, ...]
    """Names of the users with which the user is compared. At each time, the best of them counts."""
    phase: PositiveInt
    """Number of the phase, counted from 1, in which the lead is measured."""
    at_least: float | None = None
    at_most: float | None = None


class TaskShares(_Section):
    """Claim: users' mean task shares between two times are close to given values.

    A task share is the number of running tasks, as a fraction of the tasks that the user could run
    alone.
    """

    kind: Literal["task-shares"]
    shares: dict[str, PositiveFloat]
    """Claimed mean task share of each user."""
    start: float
    end: float
    within_tasks: PositiveFloat


class NoLater(_Section):
    """Claim: users finish no later in one variant of the experiment than in another.

    Completion times are means over runs with different seeds.
    """

    kind: Literal["no-later"]
    users: tuple[str, ...]
    variant: str
    than: str
    within_noise: bool = False
    """True if up to two standard errors later is still accepted."""


Claim = Annotated[
    PhasesAgree | Utilization | CommitmentAt | LargestLead | TaskShares | NoLater,
    Field(discriminator="kind"),
]


class Phase(_Section):
    """The time between the starts of two successive users."""

    start: float
    end: float
    users: tuple[str, ...]
    """Names of the users that have started by then."""


class Experiment(_Section):
    """Content of an experiment file.

    All times are seconds of the master's clock since the start of the experiment.
    """

    name: str
    title: str
    figure: str
    """Figure or table of a paper that the experiment reproduces."""
    shows: str
    duration: PositiveFloat
    cluster: ClusterSpec
    policy: dict[str, Any]
    """Name and parameters of the policy, as in the service's configuration."""
    hold_for: Literal["off", "one", "all"] = "off"
    """Setting `offers.hold_for` of the allocator service.

    The allocator holds agents for users whose next task fits on no agent: for none, one or all.
    """
    order: SlurmOrder = "policy"
    """Order of pending jobs on Slurm. Mesos has no Fair Tree."""
    tasks: TaskSpec | None = None
    """Tasks of all users that do not define their own."""
    users: Annotated[tuple[UserSpec, ...], Field(min_length=1)]
    variants: tuple[Variant, ...] = ()
    """Variants, whose completion times are compared; without variants, the experiment runs once."""
    seeds: PositiveInt = 3
    """Number of runs of each variant. A seed determines the run times of tasks."""
    claims: tuple[Claim, ...] = ()

    def tasks_of(self, user: UserSpec) -> TaskSpec:
        """Return the tasks of a user: its own, or the experiment's default."""
        tasks = user.tasks or self.tasks
        assert tasks is not None
        return tasks

    @property
    def finite(self) -> bool:
        """True if every user has a limited number of tasks.

        The experiment then ends when all tasks have finished, which may be before `duration`.
        """
        return all(self.tasks_of(user).count is not None for user in self.users)

    @property
    def needs_slurm(self) -> bool:
        """True if a part of the experiment can only run on Slurm."""
        orders = {self.order, *(variant.order for variant in self.variants)}
        return "fair-tree" in orders

    @property
    def counts_tasks(self) -> bool:
        """True if the policy compares numbers of tasks, as TSF does.

        The policy then needs the demand of a task, so frameworks declare it to the allocator.
        """
        return self.create_policy().counts_tasks

    @property
    def divisible(self) -> bool:
        """True if the divisible optimum (the allocation of ideal tasks) predicts the results.

        It does under DRF and SDRF, if all users have the same kind of tasks and may use all agents.
        """
        return self.policy["name"] in {"drf", "sdrf"} and all(
            user.nodes is None and user.tasks is None for user in self.users
        )

    def whitelist(self, user: UserSpec) -> list[str]:
        """Return the host names on which a user's tasks may run; an empty list allows all hosts."""
        if user.nodes is None:
            return []
        hosts = [name for name, _ in self.cluster.hosts]
        return [hosts[number - 1] for number in _numbers(user.nodes)]

    def with_policy(self, policy: dict[str, Any]) -> "Experiment":
        """Return a copy of the experiment with another policy.

        The copy has no claims, because the claims are about the original policy.

        Args:
            policy: Name and parameters of the policy.

        Raises:
            ValueError: The policy or a parameter does not exist.
        """
        changed = self.model_copy(update={"policy": policy, "claims": ()})
        changed.create_policy()
        return changed

    def variant(self, variant: Variant) -> "Experiment":
        """Return a variant as an experiment of its own, without claims, to be run separately."""
        return self.model_copy(
            update={
                "name": f"{self.name}: {variant.name}",
                "users": tuple(
                    user.model_copy(update={"nodes": variant.nodes.get(user.name, user.nodes)})
                    for user in self.users
                    if user.name not in variant.without
                ),
                "hold_for": variant.hold_for,
                "order": variant.order,
                "variants": (),
                "claims": (),
            }
        )

    @property
    def phases(self) -> list[Phase]:
        """The phases of the experiment in order: a new phase begins whenever a user starts."""
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
        """Create a policy object from the experiment's `policy`."""
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
        for name in demand:
            if not self.cluster.capacity[name]:
                known = sorted(self.cluster.capacity)
                similar = difflib.get_close_matches(name, known, n=1)
                meant = f"; did you mean {similar[0]}?" if similar else ""
                raise ValueError(
                    f"user {user.name}: a task needs {name}, which no agent has; there are: "
                    f"{', '.join(known)}{meant}"
                )
        if not any(group.quantities.contains(demand) for group in self.cluster.agents):
            raise ValueError(f"user {user.name}: a task ({demand}) is larger than any agent")
        if user.start >= self.duration:
            raise ValueError(f"user {user.name} starts after the end of the experiment")
        if user.nodes is not None:
            self._check_nodes(user.name, user.nodes)

    def _check_nodes(self, owner: str, nodes: str) -> None:
        invalid = [number for number in _numbers(nodes) if not 1 <= number <= self.cluster.size]
        if invalid:
            raise ValueError(f"{owner}: agent {invalid[0]} does not exist")

    def _check_claim(self, claim: "Claim", names: list[str]) -> None:
        users = [getattr(claim, "user", names[0]), *getattr(claim, "over", ())]
        users += [*getattr(claim, "shares", ()), *getattr(claim, "users", ())]
        _require(f"claim {claim.kind}", users, names)
        if isinstance(claim, LargestLead) and claim.phase > len(self.phases):
            raise ValueError(f"claim {claim.kind}: phase {claim.phase} does not exist")
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
    """Parse numbers of agents: `1-3, 7` becomes 1, 2, 3, 7."""
    numbers: list[int] = []
    for part in nodes.split(","):
        first, _, last = part.strip().partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def names() -> list[str]:
    """Return the names of the experiments that are part of Longshare."""
    folder = files("frameworks") / "experiments"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def load(name: str) -> Experiment:
    """Load an experiment that is part of Longshare, by name.

    Raises:
        KeyError: No experiment has this name.
    """
    if name not in names():
        similar = difflib.get_close_matches(name, names(), n=1)
        meant = f"; did you mean {similar[0]}?" if similar else ""
        raise KeyError(f"experiment {name!r} is unknown{meant}; there are: {', '.join(names())}")
    text = (files("frameworks") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Experiment:
    """Parse and validate an experiment file.

    Args:
        name: Name of the experiment.
        text: Content of the file, in TOML.

    Raises:
        ValueError: The text is not TOML or contradicts itself.
    """
    return Experiment.model_validate({"name": name, **tomllib.loads(text)})


def load_all() -> Iterator[Experiment]:
    """Load all experiments that are part of Longshare."""
    return map(load, names())
