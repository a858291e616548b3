"""Accounts are exact across restarts, failovers and database failures, and never delay offers."""

import asyncio
import math
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from pydantic import ValidationError
from sqlalchemy import Connection

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminStub
from allocator.fairness import policies
from allocator.fairness.metering import Meter
from allocator.service.accounting import DAY
from allocator.service.accounting import accountant as accountant_module
from allocator.service.accounting import queries as queries_module
from allocator.service.accounting.accountant import Accountant, running_accountant
from allocator.service.accounting.database import Database
from allocator.service.accounting.write_batch import Batch, OrderRecord
from allocator.service.config import AccountingSection, Config
from allocator.service.operators import accounts
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.accounting.postgres import Postgres, postgres, why_not
from tests.service.served import PATIENCE, Service, Stream, service, wait_for
from tests.service.show.test_metrics import scrape

T = TypeVar("T")
DELTA = 0.999
BARE = f'[policy]\nname = "sdrf"\ndelta = {DELTA}\n[[users.declared]]\nname = "b"\n'
SETTINGS = f"{BARE}[accounting]\nevery = 60\n"
EVERY = f"{BARE}[accounting]\nevery = 1\n"
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=False)
TOTAL = "cpus:4;mem:4096"
THREE = agent_call("s1", TOTAL, {"f1": resources("cpus:3;mem:1024", "a")})
TWO = agent_call("s1", TOTAL, {"f1": resources("cpus:2;mem:1024", "a")})
ALWAYS = admin.UsageRequest(since=0.0, until=1e12)


def usage(running: Service, request: admin.UsageRequest = ALWAYS) -> dict[str, admin.Usage]:
    with grpc.insecure_channel(running.address) as channel:
        return {row.user: row for row in AdminStub(channel).Usage(request).rows}


def boost(running: Service) -> admin.OrderReply:
    order = operator.Order(set_weight=operator.SetWeight(user="b", weight=4.0))
    with grpc.insecure_channel(running.address) as channel:
        reply: admin.OrderReply = AdminStub(channel).Order(order)
    return reply


def audit(running: Service) -> list[str]:
    """Return the kinds of the audited orders."""
    with grpc.insecure_channel(running.address) as channel:
        reply = AdminStub(channel).Audit(admin.AuditRequest(since=0.0, until=1e12))
    return [order.kind for order in reply.orders]


def cores(running: Service) -> float:
    """Return the core-seconds that user `a` has held."""
    rows = usage(running)
    return rows["a"].resources["cpus"].held if "a" in rows else 0.0


def tick(stream: Stream, seconds: float) -> None:
    stream.now_ns += round(seconds * SECOND)
    stream.tell(tick=contract.Tick())


def begin(running: Service, now_ns: int | None = None, agent: object = THREE) -> Stream:
    stream = Stream(running.address)
    if now_ns is not None:
        stream.now_ns = now_ns
    stream.open(agents=[agent], frameworks=[FRAMEWORK])
    return stream


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with postgres(Path(folder, "pg")) as running:
            yield running


