"""A shared volume counts once for each framework, once for its role, and once for each ancestor."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.agents.shared_volumes import SharedVolumes, Volume, sizes
from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import Kind, Resources, parse_total
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users import Users
from allocator.cluster.users.usage import parts_of_volumes
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import SHARED, allocated, disk
from tests.cluster.master_side import MasterSide, Offered, framework_info

if TYPE_CHECKING:
    from allocator.cluster.resources.amounts import Amount

VOLUMES = [disk(size, reserved=["a"], volume=f"v{size}", shared=True) for size in (20, 30)]
ROLES = ("a", "a/b", "a/b/c", "a/d")


class Site(MasterSide):
    """A cluster with shared volumes of role `a` on two agents, and the rule of the service."""

    def __init__(self, policy: str = "drf", **changes: object) -> None:
        super().__init__("drf")
        parameters = {"half_life": 60.0} if policy == "sdrf" else {}
        settings = {"policy": policies.create(policy, parameters), "shared_volumes_once": True}
        self.settings = EngineSettings(**{**settings, **changes})  # type: ignore[arg-type]
        self.engine = Engine(self.settings)
        self.restore(contract.Snapshot(time_ns=self.now_ns))

    def put(self, agent: str, total: Iterable[bytes]) -> None:
        self.add_agent(agent, "cpus:8;mem:800;disk:50")
        self.send(contract.AddResourceProvider(agent_id=agent, total=total))

    def hold(self, framework: str, role: str, agent: str, messages: Iterable[bytes]) -> None:
        used = contract.Allocation(framework_id=framework, resources=allocated(messages, role))
        self.send(contract.AddResourceProvider(agent_id=agent, used=[used]))

    def held(self) -> dict[str, dict[str, int]]:
        """Return the allocation of each user and each virtual leaf, as the sorter counts it."""
        users = self.engine._cluster.ledger.clients.users
        return {
            name: dict(pool.held(name).items()) for pool in users._pools for name in pool.users()
        }

    def expected(self) -> dict[str, dict[str, int]]:
        """Return the same quantities, summed from the agents' allocations."""
        cluster, sums = self.engine._cluster, dict.fromkeys(self.held(), Quantities())
        clients = cluster.ledger.clients
        for agent in cluster.ledger.agents.values():
            bags: dict[str, list[Resources]] = {}
            for framework, role, held in agent.allocations():
                client = Client(role, framework)
                if client in clients:
                    for name in set(clients.node(client).names) & set(sums):
                        bags.setdefault(name, []).append(held)
            for name, held_here in bags.items():
                plain = [bag.where(lambda kind: not kind.shared) for bag in held_here]
                shared: dict[Kind, Amount] = {
                    kind: 1 for bag in held_here for kind in dict(bag.items()) if kind.shared
                }
                for bag in (*plain, Resources(shared)):
                    sums[name] = sums[name] + bag.scalars
        return {name: dict(total.items()) for name, total in sums.items()}


def check_repeated(clients: Clients, names: Iterable[str]) -> None:
    """Compare repeated quantities with a count of holders: each but the first repeats a volume."""
    volumes = clients.users.volumes
    for name in names:
        holders = Counter[Volume]()
        for client in clients:
            if name in clients.node(client).names:
                holders.update(volumes.of(client))
        for agent in (None, "s0", "s1"):
            assert volumes.repeated(name, agent) == sizes(
                volume
                for volume, number in holders.items()
                for _repeat in range(number - 1)
                if agent is None or volume[0] == agent
            )


