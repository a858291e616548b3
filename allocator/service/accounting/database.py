"""The accounting database in SQLite or PostgreSQL: checked when opened, and written in batches.

All methods block. Callers use the database from one thread at a time.
"""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    create_engine,
    delete,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from allocator.fairness.metering import AccountCheckpoint, AccountState
from allocator.fairness.quantities import Quantities
from allocator.service.accounting import DAY, HOUR, OTHERS, TooMuch
from allocator.service.accounting.naming import DayNames, use_by_day
from allocator.service.accounting.schema import (
    LAYOUTS,
    SUMS,
    activity,
    capacity,
    metadata,
    orders,
    role_activity,
    role_usage,
    state,
    usage,
)
from allocator.service.accounting.write_batch import Batch, HasOwnRows, OrderRecord, Row
from allocator.service.scheduler_commands import COMMAND, Scheduler
from allocator.service.store import OtherScheduler, StoreError, StoreUnavailable, file

APPLICATION_ID = 0x4C534841
"""SQLite's application_id of the file: the letters LSHA."""
MOST_ORDERS = 100_000
"""Maximum number of stored commands, for executed and for refused commands separately; the oldest
are deleted."""
PRUNE_AFTER = 100
"""Number of added commands after which the oldest are deleted. The deletion reads all commands,
which took 0.1 s for 40,000 of maximum length."""
_BUSY = 5.0
"""Seconds to wait while another process reads a SQLite file."""
_PATIENCE = 10
"""Time limit for a connection to PostgreSQL and for each statement, in seconds."""
LONGEST_READING = 20.0
"""Time limit for a query of a SQLite file, in seconds."""
_STEPS = 10_000
"""SQLite instructions between two checks of `LONGEST_READING`."""
_CANCELLED = "57014"
"""PostgreSQL's error code for a statement that exceeded its time limit."""
_DRIVER = "postgresql+psycopg"
"""SQLAlchemy's name of the PostgreSQL driver."""
_PARTS = 500
"""Maximum number of rows in one SQL statement."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


def parse_location(location: str) -> Path | URL:
    """Return the path of a SQLite file, or the parsed URL of a PostgreSQL database.

    Args:
        location: The configured path or URL.

    Raises:
        StoreError: the URL is malformed.
    """
    if "://" not in location:
        return Path(location)
    try:
        return make_url(location).set(drivername=_DRIVER)
    except ArgumentError as error:
        raise StoreError(f"{location!r} is not a URL such as postgresql://HOST/DATABASE") from error


def _without_password(url: URL) -> str:
    """Return a database's URL without the password, which its query may contain."""
    return url.difference_update_query(["password"]).render_as_string()


