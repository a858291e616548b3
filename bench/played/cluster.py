"""A cluster played by its master: full of tasks that end one after the other."""

import random

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos

SECOND = 1_000_000_000
TASKS = 4
"""Tasks on each agent, each of one CPU and 1,024 MB."""
OPTIONS = contract.Options(
    allocation_interval_ns=SECOND,
    min_allocatable=[contract.Quantities(amounts={"cpus": 0.01})],
)


def resources(role: str | None = None, cpus: float = 1.0, mem: float = 1024.0) -> list[bytes]:
    """Return CPUs and memory, allocated to a role if one is given."""
    made = []
    for name, amount in (("cpus", cpus), ("mem", mem)):
        message = mesos.Resource(name=name, type=mesos.Value.SCALAR)
        message.scalar.value = amount
        if role is not None:
            message.allocation_info.role = role
        made.append(message.SerializeToString())
    return made


class PlayedCluster:
    """Plays the master: a task ends, its resources are offered to a framework, which accepts them.

    Args:
        agents: The number of agents; each is full of tasks of a single framework.
        frameworks: The number of frameworks; each has its own role.
        begin_ns: The master's clock, in nanoseconds since the Unix epoch.
    """

    def __init__(self, agents: int, frameworks: int, begin_ns: int = SECOND) -> None:
        self._random = random.Random(1)  # noqa: S311 - which task ends, not a secret
        self._sequence = 0
        self._agents = agents
        self._frameworks = frameworks
        self._begin_ns = begin_ns
        self._freed = {f"role{i}": resources(f"role{i}") for i in range(frameworks)}
        self._running = [
            (f"f{i % frameworks}", f"role{i % frameworks}", f"s{i}")
            for i in range(agents)
            for _ in range(TASKS)
        ]

    def snapshot(self) -> contract.Snapshot:
        """Return the cluster's first snapshot."""
        agents = [
            contract.AddAgent(
                agent_id=f"s{i}",
                info=mesos.SlaveInfo(hostname=f"host{i}").SerializeToString(),
                capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
                total=resources(cpus=TASKS, mem=1024.0 * TASKS),
                used=[
                    contract.Allocation(
                        framework_id=f"f{i % self._frameworks}",
                        resources=resources(f"role{i % self._frameworks}", TASKS, 1024.0 * TASKS),
                    )
                ],
            )
            for i in range(self._agents)
        ]
        frameworks = [
            contract.AddFramework(
                framework_id=f"f{i}",
                info=mesos.FrameworkInfo(
                    user="bench", name=f"f{i}", role=f"role{i}"
                ).SerializeToString(),
                active=True,
            )
            for i in range(self._frameworks)
        ]
        return contract.Snapshot(
            time_ns=self._begin_ns, leading_since_ns=1, agents=agents, frameworks=frameworks
        )

    def end_task(self, events: contract.Events, now_ns: int, refuse: float = 0.0) -> None:
        """Add the end of a task, whose framework declines its resources for `refuse` seconds."""
        if not self._running:
            self.tick(events, now_ns)
            return
        place = self._random.randrange(len(self._running))
        framework, role, agent = self._running[place]
        self._running[place] = self._running[-1]
        self._running.pop()
        recovered = self._event(events, now_ns).recover_resources
        recovered.framework_id, recovered.agent_id = framework, agent
        recovered.resources.extend(self._freed[role])
        if refuse:
            recovered.filters = mesos.Filters(refuse_seconds=refuse).SerializeToString()

    def tick(self, events: contract.Events, now_ns: int) -> None:
        """Add a tick of the batch timer."""
        self._event(events, now_ns).tick.SetInParent()

    def batch(self, size: int) -> contract.Events:
        """Return the next events, a millisecond apart: tasks that end, refusals, ticks."""
        events = contract.Events()
        for _ in range(size):
            number = self._sequence + 1
            now_ns = self._begin_ns + number * SECOND // 1000
            if number % 1000 == 0:
                self.tick(events, now_ns)
            else:
                self.end_task(events, now_ns, refuse=5.0 if number % 20 == 0 else 0.0)
        return events

    def take(self, decisions: contract.Decisions) -> int:
        """Launch tasks on all offers; return the number of offers."""
        made = 0
        for offers in decisions.offers:
            for offer in offers.offers:
                cpus = next(r for d in offer.resources if (r := mesos.Resource.FromString(d)))
                place = (offers.framework_id, offer.role, offer.agent_id)
                self._running += [place] * int(cpus.scalar.value)
                made += 1
        return made

    def _event(self, events: contract.Events, now_ns: int) -> contract.Event:
        self._sequence += 1
        return events.events.add(sequence=self._sequence, time_ns=now_ns)
