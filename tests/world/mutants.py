"""Past and possible faults: each can be restored, and the world must detect each.

After a change of the world, all mutants must still be detected (`make mutants`).
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from allocator.cluster import quota
from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.failover_recovery import FailoverRecovery
from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.allocation import progressive_filling
from allocator.cluster.allocation.client_index import ClientIndex
from allocator.cluster.allocation.progressive_filling import Budget, TaskBatch
from allocator.cluster.calls import frameworks
from allocator.cluster.frameworks import framework, subscription
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.offers.offer_filters import OfferFilters
from allocator.cluster.quota import Headroom
from allocator.cluster.resources import Resources
from allocator.cluster.users import Users
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative
from allocator.fairness import account
from allocator.fairness.live_tree import LiveTree
from allocator.fairness.quantities import Quantities
from allocator.service.masters.leadership import Claimant, Leadership
from allocator.service.masters.session import Session
from allocator.service.masters.timestamp_guard import TimestampGuard
from allocator.service.show import guard, web
from allocator.service.store.sqlite import SqliteStore
from allocator.service.store.writer import StoreWriter
from allocator.service.store.zookeeper import ZookeeperStore
from allocator.users.memory import Memory
from tests.world.plan import Plan
from tests.world.scenarios import SCENARIOS
from tests.world.simulated.zookeeper import Client, Result
from tests.world.world import World, run

CALM = Plan(
    1,
    seconds=120.0,
    healing=60.0,
    frameworks={"worker": 2, "greedy": 1, "refuser": 1, "waiter": 1},
    settings={"policy": {"name": "sdrf", "half_life": 60}, "users": {"counts_for": math.inf}},
)
KILLED = replace(CALM, faults={"kill service": 1.0, "break stream": 2.0})
JUMPING = replace(CALM, faults={"jump clock": 20.0})
DRIFTING = replace(
    CALM,
    seed=5,
    frameworks={"worker": 5, "greedy": 2, "waiter": 3},
    settings={"policy": {"name": "sdrf", "half_life": 20}, "users": {"counts_for": math.inf}},
)
ALONE = replace(CALM, frameworks={"waiter": 1})


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    put_back: Callable[[], AbstractContextManager[object]]
    found_as: str
    """A pattern of the violation with which the world finds the mutant."""
    plan: Plan = field(default_factory=lambda: CALM)
    """The world that finds the mutant …"""
    scenario: str = ""
    """… or the scenario …"""
    seed: int | None = None
    """… with another seed than its own."""

    def run(self) -> World:
        """Restore the old fault, and run the world that finds the fault."""
        with self.put_back():
            if self.scenario:
                played = SCENARIOS[self.scenario]
                seed = played.plan.seed if self.seed is None else self.seed
                return run(replace(played.plan, seed=seed), played.prepare)
            return run(self.plan)


@contextmanager
def _freed_twice() -> Iterator[None]:
    """Recovered resources are free twice."""
    recover = Ledger.recover

    def wrong(
        ledger: Ledger, agent: Agent, client: framework.Client, resources: Resources
    ) -> Resources:
        missing = recover(ledger, agent, client, resources)
        agent.set_available(agent.available + resources)
        return missing

    with mock.patch.object(Ledger, "recover", wrong):
        yield


def _constraints_are_passed_over() -> AbstractContextManager[object]:
    return mock.patch.object(ClientIndex, "excluded_from", return_value=0)


def _filters_never_end() -> AbstractContextManager[object]:
    def none_ends(filters: OfferFilters, now_ns: int) -> Cooperative[list[str]]:
        yield from ()
        return []

    return mock.patch.object(OfferFilters, "expire_in_steps", none_ends)


@contextmanager
def _some_messages_are_not_answered() -> Iterator[None]:
    apply = Session._apply

    async def wrong(session: Session, events: contract.Events) -> object:
        answer = await apply(session, events)
        return None if session._engine.sequence % 100 == 99 else answer

    with mock.patch.object(Session, "_apply", wrong):
        yield


def _commitments_do_not_move() -> AbstractContextManager[object]:
    return mock.patch.object(account, "approached", return_value=0.0)


@contextmanager
def _passings_go_unnoticed() -> Iterator[None]:
    """The Live Tree keeps its order from the instant of its construction."""
    with mock.patch.object(LiveTree, "update"):
        yield


def _nothing_is_remembered() -> AbstractContextManager[object]:
    return mock.patch.object(SqliteStore, "load", return_value=None)


@contextmanager
def _every_stream_recalls_the_start() -> Iterator[None]:
    """A service with a store stamped in the future recalls its initial memory at each snapshot."""

    def load(store: SqliteStore) -> object:
        return store._loaded

    with mock.patch.multiple(SqliteStore, recall=load, shared=True):
        yield


def _stamps_are_believed() -> AbstractContextManager[object]:
    return mock.patch.object(TimestampGuard, "bound")


@contextmanager
def _standbys_move_time() -> Iterator[None]:
    """Timestamps of a master on standby count as if they had reached the engine."""
    bound = TimestampGuard.bound

    def wrong(stamps: TimestampGuard, message: contract.FromMaster) -> None:
        bound(stamps, message)
        stamps.record(message.snapshot.time_ns)

    with mock.patch.object(TimestampGuard, "bound", wrong):
        yield


@contextmanager
def _late_agents_are_charged() -> Iterator[None]:
    """After a failover, shares are relative to the returned part of the cluster, and accrue."""

    def known(_failover: FailoverRecovery, back: Quantities, _agents: int) -> Quantities:
        return back

    with (
        mock.patch.object(Users, "set_charging"),
        mock.patch.object(FailoverRecovery, "share_capacity", known),
    ):
        yield


@contextmanager
def _the_latest_stamp_leads() -> Iterator[None]:
    """A master with an earlier election than another master, by the clocks of both, never leads."""
    obstacle, latest = Leadership.takeover_blocker, [0]

    def wrong(leadership: Leadership, claimant: Claimant) -> str | None:
        if claimant.elected_ns < latest[0]:
            return "somebody was elected later"
        latest[0] = claimant.elected_ns
        return obstacle(leadership, claimant)

    with mock.patch.object(Leadership, "takeover_blocker", wrong):
        yield


@contextmanager
def _what_cannot_be_accepted_is_refused() -> Iterator[None]:
    """A framework's invalid data is refused together with its message, even a snapshot."""
    read = subscription.read_subscription

    def wrong(framework: str, data: bytes, limits: Limits) -> object:
        subscription = read(framework, data, limits)
        if subscription.flaw is not None:
            raise InvalidEvent(subscription.flaw.words)
        return subscription

    with mock.patch.object(frameworks, "read_subscription", wrong):
        yield