class Database:
    """An open accounting database.

    Args:
        where: The path of a SQLite file, or the URL of a PostgreSQL database.
        scheduler: The scheduler of this service, which the database states from now on; None to
            open the database of any scheduler.

    Raises:
        StoreUnavailable: the database does not answer or may not be used.
        StoreError: the database is foreign, of another version, or in use by another service.
        OtherScheduler: the database contains accounts of another scheduler's users.
    """

    def __init__(self, where: Path | URL, scheduler: Scheduler | None = None) -> None:
        self.name = _without_password(where) if isinstance(where, URL) else str(where)
        self._path = where if isinstance(where, Path) else None
        self._named: dict[tuple[str, int], DayNames] = {}
        """Users and roles with rows of their own, by table and day."""
        self._unpruned = PRUNE_AFTER
        """Number of commands that were added since the latest deletion of the oldest commands."""
        with self._explained_errors(), ExitStack() as stack:
            if isinstance(where, URL):
                self._engine = _postgresql(where)
                stack.callback(self._engine.dispose)
                self._prepare()
            else:
                where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._locked_file = file.claim(where, _create_tables)
                stack.callback(self._locked_file.close)
                version = file.layout_version(where, APPLICATION_ID, LAYOUTS)
                self._engine = _sqlite(where)
                stack.callback(self._engine.dispose)
                if version != LAYOUTS[-1]:
                    self._upgrade()
            self._require_scheduler(scheduler)
            stack.pop_all()

    def close(self) -> None:
        """Close the database, and release its lock so that another service can open it."""
        self._engine.dispose()
        if self._path is not None:
            self._locked_file.close()

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query, and return its result.

        Args:
            query: Function that receives a connection and returns the result.

        Raises:
            StoreUnavailable: the database does not answer.
            TooMuch: the query takes too long, or its result is too long.
        """
        with self._explained_errors(), self._engine.connect() as connection:
            if self._path is not None:
                _limit_time(connection)
            try:
                return query(connection)
            except OperationalError as error:
                if not _took_too_long(error):
                    raise
                raise TooMuch("the answer takes too long; ask for a shorter time") from error

    def last_checkpoints(
        self, writer: str
    ) -> tuple[float, dict[str, AccountCheckpoint], dict[str, AccountCheckpoint]]:
        """Return the state of accounts at another service's last write, to continue from there.

        Args:
            writer: Identifier of this service's process.

        Returns:
            The time of the write in seconds since the epoch, and the checkpoints of users and of
                roles. The time is 0 and the checkpoints are empty if this process itself wrote
                last, or if nothing is written yet.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        stored = self.read(_read_state)
        if stored.get("writer") in (None, writer):
            return 0.0, {}, {}
        users, roles = (
            _decode_checkpoints(stored.get(key, "{}")) for key in ("standing", "standing_of_roles")
        )
        return _accounted_until(stored), users, roles

    def write(self, batch: Batch, most_users: int, pinned: Collection[str] = ()) -> bool:
        """Add a batch exactly once, even if called repeatedly; return whether its usage was added.

        If another writer has accounted for the same time, only the batch's commands are added.

        Args:
            batch: The batch to add.
            most_users: Maximum number of users per day with rows of their own, and of roles.
                Further users are summed up under one name.
            pinned: Users that always have rows of their own.

        Raises:
            StoreUnavailable: the database does not answer; the batch may have been added
                nevertheless.
            StoreError: the database is no longer the one that was opened.
        """
        with self._explained_errors(), self._transaction() as connection:
            stored_state = _read_state(connection, lock=True)
            is_ours = stored_state.get("writer") == batch.writer
            if is_ours and int(stored_state["number"]) >= batch.number:
                return True
            self._add_orders(connection, batch.orders)
            if not is_ours and _accounted_until(stored_state) > batch.since:
                return False
            users_use, roles_use = use_by_day(batch)
            users = self._name_predicate(
                connection, (usage, activity), users_use, most_users, pinned
            )
            roles = self._name_predicate(
                connection, (role_usage, role_activity), roles_use, most_users
            )
            for name, rows in batch.rows(users, roles).items():
                table = metadata.tables[name]
                self._upsert(connection, table, rows, SUMS[table])
            if batch.checkpoints:
                new_state = {
                    "writer": batch.writer,
                    "number": str(batch.number),
                    "until": repr(batch.until),
                    "standing": _encode_checkpoints(batch.checkpoints),
                    "standing_of_roles": _encode_checkpoints(batch.role_checkpoints),
                }
                rows = [{"key": key, "value": value} for key, value in new_state.items()]
                self._upsert(connection, state, rows, ())
            return True

    def keep(self, ordered: Sequence[OrderRecord]) -> None:
        """Add operator commands exactly once, even if called repeatedly with the same commands.

        Raises:
            StoreUnavailable: the database does not answer; the commands may have been added
                nevertheless.
            StoreError: the database is no longer the one that was opened.
        """
        with self._explained_errors(), self._transaction() as connection:
            self._add_orders(connection, ordered)

    def roll_up(self, hours_until: int, days_until: int) -> None:
        """Replace old hourly rows by daily sums, and delete older rows.

        Args:
            hours_until: Time before which only daily sums are kept, in seconds since the epoch.
            days_until: Time before which nothing is kept, in seconds since the epoch.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        with self._explained_errors(), self._transaction() as connection:
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

    def _add_orders(self, connection: Connection, ordered: Sequence[OrderRecord]) -> None:
        """Insert operator commands; sometimes delete the oldest beyond `MOST_ORDERS`."""
        self._upsert(connection, orders, [order.row() for order in ordered], ())
        self._unpruned += len(ordered)
        if ordered and self._unpruned > PRUNE_AFTER:
            _prune_orders(connection)
            self._unpruned = 0

    def _prepare(self) -> None:
        """Create the tables that a PostgreSQL database lacks; called when the database is opened.

        Raises:
            StoreError: the tables have an unknown version.
        """
        with self._engine.begin() as connection:
            state.create(connection, checkfirst=True)
            version = _read_state(connection).get("layout")
            if version not in (None, *map(str, LAYOUTS)):
                raise StoreError(
                    f"written in version {version} of the layout, this Longshare knows version "
                    f"{LAYOUTS[-1]}; use the release that wrote it, or a newer one"
                )
            metadata.create_all(connection)
            self._upsert(connection, state, [{"key": "layout", "value": str(LAYOUTS[-1])}], ())

    def _upgrade(self) -> None:
        """Create the tables that are missing in a SQLite file of an older release."""
        with self._engine.begin() as connection:
            metadata.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {LAYOUTS[-1]}")

    def _require_scheduler(self, own: Scheduler | None) -> None:
        """Check that the database belongs to this service's scheduler, and store the scheduler.

        A database without a statement, of a release before 1.1, belongs to any scheduler.

        Raises:
            OtherScheduler: the database belongs to another scheduler.
        """
        if own is None:
            return
        with self._engine.begin() as connection:
            stated = _read_state(connection).get("scheduler", own)
            if stated != own:
                raise OtherScheduler(
                    f"contains accounts of {stated.capitalize()}'s users; `{COMMAND[own]}` needs "
                    "accounts of its own: set another accounting.database"
                )
            self._upsert(connection, state, [{"key": "scheduler", "value": own}], ())

    def _name_predicate(
        self,
        connection: Connection,
        tables: tuple[Table, Table],
        use: Mapping[int, Mapping[str, float]],
        most: int,
        pinned: Collection[str] = (),
    ) -> HasOwnRows:
        """Return a function that says whether a user or role has rows of its own in an hour.

        The first `most` names of a day get rows of their own. A later name displaces a name with
        less use, whose rows are added to the sum of other names. The use is the name's share of the
        cluster plus its commitment, times hours (see `use_by_day`).

        Args:
            connection: Connection to the database.
            tables: The tables of usage and activity, of users or of roles.
            use: Use in the batch to write: start of the day → name → use.
            most: Maximum number of names per day.
            pinned: Names that always have rows.
        """
        for day, uses in use.items():
            names = self._named.get((tables[0].name, day))
            if names is None:
                names = self._named[tables[0].name, day] = _stored_names(connection, tables, day)
            replaced = names.add(uses, most, pinned)
            for first in range(0, len(replaced), _PARTS):
                for table in tables:
                    self._sum_up(connection, table, day, replaced[first : first + _PARTS])

        def named(start: int, name: str) -> bool:
            return name in self._named[tables[0].name, start - start % DAY].named

        return named

    def _sum_up(self, connection: Connection, table: Table, day: int, names: Sequence[str]) -> None:
        """Move one day's rows of some users or roles in a table into the rows of `OTHERS`.

        `OTHERS` is the name under which further users or roles are summed up.

        Args:
            connection: Connection to the database.
            table: The table.
            day: Start of the day, in seconds since the epoch.
            names: Users or roles that lose their rows.
        """
        name = _name_column(table)
        selected = _of_day(table, day) & name.in_(names)
        keys = [c for c in table.primary_key.columns if c.name != name.name]
        sums = SUMS[table]
        query = select(*keys, *(func.sum(table.c[n]).label(n) for n in sums))
        rows = connection.execute(query.where(selected).group_by(*keys)).mappings()
        others = [{name.name: OTHERS, **row} for row in rows]
        connection.execute(delete(table).where(selected))
        self._upsert(connection, table, others, sums)

    def _upsert(
        self, connection: Connection, table: Table, rows: Sequence[Row], sums: Sequence[str]
    ) -> None:
        """Insert rows; where a row with the same primary key exists, update it.

        Args:
            connection: Connection to the database.
            table: The table.
            rows: The rows.
            sums: Columns to which an update adds; an update replaces all other columns.
        """
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
    def _transaction(self) -> Iterator[Connection]:
        """Run the block in a transaction that may write; an exception rolls it back.

        Raises:
            StoreError: another file has replaced the opened SQLite file.
        """
        if self._path is not None:
            with suppress(FileNotFoundError):
                if not file.same(self._path, self._locked_file):
                    raise StoreError("has been replaced by another file; restart the service")
        with self._engine.begin() as connection:
            try:
                yield connection
            except BaseException:
                self._named.clear()  # the names noted may never have been written
                raise

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Convert errors to StoreErrors that name the database without its password."""
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
            message = " ".join(str(cause).split()) or repr(cause)
            raise StoreUnavailable(f"{self.name}: {message}") from error


