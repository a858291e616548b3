"""Offers: the receiving framework, the offered resources, and the time of the offer (§3)."""

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import MasterSide, Offered, resources

GPU = mesos.FrameworkInfo.Capability.GPU_RESOURCES
REVOCABLE = mesos.FrameworkInfo.Capability.REVOCABLE_RESOURCES
REFINEMENT = mesos.FrameworkInfo.Capability.RESERVATION_REFINEMENT


def given(offers: list[Offered]) -> list[tuple[str, str, str, str]]:
    return [(o.framework, o.role, o.agent, o.resources) for o in offers]


def test_a_new_agent_goes_whole_to_the_role_with_the_smallest_share() -> None:
    master = MasterSide()
    master.add_framework("f1", "role1")
    assert given(master.add_agent("s1", "cpus:2;mem:1024")) == [
        ("f1", "role1", "s1", "cpus:2;mem:1024")
    ]
    assert master.add_framework("f2", "role2") == []
    assert given(master.add_agent("s2", "cpus:1;mem:512")) == [
        ("f2", "role2", "s2", "cpus:1;mem:512")
    ]
    # role2 holds 1/6 of the CPUs, role1 2/6: a new framework in role1 does not lower role1's share.
    master.add_framework("f3", "role1")
    assert given(master.add_agent("s3", "cpus:3;mem:2048"))[0][:2] == ("f2", "role2")
    # Now role1 (2/10) is below role2 (4/10), and f3 has no allocation in role1.
    assert given(master.add_agent("s4", "cpus:4;mem:4096"))[0][:2] == ("f3", "role1")


def test_two_equal_agents_go_to_two_frameworks() -> None:
    master = MasterSide()
    call = contract.AddFramework(framework_id="f1", active=False)
    call.info = mesos.FrameworkInfo(user="u", name="one", role="a").SerializeToString()
    second_framework = contract.AddFramework(framework_id="f2", active=False)
    second_framework.info = mesos.FrameworkInfo(user="u", name="two", role="b").SerializeToString()
    master.send(call, second_framework)
    master.add_agent("s1", "cpus:2;mem:1024")
    master.add_agent("s2", "cpus:2;mem:1024")
    offers = master.send(
        contract.ActivateFramework(framework_id="f1"), contract.ActivateFramework(framework_id="f2")
    )
    assert sorted((o.framework, o.resources) for o in offers) == [
        ("f1", "cpus:2;mem:1024"),
        ("f2", "cpus:2;mem:1024"),
    ]


def test_equal_shares_alternate_strictly() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.add_framework("f2", "b")
    winners = []
    [offer] = master.add_agent("s1", "cpus:1;mem:512")
    for _ in range(10):
        winners.append(offer.framework)
        [offer] = master.recover(offer)
    assert winners == ["f1", "f2"] * 5


def test_a_user_is_known_by_its_role_framework_principal_or_name() -> None:
    for key, users in {
        "role": {"r1", "r2"},
        "framework": {"f1", "f2"},
        "principal": {"alice"},
        "framework_name": {"one name"},
    }.items():
        master = MasterSide(user_key=key)  # type: ignore[arg-type]
        master.add_framework("f1", "r1", principal="alice", name="one name")
        master.add_framework("f2", "r2", principal="alice", name="one name")
        assert {standing.user for standing in master.engine.pool.standings()} == users


def test_declared_users_count_before_they_register() -> None:
    users = (DeclaredUser("A"), DeclaredUser("B", weight=3.0))
    master = MasterSide("sdrf", {"delta": 0.99}, users=users)
    entitlements = {s.user: s.entitlement for s in master.engine.pool.standings()}
    assert entitlements == {"A": 0.25, "B": 0.75}


def test_a_users_overuse_in_the_past_ranks_it_behind_a_user_without_overuse() -> None:
    users = (DeclaredUser("A"), DeclaredUser("B"))
    master = MasterSide("sdrf", {"delta": 0.99}, users=users)
    master.add_framework("fa", "A")
    [offer] = master.add_agent("s1", "cpus:8;mem:8192")
    master.add_framework("fb", "B")
    master.wait(100)
    # Under DRF both would be equal now, and A first by its name.
    offers = master.recover(offer)
    assert [o.framework for o in offers] == ["fb"]
    commitment = master.engine.pool.standing("A").commitment
    assert abs(commitment - 0.5 * (1 - 0.99**100)) < 1e-12


def test_freed_resources_are_offered_at_once() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4;mem:4096")
    assert given(master.recover(offer, "cpus:1;mem:1024")) == [("f1", "a", "s1", "cpus:1;mem:1024")]


def test_nothing_is_offered_during_a_pause_and_everything_after_it() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4;mem:4096")
    assert master.send(contract.Pause()) == []
    assert master.recover(offer, "cpus:1") == []
    assert master.recover(offer, "cpus:2;mem:512") == []
    assert master.tick() == []
    assert given(master.send(contract.Resume())) == [("f1", "a", "s1", "cpus:3;mem:512")]


