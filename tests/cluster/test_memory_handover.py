"""The successor of an engine, or of a cluster's state, continues with its memory."""

import math
from dataclasses import replace

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.memory import Boost, Memory, Remembered
from allocator.cluster.settings import DeclaredUser
from allocator.cluster.users import Users
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from tests.cluster.conformance.quota_side import agent_info
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resources,
)

NOW = START_NS / 1e9
TAU = 60.0 / math.log(2.0)
"""Of a half-life of a minute."""
LEFT = Memory(
    NOW - 60.0,
    {
        "a": Remembered({"cpus": 0.5}, overuse={"cpus": 0.25}),
        "a/b": Remembered({"cpus": 0.25}, overuse={"cpus": 0.125}),
        "a/c": Remembered({"cpus": 0.25}),
        "d": Remembered({"cpus": 0.25}),
    },
    TAU,
)


def made(memory: Memory | None = LEFT, **more: object) -> MasterSide:
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.settings = replace(master.settings, **more)  # type: ignore[arg-type]
    master.engine = Engine(master.settings, memory=memory)
    return master


def mirrored(master: MasterSide, *frameworks: str) -> contract.Snapshot:
    snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence)
    for name in frameworks:
        info = framework_info(name, "a")
        snapshot.frameworks.add(framework_id=name, info=info, active=True)
    snapshot.agents.append(agent_call("s1", "cpus:2;mem:64"))
    return snapshot


@pytest.mark.parametrize("tau", [TAU, 17.0, None])
def test_before_any_snapshot_what_is_passed_on_is_what_was_inherited(tau: float | None) -> None:
    left = replace(LEFT, tau=tau)
    engine = made(left).engine
    kept = engine.memory()
    assert kept.time == left.time
    assert kept.tau == (tau or TAU), "what nobody has said is as it is here"
    assert kept.users == left.users
    changes = engine.changes()
    assert changes.complete
    told = {user: course.at(changes.time) for user, course in changes.courses.items()}
    assert told == left.users
    assert {course.tau for course in changes.courses.values()} == {tau or TAU}


def test_once_a_snapshot_tells_what_is_held_nothing_else_is_passed_on() -> None:
    master = made()
    master.restore(mirrored(master))
    assert not any(each.overuse.get("cpus") for each in master.engine.memory().users.values())


@pytest.mark.parametrize("asked", ["standing", "standings", "twin"])
def test_before_any_snapshot_each_level_knows_its_part(asked: str) -> None:
    engine = made().engine
    match asked:
        case "standing":
            standing = engine.standing("a/b")
        case "standings":
            [standing] = [each for each in engine.standings() if each.user == "a/b"]
        case _:
            twin = engine.twin("a/b")
            standing = twin.standing("a/b") if twin is not None else None
    assert standing is not None
    assert standing.entitlement == 0.25, "half of its parent's half"
    assert engine.twin("nobody") is None
    assert engine.standing("nobody/.") is None


def test_what_was_handed_on_holds_even_if_the_users_themselves_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = made()

    def broken(_self: Users) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Users, "remembering", broken)
    master.restore(mirrored(master, "f1"))
    assert master.engine.statistics.faults == 1
    standing = master.engine.standing("d")
    assert standing is not None
    assert standing.commitments["cpus"] == pytest.approx(0.125), "a half-life later"


def test_a_debt_of_a_policy_without_memory_fades_on_every_level() -> None:
    master = MasterSide()
    master.engine = Engine(master.settings, memory=LEFT)
    master.restore(contract.Snapshot(time_ns=START_NS))
    for _ in range(2):
        owed = {each.user: each.commitments.get("cpus") for each in master.engine.standings()}
        assert owed["d"] == pytest.approx(owed["a/c"])
        master.tick(60.0)
    standing = master.engine.standing("a/c")
    assert standing is not None
    assert standing.commitments["cpus"] == pytest.approx(0.25 / 8)


def test_what_a_role_owed_beside_its_sub_roles_is_owed_once() -> None:
    left = Memory(NOW, {"a/.": Remembered({"cpus": 0.5}, others=0.5)}, 1e9)
    master = made(left, forget_after=5.0)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.add_framework("f1", "a")
    master.add_framework("f2", "a/b")
    leaf = master.engine.standing("a/.")
    assert leaf is not None
    assert max(leaf.commitments.values(), default=leaf.inherited) > 0.1
    master.engine.order(operator.Order(reset_commitments=operator.ResetCommitments()))
    assert not any(
        any(each.commitments.values()) or each.others
        for each in master.engine.memory().users.values()
    )
    master.send(contract.RemoveFramework(framework_id="f1"))
    for _ in range(3):
        master.tick(10.0)
    assert "a/." not in master.engine.users()
    master.add_framework("f1", "a")
    leaf = master.engine.standing("a/.")
    assert leaf is not None
    assert max(leaf.commitments.values(), default=0.0) == 0.0
    assert leaf.inherited == 0.0