@pytest.mark.parametrize("seed", range(10))
def test_repeated_quantities_equal_a_count_of_the_holders_of_each_volume(seed: int) -> None:
    lot, shared, held = random.Random(seed), SharedVolumes(), dict[Client, set[Volume]]()
    kinds = [
        kind
        for n in range(12)
        for kind in parse_total([disk(n + 1, reserved=["a"], volume=f"v{n}", shared=True)])
    ]
    everything = [(agent, kind) for agent in ("s0", "s1") for kind in kinds]
    above = {"a/.": ["a/.", "a"], "b": ["a/b", "a"], "c": ["a/b/c", "a/b", "a"], "d": ["d"]}
    clients = [Client(lot.choice([*above]), f"f{n}") for n in range(30)]

    def holders(name: str) -> Counter[Volume]:
        return Counter(
            volume
            for client, volumes in held.items()
            if name in above[client.role]
            for volume in volumes
        )

    for _ in range(400):
        client = lot.choice(clients)
        before = {name: shared.repeated(name) for name in above[client.role]}
        lost, gained = (set(lot.sample(everything, lot.randrange(20))) for _ in range(2))
        lost &= held.setdefault(client, set())
        if lot.random() < 0.2:
            lost, gained = set(held[client]), set()
        changes = shared.change(client, above[client.role], lost, gained)
        held[client] = held[client] - lost | gained
        for name, former in before.items():
            increase, decrease = changes.get(name, (Quantities(), Quantities()))
            assert former + increase - decrease == shared.repeated(name)
        for name in {name for names in above.values() for name in names}:
            repeats = holders(name) - Counter(holders(name).keys())
            assert shared.repeated(name) == sizes(repeats.elements())
    for client in clients:
        shared.change(client, above[client.role], held.get(client, ()), ())
    assert not shared._holders
    assert not shared._repeated
    assert not shared._numbers


def take(offers: list[Offered], lot: random.Random) -> list[Offered]:
    return [offer for offer in offers if lot.random() < 0.7]


def test_a_volume_shared_by_two_frameworks_of_a_role_counts_once_for_the_role() -> None:
    site = Site("sdrf")
    site.add_agent("s0", "cpus:3;mem:300;disk:100")
    volume = disk(50, reserved=["a"], volume="v", shared=True)
    site.send(contract.AddResourceProvider(agent_id="s0", total=[volume]))
    site.add_framework("f1", "a", capabilities=[SHARED], suppressed=["a"])
    site.add_framework("f2", "a", capabilities=[SHARED], suppressed=["a"])
    for framework in ("f1", "f2"):
        site.hold(framework, "a", "s0", [volume])
    [standing] = site.engine.standings()
    assert standing.share == pytest.approx(1 / 3), "and not two thirds"
    clients = site.engine._cluster.ledger.clients
    assert {str(clients.held(client)) for client in clients} == {"disk:50"}, (
        "once for each framework"
    )
    site.wait(600)
    assert site.engine.standings()[0].commitment == 0.0, "a user alone has no overuse"


def test_logs_without_the_setting_count_a_shared_volume_for_each_framework() -> None:
    site = Site(shared_volumes_once=False)
    site.add_agent("s0", "disk:100")
    volume = disk(50, reserved=["a"], volume="v", shared=True)
    site.send(contract.AddResourceProvider(agent_id="s0", total=[volume]))
    for framework in ("f1", "f2"):
        site.add_framework(framework, "a", capabilities=[SHARED], suppressed=["a"])
        site.hold(framework, "a", "s0", [volume])
    assert site.held() == {"a": {"disk": 100_000}}


