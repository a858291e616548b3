"""Rows stored as changes add up to the memory of the engine after any history."""

import random
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users import Users
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from allocator.service.store import StoreError, codec
from allocator.service.store.rows import StoreRows, decode_memory
from allocator.service.store.sqlite import APPLICATION_ID, SqliteStore
from allocator.service.store.zookeeper import LARGEST, decode_node, encode_fitting_node, encode_node
from allocator.users.memory import (
    AccumulatedUse,
    Memory,
    MemoryChanges,
    RememberedUser,
    StoredTrajectory,
)
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import MasterSide, agent_call, resources
from tests.service.stored import MEMORIES, memory, stored, whole

ROLES = ["a", "a/b", "a/c", "d", "e/f"]
TASK = Quantities.parse("cpus:10;mem:50")
CAPACITY = Quantities.parse("cpus:100;mem:1000")
WRITER = bytes(16)


class World:
    """Users of a cluster, changed step by step."""

    def __init__(self, policy: str) -> None:
        parameters = {"half_life": 100.0} if policy == "sdrf" else {}
        settings = EngineSettings(
            policies.create(policy, parameters),
            forget_after=50.0,
            users=(DeclaredUser("d", 2.0, 0.3),),
            keeps_accumulated_use=True,
        )
        self.now = 1000.0
        self.users = Users(settings, self.now, ())
        self.users.set_capacity(CAPACITY)
        self.held: dict[str, int] = {}
        self.capacity = 100

    def go_on(self, action: str, role: str, number: int) -> None:
        client = Client(role, "f")
        present = role in self.held
        match action:
            case "time":
                self.now += number
                self.users.advance(self.now)
            case "join" if not present:
                self.held[role] = 0
                self.users.add(self.users.get(role), client)
            case "allocate" if present:
                self.held[role] += 1
                self.users.allocate(self.users.get(role), client, TASK)
            case "release" if self.held.get(role):
                self.held[role] -= 1
                self.users.release(self.users.get(role), client, TASK)
            case "leave" if self.held.get(role) == 0:
                del self.held[role]
                self.users.remove(self.users.get(role), client)
            case "grow":
                self.capacity += number
                self.users.set_capacity(Quantities({"cpus": 1000 * self.capacity}))
            case "weigh" if role in self.users:
                self.users.order_weight(role, float(number) if number % 2 else None)
            case "forgive" if role in self.users:
                self.users.reset_commitments(role)
            case "forget":
                self.users.forget_idle()
            case _:
                pass


WHAT = ["time", "join", "allocate", "release", "leave", "grow", "weigh", "forgive", "forget"]
LEFT_BEHIND = Memory(
    900.0,
    {"a/.": RememberedUser({"cpus": 0.5}), "x/y/.": RememberedUser({"cpus": 0.2}, others=0.1)},
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*WHAT, *["time", "allocate", "release"] * 2, "store"]),
        st.sampled_from(ROLES),
        st.integers(1, 60),
    ),
    max_size=60,
)


def approximately(kept: Memory) -> Any:  # noqa: ANN401 - pytest's
    """Return values to compare with tolerance; a sum of steps is rounded differently."""

    def close(amounts: Any) -> Any:  # noqa: ANN401
        return pytest.approx(amounts, rel=1e-9, abs=1e-15)

    return {
        user: (
            close(dict(u.commitments)),
            close(dict(u.overuse)),
            close(u.others),
            u.weight,
            close(tuple(u.accumulated)),
        )
        for user, u in kept.users.items()
    }


def plainly(kept: Memory) -> object:
    return {
        user: (dict(u.commitments), dict(u.overuse), u.others, u.weight, tuple(u.accumulated))
        for user, u in kept.users.items()
    }


@given(st.sampled_from(["sdrf", "drf", "karma", "dynamic-drf"]), STEPS)
def test_changes_add_up_to_the_memory(policy: str, steps: list[tuple[str, str, int]]) -> None:
    world, rows = World(policy), StoreRows()
    world.users.inherit(LEFT_BEHIND)
    for action, role, number in [*steps, ("store", "", 0)]:
        if action != "store":
            world.go_on(action, role, number)
            continue
        run_to_completion(rows.take(world.users.changes()))
        read = decode_memory(rows.head(), rows.all())
        remembered = world.users.memory()
        assert read.time == remembered.time
        assert plainly(read) == approximately(remembered)


