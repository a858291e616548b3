"""Guarantees are allocated first, and unsatisfied guarantees require headroom (§3.2-3.4)."""

import pytest

from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import (
    DAY,
    REVOCABLE,
    SHARED,
    BatchMaster,
    add_agent,
    converted,
    disk,
    freed,
    reserve,
    revocable,
    set_quota,
    told,
    unallocated,
)
from tests.cluster.master_side import Offered, framework_info, resources


def guaranteed(text: str) -> BatchMaster:
    """Start with f1 in role `quota`, which has a guarantee, and f2 in role `plain`."""
    master = BatchMaster()
    master.send(set_quota("quota", text))
    master.add_framework("f1", "quota")
    master.add_framework("f2", "plain")
    return master


def test_resources_declined_by_a_quota_role_stay_headroom_for_that_role() -> None:
    master = guaranteed("cpus:2;mem:1024")
    assert told(master.add_agent("s1", "cpus:1;mem:512")) == {("f1", "s1", "cpus:1;mem:512")}
    [offer] = master.add_agent("s2", "cpus:1;mem:512")
    assert told([offer]) == {("f1", "s2", "cpus:1;mem:512")}
    # Not 2 s: another test decides whether a filter excludes the tick at its very last instant.
    master.recover(offer, refuse_seconds=1.5)
    assert master.tick() == []
    assert told(master.tick()) == {("f1", "s2", "cpus:1;mem:512")}


def test_a_new_guarantee_makes_every_agent_a_candidate() -> None:
    master = BatchMaster()
    info = mesos.FrameworkInfo.FromString(framework_info("f1", "r1"))
    info.labels.labels.add(key="longshare.demand", value="cpus:4")
    call = contract.AddFramework(framework_id="f1", info=info.SerializeToString(), active=True)
    master.send(call)
    assert master.add_agent("s1", "cpus:2;mem:64") == [], "too small for a task"
    assert master.tick() == []
    master.send(set_quota("r1", "cpus:1"))
    assert [offer.agent for offer in master.tick()] == ["s1"]


def test_each_of_several_roles_gets_its_guarantee_on_the_same_agent() -> None:
    master = BatchMaster()
    for number in range(1, 5):
        master.add_framework(f"f{number}", f"r{number}")
        master.add_framework(f"g{number}", f"r{number}")
        master.send(set_quota(f"r{number}", "cpus:1;mem:64"))
    offers = master.add_agent("s1", "cpus:4;mem:256")
    assert sorted((offer.role, offer.resources) for offer in offers) == [
        (f"r{number}", "cpus:1;mem:64") for number in range(1, 5)
    ]


def test_without_its_quota_a_role_shares_like_any_other() -> None:
    master = guaranteed("cpus:2;mem:1024")
    whole = resources("cpus:1;mem:512", "quota")
    for agent in ("s1", "s2"):
        assert master.add_agent(agent, "cpus:1;mem:512", {"f1": whole}) == []
    master.send(contract.RemoveQuota(role="quota"))
    master.send(contract.RecoverResources(framework_id="f1", agent_id="s1", resources=whole))
    assert told(master.tick()) == {("f2", "s1", "cpus:1;mem:512")}
    assert master.engine.quotas() == {}, "no quota remains"


def test_a_quota_can_be_removed_twice() -> None:
    master = guaranteed("cpus:1")
    master.send(contract.RemoveQuota(role="quota"))
    master.send(contract.RemoveQuota(role="quota"))
    master.send(set_quota("quota", "cpus:2"))
    assert master.engine.quotas()["quota"][0].guarantees.to_doubles() == {"cpus": 2.0}


def test_frameworks_share_the_quota_of_their_role_fairly_and_get_declined_resources() -> None:
    master = BatchMaster()
    master.add_framework("f1a", "quota")
    master.send(set_quota("quota", "cpus:4;mem:2048"))
    master.add_framework("f2", "plain")
    assert told(master.add_agent("s1", "cpus:1;mem:512")) == {("f1a", "s1", "cpus:1;mem:512")}
    master.add_framework("f1b", "quota")
    assert told(master.add_agent("s2", "cpus:2;mem:1024")) == {("f1b", "s2", "cpus:2;mem:1024")}
    [offer] = master.add_agent("s3", "cpus:1;mem:512")
    assert told([offer]) == {("f1a", "s3", "cpus:1;mem:512")}
    master.recover(offer, refuse_seconds=5)
    assert told(master.tick()) == {("f1b", "s3", "cpus:1;mem:512")}


