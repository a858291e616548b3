"""A service without ports, whose session, engine and event log are the real classes."""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

from allocator.cluster.settings import EngineSettings
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters.session import Session, SessionStatistics
from allocator.service.masters.sessions import Sessions, serialised
from allocator.service.masters.timestamp_guard import Timeline
from allocator.service.record.event_log import EventLog, LoggedEngine
from allocator.service.rights import Rights
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info
from tests.service.served import hello

FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)


def snapshot(agents: int) -> contract.Snapshot:
    return contract.Snapshot(
        time_ns=START_NS,
        leading_since_ns=1,
        agents=[agent_call(f"s{n}", "cpus:4;mem:4096") for n in range(1, agents + 1)],
        frameworks=[FRAMEWORK],
    )


class Site:
    """A service without ports: session, engine and event log are the real classes."""

    def __init__(self, path: Path) -> None:
        settings = EngineSettings(
            policies.create("sdrf", {"half_life": 60.0}),
            users=(DeclaredUser("a"), DeclaredUser("b")),
        )
        self.event_log = EventLog(path)
        self.engine = LoggedEngine(settings, self.event_log)
        self.turn = EngineLock()
        self.messages = 0
        self.statistics = SessionStatistics()
        self.sessions = Sessions(
            self.engine,
            self.statistics,
            max_waiting=1,
            recall=self._recall,
            timeline=Timeline.from_now(0.0),
            virtual_clocks=True,
            rights=Rights(None),
            engine_lock=self.turn,
            before_message=self._count,
        )

    async def answers(
        self, *events: contract.Event, agents: int = 1
    ) -> AsyncIterator[contract.ToMaster]:
        """Serve a master that sends a snapshot, then the events as a message; yield answers."""
        async for answer in self.serve(snapshot(agents), contract.Events(events=events)):
            yield answer

    async def serve(
        self, *messages: contract.Snapshot | contract.Events, version: int = VERSION
    ) -> AsyncGenerator[contract.ToMaster, None]:
        """Serve a master that sends messages in a version of the contract; yield answers."""

        async def requests() -> AsyncIterator[contract.FromMaster]:
            yield hello(version)
            for message in messages:
                if isinstance(message, contract.Snapshot):
                    yield contract.FromMaster(snapshot=message)
                else:
                    yield contract.FromMaster(events=message)

        requested = requests()
        self.session = Session(self.engine, self.statistics, self.sessions)
        await self.session.greet(requested)
        async for reply in self.session.serve(requested):
            answer = contract.ToMaster.FromString(serialised(reply))
            if not answer.HasField("welcome"):
                yield answer

    async def _recall(self) -> None:
        return None

    def _count(self) -> None:
        self.messages += 1


def ticks(many: int) -> list[contract.Event]:
    return [
        contract.Event(sequence=n, time_ns=START_NS + n * SECOND, tick=contract.Tick())
        for n in range(1, many + 1)
    ]
