"""Operators' orders hold for exactly as long as they say."""

import math

import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.users.memory import Boost, Memory, RememberedUser
from allocator.users.orders import InvalidOrder
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, MasterSide, agent_call, resources

HALF_LIFE = 600.0
USERS = (DeclaredUser("a"), DeclaredUser("b", weight=2.0))


def made(memory: Memory | None = None) -> MasterSide:
    master = MasterSide("sdrf", {"half_life": HALF_LIFE}, users=USERS, memory=memory)
    master.add_framework("f", "a", active=False)
    master.send(agent_call("s1", "cpus:4;mem:4096", {"f": resources("cpus:3;mem:1024", "a")}))
    return master


def set_weight(master: MasterSide, weight: float | None, seconds: float | None = None) -> None:
    change = operator.SetWeight(user="a", weight=weight, seconds=seconds)
    master.engine.order(operator.Order(set_weight=change))


def weight(master: MasterSide) -> float:
    standing = master.engine.standing("a")
    assert standing is not None
    return standing.weight


def owed(master: MasterSide) -> float:
    standing = master.engine.standing("a")
    assert standing is not None
    return standing.commitments["cpus"]


def test_a_boost_ends_at_its_time_however_late_the_next_event_is() -> None:
    boosted, by_hand = made(), made()
    set_weight(boosted, 6.0, 90.0)
    set_weight(by_hand, 6.0)
    for master in (boosted, by_hand):
        master.tick(89.0)
        assert weight(master) == 6.0
    by_hand.tick(1.0)
    set_weight(by_hand, None)
    by_hand.tick(500.0)
    boosted.tick(501.0)
    assert weight(boosted) == weight(by_hand) == 1.0
    assert owed(boosted) == pytest.approx(owed(by_hand), rel=1e-12)


def test_after_a_boost_the_former_weight_holds() -> None:
    master = made()
    set_weight(master, 3.0)
    set_weight(master, 9.0, 60.0)
    assert (weight(master), master.engine.weights.by("a")) == (9.0, "boost")
    master.tick(60.0)
    assert (weight(master), master.engine.weights.by("a")) == (3.0, "operator")
    set_weight(master, 9.0, 60.0)
    set_weight(master, 2.0)  # a permanent weight, which ends the boost
    master.tick(30.0)
    assert weight(master) == 2.0
    set_weight(master, 9.0, 60.0)
    set_weight(master, None)
    assert (weight(master), master.engine.weights.by("a")) == (1.0, "configuration")


def test_a_boost_survives_a_successor_and_a_snapshot_and_ends_in_time() -> None:
    master = made()
    set_weight(master, 9.0, 600.0)
    master.tick(100.0)
    until = master.engine.now + 500.0
    memory = master.engine.memory()
    assert memory.users["a"].boost == Boost(9.0, until)
    assert master.engine.changes().courses["a"].remembered.boost == Boost(9.0, until)
    for elapsed, expected in ((499.0, 9.0), (500.0, 1.0), (5000.0, 1.0)):
        successor = made(memory)
        assert weight(successor) == 9.0
        successor.now_ns = master.now_ns + round(elapsed * SECOND)
        successor.restore(contract.Snapshot(time_ns=successor.now_ns))
        assert weight(successor) == expected


def test_a_boosted_user_is_not_forgotten_until_the_boost_ends() -> None:
    memory = Memory(1.0, {"idle": RememberedUser(boost=Boost(2.0, 1e12))})
    master = made(memory)
    assert "idle" in master.engine.users()
    change = operator.SetWeight(user="idle")
    master.engine.order(operator.Order(set_weight=change))
    for _ in range(30):
        master.tick(3600.0)
    assert "idle" not in master.engine.users()


def test_a_commitment_set_by_an_operator_decays_like_any_other() -> None:
    master = made()
    change = operator.SetCommitments(user="b", commitments={"cpus": 0.5}, others=0.25)
    master.engine.order(operator.Order(set_commitments=change))
    standing = master.engine.standing("b")
    assert standing is not None
    assert standing.commitments == {"cpus": 0.5, "mem": 0.25}
    master.tick(HALF_LIFE)
    standing = master.engine.standing("b")
    assert standing is not None
    assert standing.commitments == pytest.approx({"cpus": 0.25, "mem": 0.125})
    assert owed(master) > 0.0  # the commitment of the other resource is unchanged


