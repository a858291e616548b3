"""Exclusions: agents that must not be offered to a framework in a role, by offer constraints."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain, compress, filterfalse, islice, repeat
from sys import intern
from typing import TypeAlias

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
_AGENTS_A_STEP = 250
"""Agents, or frameworks with pairs, in a cooperative step."""
_NAMES_A_STEP = 5000
"""Names of agents that one cooperative step reads from a list."""
_ROLES_A_STEP = 50
"""Roles of a framework in a cooperative step, of which each gets another set of agents."""
_CLIENTS_A_STEP = 200
"""Clients in a cooperative step, if each has a changed pair with the same agent."""


_FEW_ROLES = 4
"""Number of a framework's roles with pairs up to which no table by agent is worth its memory."""
_ONE = ord("1")
_FLAGS = bytes.maketrans(b"01", b"\0\1")

AgentMask: TypeAlias = int
"""A set of agents: an integer in which each agent with a number in `Exclusions` has one bit."""


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
    """The pairs of one framework: a set of agents for each role, and a table by agent."""

    masks: dict[str, AgentMask] = field(default_factory=dict)
    """The agents that each role excludes; no entry without agents."""
    agents: AgentMask = 0
    """The agents that any role excludes, since the last count."""
    number: int = 0
    """Number of pairs."""
    roles: tuple[str, ...] = ()
    """The keys of `masks` as of the last call of `row`; a new object if they have changed."""
    rows: bytearray = field(default_factory=bytearray)
    """For each agent, by number, a row of bytes with a bit for each of `roles`; empty if the rows
    must be built."""

    def put(self, role: str, agents: AgentMask) -> None:
        """Replace the agents that a role excludes."""
        before = self.masks.get(role, 0)
        self.number += agents.bit_count() - before.bit_count()
        if agents:
            self.masks[role] = agents
        else:
            self.masks.pop(role, None)
        self.rows = bytearray()
        if not (agents and before):
            self.roles = ()

    def toggle(self, role: str, agent: int) -> None:
        """Exclude an agent, given by its number, in a role; admit it if the role excludes it."""
        before = self.masks.get(role, 0)
        agents = before ^ 1 << agent
        width = len(self.roles) + 7 >> 3
        if self.rows and before and agents and width * (agent + 1) <= len(self.rows):
            place = self.roles.index(role)
            self.rows[width * agent + (place >> 3)] ^= 1 << (place & 7)
            self.masks[role] = agents
            self.number += 1 if agents > before else -1
        else:
            self.put(role, agents)

    def row(self, agent: int) -> bytes:
        """Return the roles that exclude an agent, given by its number: a bit for each of `roles`.

        The first role has the lowest bit of the first byte.
        """
        if not self.roles:
            self.roles = tuple(self.masks)
        if len(self.roles) <= _FEW_ROLES:
            bits = 0
            for place, mask in enumerate(self.masks.values()):
                bits |= (mask >> agent & 1) << place
            return bytes((bits,))
        if not self.rows:
            self._build_rows()
        width = len(self.roles) + 7 >> 3
        return bytes(self.rows[width * agent : width * (agent + 1)])

    def _build_rows(self) -> None:
        """Build `rows`, from eight roles at a time: each agent has a byte of one long integer."""
        masks, width = [*self.masks.values()], len(self.roles) + 7 >> 3
        agents = max(mask.bit_length() for mask in masks)
        self.rows = bytearray(agents * width)
        for first in range(0, len(masks), 8):
            column = 0
            for place, mask in enumerate(masks[first : first + 8]):
                digits = f"{mask:0{agents}b}".encode().translate(_FLAGS)
                column |= int.from_bytes(digits, "big") << place
            self.rows[first >> 3 :: width] = column.to_bytes(agents, "little")


class ExcludedAgents:
    """The agents that a client's offer constraints exclude, by ID.

    Args:
        agents: The agents.
        numbers: The number of each agent that any client excludes; shared by all sets.
        names: The agent ID of each number, also of free numbers; shared by all sets.
    """

    def __init__(self, agents: AgentMask, numbers: Mapping[str, int], names: Sequence[str]) -> None:
        self._agents = agents
        self._numbers = numbers
        self._names = names

    def __contains__(self, agent: object) -> bool:
        """Return whether an agent, given by its ID, is in the set."""
        number = self._numbers.get(agent) if isinstance(agent, str) else None
        return number is not None and self._agents >> number & 1 == 1

    def __iter__(self) -> Iterator[str]:
        return _members(self._agents, self._names)

    def __len__(self) -> int:
        return self._agents.bit_count()


