"""Progressive filling against giving one task after the other: the same offers, to the last tie."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.settings import DeclaredUser, EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.fairness.pool import Standing
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import SECOND, START_NS, framework_info, resources
from tests.cluster.one_by_one import OneByOne

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
]
AGENTS = [
    "cpus:4;mem:4096",
    "cpus:8;mem:1024;disk:64",
    "cpus:3.3;mem:777;disk:10;cpus(a):1;mem(d):64",
    "cpus:4;mem:4096;cpus(d/e):2",
]


class World:
    """A master that makes the same things happen to any allocator."""

    def __init__(self, seed: int) -> None:
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
            smallest_demand=random.choice([0.0, 0.0, 0.02]),
        )
        self.quotas = random.random() < 0.3
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
        """Yield all decisions."""
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
            frameworks=[self._framework(*each) for each in self.frameworks],
        )
        if self.quotas:
            info = mesos.QuotaInfo(role="a")
            info.guarantee.extend(
                mesos.Resource.FromString(data) for data in resources("cpus:3;mem:600")
            )
            snapshot.quotas.add(role="a", info=info.SerializeToString())
        sequence, now = 0, START_NS
        open_: list[tuple[str, contract.Offer]] = []
        held: list[tuple[str, contract.Offer]] = []
        decisions = engine.restore(options, snapshot)
        coming = [self._agent(*each) for each in self.agents[len(self.agents) // 2 :]]
        for _step in range(12):
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
            self.random.shuffle(open_)
            for _number in range(self.random.randrange(len(open_) + 1)):
                framework, offer = open_.pop()
                if self.random.random() < 0.5:
                    held.append((framework, offer))
                    continue
                call = event().recover_resources
                call.framework_id, call.agent_id = framework, offer.agent_id
                call.resources.extend(offer.resources)
                refused = self.random.choice([None, 0.0, 1.0, 20.0])
                if refused is not None:
                    filters = mesos.Filters(refuse_seconds=refused)
                    call.filters = filters.SerializeToString()
            for _number in range(self.random.randrange(len(held) // 2 + 1)):
                framework, offer = held.pop(self.random.randrange(len(held)))
                call = event().recover_resources
                call.framework_id, call.agent_id = framework, offer.agent_id
                call.resources.extend(offer.resources)
            event().tick.SetInParent()
            decisions = engine.apply(events)

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


@contextmanager
def one_by_one() -> Iterator[None]:
    with patch("allocator.cluster.engine.Allocation", OneByOne):
        yield


def check(seed: int) -> None:
    at_once = list(World(seed).play())
    with one_by_one():
        plain = list(World(seed).play())
    for mine, theirs in zip(at_once, plain, strict=True):
        assert str(mine[1]) == str(theirs[1])
        assert mine[0] == theirs[0]


@given(seed=st.integers(0, 2**32))
def test_what_is_given_at_once_is_what_is_given_one_by_one(seed: int) -> None:
    check(seed)
