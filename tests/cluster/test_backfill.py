"""Backfill holds keep agents for tasks that fit nowhere, so no large task waits for ever."""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.reasons import Survey
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import (
    SECOND,
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    read,
    resources,
)
from tests.cluster.test_placements import info
from tests.cluster.test_task_offers import add
from tests.examples import examples

HOLDING: list[Literal["one", "all"]] = ["one", "all"]


class Site(MasterSide):
    """A cluster in which frameworks use all their offers, and tasks end.

    Args:
        hold_for: The setting of the same name.
        longest: Longest duration of a hold, in seconds.
        seed: Seed of the tasks' run times.
        changes: Other settings of the engine; turns follow the service's rule.
    """

    def __init__(
        self, hold_for: str, *, longest: float = 600.0, seed: int = 1, **changes: object
    ) -> None:
        super().__init__("tsf")
        settings = {"policy": policies.create("tsf", {}), "hold_by_turns": True, **changes}
        self.settings = EngineSettings(hold_for=hold_for, longest_hold=longest, **settings)  # type: ignore[arg-type]
        self.engine = type(self.engine)(self.settings)
        self.restore(contract.Snapshot(time_ns=self.now_ns))
        self._random = random.Random(seed)
        self._serial = count()
        self._ends: list[tuple[int, int, Offered, str]] = []
        self.runs_for: dict[str, tuple[float, float]] = {}
        """Shortest and longest run time of each framework's tasks, in seconds."""
        self.task: dict[str, tuple[float, str]] = {}
        """CPUs and resources of a task, by framework."""
        self.got: Counter[str] = Counter()
        self.waited: list[float] = []
        """Seconds that the watched framework waited before each offer."""
        self.watched = ""
        self._since = self.now_ns

    def join(self, name: str, cpus: float, runs_for: tuple[float, float]) -> None:
        self.task[name] = cpus, f"cpus:{cpus:g}"
        self.runs_for[name] = runs_for
        add(self, name, name, f"cpus:{cpus:g}")

    def take(self, offers: list[Offered]) -> None:
        for offer in offers:
            cpus, text = self.task[offer.framework]
            number = round(float(offer.resources.split(":")[1]) / cpus)
            self.got[offer.framework] += number
            if offer.framework == self.watched:
                self.waited.append((self.now_ns - self._since) / SECOND)
                self._since = self.now_ns
            for _ in range(number):
                end = self.now_ns + round(
                    self._random.uniform(*self.runs_for[offer.framework]) * SECOND
                )
                heapq.heappush(self._ends, (end, next(self._serial), offer, text))

    def watch(self, name: str) -> None:
        self.watched, self._since = name, self.now_ns

    def live(self, seconds: float) -> None:
        """Advance the clock with a tick each second; tasks end in between."""
        until = self.now_ns + round(seconds * SECOND)
        while self.now_ns < until:
            tick = self.now_ns + SECOND
            while self._ends and self._ends[0][0] <= tick:
                self.now_ns, _, offer, text = heapq.heappop(self._ends)
                self.take(self.recover(offer, text))
            self.now_ns = tick
            self.take(self.send(contract.Tick()))

    def holding(self, framework: str) -> bool:
        """Return whether an agent is held for a framework."""
        return any(hold.client.framework == framework for hold in self.engine.holds())


def starving(hold_for: str, **options: float) -> Site:
    """Start half-core tasks on ten one-core agents, then add a user of whole-core tasks."""
    site = Site(hold_for, **options)  # type: ignore[arg-type]
    site.join("small", 0.5, (10.0, 17.0))
    for number in range(10):
        site.take(site.add_agent(f"s{number}", "cpus:1"))
    site.live(60)
    site.join("big", 1.0, (10.0, 10.0))
    site.watch("big")
    return site


def test_without_backfill_holds_half_core_tasks_starve_whole_core_tasks() -> None:
    site = starving("off")
    site.live(120)
    assert site.got["big"] <= 1


