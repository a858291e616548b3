"""Measure the cost of allocating agents task by task, as whole agents, and one by one.

A snapshot has agents with everything free, and frameworks that all want offers. Without a demand a
framework is offered whole agents; with a demand, as many tasks as its entitlement allows. Runs with
and without demands alternate. Times are medians of the process's CPU time.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Literal

from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities

SECOND = 1_000_000_000
OPTIONS = contract.Options(
    allocation_interval_ns=SECOND,
    min_allocatable=[
        contract.Quantities(amounts={"cpus": 0.01}),
        contract.Quantities(amounts={"mem": 32.0}),
    ],
)
CASES: list[tuple[int, int, int, list[str | None]]] = [
    (1000, 1000, 16, ["cpus:1;mem:1024"]),
    (1000, 50, 64, ["cpus:0.5"]),
    (3000, 2, 64, ["cpus:0.5"]),
    (3000, 2, 16, ["cpus:0.001"]),
    (3000, 1, 64, ["cpus:0.001"]),
    (1000, 10, 64, ["mem:0.001"]),
    (400, 1000, 16, ["cpus:1;mem:1024"]),
    (400, 10, 64, ["cpus:0.5"]),
    (10, 50, 16, ["cpus:1;mem:1024"]),
    (1000, 50, 64, ["cpus:0.5", "cpus:1"]),
    (1000, 50, 64, [*49 * ["cpus:0.5"], "cpus:0.25"]),
    (1000, 50, 64, [f"cpus:{0.5 + number / 10:.1f}" for number in range(50)]),
    (1000, 50, 64, ["cpus:0.5", None]),
    (1000, 50, 64, [*49 * ["cpus:0.5"], None]),
    (1000, 2, 16, ["cpus:0.001", "cpus:1"]),
    (1000, 1000, 64, [f"cpus:{0.5 + number / 100:.2f}" for number in range(1000)]),
]
"""Agents, frameworks, processors of an agent, demands, which frameworks have in turn."""
DECLINING = [1, 5, 25, 50]
"""Number of frameworks, of 1,000, that decline agents shared with 50 other frameworks."""
FULL: tuple[int, int, int, list[str | None]] = (10_000, 1000, 16, ["cpus:1;mem:1024"])


def resources(cpus: float, mem: float) -> list[bytes]:
    """Return an agent's resources."""
    made = []
    for name, amount in (("cpus", cpus), ("mem", mem)):
        made.append(mesos.Resource(name=name, type=mesos.Value.SCALAR))
        made[-1].scalar.value = amount
    return [message.SerializeToString() for message in made]


def agent(number: int, cpus: float) -> contract.AddAgent:
    """Return an agent with everything free."""
    return contract.AddAgent(
        agent_id=f"agent-{number}",
        info=mesos.SlaveInfo(hostname=f"host{number}").SerializeToString(),
        capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
        total=resources(cpus, 4096 * cpus),
    )


def framework(number: int, role: str, demand: str | None) -> contract.AddFramework:
    """Return an active framework without suppressed roles."""
    info = mesos.FrameworkInfo(user="bench", name=f"f{number}", role=role)
    if demand is not None:
        info.labels.labels.add(key="longshare.demand", value=demand)
    return contract.AddFramework(
        framework_id=f"f{number}", info=info.SerializeToString(), active=True
    )


def engine(whole_from: int, allocation: Literal["event", "batch"] = "event") -> Engine:
    """Return an engine before its first snapshot."""
    policy = policies.create("sdrf", {"half_life": 3600.0})
    return Engine(EngineSettings(policy=policy, whole_from=whole_from, allocation=allocation))


def filled(
    agents: int, frameworks: int, cpus: float, demands: Sequence[str | None], whole_from: int
) -> tuple[float, contract.Decisions]:
    """Return the CPU seconds that a snapshot took, and the decisions."""
    snapshot = contract.Snapshot(
        time_ns=SECOND,
        leading_since_ns=1,
        agents=[agent(number, cpus) for number in range(agents)],
        frameworks=[
            framework(number, f"r{number}", demands[number % len(demands)])
            for number in range(frameworks)
        ],
    )
    new = engine(whole_from)
    begun = time.process_time()
    decisions = new.restore(OPTIONS, snapshot)
    return time.process_time() - begun, decisions


def offers_in(decisions: contract.Decisions) -> int:
    """Return the number of offers."""
    return sum(len(offers.offers) for offers in decisions.offers)