class Exclusions:
    """The pairs of client and agent that offer constraints exclude (Mesos 1.11).

    Only the master's side can evaluate offer constraints; it reports the excluded pairs. Frameworks
    and agents may be reported before they are added. The pairs of a removed framework or agent are
    forgotten. A framework may have 100,000 pairs, so methods for changes have generator forms.
    Pairs are kept as sets of agents, so that a changed role costs an operation on integers.

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
        self._clients = 0
        """Number of clients that exclude an agent."""
        self._frameworks: dict[str, set[str]] = {}
        """agent → frameworks that exclude the agent in any role"""
        self._numbers: dict[str, int] = {}
        """agent → its number, the bit in sets of agents; only of agents that are excluded"""
        self._names: list[str] = []
        """The agent ID of each number, also of free numbers."""
        self._free: list[int] = []
        """Free numbers."""
        self._numbered: list[str] = []
        """Agents whose numbers are perhaps not needed after the present change."""
        self._may_use: dict[Client, AllExcept] = {}
        self._changes = ChangedExclusions()

    def __len__(self) -> int:
        """Return the number of clients that exclude an agent."""
        return self._clients

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
        number = self._numbers.get(agent)
        if number is None:
            return []
        return [
            Client(role, framework)
            for framework in self._frameworks.get(agent, ())
            for role, agents in self._pairs[framework].masks.items()
            if agents >> number & 1
        ]

    def frameworks(self, agent: str) -> Collection[str]:
        """Return the frameworks that exclude an agent in any role, by ID."""
        return self._frameworks.get(agent, ())

    def row(self, framework: str, agent: str) -> tuple[tuple[str, ...], bytes]:
        """Return the roles in which a framework excludes agents, and which exclude this agent.

        Bit i % 8 of byte i // 8 says whether role i excludes the agent. Bytes may be missing at the
        end. As long as the roles stay, they are the same object.
        """
        pairs, number = self._pairs.get(framework), self._numbers.get(agent)
        if pairs is None or number is None:
            return (), b""
        row = pairs.row(number)
        return pairs.roles, row

    def number(self, client: Client) -> int:
        """Return how many agents a client's offer constraints exclude."""
        return self._agents_of(client).bit_count()

    def excludes(self, client: Client, agent: str) -> bool:
        """Return whether a client's offer constraints exclude an agent."""
        number = self._numbers.get(agent)
        return number is not None and self._agents_of(client) >> number & 1 == 1

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
        if not changed:
            return changed
        self._changes.agents[agent] = None
        self._assign_numbers((agent,))
        bit = 1 << self._numbers[agent]
        for number, client in enumerate(changed, 1):
            if not number % _CLIENTS_A_STEP:
                yield
            if client.framework in self._unlisted:
                continue  # perhaps only since an earlier client, so its pairs are gone
            if client in before:
                self._toggle(client, agent)
            else:
                yield from self._exclude(client, bit)
        for framework in dict.fromkeys(client.framework for client in changed):
            self._count_agent(framework, agent)
        self._release_numbers()
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
        yield from self._add((yield from self._read(agents)), framework, principal)
        self._release_numbers()

    def _add(
        self, excluded: Mapping[str, AgentMask], framework: str, principal: str
    ) -> Cooperative[None]:
        """Record the agents that a framework excludes, by role. See `add_framework`."""
        self.set_principal(framework, principal)
        if framework in self._unlisted:
            self._to_reject.append(framework)
            return
        pairs = self._pairs_beyond_own(framework, excluded)
        if pairs:
            yield from self._unlist(framework, self._too_many(pairs, self._own_maximum))
            return
        total = self._total + sum(agents.bit_count() for agents in excluded.values())
        if not 0 < self._most_of_all < total:
            known = self._masks(framework)
            yield from self._replace(
                framework, {role: mask | known.get(role, 0) for role, mask in excluded.items()}
            )
            return
        for role, mask in excluded.items():
            client = Client(role, framework)
            self._changes.clients[client] = None
            yield from self._exclude(client, mask)
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
        yield from self._unlist(framework, flaw)
        self._release_numbers()

    def _unlist(self, framework: str, flaw: ValidationError) -> Cooperative[None]:
        """Unlist a framework; `_release_numbers` must follow."""
        yield from self._discard(framework)
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
        excluded = yield from self._read(agents)
        pairs = sum(mask.bit_count() for mask in excluded.values())
        total = self._total - self._number(framework) + pairs
        if 0 < self._most < pairs or 0 < self._most_of_all < total:
            yield from self._discard(framework)
            yield from self._add(excluded, framework, principal)
        else:
            self._unlisted.pop(framework, None)
            self._principals.pop(framework, None)
            self.set_principal(framework, principal)
            roles = (*excluded, *self._roles(framework))
            yield from self._replace(framework, {role: excluded.get(role, 0) for role in roles})
        self._release_numbers()

    def discard_framework(self, framework: str) -> None:
        """Forget the exclusions of a removed framework, and whether it was unlisted."""
        run_to_completion(self.discard_framework_in_steps(framework))

    def discard_framework_in_steps(self, framework: str) -> Cooperative[None]:
        """Generator form of `discard_framework`."""
        yield from self._discard(framework)
        self._release_numbers()

    def _discard(self, framework: str) -> Cooperative[None]:
        """Discard a framework; `_release_numbers` must follow."""
        self._unlisted.pop(framework, None)
        self._principals.pop(framework, None)
        yield from self._replace(framework, dict.fromkeys(self._roles(framework), 0))

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
        agents = self._agents_of(client)
        if not agents:
            return constraint
        known = self._may_use.get(client)
        if known is None or known.base != constraint:
            known = self._may_use[client] = AllExcept(constraint, self._excluded(agents))
        return known

    def _excluded(self, agents: AgentMask) -> ExcludedAgents:
        """Return a set of agents by ID."""
        return ExcludedAgents(agents, self._numbers, self._names)

    def _masks(self, framework: str) -> Mapping[str, AgentMask]:
        """Return the agents that each role of a framework excludes."""
        pairs = self._pairs.get(framework)
        return {} if pairs is None else pairs.masks

    def _agents_of(self, client: Client) -> AgentMask:
        """Return the agents that a client excludes."""
        pairs = self._pairs.get(client.framework)
        return 0 if pairs is None else pairs.masks.get(client.role, 0)

    def _read(self, agents: Mapping[str, Iterable[str]]) -> Cooperative[dict[str, AgentMask]]:
        """Return the given agents of each role as a set. Generator for cooperative steps.

        Agents get numbers, which `_release_numbers` frees if no framework excludes them then.
        """
        numbers, masks = self._numbers, dict[str, AgentMask]()
        for role, names in agents.items():
            remaining, digits = iter(names), bytearray()
            while listed := list(islice(remaining, _NAMES_A_STEP)):
                self._assign_numbers(listed)
                places = map(numbers.__getitem__, listed)
                digits.extend(b"0" * (len(self._names) - len(digits)))
                deque(map(digits.__setitem__, places, repeat(_ONE)), 0)
                yield
            masks[role] = int(digits[::-1], 2) if digits else 0
        return masks

    def _assign_numbers(self, agents: Iterable[str]) -> None:
        """Assign numbers to the agents that have none. Python code runs for no single agent."""
        new = list(map(intern, dict.fromkeys(filterfalse(self._numbers.__contains__, agents))))
        if not new:
            return
        reused = self._free[-len(new) :]
        del self._free[-len(new) :]
        deque(map(self._names.__setitem__, reused, new), 0)
        first = len(self._names)
        self._names.extend(new[len(reused) :])
        self._numbers.update(zip(new, chain(reused, range(first, len(self._names))), strict=True))
        self._numbered.extend(new)

    def _release_numbers(self) -> None:
        """Free the numbers of agents that no framework excludes any more."""
        unused = filterfalse(self._frameworks.__contains__, dict.fromkeys(self._numbered))
        self._free.extend(map(self._numbers.pop, unused))
        self._numbered.clear()

    def _number(self, framework: str) -> int:
        """Return the number of a framework's pairs."""
        pairs = self._pairs.get(framework)
        return 0 if pairs is None else pairs.number

    def _roles(self, framework: str) -> list[str]:
        """Return the roles in which a framework excludes agents, in a fixed order."""
        pairs = self._pairs.get(framework)
        return [] if pairs is None else sorted(pairs.masks)

    def _replace(self, framework: str, masks: Mapping[str, AgentMask]) -> Cooperative[None]:
        """Replace the agents that a framework excludes in some roles. No limit may be exceeded.

        Args:
            framework: The framework's ID.
            masks: Excluded agents by role.
        """
        known = self._masks(framework)
        changed = [(role, mask) for role, mask in masks.items() if mask != known.get(role, 0)]
        for number, (role, mask) in enumerate(changed):
            if not number % _ROLES_A_STEP:
                yield
            client = Client(role, framework)
            self._changes.clients[client] = None
            self._may_use.pop(client, None)  # a new predicate shows that its result may differ
            self._put(client, mask)
        if changed:
            yield from self._count_agents(framework)
            self._limit_changes()

    def _put(self, client: Client, agents: AgentMask) -> None:
        """Replace the agents that a client excludes; `_count_agents` must follow."""
        pairs = self._pairs.setdefault(client.framework, _FrameworkPairs())
        self._total -= pairs.number
        self._clients -= len(pairs.masks)
        pairs.put(client.role, agents)
        self._total += pairs.number
        self._clients += len(pairs.masks)

    def _toggle(self, client: Client, agent: str) -> None:
        """Exclude an agent for a client, or admit it; `_count_agent` must follow."""
        pairs = self._pairs.setdefault(client.framework, _FrameworkPairs())
        self._total -= pairs.number
        self._clients -= len(pairs.masks)
        pairs.toggle(client.role, self._numbers[agent])
        self._total += pairs.number
        self._clients += len(pairs.masks)
        predicate = self._may_use.get(client)
        if predicate is not None:
            predicate.excluded = self._excluded(pairs.masks.get(client.role, 0))
            if client.role not in pairs.masks:
                del self._may_use[client]
        if not pairs.masks:
            del self._pairs[client.framework]
            self._forget_framework(client.framework, agent)

    def _count_agents(self, framework: str) -> Cooperative[None]:
        """Update which agents a framework excludes in any role. Generator for cooperative steps."""
        pairs = self._pairs[framework]
        before, now = pairs.agents, 0
        for mask in pairs.masks.values():
            now |= mask
        pairs.agents = now
        if not now:
            del self._pairs[framework]
        for number, agent in enumerate(_members(now & ~before, self._names), 1):
            if not number % _AGENTS_A_STEP:
                yield
            self._frameworks.setdefault(agent, set()).add(framework)
        for number, agent in enumerate(_members(before & ~now, self._names), 1):
            if not number % _AGENTS_A_STEP:
                yield
            self._forget_framework(framework, agent)
        yield

    def _forget_framework(self, framework: str, agent: str) -> None:
        """Record that a framework excludes an agent in no role any more."""
        frameworks = self._frameworks.get(agent, set())
        frameworks.discard(framework)
        if not frameworks:
            self._frameworks.pop(agent, None)
            self._numbered.append(agent)

    def _exclude(self, client: Client, agents: AgentMask) -> Cooperative[None]:
        """Add pairs of a client; unlist a framework if there are too many pairs then."""
        known = self._agents_of(client)
        if not agents & ~known:
            return
        framework = client.framework
        if agents.bit_count() == 1:
            agent = self._names[agents.bit_length() - 1]
            self._toggle(client, agent)
            self._count_agent(framework, agent)
        else:
            self._put(client, known | agents)
            predicate = self._may_use.get(client)
            if predicate is not None:
                predicate.excluded = self._excluded(known | agents)
            yield from self._count_agents(framework)
        if 0 < self._most < self._number(framework):
            flaw = self._too_many(self._number(framework), self._own_maximum)
            yield from self._unlist(framework, flaw)
        elif 0 < self._most_of_all < self._total:
            yield from self._unlist_largest()

    def _count_agent(self, framework: str, agent: str) -> None:
        """Update whether a framework excludes an agent in any role, as `_count_agents` does."""
        pairs = self._pairs.get(framework)
        if pairs is None:
            return
        number = self._numbers[agent]
        bit = 1 << number
        if any(mask >> number & 1 for mask in pairs.masks.values()):
            pairs.agents |= bit
            self._frameworks.setdefault(agent, set()).add(framework)
        elif pairs.agents & bit:
            pairs.agents ^= bit
            self._forget_framework(framework, agent)

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
            if not number % _AGENTS_A_STEP:
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
            yield from self._unlist(framework, self._too_many(number_of_pairs, maximum))
            heappush(largest, (negative_total + number_of_pairs, number, principal))

    def _too_many(self, pairs: int, maximum: str) -> ValidationError:
        """Return the reason to unlist a framework with a number of pairs, beyond a maximum."""
        said = f"its offer constraints exclude {pairs} pairs of a role and an agent, {maximum}"
        return ValidationError("limit", said)

    def _pairs_beyond_own(self, framework: str, excluded: Mapping[str, AgentMask]) -> int:
        """Return the pairs with which a framework exceeds its own maximum, before any is recorded.

        The result is 0 if the framework does not exceed its maximum, or if all frameworks together
        exceed theirs first.

        Args:
            framework: The framework's ID.
            excluded: Further excluded agents by role.
        """
        pairs, known = self._number(framework), self._masks(framework)
        others = self._total - pairs
        for role, agents in excluded.items():
            if 0 < self._most_of_all < others + pairs:
                return 0
            pairs += (agents & ~known.get(role, 0)).bit_count()
            if 0 < self._most < pairs:
                return pairs
        return 0

    def _limit_changes(self) -> None:
        """Replace the recorded changes by the mark that all pairs have changed, if too many."""
        changes = self._changes
        number = len(changes.clients) + len(changes.agents)
        if number > _MANY + self._clients + len(self._frameworks):
            self._changes = ChangedExclusions(known=False)


def _members(agents: AgentMask, names: Sequence[str]) -> Iterator[str]:
    """Return an iterator over the IDs of a set of agents.

    Args:
        agents: The agents.
        names: The agent ID of each number.
    """
    return compress(names, f"{agents:b}"[::-1].encode().translate(_FLAGS))