@pytest.mark.slow
def test_usage_is_exact_and_counted_once_when_masters_fail_over(
    tmp_path: Path,
) -> None:
    with service(tmp_path, SETTINGS) as running:
        stream = begin(running)
        tick(stream, 100.5)
        row = usage(running)["a"]
        cpus = row.resources["cpus"]
        assert cpus.held == pytest.approx(3 * 100.5, rel=1e-12)
        assert cpus.entitled == pytest.approx(2 * 100.5, rel=1e-12)
        assert cpus.overused == pytest.approx(1 * 100.5, rel=1e-12)
        tau = -1 / math.log(DELTA)  # ∫ō(1 − e^(−t/τ)) dt
        assert cpus.owed == pytest.approx(100.5 - tau * (1 - DELTA**100.5), rel=1e-9)
        assert row.resources["mem"].held == pytest.approx(1024 * 100.5, rel=1e-12)
        assert (row.offers, row.wanted) == (0, 0.0)
        tick(stream, 10.0)
        assert cores(running) == pytest.approx(3 * 110.5, rel=1e-12)
        metrics = scrape(running)
        assert metrics["longshare_user_held_resource_seconds_total", "a", "cpus"] == 3 * 110.5
        stream.close()
        wait_for(lambda: not scrape(running)["longshare_session_connected",])
        second = Stream(running.address, "another")
        second.leading_since_ns = stream.now_ns
        second.now_ns = stream.now_ns - 20 * SECOND  # the clock of the second master is behind
        second.open(agents=[THREE], frameworks=[FRAMEWORK])
        tick(second, 15.0)
        assert cores(running) == pytest.approx(3 * 110.5)
        tick(second, 15.0)
        assert cores(running) == pytest.approx(3 * 120.5)
        second.resynchronise(agents=[THREE], frameworks=[FRAMEWORK])
        tick(second, 5.0)
        assert cores(running) == pytest.approx(3 * 125.5)


@pytest.mark.slow
def test_offers_declines_and_waiting_time_are_counted(tmp_path: Path) -> None:
    wants = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
    with service(tmp_path, SETTINGS) as running:
        stream = Stream(running.address)
        offered = stream.open(agents=[agent_call("s1", TOTAL)], frameworks=[wants])
        [offer] = offered.offers[0].offers
        stream.now_ns += 10 * SECOND  # the framework holds the whole offer for these 10 s
        stream.tell(
            recover_resources=contract.RecoverResources(
                framework_id="f1",
                agent_id="s1",
                resources=offer.resources,
                filters=mesos.Filters(refuse_seconds=1000.0).SerializeToString(),
            )
        )
        tick(stream, 30.0)
        row = usage(running)["a"]
    assert (row.offers, row.refused) == (1, 1)
    assert (row.wanted, row.waited) == (40.0, 30.0)
    assert row.resources["cpus"].held == 40.0


@pytest.mark.slow
def test_a_stop_and_a_crash_lose_no_usage_while_allocations_do_not_change(tmp_path: Path) -> None:
    with service(tmp_path, SETTINGS) as first:
        stream = begin(first)
        tick(stream, 50.0)
        assert first.stop(signal.SIGTERM) == 0
    with service(tmp_path, SETTINGS) as second:
        assert cores(second) == 150.0
        # Resources held both before and after the gap count as held during the gap.
        later = begin(second, stream.now_ns + 20 * SECOND, TWO)
        tick(later, 10.0)
        assert cores(second) == pytest.approx(150.0 + 2 * 20.0 + 2 * 10.0)
        with closing(sqlite3.connect(tmp_path / "accounting.sqlite")) as connection:
            capacity = "SELECT sum(amount) FROM capacity WHERE resource = 'cpus'"
            assert connection.execute(capacity).fetchone() == (4 * 80.0,)
        tick(later, 7.0)
        tries = 1
        while not boost(second).audited:  # repeated in case the disk is slow
            tries += 1
        second.stop(signal.SIGKILL)
    with service(tmp_path, SETTINGS) as third:
        kept = ["set_weight"] * tries
        assert audit(third) == kept, "acknowledged orders survive a crash"
        last = begin(third, later.now_ns + 3 * SECOND, TWO)
        tick(last, 10.0)
        assert cores(third) == pytest.approx(150.0 + 2 * 50.0)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_offers_continue_while_postgresql_is_dead_or_frozen(
    tmp_path: Path, server: Postgres
) -> None:
    settings = f'{EVERY}database = "{server.new_database()}"\n'
    with service(tmp_path, settings) as running:
        stream = begin(running)
        tick(stream, 10.0)
        assert cores(running) == 30.0
        server.kill()
        tick(stream, 10.0)
        wait_for(lambda: scrape(running)["longshare_accounting_degraded",] == 1)
        tick(stream, 10.0)
        server.start()
        wait_for(lambda: scrape(running)["longshare_accounting_degraded",] == 0)
        assert cores(running) == pytest.approx(90.0)
        server.stall(stalled=True)
        try:
            given_up = scrape(running)["longshare_accounting_failures_total",]
            for _ in range(20):
                tick(stream, 1.0)
            after = scrape(running)
            assert after["longshare_session_connected",] == 1
            assert after["longshare_accounting_failures_total",] - given_up < 10, (
                "ticks are answered without waiting for a write to time out"
            )
        finally:
            server.stall(stalled=False)
        wait_for(lambda: cores(running) == pytest.approx(150.0))


