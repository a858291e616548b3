"""The order of roles: shares and weights are compared level by level (§3.5)."""

import itertools
from collections.abc import Iterable

from allocator.contract import allocator_pb2 as contract
from tests.cluster.conformance.quota_side import (
    DAY,
    REVOCABLE,
    SHARED,
    BatchMaster,
    add_agent,
    agent_info,
    allocated,
    disk,
    revocable,
    unallocated,
    update_weights,
)
from tests.cluster.master_side import Offered, framework_info, resources

STOCK = "s0"


class RoleTree(BatchMaster):
    """One framework in each role; their allocations are on an agent that is never offered.

    The order is observed from outside. A tiny agent is offered to the first client; when this
    client declines, the next client gets the offer, and so on.
    """

    def __init__(self, total: str = "cpus:100;mem:100", excluded: Iterable[str] = ()) -> None:
        super().__init__(excluded=excluded)
        self.probes = itertools.count(1)
        self.add_agent(STOCK, total)
        self.send(contract.DeactivateAgent(agent_id=STOCK))

    def add(self, role: str, holding: str = "") -> None:
        kinds = [SHARED, REVOCABLE]
        assert self.add_framework(role, role, capabilities=kinds) == []
        self.allocate(role, holding)

    def hold(self, role: str, messages: list[bytes]) -> None:
        """Allocate existing resources to a role."""
        used = contract.Allocation(framework_id=role, resources=messages)
        self.send(contract.AddResourceProvider(agent_id=STOCK, used=[used]))

    def allocate(self, role: str, holding: str) -> None:
        if holding:
            self.hold(role, resources(holding, role))

    def release(self, role: str, holding: str) -> None:
        self.send(
            contract.RecoverResources(
                framework_id=role, agent_id=STOCK, resources=resources(holding, role)
            )
        )

    def remove(self, role: str) -> None:
        self.send(contract.RemoveFramework(framework_id=role))

    def resize(self, total: str) -> None:
        self.send(
            contract.UpdateAgent(
                agent_id=STOCK,
                info=agent_info(STOCK),
                total=contract.ResourceList(resources=resources(total)),
            )
        )

    def order(self) -> list[str]:
        """Return all roles in the order in which they get the offer."""
        served: list[str] = []
        agent = f"probe{next(self.probes)}"
        offers = self.add_agent(agent, "cpus:0.01")
        while offers:
            [offer] = offers
            served.append(offer.role)
            self.recover(offer, refuse_seconds=DAY)
            offers = self.tick()
        self.remove_agent(agent)
        return served


def test_top_level_roles_are_compared_by_their_only_sub_roles_allocation_at_any_depth() -> None:
    tree = RoleTree()
    deep = {"a": "a/a/a/a/a", "b": "b/b/b/b", "c": "c/c/c", "d": "d/d", "e": "e/e/e", "f": "f/f"}
    tree.add(deep["a"], "cpus:5;mem:5")
    tree.add(deep["b"], "cpus:6;mem:6")
    assert tree.order() == [deep["a"], deep["b"]]
    tree.add(deep["c"], "cpus:1;mem:1")
    tree.add(deep["d"], "cpus:3;mem:1")
    assert tree.order() == [deep[top] for top in "cdab"]
    tree.remove(deep["a"])
    tree.release(deep["b"], "cpus:4;mem:4")
    assert tree.order() == [deep[top] for top in "cbd"]
    tree.add(deep["e"], "cpus:1;mem:5")
    tree.resize("cpus:50;mem:100")
    assert tree.order() == [deep[top] for top in "cbed"]
    tree.resize("cpus:50;mem:200")
    tree.add(deep["f"], "cpus:5;mem:1")
    tree.allocate(deep["c"], "mem:15")
    assert tree.order() == [deep[top] for top in "ebdcf"]
    tree.send(contract.DeactivateFramework(framework_id=deep["d"]))
    assert tree.order() == [deep[top] for top in "ebcf"]
    tree.send(contract.ActivateFramework(framework_id=deep["d"]))
    assert tree.order() == [deep[top] for top in "ebdcf"]


def test_a_subtree_competes_by_its_whole_allocation_and_its_members_among_themselves() -> None:
    tree = RoleTree()
    tree.add("a", "cpus:6;mem:6")
    tree.add("b/c", "cpus:4;mem:4")
    tree.add("b/d", "cpus:3;mem:3")
    assert tree.order() == ["a", "b/d", "b/c"]
    tree.allocate("a", "cpus:2;mem:2")
    assert tree.order() == ["b/d", "b/c", "a"]
    tree.add("b/e/f")
    assert tree.order() == ["b/e/f", "b/d", "b/c", "a"]
    tree.allocate("b/e/f", "cpus:3.5;mem:3.5")
    assert tree.order() == ["a", "b/d", "b/e/f", "b/c"]


