"""A snapshot has the same effect as the calls that led to it (§6.4)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.mirror import Bag, Mirror, bag
from tests.cluster.conformance.quota_side import LEAST, BatchMaster, set_quota, unavailability
from tests.cluster.master_side import SECOND, START_NS

AGENTS = {
    "s1": "cpus:4;mem:2048",
    "s2": "cpus:2;mem:512;cpus(a):1",
    "s3": "cpus:3;mem:1024;mem(b):256;cpus(a/b):1",
}
FRAMEWORKS = {"f1": ("a",), "f2": ("a/b", "b"), "f3": ("b",), "gone": ("old",)}
OTHER_ROLES = [("a",), ("b", "c"), ("a/b",), ()]
SIZES = ["cpus:1;mem:512", "cpus:6;mem:4096;disk:9", "cpus:2;mem:2048;cpus(a):2"]
QUOTAS = {"a": "cpus:3;mem:700", "b": "cpus:1"}
USED = {("f1", "a"): "cpus:0.5;mem:64", ("gone", "old"): "cpus:0.25", ("f2", "left"): "mem:32"}
TIMES = (0.5, 1, 30)


class Chance:
    """Draws calls that are valid for a master in its current state."""

    def __init__(self, mirror: Mirror, seed: int, *, filters: bool, quotas: bool) -> None:
        self.mirror = mirror
        self.random = Random(seed)
        self.filters = filters
        self.quotas = quotas

    def call(self, kind: str) -> None:
        """Make a call of a kind, if the state permits such a call."""
        getattr(self, kind)()

    def one(self, choices: Iterable[str]) -> Iterator[str]:
        """Yield one of the choices, unless there are no choices."""
        listed = sorted(choices)
        if listed:
            yield self.random.choice(listed)

    def either(self) -> bool:
        return self.random.random() < 0.5

    def used(self) -> dict[tuple[str, str], str]:
        return {place: text for place, text in USED.items() if self.either()}

    def tick(self) -> None:
        if self.mirror.paused:
            self.mirror.set_paused(paused=False)
        self.mirror.tick(self.random.choice(TIMES))

    def bracket(self) -> None:
        self.mirror.set_paused(paused=not self.mirror.paused)

    def agent(self) -> None:
        for name in self.one(AGENTS):
            if name not in self.mirror.agents:
                self.mirror.add_agent(name, AGENTS[name], self.used())
            elif self.either():
                self.mirror.remove_agent(name)
            else:
                active = not self.mirror.agents[name].active
                self.mirror.set_agent_active(name, active=active)

    def agents_resources(self) -> None:
        for name in self.one(self.mirror.agents):
            if self.either():
                self.mirror.resize(name, self.random.choice(SIZES))
            else:
                self.mirror.add_provider(name, "disk:5", self.used())

    def maintenance(self) -> None:
        for name in self.one(self.mirror.agents):
            asked = [f for f, s in self.mirror.agents[name].inverse.items() if s.outstanding]
            if asked:
                self.mirror.answer_inverse_offer(name, asked[0])
            elif self.mirror.agents[name].unavailability is None:
                self.mirror.schedule(name, unavailability(START_NS + 3600 * SECOND))
            else:
                self.mirror.schedule(name, None)

    def framework(self) -> None:
        for name in self.one(FRAMEWORKS):
            roles = FRAMEWORKS[name]
            if name not in self.mirror.frameworks:
                suppressed = set(roles[:1]) if self.either() else set()
                self.mirror.add_framework(
                    name, roles, suppressed, active=self.random.random() < 0.8
                )
            elif self.either():
                self.mirror.remove_framework(name)
            else:
                active = not self.mirror.frameworks[name].active
                self.mirror.set_framework_active(name, active=active)

    def frameworks_roles(self) -> None:
        for name in self.one(self.mirror.frameworks):
            roles = self.random.choice([FRAMEWORKS[name], *OTHER_ROLES])
            self.mirror.update_framework(name, roles, set())

    def wishes(self) -> None:
        for name in self.one(self.mirror.frameworks):
            if self.either():
                self.mirror.suppress(name)
            else:
                self.mirror.revive(name)

    def answer(self) -> None:
        for offer in self.mirror.offers[:1]:
            whole = bag(offer.resources)
            total = self.mirror.agents[offer.agent].total
            if whole <= total and self.random.random() < 0.3:
                self.mirror.reserve_offered(offer)
                continue
            part: Bag = Counter({name: m for name, m in whole.items() if self.either()})
            filters = mesos.Filters().SerializeToString() if self.filters else None
            self.mirror.give_back(offer, part or whole, filters)

    def task_ends(self) -> None:
        for name in self.one(self.mirror.agents):
            offered = {(o.framework, o.role) for o in self.mirror.offers if o.agent == name}
            used = [p for p in self.mirror.agents[name].held.items() if p[0] not in offered]
            for (framework, role), held in used[:1]:
                self.mirror.release(name, framework, role, held)

    def operator(self) -> None:
        for name in self.one(self.mirror.agents):
            self.mirror.reserve_free(name, self.random.choice(["a", "b", "c"]))

    def quota(self) -> None:
        for role in self.one(QUOTAS if self.quotas else ()):
            if role in self.mirror.quotas:
                self.mirror.remove_quota(role)
            else:
                self.mirror.set_quota(set_quota(role, QUOTAS[role]))

    def weight(self) -> None:
        self.mirror.weigh(self.random.choice(["a", "a/b", "c"]), self.random.choice([0.5, 1, 3]))

    def whitelist(self) -> None:
        names = [name for name in AGENTS if self.either()]
        self.mirror.allow(names if self.mirror.whitelist is None else None)


KINDS = [
    "tick",
    "bracket",
    "agent",
    "agents_resources",
    "maintenance",
    "framework",
    "frameworks_roles",
    "wishes",
    "answer",
    "task_ends",
    "operator",
    "quota",
    "weight",
    "whitelist",
]
OFTEN = ["tick", "tick", "answer", "answer", "agent", "framework"]
HISTORIES = st.lists(st.sampled_from(KINDS + OFTEN), min_size=12, max_size=60)
SEEDS = st.integers(0, 2**32)


def history(
    calls: list[str],
    seed: int,
    *,
    filters: bool = True,
    quotas: bool = True,
    policy: str = "drf",
    min_allocatable: Iterable[Mapping[str, float]] = LEAST,
) -> Mirror:
    """Let a master make calls; return inside a pause, so that no offer is outstanding."""
    master = BatchMaster(policy, min_allocatable=min_allocatable)
    mirror = Mirror(master)
    if seed % 3 == 0:
        mirror.recover_leadership(4)
    chance = Chance(mirror, seed, filters=filters, quotas=quotas)
    for kind in ("agent", "framework", "framework", "agent", "agent", *calls):
        chance.call(kind)
    mirror.set_paused(paused=True)
    return mirror


def successor(mirror: Mirror) -> Engine:
    """Return an engine with only the snapshot and its predecessor's memory."""
    engine = Engine(mirror.master.settings, memory=mirror.master.engine.memory())
    decisions = engine.restore(mirror.master.options, mirror.snapshot())
    assert not decisions.offers, "a paused allocator makes no offers"
    return engine