def test_resources_below_the_minimum_are_not_offered() -> None:
    master = MasterSide(min_allocatable=[{"cpus": 1.0, "mem": 512.0}, {"ports": 3}])
    master.add_framework("f1", "a")
    assert master.add_agent("s1", "cpus:8;mem:256") == []
    assert master.add_agent("s2", "ports:[1-2]") == []
    assert len(master.add_agent("s3", "ports:[1-3]")) == 1
    assert len(master.add_agent("s4", "cpus:1;mem:512")) == 1


def test_a_frameworks_own_minimum_replaces_the_masters() -> None:
    master = MasterSide()
    info = mesos.FrameworkInfo(user="u", name="n", role="a")
    own = info.offer_filters["a"].min_allocatable_resources.quantities.add()
    own.quantities["cpus"].value = 2
    master.send(contract.AddFramework(framework_id="f", info=info.SerializeToString(), active=True))
    assert master.add_agent("s1", "cpus:1;mem:4096") == []
    del info.offer_filters["a"].min_allocatable_resources.quantities[:]
    info.offer_filters["a"].min_allocatable_resources.SetInParent()
    master.send(contract.UpdateFramework(framework_id="f", info=info.SerializeToString()))
    assert [o.resources for o in master.tick()] == ["cpus:1;mem:4096"]


def test_reserved_resources_go_only_to_their_role_and_its_descendants() -> None:
    master = MasterSide()
    master.add_framework("f0", "other")
    assert master.add_agent("s1", "cpus(eng):2;mem(eng):512") == []
    offers = master.add_framework("f1", "eng/web")
    assert given(offers) == [("f1", "eng/web", "s1", "cpus(eng):2;mem(eng):512")]
    assert master.recover(offers[0], refuse_seconds=10) == []
    assert given(master.add_framework("f2", "eng")) == [
        ("f2", "eng", "s1", "cpus(eng):2;mem(eng):512")
    ]


def test_the_unreserved_rest_of_an_agent_goes_to_other_roles_in_the_same_cycle() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.add_framework("f2", "b", active=False)
    offers = master.add_agent("s1", "cpus:1;cpus(b):2;mem:512;mem(b):512")
    assert given(offers) == [("f1", "a", "s1", "cpus:1;mem:512")]
    offers = master.send(contract.ActivateFramework(framework_id="f2"))
    assert given(offers) == [("f2", "b", "s1", "cpus(b):2;mem(b):512")]


def test_refined_reservations_need_a_framework_with_that_capability() -> None:
    master = MasterSide()
    master.add_framework("old", "eng/web")
    assert master.add_agent("s1", "cpus(eng,eng/web):2;mem(eng,eng/web):512") == []
    assert len(master.add_framework("new", "eng/web", capabilities=[REFINEMENT])) == 1


def test_fields_of_mesos_that_longshare_does_not_know_pass_through_offers_unchanged() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    volume = mesos.Resource(name="disk", type=mesos.Value.SCALAR)
    volume.scalar.value = 1024
    volume.disk.persistence.id = "v1"
    volume.disk.persistence.principal = "ops"
    volume.disk.volume.container_path = "data"
    volume.disk.volume.mode = mesos.Volume.RW
    volume.reservations.add(type=mesos.Resource.ReservationInfo.DYNAMIC, role="a")
    label = volume.reservations[0].labels.labels.add(key="why")
    label.value = "because"
    unknown = volume.SerializeToString() + b"\xfa\x3e\x03new"  # field 1007, length 3
    call = contract.AddAgent(
        agent_id="s1",
        info=mesos.SlaveInfo(hostname="h").SerializeToString(),
        capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
        total=[*resources("cpus:1;mem:512"), unknown],
    )
    [offer] = master.send(call)
    [disk] = [r for m in offer.messages if (r := mesos.Resource.FromString(m)).name == "disk"]
    assert b"\xfa\x3e\x03new" in disk.SerializeToString()
    disk.ClearField("allocation_info")
    assert disk == mesos.Resource.FromString(unknown)


def test_a_volume_is_recovered_whole_however_the_task_mounted_it() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    volume = mesos.Resource(name="disk", type=mesos.Value.SCALAR)
    volume.scalar.value = 64
    volume.disk.persistence.id = "v1"
    volume.disk.volume.container_path = "data"
    volume.disk.volume.mode = mesos.Volume.RW
    volume.reservations.add(type=mesos.Resource.ReservationInfo.DYNAMIC, role="a")
    call = contract.AddAgent(
        agent_id="s1",
        info=mesos.SlaveInfo(hostname="h").SerializeToString(),
        capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
        total=[*resources("cpus:1;mem:512"), volume.SerializeToString()],
    )
    [offer] = master.send(call)
    mounted = mesos.Resource()
    mounted.CopyFrom(volume)
    mounted.disk.volume.container_path = "elsewhere"
    mounted.allocation_info.role = "a"
    back = contract.RecoverResources(
        framework_id="f1", agent_id="s1", resources=[mounted.SerializeToString()]
    )
    # Alone, a volume of 64 MB reaches no minimum; with the CPU it is offered again.
    assert master.send(back) == []
    assert master.engine.statistics.clamped == 0
    [next_offer] = master.recover(offer, "cpus:1")
    [disk] = [r for m in next_offer.messages if (r := mesos.Resource.FromString(m)).name == "disk"]
    assert disk.disk.volume.container_path == "data", "offered with the agent's own container path"