def test_a_removed_role_takes_its_allocation_off_its_subtree() -> None:
    tree = RoleTree()
    tree.add("a", "cpus:8;mem:8")
    tree.add("b/c", "cpus:4;mem:4")
    tree.add("b/d", "cpus:3;mem:3")
    tree.add("b/e/f", "cpus:3.5;mem:3.5")
    assert tree.order() == ["a", "b/d", "b/e/f", "b/c"]
    tree.remove("b/e/f")
    assert tree.order() == ["b/d", "b/c", "a"]
    tree.release("b/c", "cpus:3;mem:3")
    assert tree.order() == ["b/c", "b/d", "a"]
    tree.add("b/e/f", "cpus:3.5;mem:3.5")
    assert tree.order() == ["b/c", "b/d", "b/e/f", "a"]


def test_a_role_with_sub_roles_competes_with_them_as_a_virtual_leaf() -> None:
    tree = RoleTree()
    for role in ("a/b", "c", "d", "d/e"):
        tree.add(role)
    assert tree.order() == ["a/b", "c", "d", "d/e"], "equal shares are ordered by name"
    tree.allocate("c", "cpus:8;mem:8")
    assert set(tree.order()[:3]) == {"a/b", "d", "d/e"}
    tree.allocate("d", "cpus:3;mem:3")
    tree.allocate("d/e", "cpus:2;mem:2")
    assert tree.order() == ["a/b", "d/e", "d", "c"]
    tree.allocate("a/b", "cpus:6;mem:6")
    assert tree.order() == ["d/e", "d", "a/b", "c"]


def test_a_role_that_gets_a_sub_role_keeps_its_allocation() -> None:
    tree = RoleTree()
    tree.add("a", "cpus:10;mem:10")
    tree.add("b", "cpus:6;mem:6")
    assert tree.order() == ["b", "a"]
    tree.add("a/c", "cpus:5;mem:5")
    assert tree.order() == ["b", "a/c", "a"]
    tree.remove("a")
    assert tree.order() == ["a/c", "b"], "the subtree now has a smaller share than b"
    tree.add("a", "cpus:10;mem:10")
    assert tree.order() == ["b", "a/c", "a"]


def test_a_weight_counts_among_siblings_and_for_the_whole_subtree_but_not_inside_it() -> None:
    tree = RoleTree()
    tree.add("a", "cpus:10;mem:10")
    tree.add("b", "cpus:6;mem:6")
    tree.add("a/c", "cpus:5;mem:5")
    tree.send(update_weights({"a/c": 0.2}))
    assert tree.order() == ["b", "a", "a/c"], "0.1 of weight 1 against 0.05 of weight 0.2"
    tree.send(update_weights({"a": 3}))
    assert tree.order() == ["a", "a/c", "b"], "0.15 of weight 3 against 0.06 of weight 1"
    tree.send(update_weights({"a/c": 1}))
    assert tree.order() == ["a/c", "a", "b"]


def test_a_weight_of_an_inner_role_counts_though_only_its_sub_roles_have_frameworks() -> None:
    tree = RoleTree()
    tree.send(update_weights({"b": 3, "a": 2}))
    tree.add("a/x", "cpus:10;mem:10")
    tree.add("b/y", "cpus:10;mem:10")
    assert tree.order() == ["b/y", "a/x"]
    tree.add("b/z", "cpus:5;mem:5")
    assert tree.order() == ["b/z", "b/y", "a/x"], "0.15 of weight 3 against 0.1 of weight 2"
    tree.add("b", "cpus:4;mem:4")
    assert tree.order() == ["a/x", "b", "b/z", "b/y"]
    tree.add("a/zz", "cpus:2;mem:2")
    assert tree.order() == ["a/zz", "a/x", "b", "b/z", "b/y"]


def test_a_weight_changed_later_counts_at_once_in_a_subtree() -> None:
    tree = RoleTree()
    tree.add("a/x", "cpus:10;mem:10")
    tree.add("b/y", "cpus:15;mem:15")
    assert tree.order() == ["a/x", "b/y"]
    tree.send(update_weights({"b": 2}))
    assert tree.order() == ["b/y", "a/x"]


def test_weights_divide_shares() -> None:
    tree = RoleTree()
    tree.send(update_weights({"b": 2}))
    tree.add("a", "cpus:5;mem:5")
    tree.add("b", "cpus:6;mem:6")
    assert tree.order() == ["b", "a"]
    tree.allocate("a", "cpus:1;mem:1")
    tree.add("c", "cpus:4;mem:4")
    assert tree.order() == ["b", "c", "a"]
    tree.send(update_weights({"b": 1, "c": 0.5}))
    assert tree.order()[-1] == "c"


def test_of_equal_shares_the_client_with_fewer_allocations_goes_first() -> None:
    tree = RoleTree()
    tree.add("a", "cpus:1;mem:1")
    for _ in range(2):
        tree.allocate("a", "cpus:1;mem:1")
    tree.release("a", "cpus:2;mem:2")
    tree.add("b", "cpus:1;mem:1")
    assert tree.order() == ["b", "a"], "three allocations still count after their recovery"
    tree.send(contract.DeactivateFramework(framework_id="a"))
    tree.send(contract.ActivateFramework(framework_id="a"))
    assert tree.order() == ["b", "a"]