def test_an_agent_is_chopped_to_the_guarantee_and_the_rest_goes_to_other_roles() -> None:
    master = BatchMaster()
    master.add_framework("f1", "quota")
    master.send(set_quota("quota", "cpus:0.5;mem:200"))
    assert told(master.add_agent("s1", "cpus:1;mem:512")) == {("f1", "s1", "cpus:0.5;mem:200")}
    assert told(master.add_framework("f2", "plain")) == {("f2", "s1", "cpus:0.5;mem:312")}


def test_a_mount_disk_larger_than_the_missing_guarantee_is_not_allocated_a_plain_disk_is() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:2;mem:2048;disk:150"))
    master.add_framework("f1", "quota")
    total = [*resources("cpus:0.5;mem:512"), disk(100, mount=True)]
    [first] = master.send(add_agent("s1", total))
    assert unallocated(first.messages) == set(total)
    [second] = master.send(add_agent("s2", total))
    assert second.resources == "cpus:0.5;mem:512"
    [third] = master.add_agent("s3", "cpus:2;mem:2048;disk:150")
    assert third.resources == "cpus:1;disk:50;mem:1024"


def test_plain_and_mount_disks_fill_a_disk_quota_together_in_one_offer() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:1;mem:512;disk:100"))
    total = [*resources("cpus:1;mem:512;disk:50"), disk(50, mount=True)]
    master.send(add_agent("s1", total))
    [offer] = master.add_framework("f1", "quota")
    assert unallocated(offer.messages) == set(total)


def test_resources_without_a_guarantee_come_along_only_beyond_the_headroom_of_other_roles() -> None:
    agent = "cpus:1;mem:1024;ports:[31000-32000]"
    master = BatchMaster()
    master.send(set_quota("cpu-quota", "cpus:2"))
    master.add_agent("s1", agent)
    assert told(master.add_framework("f1", "cpu-quota")) == {("f1", "s1", agent)}
    master.send(set_quota("mem-quota", "mem:1024"))
    assert told(master.add_agent("s2", agent)) == {("f1", "s2", "cpus:1;ports:[31000-32000]")}
    assert master.add_agent("s3", agent) == [], "nothing comes along without a missing guarantee"


def test_a_satisfied_quota_role_gets_no_more_and_the_rest_goes_by_fair_shares() -> None:
    master = guaranteed("cpus:0.25;mem:128")
    assert master.engine.quotas()["quota"][0].guarantees.to_doubles() == {
        "cpus": 0.25,
        "mem": 128.0,
    }
    used = {"f1": resources("cpus:0.25;mem:128", "quota")}
    assert told(master.add_agent("s1", "cpus:1;mem:512", used)) == {
        ("f2", "s1", "cpus:0.75;mem:384")
    }
    assert master.consumed("quota") == {"cpus": 0.25, "mem": 128.0}
    assert told(master.add_agent("s2", "cpus:1;mem:512")) == {("f2", "s2", "cpus:1;mem:512")}


def test_a_quota_moves_circulating_resources_to_a_starving_role() -> None:
    master = BatchMaster()
    master.add_framework("f1", "starving")
    master.add_framework("f2", "picky")
    used = {"f1": resources("cpus:1;mem:512", "starving")}
    master.add_agent("s1", "cpus:1;mem:512", used)
    [offer] = master.add_agent("s2", "cpus:1;mem:512")
    assert offer.framework == "f2"
    master.recover(offer, refuse_seconds=0)
    [offer] = master.tick()
    assert offer.framework == "f2", "declined resources circulate"
    master.recover(offer, refuse_seconds=0)
    assert master.send(set_quota("starving", "cpus:2;mem:1024")) == []
    assert told(master.tick()) == {("f1", "s2", "cpus:1;mem:512")}


def test_the_quota_of_a_role_without_frameworks_stays_headroom_and_other_roles_use_the_rest() -> (
    None
):
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:2;mem:1024"))
    master.add_framework("f1", "plain")
    assert master.add_agent("s1", "cpus:2;mem:1024") == []
    assert told(master.add_agent("s2", "cpus:1;mem:512")) == {("f1", "s2", "cpus:1;mem:512")}