@pytest.mark.parametrize("hold_for", HOLDING)
def test_with_backfill_holds_a_whole_core_task_starts_when_the_running_tasks_have_ended(
    hold_for: str,
) -> None:
    site = starving(hold_for)
    site.live(120)
    assert site.waited[0] <= 17.0 + 1.0  # the longest running task, and the tick of the hold
    assert site.got["big"] >= 6
    assert site.engine.statistics.holds.served >= 6


@pytest.mark.parametrize("hold_for", HOLDING)
@pytest.mark.parametrize("wanted", [1.0, 1.5])
def test_nothing_is_held_if_the_end_of_one_task_frees_enough(hold_for: str, wanted: float) -> None:
    site = Site(hold_for)
    site.join("first", 1.0, (10.0, 10.0))
    site.take(site.add_agent("s0", "cpus:1.5"))
    site.live(25)
    site.join("second", wanted, (10.0, 10.0))
    for _ in range(60):
        site.live(1)
        assert not site.holding("second"), "free resources are enough"
    assert site.got["second"] >= 2


@pytest.mark.parametrize("hold_for", HOLDING)
def test_backfill_holds_bring_task_shares_nearer_to_fair_shares(hold_for: str) -> None:
    """Divisible TSF gives both users equal task shares; alone, small can run 20 tasks, big 10."""
    site, without = starving(hold_for), starving("off")
    gaps = []
    for side in (site, without):
        side.live(200)
        shares = {standing.user: standing.share for standing in side.engine.standings()}
        gaps.append(abs(shares["small"] - shares["big"]))
    assert gaps[0] < gaps[1]


@examples(15)
@given(st.integers(0, 2**16), st.sampled_from(HOLDING), st.integers(2, 5))
def test_a_task_that_fits_on_an_empty_agent_waits_for_a_bounded_time(
    seed: int, hold_for: str, users: int
) -> None:
    """Each user gets a task within twice a task's run time, because run times must be learned."""
    site = Site(hold_for, seed=seed)
    for number in range(users - 1):
        site.join(f"small{number}", 0.5, (2.0, 6.0))
    for number in range(4):
        site.take(site.add_agent(f"s{number}", "cpus:1"))
    site.live(15)
    site.join("big", 1.0, (3.0, 3.0))
    site.watch("big")
    site.live(users * 2 * 6.0)
    assert site.got["big"] >= 1


def holders(site: Site, until: Callable[[list[str]], bool]) -> list[str]:
    """Advance the clock; return the frameworks that agents were held for, in order."""
    agents: list[str] = []
    before = {(hold.client.framework, hold.until_ns) for hold in site.engine.holds()}
    give_up = site.now_ns + 1000 * SECOND
    while not until(agents):
        site.live(1)
        current = {(hold.client.framework, hold.until_ns) for hold in site.engine.holds()}
        agents += [framework for framework, _ in sorted(current - before)]
        before = current
        assert site.now_ns < give_up, agents
    return agents


def one_second() -> Callable[[list[str]], bool]:
    """Return a condition that is true at its second evaluation."""
    looks = count()
    return lambda _agents: next(looks) > 0


@pytest.mark.parametrize("hold_for", HOLDING)
def test_three_frameworks_with_large_tasks_get_holds_of_their_only_agent_in_turns(
    hold_for: str,
) -> None:
    """Regression: with `all`, the first two frameworks took turns and the third waited for ever."""
    site = Site(hold_for, policy=policies.create("fifo", {}))
    for name in ("small1", "small2"):
        site.join(name, 1.0, (9.5, 9.5))
    for name in ("big1", "big2", "big3"):
        site.join(name, 2.0, (0.5, 0.5))
    site.take(site.add_agent("s0", "cpus:2"))
    site.live(12)
    agents = holders(site, lambda agents: len(agents) >= 12)
    assert Counter(agents) == {"big1": 4, "big2": 4, "big3": 4}


