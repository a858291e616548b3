"""Rows 1-6, 20 and 21: the order of clients."""

import random
from collections import Counter

from allocator.contract import allocator_pb2 as contract
from tests.cluster.conformance.quota_side import BatchMaster, freed, told, update_weights
from tests.cluster.master_side import agent_call, resources

EACH = "cpus:2;mem:1024"


def test_each_new_agent_goes_whole_to_the_role_with_the_smallest_share_then_to_its_framework() -> (
    None
):
    master = BatchMaster()
    master.add_framework("f1", "r1")
    assert told(master.add_agent("s1", EACH)) == {("f1", "s1", EACH)}
    master.add_framework("f2", "r2")
    # r2 has no allocation, so it gets a whole small agent, and a second agent while it is behind.
    assert told(master.add_agent("s2", "cpus:1;mem:512")) == {("f2", "s2", "cpus:1;mem:512")}
    assert told(master.add_agent("s3", "cpus:3;mem:2048")) == {("f2", "s3", "cpus:3;mem:2048")}
    # A third framework joins the role with the smallest share: roles count before frameworks.
    master.add_framework("f3", "r1")
    assert told(master.add_agent("s4", EACH)) == {("f3", "s4", EACH)}


def test_reserved_resources_count_in_shares_and_are_divided_fairly_inside_their_role() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [first] = master.add_agent("s1", "cpus(r1):2;mem(r1):1024")
    assert first.framework == "f1"
    master.add_framework("f2", "r2")
    # r1 has its reservation, so unreserved resources go to r2.
    assert told(master.add_agent("s2", EACH)) == {("f2", "s2", EACH)}
    master.add_framework("f3", "r1")
    [next_reserved] = master.add_agent("s3", "cpus(r1):2;mem(r1):1024")
    assert next_reserved.framework == "f3"


def test_excluded_resources_do_not_count_in_shares() -> None:
    master = BatchMaster(excluded=["gpus"])
    capable = [3]  # GPU_RESOURCES
    master.add_framework("f1", "r1", capabilities=capable)
    master.add_agent("s1", "cpus:2;mem:512;gpus:4")
    master.add_framework("f2", "r2", capabilities=capable)
    [offer] = master.add_agent("s2", "cpus:3;mem:768")
    assert offer.framework == "f2"
    # r1 has all gpus, but a smaller share of the resources that count.
    [offer] = master.add_agent("s3", "cpus:1;mem:256")
    assert offer.framework == "f1"


def test_subtrees_are_compared_before_the_roles_in_them() -> None:
    master = BatchMaster()
    for framework, role in (("f1", "a/b"), ("f2", "a/c"), ("f3", "d/e")):
        master.add_framework(framework, role)
    served = [master.add_agent(f"s{n}", EACH)[0].framework for n in range(4)]
    # a and d alternate; inside a, b and c alternate. a/c follows d/e although it has no allocation.
    assert served == ["f1", "f3", "f2", "f3"]


def test_two_equal_agents_go_to_two_frameworks_in_a_message_each() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    master.add_framework("f2", "r2")
    offers = master.send(agent_call("s1", EACH), agent_call("s2", EACH))
    assert {offer.framework for offer in offers} == {"f1", "f2"}
    assert {offer.resources for offer in offers} == {EACH}
    assert len(master.decisions.offers) == 2


def test_equal_shares_alternate_strictly() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    master.add_framework("f2", "r2")
    [offer] = master.add_agent("s1", EACH)
    winners: Counter[str] = Counter()
    for _ in range(10):
        winners[offer.framework] += 1
        assert master.send(freed(offer)) == []
        [offer] = master.tick()
    assert winners == {"f1": 5, "f2": 5}


def test_used_resources_give_the_same_shares_whether_agent_or_framework_comes_first() -> None:
    used = {"f1": resources("cpus:2;mem:512", "r1")}
    shares = []
    for agent_first in (True, False):
        master = BatchMaster()
        if agent_first:
            master.add_agent("s1", "cpus:8;mem:4096", used)
            master.add_framework("f1", "r1", active=False)
        else:
            master.add_framework("f1", "r1", active=False)
            master.add_agent("s1", "cpus:8;mem:4096", used)
        standing = master.engine.pool.standing("r1")
        shares.append((standing.share, standing.allocation, master.engine.available()))
    assert shares[0] == shares[1]
    assert shares[0][0] == 0.25


def test_a_batch_divides_equal_agents_by_weight_from_the_next_batch_on() -> None:
    master = BatchMaster()
    names = ["f1", "f2", "f3"]
    for number, framework in enumerate(names, start=1):
        master.add_framework(framework, f"r{number}")
    offers = [offer for n in range(6) for offer in master.add_agent(f"s{n}", EACH)]
    assert Counter(offer.framework for offer in offers) == dict.fromkeys(names, 2)
    random.Random(1).shuffle(offers)
    for offer in offers:
        master.send(freed(offer))
    assert master.send(update_weights({"r1": 1.0, "r2": 2.0, "r3": 3.0})) == []
    second_round = Counter(offer.framework for offer in master.tick())
    assert second_round == {"f1": 1, "f2": 2, "f3": 3}
    assert master.send(contract.UpdateWeights()) == []
