"""Faults that were, or might have been: each can be put back, and the world has to find it.

A change of the world counts only once all of them are still found (`make mutants`).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

from allocator.cluster.agents import Agent
from allocator.cluster.filters import OfferFilters
from allocator.cluster.ledger import Ledger
from allocator.cluster.resources import Resources
from allocator.fairness import account
from allocator.fairness.live_tree import LiveTree
from allocator.service.masters.session import Session
from allocator.service.masters.stamps import Stamps
from allocator.service.store.sqlite import SqliteStore
from tests.world.plan import Plan

CALM = Plan(
    1,
    seconds=120.0,
    healing=60.0,
    frameworks={"worker": 2, "greedy": 1, "refuser": 1, "waiter": 1},
    settings={"policy": {"name": "sdrf", "half_life": 60}},
)
KILLED = replace(CALM, faults={"kill service": 1.0, "break stream": 2.0})
JUMPING = replace(CALM, faults={"jump clock": 20.0})
DRIFTING = replace(
    CALM,
    frameworks={"worker": 5, "greedy": 2, "waiter": 3},
    settings={"policy": {"name": "sdrf", "half_life": 20}},
)
ALONE = replace(CALM, frameworks={"waiter": 1})


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    put_back: Callable[[], AbstractContextManager[object]]
    found_as: str
    """A pattern of what the world says when it has found it."""
    plan: Plan = field(default_factory=lambda: CALM)
    """The world in which it shows."""


@contextmanager
def _freed_twice() -> Iterator[None]:
    """What a task gives back is free twice."""
    recover = Ledger.recover

    def wrong(
        ledger: Ledger, agent: Agent, framework: str, role: str, resources: Resources
    ) -> bool:
        complete = recover(ledger, agent, framework, role, resources)
        agent.set_available(agent.available + resources)
        return complete

    with mock.patch.object(Ledger, "recover", wrong):
        yield


def _filters_never_end() -> AbstractContextManager[object]:
    return mock.patch.object(OfferFilters, "expire", return_value=[])


@contextmanager
def _some_messages_are_not_answered() -> Iterator[None]:
    apply = Session._apply

    def wrong(session: Session, events: object) -> object:
        answer = apply(session, events)  # type: ignore[arg-type]
        return None if session._engine.sequence % 100 == 99 else answer

    with mock.patch.object(Session, "_apply", wrong):
        yield


def _commitments_do_not_move() -> AbstractContextManager[object]:
    return mock.patch.object(account, "approached", return_value=0.0)


@contextmanager
def _passings_go_unnoticed() -> Iterator[None]:
    """The Live Tree keeps the order of the instant at which it was built."""
    with mock.patch.object(LiveTree, "update"):
        yield


def _nothing_is_remembered() -> AbstractContextManager[object]:
    return mock.patch.object(SqliteStore, "load", return_value=None)


@contextmanager
def _every_stream_recalls_the_start() -> Iterator[None]:
    """A service beside a store stamped ahead takes back what it began with, with each snapshot."""

    def load(store: SqliteStore) -> object:
        return store._loaded

    with mock.patch.multiple(SqliteStore, recall=load, shared=True):
        yield


def _stamps_are_believed() -> AbstractContextManager[object]:
    return mock.patch.object(Stamps, "bound")


MUTANTS = {
    "commitments do not move": Mutant(_commitments_do_not_move, "debt of|before"),
    "passings go unnoticed": Mutant(_passings_go_unnoticed, "before", DRIFTING),
    "nothing is remembered": Mutant(_nothing_is_remembered, "is gone", KILLED),
    "every stream recalls the start": Mutant(_every_stream_recalls_the_start, "recalled", KILLED),
    "stamps are believed": Mutant(_stamps_are_believed, "let through", JUMPING),
    "what comes back is free twice": Mutant(_freed_twice, "is free"),
    "filters never end": Mutant(_filters_never_end, "has not been offered", ALONE),
    "some messages are not answered": Mutant(_some_messages_are_not_answered, "applied"),
}
