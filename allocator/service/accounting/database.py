"""The accounting database, SQLite or PostgreSQL: opened by rule, written a batch at a time.

Its methods block, and are called from one thread at a time.
"""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine, Table, create_engine, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from allocator.fairness.metering import AccountCheckpoint, AccountState
from allocator.fairness.quantities import Quantities
from allocator.service.accounting import DAY, HOUR, TooMuch
from allocator.service.accounting.schema import (
    LAYOUTS,
    SUMS,
    metadata,
    orders,
    role_usage,
    state,
    usage,
)
from allocator.service.accounting.write_batch import Batch, Named, Ordered, Row
from allocator.service.store import StoreError, StoreUnavailable, file

APPLICATION_ID = 0x4C534841
"""In a SQLite file's header, by which `file` and we know it: LSHA."""
MOST_ORDERS = 100_000
"""Kept at the most; beyond, the oldest go."""
_BUSY = 5.0
"""Seconds to wait for somebody else who reads a SQLite file."""
_PATIENCE = 10
"""Seconds for a connection, or a statement, of PostgreSQL's."""
LONGEST_READING = 20.0
"""Seconds for somebody who reads a SQLite file."""
_STEPS = 10_000
"""Of SQLite's between two looks at the clock."""
_CANCELLED = "57014"
"""What PostgreSQL says of a statement that took too long."""
_DRIVER = "postgresql+psycopg"
_PARTS = 500
"""Rows in a statement."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


def located(where: str) -> Path | URL:
    """Return what is meant by a path, or by the URL of a PostgreSQL database.

    Raises:
        StoreError: it is a URL that is malformed.
    """
    if "://" not in where:
        return Path(where)
    try:
        return make_url(where).set(drivername=_DRIVER)
    except ArgumentError as error:
        raise StoreError(f"{where!r} is no URL such as postgresql://HOST/DATABASE") from error


class Database:
    """A database that is open.

    Args:
        where: The path of a SQLite file, or the URL of a PostgreSQL database.

    Raises:
        StoreUnavailable: it does not answer, or may not be used.
        StoreError: it is not ours, of another version, or in use by another service.
    """

    def __init__(self, where: Path | URL) -> None:
        self.name = where.render_as_string() if isinstance(where, URL) else str(where)
        self._path = where if isinstance(where, Path) else None
        self._named: dict[tuple[str, int], set[str]] = {}
        """Users and roles that have rows of their own, by table and day."""
        with self._explained():
            if isinstance(where, URL):
                self._engine = _postgresql(where)
                self._prepare()
            else:
                where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._held = file.claim(where, _make)
                try:
                    found = file.layout(where, APPLICATION_ID, LAYOUTS)
                    self._engine = _sqlite(where)
                    if found != LAYOUTS[-1]:
                        self._upgrade()
                except BaseException:
                    self._held.close()
                    raise

    def close(self) -> None:
        """Let go of it, so that another service can have it."""
        self._engine.dispose()
        if self._path is not None:
            self._held.close()

    def read(self, query: Callable[[Connection], T]) -> T:
        """Return what a query finds.

        Raises:
            StoreUnavailable: it does not answer.
            TooMuch: that takes too long, or is too long.
        """
        with self._explained(), self._engine.connect() as connection:
            if self._path is not None:
                _hurry(connection)
            try:
                return query(connection)
            except OperationalError as error:
                if not _took_too_long(error):
                    raise
                raise TooMuch("it takes too long; ask for a shorter time") from error

    def formers(
        self, writer: str
    ) -> tuple[float, dict[str, AccountCheckpoint], dict[str, AccountCheckpoint]]:
        """Return until when others have counted, and how users and roles stood then.

        Nothing, if the latest to write was this writer itself.

        Raises:
            StoreUnavailable: it does not answer.
        """
        found = self.read(_state)
        if found.get("writer") in (None, writer):
            return 0.0, {}, {}
        users, roles = (_decoded(found.get(key, "{}")) for key in ("standing", "standing_of_roles"))
        return _instant(found), users, roles

    def write(self, batch: Batch, most_users: int) -> bool:
        """Add a batch, once, however often this is tried; return whether all of it could be.

        Where another writer has counted the same time, what the batch counts is left out.

        Args:
            batch: What to add.
            most_users: Named in a day, and as many roles; others are added up under one name.

        Raises:
            StoreUnavailable: it does not answer; perhaps the batch has been added nevertheless.
            StoreError: it is no longer the one that was opened.
        """
        with self._explained(), self._writing() as connection:
            before = _state(connection, lock=True)
            ours = before.get("writer") == batch.writer
            if ours and int(before["number"]) >= batch.number:
                return True
            self._keep(connection, batch.orders)
            if not ours and _instant(before) > batch.since:
                return False
            users = self._names(connection, usage, "user", most_users)
            roles = self._names(connection, role_usage, "role", most_users)
            for name, rows in batch.rows(users, roles).items():
                table = metadata.tables[name]
                self._upsert(connection, table, rows, SUMS[table])
            if batch.formers:
                after = {
                    "writer": batch.writer,
                    "number": str(batch.number),
                    "until": repr(batch.until),
                    "standing": _encoded(batch.formers),
                    "standing_of_roles": _encoded(batch.role_formers),
                }
                rows = [{"key": key, "value": value} for key, value in after.items()]
                self._upsert(connection, state, rows, ())
            return True

    def keep(self, ordered: Sequence[Ordered]) -> None:
        """Add orders of operators, once, however often this is tried.

        Raises:
            StoreUnavailable: it does not answer; perhaps they have been added nevertheless.
            StoreError: it is no longer the one that was opened.
        """
        with self._explained(), self._writing() as connection:
            self._keep(connection, ordered)

    def roll_up(self, hours_until: int, days_until: int) -> None:
        """Make days of hours that are long ago, and forget days that are longer ago.

        Args:
            hours_until: The day, in seconds since the epoch, before which there are only days.
            days_until: The day before which there is nothing.

        Raises:
            StoreUnavailable: it does not answer.
        """
        with self._explained(), self._writing() as connection:
            for table, sums in SUMS.items():
                keys = [c for c in table.primary_key.columns if c.name not in ("seconds", "start")]
                old = (table.c.seconds == HOUR) & (table.c.start < hours_until)
                day = table.c.start - table.c.start % DAY
                days = (
                    select(
                        day.label("start"), *keys, *(func.sum(table.c[n]).label(n) for n in sums)
                    )
                    .where(old)
                    .group_by(day, *keys)
                )
                rows = [{"seconds": DAY, **row} for row in connection.execute(days).mappings()]
                self._upsert(connection, table, rows, sums)
                connection.execute(delete(table).where(old | (table.c.start < days_until)))
            connection.execute(delete(orders).where(orders.c.at < days_until))
        self._named = {key: names for key, names in self._named.items() if key[1] >= hours_until}

    def _keep(self, connection: Connection, ordered: Sequence[Ordered]) -> None:
        self._upsert(connection, orders, [each.row() for each in ordered], ())
        if ordered:
            _prune_orders(connection)

    def _prepare(self) -> None:
        """Make the tables of PostgreSQL's, as far as they are not there."""
        with self._engine.begin() as connection:
            state.create(connection, checkfirst=True)
            found = _state(connection).get("layout")
            if found not in (None, *map(str, LAYOUTS)):
                raise StoreError(
                    f"written in version {found} of the layout, this Longshare knows version "
                    f"{LAYOUTS[-1]}; use the release that wrote it, or a newer one"
                )
            metadata.create_all(connection)
            self._upsert(connection, state, [{"key": "layout", "value": str(LAYOUTS[-1])}], ())

    def _upgrade(self) -> None:
        """Make the tables that a SQLite file of a former version lacks."""
        with self._engine.begin() as connection:
            metadata.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {LAYOUTS[-1]}")

    def _names(self, connection: Connection, table: Table, key: str, most: int) -> Named:
        """Return what says whether somebody has rows of its own in an hour."""

        def named(start: int, name: str) -> bool:
            day = start - start % DAY
            names = self._named.get((table.name, day))
            if names is None:
                there = select(table.c[key]).distinct()
                there = there.where(table.c.start >= day, table.c.start < day + DAY)
                names = self._named[table.name, day] = set(connection.execute(there).scalars())
            if name not in names and len(names) < most:
                names.add(name)
            return name in names

        return named

    def _upsert(
        self, connection: Connection, table: Table, rows: Sequence[Row], sums: Sequence[str]
    ) -> None:
        """Insert rows; one that is there is added to in these columns, and else replaced."""
        if not rows:
            return
        dialect = sqlite if self._path is not None else postgresql
        keys = [column.name for column in table.primary_key.columns]
        insert = dialect.insert(table)
        changed = {
            column.name: table.c[column.name] + insert.excluded[column.name]
            if column.name in sums
            else insert.excluded[column.name]
            for column in table.columns
            if column.name not in keys
        }
        statement = insert.on_conflict_do_update(index_elements=keys, set_=changed)
        for first in range(0, len(rows), _PARTS):
            connection.execute(statement, list(rows[first : first + _PARTS]))

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._path is not None:
            with suppress(FileNotFoundError):
                if not file.same(self._path, self._held):
                    raise StoreError("has been replaced by another file; restart the service")
        with self._engine.begin() as connection:
            try:
                yield connection
            except BaseException:
                self._named.clear()  # what has been noted may never have been written
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what goes wrong into errors that name the database, and no password."""
        try:
            yield
        except StoreError as error:
            if self.name in str(error):
                raise
            raise type(error)(f"{self.name}: {error}") from error
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {error.strerror}") from error
        except ModuleNotFoundError as error:
            raise StoreError(
                f"{self.name}: needs {error.name}; pip install 'longshare[postgresql]'"
            ) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            cause = getattr(error, "orig", None) or error
            words = " ".join(str(cause).split()) or repr(cause)
            raise StoreUnavailable(f"{self.name}: {words}") from error


def _sqlite(path: Path) -> Engine:
    def connect() -> sqlite3.Connection:
        # Never makes a file: one that is gone is not to come back empty, and open to everybody.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=_BUSY, check_same_thread=False)

    return create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)


def _hurry(connection: Connection) -> None:
    """Have SQLite give up what takes too long."""
    until = time.monotonic() + LONGEST_READING
    driver: Any = connection.connection.dbapi_connection
    driver.set_progress_handler(lambda: time.monotonic() > until, _STEPS)


def _took_too_long(error: OperationalError) -> bool:
    told: Any = error.orig
    return getattr(told, "sqlite_errorname", None) == "SQLITE_INTERRUPT" or (
        getattr(told, "sqlstate", None) == _CANCELLED
    )


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables of a new SQLite file."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {LAYOUTS[-1]}")
    engine = create_engine("sqlite+pysqlite://", creator=lambda: connection, poolclass=StaticPool)
    metadata.create_all(engine)
    connection.commit()


def _postgresql(url: URL) -> Engine:
    return create_engine(
        url,
        pool_size=1,
        max_overflow=1,
        pool_pre_ping=True,
        connect_args={
            "client_encoding": "utf8",  # also where the database has SQL_ASCII
            "connect_timeout": _PATIENCE,
            "tcp_user_timeout": 1000 * _PATIENCE,
            "options": f"-c statement_timeout={1000 * _PATIENCE}",
        },
    )


def _state(connection: Connection, *, lock: bool = False) -> dict[str, str]:
    found = select(state.c.key, state.c.value)
    rows = connection.execute(found.with_for_update() if lock else found)
    return {row.key: row.value for row in rows}


def _prune_orders(connection: Connection) -> None:
    """Delete the oldest beyond bounds; who is refused often does not push out what was done."""
    for refused in (orders.c.refusal != "", orders.c.refusal == ""):
        newest = select(orders.c.at).where(refused).order_by(orders.c.at.desc())
        oldest = connection.execute(newest.offset(MOST_ORDERS).limit(1)).scalar()
        if oldest is not None:
            connection.execute(delete(orders).where(refused, orders.c.at <= oldest))


def _encoded(formers: Mapping[str, AccountCheckpoint]) -> str:
    return json.dumps(
        {
            user: (former.at, dict(stood.allocation.items()), *stood[1:])
            for user, former in formers.items()
            for stood in (former.stretch,)
        }
    )


def _decoded(text: str) -> dict[str, AccountCheckpoint]:
    """Read how users stood; what cannot be read costs the time since then, and no more."""
    try:
        plain: dict[str, Any] = json.loads(text)
        return {
            user: AccountCheckpoint(at, AccountState(Quantities(held), *rest))
            for user, (at, held, *rest) in plain.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        _log.warning("how users stood when accounts were written cannot be read", reason=str(error))
        return {}


def _instant(found: Mapping[str, str]) -> float:
    """Return until when somebody has counted; 0: nobody has, or it cannot be read."""
    try:
        until = float(found.get("until", "0"))
    except ValueError:
        return 0.0
    return until if math.isfinite(until) else 0.0