def _sqlite(path: Path) -> Engine:
    """Create SQLAlchemy's engine for a SQLite file."""

    def connect() -> sqlite3.Connection:
        # The mode never creates a file: a deleted file must not reappear empty and world-readable.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=_BUSY, check_same_thread=False)

    return create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)


def _limit_time(connection: Connection) -> None:
    """Make SQLite interrupt this connection's queries after `LONGEST_READING` seconds."""
    until = time.monotonic() + LONGEST_READING
    driver: Any = connection.connection.dbapi_connection
    driver.set_progress_handler(lambda: time.monotonic() > until, _STEPS)


def _took_too_long(error: OperationalError) -> bool:
    """Return whether a database error means that a query exceeded its time limit."""
    cause: Any = error.orig
    return getattr(cause, "sqlite_errorname", None) == "SQLITE_INTERRUPT" or (
        getattr(cause, "sqlstate", None) == _CANCELLED
    )


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new SQLite file."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {LAYOUTS[-1]}")
    engine = create_engine("sqlite+pysqlite://", creator=lambda: connection, poolclass=StaticPool)
    metadata.create_all(engine)
    connection.commit()


def _postgresql(url: URL) -> Engine:
    """Create SQLAlchemy's engine for PostgreSQL."""
    return create_engine(
        url,
        pool_size=1,
        max_overflow=1,
        pool_pre_ping=True,
        connect_args={
            "client_encoding": "utf8",  # even if the database has SQL_ASCII
            "connect_timeout": _PATIENCE,
            "tcp_user_timeout": 1000 * _PATIENCE,
            "options": f"-c statement_timeout={1000 * _PATIENCE}",
        },
    )