def test_setting_a_commitment_of_one_resource_keeps_the_commitments_of_other_resources() -> None:
    master = made()
    for change in (
        operator.SetCommitments(user="b", commitments={"cpus": 0.5, "mem": 0.25}, others=0.1),
        operator.SetCommitments(user="b", commitments={"cpus": 0.125}, keep_others=True),
    ):
        master.engine.order(operator.Order(set_commitments=change))
    standing = master.engine.standing("b")
    assert standing is not None
    assert standing.commitments == {"cpus": 0.125, "mem": 0.25}
    assert standing.inherited == 0.1, (
        "the commitment of resources that the cluster does not have yet"
    )
    master.tick(HALF_LIFE)
    change = operator.SetCommitments(user="b", commitments={"mem": 0.5}, keep_others=True)
    master.engine.order(operator.Order(set_commitments=change))
    standing = master.engine.standing("b")
    assert standing is not None
    assert standing.commitments == pytest.approx({"cpus": 0.0625, "mem": 0.5})


def test_a_commitment_in_tasks_can_be_set_if_the_policy_counts_tasks() -> None:
    master = MasterSide("stsf", {"half_life": HALF_LIFE}, users=USERS)
    master.add_agent("s1", "cpus:4;mem:4096")
    change = operator.SetCommitments(user="b", commitments={"tasks": 0.25}, keep_others=True)
    master.engine.order(operator.Order(set_commitments=change))
    standing = master.engine.standing("b")
    assert standing is not None
    assert standing.commitments["tasks"] == 0.25


def test_setting_a_parent_roles_commitment_keeps_the_commitments_of_its_sub_roles() -> None:
    master = MasterSide("sdrf", {"half_life": HALF_LIFE})
    for role in ("a/x", "b"):
        master.add_framework(f"of-{role}", role)
    master.add_agent("s1", "cpus:4;mem:4096")
    for user, part in (("a", 0.5), ("a/x", 0.25)):
        change = operator.SetCommitments(user=user, others=part)
        master.engine.order(operator.Order(set_commitments=change))
    change = operator.SetCommitments(user="a", commitments={"cpus": 0.1}, keep_others=True)
    master.engine.order(operator.Order(set_commitments=change))
    owed = {user: master.engine.standing(user) for user in ("a", "a/x")}
    assert owed["a"] is not None
    assert owed["a"].commitments == {"cpus": 0.1, "mem": 0.5}
    assert owed["a/x"] is not None
    assert owed["a/x"].commitments == {"cpus": 0.25, "mem": 0.25}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (operator.SetWeight(user="a", weight=2.0, seconds=0.0), "a boost needs a weight"),
        (operator.SetWeight(user="a", weight=2.0, seconds=math.nan), "a boost needs a weight"),
        (operator.SetWeight(user="a", weight=2.0, seconds=31_622_401.0), "366 days"),
        (operator.SetWeight(user="a", seconds=5.0), "needs a weight"),
        (operator.SetWeight(user="a", weight=-1.0, seconds=5.0), "weight -1"),
        (operator.SetWeight(user="nobody", weight=1.0), "no such user: nobody"),
        (operator.SetCommitments(user="nobody"), "no such user: nobody"),
        (operator.ResetCommitments(users=["nobody", "a"]), "no such user: nobody"),
        (operator.SetCommitments(user="a", others=1.5), "commitment of 1.5 of every resource is"),
        (
            operator.SetCommitments(user="a", commitments={"cpus": 0.1}, others=1.5),
            "commitment of 1.5 of every other resource is",
        ),
        (operator.SetCommitments(user="a", commitments={"cpus": -0.1}), "-0.1 of cpus"),
        (operator.SetCommitments(user="a", commitments={"cpus": math.nan}), "nan of cpus"),
        (operator.SetCommitments(user="a", commitments={"cpu": 0.1}), "no 'cpu'; it has cpus"),
    ],
)
def test_an_impossible_order_changes_nothing(change: object, words: str) -> None:
    master = made()
    before = master.engine.standings()
    order = operator.Order()
    if isinstance(change, operator.SetWeight):
        order.set_weight.CopyFrom(change)
    elif isinstance(change, operator.SetCommitments):
        order.set_commitments.CopyFrom(change)
    elif isinstance(change, operator.ResetCommitments):
        order.reset_commitments.CopyFrom(change)
    with pytest.raises(InvalidOrder, match=words):
        master.engine.order(order)
    assert master.engine.standings() == before
    assert master.engine.memory().users["a"].boost is None