def test_only_users_whose_allocation_changed_are_written() -> None:
    world, rows = World("sdrf"), StoreRows()
    for role in ROLES:
        world.go_on("join", role, 0)
    run_to_completion(rows.take(world.users.changes()))
    rows.mark_written()
    world.go_on("time", "", 30)
    run_to_completion(rows.take(world.users.changes()))
    assert list(rows.unwritten()) == [], "time alone changes no trajectory"
    world.go_on("allocate", "d", 0)
    world.go_on("time", "", 30)
    run_to_completion(rows.take(world.users.changes()))
    assert [user for user, _ in rows.unwritten()] == ["d"]


def test_the_row_of_a_forgotten_user_is_deleted() -> None:
    world, rows = World("sdrf"), StoreRows()
    world.go_on("join", "e/f", 0)
    run_to_completion(rows.take(world.users.changes()))
    rows.mark_written()
    for action in ("leave", "time", "time", "forget"):
        world.go_on(action, "e/f", 40)
    run_to_completion(rows.take(world.users.changes()))
    assert ("e/f", None) in list(rows.unwritten())


def changes_of(users: dict[str, RememberedUser], *, needed: bool = True) -> MemoryChanges:
    courses = {
        user: StoredTrajectory(1.0, None, remembered, needed) for user, remembered in users.items()
    }
    return MemoryChanges(1.0, courses, complete=False)


def test_users_without_commitments_have_no_row_in_a_zookeeper_node() -> None:
    rows, letters = StoreRows(), random.Random(1)
    names = [letters.randbytes(500).hex() for _ in range(2500)]
    run_to_completion(rows.take(changes_of({"owing": RememberedUser({"cpus": 0.3})})))
    idle = dict.fromkeys(names, RememberedUser({"cpus": 0.0}, {"cpus": 0.0}))
    run_to_completion(rows.take(changes_of(idle, needed=False)))
    data, left_out = encode_fitting_node(rows, WRITER)
    assert len(data) < 1000
    assert left_out == 0
    read = decode_node(data)
    assert read is not None
    assert read.users == {"owing": RememberedUser({"cpus": 0.3})}
    run_to_completion(rows.take(changes_of({names[0]: RememberedUser({"cpus": 0.1})})))
    read = decode_node(encode_fitting_node(rows, WRITER)[0])
    assert read is not None
    assert set(read.users) == {"owing", names[0]}


def test_a_zookeeper_node_without_room_lacks_the_users_with_the_least_commitments() -> None:
    rows, letters = StoreRows(), random.Random(1)
    names = [letters.randbytes(500).hex() for _ in range(2500)]
    users = {name: RememberedUser({"cpus": (place + 1) / 1e4}) for place, name in enumerate(names)}
    users["named"] = RememberedUser({"cpus": 1e-9}, weight=2.0)
    run_to_completion(rows.take(changes_of(users)))
    assert len(encode_node(rows, WRITER)) > LARGEST
    data, left_out = encode_fitting_node(rows, WRITER)
    assert 0.9 * LARGEST < len(data) <= LARGEST
    read = decode_node(data)
    assert read is not None
    assert set(read.users) == {"named", *names[left_out:]}


@pytest.mark.parametrize("user", ["declared", "weighted", "busy", "idle"])
def test_only_users_that_a_successor_would_treat_otherwise_are_needed_in_the_store(
    user: str,
) -> None:
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.settings = replace(master.settings, users=(DeclaredUser("declared", commitment=0.4),))
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for role in ("weighted", "busy", "idle"):
        master.add_framework(f"f-{role}", role, active=False)
    master.send(agent_call("s1", "cpus:4;mem:512", {"f-busy": resources("cpus:4", "busy")}))
    master.engine.order(operator.Order(set_weight=operator.SetWeight(user="weighted", weight=2)))
    reset = operator.ResetCommitments(users=["declared"])
    master.engine.order(operator.Order(reset_commitments=reset))
    assert master.engine.changes().courses[user].needed == (user != "idle")