def _pauses_outlast_failures() -> AbstractContextManager[object]:
    """After a store has failed, a stored order does not end the pause between attempts."""

    async def wait(keeper: StoreWriter, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(keeper._stopping.wait(), max(seconds, 0.0))

    return mock.patch.object(StoreWriter, "_sleep", wait)


@contextmanager
def _tasks_are_given_one_by_one() -> Iterator[None]:
    """Progressive filling takes strides of a single task, for any number of tasks."""
    fill = progressive_filling.InnerNode.fill_in_steps

    def one_by_one(
        branch: progressive_filling.InnerNode[Any], budget: Budget, _stride: int = 0
    ) -> Cooperative[TaskBatch]:
        return fill(branch, budget, 1)

    with (
        mock.patch.object(progressive_filling, "_MAX_TASKS", 1),
        mock.patch.object(progressive_filling.InnerNode, "fill_in_steps", one_by_one),
    ):
        yield


def _limits_are_passed_over() -> AbstractContextManager[object]:
    """The limits of a role are looked for under another name."""
    return mock.patch.object(quota, "top_level", return_value="nobody")


def _nothing_is_held_back() -> AbstractContextManager[object]:
    return mock.patch.object(Headroom, "missing", return_value=Quantities())


def _reservations_are_for_all() -> AbstractContextManager[object]:
    return mock.patch.object(Resources, "offerable_to", lambda resources, _role: resources)


@contextmanager
def _operations_are_answered_and_not_done() -> Iterator[None]:
    """An operator's RESERVE is confirmed without effect: the resources stay unreserved."""
    with mock.patch.object(Ledger, "set_total"):
        yield


@contextmanager
def _followers_are_believed() -> Iterator[None]:
    """A ZooKeeper server's data is taken as current without a sync."""
    with mock.patch.object(Client, "sync_async", return_value=Result(lambda: "not asked")):
        yield


def _others_are_not_asked() -> AbstractContextManager[object]:
    """A service that takes over continues with its own former memory."""
    return mock.patch.object(ZookeeperStore, "recall", return_value=None)


def _nobody_is_fenced() -> AbstractContextManager[object]:
    """A service that takes over does not fence a predecessor that still saves."""
    return mock.patch.object(StoreWriter, "take_over")


@contextmanager
def _anybody_overwrites() -> Iterator[None]:
    """A service that finds another service's version adopts the version and overwrites the data."""

    def wrong(store: ZookeeperStore) -> None:
        _, store._version = store._fetch()

    with mock.patch.object(ZookeeperStore, "_catch_up", wrong):
        yield


@contextmanager
def _the_later_clock_remembers() -> Iterator[None]:
    """Another service's memory counts only if its timestamp is later than the known one."""

    def wrong(_keeper: StoreWriter, memory: Memory) -> Memory:
        return memory

    with mock.patch.object(StoreWriter, "_later", wrong):
        yield


@contextmanager
def _connections_are_kept() -> Iterator[None]:
    """All connections to the HTTP port are kept, in any number."""
    with mock.patch.object(guard, "MOST", 10**9):
        yield


def _pages_break() -> AbstractContextManager[object]:
    """The page of metrics cannot be written."""
    return mock.patch.object(web, "exposition", side_effect=ValueError("broken"))


MUTANTS = {
    "tasks are given one by one": Mutant(
        _tasks_are_given_one_by_one,
        "steps, where",
        scenario="a framework says a tiny demand",
        seed=7,
    ),
    "limits are passed over": Mutant(_limits_are_passed_over, "its limit", scenario="quotas"),
    "nothing is held back": Mutant(_nothing_is_held_back, "guarantee", scenario="quotas"),
    "reservations are for all": Mutant(
        _reservations_are_for_all, "is reserved", scenario="an operator who reserves"
    ),
    "operations are answered and not done": Mutant(
        _operations_are_answered_and_not_done,
        "is free|held on",
        scenario="an operator who reserves",
    ),
    "followers are believed": Mutant(
        _followers_are_believed,
        "saved is gone",
        scenario="a ZooKeeper that is behind",
    ),
    "others are not asked": Mutant(
        _others_are_not_asked, "is gone|owed", scenario="a service beside each master"
    ),
    "nobody is fenced": Mutant(
        _nobody_is_fenced, "has been saved|was saved", scenario="a former leader that talks on"
    ),
    "anybody overwrites": Mutant(
        _anybody_overwrites, "has overwritten", scenario="a former leader that talks on"
    ),
    "the later clock remembers": Mutant(
        _the_later_clock_remembers,
        "was ordered to weigh",
        scenario="a machine whose clock is behind",
    ),
    "connections are kept": Mutant(
        _connections_are_kept, "never ask", scenario="requests that are sent by half"
    ),
    "pages break": Mutant(_pages_break, "/metrics of", scenario="fifty pollers"),
    "pauses outlast failures": Mutant(
        _pauses_outlast_failures, "nothing was saved", scenario="an order after a full disk"
    ),
    "late agents are charged": Mutant(
        _late_agents_are_charged, "debt of|share of", scenario="agents that are late"
    ),
    "the latest stamp leads": Mutant(
        _the_latest_stamp_leads,
        "has not been (served|offered)",
        scenario="a clock that is ahead, and its master killed",
    ),
    "what cannot be accepted is refused": Mutant(
        _what_cannot_be_accepted_is_refused,
        "debt of|has not been|ended with",
        scenario="a framework says a negative minimum",
    ),
    "commitments do not move": Mutant(_commitments_do_not_move, "debt of|before"),
    "passings go unnoticed": Mutant(_passings_go_unnoticed, "before", DRIFTING),
    "nothing is remembered": Mutant(_nothing_is_remembered, "is gone", KILLED),
    "every stream recalls the start": Mutant(_every_stream_recalls_the_start, "recalled", KILLED),
    "standbys move time": Mutant(
        _standbys_move_time, "stamped its snapshot", replace(KILLED, seed=4)
    ),
    "stamps are believed": Mutant(_stamps_are_believed, "let through", JUMPING),
    "what comes back is free twice": Mutant(_freed_twice, "is free"),
    "constraints are passed over": Mutant(
        _constraints_are_passed_over,
        "may not run there",
        replace(CALM, frameworks={"worker": 1, "picky": 2}),
    ),
    "filters never end": Mutant(_filters_never_end, "has not been offered", ALONE),
    "some messages are not answered": Mutant(_some_messages_are_not_answered, "applied"),
}
