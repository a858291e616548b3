"""The successor of an engine, or of a cluster's state, continues with its memory."""

import math
from dataclasses import replace

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.users import Users
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.users.memory import Boost, Memory, RememberedUser
from allocator.users.settings import DeclaredUser
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
"""Time constant of a half-life of a minute."""
LEFT = Memory(
    NOW - 60.0,
    {
        "a": RememberedUser({"cpus": 0.5}, overuse={"cpus": 0.25}),
        "a/b": RememberedUser({"cpus": 0.25}, overuse={"cpus": 0.125}),
        "a/c": RememberedUser({"cpus": 0.25}),
        "d": RememberedUser({"cpus": 0.25}),
    },
    TAU,
)


def made(memory: Memory | None = LEFT, **changes: object) -> MasterSide:
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.settings = replace(master.settings, **changes)  # type: ignore[arg-type]
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
def test_before_the_first_snapshot_an_engine_passes_on_the_memory_that_it_inherited(
    tau: float | None,
) -> None:
    memory = replace(LEFT, tau=tau)
    engine = made(memory).engine
    kept = engine.memory()
    assert kept.time == memory.time
    assert kept.tau == (tau or TAU), "an absent time constant is replaced by the engine's own"
    assert kept.users == memory.users
    changes = engine.changes()
    assert changes.complete
    commitments = {user: course.at(changes.time) for user, course in changes.courses.items()}
    assert commitments == memory.users
    assert {course.tau for course in changes.courses.values()} == {tau or TAU}


def test_after_a_snapshot_only_overuse_by_its_allocations_is_passed_on() -> None:
    master = made()
    master.restore(mirrored(master))
    assert not any(user.overuse.get("cpus") for user in master.engine.memory().users.values())


@pytest.mark.parametrize("asked", ["standing", "standings", "twin"])
def test_before_the_first_snapshot_each_level_has_its_entitlement(asked: str) -> None:
    engine = made().engine
    match asked:
        case "standing":
            standing = engine.standing("a/b")
        case "standings":
            [standing] = [standing for standing in engine.standings() if standing.user == "a/b"]
        case _:
            twin = engine.twin("a/b")
            standing = twin.standing("a/b") if twin is not None else None
    assert standing is not None
    assert standing.entitlement == 0.25, "half of its parent's half"
    assert engine.twin("nobody") is None
    assert engine.standing("nobody/.") is None


@pytest.mark.interpreted
def test_inherited_commitments_survive_an_error_in_the_users_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = made()

    def broken(_self: Users) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Users, "memory_in_steps", broken)
    master.restore(mirrored(master, "f1"))
    assert master.engine.statistics.faults == 1
    standing = master.engine.standing("d")
    assert standing is not None
    assert standing.commitments["cpus"] == pytest.approx(0.125), "one half-life later"


def test_commitments_under_a_policy_without_memory_decay_on_every_level() -> None:
    master = MasterSide()
    master.engine = Engine(master.settings, memory=LEFT)
    master.restore(contract.Snapshot(time_ns=START_NS))
    for _ in range(2):
        owed = {
            standing.user: standing.commitments.get("cpus")
            for standing in master.engine.standings()
        }
        assert owed["d"] == pytest.approx(owed["a/c"])
        master.tick(60.0)
    standing = master.engine.standing("a/c")
    assert standing is not None
    assert standing.commitments["cpus"] == pytest.approx(0.25 / 8)


@pytest.mark.parametrize("keeps", [True, False], ids=["present rule", "former event logs"])
@pytest.mark.parametrize("user_key", ["framework_name", "principal"])
def test_a_user_whose_name_ends_like_a_virtual_leaf_keeps_its_commitment(
    user_key: str, *, keeps: bool
) -> None:
    stored = {"x": RememberedUser({"cpus": 0.25}), "x/.": RememberedUser({"cpus": 0.5})}
    master = made(Memory(NOW, stored, 1e9), user_key=user_key, leaves_only_in_trees=keeps)
    master.restore(contract.Snapshot(time_ns=START_NS))
    for name in stored:
        info = mesos.FrameworkInfo(user="", name=name, principal=name, roles=["a"])
        info.capabilities.add(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)
        framework = contract.AddFramework(
            framework_id=name.encode().hex(), info=info.SerializeToString(), active=True
        )
        master.send(framework)
    for name, remembered in stored.items():
        standing = master.engine.standing(name)
        assert standing is not None
        kept = keeps or name == "x"
        assert standing.commitments == pytest.approx(remembered.commitments if kept else {})