def test_a_quota_role_without_frameworks_does_not_block_another_quota_role() -> None:
    master = BatchMaster()
    master.add_agent("s1", "cpus:2;mem:2048")
    master.send(set_quota("absent", "cpus:1;mem:1024"))
    master.send(set_quota("present", "cpus:2;mem:2048"))
    assert told(master.add_framework("f1", "present")) == {("f1", "s1", "cpus:2;mem:2048")}


def test_a_satisfied_quota_role_of_small_share_does_not_starve_an_unsatisfied_one() -> None:
    master = BatchMaster()
    master.send(set_quota("small", "cpus:1;mem:200"), set_quota("large", "cpus:2;mem:2000"))
    master.add_framework("f1", "small")
    master.add_framework("f2", "large")
    total = "cpus:1;mem:1024"
    master.add_agent("s1", total, {"f1": resources(total, "small")})
    master.add_agent("s2", total, {"f2": resources(total, "large")})
    assert told(master.add_agent("s3", "cpus:2;mem:2048")) == {("f2", "s3", "cpus:1;mem:976")}


def test_only_resources_with_an_unsatisfied_guarantee_are_allocated_in_the_quota_stage() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:4;mem:1024"))
    master.add_framework("f1", "quota")
    assert told(master.add_agent("s1", "cpus:2;mem:1024")) == {("f1", "s1", "cpus:2;mem:1024")}
    assert told(master.add_agent("s2", "cpus:2;mem:1024")) == {("f1", "s2", "cpus:2")}


def test_reserved_and_unreserved_resources_together_satisfy_a_quota() -> None:
    master = guaranteed("cpus:2;mem:256")
    used = {"f1": resources("cpus:2;mem(quota):256", "quota")}
    assert told(master.add_agent("s1", "cpus:8;mem(quota):256", used)) == {("f2", "s1", "cpus:6")}
    assert told(master.add_agent("s2", "cpus:4")) == {("f2", "s2", "cpus:4")}


def test_an_unallocated_reservation_counts_towards_quota() -> None:
    reserved = "cpus(quota):1;mem(quota):1024"
    master = BatchMaster()
    master.add_agent("s1", reserved)
    master.send(set_quota("quota", "cpus:1;mem:1024"))
    [offer] = master.add_framework("f1", "quota")
    assert offer.resources == reserved
    master.recover(offer, refuse_seconds=DAY)
    assert master.consumed("quota") == {"cpus": 1.0, "mem": 1024.0}
    assert master.add_agent("s2", "cpus:1;mem:1024") == []


def test_an_allocated_reservation_counts_towards_quota() -> None:
    reserved = "cpus(quota):1;mem(quota):1024"
    master = BatchMaster()
    master.add_agent("s1", reserved)
    master.send(set_quota("quota", "cpus:2;mem:2048"))
    assert told(master.add_framework("f1", "quota")) == {("f1", "s1", reserved)}
    assert told(master.add_agent("s2", "cpus:1;mem:1024")) == {("f1", "s2", "cpus:1;mem:1024")}
    assert master.add_agent("s3", "cpus:1;mem:1024") == []


def test_headroom_is_not_taken_from_other_roles_reservations() -> None:
    master = BatchMaster()
    master.add_agent("s1", "cpus:4;mem:512")
    master.add_agent("s2", "cpus:4;mem:512")
    reserved = resources("cpus(plain):4;mem(plain):512")
    master.send(contract.UpdateAvailable(agent_id="s2", operations=[reserve(reserved)]))
    assert master.reply.error == ""
    master.send(set_quota("quota", "cpus:4;mem:512"))
    [offer] = master.add_framework("f1", "quota")
    assert told([offer]) == {("f1", "s1", "cpus:4;mem:512")}
    master.recover(offer, refuse_seconds=10)
    assert master.tick() == []
    [next_offer] = master.add_framework("f2", "plain")
    assert told([next_offer]) == {("f2", "s2", "cpus(plain):4;mem(plain):512")}
    master.recover(next_offer, refuse_seconds=10)
    assert master.tick() == []


def test_a_role_without_quota_is_offered_its_reservations_while_guarantees_are_unsatisfied() -> (
    None
):
    master = BatchMaster()
    both = "cpus:2;mem:2048;cpus(plain):2;mem(plain):2048"
    master.add_agent("s1", both)
    master.send(set_quota("quota", "cpus:2;mem:2048"))
    [offer] = master.add_framework("f1", "quota")
    assert offer.resources == "cpus:2;mem:2048"
    master.recover(offer, refuse_seconds=DAY)
    assert told(master.add_framework("f2", "plain")) == {
        ("f2", "s1", "cpus(plain):2;mem(plain):2048")
    }