def _read_state(connection: Connection, *, lock: bool = False) -> dict[str, str]:
    """Return the keys and values of the table `state`, which holds the progress of accounting.

    Args:
        connection: Connection to the database.
        lock: Whether to lock the rows until the transaction ends.
    """
    query = select(state.c.key, state.c.value)
    rows = connection.execute(query.with_for_update() if lock else query)
    return {row.key: row.value for row in rows}


def _name_column(table: Table) -> Column[Any]:
    """Return the column with the names: of users or of roles, depending on the table."""
    return table.c.user if "user" in table.c else table.c.role


def _of_day(table: Table, day: int) -> ColumnElement[bool]:
    """Return the SQL condition that a row of a table covers an hour on one day.

    Args:
        table: The table.
        day: Start of the day, in seconds since the epoch.
    """
    of_day = and_(table.c.start >= day, table.c.start < day + DAY)
    return and_(table.c.seconds.in_((HOUR, DAY)), of_day)  # the index begins with the seconds


def _stored_names(connection: Connection, tables: tuple[Table, Table], day: int) -> DayNames:
    """Read which users or roles have rows of their own on a day, and how much each used.

    The use of a name is the sum over the hours of the day. In each hour, it is the largest sum of
    share and commitment over all resources (see `use_by_day`).

    Args:
        connection: Connection to the database.
        tables: The tables of usage and activity, of users or of roles.
        day: Start of the day, in seconds since the epoch.
    """
    amounts, acts = tables
    names = DayNames()
    own = select(_name_column(acts)).distinct()
    names.named.update(connection.execute(own.where(_of_day(acts, day))).scalars())
    names.named.discard(OTHERS)
    used = amounts.c.held + amounts.c.owed if "owed" in amounts.c else amounts.c.held
    same = and_(
        capacity.c.seconds == amounts.c.seconds,
        capacity.c.start == amounts.c.start,
        capacity.c.resource == amounts.c.resource,
    )
    name = _name_column(amounts)
    query = (
        select(name, amounts.c.start, func.max(used / capacity.c.amount))
        .join_from(amounts, capacity, same)
        .where(_of_day(amounts, day), capacity.c.amount > 0.0)
        .group_by(name, amounts.c.start)
    )
    for user, _start, share in connection.execute(query):
        names.use[user] = names.use.get(user, 0.0) + share
    names.use.pop(OTHERS, None)
    return names


def _prune_orders(connection: Connection) -> None:
    """Delete the oldest stored commands beyond `MOST_ORDERS`.

    Executed and refused commands are counted separately, so refused commands never displace
    executed ones.
    """
    for refused in (orders.c.refusal != "", orders.c.refusal == ""):
        newest = select(orders.c.at).where(refused).order_by(orders.c.at.desc())
        oldest = connection.execute(newest.offset(MOST_ORDERS).limit(1)).scalar()
        if oldest is not None:
            connection.execute(delete(orders).where(refused, orders.c.at <= oldest))


def _encode_checkpoints(checkpoints: Mapping[str, AccountCheckpoint]) -> str:
    """Encode the state of accounts at the latest write as JSON for the table `state`.

    Args:
        checkpoints: Each user's or role's checkpoint: a time, and the account's state at this time.
    """
    return json.dumps(
        {
            user: (checkpoint.at, dict(account.allocation.items()), *account[1:])
            for user, checkpoint in checkpoints.items()
            for account in (checkpoint.state,)
        }
    )


def _decode_checkpoints(text: str) -> dict[str, AccountCheckpoint]:
    """Decode the accounts' state at the latest write, from the table `state`.

    If the text is invalid, the result is empty. Usage since the latest write is then not accounted.

    Args:
        text: JSON, as returned by `_encode_checkpoints`.
    """
    try:
        content: dict[str, Any] = json.loads(text)
        return {
            user: AccountCheckpoint(at, AccountState(Quantities(held), *fields))
            for user, (at, held, *fields) in content.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        _log.warning("stored account checkpoints cannot be read", reason=str(error))
        return {}


def _accounted_until(stored: Mapping[str, str]) -> float:
    """Return the time up to which usage is accounted, in seconds since the epoch; 0 if unknown.

    Args:
        stored: Keys and values of the table `state`.
    """
    try:
        until = float(stored.get("until", "0"))
    except ValueError:
        return 0.0
    return until if math.isfinite(until) else 0.0
