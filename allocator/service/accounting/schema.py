"""The tables of the accounting database: the same in SQLite and PostgreSQL.

Amounts are in the units Mesos counts a resource in × seconds: core-seconds, megabyte-seconds.
A row belongs to an hour, or, when that is long ago, to a day; both by UTC.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

LAYOUTS = (1, 2)
"""Versions of the tables that can be read; the last one is written. The first had no roles."""

metadata = MetaData()

usage = Table(
    "usage",
    metadata,
    Column("seconds", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("held", Double, nullable=False),
    Column("overused", Double, nullable=False),
    Column("owed", Double, nullable=False),
    Column("entitled", Double, nullable=False),
    PrimaryKeyConstraint("seconds", "start", "user", "resource"),
)
"""What users have had: HOUR or DAY seconds from `start`, in seconds since the epoch."""

activity = Table(
    "activity",
    metadata,
    Column("seconds", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("offers", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("wanted", Double, nullable=False),
    Column("waited", Double, nullable=False),
    PrimaryKeyConstraint("seconds", "start", "user"),
)
"""What users were offered and refused, and seconds in which they wanted more, and lacked it."""

capacity = Table(
    "capacity",
    metadata,
    Column("seconds", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("resource", Text, nullable=False),
    Column("amount", Double, nullable=False),
    PrimaryKeyConstraint("seconds", "start", "resource"),
)
"""What the cluster has had while it was counted."""

role_usage = Table(
    "role_usage",
    metadata,
    Column("seconds", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("held", Double, nullable=False),
    PrimaryKeyConstraint("seconds", "start", "role", "resource"),
)
"""What was held in roles, where users are none; likewise."""

role_activity = Table(
    "role_activity",
    metadata,
    Column("seconds", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("offers", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    PrimaryKeyConstraint("seconds", "start", "role"),
)
"""What was offered and refused in roles, where users are none."""

orders = Table(
    "orders",
    metadata,
    Column("id", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("how", Text, nullable=False),
    Column("peer", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("order", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("refusal", Text, nullable=False),
    Index("orders_at", "at"),
)
"""What operators have ordered; `order`, `before` and `after` are JSON."""

state = Table(
    "state",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""How far has been counted, and by whom; how users stood then."""

SUMS = {
    usage: ("held", "overused", "owed", "entitled"),
    activity: ("offers", "refused", "wanted", "waited"),
    capacity: ("amount",),
    role_usage: ("held",),
    role_activity: ("offers", "refused"),
}
"""Columns that are added up, by table; the others are its key."""
