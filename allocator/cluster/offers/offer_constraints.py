"""Exclusions: agents that must not be offered to a framework in a role, by offer constraints."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from sys import intern
from typing import Final

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.quarantine import ValidationError
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.machines import AllExcept, MayUse

_UNLISTED = ValidationError(
    "limit",
    "its description, suppressed roles and offer constraints are longer than the master's message "
    "has room for (limits.roles, limits.exclusions, listen.most_parts)",
)

_MANY = 1000
"""Number of changed clients and agents, in addition to the clients and agents with pairs, at which
all pairs count as changed."""
_PAIRS_A_STEP = 1000
"""Pairs in a cooperative step."""
_CLIENTS_A_STEP = 200
"""Clients in a cooperative step, if each has a changed pair with the same agent."""


_NONE: Final = set[str]()
"""No agents; never changed."""


@dataclass(slots=True)
class ChangedExclusions:
    """The pairs of client and agent that have changed."""

    clients: dict[Client, None] = field(default_factory=dict)
    """Clients of which pairs have changed, unless these are pairs of agents in `agents`."""
    agents: dict[str, None] = field(default_factory=dict)
    """Agents whose clients have been replaced, and removed agents."""
    known: bool = True
    """False if all pairs count as changed, because too many have."""

    def __bool__(self) -> bool:
        return bool(self.clients or self.agents or not self.known)


@dataclass(slots=True)
class _FrameworkPairs:
    """The pairs of one framework, by agent. A set of roles is an integer with a bit for each."""

    bits: dict[str, int] = field(default_factory=dict)
    """The bit of each role that has pairs."""
    roles: dict[int, str] = field(default_factory=dict)
    """The role of each bit."""
    by_agent: dict[str, int] = field(default_factory=dict)
    """The roles that exclude each agent, as a set."""
    number: int = 0
    """Number of pairs."""
    shared: set[str] = field(default_factory=set)
    """Roles that may share one set object of agents with other roles."""

    def bit(self, role: str) -> int:
        """Return the bit of a role, which may be new."""
        bit = self.bits.get(role)
        if bit is None:
            bit = 1
            while bit in self.roles:
                bit <<= 1
            self.bits[role], self.roles[bit] = bit, role
        return bit

    def forget(self, role: str) -> None:
        """Forget a role without pairs, whose bit a new role may have."""
        del self.roles[self.bits.pop(role)]
        self.shared.discard(role)


class Exclusions:
    """The pairs of client and agent that offer constraints exclude (Mesos 1.11).

    Only the master's side can evaluate offer constraints; it reports the excluded pairs. Frameworks
    and agents may be reported before they are added. The pairs of a removed framework or agent are
    forgotten. A framework may have 100,000 pairs, so methods for changes have generator forms.

    A framework with too many pairs is *unlisted*: its pairs are dropped, further pairs are ignored,
    and the framework must get no offers until it is updated or removed.

    Args:
        most: Maximum number of pairs of one framework; 0: no maximum.
        most_of_all: Maximum number of pairs of all frameworks. Beyond it, the principal with the
            most pairs loses its framework with the most pairs, which is unlisted. 0: no maximum.
    """

    def __init__(self, most: int = 0, most_of_all: int = 0) -> None:
        self._most = most
        self._most_of_all = most_of_all
        self._own_maximum = f"more than {most} (limits.exclusions)"
        self._pairs: dict[str, _FrameworkPairs] = {}
        """framework → its pairs; no entry without pairs"""
        self._principals: dict[str, str] = {}
        """framework → its principal; a framework without an entry has none"""
        self._total = 0
        """Number of pairs of all frameworks."""
        self._unlisted: dict[str, ValidationError] = {}
        """Unlisted frameworks, and why."""
        self._to_reject: list[str] = []
        """Unlisted frameworks that the cluster has to quarantine."""
        self._agents: dict[Client, set[str]] = {}
        self._frameworks: dict[str, set[str]] = {}
        """agent → frameworks that exclude the agent in any role"""
        self._may_use: dict[Client, AllExcept] = {}
        self._changes = ChangedExclusions()

    def __len__(self) -> int:
        """Return the number of clients that exclude an agent."""
        return len(self._agents)

    @property
    def changed(self) -> bool:
        """Whether pairs have changed since the last call of `take_changes`."""
        return bool(self._changes)

    def take_changes(self) -> ChangedExclusions:
        """Return the changes since the last call, for `ClientIndex`, which is the only caller."""
        changes, self._changes = self._changes, ChangedExclusions()
        return changes

    def of(self, agent: str) -> Collection[Client]:
        """Return the clients whose offer constraints exclude an agent."""
        clients = list[Client]()
        for framework in self._frameworks.get(agent, ()):
            pairs = self._pairs[framework]
            bits = pairs.by_agent[agent]
            while bits:
                lowest = bits & -bits
                clients.append(Client(pairs.roles[lowest], framework))
                bits ^= lowest
        return clients

    def number(self, client: Client) -> int:
        """Return how many agents a client's offer constraints exclude."""
        return len(self._agents.get(client, ()))

    def excludes(self, client: Client, agent: str) -> bool:
        """Return whether a client's offer constraints exclude an agent."""
        return agent in self._agents.get(client, ())

    def put_agent(self, agent: str, clients: Collection[Client]) -> list[Client]:
        """Replace the clients whose offer constraints exclude an agent.

        Returns:
            The clients for which the agent is newly excluded, or no longer excluded.
        """
        return run_to_completion(self.put_agent_in_steps(agent, clients))

    def put_agent_in_steps(
        self, agent: str, clients: Collection[Client]
    ) -> Cooperative[list[Client]]:
        """Generator form of `put_agent`."""
        before = set(self.of(agent))
        if self._unlisted:
            clients = {client for client in clients if client.framework not in self._unlisted}
        changed = sorted(before.symmetric_difference(clients))
        if changed:
            self._changes.agents[agent] = None
        for number, client in enumerate(changed, 1):
            if not number % _CLIENTS_A_STEP:
                yield
            if client.framework in self._unlisted:
                continue  # perhaps only since an earlier client, so its pairs are gone
            if client in before:
                yield from self._admit(client, {agent})
            else:
                yield from self._exclude(client, {agent})
        self._limit_changes()
        return changed

    def note_removed(self, agent: str) -> None:
        """Report a removed agent among the changes. `ClientIndex` then forgets the agent."""
        self._changes.agents[agent] = None
        self._limit_changes()

    def set_principal(self, framework: str, principal: str) -> None:
        """Set a framework's principal, if agents that exclude the framework come before it."""
        if principal:
            self._principals[framework] = principal

    def add_framework(
        self, framework: str, agents: Mapping[str, Iterable[str]], principal: str = ""
    ) -> None:
        """Record the agents that a new framework's offer constraints exclude, by role.

        Args:
            framework: The framework's ID.
            agents: IDs of excluded agents by role.
            principal: The framework's principal; empty without one. All frameworks without a
                principal count as frameworks of one principal.
        """
        run_to_completion(self.add_framework_in_steps(framework, agents, principal))

    def add_framework_in_steps(
        self, framework: str, agents: Mapping[str, Iterable[str]], principal: str = ""
    ) -> Cooperative[None]:
        """Generator form of `add_framework`."""
        yield from self._add((yield from _sets(agents)), framework, principal)

    def _add(
        self, excluded: Mapping[str, set[str]], framework: str, principal: str
    ) -> Cooperative[None]:
        """Record the agents that a framework excludes: IDs by role. See `add_framework`."""
        self.set_principal(framework, principal)
        if framework in self._unlisted:
            self._to_reject.append(framework)
            return
        pairs = self._pairs_beyond_own(framework, excluded)
        if pairs:
            yield from self.unlist(framework, self._too_many(pairs, self._own_maximum))
            return
        total = self._total + sum(map(len, excluded.values()))
        if not 0 < self._most_of_all < total:
            known = {role: self._agents.get(Client(role, framework), _NONE) for role in excluded}
            yield from self._replace(
                framework,
                {
                    role: names | known[role] if known[role] else names  # shared, if they can be
                    for role, names in excluded.items()
                },
            )
            return
        for role, names in excluded.items():
            client = Client(role, framework)
            self._changes.clients[client] = None
            yield from self._exclude(client, names)
            if framework in self._unlisted:
                return
            yield
        self._limit_changes()

    def unlist(self, framework: str, flaw: ValidationError = _UNLISTED) -> Cooperative[None]:
        """Forget the agents that a framework excludes, and ignore further exclusions by it.

        Exclusions count again once the framework is updated or removed. Generator for cooperative
        steps.

        Args:
            framework: The framework's ID.
            flaw: The reason, for `take_unlisted`.
        """
        yield from self.discard_framework_in_steps(framework)
        self._unlisted[framework] = flaw
        self._to_reject.append(framework)

    def take_unlisted(self) -> list[tuple[str, ValidationError]]:
        """Return the frameworks that were unlisted since the last call, for the quarantine.

        Returns:
            Pairs of a framework's ID and the reason.
        """
        taken, self._to_reject = self._to_reject, []
        return [(name, self._unlisted[name]) for name in taken if name in self._unlisted]

    def put_framework(
        self, framework: str, agents: Mapping[str, Iterable[str]], principal: str = ""
    ) -> None:
        """Replace the agents that a framework's offer constraints exclude: role → agent IDs.

        If the limits permit all pairs, only pairs that differ from the former ones cost more than
        a comparison.
        """
        run_to_completion(self.put_framework_in_steps(framework, agents, principal))

    def put_framework_in_steps(
        self, framework: str, agents: Mapping[str, Iterable[str]], principal: str = ""
    ) -> Cooperative[None]:
        """Generator form of `put_framework`."""
        excluded = yield from _sets(agents)
        pairs = sum(map(len, excluded.values()))
        total = self._total - self._number(framework) + pairs
        if 0 < self._most < pairs or 0 < self._most_of_all < total:
            yield from self.discard_framework_in_steps(framework)
            yield from self._add(excluded, framework, principal)
            return
        self._unlisted.pop(framework, None)
        self._principals.pop(framework, None)
        self.set_principal(framework, principal)
        roles = (*excluded, *self._roles(framework))
        yield from self._replace(framework, {role: excluded.get(role, _NONE) for role in roles})

    def discard_framework(self, framework: str) -> None:
        """Forget the exclusions of a removed framework, and whether it was unlisted."""
        run_to_completion(self.discard_framework_in_steps(framework))

    def discard_framework_in_steps(self, framework: str) -> Cooperative[None]:
        """Generator form of `discard_framework`."""
        self._unlisted.pop(framework, None)
        self._principals.pop(framework, None)
        yield from self._replace(framework, dict.fromkeys(self._roles(framework), _NONE))

    def may_use(self, client: Client, constraint: MayUse | None) -> MayUse | None:
        """Return a predicate over agent IDs: whether all constraints let the client use an agent.

        The result is None if all agents are allowed. The predicate reflects agents that are added
        or removed later. The method returns the same object as long as `constraint` is unchanged
        and the client excludes an agent.

        Args:
            client: The client whose offer constraints must hold.
            constraint: Predicate of the placement constraint, which must hold, too; None: all
                agents.
        """
        if client not in self._agents:
            return constraint
        known = self._may_use.get(client)
        if known is None or known.base != constraint:
            known = self._may_use[client] = AllExcept(constraint, self._agents[client])
        return known

    def _number(self, framework: str) -> int:
        """Return the number of a framework's pairs."""
        pairs = self._pairs.get(framework)
        return 0 if pairs is None else pairs.number

    def _roles(self, framework: str) -> list[str]:
        """Return the roles in which a framework excludes agents, in a fixed order."""
        pairs = self._pairs.get(framework)
        return [] if pairs is None else sorted(pairs.bits)

    def _own_set(self, client: Client) -> set[str]:
        """Return a client's set of excluded agents, copied first if another client may share it."""
        agents = self._agents.setdefault(client, set())
        pairs = self._pairs.get(client.framework)
        if pairs is not None and client.role in pairs.shared:
            pairs.shared.discard(client.role)
            agents = self._agents[client] = agents.copy()
            predicate = self._may_use.get(client)
            if predicate is not None:
                predicate.excluded = agents
        return agents

    def _replace(self, framework: str, agents: Mapping[str, set[str]]) -> Cooperative[None]:
        """Replace the agents that a framework excludes in some roles. No limit may be exceeded.

        Args:
            framework: The framework's ID.
            agents: IDs of excluded agents by role. Roles may share a set. They are then changed
                together. The sets become a part of the exclusions.
        """
        if not agents:
            return
        toggled: dict[tuple[int, int], tuple[set[str], int]] = {}
        changed: dict[Client, set[str]] = {}
        added = 0
        pairs = self._pairs.setdefault(framework, _FrameworkPairs())
        for role, now in agents.items():
            client = Client(role, framework)
            before = self._agents.get(client, _NONE)
            key = id(now), id(before)
            if key not in toggled:
                toggled[key] = now ^ before, 0
            difference, bits = toggled[key]
            if difference:
                changed[client] = now
                self._may_use.pop(client, None)  # a new predicate shows that its result may differ
                toggled[key] = difference, bits | pairs.bit(role)
                added += len(now) - len(before)
            yield
        for client, now in changed.items():
            self._changes.clients[client] = None
            if now:
                self._agents[client] = now
                pairs.shared.add(client.role)
            else:
                del self._agents[client]
        yield from self._toggle(framework, toggled.values(), added)
        for client, now in changed.items():
            if not now:
                pairs.forget(client.role)
        self._limit_changes()

    def _toggle(
        self, framework: str, toggled: Collection[tuple[set[str], int]], added: int
    ) -> Cooperative[None]:
        """Exclude agents in roles in which they are not excluded; admit them in the other roles.

        Args:
            framework: The framework's ID.
            toggled: Agents, and the roles in which they change, as in `_FrameworkPairs`.
            added: Number of pairs by which the framework's pairs increase.
        """
        pairs = self._pairs.setdefault(framework, _FrameworkPairs())
        by_agent = pairs.by_agent
        for agents, bits in toggled:
            for number, agent in enumerate(agents, 1):
                if not number % _PAIRS_A_STEP:
                    yield
                by_agent[agent] = by_agent.get(agent, 0) ^ bits
            yield
        for number, agent in enumerate(set[str]().union(*(agents for agents, _ in toggled)), 1):
            if not number % _PAIRS_A_STEP:
                yield
            if by_agent[agent]:
                self._frameworks.setdefault(agent, set()).add(framework)
                continue
            del by_agent[agent]
            frameworks = self._frameworks.get(agent, set())
            frameworks.discard(framework)
            if not frameworks:
                self._frameworks.pop(agent, None)
        self._total += added
        pairs.number += added
        if not pairs.number:
            del self._pairs[framework]
        yield

    def _exclude(self, client: Client, agents: set[str]) -> Cooperative[None]:
        """Add pairs of a client; unlist a framework if there are too many pairs then."""
        added = agents.difference(self._agents.get(client, _NONE))
        if not added:
            return
        self._own_set(client).update(added)
        framework = client.framework
        bit = self._pairs.setdefault(framework, _FrameworkPairs()).bit(client.role)
        yield from self._toggle(framework, [(added, bit)], len(added))
        if 0 < self._most < self._number(framework):
            flaw = self._too_many(self._number(framework), self._own_maximum)
            yield from self.unlist(framework, flaw)
        elif 0 < self._most_of_all < self._total:
            yield from self._unlist_largest()

    def _unlist_largest(self) -> Cooperative[None]:
        """Unlist frameworks until all frameworks together have no more than their maximum of pairs.

        Each time, the principal that excludes the most pairs loses its framework with the most
        pairs. So a principal with many frameworks does not displace a framework of another
        principal. Costs O(F log F), where F is the number of frameworks with pairs.
        """
        totals = Counter[str]()
        frameworks: dict[str, list[tuple[int, str]]] = {}
        for number, (name, pairs) in enumerate(self._pairs.items(), 1):
            principal = self._principals.get(name, "")
            totals[principal] += pairs.number
            frameworks.setdefault(principal, []).append((pairs.number, name))
            if not number % _PAIRS_A_STEP:
                yield
        for owned in frameworks.values():
            owned.sort()
            yield
        largest = [
            (-total, number, principal) for number, (principal, total) in enumerate(totals.items())
        ]
        heapify(largest)
        while self._total > self._most_of_all:
            negative_total, number, principal = heappop(largest)
            number_of_pairs, framework = frameworks[principal].pop()
            maximum = (
                f"its principal {-negative_total}, the most of any principal, and all frameworks "
                f"together more than {self._most_of_all} (limits.all_exclusions)"
            )
            yield from self.unlist(framework, self._too_many(number_of_pairs, maximum))
            heappush(largest, (negative_total + number_of_pairs, number, principal))

    def _too_many(self, pairs: int, maximum: str) -> ValidationError:
        """Return the reason to unlist a framework with a number of pairs, beyond a maximum."""
        said = f"its offer constraints exclude {pairs} pairs of a role and an agent, {maximum}"
        return ValidationError("limit", said)

    def _pairs_beyond_own(self, framework: str, excluded: Mapping[str, set[str]]) -> int:
        """Return the pairs with which a framework exceeds its own maximum, before any is recorded.

        The result is 0 if the framework does not exceed its maximum, or if all frameworks together
        exceed theirs first.

        Args:
            framework: The framework's ID.
            excluded: IDs of further excluded agents by role.
        """
        pairs = self._number(framework)
        others = self._total - pairs
        for role, names in excluded.items():
            if 0 < self._most_of_all < others + pairs:
                return 0
            known = self._agents.get(Client(role, framework))
            pairs += len(names if known is None else names - known)
            if 0 < self._most < pairs:
                return pairs
        return 0

    def _limit_changes(self) -> None:
        """Replace the recorded changes by the mark that all pairs have changed, if too many."""
        changes = self._changes
        number = len(changes.clients) + len(changes.agents)
        if number > _MANY + len(self._agents) + len(self._frameworks):
            self._changes = ChangedExclusions(known=False)

    def _admit(self, client: Client, agents: set[str]) -> Cooperative[None]:
        """Remove known pairs of a client."""
        pairs, remaining = self._pairs[client.framework], self._own_set(client)
        remaining -= agents
        yield from self._toggle(client.framework, [(agents, pairs.bit(client.role))], -len(agents))
        if not remaining:
            del self._agents[client]
            self._may_use.pop(client, None)
            pairs.forget(client.role)


def _sets(agents: Mapping[str, Iterable[str]]) -> Cooperative[dict[str, set[str]]]:
    """Return the given agents of each role as a set. Generator for cooperative steps.

    Roles with equal lists share one set.
    """
    known: dict[tuple[str, ...], set[str]] = {}
    sets: dict[str, set[str]] = {}
    for role, names in agents.items():
        listed = tuple(names)
        if listed not in known:
            known[listed] = set(map(intern, listed))
        sets[role] = known[listed]
        yield
    return sets