@pytest.mark.slow
def test_a_database_that_cannot_be_opened_affects_only_accounts(tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text("of others")
    with service(tmp_path, f'{EVERY}database = "{file}"\n') as running:
        stream = begin(running)
        tick(stream, 10.0)
        wait_for(lambda: scrape(running)["longshare_accounting_degraded",] == 1)
        with pytest.raises(grpc.RpcError) as error:
            usage(running)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert str(file) in running.log.read_text()
        reply = boost(running)
        assert reply.changes, "the order takes effect"
        assert not reply.audited
        assert reply.HasField("audited")
    assert file.read_text() == "of others"


class SlowDatabase(Database):
    """A database whose writes take as long as the test requires."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.done = threading.Event()

    def keep(self, ordered: Sequence[OrderRecord]) -> None:
        self.done.wait()
        super().keep(ordered)


def test_an_order_waits_for_a_slow_database_up_to_a_limit_and_is_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accountant_module, "ORDER_PATIENCE", 0.01)
    file, meter = tmp_path / "accounting.sqlite", Meter()
    engine = Engine(EngineSettings(policies.create("drf", {})), meter=meter)
    columns = ("", "socket", "unix:", "set_weight", "{}", "{}", "{}", "")

    async def order() -> tuple[bool, bool]:
        database = SlowDatabase(file)
        keeper = Accountant(engine, meter, lambda: database, AccountingSection())
        async with running_accountant(keeper):
            keeper.note(OrderRecord("1", 1.0, *columns))
            late = await keeper.keep()
            database.done.set()
            monkeypatch.setattr(accountant_module, "ORDER_PATIENCE", PATIENCE)
            keeper.note(OrderRecord("2", 2.0, *columns))
            return late, await keeper.keep()

    assert asyncio.run(order()) == (False, True)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [("1",), ("2",)]


class _Reads:
    """Queries of the accounts, the first of which runs until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.happened: list[str] = []
        """Names of the queries, in the order of their ends."""

    def first(self, _: object) -> bool:
        self.begun.set()
        self.go_on.wait()
        self.happened.append("first")
        return True

    def another(self, _: object) -> bool:
        self.happened.append("another")
        return True


def test_a_write_waits_for_the_running_read_but_not_for_queued_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("ORDER_PATIENCE", "PATIENCE"):  # a disk may be slow
        monkeypatch.setattr(accountant_module, patience, PATIENCE)
    meter = Meter()
    engine = Engine(EngineSettings(policies.create("drf", {})), meter=meter)
    reads = _Reads()
    happened = reads.happened

    class Noting(Database):
        def keep(self, ordered: Sequence[OrderRecord]) -> None:
            super().keep(ordered)
            happened.append("kept")

    async def crowd() -> None:
        database = Noting(tmp_path / "accounting.sqlite")
        keeper = Accountant(engine, meter, lambda: database, AccountingSection())
        async with running_accountant(keeper):
            reading = [asyncio.create_task(keeper.read(reads.first))]
            await asyncio.to_thread(reads.begun.wait)
            reading += [asyncio.create_task(keeper.read(reads.another)) for _ in range(3)]
            await asyncio.sleep(0)
            order = OrderRecord("1", 1.0, "", "socket", "unix:", "set_weight", "{}", "{}", "{}", "")
            keeper.note(order)
            keeping = asyncio.create_task(keeper.keep())
            for _ in range(50):  # more turns of the loop than a non-blocking call needs
                await asyncio.sleep(0)
            reads.go_on.set()
            assert await keeping
            assert all(await asyncio.gather(*reading))

    asyncio.run(crowd())
    assert happened == ["first", "kept", "another", "another", "another"]


def test_queries_wait_for_the_end_of_a_write_that_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accountant_module, "PATIENCE", PATIENCE)  # a disk may be slow
    meter = Meter()
    engine = Engine(EngineSettings(policies.create("drf", {})), meter=meter)
    reads = _Reads()
    happened = reads.happened

    class Noting(Database):
        def write(self, batch: Batch, most_users: int, pinned: Collection[str] = ()) -> bool:
            happened.append("written")
            return super().write(batch, most_users, pinned)

        def roll_up(self, hours_until: int, days_until: int) -> None:
            super().roll_up(hours_until, days_until)
            happened.append("rolled up")

    async def crowd() -> None:
        database = Noting(tmp_path / "accounting.sqlite")
        keeper = Accountant(engine, meter, lambda: database, AccountingSection())
        reading = [asyncio.create_task(keeper.read(reads.first))]
        await asyncio.to_thread(reads.begun.wait)
        writing = asyncio.create_task(keeper.write())
        reading += [asyncio.create_task(keeper.read(reads.another)) for _ in range(2)]
        for _ in range(50):  # more turns of the loop than a non-blocking call needs
            await asyncio.sleep(0)
        reads.go_on.set()
        assert await writing
        assert all(await asyncio.gather(*reading))
        async with running_accountant(keeper):
            pass

    asyncio.run(crowd())
    assert happened[:5] == ["first", "written", "rolled up", "another", "another"]