@pytest.mark.parametrize("others", [1, 2, 4])
def test_a_framework_waits_for_exactly_a_hold_of_each_other_framework(others: int) -> None:
    """The framework that has just had its turn reaches the bound of docs/how-to/operate.md."""
    debts = {"last": 100.0} | {f"big{number}": 50.0 for number in range(others)}
    site = Site(
        "one",
        policy=policies.create("sdrf", {"half_life": 1e9}),
        users=tuple(DeclaredUser(name, commitment=debt) for name, debt in debts.items()),
    )
    for name in ("small1", "small2"):
        site.join(name, 1.0, (9.5, 9.5))
    site.take(site.add_agent("s0", "cpus:2"))
    site.join("last", 2.0, (0.5, 0.5))
    assert holders(site, bool) == ["last"]
    for number in range(others):
        site.join(f"big{number}", 2.0, (0.5, 0.5))
    agents = holders(site, lambda agents: "last" in agents)
    assert len(agents) == others + 1


@examples(25)
@given(st.integers(0, 2**16), st.sampled_from(HOLDING), st.sampled_from(["fifo", "drf", "tsf"]))
def test_while_a_framework_waits_each_other_framework_has_at_most_one_hold(
    seed: int, hold_for: str, policy: str
) -> None:
    site = Site(hold_for, seed=seed, policy=policies.create(policy, {}))
    lot = random.Random(seed)
    for number in range(2):
        site.join(f"small{number}", 1.0, (2.0, 6.0))
    site.take(site.add_agent("s0", "cpus:2"))
    bigs = [f"big{number}" for number in range(lot.randint(2, 4))]
    for name in bigs:
        site.join(name, 2.0, (0.3, lot.uniform(0.5, 6.0)))
    passed = Counter[str]()
    for _ in range(200):
        served = Counter(site.got)
        for framework in holders(site, one_second()):
            passed.update(competitor for competitor in bigs if competitor != framework)
            passed[framework] = 0
        for framework in bigs:
            if site.got[framework] > served[framework]:
                passed[framework] = 0
        assert max(passed.values(), default=0) <= len(bigs) - 1


def test_tasks_that_end_before_the_hold_is_ready_may_use_the_held_agent() -> None:
    site = Site("one")
    site.join("brief", 0.25, (1.0, 1.0))
    site.take(site.add_agent("s0", "cpus:1"))
    site.live(5)  # The run time of the tasks is known now.
    site.join("long", 0.5, (60.0, 60.0))
    while not site.got["long"]:
        site.live(1)
    site.send(contract.SuppressOffers(framework_id="long"))
    site.live(12)  # A task that has run for 12 s is expected to run for another 12 s.
    site.join("middle", 0.25, (20.0, 20.0))
    site.join("big", 1.0, (5.0, 5.0))
    while not site.holding("big"):
        site.live(1)
    before = Counter(site.got)
    site.live(8)
    assert site.got["brief"] > before["brief"]
    assert site.got["middle"] == before["middle"]


def test_an_unserved_hold_ends_and_is_not_repeated_at_once() -> None:
    site = Site("one", longest=10.0)
    site.join("endless", 0.5, (1e6, 1e6))
    site.join("small", 0.5, (3.0, 3.0))
    site.take(site.add_agent("s0", "cpus:1"))
    site.send(contract.SuppressOffers(framework_id="endless"))
    site.live(5)
    site.join("big", 1.0, (5.0, 5.0))
    while not site.holding("big"):
        site.live(1)
    counted = site.engine.statistics.holds
    assert counted.begun == counted.served + counted.in_vain + 1
    before_that = site.engine.statistics.holds.in_vain
    site.live(10)
    assert site.engine.statistics.holds.in_vain == before_that + 1
    before = site.got["small"]
    for _ in range(8):
        assert not site.holding("big")
        site.live(1)
    assert site.got["small"] > before


def test_run_times_of_tasks_in_the_first_snapshot_count_from_that_snapshot() -> None:
    site = Site("one")
    site.task["early"] = 1.0, "cpus:1"
    held = resources("cpus:1", "early")
    site.restore(
        contract.Snapshot(
            time_ns=site.now_ns,
            agents=[agent_call("s0", "cpus:1", {"early": held})],
            frameworks=[
                contract.AddFramework(
                    framework_id="early", info=framework_info("early", "early"), active=True
                )
            ],
        )
    )
    site.now_ns += 5 * SECOND
    site.send(
        contract.RecoverResources(framework_id="early", agent_id="s0", resources=held),
    )
    assert dict(site.engine._cluster.holds.runtime_estimates.known()) == {"early": 5 * SECOND}


