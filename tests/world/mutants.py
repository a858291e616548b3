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
from allocator.service.masters.session import Session
from tests.world.plan import Plan

CALM = Plan(
    1,
    seconds=120.0,
    healing=60.0,
    frameworks={"worker": 2, "greedy": 1, "refuser": 1, "waiter": 1},
    settings={"policy": {"name": "sdrf", "half_life": 60}},
)
ALONE = replace(CALM, frameworks={"waiter": 1})


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    put_back: Callable[[], AbstractContextManager[object]]
    found_as: str
    """Part of what the world says when it has found it."""
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


MUTANTS = {
    "what comes back is free twice": Mutant(_freed_twice, "is free"),
    "filters never end": Mutant(_filters_never_end, "has not been offered", ALONE),
    "some messages are not answered": Mutant(_some_messages_are_not_answered, "applied"),
}
