"""Assumed usage compared with a plain record of when each resource was offered."""

import random
from collections import Counter
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.used_resources import AssumedUsage, UsedResources
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import parse_total
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from tests.cluster.master_side import resources
from tests.examples import scaled

AFTER = 10
CLIENTS = (Client("a", "f1"), Client("b", "f1"), Client("a", "f2"))
Place: TypeAlias = tuple[str, Client]
"""An agent, and a client with an allocation on the agent."""


class Both:
    """The tested object and a plain record of CPUs, with the same operations applied to both."""

    def __init__(self) -> None:
        self.running = UsedResources()
        self.presumed = AssumedUsage(self.running, after_ns=AFTER)
        self.agents = {
            name: Agent(name, mesos.SlaveInfo(), frozenset(), parse_total(resources("cpus:99")))
            for name in ("s1", "s2")
        }
        self.held, self.used = Counter[Place](), Counter[Place]()
        self.since: dict[Place, int] = {}

    def offer(self, place: Place, now: int) -> None:
        self.held[place] += 1
        self.since[place] = now
        self._hold(place)
        self.presumed.offered(*place, now)

    def take_back(self, place: Place) -> None:
        """End a task, or rescind an offer."""
        if not self.held[place]:
            return
        self.held[place] -= 1
        self.used[place] = min(self.used[place], self.held[place])
        self._hold(place)
        self.running.clip(self.agents[place[0]], place[1])
        if not self.held[place]:
            self.since.pop(place, None)
            self.presumed.forget(*place)

    def answer(self, place: Place) -> None:
        if self.since.pop(place, None) is not None:
            self.used[place] = self.held[place]
        self.presumed.answered(self.agents[place[0]], place[1])

    def wait(self, now: int) -> None:
        for place in [place for place, then in self.since.items() if then + AFTER <= now]:
            self.used[place] = self.held[place]
            del self.since[place]
        run_to_completion(self.presumed.expire_in_steps(self.agents, now))

    def follow_snapshot(self) -> tuple[UsedResources, AssumedUsage]:
        """Return used resources and assumed usage after a snapshot with the first agent only."""
        running, agent = UsedResources(), self.agents["s1"]
        after = AssumedUsage(running, after_ns=AFTER)
        for client in CLIENTS:
            after.used(agent, client)  # like the used resources of a new agent
        run_to_completion(after.carry_over(self.presumed, {"s1": agent}))
        return running, after

    def _hold(self, place: Place) -> None:
        name, client = place
        text = f"cpus:{self.held[place]}" if self.held[place] else ""
        self.agents[name].set_held(client.framework, client.role, parse_total(resources(text)))


def drawn(seed: int) -> Both:
    """Apply random operations, and compare after each operation."""
    lot, both = random.Random(seed), Both()
    for now in range(60):
        place = lot.choice(list(both.agents)), lot.choice(CLIENTS)
        match lot.choice("oogaaw"):
            case "o":
                both.offer(place, now)
            case "g":
                both.take_back(place)
            case "a":
                both.answer(place)
            case _:
                both.wait(now)
        assert waiting(both.presumed) == both.since, (seed, now)
        for client in both.held:
            assert processors(both.running, client) == both.used[client], (seed, now)
    return both


def waiting(presumed: AssumedUsage) -> dict[Place, int]:
    return {(agent, client): since for agent, client, since, _ in presumed.waiting()}


def processors(running: UsedResources, place: Place) -> float:
    return running.on(*place).scalars["cpus"] / 1000


def test_offers_without_a_timely_answer_are_outstanding_and_other_resources_used() -> None:
    for seed in range(scaled(100)):
        drawn(seed)


def test_a_snapshot_answers_no_outstanding_offer() -> None:
    for seed in range(scaled(100)):
        before = drawn(seed)
        running, after = before.follow_snapshot()
        assert waiting(after) == {p: t for p, t in before.since.items() if p[0] == "s1"}, seed
        for client in CLIENTS:
            place = "s1", client
            used = before.used if place in before.since else before.held
            assert processors(running, place) == used[place], seed