def test_run_times_of_tasks_on_a_new_resource_provider_count_from_its_arrival() -> None:
    site = Site("one")
    site.add_framework("early", "early", suppressed=["early"])
    site.add_agent("s0", "cpus:1")
    held = resources("disk:1", "early")
    used = [contract.Allocation(framework_id="early", resources=held)]
    site.send(contract.AddResourceProvider(agent_id="s0", total=resources("disk:1"), used=used))
    site.wait(5)
    site.send(contract.RecoverResources(framework_id="early", agent_id="s0", resources=held))
    run_times = site.engine._cluster.holds.runtime_estimates
    assert dict(run_times.known()) == {"early": 5 * SECOND}
    site.send(contract.RemoveFramework(framework_id="early"))
    assert not dict(run_times.known()), "run times of a removed framework are forgotten"


@pytest.mark.parametrize("why", ["gone", "wants no more"])
def test_a_hold_begins_with_a_tick_and_ends_when_no_framework_waits_for_it(
    why: str,
) -> None:
    site = Site("one")
    site.join("larger than any agent", 4.0, (1.0, 1.0))
    used = {name: resources("cpus:0.25", name) for name in ("one", "two")}
    site.join("big", 1.0, (10.0, 10.0))
    site.add_agent("s0", "cpus:1", used)
    assert not list(site.engine.holds()), "a hold begins only with a tick"
    site.tick(2)
    assert site.holding("big")
    add(site, "other", "other", "cpus:0.5")
    assert site.tick() == []
    if why == "gone":
        site.send(contract.RemoveFramework(framework_id="big"))
        offers = site.tick()
    else:
        site.send(contract.SuppressOffers(framework_id="big"))
        offers = site.send(contract.ReviveOffers(framework_id="other"))
    assert [offer.framework for offer in offers] == ["other"]


def test_a_task_that_ends_exactly_when_the_hold_is_ready_may_use_the_held_agent() -> None:
    site = Site("one")
    site.join("brief", 0.25, (2.0, 2.0))
    [task] = site.add_agent("s1", "cpus:0.25")
    site.send(contract.SuppressOffers(framework_id="brief"))
    site.join("big", 1.0, (10.0, 10.0))
    used = {name: resources("cpus:0.25", name) for name in ("one", "two")}
    site.add_agent("s0", "cpus:1", used)
    site.tick(2)
    site.recover(task)
    [hold] = site.engine.holds()
    assert (hold.agent, hold.ready_ns - site.now_ns) == ("s0", 2 * SECOND)
    offers = site.send(contract.ReviveOffers(framework_id="brief"))
    assert {offer.agent for offer in offers} == {"s0", "s1"}


def test_without_agents_a_waiting_task_causes_no_hold_and_no_fault() -> None:
    site = Site("all")
    site.join("big", 1.0, (10.0, 10.0))
    site.tick()
    assert site.engine.statistics.faults == 0


def test_a_hold_for_a_framework_that_declined_as_much_ends_when_its_task_would_fit() -> None:
    site = Site("one")
    site.join("big", 1.0, (10.0, 10.0))
    [offer] = site.add_agent("s0", "cpus:1;mem:64")
    site.recover(offer, refuse_seconds=3600.0)
    add(site, "small", "small", "cpus:0.25")
    site.tick(2)
    assert site.holding("big")
    [small] = read(contract.Decisions.FromString(site.log[-2][1]))
    assert small.resources == "cpus:1"
    [next_offer] = site.recover(small)
    assert next_offer.framework == "small"
    assert not site.holding("big")


def test_rejected_offers_do_not_count_as_task_runs() -> None:
    site = Site("one")
    site.join("first", 1.0, (10.0, 10.0))
    (offer,) = site.add_agent("s0", "cpus:1")
    site.wait(5)
    site.send(
        contract.RejectOffer(framework_id="first", agent_id="s0", resources=offer.messages),
        contract.SuppressOffers(framework_id="first"),
    )
    run_times = site.engine._cluster.holds.runtime_estimates
    assert not dict(run_times.known())
    assert not run_times.clients("s0"), "no task run remains on the agent"


