"""Rounds of offers that all frameworks decline for good, as in Mesos's benchmark DeclineOffers.

All frameworks are in one role; every agent has free resources and runs a task with its ports in 16
pieces. In each round all offers of the preceding round are declined for a year, then one batch goes
out. The reference sorts all frameworks for each agent and tries them in turn.
"""

import argparse
import queue
import resource as limits
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import grpc
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract.allocator_pb2_grpc import AllocatorStub
from allocator.fairness import policies
from bench.played.peers import START_LIMIT

SECOND = 1_000_000_000
GRID = [(agents, frameworks) for agents in (1000, 5000, 10000) for frameworks in (1, 50, 200, 1000)]
FOREVER = mesos.Filters(refuse_seconds=2.0**31).SerializeToString()
OPTIONS = contract.Options(
    allocation_interval_ns=SECOND,
    min_allocatable=[
        contract.Quantities(amounts={"cpus": 0.01}),
        contract.Quantities(amounts={"mem": 32.0}),
    ],
)


class Decider(Protocol):
    """Whatever decides."""

    def restore(self, snapshot: contract.Snapshot) -> contract.Decisions:
        """Replace all state by a snapshot."""

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Go on."""


def resources(
    cpus: float, mem: float, disk: float, ports: list[tuple[int, int]], role: str | None = None
) -> list[bytes]:
    """Return scalars and ports, allocated to a role if one is given."""
    made = [mesos.Resource(name="ports", type=mesos.Value.RANGES)]
    for begin, end in ports:
        made[0].ranges.range.add(begin=begin, end=end)
    for name, amount in (("cpus", cpus), ("mem", mem), ("disk", disk)):
        made.append(mesos.Resource(name=name, type=mesos.Value.SCALAR))
        made[-1].scalar.value = amount
    if role is not None:
        for message in made:
            message.allocation_info.role = role
    return [message.SerializeToString() for message in made]


def snapshot(agents: int, frameworks: int) -> contract.Snapshot:
    """Return the snapshot of the cluster before the first round."""
    total = resources(24, 4096, 4096, [(31000, 32000)])
    pieces = [(31000 + 50 * i, 31010 + 50 * i) for i in range(16)]
    used = resources(16, 2014, 1024, pieces, "*")
    return contract.Snapshot(
        time_ns=SECOND,
        leading_since_ns=1,
        agents=[
            contract.AddAgent(
                agent_id=f"agent-{i}",
                info=mesos.SlaveInfo(hostname=f"host{i}").SerializeToString(),
                capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
                total=total,
                used=[contract.Allocation(framework_id=f"f{i % frameworks}", resources=used)],
            )
            for i in range(agents)
        ],
        frameworks=[
            contract.AddFramework(
                framework_id=f"f{i}",
                info=mesos.FrameworkInfo(user="bench", name=f"f{i}").SerializeToString(),
                active=True,
            )
            for i in range(frameworks)
        ],
    )


class Rounds:
    """The master's side: declines everything, then ticks."""

    def __init__(self, allocator: Decider, agents: int, frameworks: int) -> None:
        self._allocator = allocator
        self._sequence = 0
        self._now = SECOND
        self._decisions = allocator.restore(snapshot(agents, frameworks))

    def play(self) -> tuple[int, float, float]:
        """Return how many offers a batch made, and seconds for the declines and for the batch."""
        declines = contract.Events()
        for offers in self._decisions.offers:
            for offer in offers.offers:
                call = self._event(declines).recover_resources
                call.framework_id, call.agent_id = offers.framework_id, offer.agent_id
                call.resources.extend(offer.resources)
                call.filters = FOREVER
        tick = contract.Events()
        self._now += SECOND
        self._event(tick).tick.SetInParent()
        begun = time.perf_counter()
        self._allocator.apply(declines)
        declined = time.perf_counter()
        self._decisions = self._allocator.apply(tick)
        ended = time.perf_counter()
        made = sum(len(offers.offers) for offers in self._decisions.offers)
        return made, declined - begun, ended - declined

    def _event(self, events: contract.Events) -> contract.Event:
        self._sequence += 1
        return events.events.add(sequence=self._sequence, time_ns=self._now)