def standings(engine: Engine) -> dict[str, tuple[dict[str, float], float, float]]:
    """Return standings of users with an allocation; a role's virtual leaf is no user."""
    return {
        s.user: (s.allocation.to_doubles(), s.weight, s.share)
        for s in engine.standings()
        if s.allocation and not s.user.endswith("/.")
    }


def statuses(engine: Engine, sequence: int, now_ns: int) -> list[str]:
    events = contract.Events()
    event = events.events.add(sequence=sequence + 1, time_ns=now_ns)
    event.get_inverse_offer_statuses.SetInParent()
    [reply] = engine.apply(events).replies
    return sorted(str(state) for state in reply.statuses)


@given(HISTORIES, SEEDS)
def test_the_state_after_a_snapshot_is_the_state_after_all_calls(
    calls: list[str], seed: int
) -> None:
    mirror = history(calls, seed)
    old, new = mirror.master.engine, successor(mirror)
    assert new.allocations() == old.allocations()
    assert new.available() == old.available()
    assert new.pool.capacity == old.pool.capacity
    assert new.quotas() == old.quotas()
    assert standings(new) == standings(old)
    assert (new.agents, new.frameworks, new.sequence) == (old.agents, old.frameworks, old.sequence)
    now_ns, sequence = mirror.master.now_ns, mirror.master.sequence
    assert statuses(new, sequence, now_ns) == statuses(old, sequence, now_ns)