def test_frameworks_without_gpu_resources_get_no_offers_of_gpu_agents() -> None:
    master = MasterSide()
    master.add_framework("plain", "a")
    assert master.add_agent("s1", "cpus:4;mem:4096;gpus:1") == []
    assert len(master.add_framework("gpu", "b", capabilities=[GPU])) == 1


def test_revocable_resources_need_a_framework_that_accepts_losing_them() -> None:
    master = MasterSide()
    master.add_framework("plain", "a")
    revocable = mesos.Resource(name="cpus", type=mesos.Value.SCALAR)
    revocable.scalar.value = 2
    revocable.revocable.SetInParent()
    call = contract.AddAgent(
        agent_id="s1",
        info=mesos.SlaveInfo(hostname="h").SerializeToString(),
        capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
        total=[revocable.SerializeToString()],
    )
    assert master.send(call) == []
    assert len(master.add_framework("brave", "b", capabilities=[REVOCABLE])) == 1


def test_an_agent_without_multi_role_support_is_not_offered_to_multi_role_frameworks() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    assert master.add_agent("s1", "cpus:4;mem:4096", capabilities=()) == []
    old = mesos.FrameworkInfo(user="u", name="n", role="a").SerializeToString()
    assert len(master.send(contract.AddFramework(framework_id="f2", info=old, active=True))) == 1


def test_nested_roles_need_an_agent_that_supports_them() -> None:
    master = MasterSide()
    master.add_framework("f1", "eng/web")
    only_multi = (mesos.SlaveInfo.Capability.MULTI_ROLE,)
    assert master.add_agent("s1", "cpus:4;mem:4096", capabilities=only_multi) == []
    assert len(master.add_agent("s2", "cpus:4;mem:4096")) == 1


def test_a_framework_that_cannot_use_an_agent_does_not_block_the_next_framework() -> None:
    master = MasterSide()
    master.add_framework("poor", "a")
    master.add_framework("rich", "b", capabilities=[GPU])
    master.add_agent("s0", "cpus:1;mem:512", {"rich": resources("cpus:1;mem:512", "b")})
    offers = master.add_agent("s1", "cpus:4;mem:4096;gpus:1")
    assert [o.framework for o in offers] == ["rich"]


def test_a_framework_in_two_roles_competes_in_both() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b")
    master.add_agent("s1", "cpus:1;mem:512")
    offers = master.add_agent("s2", "cpus:1;mem:512")
    assert {o.role for o in offers} == {"b"}, "role a holds an agent already"


def test_excluded_resources_do_not_count_in_shares() -> None:
    master = MasterSide(excluded=["gpus"])
    master.add_framework("f1", "a", capabilities=[GPU])
    master.add_framework("f2", "b")
    master.add_agent("s1", "cpus:1;mem:512;gpus:4", {"f1": resources("cpus:1;mem:512;gpus:4", "a")})
    master.add_agent("s2", "cpus:2;mem:1024", {"f2": resources("cpus:2;mem:1024", "b")})
    assert [o.framework for o in master.add_agent("s3", "cpus:1;mem:512")] == ["f1"]


def test_a_framework_is_shown_by_its_own_name_and_an_agent_by_its_host_name() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:1")
    engine = master.engine
    assert [engine.framework_name(name) for name in ("f1", "f9")] == ["f1 of the tests", "f9"]
    assert [engine.agent_name(name) for name in ("s1", "s9")] == ["s1.example", "s9"]
    assert (engine.user("a", "f1"), engine.user("a", "f9")) == ("a", None)


def test_an_agent_is_full_when_none_of_its_resources_are_free() -> None:
    master = MasterSide()
    master.add_agent("s1", "cpus:1")
    states = [[place.state for place in master.engine.machine_summaries()]]
    master.add_framework("f1", "a")
    states += [[place.state for place in master.engine.machine_summaries()]]
    assert states == [["offered"], ["full"]]


def test_no_agent_is_always_the_first_to_be_used() -> None:
    master = MasterSide()
    names = [f"s{number}" for number in range(20)]
    for name in names:
        master.add_agent(name, "cpus:1")
    assert [offer.agent for offer in master.add_framework("f1", "a")] != names
