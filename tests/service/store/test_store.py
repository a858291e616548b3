"""Commitments survive the service, and no file of another program is changed."""

import asyncio
import errno
import hashlib
import json
import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminStub
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.service.store import StoreError, StoreUnavailable, codec
from allocator.service.store import writer as writer_module
from allocator.service.store.rows import StoreRows
from allocator.service.store.sqlite import APPLICATION_ID, SqliteStore
from allocator.service.store.writer import saving_to_store
from allocator.users.memory import (
    AccumulatedUse,
    Boost,
    Memory,
    MemoryChanges,
    OccupiedPlaces,
    RememberedUser,
)
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.served import PATIENCE, Service, Stream, service, wait_for
from tests.service.show.test_metrics import scrape
from tests.service.stored import MEMORIES, memory, stored, whole

DELTA = 0.99
POLICY = f'[policy]\nname = "sdrf"\ndelta = {DELTA}\n[[users.declared]]\nname = "b"\n'
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=False)
HELD = agent_call("s1", "cpus:4;mem:4096", {"f1": resources("cpus:3;mem:1024", "a")})
"""User a holds three quarters of the CPUs and b nothing: a over-uses a quarter of the cluster."""
FREE = agent_call("s1", "cpus:4;mem:4096")


def encoded_rows(kept: Memory) -> bytes:
    """Return the head and the rows of a store with a memory, one a line."""
    rows = StoreRows()
    run_to_completion(rows.take(whole(kept)))
    return b"\n".join([rows.head(), *(row for _, row in rows.all())])


@given(MEMORIES)
def test_a_memory_is_read_back_bit_for_bit(kept: Memory) -> None:
    assert codec.decode(codec.encode(kept)) == kept


@given(MEMORIES, st.data())
def test_any_damage_to_a_memory_is_detected(kept: Memory, data: st.DataObject) -> None:
    written = bytearray(codec.encode(kept))
    where = data.draw(st.integers(0, len(written) - 1))
    written[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StoreError):
        codec.decode(bytes(written))
    with pytest.raises(StoreError):
        codec.decode(codec.encode(kept)[:where])


def test_a_memory_of_an_unknown_version_is_rejected_with_both_versions() -> None:
    newer = codec.encode(memory()).replace(b'"version":2', b'"version":9')
    with pytest.raises(StoreError, match=r"version 9 of the format, .* knows versions up to 5"):
        codec.decode(newer)


def test_a_memory_of_version_1_is_read_without_a_decay_constant() -> None:
    body = b'{"time":5.0,"users":{"a":{"commitments":{},"others":0.5,"overuse":{},"weight":null}}}'
    digest = hashlib.sha256(body).hexdigest()
    head = f'{{"format":"longshare-memory","sha256":"{digest}","version":1}}\n'
    assert codec.decode(head.encode() + body) == Memory(5.0, {"a": RememberedUser(others=0.5)})


def test_a_memory_of_the_former_release_is_read() -> None:
    """The text is as the release before accumulated use was stored wrote it, in version 4."""
    body = (
        b'{"places":{"0123456789abcdef":7},"tau":9.0,"time":5.0,"users":{"a":{"boost":[2.0,6.0],'
        b'"commitments":{"cpus":0.25},"others":0.5,"overuse":{},"weight":3.0}}}'
    )
    digest = hashlib.sha256(body).hexdigest()
    written = f'{{"format":"longshare-memory","sha256":"{digest}","version":4}}\n'.encode() + body
    user = RememberedUser({"cpus": 0.25}, others=0.5, weight=3.0, boost=Boost(2.0, 6.0))
    kept = Memory(5.0, {"a": user}, 9.0, {"0123456789abcdef": OccupiedPlaces(7)})
    assert codec.decode(written) == kept
    assert codec.encode(kept) == written, "older releases can read what needs no new version"