def test_the_largest_share_of_any_resource_decides_and_excluded_resources_do_not_count() -> None:
    orders = []
    for excluded in ([], ["gpus"]):
        tree = RoleTree("cpus:100;mem:100;gpus:4", excluded=excluded)
        tree.add("a", "cpus:1;mem:30")
        tree.add("b", "cpus:20;mem:1")
        tree.add("c", "cpus:1;gpus:2")
        orders.append(tree.order())
    assert orders == [["b", "a", "c"], ["c", "b", "a"]]


def test_a_resource_that_the_cluster_lost_does_not_count() -> None:
    tree = RoleTree("cpus:100;mem:100;disk:10")
    tree.add("a", "cpus:1;disk:9")
    tree.add("b", "cpus:2")
    assert tree.order() == ["b", "a"]
    tree.resize("cpus:100;mem:100")
    assert tree.order() == ["a", "b"]


def test_allocations_on_several_agents_count_together_and_end_with_their_agents() -> None:
    tree = RoleTree("cpus:50;mem:50")
    used = {"a": resources("cpus:10;mem:10", "a"), "b": resources("cpus:1;mem:1", "b")}
    tree.add("a", "cpus:5;mem:5")
    tree.add("b", "cpus:6;mem:6")
    tree.send(
        add_agent("s1", resources("cpus:50;mem:50"), used),
        contract.DeactivateAgent(agent_id="s1"),
    )
    assert tree.order() == ["b", "a"], "15 against 7"
    tree.remove_agent("s1")
    assert tree.order() == ["a", "b"], "5 against 6"


def test_allocated_reservations_count_and_unallocated_ones_do_not() -> None:
    tree = RoleTree("cpus:50;mem:50;cpus(a):40;mem(a):40")
    tree.add("a", "cpus:5;mem:5")
    tree.add("b", "cpus:6;mem:6")
    assert tree.order() == ["a", "b"]
    tree.allocate("a", "cpus(a):2;mem(a):2")
    assert tree.order() == ["b", "a"]


def test_revocable_resources_count_like_other_resources() -> None:
    tree = RoleTree()
    tree.send(contract.AddResourceProvider(agent_id=STOCK, total=revocable("cpus:100")))
    tree.add("a", "cpus:8")
    tree.add("b", "cpus:6")
    assert tree.order() == ["b", "a"]
    tree.hold("b", revocable("cpus:4", "b"))
    assert tree.order() == ["a", "b"]


def test_a_shared_volume_counts_once_for_each_role_however_often_it_is_allocated() -> None:
    volume = disk(50, reserved=["x"], volume="id1", shared=True)
    tree = RoleTree("cpus:100;mem:100;disk:50")
    tree.send(contract.AddResourceProvider(agent_id=STOCK, total=[volume]))
    for role in ("x/a", "x/b"):
        tree.add(role, "cpus:1;mem:1")
    tree.add("x/c", "cpus:60;mem:1")
    for _ in range(3):
        tree.hold("x/a", allocated([volume], "x/a"))
    assert tree.order() == ["x/b", "x/a", "x/c"], "half of all disks, not one and a half times"
    tree.hold("x/b", allocated([volume], "x/b"))
    tree.allocate("x/b", "cpus:51")
    assert tree.order() == ["x/a", "x/b", "x/c"]


def test_sub_roles_share_agents_by_subtree_first() -> None:
    master = BatchMaster()
    for role in ("a/b", "a/c", "d/e"):
        master.add_framework(role, role)
    served = [offer_of(master, number) for number in range(4)]
    assert [role.split("/")[0] for role in served] == ["a", "d", "a", "d"]
    assert set(served) == {"a/b", "a/c", "d/e"}


def offer_of(master: BatchMaster, number: int) -> str:
    offers: list[Offered] = master.add_agent(f"s{number}", "cpus:1;mem:512")
    [offer] = offers
    return offer.role


def test_a_framework_in_several_roles_competes_in_each_of_them() -> None:
    master = BatchMaster()
    master.send(
        contract.AddFramework(framework_id="f1", info=framework_info("f1", "a", "b"), active=True)
    )
    master.add_framework("f2", "b")
    served = [master.add_agent(f"s{number}", "cpus:1;mem:512") for number in range(4)]
    places = [(offer.framework, offer.role) for [offer] in served]
    assert sorted(places) == [("f1", "a"), ("f1", "a"), ("f1", "b"), ("f2", "b")]


def test_a_framework_is_offered_the_same_resources_in_each_of_its_roles() -> None:
    tree = RoleTree()
    tree.add("a/b")
    [offer] = tree.add_agent("s1", "cpus:4;mem:64;cpus(a):2;cpus(a/b):1;cpus(c):1")
    assert unallocated(offer.messages) == set(resources("cpus:4;mem:64;cpus(a):2;cpus(a/b):1")), (
        "reservations of ancestors are offered to descendants"
    )