@given(HISTORIES, SEEDS)
def test_the_accounted_allocations_are_those_of_the_mirror(calls: list[str], seed: int) -> None:
    mirror = history(calls, seed)
    booked = {
        place: str(held) for place, held in mirror.master.engine.allocations().items() if held
    }
    noted = {
        (name, *place): str(by_name(held))
        for name, agent in mirror.agents.items()
        for place, held in agent.held.items()
    }
    assert {place: sorted(text.split(";")) for place, text in booked.items()} == {
        place: sorted(text.split(";")) for place, text in noted.items()
    }


def by_name(held: Bag) -> str:
    sums: Counter[str] = Counter()
    for name, milli in held.items():
        sums[name.partition("(")[0]] += milli
    return ";".join(f"{name}:{milli / 1000:g}" for name, milli in sums.items())


@given(HISTORIES, SEEDS)
def test_the_next_cycle_after_a_snapshot_leaves_as_little_free_as_without_the_snapshot(
    calls: list[str], seed: int
) -> None:
    """Without filters, quotas and a minimum, everything is offered in any order of clients."""
    mirror = history(calls, seed, filters=False, quotas=False, min_allocatable=())
    old, new = mirror.master.engine, successor(mirror)
    following = contract.Events()
    for number, call in enumerate(("resume", "tick"), start=1):
        event = following.events.add(
            sequence=mirror.master.sequence + number, time_ns=mirror.master.now_ns + SECOND
        )
        getattr(event, call).SetInParent()
    decided = [engine.apply(following) for engine in (old, new)]
    assert new.available() == old.available()
    assert offered(decided[0]) == offered(decided[1])


def offered(decisions: contract.Decisions) -> dict[str, set[str]]:
    """Return the offered kinds of resources by agent."""
    places: dict[str, set[str]] = {}
    for offers in decisions.offers:
        for offer in offers.offers:
            for data in offer.resources:
                message = mesos.Resource.FromString(data)
                reserved = ",".join(r.role for r in message.reservations)
                places.setdefault(offer.agent_id, set()).add(f"{message.name}({reserved})")
    return places


@given(HISTORIES, SEEDS)
def test_commitments_outlive_the_engine_that_kept_them(calls: list[str], seed: int) -> None:
    mirror = history(calls, seed, policy="sdrf")
    old, new = mirror.master.engine, successor(mirror)
    owed = {
        s.user: s.commitment
        for s in old.standings()
        if s.commitment >= 1e-2 and not s.user.endswith("/.")
    }
    kept = {s.user: s.commitment for s in new.standings()}
    assert {user: kept.get(user) for user in owed} == pytest.approx(owed)


def test_a_commitment_of_a_virtual_leaf_outlives_the_engine_that_kept_it() -> None:
    mirror = Mirror(BatchMaster("sdrf"))
    mirror.add_framework("f1", ("a",), set(), active=True)
    mirror.add_framework("f2", ("a/b",), set(), active=True)
    mirror.add_agent("s1", "cpus:4;mem:2048", {("f1", "a"): "cpus:4"})
    mirror.tick(30)
    mirror.set_paused(paused=True)
    old, new = mirror.master.engine, successor(mirror)
    owed, kept = ({s.user: s.commitment for s in e.standings()} for e in (old, new))
    assert owed["a/."] > 0
    assert kept["a/."] == pytest.approx(owed["a/."])