@pytest.mark.parametrize("version", codec.VERSIONS)
@pytest.mark.parametrize("coded", [codec.encode, encoded_rows])
def test_the_version_is_the_oldest_that_has_room_for_the_memory(
    coded: Callable[[Memory], bytes], version: int
) -> None:
    user = RememberedUser({"cpus": 0.5})
    if version >= 3:
        user = replace(user, boost=Boost(2.0, 6.0))
    if version >= 5:
        user = replace(user, accumulated=AccumulatedUse(3.5, 0.25))
    places = {"0123456789abcdef": OccupiedPlaces(7)} if version >= 4 else {}
    kept = Memory(5.0, {"a": user, "b": RememberedUser()}, 9.0, places)
    head = coded(kept).partition(b"\n")[0]
    assert json.loads(head)["version"] == version
    owned = {"0123456789abcdef": OccupiedPlaces(7, "0" * 16)}
    head = coded(replace(kept, places=owned)).partition(b"\n")[0]
    assert json.loads(head)["version"] == 5
    for zero in (AccumulatedUse(), AccumulatedUse(0.0, 0.0)):
        users = {**kept.users, "b": RememberedUser(accumulated=zero)}
        assert coded(replace(kept, users=users)) == coded(kept)


@pytest.mark.parametrize("amount", [math.nan, math.inf])
def test_nan_and_infinity_are_never_written(amount: float) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        codec.encode(memory(time=amount))


