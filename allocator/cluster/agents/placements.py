"""Which agents each framework may use: constraints matched with agents, as either come and go."""

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from allocator.cluster.agents.placement_constraints import Constraint, Host
from allocator.cluster.frameworks.framework import Framework
from allocator.fairness.machines import MayUse

_Key: TypeAlias = tuple[Constraint, ...]
"""All of these must be met."""


@dataclass(slots=True, eq=False)
class _Places:
    """What is known of constraints that at least one framework has."""

    key: _Key
    agents: set[str] = field(default_factory=set)
    frameworks: dict[str, None] = field(default_factory=dict)

    def match(self, agent: str, host: Host) -> None:
        if all(constraint.admits(host) for constraint in self.key):
            self.agents.add(agent)
        else:
            self.agents.discard(agent)


class Placements:
    """Matches each agent with each different constraint once.

    A new agent is matched with the constraints that there are, a constraint that nobody had yet
    with the agents that there are; a framework whose constraint is known costs O(1). The operator's
    constraint and the framework's own must both be met.

    Args:
        given: The operator's constraints, by framework name.
    """

    def __init__(self, given: Mapping[str, Constraint]) -> None:
        self._given = given
        self._hosts: dict[str, Host] = {}
        self._places: dict[_Key, _Places] = {}
        self._of: dict[str, _Places] = {}

    def put_agent(self, agent: str, host: Host) -> bool:
        """Make an agent known, or say anew what it is; return whether anything changed."""
        if self._hosts.get(agent) == host:
            return False
        self._hosts[agent] = host
        for places in self._places.values():
            places.match(agent, host)
        return True

    def discard_agent(self, agent: str) -> None:
        """Forget an agent."""
        del self._hosts[agent]
        for places in self._places.values():
            places.agents.discard(agent)

    def put_framework(self, framework: Framework) -> None:
        """Make a framework known, or follow a change of its name or its constraint."""
        given = self._given.get(framework.name)
        key = tuple(each for each in (given, framework.constraint) if each)
        before = self._of.get(framework.id)
        if (before.key if before is not None else ()) == key:
            return
        self.discard_framework(framework.id)
        if key:
            places = self._places.get(key)
            if places is None:
                places = self._places[key] = _Places(key)
                for agent, host in self._hosts.items():
                    places.match(agent, host)
            places.frameworks[framework.id] = None
            self._of[framework.id] = places

    def discard_framework(self, framework: str) -> None:
        """Forget a framework, if it is known."""
        places = self._of.pop(framework, None)
        if places is None:
            return
        del places.frameworks[framework]
        if not places.frameworks:
            del self._places[places.key]

    def admits(self, framework: str, agent: str) -> bool:
        """Whether a framework's tasks may run on an agent."""
        places = self._of.get(framework)
        return places is None or agent in places.agents

    def may_use(self, framework: str) -> MayUse | None:
        """Return what tells on which agents a framework's tasks may run; None: on all.

        It follows agents that come and go, and stays the same while the constraint does.
        """
        places = self._of.get(framework)
        return None if places is None else places.agents.__contains__

    def met_by(self, framework: str) -> AbstractSet[str] | None:
        """Return the agents that a framework's tasks may run on; None: all."""
        places = self._of.get(framework)
        return None if places is None else places.agents

    def groups(self) -> Iterator[tuple[Collection[str], Collection[str]]]:
        """Go through the different constraints: the agents, and the frameworks."""
        for places in self._places.values():
            yield places.agents, places.frameworks

    def number(self, framework: str) -> int:
        """Return on how many agents a framework's tasks may run."""
        places = self._of.get(framework)
        return len(self._hosts) if places is None else len(places.agents)

    def describe(self, framework: str) -> str:
        """Return a framework's constraint in words; empty: it has none."""
        places = self._of.get(framework)
        return "" if places is None else " and ".join(map(str, places.key))