@given(MEMORIES)
def test_rows_are_read_back_bit_for_bit(kept: Memory) -> None:
    rows = StoreRows()
    run_to_completion(rows.take(whole(kept)))
    assert decode_memory(rows.head(), rows.all()) == kept
    assert decode_node(encode_node(rows, WRITER)) == kept


@given(MEMORIES, st.data())
def test_any_damage_to_rows_is_detected(kept: Memory, data: st.DataObject) -> None:
    rows = StoreRows()
    run_to_completion(rows.take(whole(kept)))
    pairs = dict(rows.all())
    parts = {"": rows.head(), **pairs} if "" not in pairs else pairs
    hurt = data.draw(st.sampled_from(sorted(parts)))
    written = bytearray(parts[hurt])
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    parts[hurt] = bytes(written)
    head = parts.pop("") if "" not in pairs else rows.head()
    with pytest.raises(StoreError):
        decode_memory(head, parts.items())
    for user in pairs:
        with pytest.raises(StoreError, match="checksum"):
            decode_memory(rows.head(), [pair for pair in pairs.items() if pair[0] != user])


def test_a_number_written_with_other_digits_is_damage() -> None:
    rows = StoreRows()
    run_to_completion(rows.take(whole(Memory(1.2808609111085168e154, {}, None))))
    changed = rows.head().replace(b"168e+154", b"169e+154")
    assert changed != rows.head()
    assert float("1.2808609111085169e+154") == 1.2808609111085168e154
    with pytest.raises(StoreError, match="checksum"):
        decode_memory(changed, [])


def in_the_former_layout(file: Path, kept: Memory) -> None:
    """Write a store file in the layout of the former release."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
            "CREATE TABLE memory (id INTEGER PRIMARY KEY CHECK (id = 1), data BLOB NOT NULL);"
        )
        connection.execute("INSERT INTO memory VALUES (1, ?)", (codec.encode(kept),))


def test_a_file_of_the_former_layout_is_converted_and_a_copy_kept(tmp_path: Path) -> None:
    file, kept = tmp_path / "commitments.sqlite", tmp_path / "commitments.sqlite.layout-1"
    in_the_former_layout(file, memory(users=3))
    before = file.read_bytes()
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(users=3)
        assert file.read_bytes() == before, "loading does not change the file"
        store.save(whole(memory(2e9, users=2)))
        store.save(whole(memory(3e9, users=2)))
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(3e9, users=2)
    assert stored(kept) == memory(users=3)
    assert kept.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_zookeeper_node_of_the_former_release_is_read() -> None:

    data = b"LSHR1\n" + WRITER + zlib.compress(codec.encode(memory(users=3)))
    assert decode_node(data) == memory(users=3)
    with pytest.raises(StoreError, match="damaged"):
        decode_node(data[:-5])


@pytest.mark.parametrize("user", ["busy", "idle"])
def test_every_user_is_needed_in_the_store_of_a_policy_that_keeps_accumulated_use(
    user: str,
) -> None:
    world = World("karma")
    for role in ("a", "d"):
        world.go_on("join", role, 0)
    world.go_on("allocate", "a", 0)
    world.go_on("time", "", 10)
    courses = world.users.changes().courses
    assert courses[{"busy": "a", "idle": "d"}[user]].needed


def test_a_zookeeper_node_without_room_lacks_the_users_with_the_least_accumulated_use() -> None:
    rows, letters = StoreRows(), random.Random(1)
    names = [letters.randbytes(500).hex() for _ in range(2500)]
    users = {
        name: RememberedUser(accumulated=AccumulatedUse(1.0 + place))
        for place, name in enumerate(names)
    }
    run_to_completion(rows.take(changes_of(users)))
    data, left_out = encode_fitting_node(rows, WRITER)
    assert len(data) <= LARGEST
    read = decode_node(data)
    assert read is not None
    assert set(read.users) == set(names[left_out:])


@given(st.binary(min_size=1, max_size=200))
def test_a_zookeeper_node_with_other_content_is_rejected(content: bytes) -> None:
    with pytest.raises(StoreError):
        decode_node(content)