def test_reservations_beyond_one_roles_quota_do_not_count_for_another_role() -> None:
    master = BatchMaster()
    master.send(set_quota("rich", "cpus:1;mem:1024"), set_quota("poor", "cpus:1;mem:1024"))
    master.add_agent("s1", "cpus(rich):2;mem(rich):2048")
    master.add_agent("s2", "cpus:1;mem:1024")
    assert master.add_framework("f1", "plain") == [], "s2 is headroom for `poor`"
    assert told(master.add_agent("s3", "cpus:1;mem:1024")) == {("f1", "s3", "cpus:1;mem:1024")}


def test_a_parents_reservation_allocated_to_its_child_is_no_free_reservation() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:1;mem:1024"))
    reserved = "cpus(a):1;mem(a):1024"
    master.add_agent("s1", reserved)
    assert told(master.add_framework("f1", "a/b")) == {("f1", "s1", reserved)}
    assert master.add_framework("f2", "plain") == []
    assert master.add_agent("s2", "cpus:1;mem:1024") == []
    assert told(master.add_agent("s3", "cpus:1;mem:1024")) == {("f2", "s3", "cpus:1;mem:1024")}


def test_a_subroles_reservation_counts_towards_its_parents_quota() -> None:
    master = BatchMaster()
    master.send(set_quota("a", "cpus:2;mem:200"))
    master.add_agent("s1", "cpus(a/b):1;mem(a/b):100")
    master.add_agent("s2", "cpus:10;mem:1000")
    assert told(master.add_framework("f1", "a")) == {("f1", "s2", "cpus:1;mem:100")}


def test_a_subrole_of_a_quota_role_is_served_by_fair_shares_and_counts_towards_the_quota() -> None:
    master = BatchMaster()
    master.send(set_quota("a", "cpus:2;mem:2048"))
    master.add_framework("f1", "a/b")
    assert master.add_agent("s1", "cpus:2;mem:2048") == [], "headroom for the role itself"
    assert told(master.add_agent("s2", "cpus:1;mem:1024")) == {("f1", "s2", "cpus:1;mem:1024")}
    assert master.consumed("a") == {"cpus": 1.0, "mem": 1024.0}


def offered_half_of_its_quota() -> tuple[BatchMaster, Offered]:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:10;mem:1024"))
    master.add_framework("f1", "quota")
    [offer] = master.add_agent("s1", "cpus:5;mem:512")
    return master, offer


def test_reserving_an_allocation_leaves_the_consumed_quota_unchanged() -> None:
    master, offer = offered_half_of_its_quota()
    reserved = resources("cpus(quota):5;mem(quota):512", "quota")
    before = master.consumed("quota")
    master.send(converted(offer, (list(offer.messages), reserved)))
    assert master.consumed("quota") == before
    assert told(master.add_agent("s2", "cpus:10;mem:1024")) == {("f1", "s2", "cpus:5;mem:512")}


def test_unreserving_an_allocation_leaves_the_consumed_quota_unchanged() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:1;mem:1024"))
    master.add_framework("f1", "quota")
    [offer] = master.add_agent("s1", "cpus(quota):1;mem(quota):1024")
    assert master.add_agent("s2", "cpus:1;mem:1024") == []
    plain = resources("cpus:1;mem:1024", "quota")
    master.send(converted(offer, (list(offer.messages), plain)))
    assert master.tick() == []


def test_a_shared_volume_allocated_twice_counts_once_towards_quota() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:3;mem:2048;disk:100"))
    master.add_agent("s1", "cpus(quota):2;mem(quota):1024;disk(quota):50")
    [offer] = master.add_framework("f1", "quota", capabilities=[SHARED])
    volume = disk(50, reserved=["quota"], volume="id1", shared=True, role="quota")
    master.send(converted(offer, (resources("disk(quota):50", "quota"), [volume])))
    master.send(freed(offer, "cpus(quota):1;mem(quota):512"))
    [next_offer] = master.tick()
    assert volume in next_offer.messages
    assert next_offer.resources == "cpus(quota):1;disk(quota):50;mem(quota):512"
    assert master.consumed("quota") == {"cpus": 2.0, "mem": 1024.0, "disk": 50.0}
    assert told(master.add_agent("s2", "cpus:1;mem:1024;disk:50")) == {
        ("f1", "s2", "cpus:1;disk:50;mem:1024")
    }
    assert master.add_agent("s3", "cpus:0.5;mem:512;disk:50") == []


