"""What people may look at of an engine: users, agents, frameworks, and what stands in their way."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.backfill.holds import BackfillHold
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.quarantine import RejectedInput
from allocator.cluster.input.text import shortened
from allocator.cluster.quota import Quota
from allocator.cluster.reasons import Survey, could_be_served, survey
from allocator.cluster.settings import EngineSettings
from allocator.cluster.state import Cluster, ClusterStatistics, Withheld
from allocator.cluster.users import Users
from allocator.cluster.users.weights import Weights
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing

_NANOSECONDS = 1_000_000_000

PlaceState: TypeAlias = Literal[
    "offered", "set aside", "deactivated", "not on the whitelist", "full"
]

_STATES: dict[Withheld, PlaceState] = {
    "agent_set_aside": "set aside",
    "deactivated": "deactivated",
    "not_whitelisted": "not on the whitelist",
}


@dataclass(frozen=True, slots=True)
class UserRank:
    """One agent, as people look at it."""

    agent: str
    hostname: str
    state: PlaceState
    """Whether what is free may be offered, and why not."""
    total: Quantities
    free: Quantities
    held: dict[str, Quantities]
    """By user; by role where the framework is not known."""


@dataclass(frozen=True, slots=True)
class TaskFit:
    """Where one framework may run its tasks."""

    framework: str
    constraint: str
    """In words; empty: it has none."""
    agents: int
    """How many it may use."""
    misfit: str
    """The requirement that no agent can meet, so that it gets no offers; empty: none."""
    slip: str
    """The label that Longshare cannot read and therefore ignores; empty: none."""
    at_a_time: int
    """How many of its tasks count as one, because one is below the floor of demands."""
    unnamed: tuple[str, ...]
    """Resources that it is not offered, because its demand is known and does not name them."""


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """One level of the role tree, at which a user or a user above it competes."""

    pool: Pool[str]
    """Its members."""
    member: str
    """The user, or the one above it."""


class View:
    """Answers questions about what is known; nothing is changed by that.

    Args:
        settings: What the operator decided.
        cluster: All that is known.
    """

    def __init__(self, settings: EngineSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._cluster = cluster

    @property
    def settings(self) -> EngineSettings:
        """What the operator decided."""
        return self._settings

    @property
    def now(self) -> float:
        """The master's clock at the last event, in seconds since the Unix epoch."""
        return self._cluster.now_ns / _NANOSECONDS

    @property
    def statistics(self) -> ClusterStatistics:
        """What has happened since the engine was made."""
        return self._cluster.statistics

    @property
    def pool(self) -> Pool[str]:
        """The users at the top, with what they hold and owe."""
        return self._cluster.ledger.clients.users.pool

    @property
    def agents(self) -> int:
        """Number of agents."""
        return len(self._cluster.ledger.agents)

    @property
    def frameworks(self) -> int:
        """Number of frameworks."""
        return len(self._cluster.ledger.frameworks)

    @property
    def filters(self) -> int:
        """Number of offer filters in force."""
        return len(self._cluster.filters)

    def holds(self) -> list[BackfillHold]:
        """Return which agents are held back for whom, the oldest hold first."""
        return list(self._cluster.holds)

    def standings(self) -> list[Standing[str]]:
        """Return how all users stand, each level of a role tree in order of priority."""
        return self._users.standings()

    def users(self) -> list[str]:
        """Return the names of all users, those at the top first, and of virtual leaves."""
        return self._users.names()

    def standing(self, user: str) -> Standing[str] | None:
        """Return how a user stands, O(resources); None: it is not known."""
        return self._users.standing(user)

    def twin(self, user: str) -> Pool[str] | None:
        """Return a copy of the pool in which a user competes; None: it is not known. O(n)."""
        return self._users.twin(user)

    def path(self, user: str) -> list[TreeLevel]:
        """Return the levels at which a user competes, the top first; none: it is not known.

        A user is served next if at each level its member is the first that can be served.
        """
        return [TreeLevel(pool, member) for pool, member in self._users.path(user)]

    def turns(self) -> dict[str, int]:
        """Return by user its place in the order of those that want offers at its level, from 0."""
        return {user: n for pool in self._users.pools() for n, user in enumerate(pool)}

    def passed_over(self, *, declining: bool = False) -> Cooperative[frozenset[str]]:
        """Return the users, at all levels, that want offers while no agent could serve them.

        Args:
            declining: Whether users that refuse every such agent are to be among them.
        """
        agent_survey = yield from survey(self._cluster)
        return (yield from agent_survey.passed_over(declining=declining))

    def could_be_served(self, user: str) -> bool:
        """Return whether some agent could serve a user; what `passed_over` says of one. O(agents).

        That is the least that is asked for a user that has just begun to want offers.
        """
        clients = self._users.clients(user)
        return not self.agents or any(could_be_served(self._cluster, client) for client in clients)

    @property
    def weights(self) -> Weights:
        """Whose word the users' weights are."""
        return self._users.weights

    def user(self, role: str, framework: str) -> str | None:
        """Return the user that a framework acts for in a role; None: neither is known."""
        client = Client(role, framework)
        clients = self._cluster.ledger.clients
        return clients.user(client) if client in clients else None

    def demands(self) -> dict[str, list[Quantities]]:
        """Return what one task needs of each framework of a user, as far as that is known."""
        demands: dict[str, list[Quantities]] = {}
        for framework in self._cluster.ledger.frameworks.values():
            for client in self._cluster.ledger.clients.of(framework.id):
                demand = self._cluster.demands.of(client, framework)
                if demand is not None:
                    user = self._cluster.ledger.clients.user(client)
                    demands.setdefault(user, []).append(demand)
        return demands

    def constraints(self) -> dict[str, dict[str, None]]:
        """Return where the tasks of users may run, in words, where that is restricted. O(clients).

        Of a user whose frameworks have several constraints, each once, in order of arrival.
        """
        ledger, found = self._cluster.ledger, dict[str, dict[str, None]]()
        for framework in ledger.frameworks:
            words = ledger.placements.describe(framework)
            if words:
                for client in ledger.clients.of(framework):
                    found.setdefault(ledger.clients.user(client), {})[words] = None
        return found

    def misfits(self) -> dict[str, str]:
        """Return which frameworks have said what cannot be met or understood, and what.

        `slips` returns those among them that get offers nevertheless. Until enough agents are back
        after a failover, a constraint may still be met. O(frameworks).
        """
        frameworks = self._cluster.ledger.frameworks.values()
        misfits = ((framework.id, self._misfit(framework, slips=True)) for framework in frameworks)
        return {framework: misfit for framework, misfit in misfits if misfit}

    def slips(self) -> dict[str, str]:
        """Return which frameworks have labels that are not understood, but fit nevertheless."""
        frameworks = self._cluster.ledger.frameworks.values()
        slips = (framework for framework in frameworks if framework.said.unreadable)
        return {
            framework.id: framework.said.unreadable
            for framework in slips
            if not self._misfit(framework)
        }

    def set_aside(self) -> Iterator[RejectedInput]:
        """Go through what could not be accepted of what anybody has said."""
        return iter(self._cluster.quarantine)

    def fits(self, user: str) -> list[TaskFit]:
        """Return where the frameworks that act for a user may run their tasks."""
        clients = self._cluster.ledger.clients
        return [
            self._fit(framework)
            for framework in self._cluster.ledger.frameworks.values()
            if any(clients.user(client) == user for client in clients.of(framework.id))
        ]

    def clients(self, user: str | None = None) -> list[Client]:
        """Return all clients, or those of a user and of those below it. O(clients)."""
        clients = self._cluster.ledger.clients
        return [
            client
            for framework in self._cluster.ledger.frameworks
            for client in clients.of(framework)
            if user is None or user in clients.node(client).names
        ]

    def users_of(self, client: Client) -> list[str]:
        """Return the user that a client acts for, and all above it; nobody: the client is gone."""
        return list(self._cluster.ledger.clients.shown(client))

    def survey(self) -> Cooperative[Survey]:
        """Look at all agents, to be asked then why clients get nothing of what is free."""
        return survey(self._cluster)

    def filters_by_role(self) -> dict[str, int]:
        """Return how many offer filters are in force for each role that frameworks have."""
        counts: dict[str, int] = {}
        for framework in self._cluster.ledger.frameworks.values():
            for client in self._cluster.ledger.clients.of(framework.id):
                counts[client.role] = counts.get(client.role, 0) + self._cluster.filters.count(
                    client
                )
        return counts

    def quotas(self) -> dict[str, tuple[Quota, Quantities]]:
        """Return by role its quota, and what counts against it."""
        quotas = self._cluster.ledger.quotas
        consumed = quotas.consumed()
        return {role: (quota, consumed[role]) for role, quota in quotas.items()}

    def offered(self) -> dict[str, Quantities] | None:
        """Return what of each user's allocation is offered and not running; None: nobody tells.

        Masters tell since Mesos 1.10. O(clients).
        """
        if not self._cluster.tells_running:
            return None
        clients, running = self._cluster.ledger.clients, self._cluster.ledger.running
        offered: dict[str, Quantities] = {}
        for framework in self._cluster.ledger.frameworks:
            for client in clients.of(framework):
                idle = clients.held(client) - running.of(client)
                for user in clients.shown(client):
                    offered[user] = offered.get(user, Quantities()) + idle
        return offered

    def holdings(self) -> dict[tuple[str, str, str], Quantities]:
        """Return what is allocated: (agent, framework, role) → scalars."""
        return {
            (agent.id, framework, role): held.scalars
            for agent in self._cluster.ledger.agents.values()
            for framework, role, held in agent.allocations()
        }

    def available(self) -> dict[str, Quantities]:
        """Return the scalars that are free on each agent."""
        agents = self._cluster.ledger.agents
        return {agent.id: agent.shown.scalars for agent in agents.values()}

    def places(self) -> Iterator[UserRank]:
        """Go through the agents and what users hold of each, in order of arrival.

        Something may be applied meanwhile; each is as it is when its turn comes.
        """
        cluster = self._cluster
        for agent in list(cluster.ledger.agents.values()):  # they may change meanwhile
            held: dict[str, Quantities] = {}
            for framework, role, resources in agent.allocations():
                user = self.user(role, framework) or role
                held[user] = held.get(user, Quantities()) + resources.scalars
            withheld = cluster.withheld(agent)
            state = _STATES[withheld] if withheld else "offered" if agent.shown else "full"
            total, free = agent.total.scalars, agent.shown.scalars
            yield UserRank(agent.id, agent.hostname, state, total, free, held)

    def agent(self, agent: str) -> Agent | None:
        """Return what is known of an agent, only to be looked at; None: nothing is."""
        return self._cluster.ledger.agents.get(agent)

    def framework(self, framework: str) -> Framework | None:
        """Return what is known of a framework, only to be looked at; None: nothing is."""
        return self._cluster.ledger.frameworks.get(framework)

    def demand(self, client: Client) -> Quantities | None:
        """Return what one task of a client needs; None: nobody knows, or it is not known."""
        framework = self.framework(client.framework)
        return None if framework is None else self._cluster.demands.of(client, framework)

    def agent_name(self, agent: str) -> str:
        """Return an agent's host, or what it was called if it is not known."""
        known = self._cluster.ledger.agents.get(agent)
        return known.hostname if known is not None else agent

    def framework_name(self, framework: str) -> str:
        """Return how a framework calls itself, or its id if it is not known."""
        known = self._cluster.ledger.frameworks.get(framework)
        return known.name if known is not None else framework

    @property
    def _users(self) -> Users:
        return self._cluster.ledger.clients.users

    def _fit(self, framework: Framework) -> TaskFit:
        ledger = self._cluster.ledger
        return TaskFit(
            framework=framework.id,
            constraint=ledger.placements.describe(framework.id),
            agents=ledger.placements.number(framework.id),
            misfit=self._misfit(framework),
            slip=framework.said.unreadable,
            at_a_time=max(map(ledger.at_a_time, ledger.clients.of(framework.id))),
            unnamed=tuple(self._unnamed(framework)),
        )

    def _unknown(self, framework: Framework, demands: Iterable[Quantities | None]) -> Iterator[str]:
        """Go through what a framework needs of resources that no agent has, each in words."""
        floor = self._cluster.ledger.floor
        unknown = dict.fromkeys(floor.unknown(demand) for demand in demands if demand is not None)
        yield from (shortened(words) for words in unknown if words)
        for role, alternatives in framework.min_allocatable.items():
            least = [floor.unknown(minimum) for minimum in alternatives]
            if least and all(least):
                yield shortened(f"its offer_filters for the role {role!r}: {least[0]}")

    def _unnamed(self, framework: Framework) -> list[str]:
        ledger = self._cluster.ledger
        clients = ledger.clients.of(framework.id)
        demands = [self._cluster.demands.of(client, framework) for client in clients]
        if None in demands:
            return []
        named = {name for demand in demands if demand is not None for name in demand}
        return ledger.floor.unnamed(named)

    def _misfit(self, framework: Framework, *, slips: bool = False) -> str:
        ledger = self._cluster.ledger
        wrong = [framework.said.unreadable] if slips and framework.said.unreadable else []
        if self._cluster.quarantine:
            wrong += [flaw.words for flaw in self._cluster.quarantine.of("framework", framework.id)]
        known = len(ledger.agents)
        clients = ledger.clients.of(framework.id) if known else []
        if known and not self._cluster.holds_off:
            if not ledger.placements.number(framework.id):
                constraint = ledger.placements.describe(framework.id)
                wrong.append(f"no agent meets its constraint: {constraint}")
            demands = [self._cluster.demands.of(client, framework) for client in clients]
            beyond = [ledger.floor.beyond(demand) for demand in demands if demand is not None]
            wrong += dict.fromkeys(f"one task needs {words}" for words in beyond if words)
            if beyond or framework.min_allocatable:
                wrong += self._unknown(framework, demands)
        for client in clients:
            if ledger.exclusions.number(client) == known:
                role = client.role
                wrong.append(f"its offer constraints for the role {role!r} exclude every agent")
        return "; ".join(wrong)
