"""The accounting database counts usage exactly once and stays bounded, in SQLite and PostgreSQL."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import URL, Connection

from allocator.fairness.metering import AccountCheckpoint, AccountState, Integrals, UsageAccumulator
from allocator.fairness.quantities import Quantities
from allocator.service.accounting import DAY, HOUR, OTHERS, TooMuch
from allocator.service.accounting import database as database_module
from allocator.service.accounting import queries as queries_module
from allocator.service.accounting.database import Database, parse_location
from allocator.service.accounting.queries import (
    By,
    Hour,
    Usage,
    UsageQuery,
    Used,
    hourly_shares_of,
    hours,
    ordered,
)
from allocator.service.accounting.write_batch import Batch, OrderRecord
from allocator.service.scheduler_commands import Scheduler
from allocator.service.store import OtherScheduler, StoreError
from tests.service.accounting.postgres import Postgres, postgres, why_not

NOON = 1_700_000_000 // DAY * DAY + 12 * HOUR
Open = Callable[..., Database]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with postgres(Path(folder, "pg")) as running:
            yield running


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.skipif(bool(why_not()), reason=why_not())]),
    ]
)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return partial(Database, tmp_path / "accounting.sqlite")
    url: str = request.getfixturevalue("server").new_database()
    return partial(Database, parse_location(url))


def counted(hour: int, **held: float) -> UsageAccumulator:
    """Return the usage of users that held these cores, of 100, for a whole hour."""
    made = UsageAccumulator()
    for user, cores in held.items():
        integrals = made.usage(hour, user).resources.setdefault("cpus", Integrals())
        integrals.held = cores * 1000 * HOUR
        integrals.overused = integrals.held / 2
        integrals.owed = integrals.held / 4
        integrals.entitled = 50 * 1000 * HOUR
        made.users[hour][user].offers = 3
        made.users[hour][user].wanted = 10.0
    made.capacity[hour] = {"cpus": 100_000.0 * HOUR}
    return made


def batch(number: int, usage: UsageAccumulator, writer: str = "one", **times: float) -> Batch:
    since, until = times.get("since", NOON), times.get("until", NOON + 1.0)
    stretch = AccountState(
        Quantities({"cpus": 5000}), 0.5, {"cpus": 0.25}, {"cpus": 0.5}, active=True
    )
    roles = UsageAccumulator()
    for hour, tallies in usage.users.items():  # each user has a role that holds the same amount
        for user, tally in tallies.items():
            roles.usage(hour, f"r{user}").add(tally)
    alone = AccountState(Quantities({"cpus": 5000}), 0.0, {}, {}, active=False)
    return Batch(
        writer,
        number,
        since,
        until,
        usage,
        {"A": AccountCheckpoint(until, stretch)},
        roles=roles,
        role_checkpoints={"rA": AccountCheckpoint(until, alone)},
    )


def usages(database: Database, since: float, until: float, by: By) -> list[Usage]:
    query = UsageQuery(since, until, by)
    while not database.read(query.advance):
        pass
    return list(query.rows())


def held(
    database: Database, since: float = 0.0, until: float = 1e12, by: By = "user"
) -> dict[str, float]:
    users = usages(database, since, until, by)
    return {user.user: sum(used.held for used in user.used) / HOUR for user in users}


def test_written_usage_adds_up_and_survives_a_restart(connect: Open) -> None:
    with closing(connect()) as database:
        assert database.write(batch(1, counted(NOON // HOUR, A=8.0)), 100)
        assert database.write(batch(2, counted(NOON // HOUR, A=1.0, B=2.0)), 100)
    with closing(connect()) as database:
        assert held(database) == {"A": 9.0, "B": 2.0}
        [first, _] = database.read(lambda c: hours(c, 0.0, 1e12))
        # The cluster's capacity was counted twice for this hour, too.
        assert first == Hour(NOON, HOUR, "A", share=0.045, commitment=0.01125)
        [used, _] = usages(database, 0.0, 1e12, "day")
        assert (used.start, used.offers, used.wanted) == (NOON // DAY * DAY, 6, 20.0)
        assert [(amount.resource, amount.held / HOUR) for amount in used.used] == [("cpus", 9.0)]
        [_, role] = usages(database, 0.0, 1e12, "role")
        assert (role.user, role.offers, role.wanted) == ("rB", 3, None)
        assert role.used == (Used("cpus", 2.0 * HOUR),)


def test_users_without_a_row_in_a_complete_hour_held_nothing(
    connect: Open,
) -> None:
    with closing(connect()) as database:
        database.write(batch(1, counted(NOON // HOUR, A=8.0, B=1.0)), 100)
        database.write(batch(2, counted(NOON // HOUR + 1, A=8.0)), 100)
        database.write(batch(3, counted(NOON // HOUR + 24, A=8.0, C=1.0)), 1)  # C has no row
        hours = database.read(lambda c: hourly_shares_of(c, 0.0, 1e12, ["B"]))
        rows = [((hour.start - NOON) // HOUR, hour.user, hour.share) for hour in hours]
        assert rows == [(0, "B", 0.01), (1, "B", 0.0)]


def test_a_retried_batch_counts_once(connect: Open) -> None:
    with closing(connect()) as database:
        for _ in range(3):
            assert database.write(batch(1, counted(NOON // HOUR, A=8.0)), 100)
        assert held(database) == {"A": 8.0}


def test_two_services_never_count_the_same_period(connect: Open) -> None:
    with closing(connect()) as database:
        assert database.write(batch(1, counted(NOON // HOUR, A=8.0), until=NOON + 60.0), 100)
        second = batch(1, counted(NOON // HOUR, A=8.0), "two", since=NOON + 59.0, until=NOON + 90.0)
        assert not database.write(second, 100)
        later = batch(2, counted(NOON // HOUR, A=1.0), "two", since=NOON + 60.0, until=NOON + 90.0)
        assert database.write(later, 100)
        assert held(database) == {"A": 9.0}


def test_another_service_reads_the_last_account_checkpoints(connect: Open) -> None:
    written = batch(1, counted(NOON // HOUR, A=8.0))
    with closing(connect()) as database:
        assert database.last_checkpoints("two") == (0.0, {}, {})
        database.write(written, 100)
        assert database.last_checkpoints("one") == (0.0, {}, {})
        standing = (written.until, written.checkpoints, written.role_checkpoints)
        assert database.last_checkpoints("two") == standing


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("standing", "{"),
        ("standing", "[]"),
        ("standing", '{"a": 1}'),
        ("standing", "[" * 100_000),
        ("until", "soon"),
        ("until", "inf"),
    ],
)
def test_unreadable_state_rows_do_not_block_writes(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "accounting.sqlite"
    with closing(Database(path)) as database:
        database.write(batch(1, counted(NOON // HOUR, A=8.0), "two"), 100)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE state SET value = ? WHERE key = ?", (value, key))
    with closing(Database(path)) as database:
        assert key == "until" or database.last_checkpoints("one")[1] == {}
        later = batch(1, counted(NOON // HOUR, A=1.0), since=NOON + 60.0, until=NOON + 90.0)
        assert database.write(later, 100)
        assert held(database) == {"A": 9.0}


def test_hours_are_rolled_up_into_days_and_old_days_are_deleted(connect: Open) -> None:
    day = NOON // DAY * DAY
    with closing(connect()) as database:
        for number, hour in enumerate((0, 5, 24), start=1):
            database.write(batch(number, counted(day // HOUR + hour, A=1.0)), 100)
        database.roll_up(day + DAY, 0)
        database.roll_up(day + DAY, 0)
        rows = database.read(lambda c: hours(c, 0.0, 1e12))
        assert [(row.start, row.seconds) for row in rows] == [(day, DAY), (day + DAY, HOUR)]
        assert [row.share for row in rows] == [0.01, 0.01]
        assert held(database) == {"A": 3.0}
        database.write(batch(4, counted(day // HOUR, A=1.0)), 100)  # a late batch
        database.roll_up(day + DAY, 0)
        assert held(database, until=day + DAY) == {"A": 3.0}
        assert held(database, until=day + DAY, by="role") == {"rA": 3.0}
        database.roll_up(day + 2 * DAY, day + DAY)
        assert held(database) == {"A": 1.0}


def test_users_beyond_the_limit_are_summed_under_a_common_name(connect: Open) -> None:
    many = {f"user-{number}": float(number) for number in range(1, 11)}
    with closing(connect()) as database:
        database.write(batch(1, counted(NOON // HOUR, **many)), 3)
        largest = {"user-10": 10.0, "user-9": 9.0, "user-8": 8.0}
        assert held(database) == {OTHERS: 28.0, **largest}
        assert held(database, by="role")[OTHERS] == 28.0
    with closing(connect()) as database:  # a named user stays named all day
        database.write(batch(2, counted(NOON // HOUR + 1, **many)), 3)
        assert held(database)[OTHERS] == 56.0
        database.write(batch(3, counted(NOON // HOUR + 24, new=5.0)), 3)
        assert held(database)["new"] == 5.0


def wanting(hour: int, *users: str) -> UsageAccumulator:
    """Return users that only wanted offers in an hour."""
    made = counted(hour, **dict.fromkeys(users, 0.0))
    for user in users:
        made.users[hour][user].offers = 0
    return made


def wanted(database: Database) -> dict[str, float | None]:
    users = usages(database, 0.0, 1e12, "user")
    return {user.user: user.wanted for user in users}


def test_names_that_only_want_offers_keep_no_user_out_of_the_accounts(connect: Open) -> None:
    hour = NOON // HOUR
    idle = [f"name-{number}" for number in range(9)]
    with closing(connect()) as database:
        database.write(batch(1, wanting(hour, *idle)), 3)
        assert wanted(database) == {OTHERS: 60.0, "name-6": 10.0, "name-7": 10.0, "name-8": 10.0}
        database.write(batch(2, counted(hour, honest=40.0, thief=60.0)), 3)
        assert held(database) == {OTHERS: 0.0, "honest": 40.0, "thief": 60.0, "name-8": 0.0}
        assert wanted(database)[OTHERS] == 80.0  # nothing of the replaced names is lost
        assert held(database, by="role")["rhonest"] == 40.0
    with closing(connect()) as database:  # and after a restart
        database.write(batch(3, wanting(hour, *idle)), 3)
        database.write(batch(4, counted(hour, late=1.0)), 3)
        assert held(database) == {OTHERS: 0.0, "honest": 40.0, "thief": 60.0, "late": 1.0}


def test_a_user_replaces_another_only_with_more_than_twice_its_use(connect: Open) -> None:
    hour = NOON // HOUR
    with closing(connect()) as database:
        database.write(batch(1, counted(hour, A=8.0, B=4.0)), 2)
        database.write(batch(2, counted(hour, C=8.0)), 2)
        assert held(database) == {"A": 8.0, "B": 4.0, OTHERS: 8.0}
        database.write(batch(3, counted(hour, C=1.0)), 2)  # 9 in all
        assert held(database) == {"A": 8.0, OTHERS: 12.0, "C": 1.0}
    with closing(connect()) as database:  # the use before a restart counts
        database.write(batch(4, counted(hour, D=0.001), until=NOON + HOUR), 2)
        database.write(batch(5, counted(hour, E=3.0), until=NOON + HOUR), 2)
        assert held(database) == {"A": 8.0, OTHERS: 13.001, "E": 3.0}


def test_declared_users_always_have_rows_of_their_own(connect: Open) -> None:
    hour = NOON // HOUR
    with closing(connect()) as database:
        database.write(batch(1, counted(hour, A=8.0, B=4.0, known=0.5)), 2, {"known"})
        assert held(database) == {"A": 8.0, OTHERS: 4.0, "known": 0.5}
        database.write(batch(2, counted(hour, C=90.0)), 2, {"known"})
        assert held(database) == {OTHERS: 12.0, "C": 90.0, "known": 0.5}


def test_hostile_user_names_do_not_break_a_write(connect: Open) -> None:
    hostile = "a\0b'; DROP TABLE usage; --\N{PILE OF POO}"
    with closing(connect()) as database:
        assert database.write(batch(1, counted(NOON // HOUR, **{hostile: 1.0})), 100)
        assert list(held(database)) == [hostile.replace("\0", "\N{SYMBOL FOR NULL}")]


def test_orders_are_stored_together_with_usage(connect: Open) -> None:
    order = OrderRecord(
        "x1",
        NOON + 0.5,
        "alice",
        "certificate",
        "ipv4:1.2.3.4:5",
        "set_weight",
        "{}",
        "{}",
        "{}",
        "",
    )
    made = batch(1, UsageAccumulator())
    made.orders.append(order)
    with closing(connect()) as database:
        database.write(made, 100)
        database.write(made, 100)
        assert database.read(lambda c: ordered(c, NOON, NOON + 1, refused=False)) == (
            [order],
            False,
        )
        assert database.read(lambda c: ordered(c, NOON + 1, NOON + 2, refused=False)) == ([], False)


def test_most_orders_are_stored_without_reading_all_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "MOST_ORDERS", 2)
    monkeypatch.setattr(database_module, "PRUNE_AFTER", 10)
    numbers = list[int]()
    with closing(Database(tmp_path / "accounting.sqlite")) as database:
        for number in range(24):
            columns = ("ann", "certificate", "ipv4:1", "set_weight", "{}", "{}", "{}", "")
            database.keep([OrderRecord(str(number), NOON + number, *columns)])
            kept, _ = database.read(lambda c: ordered(c, 0.0, 1e12, refused=False))
            numbers.append(len(kept))
    assert numbers == [1, *range(2, 12), 2, *range(3, 13), 2, 3]


@pytest.mark.parametrize(("by", "parts"), [("user", 7), ("day", 21), ("role", 7)])
def test_usage_is_read_some_days_at_a_time(
    connect: Open, by: By, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries_module, "SLICE", 0.0)
    day = NOON // DAY * DAY
    with closing(connect()) as database:
        for number in range(20):
            usage = counted((day + number * DAY) // HOUR, A=1.0, **{f"B{number % 2}": 2.0})
            database.write(batch(number + 1, usage), 100)
        database.roll_up(day + 17 * DAY, 0)  # 17 days with one row, 3 days with hourly rows
        query, advances = UsageQuery(0.0, 1e12, by), 1
        while not database.read(query.advance):
            advances += 1
        assert advances == parts  # the last part has no rows
        rows = [(row.start, row.user, row.used[0].held / HOUR) for row in query.rows()]
    if by == "day":
        assert [row for row in rows if row[1] == "A"] == [
            (day + number * DAY, "A", 1.0) for number in range(20)
        ]
        assert rows == sorted(rows)
        assert len(rows) == 40
    else:
        prefix = "r" if by == "role" else ""
        assert rows == [(None, f"{prefix}{name}", 20.0) for name in ("A", "B0", "B1")]


def test_an_answer_about_usage_has_a_limited_length_of_names(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(connect()) as database:
        database.write(batch(1, counted(NOON // HOUR, Ann=1.0, Ben=1.0)), 100)
        monkeypatch.setattr(queries_module, "MOST_NAMES", 6)
        assert len(usages(database, 0.0, 1e12, "user")) == 2
        monkeypatch.setattr(queries_module, "MOST_NAMES", 5)
        with pytest.raises(TooMuch, match="names of more than 5 characters; ask for a shorter"):
            usages(database, 0.0, 1e12, "user")


def test_long_reads_are_cancelled(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "LONGEST_READING", 0.0)

    def endless(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET statement_timeout = 1")
        numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        connection.exec_driver_sql(f"{numbers} SELECT count(*) FROM n")

    with closing(connect()) as database:
        with pytest.raises(TooMuch, match="takes too long; ask for a shorter time"):
            database.read(endless)
        assert database.write(batch(1, counted(NOON // HOUR, A=1.0)), 100), "writes still work"


def test_a_file_is_private_and_used_by_one_service_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "state" / "accounting.sqlite"
    with closing(Database(path)):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(StoreError, match="in use by another service"):
            Database(path)
    with closing(Database(path)):
        pass


@pytest.mark.parametrize(("first", "second"), [("mesos", "slurm"), ("slurm", "mesos")])
def test_the_accounts_of_another_scheduler_are_refused(
    connect: Open, first: Scheduler, second: Scheduler
) -> None:
    with closing(connect()) as database:  # as of a former release, without a scheduler
        database.write(batch(1, counted(NOON // HOUR, A=8.0)), 100)
    for _ in range(2):
        with closing(connect(first)) as database:
            assert held(database) == {"A": 8.0}
    with pytest.raises(OtherScheduler, match=f"accounts of {first.capitalize()}'s users; .* set"):
        connect(second)
    with closing(connect(first)) as database:
        assert held(database) == {"A": 8.0}


@pytest.mark.parametrize("content", [b"", b"not a database\n" * 20], ids=["empty", "text"])
def test_a_file_of_another_program_is_left_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a SQLite file"):
        Database(path)
    assert path.read_bytes() == content


def test_a_database_without_role_tables_is_read_and_upgraded(
    connect: Open, request: pytest.FixtureRequest
) -> None:
    with closing(connect()) as database:
        database.write(batch(1, counted(NOON // HOUR, A=8.0)), 100)
        with database._transaction() as connection:  # the first version of the tables
            for table in ("role_usage", "role_activity"):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            connection.exec_driver_sql("DELETE FROM state WHERE key = 'standing_of_roles'")
            if request.node.callspec.params["connect"] == "sqlite":
                connection.exec_driver_sql("PRAGMA user_version = 1")
            else:
                connection.exec_driver_sql("UPDATE state SET value = '1' WHERE key = 'layout'")
    for number in (2, 3):
        with closing(connect()) as database:
            assert set(database.last_checkpoints("two")[2]) == ({"rA"} if number == 3 else set())
            database.write(batch(number, counted(NOON // HOUR, A=1.0)), 100)
    with closing(connect()) as database:
        assert held(database) == {"A": 10.0}
        assert held(database, by="role") == {"rA": 2.0}


def test_a_database_of_another_program_or_release_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreError, match="of another program"):
        Database(path)
    ours = tmp_path / "accounting.sqlite"
    with closing(Database(ours)):
        pass
    with closing(sqlite3.connect(ours)) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(StoreError, match="written in version 9"):
        Database(ours)


@pytest.mark.parametrize(
    "location", ["postgresql://user:secret@host/a", "postgresql://host/a?password=secret&x=1"]
)
def test_the_name_of_a_database_has_no_password(location: str) -> None:
    url = parse_location(location)
    assert isinstance(url, URL)
    assert "secret" not in database_module._without_password(url)