def test_a_virtual_leaf_inherits_its_commitment_once() -> None:
    memory = Memory(NOW, {"a/.": RememberedUser({"cpus": 0.5}, others=0.5)}, 1e9)
    master = made(memory, forget_after=5.0)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.add_framework("f1", "a")
    master.add_framework("f2", "a/b")
    leaf = master.engine.standing("a/.")
    assert leaf is not None
    assert max(leaf.commitments.values(), default=leaf.inherited) > 0.1
    master.engine.order(operator.Order(reset_commitments=operator.ResetCommitments()))
    assert not any(
        any(user.commitments.values()) or user.others
        for user in master.engine.memory().users.values()
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
def test_a_user_that_is_declared_or_has_an_ordered_weight_is_not_forgotten(why: str) -> None:
    users = (DeclaredUser("a"),) if why == "declared" else ()
    master = made(None, users=users, forget_after=5.0)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.add_framework("f1", "a")
    if why in {"ordered", "boosted"}:
        seconds = 1e6 if why == "boosted" else None
        weight_order = operator.SetWeight(user="a", weight=2.0, seconds=seconds)
        master.engine.order(operator.Order(set_weight=weight_order))
    master.send(contract.RemoveFramework(framework_id="f1"))
    for _ in range(3):
        master.tick(10.0)
    assert master.engine.users() == (["a"] if why else [])


@pytest.mark.parametrize("boost", [Boost(3.0, NOW + 10.0), Boost(3.0, NOW)])
def test_a_boost_is_handed_over_until_it_ends(boost: Boost) -> None:
    master = made(Memory(NOW, {"a": RememberedUser(boost=boost)}))
    master.restore(contract.Snapshot(time_ns=START_NS))
    assert master.engine.users() == (["a"] if boost.until > NOW else [])


def test_a_snapshot_drops_rejected_input_about_absent_frameworks_only() -> None:
    master = made(None)
    master.restore(mirrored(master, "f1", "gone"))
    for name in ("f1", "gone"):
        master.send(contract.RequestResources(framework_id=name, requests=[b"\xff"]))
    assert len(list(master.engine.rejected_inputs())) == 2
    master.restore(mirrored(master, "f1"))
    assert [
        (rejected_input.name, rejected_input.topic)
        for rejected_input in master.engine.rejected_inputs()
    ] == [("f1", "request")]


def declined() -> MasterSide:
    """Return a master whose frameworks f1 and f2 have declined the only agent for an hour."""
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


def test_no_filter_remains_of_a_removed_framework() -> None:
    master = declined()
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert master.engine.filters == 1
    master.restore(mirrored(master))
    assert master.engine.filters == 0


def test_no_filter_remains_of_an_agent_that_is_removed_or_has_changed() -> None:
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
def test_a_framework_that_became_inactive_or_left_its_role_has_no_filters_after_a_snapshot(
    why: str,
) -> None:
    master = declined()
    snapshot = mirrored(master, "f1", "f2")
    if why == "inactive":
        snapshot.frameworks[0].active = False
    else:  # an allocation in the left role keeps the client known
        snapshot.frameworks[0].info = framework_info("f1", "b")
        held = resources("cpus:0.5", "a")
        snapshot.agents.append(agent_call("s2", "cpus:0.5", {"f1": held}))
    master.restore(snapshot)
    assert master.engine.filters == 1


def test_a_learned_demand_in_a_role_that_was_left_is_forgotten_at_the_snapshot() -> None:
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


def test_a_snapshot_of_another_master_ends_all_filters() -> None:
    master = declined()
    second_snapshot = mirrored(master, "f1", "f2")
    second_snapshot.leading_since_ns = START_NS
    assert master.restore(second_snapshot)


def test_a_decline_of_a_snapshots_offer_is_kept_over_the_next_snapshot() -> None:
    master = made(None)
    [offer] = master.restore(mirrored(master, "f1"))
    refused = mesos.Filters(refuse_seconds=3600).SerializeToString()
    event = contract.Event(sequence=1, time_ns=master.now_ns)
    event.recover_resources.CopyFrom(recovered("s1", "f1", refused))
    event.recover_resources.resources[:] = offer.messages
    for _ in range(2):  # a repeated event counts once
        master.engine.note_skipped_events([event])
    master.sequence = 1
    assert master.restore(mirrored(master, "f1")) == []


def test_the_later_of_two_inherited_memories_counts() -> None:
    for later, owed in ((0.0, 0.5), (1.0, 0.25)):
        master = made(Memory(NOW, {"d": RememberedUser({"cpus": 0.5})}, 1e9))
        newer = Memory(NOW + later, {"d": RememberedUser({"cpus": 0.25})}, 1e9)
        snapshot = contract.Snapshot(time_ns=START_NS + round(later * SECOND))
        master.engine.restore(master.options, snapshot, newer)
        standing = master.engine.standing("d")
        assert standing is not None
        assert standing.commitments["cpus"] == pytest.approx(owed, rel=0.1)


def test_filters_are_not_kept_over_a_gap_in_the_events() -> None:
    master = declined()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    tick = contract.Event(sequence=master.sequence + 3, time_ns=master.now_ns)
    tick.tick.SetInParent()
    master.engine.note_skipped_events([tick])
    master.sequence += 3
    assert master.restore(mirrored(master, "f1", "f2")), "one event before the snapshot is missing"


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
def test_a_skipped_recovery_before_a_snapshot_ends_no_filter(
    late: contract.RecoverResources,
) -> None:
    master = declined()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    wrong = contract.Event(sequence=master.sequence + 1, time_ns=master.now_ns)
    wrong.remove_agent.agent_id = "nobody"
    event = contract.Event(sequence=master.sequence + 2, time_ns=master.now_ns)
    event.recover_resources.CopyFrom(late)
    master.engine.note_skipped_events([wrong, event])
    master.sequence += 2
    assert master.restore(mirrored(master, "f1", "f2")) == []
    assert (master.engine.filters, master.engine.statistics.faults) == (2, 0)


@pytest.mark.parametrize("role", ["a", "a/b", "x"])
def test_a_user_that_comes_back_in_time_is_not_forgotten(role: str) -> None:
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


def test_an_idle_role_that_gets_a_sub_role_is_not_forgotten() -> None:
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
