"""Progressive filling makes the offers of an allocation task by task, to the last tie."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from allocator.cluster.allocation import client_index, offer_builder
from allocator.cluster.engine import Engine
from allocator.cluster.engine.allocation_cycle import AllocationCycle
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot, SortKey
from allocator.fairness.standing import Standing
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, MasterSide, framework_info, resources
from tests.cluster.one_by_one import OneByOne
from tests.cluster.test_task_offers import add
from tests.examples import examples, scaled

POLICIES: dict[str, dict[str, object]] = {
    "drf": {},
    "sdrf": {"half_life": 20.0},
    "tsf": {},
    "stsf": {"half_life": 20.0},
    "drfh": {},
    "cmmf": {"resource": "mem"},
    "cdrf": {},
    "fifo": {},
    "per-machine-drf": {},
    "dynamic-drf": {"alpha": 0.5},
    "dynamic-mmf": {"resource": "mem"},
    "slurm-fair-tree": {"half_life": 20.0, "billing": "cpus=1,mem=1"},
    # Not htcondor: a first task changes its client's priority. Task by task, that decides ties of
    # clients without an allocation of the resource; at once, it does so only after the cycle.
    "karma": {},
    "yarn-fair": {"minimum": 0.5},
}
ROLES = ["a", "b", "c", "d/e", "d/f", "d", "g/h/i", "g/h/j", "k"]
DEMANDS = [
    None,
    "cpus:1;mem:1024",
    "cpus:0.1",
    "cpus:0.05;mem:8",
    "cpus:0.07;mem:1",
    "mem:16",
    "mem:100",
    "cpus:2;mem:64",
    "disk:5",
    "cpus:0.25;disk:1;mem:256",
    "ports:1",
    "cpus:0.05;ports:2",
    "ports:3;mem:8",
]
AGENTS = [
    "cpus:4;mem:4096",
    "cpus:8;mem:1024;disk:64",
    "cpus:3.3;mem:777;disk:10;cpus(a):1;mem(d):64",
    "cpus:4;mem:4096;cpus(d/e):2",
    "cpus:4;mem:1024;ports:[1-100]",
    "cpus:1;mem:512;ports:[31000-31012,32000-32900];cpus(b):1",
]

Held: TypeAlias = tuple[str, contract.Offer]
"""A framework, and an offer to that framework."""


class World:
    """A master that repeats the same random events for any allocator."""

    def __init__(self, seed: int, steps: int) -> None:
        self.steps = steps
        self.random = random = Random(seed)
        policy = random.choice(list(POLICIES))
        users = tuple(
            DeclaredUser(role, random.choice([0.5, 1.0, 2.0]), random.choice([0.0, 0.1, 0.3]))
            for role in random.sample(["a", "b", "c", "d", "d/e", "g"], random.randrange(4))
        )
        self.settings = EngineSettings(
            policies.create(policy, POLICIES[policy]),
            user_key=random.choice(["role", "role", "framework"]),
            users=users,
            allocation=random.choice(["event", "batch"]),
            demands={"f1 of the tests": Quantities.parse("cpus:0.3;mem:30")}
            if random.random() < 0.2
            else {},
            limits=Limits(smallest_demand=random.choice([0.0, 0.0, 0.02])),
        )
        self.quotas = random.choice(["none", "none", "capped", "limited"])
        few = random.sample(DEMANDS, random.randrange(1, 4))
        roles = random.sample(ROLES, random.randrange(1, len(ROLES)))
        self.frameworks = [
            (f"f{number}", random.choice(roles), random.choice(few if number % 3 else DEMANDS))
            for number in range(random.randrange(1, 9))
        ]
        self.agents = [
            (f"s{number}", random.choice(AGENTS)) for number in range(random.randrange(1, 6))
        ]

    def play(self) -> Iterator[tuple[list[Standing[str]], contract.Decisions]]:
        """Yield standings and decisions after each event."""
        engine = Engine(self.settings)
        options = contract.Options(
            allocation_interval_ns=SECOND,
            min_allocatable=[
                contract.Quantities(amounts={"cpus": 0.2}),
                contract.Quantities(amounts={"mem": 32.0}),
            ],
        )
        snapshot = contract.Snapshot(
            time_ns=START_NS,
            agents=[self._agent(name, text) for name, text in self.agents[: len(self.agents) // 2]],
            frameworks=[self._framework(*framework) for framework in self.frameworks],
        )
        self.set_quotas(snapshot)
        sequence, now = 0, START_NS
        open_: list[Held] = []
        held: list[Held] = []
        decisions = engine.restore(options, snapshot)
        coming = [self._agent(*agent) for agent in self.agents[len(self.agents) // 2 :]]
        for _step in range(self.steps):
            yield engine.standings(), decisions
            open_ += [(o.framework_id, offer) for o in decisions.offers for offer in o.offers]
            now += self.random.choice([0, SECOND // 3, SECOND, 5 * SECOND])
            events = contract.Events()

            def event(events: contract.Events = events, now: int = now) -> contract.Event:
                nonlocal sequence
                sequence += 1
                return events.events.add(sequence=sequence, time_ns=now)

            if coming:
                event().add_agent.CopyFrom(coming.pop())
            for framework, offer in self._taken(open_):
                if self.random.random() < 0.5:
                    held.append((framework, offer))
                else:
                    ports = [data for data in offer.resources if _has_ports(data)]
                    rest = [data for data in offer.resources if not _has_ports(data)]
                    filters = self._filters()
                    give_back(event().recover_resources, framework, offer.agent_id, rest, filters)
                    # Ports are chosen at random, so a filter on them would exclude random offers.
                    give_back(event().recover_resources, framework, offer.agent_id, ports, None)
            for framework, offer in self._taken(held):
                back = offer.resources
                give_back(event().recover_resources, framework, offer.agent_id, back, None)
            event().tick.SetInParent()
            decisions = engine.apply(events)

    def set_quotas(self, snapshot: contract.Snapshot) -> None:
        if self.quotas == "limited":
            for role in ("a", "d"):
                limit_role(snapshot, role, {"cpus": 1.5}, {"cpus": 2.5, "disk": 0.0})
        if self.quotas == "capped":
            guarantee(snapshot, "a", {"cpus": 3, "mem": 600})

    def _taken(self, offers: list[Held]) -> list[Held]:
        """Remove and return some entries, in any order."""
        self.random.shuffle(offers)
        return [offers.pop() for _number in range(self.random.randrange(len(offers) + 1))]

    def _filters(self) -> bytes | None:
        refused = self.random.choice([None, 0.0, 1.0, 20.0])
        if refused is None:
            return None
        return mesos.Filters(refuse_seconds=refused).SerializeToString()

    def _agent(self, name: str, text: str) -> contract.AddAgent:
        return contract.AddAgent(
            agent_id=name,
            info=mesos.SlaveInfo(hostname=name).SerializeToString(),
            capabilities=[
                mesos.SlaveInfo.Capability.MULTI_ROLE,
                mesos.SlaveInfo.Capability.HIERARCHICAL_ROLE,
                mesos.SlaveInfo.Capability.RESERVATION_REFINEMENT,
            ],
            total=resources(text),
        )

    def _framework(self, name: str, role: str, demand: str | None) -> contract.AddFramework:
        info = mesos.FrameworkInfo.FromString(framework_info(name, role))
        if demand is not None:
            info.labels.labels.add(key="longshare.demand", value=demand)
        return contract.AddFramework(framework_id=name, info=info.SerializeToString(), active=True)


class QuotaWorld(World):
    """A world in which several roles have quotas, and frameworks use whole offers."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, steps)
        random = self.random
        self.quotas = random.choice(["capped", "limited"])
        self.frameworks = [
            (f"f{number}", random.choice(["a", "b", "d", "d/e", "k"]), random.choice(DEMANDS[:3]))
            for number in range(random.randrange(2, 7))
        ]
        self.agents = [
            (f"s{number}", random.choice(AGENTS)) for number in range(random.randrange(2, 6))
        ]
        self.roles = random.sample(["a", "b", "d", "k"], random.randrange(1, 4))

    @override
    def set_quotas(self, snapshot: contract.Snapshot) -> None:
        for role in self.roles:
            guaranteed, most = self._amounts([0.5, 1, 3, 9]), self._amounts([1, 4, 20])
            if self.quotas == "capped":
                guarantee(snapshot, role, guaranteed or {"cpus": 2})
            else:
                limit_role(snapshot, role, guaranteed, most)

    def _amounts(self, sizes: list[float]) -> dict[str, float]:
        units = {"cpus": 1, "mem": 400, "disk": 15}
        names = self.random.sample(list(units), self.random.randrange(4))
        return {name: self.random.choice(sizes) * units[name] for name in names}


