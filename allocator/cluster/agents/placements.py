"""Tracks which agents meet each framework's placement constraints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TypeAlias

from allocator.cluster.agents.globs import NameMask
from allocator.cluster.agents.placement_constraints import Constraint, Host, HostTable, suggest
from allocator.cluster.frameworks.framework import Framework
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.machines import MayUse

_FLAGS = bytes.maketrans(b"01", b"\0\1")
_Key: TypeAlias = tuple[Constraint, ...]
"""Constraints that an agent must all meet."""

_TESTS_PER_STEP = 50
"""Number of combinations of constraints that one cooperative step tests on an agent."""
_AGENTS_A_TABLE = 8192
"""Number of agents whose hosts are one table. A changed agent costs the renewal of its table."""


class EligibleAgents:
    """A set of agents, with one byte for each agent of the cluster.

    The cluster may have a set for each framework. Sets of names would take too much memory.

    Args:
        slots: The number of each known agent; shared by all sets.
        names: The agent ID of each number, also of free numbers; shared by all sets.
    """

    def __init__(self, slots: Mapping[str, int], names: Sequence[str]) -> None:
        self._slots = slots
        self._names = names
        self._flags = bytearray(len(names))

    def __contains__(self, agent: object) -> bool:
        """Return whether an agent, given by its ID, is in the set."""
        slot = self._slots.get(agent) if isinstance(agent, str) else None
        return slot is not None and slot < len(self._flags) and self._flags[slot] == 1

    def __iter__(self) -> Iterator[str]:
        return compress(self._names, self._flags)

    def __len__(self) -> int:
        return self._flags.count(1)

    def put(self, agent: str, *, eligible: bool) -> None:
        """Add a known agent to the set, or remove the agent from the set."""
        slot = self._slots[agent]
        if slot >= len(self._flags):
            self._flags.extend(bytes(len(self._names) - len(self._flags)))
        self._flags[slot] = eligible

    def put_table(self, begin: int, length: int, eligible: NameMask) -> None:
        """Replace which agents of a table are in the set.

        Args:
            begin: Number of the first agent of the table.
            length: Number of agents of the table.
            eligible: The agents to put into the set; bit i represents agent `begin + i`.
        """
        digits = f"{eligible:0{length}b}"[::-1].encode()
        self._flags[begin : begin + length] = digits.translate(_FLAGS)


@dataclass(slots=True, eq=False)
class ConstraintGroup:
    """Frameworks with the same placement constraints, and the agents that meet them.

    Each agent is tested only once for all these frameworks.
    """

    key: _Key
    """The constraints; an agent must meet all of them."""
    agents: EligibleAgents
    """The agents that meet the constraints."""
    frameworks: dict[str, None] = field(default_factory=dict)
    """IDs of the frameworks with these constraints, in order of arrival."""

    def update(self, agent: str, host: Host) -> None:
        """Test an agent against the constraints; add it to, or remove it from, `agents`."""
        eligible = all(constraint.admits(host) for constraint in self.key)
        self.agents.put(agent, eligible=eligible)


class Placements:
    """The eligible agents of each framework, kept up to date as agents and constraints change.

    Each agent is tested once with each different combination of constraints. A new agent costs
    O(constraints). A new combination of constraints is tested on tables of agents. A framework
    with a known combination costs O(1). An agent must meet both the operator's constraint and the
    framework's constraint.

    Args:
        given: Constraints set by the operator, by framework name.
    """

    def __init__(self, given: Mapping[str, Constraint]) -> None:
        self._operator_constraints = given
        self._hosts: dict[str, Host] = {}
        self._slots: dict[str, int] = {}
        """Number of each agent in the sets of eligible agents; numbers are reused."""
        self._names: list[str] = []
        """The agent ID of each number."""
        self._free: list[int] = []
        """Numbers of removed agents."""
        self._tables: dict[int, HostTable] = {}
        """Hosts by the first number of a table, unless an agent has changed since the last use."""
        self._by_key: dict[_Key, ConstraintGroup] = {}
        self._by_framework: dict[str, ConstraintGroup] = {}

    def put_agent(self, agent: str, host: Host) -> Cooperative[bool]:
        """Add an agent, or replace its description; return whether the description is new.

        Generator for cooperative steps.
        """
        if self._hosts.get(agent) == host:
            return False
        self._hosts[agent] = host
        if agent not in self._slots:
            if self._free:
                self._slots[agent] = slot = self._free.pop()
                self._names[slot] = agent
            else:
                self._slots[agent] = len(self._names)
                self._names.append(agent)
        self._forget_table(agent)
        for number, match in enumerate(self._by_key.values()):
            if number % _TESTS_PER_STEP == 0:
                yield
            match.update(agent, host)
        return True

    def discard_agent(self, agent: str) -> None:
        """Forget a removed agent."""
        self._forget_table(agent)
        del self._hosts[agent]
        for match in self._by_key.values():
            match.agents.put(agent, eligible=False)
        self._free.append(self._slots.pop(agent))

    def host(self, agent: str) -> Host | None:
        """Return an agent's description; None for an unknown agent.

        As long as the description is unchanged, the method returns the same object.
        """
        return self._hosts.get(agent)

    def prepare_framework(self, name: str, constraint: Constraint) -> Cooperative[None]:
        """Test all agents for a framework that `put_framework` will add or update.

        Generator for cooperative steps.

        Args:
            name: The framework's name.
            constraint: The framework's constraint.
        """
        key = self._key(name, constraint)
        if key and key not in self._by_key:
            yield from self._add_group(key)

    def put_framework(self, framework: Framework) -> None:
        """Add a framework, or update its name and its constraint."""
        key = self._key(framework.name, framework.constraint)
        before = self._by_framework.get(framework.id)
        if (before.key if before is not None else ()) == key:
            return
        self.discard_framework(framework.id)
        if key:
            match = self._by_key.get(key) or run_to_completion(self._add_group(key))
            match.frameworks[framework.id] = None
            self._by_framework[framework.id] = match

    def _key(self, name: str, constraint: Constraint) -> _Key:
        given = self._operator_constraints.get(name)
        return tuple(part for part in (given, constraint) if part)

    def _add_group(self, key: _Key) -> Cooperative[ConstraintGroup]:
        """Add a group without frameworks, and test all agents against its constraints."""
        match = self._by_key[key] = ConstraintGroup(key, EligibleAgents(self._slots, self._names))
        for begin in range(0, len(self._names), _AGENTS_A_TABLE):
            table = self._table(begin)
            eligible = table.known
            yield
            for constraint in key:
                admitted = yield from constraint.admitted(table)
                eligible &= admitted
            match.agents.put_table(begin, len(table), eligible)
        for constraint in key:
            constraint.prepare()  # for agents that are added or changed
            yield
        return match

    def _table(self, begin: int) -> HostTable:
        """Return the hosts of a table, by the number of its first agent."""
        known = self._tables.get(begin)
        if known is None:
            names = enumerate(self._names[begin : begin + _AGENTS_A_TABLE], begin)
            known = self._tables[begin] = HostTable(
                [
                    self._hosts[name] if self._slots.get(name) == slot else None
                    for slot, name in names
                ]
            )
        return known

    def _forget_table(self, agent: str) -> None:
        """Forget the table of a known agent, because its host has changed."""
        self._tables.pop(self._slots[agent] // _AGENTS_A_TABLE * _AGENTS_A_TABLE, None)

    def discard_framework(self, framework: str) -> None:
        """Forget the constraints of a removed framework, if it has any."""
        match = self._by_framework.pop(framework, None)
        if match is None:
            return
        del match.frameworks[framework]
        if not match.frameworks:
            del self._by_key[match.key]

    def admits(self, framework: str, agent: str) -> bool:
        """Return whether a framework's constraints allow its tasks to run on an agent."""
        match = self._by_framework.get(framework)
        return match is None or agent in match.agents

    def may_use(self, framework: str) -> MayUse | None:
        """Return a predicate over agent IDs: whether constraints let the framework use an agent.

        The result is None if all agents are allowed. The predicate reflects agents that are added
        or removed later. As long as the framework's constraint is unchanged, the method returns the
        same object.
        """
        match = self._by_framework.get(framework)
        return None if match is None else match.agents.__contains__

    def eligible_agents(self, framework: str) -> EligibleAgents | None:
        """Return the IDs of agents on which a framework's tasks may run; None: all agents."""
        match = self._by_framework.get(framework)
        return None if match is None else match.agents

    def group_of(self, framework: str) -> ConstraintGroup | None:
        """Return the frameworks with the same constraints as a framework; None without any.

        As long as the framework's constraint is unchanged, the method returns the same object.
        """
        return self._by_framework.get(framework)

    def number(self, framework: str) -> int:
        """Return on how many agents a framework's tasks may run."""
        match = self._by_framework.get(framework)
        return len(self._hosts) if match is None else len(match.agents)

    def describe(self, framework: str) -> str:
        """Return a description of a framework's constraint; empty without a constraint."""
        match = self._by_framework.get(framework)
        return "" if match is None else " and ".join(map(str, match.key))

    def suggest(self, framework: str) -> Cooperative[str]:
        """Return a sentence about what agents have in place of a requirement that none meets.

        The sentence is empty if an agent meets the framework's constraint. Generator for
        cooperative steps; events may be applied between two steps.
        """
        match = self._by_framework.get(framework)
        if match is None or len(match.agents):
            return ""
        sentence = yield from suggest(match.key, list(self._hosts.values()))
        return sentence
