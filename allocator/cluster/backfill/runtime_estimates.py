"""Runtime estimates: learns from returned resources how long frameworks' tasks run."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities

_LATEST_RUNS = 8
"""Number of latest run times kept for each framework. The longest one is the runtime estimate."""


@dataclass(slots=True)
class TaskRun:
    """Resources that a client got on an agent at one time and has not returned yet."""

    client: Client
    amounts: Quantities
    begun_ns: int


class RuntimeEstimates:
    """The task runs on agents, and estimates of when they end, from earlier run times.

    A *task run* consists of resources that a client got on an agent at one time. Resources of ended
    tasks are subtracted from the client's oldest run on the agent. Declined resources are
    subtracted from the newest run. Times are in nanoseconds. Each call costs O(runs of the client
    on the agent).
    """

    def __init__(self) -> None:
        self._runs: dict[str, list[TaskRun]] = {}
        self._latest: dict[str, deque[int]] = {}

    def record_offer(self, client: Client, agent: str, amounts: Quantities, now_ns: int) -> None:
        """Begin a task run, because a client is offered resources on an agent."""
        self._runs.setdefault(agent, []).append(TaskRun(client, amounts, now_ns))

    def record_end(self, client: Client, agent: str, amounts: Quantities, now_ns: int) -> None:
        """Record that resources return because a task has ended, and learn its run time."""
        begun = self._take(client, agent, amounts, newest=False)
        if begun is not None:
            latest = self._latest.setdefault(client.framework, deque(maxlen=_LATEST_RUNS))
            latest.append(now_ns - begun)

    def record_decline(self, client: Client, agent: str, amounts: Quantities) -> None:
        """Record that offered resources return unused, so no task ran on them."""
        self._take(client, agent, amounts, newest=True)

    def forget_agent(self, agent: str) -> None:
        """Forget an agent that is gone, with its task runs."""
        self._runs.pop(agent, None)

    def forget_framework(self, framework: str, agents: list[str]) -> None:
        """Forget a framework that is gone, and its task runs on the given agents."""
        self._latest.pop(framework, None)
        for agent in agents:
            runs = [run for run in self._runs.get(agent, ()) if run.client[1] != framework]
            self._keep(agent, runs)

    def longest_ns(self, framework: str) -> int | None:
        """Return the longest of a framework's recent run times; None if no run time is known."""
        latest = self._latest.get(framework)
        return max(latest) if latest else None

    def known(self) -> Iterator[tuple[str, int]]:
        """Yield the ID of each framework with known run times, and its longest recent run time."""
        for framework, latest in self._latest.items():
            yield framework, max(latest)

    def clients(self, agent: str) -> frozenset[Client]:
        """Return the clients with task runs on an agent."""
        return frozenset(run.client for run in self._runs.get(agent, ()))

    def ends(self, agent: str, now_ns: int) -> list[tuple[int, TaskRun]]:
        """Return the task runs on an agent with their expected end times, earliest first.

        A run is expected to last as long as the longest recent run of its framework. If this is
        unknown, or the run is older already, the run is expected to last twice its present age.

        Args:
            agent: The agent's ID.
            now_ns: The current time in nanoseconds.

        Returns:
            Pairs of end time in nanoseconds and task run.
        """
        expected = []
        for run in self._runs.get(agent, ()):
            age = now_ns - run.begun_ns
            longest = self.longest_ns(run.client.framework)
            rest = longest - age if longest is not None and longest > age else age
            expected.append((now_ns + rest, run))
        return sorted(expected, key=lambda expected_end: expected_end[0])

    def _take(self, client: Client, agent: str, amounts: Quantities, *, newest: bool) -> int | None:
        """Subtract returned resources from a client's task runs on an agent.

        Args:
            client: The client that returned the resources.
            agent: The agent's ID.
            amounts: The returned quantities.
            newest: Whether to subtract from the newest run first, instead of from the oldest.

        Returns:
            The start time, in nanoseconds, of the run that was subtracted from first; None if the
            client has no runs.
        """
        runs = self._runs.get(agent, [])
        own = [run for run in runs if run.client == client]
        begun: int | None = None
        for run in reversed(own) if newest else own:
            begun = run.begun_ns if begun is None else begun
            common = Quantities(
                {name: min(amount, run.amounts[name]) for name, amount in amounts.items()}
            )
            run.amounts, amounts = run.amounts - common, amounts - common
            if not amounts:
                break
        self._keep(agent, [run for run in runs if run.amounts])
        return begun

    def _keep(self, agent: str, runs: list[TaskRun]) -> None:
        if runs:
            self._runs[agent] = runs
        else:
            self._runs.pop(agent, None)