class DeepWorld(World):
    """A world with roles on many levels, and tasks of which many fit on each agent."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, steps)
        random = self.random
        roles = ["/".join("abcdefg"[first:last]) for first in range(2) for last in range(2, 8)]
        demands = ["cpus:0.1", "cpus:0.07;mem:1", "mem:16", "cpus:1;mem:1024"]
        self.frameworks = [
            (f"f{number}", random.choice(roles), random.choice(demands))
            for number in range(random.randrange(4, 14))
        ]


def guarantee(snapshot: contract.Snapshot, role: str, amounts: Mapping[str, float]) -> None:
    info = mesos.QuotaInfo(role=role)
    text = ";".join(f"{name}:{amount}" for name, amount in amounts.items())
    info.guarantee.extend(mesos.Resource.FromString(data) for data in resources(text))
    snapshot.quotas.add(role=role, info=info.SerializeToString())


def limit_role(
    snapshot: contract.Snapshot,
    role: str,
    guarantees: Mapping[str, float],
    limits: Mapping[str, float],
) -> None:
    quota = snapshot.limited_quotas.add(role=role)
    quota.guarantees.amounts.update(guarantees)
    quota.limits.amounts.update(limits)


def give_back(
    call: contract.RecoverResources,
    framework: str,
    agent: str,
    back: Iterable[bytes],
    filters: bytes | None,
) -> None:
    call.framework_id, call.agent_id = framework, agent
    call.resources.extend(back)
    if filters is not None:
        call.filters = filters


def _has_ports(data: bytes) -> bool:
    return mesos.Resource.FromString(data).HasField("ranges")


def told(decisions: contract.Decisions) -> str:
    """Format decisions, with sorted resources, and with the number of ports instead of the ports.

    Ports that are allocated at once are adjacent.
    """
    copied = contract.Decisions()
    copied.CopyFrom(decisions)
    for offers in copied.offers:
        for offer in offers.offers:
            for number, data in enumerate(offer.resources):
                resource = mesos.Resource.FromString(data)
                ports = sum(interval.end - interval.begin + 1 for interval in resource.ranges.range)
                del resource.ranges.range[:]
                offer.resources[number] = resource.SerializeToString() + b"%d" % ports
            offer.resources[:] = sorted(offer.resources)
    return str(copied)


@contextmanager
def one_by_one() -> Iterator[None]:
    with patch.object(AllocationCycle, "allocator", OneByOne):
        yield


def check(seed: int, steps: int, world: type[World] = World) -> None:
    """Compare a world with the reference; in half of the worlds, masks examine single clients."""
    large = 1 + seed % 2 * 15
    with (
        patch.object(offer_builder, "LARGE_GROUP", large),
        patch.object(client_index, "LARGE_GROUP", large),
    ):
        at_once = list(world(seed, steps).play())
    with one_by_one():
        plain = list(world(seed, steps).play())
    for mine, theirs in zip(at_once, plain, strict=True):
        assert told(mine[1]) == told(theirs[1])
        assert mine[0] == theirs[0]


@examples(12)
@given(seed=st.integers(0, 2**32))
def test_progressive_filling_equals_allocation_task_by_task(seed: int) -> None:
    check(seed, steps=3)


@pytest.mark.parametrize("seed", [10, 18, 29, 53, 55, 174])
def test_progressive_filling_equals_allocation_task_by_task_in_chosen_worlds(
    seed: int,
) -> None:
    check(seed, steps=6)


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in (0, 20, 40)], ids=str)
def test_quota_guarantees_limits_and_headroom_are_those_of_the_reference(seeds: range) -> None:
    for seed in seeds:
        check(seed, steps=4, world=QuotaWorld)


@pytest.mark.parametrize("seed", range(8))
def test_progressive_filling_equals_allocation_task_by_task_in_deep_role_trees(seed: int) -> None:
    check(seed, steps=4, world=DeepWorld)


@pytest.mark.slow
def test_progressive_filling_equals_allocation_task_by_task_in_many_worlds() -> None:
    for seed in range(scaled(40)):
        check(seed, steps=12)


def filled(
    demands: list[str], agent: str, smallest: float = 0.0, policy: str = "drf", held: str = ""
) -> tuple[dict[str, str], int]:
    """Return the offers of one agent, and the number of questions to the sorter.

    Args:
        demands: Demand of a task, by framework.
        agent: Resources of the agent.
        smallest: Lower bound of demands.
        policy: Name of the policy.
        held: Earlier allocations, which are some seconds old.
    """
    master = MasterSide(excluded=["gpus"])
    master.settings = EngineSettings(
        policies.create(policy, POLICIES.get(policy, {})), limits=Limits(smallest_demand=smallest)
    )
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for number, demand in enumerate(demands):
        add(master, f"f{number}", f"role{number}", demand)
    if held:
        master.add_agent("s0", held)
        master.wait(7.0)
    asked = 0

    def counted(name: str) -> AbstractContextManager[object]:
        plain = getattr(SorterSnapshot, name)

        def counting(
            self: SorterSnapshot[str], user: str, added: Quantities, times: int
        ) -> SortKey:
            nonlocal asked
            asked += 1
            place: SortKey = plain(self, user, added, times)
            return place

        return patch.object(SorterSnapshot, name, counting)

    with counted("sort_key_after"), counted("holding"):
        offers = master.add_agent("s1", agent)
    return {offer.framework: offer.resources for offer in offers}, asked


@pytest.mark.parametrize(
    "demands",
    [
        ["cpus:0.001"],
        ["cpus:0.001", "cpus:0.001"],
        ["cpus:0.001", "mem:0.001", "cpus:0.003;mem:0.002"],
        ["cpus:0.001", "cpus:32", "mem:0.001"],
        ["cpus:0.001;mem:0.001", "cpus:0.002;mem:0.001", "cpus:7", "mem:5"],
    ],
)
def test_a_million_tasks_take_a_few_hundred_questions_to_the_sorter(demands: list[str]) -> None:
    few, asked_few = filled(demands, "cpus:64;mem:64")
    many, asked_many = filled(demands, "cpus:64000;mem:64000")
    assert many.keys() >= few.keys()
    assert asked_many < asked_few + 400 * len(demands)


@pytest.mark.parametrize("policy", policies.ours())
def test_a_million_tasks_of_equal_clients_take_few_questions_under_any_policy(policy: str) -> None:
    """The allocations move some policies' priorities by rounding only."""
    demands = ["cpus:0.001;mem:0.001"] * 3
    few, asked_few = filled(demands, "cpus:6;mem:6", 0.0, policy, "cpus:3;mem:3")
    many, asked_many = filled(demands, "cpus:6000;mem:6000", 0.0, policy, "cpus:3;mem:3")
    assert many.keys() >= few.keys()
    assert asked_many < asked_few + 400 * len(demands)