def test_long_answers_about_usage_are_read_in_turn_with_other_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries_module, "SLICE", 0.0)
    meter = Meter()
    engine = Engine(EngineSettings(policies.create("drf", {})), meter=meter)
    file = tmp_path / "accounting.sqlite"
    queries = list[object]()

    class Noting(Database):
        def read(self, query: Callable[[Connection], T]) -> T:
            queries.append(getattr(query, "__self__", None))
            return super().read(query)

    with closing(Database(file)), closing(sqlite3.connect(file)) as connection:
        for day in range(4):
            row = (DAY, day * DAY, "a", 1, 0, 0.0, 0.0)
            connection.execute("INSERT INTO activity VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()

    async def crowd() -> list[admin.UsageReply]:
        database = Noting(file)
        keeper = Accountant(engine, meter, lambda: database, AccountingSection())
        context: Any = None
        request = admin.UsageRequest(since=0.0, until=4 * DAY, by="day")
        async with running_accountant(keeper):
            return await asyncio.gather(*(accounts.usage(keeper, request, context) for _ in "12"))

    first, second = asyncio.run(crowd())
    assert [row.day for row in first.rows] == [row.day for row in second.rows]
    assert len(first.rows) == 4
    assert queries == queries[:2] * 4
    assert queries[0] is not queries[1]


def test_without_a_store_no_accounts_are_kept_unless_configured() -> None:
    def where(**sections: dict[str, object]) -> str | None:
        return Config.model_validate(sections).accounting_database()

    beside = where(store={"path": "/var/lib/longshare/commitments.sqlite"})
    assert beside == "/var/lib/longshare/accounting.sqlite"
    assert where(store={"kind": "none"}) is None
    assert where(accounting={"database": "none"}) is None
    assert where(store={"kind": "none"}, accounting={"database": "/a/b"}) == "/a/b"
    with pytest.raises(ValidationError, match="'mysql://a/b' is neither postgresql://"):
        where(accounting={"database": "mysql://a/b"})
