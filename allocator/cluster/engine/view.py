"""Read-only view of an engine for displays: users, agents, frameworks, reasons for no offers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from typing_extensions import override

from allocator.cluster.agents.agent import Agent
from allocator.cluster.backfill.holds import BackfillHold
from allocator.cluster.engine.wording import MesosWording
from allocator.cluster.frameworks.demands import MOST_DESCRIBED
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.quarantine import Kind, RejectedInput, Sender
from allocator.cluster.quota import Quota
from allocator.cluster.reasons import Survey, could_be_served, survey
from allocator.cluster.settings import EngineSettings
from allocator.cluster.state import Cluster, ClusterStatistics, Withheld
from allocator.cluster.users import Users
from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative
from allocator.fairness.policies import mistaken_resources
from allocator.fairness.quantities import Quantities
from allocator.formatting import shortened
from allocator.users.adapter import ClusterCounts, MachineSummary, SchedulerAdapter

_NANOSECONDS = 1_000_000_000

_STATES: dict[Withheld, str] = {
    "agent_set_aside": "set aside",
    "deactivated": "deactivated",
    "not_whitelisted": "not on the whitelist",
}


@dataclass(frozen=True, slots=True)
class TaskFit:
    """How one framework's tasks fit the cluster: the number of suitable agents, and problems.

    Problems are requirements that no agent meets, and task labels that cannot be read.
    """

    framework: str
    constraint: str
    """Description of the placement constraint; empty if there is none."""
    agents: int
    """The number of agents that the framework may use."""
    misfit: str
    """The requirement that no agent can meet, so that the framework gets no offers; empty if
    none."""
    slip: str
    """The label that Longshare cannot read and therefore ignores; empty if none."""
    at_a_time: int
    """How many of the framework's tasks form one unit, because one task is below the demand
    floor."""
    unnamed: tuple[str, ...]
    """Resources that the framework is not offered, because its known demand does not name them."""
    part_of_gpu: float
    """GPUs that one task needs, if Mesos refuses tasks with a part of a GPU; else 0."""


@mypyc_attr(allow_interpreted_subclasses=True)
class View(SchedulerAdapter):
    """Answers questions about the state of an engine for displays, without changing the state.

    Args:
        settings: The operator's settings.
        cluster: The state of the master's cluster.
    """

    def __init__(self, settings: EngineSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._cluster = cluster
        self.wording = MesosWording(self)

    @property
    def settings(self) -> EngineSettings:
        """The operator's settings."""
        return self._settings

    @property
    @override
    def now(self) -> float:
        """The master's clock at the last event, in seconds since the Unix epoch."""
        return self._cluster.now_ns / _NANOSECONDS

    @property
    def statistics(self) -> ClusterStatistics:
        """Counts of events, cycles and offers since the engine was created."""
        return self._cluster.statistics

    @property
    @override
    def is_tree(self) -> bool:
        return self._settings.user_key == "role"

    @property
    @override
    def declared_users(self) -> frozenset[str]:
        return frozenset(user.name for user in self._settings.users)

    @property
    @override
    def has_followed(self) -> bool:
        return self.statistics.snapshots > 0

    @property
    @override
    def longest_name(self) -> int:
        return self.settings.limits.name

    @property
    @override
    def messages(self) -> int:
        return self.statistics.messages

    @override
    def counts(self) -> ClusterCounts:
        return ClusterCounts(self.agents, self.frameworks)

    @property
    def agents(self) -> int:
        """Number of known agents."""
        return len(self._cluster.ledger.agents)

    @property
    def frameworks(self) -> int:
        """Number of known frameworks."""
        return len(self._cluster.ledger.frameworks)

    @property
    def reports_used(self) -> bool:
        """Whether the master reports used resources, so that unanswered offers are known."""
        return self._cluster.reports_used

    @property
    def filters(self) -> int:
        """Number of offer filters in force."""
        return len(self._cluster.filters)

    def holds(self) -> list[BackfillHold]:
        """Return all backfill holds, oldest first."""
        return list(self._cluster.holds)

    @override
    def could_be_served(self, user: str) -> bool:
        """Return whether at least one agent could serve a user, now or after tasks end.

        Costs O(agents). For one user, this is cheaper than `unservable_users`, which checks all.
        """
        clients = self._users.clients(user)
        return not self.agents or any(could_be_served(self._cluster, client) for client in clients)

    def user(self, role: str, framework: str) -> str | None:
        """Return the name of the user that a framework acts for in a role; None if not known."""
        client = Client(role, framework)
        clients = self._cluster.ledger.clients
        return clients.user(client) if client in clients else None

    @override
    def demands(self) -> dict[str, list[Quantities]]:
        """Return the known task demands, in thousandths, of each user's frameworks."""
        demands: dict[str, list[Quantities]] = {}
        for framework in self._cluster.ledger.frameworks.values():
            for client in self._cluster.ledger.clients.of(framework.id):
                demand = self._cluster.demands.of(client, framework)
                if demand is not None:
                    user = self._cluster.ledger.clients.user(client)
                    demands.setdefault(user, []).append(demand)
        return demands

    @override
    def constraints(self) -> dict[str, dict[str, None]]:
        """Return descriptions of the placement constraints of each user's frameworks.

        Each distinct description is a key of the inner dictionary, in order of arrival. Users
        without constraints are absent. Costs O(clients).
        """
        ledger, by_user = self._cluster.ledger, dict[str, dict[str, None]]()
        for framework in ledger.frameworks:
            description = ledger.placements.describe(framework)
            if description:
                for client in ledger.clients.of(framework):
                    by_user.setdefault(ledger.clients.user(client), {})[description] = None
        return by_user

    def framework_ids(self) -> list[str]:
        """Return the IDs of all known frameworks, in order of arrival."""
        return list(self._cluster.ledger.frameworks)

    def misfits(self, among: Iterable[str] | None = None) -> dict[str, str]:
        """Return problems of frameworks: requirements that no agent meets, and unreadable labels.

        A framework with an unreadable label may get offers nevertheless; `unreadable_labels`
        returns only such frameworks. During a failover recovery, missing agents may still meet a
        constraint, so constraints are not reported. Costs O(clients of the examined frameworks).

        Args:
            among: IDs of the frameworks to examine; None: all.

        Returns:
            A description of the problem, by framework ID.
        """
        frameworks = self._frameworks_among(among)
        misfits = ((framework.id, self._misfit(framework, slips=True)) for framework in frameworks)
        return {framework: misfit for framework, misfit in misfits if misfit}

    @property
    def name_comparisons(self) -> int:
        """Number of comparisons of names so far, by which `misfits` found corrections."""
        return self._cluster.ledger.floor.comparisons

    def number_of_misfits(self) -> int:
        """Return the number of frameworks that `misfits` returns. Costs O(clients)."""
        frameworks = self._cluster.ledger.frameworks.values()
        return sum(
            bool(self._misfit(framework, slips=True, corrects=False)) for framework in frameworks
        )

    def unknown_in_settings(self) -> dict[str, str]:
        """Return the settings that name a resource that no agent has ever had.

        A policy may then rank all users equally, and an initial commitment is lost.

        Returns:
            A description of the mistake, by setting.
        """
        floor = self._cluster.ledger.floor
        if not self._cluster.ledger.agents:
            return {}
        commitments = [user.commitment for user in self._settings.users]
        names = {
            "policy": mistaken_resources(self._settings.policy, floor.names),
            "users.declared": [
                name for initial in commitments if isinstance(initial, Mapping) for name in initial
            ],
        }
        mistakes = {
            setting: "; ".join(floor.unknown(Quantities(dict.fromkeys(resources, 1))))
            for setting, resources in names.items()
        }
        return {setting: mistake for setting, mistake in mistakes.items() if mistake}

    def unreadable_labels(self, among: Iterable[str] | None = None) -> dict[str, str]:
        """Return the unreadable labels of frameworks that get offers nevertheless.

        Args:
            among: IDs of the frameworks to examine; None: all.

        Returns:
            A description of the labels, by framework ID.
        """
        frameworks = self._frameworks_among(among)
        slips = (framework for framework in frameworks if framework.subscription.unreadable)
        return {
            framework.id: framework.subscription.unreadable
            for framework in slips
            if not self._misfit(framework)
        }

    def rejected_inputs(self) -> Iterator[RejectedInput]:
        """Return an iterator over all rejected input that is still in quarantine."""
        return iter(self._cluster.quarantine)

    def rejected_input_of(self, kind: Kind, name: str) -> list[RejectedInput]:
        """Return the rejected input of one sender that is still in quarantine."""
        return self._cluster.quarantine.of(kind, name)

    @property
    def rejected_version(self) -> tuple[int, int]:
        """A value that differs after each change of `rejected_inputs`."""
        return self.statistics.snapshots, self._cluster.quarantine.version

    def rejected_since(self, version: tuple[int, int]) -> list[Sender] | None:
        """Return the senders whose rejected input has changed since a version; None: any may have.

        Args:
            version: An earlier `rejected_version`.
        """
        snapshots, number = version
        if snapshots != self.statistics.snapshots:
            return None
        return self._cluster.quarantine.changed_since(number)

    def task_fits(self, user: str) -> Cooperative[list[TaskFit]]:
        """Return how the tasks of each of a user's active frameworks fit the cluster.

        If none is active, the method returns the fits of inactive frameworks. Problems of former
        starts must not look like problems of a corrected start. Generator for cooperative steps.
        Events may be applied between two steps.
        """
        active, inactive = list[TaskFit](), list[TaskFit]()
        for framework_id in self.framework_ids():
            framework, clients = self.framework(framework_id), self._cluster.ledger.clients
            if framework is not None and any(
                clients.user(client) == user for client in clients.of(framework_id)
            ):
                (active if framework.active else inactive).append(self._fit(framework))
            yield
        return active or inactive

    def suggest_placement(self, framework: str) -> Cooperative[str]:
        """Return a sentence about what agents have in place of a requirement that none meets.

        The sentence is empty if an agent meets the framework's constraint. Generator for
        cooperative steps; events may be applied between two steps.
        """
        return self._cluster.ledger.placements.suggest(framework)

    @override
    def clients(self, user: str | None = None) -> list[Client]:
        """Return all clients, or only the clients of one user and of the users below it.

        The clients of active frameworks come first, each part in order of arrival: a display that
        shows only some clients must not end with frameworks that have been restarted since. Costs
        O(clients).

        Args:
            user: The name of a user; None: all clients.
        """
        clients = self._cluster.ledger.clients
        return [
            client
            for framework in sorted(
                self._cluster.ledger.frameworks, key=lambda name: not self._is_active(name)
            )
            for client in clients.of(framework)
            if user is None or user in clients.node(client).names
        ]

    @override
    def users_of(self, client: Client) -> list[str]:
        """Return a client's user and all users above it; empty if the client is gone."""
        return list(self._cluster.ledger.clients.display_names(client))

    @override
    def survey(self) -> Cooperative[Survey]:
        """Return the agents in groups of equivalent agents, to explain why clients get no offers.

        Generator for cooperative steps.
        """
        return survey(self._cluster)

    @override
    def filters_by_role(self) -> dict[str, int]:
        """Return the number of offer filters in force by role, for roles that have any."""
        return self._cluster.filters.by_role()

    def quotas(self) -> dict[str, tuple[Quota, Quantities]]:
        """Return each role's quota, and the quantities that count against it, by role."""
        quotas = self._cluster.ledger.quotas
        consumed = quotas.consumed()
        return {role: (quota, consumed[role]) for role, quota in quotas.items()}

    @override
    def offered(self) -> dict[str, Quantities] | None:
        """Return the resources that each user has been offered, but does not use.

        The result is None if the master does not report used resources (before Mesos 1.10). Costs
        O(clients).
        """
        if not self.reports_used:
            return None
        ledger, clients = self._cluster.ledger, self._cluster.ledger.clients
        offered: dict[str, Quantities] = {}
        for framework in ledger.frameworks:
            for client in clients.of(framework):
                idle = ledger.outstanding_of(client)
                for user in clients.display_names(client):
                    offered[user] = offered.get(user, Quantities()) + idle
        return offered

    def allocations(self) -> dict[tuple[str, str, str], Quantities]:
        """Return all allocated scalar quantities, by agent ID, framework ID and role."""
        return {
            (agent.id, framework, role): held.scalars
            for agent in self._cluster.ledger.agents.values()
            for framework, role, held in agent.allocations()
        }

    def available(self) -> dict[str, Quantities]:
        """Return the available scalar quantities of each agent, by agent ID."""
        agents = self._cluster.ledger.agents
        return {agent.id: agent.available_for_display.scalars for agent in agents.values()}

    @override
    def machine_summaries(self) -> Iterator[MachineSummary]:
        """Yield each agent, in order of arrival, with the resources that users hold on it.

        Events may be applied between two items. Each item shows the state at its time.
        """
        cluster = self._cluster
        for agent in list(cluster.ledger.agents.values()):  # events may change them
            held: dict[str, Quantities] = {}
            for framework, role, resources in agent.allocations():
                user = self.user(role, framework) or role
                held[user] = held.get(user, Quantities()) + resources.scalars
            withheld = cluster.withheld(agent)
            state = (
                _STATES[withheld]
                if withheld
                else "offered"
                if agent.available_for_display
                else "full"
            )
            total, free = agent.total.scalars, agent.available_for_display.scalars
            yield MachineSummary(agent.id, agent.hostname, state, total, free, held)

    def agent(self, agent: str) -> Agent | None:
        """Return an agent, which the caller must not change; None if the agent is not known."""
        return self._cluster.ledger.agents.get(agent)

    def framework(self, framework: str) -> Framework | None:
        """Return a framework, which the caller must not change; None if it is not known."""
        return self._cluster.ledger.frameworks.get(framework)

    def demand(self, client: Client) -> Quantities | None:
        """Return the resources that one task of a client needs; None if the demand is unknown."""
        framework = self.framework(client.framework)
        return None if framework is None else self._cluster.demands.of(client, framework)

    def agent_name(self, agent: str) -> str:
        """Return an agent's hostname; the given ID if the agent is not known."""
        known = self._cluster.ledger.agents.get(agent)
        return known.hostname if known is not None else agent

    def framework_name(self, framework: str) -> str:
        """Return a framework's name; the given ID if the framework is not known."""
        known = self._cluster.ledger.frameworks.get(framework)
        return known.name if known is not None else framework

    @property
    @override
    def _users(self) -> Users:
        return self._cluster.ledger.clients.users

    def _is_active(self, framework: str) -> bool:
        """Return whether a framework is known and active, that is, connected."""
        known = self.framework(framework)
        return known is not None and known.active

    def _fit(self, framework: Framework) -> TaskFit:
        ledger = self._cluster.ledger
        return TaskFit(
            framework=framework.id,
            constraint=ledger.placements.describe(framework.id),
            agents=ledger.placements.number(framework.id),
            misfit=self._misfit(framework),
            slip=framework.subscription.unreadable,
            at_a_time=max(map(ledger.unit_size, ledger.clients.of(framework.id))),
            unnamed=tuple(self._unnamed(framework)),
            part_of_gpu=self._part_of_gpu(framework),
        )

    def _unknown(self, framework: Framework, demands: list[Quantities | None]) -> tuple[str, ...]:
        """Return descriptions of resources that a framework needs, but that no agent has ever had.

        The framework keeps the descriptions, until a demand or the cluster's resources change.

        Args:
            framework: The framework, whose minimum offers are checked.
            demands: The task demands of the framework's clients; None for unknown demands.
        """
        made_from = (len(self._cluster.ledger.floor.names), demands)
        kept = framework.unknown_resources
        if kept is None or kept[0] != made_from:
            kept = made_from, tuple(self._describe_unknown(framework, demands))
            framework.unknown_resources = kept
        return kept[1]

    def _describe_unknown(
        self, framework: Framework, demands: Iterable[Quantities | None]
    ) -> Iterator[str]:
        floor, most = self._cluster.ledger.floor, MOST_DESCRIBED
        for demand in demands:
            unknown = [] if demand is None else floor.unknown(demand, most)
            if unknown:
                most -= len(unknown)
                yield shortened("; ".join(unknown))
        for role, minimum in islice(self._unmet_minimums(framework), most):
            unknown = floor.unknown(minimum, most)
            if not unknown:
                return
            most -= len(unknown)
            yield shortened(f"its offer_filters for the role {role!r}: {'; '.join(unknown)}")

    def _unknown_briefly(
        self, framework: Framework, demands: list[Quantities | None]
    ) -> tuple[str, ...]:
        """Return a text without names if `_unknown` would return descriptions."""
        knows = self._cluster.ledger.floor.knows
        known = all(knows(demand) for demand in demands if demand is not None)
        if known and not any(self._unmet_minimums(framework)):
            return ()
        return ("no agent has ever had a resource that it needs",)

    def _unmet_minimums(self, framework: Framework) -> Iterator[tuple[str, Quantities]]:
        """Yield roles in which each minimum offer names an unknown resource, and the first one."""
        knows = self._cluster.ledger.floor.knows
        for role, alternatives in framework.min_allocatable.items():
            if alternatives and not any(map(knows, alternatives)):
                yield role, alternatives[0]

    def _unnamed(self, framework: Framework) -> list[str]:
        ledger = self._cluster.ledger
        clients = ledger.clients.of(framework.id)
        demands = [self._cluster.demands.of(client, framework) for client in clients]
        if None in demands:
            return []
        named = {name for demand in demands if demand is not None for name in demand}
        return ledger.floor.unnamed(named)

    def _part_of_gpu(self, framework: Framework) -> float:
        """Return the first demand for GPUs of a framework that is not a whole number, or 0."""
        for client in self._cluster.ledger.clients.of(framework.id):
            demand = self._cluster.demands.of(client, framework)
            amount = 0 if demand is None else demand.get("gpus", 0)
            if amount % 1000:
                return amount / 1000
        return 0.0

    def _frameworks_among(self, among: Iterable[str] | None) -> Iterable[Framework]:
        """Return the known frameworks of the given IDs; None: all."""
        frameworks = self._cluster.ledger.frameworks
        if among is None:
            return frameworks.values()
        return (frameworks[framework] for framework in among if framework in frameworks)

    def _misfit(self, framework: Framework, *, slips: bool = False, corrects: bool = True) -> str:
        """Return the problems of a framework, or "".

        Args:
            framework: The framework.
            slips: Whether unreadable labels are problems.
            corrects: Whether unknown resources are described with corrections, which takes time.
        """
        ledger = self._cluster.ledger
        unreadable = framework.subscription.unreadable if slips else ""
        texts = [unreadable] if unreadable else []
        if self._cluster.quarantine:
            rejected = self._cluster.quarantine.of("framework", framework.id)
            texts += [member.flaw.words for member in rejected]
        agents = len(ledger.agents)
        clients = ledger.clients.of(framework.id) if agents else []
        if agents and not self._cluster.recovering:
            if not ledger.placements.number(framework.id):
                constraint = ledger.placements.describe(framework.id)
                texts.append(f"no agent meets its constraint: {constraint}")
            demands = [self._cluster.demands.of(client, framework) for client in clients]
            if len(demands) > 1:  # usually one demand for all roles
                demands = list({id(demand): demand for demand in demands}.values())
            beyond = [ledger.floor.beyond(demand) for demand in demands if demand is not None]
            texts += dict.fromkeys(f"one task needs {words}" for words in beyond if words)
            if beyond or framework.min_allocatable:
                texts += (self._unknown if corrects else self._unknown_briefly)(framework, demands)
        roles = [client.role for client in clients if ledger.exclusions.number(client) == agents]
        for role in roles[:MOST_DESCRIBED]:
            name = shortened(repr(role))
            texts.append(f"its offer constraints for the role {name} exclude every agent")
        return "; ".join(texts)