def test_task_runs_are_forgotten_when_their_agent_is_removed() -> None:
    site = Site("one")
    site.join("first", 1.0, (10.0, 10.0))
    assert site.add_agent("s0", "cpus:1")
    site.remove_agent("s0")
    assert not site.engine._cluster.holds.runtime_estimates.clients("s0")


def test_of_two_agents_that_are_ready_at_once_the_first_by_name_is_held_despite_own_tasks() -> None:
    site = Site("one")
    held = {name: resources("cpus:0.5", name) for name in ("one", "two")}
    site.restore(
        contract.Snapshot(
            time_ns=site.now_ns,
            agents=[agent_call("z", "cpus:2", held), agent_call("a", "cpus:1", held)],
            frameworks=[
                contract.AddFramework(framework_id=name, info=framework_info(name, name))
                for name in held
            ],
        )
    )
    site.wait(1)
    add(site, "big", "big", "cpus:1")
    (own,) = read(contract.Decisions.FromString(site.log[-1][1]))
    assert own.agent == "z", "the task occupies agent z"
    site.tick(2)
    assert [hold.agent for hold in site.engine.holds()] == ["a"]


@pytest.mark.parametrize(
    ("labels", "excluded", "expected"),
    [({}, [], "s1"), ({"whitelist": "s2.*"}, [], "s2"), ({}, ["s1"], "s2")],
)
def test_no_agent_is_held_for_a_framework_that_cannot_use_it(
    labels: dict[str, str], excluded: list[str], expected: str
) -> None:
    site = Site("one")
    held = {name: resources("cpus:0.5", name) for name in ("one", "two")}
    for agent in ("s1", "s2"):
        site.add_agent(agent, "cpus:1", held)
    for name in held:
        site.add_framework(name, name)
    site.wait(1)
    apart = [contract.ExcludedAgents(role="big", agent_ids=excluded)]
    description = info("big", "big", {"demand": "cpus:1", **labels})
    site.send(
        contract.AddFramework(framework_id="big", info=description, active=True, excluded=apart)
    )
    site.tick(2)
    assert [hold.agent for hold in site.engine.holds()] == [expected]


def test_a_hold_ends_when_its_framework_suppresses_offers() -> None:
    site = starving("one", longest=1e6)
    while not site.holding("big"):
        site.live(1)
    site.send(contract.SuppressOffers(framework_id="big"))
    site.live(60)
    assert not list(site.engine.holds())


def test_a_framework_that_declines_its_held_agent_waits_like_after_an_unserved_hold() -> None:
    site = starving("one", longest=50.0)
    while not (offers := [o for o in site.tick() if o.framework == "big"]):
        while site._ends and site._ends[0][0] <= site.now_ns:
            _, _, offer, text = heapq.heappop(site._ends)
            made = site.recover(offer, text)
            site.take([o for o in made if o.framework != "big"])
            offers += [o for o in made if o.framework == "big"]
        if offers:
            break
    site.take([o for o in site.recover(offers[0], refuse_seconds=1.0) if o.framework != "big"])
    for _ in range(40):
        site.live(1)
        assert not site.holding("big")


def test_the_reason_for_other_frameworks_is_that_the_agent_is_held() -> None:
    site = starving("one")
    site.live(2)
    (hold,) = site.engine.holds()
    agent = site.engine._cluster.ledger.agents[hold.agent]
    site.engine._cluster.ledger.recover(
        agent, Client("small", "small"), agent.held("small", "small")
    )
    survey = Survey(site.engine._cluster)
    survey.add_agent(agent)
    (client,) = site.engine._cluster.ledger.clients.of("small")
    why = run_to_completion(survey.explain(client))
    assert why is not None
    assert dict(why.agents) == {"held": 1}


def test_a_replayed_log_gives_the_same_decisions() -> None:
    site = starving("all")
    site.live(40)
    assert site.replayed() == [decisions for _, decisions in site.log]