def test_revocable_resources_neither_satisfy_a_quota_nor_count_as_headroom() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:1;mem:512"))
    master.add_framework("f1", "quota", capabilities=[REVOCABLE])
    master.add_framework("f2", "plain", capabilities=[REVOCABLE])
    total = revocable("cpus:4;mem:4096")
    assert told(master.send(add_agent("s1", total))) == {("f2", "s1", "cpus:4;mem:4096")}
    assert master.consumed("quota") == {}


@pytest.mark.parametrize(
    "call",
    [
        contract.DeactivateAgent(agent_id="s1"),
        contract.UpdateWhitelist(whitelist=contract.Whitelist(hostnames=["s2.example"])),
    ],
    ids=["out of contact", "off the whitelist"],
)
def test_agents_that_cannot_be_offered_count_in_the_available_headroom(call: object) -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:2;mem:1024"))
    master.add_framework("f1", "plain")
    master.add_agent("s1", "cpus:2;mem:1024")
    master.send(call)
    assert told(master.add_agent("s2", "cpus:1;mem:512")) == {("f1", "s2", "cpus:1;mem:512")}


def test_resources_freed_on_another_agent_release_headroom_at_the_next_tick() -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:1;mem:512"))
    master.add_framework("f1", "plain")
    assert master.add_agent("s1", "cpus:1;mem:512") == []
    [offer] = master.add_agent("s2", "cpus:1;mem:512")
    master.send(freed(offer))
    assert len(master.tick()) == 1, "one of the two agents can be offered again"


@pytest.mark.parametrize(
    "change",
    [
        set_quota("quota", "cpus:1"),
        set_quota("a/b", "cpus:1"),
        set_quota("*", "cpus:1"),
        set_quota("", "cpus:1"),
        set_quota("other", "ports:[1-2]"),
        set_quota("other", "cpus:1;cpus:2"),
        set_quota("other", "cpus(other):1"),
        contract.SetQuota(role="other", info=b"\xff"),
    ],
    ids=[
        "twice",
        "of a nested role",
        "of *",
        "of no role",
        "ports",
        "a name twice",
        "reserved",
        "no message",
    ],
)
def test_an_invalid_quota_is_rejected_and_changes_nothing(change: contract.SetQuota) -> None:
    master = BatchMaster()
    master.send(set_quota("quota", "cpus:1"))
    before = master.engine.quotas()
    with pytest.raises(InvalidEvent, match="quota"):
        master.send(change)
    assert master.engine.quotas() == before


def test_a_burst_of_calls_causes_one_allocation_cycle() -> None:
    master = BatchMaster()
    agents = [add_agent(f"s{i}", resources("cpus:1;mem:512")) for i in range(3)]
    master.send(*agents)
    assert master.engine.statistics.runs == 1
    master.add_framework("f1", "a")
    assert master.engine.statistics.runs == 2


def test_totals_and_allocations_are_shown_by_resource() -> None:
    master = BatchMaster()
    master.add_agent("s1", "cpus:2;mem:1024")
    assert master.engine.pool.capacity.to_doubles() == {"cpus": 2.0, "mem": 1024.0}
    assert master.engine.allocations() == {}
    master.add_framework("f1", "a")
    [held] = master.engine.allocations().values()
    assert held.to_doubles() == {"cpus": 2.0, "mem": 1024.0}


def test_dominant_shares_are_shown_and_end_with_their_role() -> None:
    master = BatchMaster()
    master.add_agent("s1", "cpus:1;mem:1024")
    [offer] = master.add_framework("f1", "a")
    assert master.engine.pool.standing("a").share == 1.0
    master.send(freed(offer))
    assert master.engine.pool.standing("a").share == 0.0
    master.add_framework("f2", "b")
    master.add_agent("s2", "cpus:3;mem:3072")
    shares = {standing.user: standing.share for standing in master.engine.pool.standings()}
    assert shares == {"a": 0.75, "b": 0.25}
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert master.engine.pool.standing("a").share == 0.0