@pytest.mark.parametrize("policy", ["sdrf", "drf", "tsf"])
def test_a_million_tasks_of_an_excluded_resource_take_few_questions(policy: str) -> None:
    both = ["cpus:0.001;gpus:0.001", "cpus:0.001;gpus:0.001"]
    few, asked_few = filled(both, "cpus:6;mem:64;gpus:1", 0.0, policy, "cpus:4")
    many, asked_many = filled(both, "cpus:6;mem:64;gpus:6", 0.0, policy, "cpus:4")
    assert many.keys() >= few.keys()
    assert asked_many < asked_few + 800


@pytest.mark.parametrize(
    "demands", [["ports:1"], ["ports:1"] * 2, ["ports:2", "cpus:0.01;ports:1"]]
)
def test_a_million_tasks_that_change_no_rank_are_allocated_at_once(demands: list[str]) -> None:
    few, asked_few = filled(demands, "cpus:64;mem:64;ports:[1-1000]")
    many, asked_many = filled(demands, "cpus:64;mem:64;ports:[1-1000000]")
    assert many.keys() == few.keys()
    assert asked_many < asked_few + 100


def test_equal_clients_with_tiny_tasks_get_half_an_agent_each() -> None:
    offers, _asked = filled(["cpus:0.001", "cpus:0.001"], "cpus:64;mem:64")
    assert offers == {"f0": "cpus:32", "f1": "cpus:32"}


def test_a_demand_below_the_minimum_is_allocated_several_times_at_once() -> None:
    offers, _asked = filled(["cpus:0.001;mem:1"], "cpus:10;mem:1024", smallest=0.3)
    # 3,000 tasks need three tenths of the agent's processors; 308 tasks need as much of its memory.
    assert offers == {"f0": "cpus:0.924;mem:924"}


def test_ports_are_allocated_in_whole_ranges() -> None:
    offers, _asked = filled(["cpus:0.01;ports:1"] * 2, "cpus:64;mem:64;ports:[1-1000]")
    assert [text.rpartition("ports:")[2] for text in offers.values()] == ["[1-500]", "[501-1000]"]