@pytest.mark.parametrize("why", ["declared", "ordered", "boosted", ""])
def test_who_was_said_something_about_stays_known(why: str) -> None:
    users = (DeclaredUser("a"),) if why == "declared" else ()
    master = made(None, users=users, forget_after=5.0)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.add_framework("f1", "a")
    if why in {"ordered", "boosted"}:
        seconds = 1e6 if why == "boosted" else None
        said = operator.SetWeight(user="a", weight=2.0, seconds=seconds)
        master.engine.order(operator.Order(set_weight=said))
    master.send(contract.RemoveFramework(framework_id="f1"))
    for _ in range(3):
        master.tick(10.0)
    assert master.engine.users() == (["a"] if why else [])


@pytest.mark.parametrize("boost", [Boost(3.0, NOW + 10.0), Boost(3.0, NOW)])
def test_a_boost_is_handed_on_as_long_as_it_lasts(boost: Boost) -> None:
    master = made(Memory(NOW, {"a": Remembered(boost=boost)}))
    master.restore(contract.Snapshot(time_ns=START_NS))
    assert master.engine.users() == (["a"] if boost.until > NOW else [])


def test_of_what_was_set_aside_a_snapshot_leaves_what_it_says_nothing_of() -> None:
    master = made(None)
    master.restore(mirrored(master, "f1", "gone"))
    for name in ("f1", "gone"):
        master.send(contract.RequestResources(framework_id=name, requests=[b"\xff"]))
    assert len(list(master.engine.set_aside())) == 2
    master.restore(mirrored(master, "f1"))
    assert [(each.name, each.topic) for each in master.engine.set_aside()] == [("f1", "request")]


def declined() -> MasterSide:
    """f1 and f2 have each refused the only agent for an hour."""
    master = made(None)
    master.restore(mirrored(master, "f1", "f2"))
    master.sequence = 0
    refused = mesos.Filters(refuse_seconds=3600).SerializeToString()
    for name in ("f1", "f2"):
        call = contract.RecoverResources(framework_id=name, agent_id="s1", filters=refused)
        call.resources.extend(resources("cpus:2;mem:64", "a"))
        master.send(call)
    assert master.engine.filters == 2
    return master


def test_nothing_is_left_of_the_filters_of_a_framework_that_is_gone() -> None:
    master = declined()
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert master.engine.filters == 1
    master.restore(mirrored(master))
    assert master.engine.filters == 0


def test_nothing_is_left_of_the_filters_of_an_agent_that_is_gone_or_is_another_now() -> None:
    master = declined()
    gone = mirrored(master, "f1", "f2")
    del gone.agents[:]
    master.restore(gone)
    assert master.engine.filters == 0
    master = declined()
    moved = mirrored(master, "f1", "f2")
    moved.agents[0].info = agent_info("s1", rack="7")
    assert [offer.agent for offer in master.restore(moved)] == ["s1"]


@pytest.mark.parametrize("why", ["inactive", "left"])
def test_who_is_inactive_or_has_left_a_role_over_a_snapshot_has_no_filters_any_more(
    why: str,
) -> None:
    master = declined()
    snapshot = mirrored(master, "f1", "f2")
    if why == "inactive":
        snapshot.frameworks[0].active = False
    else:  # what it holds for the role keeps the client known
        snapshot.frameworks[0].info = framework_info("f1", "b")
        held = resources("cpus:0.5", "a")
        snapshot.agents.append(agent_call("s2", "cpus:0.5", {"f1": held}))
    master.restore(snapshot)
    assert master.engine.filters == 1


def test_what_was_learned_of_a_role_that_was_left_over_a_snapshot_is_forgotten() -> None:
    master = made(None, learn_demands=True)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.add_framework("f1", "a")
    [whole] = master.add_agent("s1", "cpus:4;mem:4096")
    master.recover(whole, "cpus:3;mem:3072", refuse_seconds=1)
    assert master.engine.demands()
    snapshot = mirrored(master, "f1")
    snapshot.frameworks[0].info = framework_info("f1", "b")
    master.restore(snapshot)
    master.send(contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "a")))
    assert not master.engine.demands()