def test_a_file_holds_the_last_saved_memory(tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "commitments.sqlite"
    with closing(SqliteStore(file)) as store:
        assert store.load() is None
        store.save(whole(memory(1.0)))
        store.save(whole(memory(2.0)))
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(2.0)
    assert file.stat().st_mode & 0o077 == 0, "the file is readable only for its owner"
    assert list(file.parent.iterdir()) == [file]


def garbage(file: Path) -> None:
    file.write_bytes(b"user,commitment\na,0.5\n" * 50)


def empty(file: Path) -> None:
    file.touch()


def a_database_of_others(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE memory (id, data); INSERT INTO memory VALUES (1, 2)")


def of_a_newer_release(file: Path) -> None:
    saved(file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 3")


def without_its_table(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1")


def with_content_of_others(file: Path) -> None:
    saved(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE memory SET data = x'00'")


def truncated(file: Path) -> None:
    saved(file)
    os.truncate(file, file.stat().st_size - 4096)


def damaged(file: Path) -> None:
    saved(file)
    content = bytearray(file.read_bytes())
    content[content.index(b"0.333333")] ^= 1
    file.write_bytes(content)


def saved(file: Path) -> None:
    with closing(SqliteStore(file)) as store:
        store.save(whole(memory(users=200)))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (garbage, "not a SQLite file"),
        (empty, "not a SQLite file"),
        (a_database_of_others, "of another program"),
        (of_a_newer_release, "version 3 of the layout, this Longshare knows version 2"),
        (without_its_table, "damaged: no such table"),
        (with_content_of_others, "not a store of Longshare"),
        (truncated, "damaged"),
        (damaged, "damaged: the checksum does not match"),
    ],
)
def test_an_unusable_file_is_rejected_and_stays_unchanged(
    tmp_path: Path, make: Callable[[Path], None], complaint: str
) -> None:
    file = tmp_path / "commitments.sqlite"
    make(file)
    before = file.read_bytes(), file.stat().st_mtime_ns
    with pytest.raises(StoreError, match=f"commitments.sqlite: .*{complaint}"):
        SqliteStore(file)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_belongs_to_one_service_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with closing(SqliteStore(file)) as store:
        store.save(whole(memory(1.0)))
        with pytest.raises(StoreError, match="in use by another service"):
            SqliteStore(file)
        store.save(whole(memory(2.0)))
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(2.0)


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"/file/deeper/commitments.sqlite: Not a directory"):
        SqliteStore(tmp_path / "file" / "deeper" / "commitments.sqlite")


DIES_WHILE_SAVING = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE memory SET data = zeroblob(100000)")
connection.execute("CREATE TABLE more AS SELECT zeroblob(100000)")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_interrupted_save_keeps_the_former_memory(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    saved(file)
    sound = file.read_bytes()
    subprocess.run([sys.executable, "-c", DIES_WHILE_SAVING, str(file)], check=False)
    assert file.read_bytes() != sound, "the writer died in the middle of the save"
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(users=200)
        store.save(whole(memory(2.0)))
    assert stored(file) == memory(2.0)


@contextmanager
def full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_the_former_memory(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with closing(SqliteStore(file)) as store:
        store.save(whole(memory(1.0)))
        with full_disk(), pytest.raises(StoreUnavailable, match=r"commitments.sqlite: "):
            store.save(whole(memory(2.0, users=500)))
        assert stored(file) == memory(1.0)
        store.save(whole(memory(3.0)))
    assert stored(file) == memory(3.0)


def test_a_start_needs_no_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "commitments.sqlite"
    with closing(SqliteStore(file)) as store:
        store.save(whole(memory(1.0)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))  # any user can fill it
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(1.0)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with closing(SqliteStore(file)) as store:
        assert store.load() == memory(1.0)
    assert {path.name for path in tmp_path.iterdir()} == {file.name}


def test_a_start_beside_a_full_disk_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    with pytest.raises(StoreUnavailable, match="No space left"):
        SqliteStore(tmp_path / "commitments.sqlite")


def test_a_removed_file_is_created_again(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with closing(SqliteStore(file)) as store:
        file.unlink()
        store.save(whole(memory()))
        assert stored(file) == memory()
        with pytest.raises(StoreError, match="in use"):
            SqliteStore(file)


def test_saving_works_again_once_a_missing_folder_returns(tmp_path: Path) -> None:
    folder, away = tmp_path / "state", tmp_path / "away"
    with closing(SqliteStore(folder / "commitments.sqlite")) as store:
        folder.rename(away)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="No such file"):
                store.save(whole(memory()))
        away.rename(folder)
        store.save(whole(memory()))
    assert stored(folder / "commitments.sqlite") == memory()


def test_a_file_that_replaced_the_store_is_left_unchanged(tmp_path: Path) -> None:
    file, second_file = tmp_path / "commitments.sqlite", tmp_path / "other"
    garbage(second_file)
    with closing(SqliteStore(file)) as store:
        content = second_file.read_bytes()
        second_file.rename(file)
        with pytest.raises(StoreError, match="has been replaced by another file"):
            store.save(whole(memory()))
    assert file.read_bytes() == content


def test_an_operators_order_is_stored_at_once(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    policy = policies.create("sdrf", {"delta": DELTA})
    engine = Engine(EngineSettings(policy=policy, users=(DeclaredUser("a", 1.0, 0.5),)))

    async def order() -> Memory | None:
        with closing(SqliteStore(file)) as store:
            async with saving_to_store(engine, store, every=60.0) as keeper:
                engine.order(operator.Order(set_weight=operator.SetWeight(user="a", weight=4.0)))
                assert await keeper.save_now()
                return stored(file)

    kept = asyncio.run(order())
    assert kept is not None
    assert kept.users["a"].weight == 4.0
    assert kept.users["a"].others == 0.5


def test_an_order_that_could_not_be_stored_is_stored_later(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    policy = policies.create("sdrf", {"delta": DELTA})
    engine = Engine(EngineSettings(policy=policy, users=(DeclaredUser("a", 1.0, 0.5),)))

    async def order() -> None:
        with closing(SqliteStore(file)) as store:
            async with saving_to_store(engine, store, every=60.0) as keeper:
                engine.order(operator.Order(set_weight=operator.SetWeight(user="a", weight=4.0)))
                with full_disk():
                    assert not await keeper.save_now()

    asyncio.run(order())
    kept = stored(file)
    assert kept is not None
    assert kept.users["a"].weight == 4.0


class SlowDisk(SqliteStore):
    """A store whose saves take as long as the test requires."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.done = threading.Event()

    def save(self, changes: MemoryChanges) -> None:
        self.done.wait()
        super().save(changes)


def test_a_new_leader_and_an_operator_do_not_wait_for_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "ORDER_PATIENCE", 0.01)
    file = tmp_path / "commitments.sqlite"
    policy = policies.create("sdrf", {"delta": DELTA})
    engine = Engine(EngineSettings(policy=policy, users=(DeclaredUser("a", 1.0, 0.5),)))

    async def order() -> tuple[bool, Memory | None]:
        with closing(SlowDisk(file)) as store:
            async with saving_to_store(engine, store, every=60.0) as keeper:
                engine.order(operator.Order(set_weight=operator.SetWeight(user="a", weight=4.0)))
                answered = await keeper.save_with_time_limit()
                recalled = await keeper.recall()
                store.done.set()
        return answered, recalled

    assert asyncio.run(order()) == (False, None)
    kept = stored(file)
    assert kept is not None
    assert kept.users["a"].weight == 4.0, "the order is stored before the service ends"


class DeafStore(SqliteStore):
    """A shared store whose server does not answer the first two requests."""

    shared = True
    left_out = 0
    asked = 0

    def recall(self) -> Memory | None:
        self.asked += 1
        if self.asked < 3:
            raise StoreUnavailable("no answer")
        return Memory(3e9, {"a": RememberedUser({"cpus": 0.5})})


def test_loading_for_a_new_leader_is_retried_until_a_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen server holds its client until a timeout; then another server has the commitments."""
    monkeypatch.setattr(writer_module, "_RECALL_RETRY", 0.001)
    monkeypatch.setattr(writer_module, "RECALL_PATIENCE", PATIENCE)
    policy = policies.create("sdrf", {"delta": DELTA})

    async def recalled() -> Memory | None:
        with closing(DeafStore(tmp_path / "commitments.sqlite")) as store:
            async with saving_to_store(
                Engine(EngineSettings(policy=policy)), store, every=60.0
            ) as keeper:
                return await keeper.recall()

    assert asyncio.run(recalled()) == Memory(3e9, {"a": RememberedUser({"cpus": 0.5})})


def test_a_service_never_reloads_its_own_saves(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with closing(SqliteStore(file)) as store:
        store.save(whole(Memory(3e9, {"a": RememberedUser({"cpus": 0.5}, weight=1.0)})))
    with service(tmp_path, settings(file, every=0.05)) as running:
        stream = Stream(running.address)
        stream.open(agents=[FREE], frameworks=[FRAMEWORK])
        with grpc.insecure_channel(running.address) as channel:
            stub = AdminStub(channel)
            stub.Order(operator.Order(reset_commitments=operator.ResetCommitments(users=["a"])))
            weight = operator.SetWeight(user="a", weight=3.0)
            wait_for(lambda: stub.Order(operator.Order(set_weight=weight)).stored)
        stream.close()
        restarted = Stream(running.address)
        restarted.open(agents=[FREE], frameworks=[FRAMEWORK])
        seen = scrape(running)
        assert seen["longshare_user_commitment_ratio", "a", "cpus"] == 0.0
        assert seen["longshare_user_weight", "a"] == 3.0


def settings(file: Path, every: float) -> str:
    return f'{POLICY}[store]\npath = "{file}"\nevery = {every}\n'


def run_up_a_debt(running: Service, seconds: int) -> Stream:
    stream = Stream(running.address)
    stream.open(agents=[HELD], frameworks=[FRAMEWORK])
    for _ in range(seconds):
        stream.now_ns += SECOND
        stream.tell(tick=contract.Tick())
    return stream


def time_stored(file: Path) -> float:
    try:
        kept = stored(file)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return 0.0  # the file is locked during a save
    return kept.time if kept is not None else 0.0


def commitment_after(running: Service, now_ns: int, **snapshot: object) -> float:
    """Return the CPU commitment of user a that a restarted service shows to a new master."""
    stream = Stream(running.address)
    stream.now_ns = now_ns
    stream.open(**snapshot)
    owed = scrape(running)["longshare_user_commitment_ratio", "a", "cpus"]
    stream.close()
    return owed


def test_a_killed_service_has_the_commitments_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with service(tmp_path, settings(file, every=0.05)) as first:
        stream = run_up_a_debt(first, 100)
        wait_for(lambda: time_stored(file) == stream.now_ns / SECOND)
        first.stop(signal.SIGKILL)
    with service(tmp_path, settings(file, every=0.05)) as second:
        later = stream.now_ns + 50 * SECOND
        owed = commitment_after(second, later, agents=[FREE], frameworks=[FRAMEWORK])
    assert owed == pytest.approx(0.25 * (1 - DELTA**100) * DELTA**50, rel=1e-9)


def test_a_crash_loses_at_most_the_commitments_since_the_last_save(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with service(tmp_path, settings(file, every=0.5)) as first:
        stream = run_up_a_debt(first, 60)
        first.stop(signal.SIGKILL)
    lost = stream.now_ns / SECOND - max(time_stored(file), 1_600_000_000)
    with service(tmp_path, settings(file, every=0.5)) as second:
        owed = commitment_after(second, stream.now_ns, agents=[FREE], frameworks=[FRAMEWORK])
    without_a_crash = 0.25 * (1 - DELTA**60)
    assert owed <= without_a_crash + 1e-9
    assert without_a_crash - owed <= (1 - DELTA**lost) * 0.25 + 1e-9


SPILLING = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in ("PRAGMA cache_size = 1", "BEGIN", "CREATE TABLE new (row)"):
    connection.execute(statement)
for _ in range(1000):
    connection.execute("INSERT INTO new VALUES (?)", (1000 * "x",))
connection.execute("DELETE FROM memory")
print("some of it is in the file", flush=True)
time.sleep(3600)
"""


def test_a_transaction_interrupted_by_a_kill_is_rolled_back(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    saved(file)
    before = stored(file)
    assert before is not None
    command = [sys.executable, "-c", SPILLING, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writing:
        assert writing.stdout is not None
        writing.stdout.readline()
        writing.kill()
    assert Path(f"{file}-journal").stat().st_size
    assert stored(file) == before, "a reader without the lock sees the former memory"
    with closing(SqliteStore(file)) as store:
        assert store.load() == before
    assert not Path(f"{file}-journal").exists()


def test_resources_held_before_and_after_a_crash_count_as_held_in_between(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with service(tmp_path, settings(file, every=0.05)) as first:
        stream = run_up_a_debt(first, 10)
        wait_for(lambda: time_stored(file) == stream.now_ns / SECOND)
        first.stop(signal.SIGKILL)
    with service(tmp_path, settings(file, every=0.05)) as second:
        later = stream.now_ns + 50 * SECOND
        owed = commitment_after(second, later, agents=[HELD], frameworks=[FRAMEWORK])
    assert owed == pytest.approx(0.25 * (1 - DELTA**60), rel=1e-9)


def test_a_service_stores_its_memory_on_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with service(tmp_path, settings(file, every=60.0)) as running:
        stream = run_up_a_debt(running, 10)
        stream.close()
        assert running.stop(signal.SIGTERM) == 0
    kept = stored(file)
    assert kept is not None
    assert kept.time == stream.now_ns / SECOND
    assert kept.users["a"].commitments["cpus"] == pytest.approx(0.25 * (1 - DELTA**10))


def test_a_service_without_a_master_leaves_the_store_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    saved(file)
    with service(tmp_path, settings(file, every=0.05)) as running:
        running.stop(signal.SIGTERM)
    assert stored(file) == memory(users=200)


def locked(intruder: sqlite3.Connection) -> bool:
    try:
        intruder.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def test_a_failing_store_degrades_the_service_to_memory_and_recovers(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    with service(tmp_path, settings(file, every=0.05)) as running:
        stream = run_up_a_debt(running, 0)  # only a snapshot, so one save suffices
        wait_for(lambda: scrape(running)["longshare_store_saves_total",] > 0)
        assert scrape(running)["longshare_store_degraded",] == 0
        with closing(sqlite3.connect(file, isolation_level=None)) as intruder:
            wait_for(lambda: locked(intruder))
            stream.now_ns += SECOND
            stream.tell(tick=contract.Tick())
            wait_for(lambda: scrape(running)["longshare_store_failures_total",] >= 2)
            assert scrape(running)["longshare_store_degraded",] == 1
            stream.now_ns += SECOND
            assert stream.tell(tick=contract.Tick()).decisions.applied_sequence == 2, (
                "allocation continues"
            )
        wait_for(lambda: scrape(running)["longshare_store_degraded",] == 0)
        log = running.log.read_text()  # read before the reader below locks the file
        wait_for(lambda: time_stored(file) == stream.now_ns / SECOND)
        assert scrape(running)["longshare_store_last_save_timestamp_seconds",] > 0
        stream.close()
    assert log.count("cannot be stored") == 1, "the failure is logged once, not with every attempt"
    assert "database is locked" in log
    assert log.count("commitments are stored again") == 1


def test_a_damaged_store_ends_the_start_with_exit_code_2_and_stays_unchanged(
    tmp_path: Path,
) -> None:
    file = tmp_path / "commitments.sqlite"
    damaged(file)
    before = file.read_bytes()
    refused = Service(tmp_path, settings(file, every=1.0))
    assert refused.process.wait(PATIENCE) == 2
    log_text = refused.log.read_text()
    assert f"longshare serve: store: {file}: damaged: the checksum does not match" in log_text
    assert "Traceback" not in log_text
    assert file.read_bytes() == before


def test_without_a_store_the_log_warns_that_commitments_will_be_lost(tmp_path: Path) -> None:
    with service(tmp_path, f'{POLICY}[store]\nkind = "none"\n') as running:
        assert "commitments will be lost when the service ends" in running.log.read_text()
        assert not any(name.startswith("longshare_store") for name, *_ in scrape(running))