@pytest.mark.parametrize("user_key", ["role", "framework", "principal", "framework_name"])
@pytest.mark.parametrize("seed", range(12))
def test_the_allocation_of_each_user_counts_shared_volumes_once(user_key: str, seed: int) -> None:
    lot = random.Random(seed)
    site = Site(lot.choice(["drf", "sdrf", "per-machine-drf"]), user_key=user_key)
    for agent in ("s0", "s1"):
        site.put(agent, VOLUMES)
    known: dict[str, str] = {}
    offers: list[Offered] = []
    repeated = 0
    for step in range(60):
        name, role = f"f{lot.randrange(5)}", lot.choice(ROLES)
        choice = lot.choice(
            ["add", "hold", "hold", "tick", "tick", "back", "back", "gone", "roles"]
        )
        if choice == "add" and name not in known:
            known[name] = role
            offers += take(site.add_framework(name, role, capabilities=[SHARED]), lot)
        elif choice == "hold":
            site.hold(name, known.get(name, role), lot.choice(["s0", "s1"]), lot.sample(VOLUMES, 1))
        elif choice == "tick":
            offers += take(site.tick(), lot)
        elif choice == "back" and offers:
            offers += take(site.recover(offers.pop(lot.randrange(len(offers)))), lot)
        elif choice == "gone" and name in known and lot.random() < 0.3:
            del known[name]
            site.send(contract.RemoveFramework(framework_id=name))
            offers = [offer for offer in offers if offer.framework != name]
        elif choice == "roles" and name in known:
            known[name] = role
            info = framework_info(name, role, capabilities=[SHARED])
            offers += take(site.send(contract.UpdateFramework(framework_id=name, info=info)), lot)
        assert site.held() == site.expected(), (step, choice)
        users = site.engine._cluster.ledger.clients.users
        repeated += any(users.volumes.repeated(user) for user in site.held())
        check_repeated(site.engine._cluster.ledger.clients, site.held())
        for client in site.engine._cluster.ledger.clients:
            assert users.volumes.size(client) == sizes(users.volumes.of(client))
    assert repeated or user_key != "role", "the case in which volumes are counted twice easily"
    site.restore(contract.Snapshot(time_ns=site.now_ns))
    assert not site.engine._cluster.ledger.clients.users.volumes._holders


def test_a_removed_agent_takes_its_shared_volumes_from_all_users() -> None:
    site = Site()
    site.put("s0", VOLUMES)
    for framework, role in (("f1", "a/b"), ("f2", "a/d")):
        site.add_framework(framework, role, capabilities=[SHARED], suppressed=[role])
        site.hold(framework, role, "s0", VOLUMES)
    assert site.held() == {
        "a": {"disk": 50_000},
        "a/b": {"disk": 50_000},
        "a/d": {"disk": 50_000},
    }
    site.remove_agent("s0")
    assert set(map(str, site.held().values())) == {"{}"}
    volumes = site.engine._cluster.ledger.clients.users.volumes
    assert not volumes._holders
    assert not volumes._by_client
    assert not volumes._sizes


EXAMPLES: list[Volume] = [(agent, kind) for agent in ("s1", "s2") for kind in parse_total(VOLUMES)]


@given(
    st.dictionaries(
        st.sampled_from([*ROLES, "a/b/c/d", "x", "x/y/z", "x/y/w", "u"]),
        st.sets(st.sampled_from(EXAMPLES), min_size=1),
    )
)
def test_a_used_volume_counts_in_equal_parts_for_the_members_of_each_pool_that_use_it(
    used: dict[str, set[Volume]],
) -> None:
    users = Users(EngineSettings(policies.create("drf", {})), 0.0, ())
    nodes = {role: users.get(role) for role in used}
    members: dict[tuple[int, Volume], set[str]] = {}
    for role, volumes in used.items():
        for pool, name in nodes[role].memberships():
            for volume in volumes:
                members.setdefault((id(pool), volume), set()).add(name)
    expected: dict[str, Quantities] = {}
    for (_pool, (_agent, kind)), names in members.items():
        assert kind.whole is not None
        part = Quantities({kind.name: kind.whole // len(names)})
        for name in names:
            expected[name] = expected.get(name, Quantities()) + part
    parts = run_to_completion(parts_of_volumes({nodes[role]: used[role] for role in used}))
    assert parts == expected


@pytest.mark.parametrize("once", [True, False])
def test_a_volume_of_many_roles_takes_no_headroom_from_different_roles(*, once: bool) -> None:
    """The quota's role waits for disk. Without the rule, the cluster's disk seems to be full."""
    site = Site(headroom_counts_volumes_once=once)
    roles = [f"a/{number}" for number in range(10)]
    site.add_framework("f", *roles, capabilities=[SHARED], suppressed=roles)
    site.put("s1", VOLUMES)
    for role in roles:
        site.hold("f", role, "s1", VOLUMES)
    call = contract.UpdateQuota(role="quota")
    call.guarantees.amounts["disk"] = 40
    site.send(call)
    offers = site.add_framework("honest", "b") or site.tick()
    assert [offer.resources for offer in offers] == (
        ["cpus:8;disk:10;mem:800"] if once else ["cpus:8;mem:800"]
    )