def test_under_a_policy_without_commitments_no_commitment_can_be_set() -> None:
    master = MasterSide("drf", users=USERS)
    change = operator.SetCommitments(user="a", others=0.1)
    with pytest.raises(InvalidOrder, match="keeps no commitments"):
        master.engine.order(operator.Order(set_commitments=change))


def test_boosts_that_end_in_sequence_change_all_levels_each_at_its_time() -> None:
    owed = []
    for instants in ((10.0, 10.0, 10.0), (30.0,)):
        master = MasterSide("sdrf", {"half_life": HALF_LIFE})
        used = {}
        for role in ("a/x", "a/y", "c"):
            master.add_framework(f"of-{role}", role, active=False)
            used[f"of-{role}"] = resources("cpus:2" if role == "a/x" else "cpus:1", role)
        master.send(agent_call("s1", "cpus:4;mem:4096", used))
        for user, seconds in (("a", 10.0), ("c", 20.0)):
            change = operator.SetWeight(user=user, weight=5.0, seconds=seconds)
            master.engine.order(operator.Order(set_weight=change))
        for seconds in instants:
            master.tick(seconds)
        owed.append(
            {standing.user: standing.commitments["cpus"] for standing in master.engine.standings()}
        )
    assert owed[1] == pytest.approx(owed[0], rel=1e-9)
    assert owed[0]["a/x"] > 0.0


def forget(master: MasterSide, *users: str) -> None:
    master.engine.order(operator.Order(forget_users=operator.ForgetUsers(users=users)))


def departed() -> MasterSide:
    """Return a cluster that its users have left, all with commitments."""
    master = made()
    held = {"g": resources("cpus:1", "c/d"), "h": resources("cpus:2", "c")}
    for framework, role in (("g", "c/d"), ("h", "c")):
        master.add_framework(framework, role, active=False)
    master.send(agent_call("s2", "cpus:4;mem:4096", held))
    master.tick(HALF_LIFE)
    for framework in "gh":
        master.send(contract.RemoveFramework(framework_id=framework))
    return master


def test_forgotten_users_and_their_sub_users_dilute_no_entitlement() -> None:
    master = departed()
    master.engine.order(
        operator.Order(set_weight=operator.SetWeight(user="c", weight=9.0, seconds=60.0))
    )
    diluted = master.engine.standing("a")
    assert diluted is not None
    assert diluted.entitlement == 1 / 12
    master.engine.changes()
    forget(master, "c")
    assert {"a", "b"} == set(master.engine.users())
    standing = master.engine.standing("a")
    assert standing is not None
    assert standing.entitlement == 1 / 3
    assert set(master.engine.memory().users) == {"a", "b"}
    assert {"c", "c/d"} <= {*master.engine.changes().removed}, "the store forgets them"
    master.tick(120.0)  # past the end of the boost
    master.add_framework("g", "c/d")
    standing = master.engine.standing("c")
    assert standing is not None
    assert (standing.weight, standing.commitment) == (1.0, 0.0), "the user begins like a new user"


def test_a_sub_role_may_be_forgotten_alone_and_together_with_its_role() -> None:
    alone, together = departed(), departed()
    forget(alone, "c/d")
    assert {"a", "b", "c"} == set(alone.engine.users())
    forget(together, "c", "c/d")
    forget(alone, "c")
    assert set(alone.engine.users()) == set(together.engine.users()) == {"a", "b"}


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (("c", "nobody"), "no such user: nobody"),
        ((), "name the users to forget"),
        (("c", "b"), "user 'b' is declared"),
        (("c", "a"), "user 'a' has frameworks"),
        (("e",), "user 'e/f' has frameworks"),
    ],
)
def test_an_order_to_forget_names_users_that_cannot_be_forgotten_and_forgets_no_user(
    users: tuple[str, ...], words: str
) -> None:
    master = departed()
    master.add_framework("i", "e/f")
    known = set(master.engine.users())
    with pytest.raises(InvalidOrder, match=words):
        forget(master, *users)
    assert set(master.engine.users()) == known


@pytest.mark.parametrize(
    "order", [field.name for field in operator.Order.DESCRIPTOR.oneofs_by_name["order"].fields]
)
def test_the_engine_knows_every_order_of_the_contract(order: str) -> None:
    given = operator.Order()
    getattr(given, order).SetInParent()
    refusal = ""
    try:
        made().engine.order(given)
    except InvalidOrder as error:
        refusal = str(error)
    assert "unknown kind" not in refusal