class Alone:
    """The engine, called directly."""

    def __init__(self) -> None:
        policy = policies.create("drf", {})
        self._engine = Engine(EngineSettings(policy=policy, allocation="batch"))

    def restore(self, snapshot: contract.Snapshot) -> contract.Decisions:
        """Replace all state by a snapshot."""
        return self._engine.restore(OPTIONS, snapshot)

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Go on."""
        return self._engine.apply(events)


class Streamed:
    """The service in a process of its own, at the other end of a stream."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._outbox: queue.SimpleQueue[contract.FromMaster] = queue.SimpleQueue()
        self._answers = AllocatorStub(channel).Session(iter(self._outbox.get, None))
        hello = contract.Hello(
            contract_version=VERSION, session_id="bench", options=OPTIONS, virtual_clock=True
        )
        self._ask(contract.FromMaster(hello=hello))

    def restore(self, snapshot: contract.Snapshot) -> contract.Decisions:
        """Replace all state by a snapshot."""
        return self._ask(contract.FromMaster(snapshot=snapshot))

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Go on."""
        return self._ask(contract.FromMaster(events=events))

    def _ask(self, message: contract.FromMaster) -> contract.Decisions:
        self._outbox.put(message)
        return next(self._answers).decisions


class Plain:
    """The reference: sorts all frameworks for each agent, and looks at every agent each time."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], bool] = {}
        self._held: dict[str, int] = {}
        self._free: dict[str, bool] = {}
        self._part: list[bytes] = []

    def restore(self, snapshot: contract.Snapshot) -> contract.Decisions:
        """Replace all state by a snapshot."""
        self._part = resources(8, 2082, 3072, [(31011, 31049)], "*")
        self._free = {agent.agent_id: True for agent in snapshot.agents}
        self._held = {framework.framework_id: 0 for framework in snapshot.frameworks}
        return self._run()

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Go on."""
        for event in events.events:
            if event.HasField("tick"):
                return self._run()
            call = event.recover_resources
            self._refused[call.framework_id, call.agent_id] = True
            self._free[call.agent_id] = True
            self._held[call.framework_id] -= 1
        return contract.Decisions()

    def _run(self) -> contract.Decisions:
        made: dict[str, contract.Offers] = {}
        for agent, free in self._free.items():
            if not free:
                continue
            for framework in sorted(self._held, key=lambda name: (self._held[name], name)):
                if (framework, agent) not in self._refused:
                    offers = made.setdefault(framework, contract.Offers(framework_id=framework))
                    offers.offers.add(role="*", agent_id=agent, resources=self._part)
                    self._free[agent] = False
                    self._held[framework] += 1
                    break
        return contract.Decisions(offers=made.values())


@contextmanager
def service() -> Iterator[grpc.Channel]:
    """Run `longshare serve` during the block."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix://{folder}/allocator.sock"
        config = Path(folder) / "longshare.toml"
        config.write_text(
            '[policy]\nname = "drf"\n[offers]\nallocation = "batch"\n'
            f'[listen]\naddress = "{address}"\nvirtual_clocks = true\n'
            '[metrics]\naddress = "127.0.0.1:0"\n'
            '[store]\nkind = "none"\n[log]\nlevel = "error"\n'
        )
        process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "allocator.cli", "serve", "--config", str(config)]
        )
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        try:
            with grpc.insecure_channel(address, options) as channel:
                grpc.channel_ready_future(channel).result(timeout=START_LIMIT)
                yield channel
        finally:
            process.kill()
            process.wait()


def measured(allocator: Decider, agents: int, frameworks: int, rounds: int) -> list[float]:
    """Return mean milliseconds for the declines and the batch of a round, and offers per round."""
    game = Rounds(allocator, agents, frameworks)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        played = [
            game.play()
            for _ in progress.track(
                range(rounds), description=f"{type(allocator).__name__}: {agents} × {frameworks}"
            )
        ]
    offers, declines, batches = (sum(column) / rounds for column in zip(*played, strict=True))
    return [offers, 1000 * declines, 1000 * batches]


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, help="one size only, with --frameworks")
    parser.add_argument("--frameworks", type=int)
    parser.add_argument("--rounds", type=int, default=6, help="0: twice as many as frameworks")
    arguments = parser.parse_args()
    sizes = [(arguments.agents, arguments.frameworks)] if arguments.agents else GRID
    table = Table(title="DeclineOffers: milliseconds per round (declines + batch)")
    for heading in ("agents", "frameworks", "offers", "engine", "µs/offer", "stream", "plain"):
        table.add_column(heading, justify="right")
    table.add_column("plain / engine, batch", justify="right")
    for agents, frameworks in sizes:
        rounds = arguments.rounds or 2 * frameworks
        offers, declines, batch = measured(Alone(), agents, frameworks, rounds)
        with service() as channel:
            _, far_declines, far_batch = measured(Streamed(channel), agents, frameworks, rounds)
        _, plain_declines, plain_batch = measured(Plain(), agents, frameworks, min(rounds, 2))
        table.add_row(
            str(agents),
            str(frameworks),
            f"{offers:.0f}",
            f"{declines:.0f} + {batch:.0f}",
            f"{1000 * batch / offers:.0f}" if offers else "",
            f"{far_declines:.0f} + {far_batch:.0f}",
            f"{plain_declines:.0f} + {plain_batch:.0f}",
            f"{plain_batch / batch:.1f}",
        )
    console = Console(width=110)
    console.print(table)
    peak = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"Peak memory of this process, the engine's and the master's side: {peak:.0f} MB")


if __name__ == "__main__":
    main()