def least(
    decisions: contract.Decisions, agents: int, cpus: float, demands: Sequence[str | None]
) -> int | None:
    """Return a lower bound of the number of offers if all frameworks get equally many tasks.

    An offer has at most as many tasks as fit on an agent. An agent with a single offer is full of
    tasks of one size and has no usable remainder. If k tasks of a framework fill an agent and the
    framework has n tasks, at most n/k of its agents have a single offer. All other agents have at
    least two offers. None if a framework has no demand.
    """
    capacity = Quantities.from_doubles({"cpus": cpus, "mem": 4096 * cpus})
    sizes = [Quantities.parse(demand) for demand in demands if demand is not None]
    if len(sizes) < len(demands):
        return None
    single, alone = 0, 0
    for offers in decisions.offers:
        size = sizes[int(offers.framework_id[1:]) % len(sizes)]
        name, amount = next(iter(size.items()))
        given = 0
        for offer in offers.offers:
            for resource in map(mesos.Resource.FromString, offer.resources):
                given += round(1000 * resource.scalar.value) if resource.name == name else 0
        tasks, full = given // amount, min(capacity[name] // need for name, need in size.items())
        single += -(-tasks // full)
        remaining = capacity - size.times(full)
        alone += 0 if any(remaining.contains(size) for size in sizes) else tasks // full
    return max(single, agents + max(agents - alone, 0))


def declined(agents: int, frameworks: int, declining: int, demand: str | None) -> tuple[float, int]:
    """Return CPU seconds and offers when frameworks join agents that other frameworks decline.

    Each declining framework is offered agents until it has declined about half of them, at random.
    """
    chance = Random(declining)  # noqa: S311 - to be drawn again
    new = engine(100, "batch")
    new.restore(OPTIONS, contract.Snapshot(time_ns=SECOND, leading_since_ns=1))
    sequence = 0

    def sent(calls: Sequence[tuple[str, Message]]) -> contract.Decisions:
        nonlocal sequence
        events = contract.Events()
        for name, call in calls:
            sequence += 1
            event = events.events.add(sequence=sequence, time_ns=SECOND)
            getattr(event, name).CopyFrom(call)
        return new.apply(events)

    def back(decisions: contract.Decisions) -> list[tuple[str, Message]]:
        calls: list[tuple[str, Message]] = []
        for offers in decisions.offers:
            for offer in offers.offers:
                call = contract.RecoverResources(
                    framework_id=offers.framework_id, agent_id=offer.agent_id
                )
                call.resources.extend(offer.resources)
                seconds = chance.choice([0.0, 3600.0])
                call.filters = mesos.Filters(refuse_seconds=seconds).SerializeToString()
                calls.append(("recover_resources", call))
        return calls

    come = [
        ("add_framework", framework(number, f"d{number}", demand)) for number in range(declining)
    ]
    decisions = sent([*come, *(("add_agent", agent(number, 64)) for number in range(agents))])
    for _ in range(declining):
        sent(back(decisions))
        decisions = sent([("tick", contract.Tick())])
    sent(back(decisions))
    newcomers = [
        ("add_framework", framework(declining + number, f"r{number}", demand))
        for number in range(frameworks)
    ]
    begun = time.process_time()
    decisions = sent(newcomers)
    return time.process_time() - begun, offers_in(decisions)


def registered(agents: int, frameworks: int) -> float:
    """Return the CPU seconds per agent when agents register one by one, for a single role."""
    new = engine(0)
    frameworks_ = [framework(number, "r", None) for number in range(frameworks)]
    new.restore(
        OPTIONS, contract.Snapshot(time_ns=SECOND, leading_since_ns=1, frameworks=frameworks_)
    )
    events = []
    for number in range(agents):
        events.append(contract.Events())
        stamp = SECOND + number * SECOND // 1000
        event = events[-1].events.add(sequence=number + 1, time_ns=stamp)
        event.add_agent.CopyFrom(agent(number, 16))
    begun = time.process_time()
    for entry in events:
        new.apply(entry)
    return (time.process_time() - begun) / agents


def described(demands: Sequence[str | None]) -> str:
    """Return demands in few words."""
    if len(set(demands)) > 2:
        return f"{len(demands)} sizes, {demands[0]} to {demands[-1]}"
    counts = Counter(demand or "none" for demand in demands)
    return ", ".join(f"{number} × {demand}" for demand, number in counts.items())


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the largest case as well")
    parser.add_argument("--cases", type=int, default=len(CASES), help="the first ones only")
    parser.add_argument("--agents", type=int, default=1000, help="that are declined or register")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--whole-from", type=int, default=100, help="`offers.whole_from`")
    arguments = parser.parse_args()
    table = Table(title="Filling task by task, and giving agents whole: CPU time of a snapshot")
    for heading in ("agents", "frameworks", "cpus", "demand", "offers", "without", "offers"):
        table.add_column(heading, justify="right")
    for heading in ("with", "ratio", "ratio per offer", "at least"):
        table.add_column(heading, justify="right")
    for agents, frameworks, cpus, demands in [
        *CASES[: arguments.cases],
        *([FULL] if arguments.full else []),
    ]:
        plain, demanded = [], []
        for _ in range(arguments.repeat):
            plain.append(filled(agents, frameworks, cpus, [None], arguments.whole_from))
            demanded.append(filled(agents, frameworks, cpus, demands, arguments.whole_from))
        without, with_ = median(took for took, _ in plain), median(took for took, _ in demanded)
        few, many = offers_in(plain[0][1]), offers_in(demanded[0][1])
        bound = least(demanded[0][1], agents, cpus, demands)
        table.add_row(
            *(str(agents), str(frameworks), str(cpus), described(demands)),
            *(str(few), f"{without:.2f} s", str(many), f"{with_:.2f} s"),
            *(f"{with_ / without:.1f}", f"{with_ / many / (without / few):.2f}"),
            "" if bound is None else str(bound),
        )
    console = Console(width=125)
    console.print(table)
    for declining in DECLINING:
        took, offers = zip(
            *(declined(arguments.agents, 50, declining, demand) for demand in (None, "cpus:0.5")),
            strict=True,
        )
        console.print(
            f"50 frameworks with cpus:0.5, {declining} that declined half of "
            f"{arguments.agents:,} agents: "
            f"{offers[0]:,} offers in {took[0]:.2f} s without demands, "
            f"{offers[1]:,} in {took[1]:.2f} s with"
        )
    seconds = median(registered(arguments.agents, 1000) for _ in range(arguments.repeat))
    console.print(
        f"An agent that registers, with 1,000 frameworks in one role: {1000 * seconds:.3f} ms"
    )


if __name__ == "__main__":
    main()
