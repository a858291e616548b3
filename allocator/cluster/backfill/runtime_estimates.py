"""How long frameworks keep what they take: learned from what comes back."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities

_REMEMBERED = 8
"""Of a framework's latest run times; the longest of them is what it is expected to need."""


@dataclass(slots=True)
class TaskRun:
    """What a client was given on an agent at one time, as far as it has not come back."""

    client: Client
    amounts: Quantities
    begun_ns: int


class RuntimeEstimates:
    """Stays on agents, and what those that are over tell about those that are not.

    What ends is taken off the client's oldest stay, what is declined off its newest. Times are in
    nanoseconds. Each call costs O(stays of the client on the agent).
    """

    def __init__(self) -> None:
        self._stays: dict[str, list[TaskRun]] = {}
        self._latest: dict[str, deque[int]] = {}

    def given(self, client: Client, agent: str, amounts: Quantities, now_ns: int) -> None:
        """Learn that a client is offered something."""
        self._stays.setdefault(agent, []).append(TaskRun(client, amounts, now_ns))

    def ended(self, client: Client, agent: str, amounts: Quantities, now_ns: int) -> None:
        """Learn that something comes back since a task has ended."""
        begun = self._take(client, agent, amounts, newest=False)
        if begun is not None:
            latest = self._latest.setdefault(client.framework, deque(maxlen=_REMEMBERED))
            latest.append(now_ns - begun)

    def declined(self, client: Client, agent: str, amounts: Quantities) -> None:
        """Learn that something of an offer comes back unused."""
        self._take(client, agent, amounts, newest=True)

    def forget_agent(self, agent: str) -> None:
        """Forget an agent that is gone, with all that was on it."""
        self._stays.pop(agent, None)

    def forget_framework(self, framework: str, agents: list[str]) -> None:
        """Forget a framework that is gone, and what it held on some agents."""
        self._latest.pop(framework, None)
        for agent in agents:
            stays = [each for each in self._stays.get(agent, ()) if each.client[1] != framework]
            self._keep(agent, stays)

    def longest_ns(self, framework: str) -> int | None:
        """Return the longest of a framework's latest run times; None: none is known."""
        latest = self._latest.get(framework)
        return max(latest) if latest else None

    def known(self) -> Iterator[tuple[str, int]]:
        """Go through the frameworks of which run times are known, with the longest latest one."""
        for framework, latest in self._latest.items():
            yield framework, max(latest)

    def clients(self, agent: str) -> frozenset[Client]:
        """Return who has anything on an agent."""
        return frozenset(stay.client for stay in self._stays.get(agent, ()))

    def ends(self, agent: str, now_ns: int) -> list[tuple[int, TaskRun]]:
        """Return when stays on an agent are expected to be over, the first of them first.

        What has been there for as long as expected, or of which nothing is known, is expected to
        stay for as long again.
        """
        expected = []
        for stay in self._stays.get(agent, ()):
            age = now_ns - stay.begun_ns
            longest = self.longest_ns(stay.client.framework)
            rest = longest - age if longest is not None and longest > age else age
            expected.append((now_ns + rest, stay))
        return sorted(expected, key=lambda each: each[0])

    def _take(self, client: Client, agent: str, amounts: Quantities, *, newest: bool) -> int | None:
        """Take something off a client's stays; return since when the first of these was there."""
        stays = self._stays.get(agent, [])
        mine = [stay for stay in stays if stay.client == client]
        begun: int | None = None
        for stay in reversed(mine) if newest else mine:
            begun = stay.begun_ns if begun is None else begun
            common = Quantities(
                {name: min(amount, stay.amounts[name]) for name, amount in amounts.items()}
            )
            stay.amounts, amounts = stay.amounts - common, amounts - common
            if not amounts:
                break
        self._keep(agent, [stay for stay in stays if stay.amounts])
        return begun

    def _keep(self, agent: str, stays: list[TaskRun]) -> None:
        if stays:
            self._stays[agent] = stays
        else:
            self._stays.pop(agent, None)
