"""ZooKeeper keeps commitments despite server failures and writes of other clients.

Most tests need a real server: the variable LONGSHARE_ZOOKEEPER_CLASSPATH names its jars, in the
syntax of a Java class path.
"""

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.store import (
    StoreDamaged,
    StoreError,
    StoreTaken,
    StoreUnavailable,
    rows,
    writer,
)
from allocator.service.store.writer import saving_to_store
from allocator.service.store.zookeeper import LARGEST_CONTENT, ZookeeperStore, decode_node
from allocator.users.memory import Memory, RememberedUser
from frameworks.harness.ports import free_port
from tests.cluster.master_side import SECOND
from tests.service.served import PATIENCE, Service, freeze, service, wait_for
from tests.service.show.test_metrics import scrape
from tests.service.store.test_store import (
    DELTA,
    FRAMEWORK,
    FREE,
    POLICY,
    commitment_after,
    run_up_a_debt,
)
from tests.service.stored import memory, whole

CLASSPATH = os.environ.get("LONGSHARE_ZOOKEEPER_CLASSPATH", "")
FRUGAL = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options for a server that lives for a second: they halve the processor time."""
ZNODE = "/longshare/commitments"


class Server:
    """A ZooKeeper server that tests can kill, restart with its data, and stop temporarily."""

    def __init__(self, folder: Path) -> None:
        self.hosts = f"127.0.0.1:{free_port()}"
        self._config = folder / "zoo.cfg"
        self._config.write_text(
            f"tickTime=200\ndataDir={folder}/data\nclientPort={self.hosts.partition(':')[2]}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            "minSessionTimeout=400\nmaxSessionTimeout=60000\n"
        )
        self._log = folder / "zookeeper.log"
        self.start()

    def start(self) -> None:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *FRUGAL, "-cp", CLASSPATH, main, str(self._config)],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def hold(self) -> None:
        freeze(self._process.pid)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        made = KazooClient(self.hosts)
        made.start(timeout=20.0)
        yield made
        made.stop()
        made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if not CLASSPATH or shutil.which("java") is None:
        pytest.skip("no ZooKeeper: LONGSHARE_ZOOKEEPER_CLASSPATH and java")
    started = Server(tmp_path)
    yield started
    started.kill()


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        rows.StoreRows().head() + b"\n" + b"[" * 100_000 + b"\t{}",
        rows.StoreRows().head() + b'\n"\\ud800"\t{}',
        rows.StoreRows().head() + b"\n7\t{}",
        bytes(2 * LARGEST_CONTENT),
    ],
    ids=["deep", "a deep name", "a surrogate", "a number for a name", "zeros"],
)
@pytest.mark.parametrize("magic", [b"LSHR1\n", b"LSHR2\n"])
def test_a_hostile_node_is_rejected_as_damaged_and_allocates_no_memory(
    magic: bytes, content: bytes
) -> None:
    node = magic + bytes(16) + zlib.compress(content)
    tracemalloc.start()
    with pytest.raises(StoreDamaged):
        decode_node(node)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * LARGEST_CONTENT


def test_a_truncated_node_is_rejected_as_damaged() -> None:
    node = b"LSHR2\n" + bytes(16) + zlib.compress(rows.StoreRows().head())
    with pytest.raises(StoreDamaged, match="part of the data"):
        decode_node(node[:-3])


def test_an_unreachable_server_is_named() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable, match=f"znode {ZNODE} at {hosts}: no answer"):
        ZookeeperStore(hosts, ZNODE, patience=0.5)


@pytest.mark.slow
def test_a_silent_server_is_reported_as_unavailable() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match="no answer"):
            ZookeeperStore(hosts, ZNODE, patience=0.5)


def test_invalid_credentials_end_the_start_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password\n")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "open").write_text("user:password\n")
    (tmp_path / "open").chmod(0o644)
    settings = f'[store]\nkind = "zookeeper"\nhosts = "127.0.0.1:1"\ncredentials = "{tmp_path}/'
    for file, complaint in (
        ("secret", "does not contain USER:PASSWORD"),
        ("none", "No such file"),
        ("open", "every user of this machine may read it"),
    ):
        refused = Service(tmp_path, f'{settings}{file}"\n')
        assert refused.process.wait(PATIENCE) == 2
        assert complaint in refused.log.read_text()


@pytest.mark.slow
def test_a_service_without_a_reachable_server_ends_with_exit_code_1(tmp_path: Path) -> None:
    settings = f'[store]\nkind = "zookeeper"\nhosts = "127.0.0.1:{free_port()}"\n'
    refused = Service(tmp_path, settings)
    assert refused.process.wait(PATIENCE) == 1
    [log_line] = refused.log.read_text().splitlines()
    assert log_line.startswith("longshare serve: store: znode")


@pytest.mark.slow
def test_a_node_holds_the_last_saved_memory(server: Server) -> None:
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() is None
        store.save(whole(memory(1.0)))
        store.save(whole(memory(2.0, users=5000)))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() == memory(2.0, users=5000)


@pytest.mark.slow
def test_a_node_of_another_program_is_rejected_and_stays_unchanged(server: Server) -> None:
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        store.save(whole(memory()))
    with server.client() as client:
        ours = client.get(ZNODE)[0]
        for content, complaint in (
            (b"a=1", "of another program"),
            (ours[:-20], "damaged"),
            (ours[:-1] + b"x", "damaged"),
        ):
            client.set(ZNODE, content)
            with pytest.raises(StoreError, match=complaint):
                ZookeeperStore(server.hosts, ZNODE)
            assert client.get(ZNODE)[0] == content
        client.set(ZNODE, b"")
        with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
            assert store.load() is None, "an empty node may be created by an operator"
            store.save(whole(memory()))


@pytest.mark.slow
def test_a_node_written_by_another_service_is_not_overwritten(server: Server) -> None:
    with (
        closing(ZookeeperStore(server.hosts, ZNODE)) as late,
        closing(ZookeeperStore(server.hosts, ZNODE)) as store,
    ):
        store.save(whole(memory(1.0)))
        for _ in range(2):
            with pytest.raises(StoreError, match="another service has written the node"):
                late.save(whole(memory(2.0)))
        store.save(whole(memory(3.0)))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() == memory(3.0)


@pytest.mark.slow
def test_a_take_over_overwrites_later_saves_and_the_former_writer_is_told(
    server: Server,
) -> None:
    with (
        closing(ZookeeperStore(server.hosts, ZNODE)) as former,
        closing(ZookeeperStore(server.hosts, ZNODE)) as store,
    ):
        former.save(whole(memory(1.0)))
        assert store.recall() == memory(1.0)
        former.save(whole(memory(2.0)))
        store.take_over()
        store.save(whole(memory(3.0)))
        with pytest.raises(StoreTaken):
            former.save(whole(memory(4.0)))
        store.save(whole(memory(5.0)))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() == memory(5.0)


@pytest.mark.slow
def test_only_newer_writes_of_another_service_are_loaded(server: Server) -> None:
    with (
        closing(ZookeeperStore(server.hosts, ZNODE)) as first,
        closing(ZookeeperStore(server.hosts, ZNODE)) as second,
    ):
        assert first.recall() is None, "no service has written the node yet"
        first.save(whole(memory(1.0)))
        assert first.recall() is None, "the last writer is the same service"
        assert second.recall() == memory(1.0)
        assert second.recall() is None, "the write has been loaded already"
        second.save(whole(memory(2.0)))
        assert first.recall() == memory(2.0)
        first.save(whole(memory(3.0)))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as later:
        assert later.load() == memory(3.0)
        assert later.recall() is None, "the write was loaded at the start"


@pytest.mark.slow
def test_a_deleted_node_is_created_again(server: Server) -> None:
    with server.client() as client, closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        store.save(whole(memory(1.0)))
        client.delete(ZNODE)
        with pytest.raises(StoreUnavailable, match="was deleted"):
            store.save(whole(memory(2.0)))
        store.save(whole(memory(3.0)))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() == memory(3.0)


@pytest.mark.slow
def test_weights_too_many_for_a_node_are_rejected(server: Server) -> None:
    draw = random.Random(1).random
    crowd = Memory(1.0, {f"u{i}": RememberedUser(weight=draw()) for i in range(120_000)})
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        store.save(whole(memory(1.0)))
        with pytest.raises(StoreError, match="that ZooKeeper accepts"):
            store.save(whole(crowd))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() == memory(1.0)


@pytest.mark.slow
def test_with_credentials_no_other_client_reads_or_writes(server: Server) -> None:
    with closing(ZookeeperStore(server.hosts, ZNODE, "longshare:secret")) as store:
        store.save(whole(memory()))
    for identity in (None, "longshare:guessed"):
        with pytest.raises(StoreError, match=r"access denied; check store.credentials"):
            ZookeeperStore(server.hosts, ZNODE, identity)
    with closing(ZookeeperStore(server.hosts, ZNODE, "longshare:secret")) as store:
        assert store.load() == memory()


@pytest.mark.slow
def test_a_save_without_an_answer_is_recognised_as_the_services_own_write(server: Server) -> None:
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        store.save(whole(memory(1.0)))
        server.hold()
        with pytest.raises(StoreUnavailable):
            store.save(whole(memory(2.0)))
        server.go_on()
        after = memory(3.0)
        wait_for(lambda: saves(store, after))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        assert store.load() == after


def saves(store: ZookeeperStore, wanted: Memory) -> bool:
    try:
        store.save(whole(wanted))
    except StoreUnavailable:
        return False
    return True


def time_stored(server: Server) -> float:
    try:
        with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
            return (store.load() or memory(0.0)).time
    except StoreUnavailable:
        return 0.0  # the server may need more time


async def until(kept: writer.StoreWriter, *, degraded: bool) -> None:
    while kept.statistics.degraded is not degraded:  # noqa: ASYNC110 - no event announces it
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_saving_resumes_without_loss_when_a_failed_server_returns(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LONGEST_PAUSE", 0.5)
    engine = Engine(EngineSettings(policy=policies.create("sdrf", {"delta": DELTA})))
    engine.restore(contract.Options(), contract.Snapshot(time_ns=1_600_000_000 * SECOND))

    async def live(store: ZookeeperStore) -> None:
        async with saving_to_store(engine, store, every=0.05) as kept:
            while not await kept.save_now():
                pass
            server.kill()
            tick = contract.Event(sequence=1, time_ns=1_600_000_001 * SECOND)
            tick.tick.SetInParent()
            engine.apply(contract.Events(events=[tick]))
            await until(kept, degraded=True)
            server.start()
            await until(kept, degraded=False)

    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        asyncio.run(live(store))
    with closing(ZookeeperStore(server.hosts, ZNODE)) as store:
        # No user has a commitment, so the decay constant is not stored.
        assert store.load() == replace(engine.memory(), tau=None)


@pytest.mark.slow
def test_a_service_on_another_machine_loads_the_commitments(server: Server, tmp_path: Path) -> None:
    settings = f'{POLICY}[store]\nkind = "zookeeper"\nevery = 0.05\nhosts = "{server.hosts}"\n'
    first_home, second_home = tmp_path / "first", tmp_path / "second"
    first_home.mkdir()
    second_home.mkdir()
    with service(first_home, settings) as first:
        stream = run_up_a_debt(first, 100)
        wait_for(lambda: time_stored(server) == stream.now_ns / SECOND)
        first.stop(signal.SIGKILL)
    with service(second_home, settings) as second:
        later = stream.now_ns + 50 * SECOND
        owed = commitment_after(second, later, agents=[FREE], frameworks=[FRAMEWORK])
    assert owed == pytest.approx(0.25 * (1 - DELTA**100) * DELTA**50, rel=1e-9)


@pytest.mark.slow
def test_the_service_of_a_new_leader_loads_the_commitments_without_a_restart(
    server: Server, tmp_path: Path
) -> None:
    settings = f'{POLICY}[store]\nkind = "zookeeper"\nevery = 0.05\nhosts = "{server.hosts}"\n'
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
    with service(homes[0], settings) as first, service(homes[1], settings) as second:
        stream = run_up_a_debt(first, 100)
        wait_for(lambda: time_stored(server) == stream.now_ns / SECOND)
        stream.close()
        later = stream.now_ns + 50 * SECOND
        owed = commitment_after(second, later, agents=[FREE], frameworks=[FRAMEWORK])
        assert owed == pytest.approx(0.25 * (1 - DELTA**100) * DELTA**50, rel=1e-9)
        wait_for(lambda: scrape(second)["longshare_store_saves_total",] > 0)
        assert scrape(second)["longshare_store_degraded",] == 0.0