def test_another_master_that_has_heard_as_much_knows_nothing_of_filters() -> None:
    master = declined()
    other = mirrored(master, "f1", "f2")
    other.leading_since_ns = START_NS
    assert master.restore(other)


def test_a_refusal_of_what_a_snapshot_brought_about_is_kept_over_the_next() -> None:
    master = made(None)
    [offer] = master.restore(mirrored(master, "f1"))
    refused = mesos.Filters(refuse_seconds=3600).SerializeToString()
    event = contract.Event(sequence=1, time_ns=master.now_ns)
    event.recover_resources.CopyFrom(recovered("s1", "f1", refused))
    event.recover_resources.resources[:] = offer.messages
    for _ in range(2):  # what is said twice is heard once
        master.engine.unheard([event])
    master.sequence = 1
    assert master.restore(mirrored(master, "f1")) == []


def test_what_another_service_has_left_holds_if_it_is_of_later_and_not_otherwise() -> None:
    for later, owed in ((0.0, 0.5), (1.0, 0.25)):
        master = made(Memory(NOW, {"d": Remembered({"cpus": 0.5})}, 1e9))
        other = Memory(NOW + later, {"d": Remembered({"cpus": 0.25})}, 1e9)
        snapshot = contract.Snapshot(time_ns=START_NS + round(later * SECOND))
        master.engine.restore(master.options, snapshot, other)
        standing = master.engine.standing("d")
        assert standing is not None
        assert standing.commitments["cpus"] == pytest.approx(owed, rel=0.1)


def test_filters_are_not_kept_over_a_gap_in_what_was_heard() -> None:
    master = declined()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    tick = contract.Event(sequence=master.sequence + 3, time_ns=master.now_ns)
    tick.tick.SetInParent()
    master.engine.unheard([tick])
    master.sequence += 3
    assert master.restore(mirrored(master, "f1", "f2")), "one event is missing before it"


def recovered(
    agent: str, framework: str, filters: bytes | None = None
) -> contract.RecoverResources:
    call = contract.RecoverResources(framework_id=framework, agent_id=agent, filters=filters)
    call.resources.extend(resources("cpus:1", "a"))
    return call


@pytest.mark.parametrize(
    "late",
    [
        recovered("gone", "f1", filters=b""),
        recovered("s1", "gone", filters=b""),
        recovered("s1", "f1"),
        contract.RecoverResources(framework_id="f1", agent_id="s1", resources=[b"\xff"]),
    ],
    ids=["no such agent", "no such framework", "no filter", "no resource"],
)
def test_what_comes_back_while_a_snapshot_is_under_way_costs_nobody_a_filter(
    late: contract.RecoverResources,
) -> None:
    master = declined()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    wrong = contract.Event(sequence=master.sequence + 1, time_ns=master.now_ns)
    wrong.remove_agent.agent_id = "nobody"
    event = contract.Event(sequence=master.sequence + 2, time_ns=master.now_ns)
    event.recover_resources.CopyFrom(late)
    master.engine.unheard([wrong, event])
    master.sequence += 2
    assert master.restore(mirrored(master, "f1", "f2")) == []
    assert (master.engine.filters, master.engine.statistics.faults) == (2, 0)


@pytest.mark.parametrize("role", ["a", "a/b", "x"])
def test_who_is_back_in_time_is_not_forgotten(role: str) -> None:
    master = made(None, forget_after=10.0)
    master.restore(contract.Snapshot(time_ns=START_NS))
    for name in ("a", "a/b", "x"):
        master.add_framework(f"of-{name}", name)
    known = set(master.engine.users())
    master.send(contract.RemoveFramework(framework_id=f"of-{role}"))
    master.tick(5.0)
    master.add_framework(f"of-{role}", role)
    for _ in range(4):
        master.tick(11.0)
    assert set(master.engine.users()) == known
    assert len(master.add_agent("s1", "cpus:1;mem:64")) == 1


def test_a_role_that_has_got_sub_roles_is_not_forgotten_for_having_been_idle() -> None:
    master = made(None, forget_after=10.0)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.add_framework("f1", "a")
    master.send(contract.RemoveFramework(framework_id="f1"))
    master.tick(5.0)
    master.add_framework("f2", "a/b")
    for _ in range(4):
        master.tick(11.0)
    assert master.engine.users() == ["a", "a/b"]
    assert len(master.add_agent("s1", "cpus:1;mem:64")) == 1
