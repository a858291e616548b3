"""Tables of the accounting database, identical in SQLite and PostgreSQL.

Amounts are in Mesos's unit of the resource × seconds, for example core-seconds and
megabyte-seconds. A row covers an hour, or a day if the hour is long ago; both by UTC.
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
"""Versions of the tables that can be read; the last version is written. Version 1 had no roles."""

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
"""Usage of users in an hour or day.

`start` is its beginning in seconds since the epoch, and `seconds` is its length: HOUR or DAY.
"""

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
"""Offers to users, and how many they declined.

`wanted` is the number of seconds in which a user wanted offers. `waited` is the part of these
seconds in which the user held less than its entitlement.
"""

capacity = Table(
    "capacity",
    metadata,
    Column("seconds", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("resource", Text, nullable=False),
    Column("amount", Double, nullable=False),
    PrimaryKeyConstraint("seconds", "start", "resource"),
)
"""Capacity of the cluster × seconds of the accounted time."""

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
"""Usage of roles in an hour or day; empty if users are roles."""

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
"""Number of offers to roles, and how many they declined; empty if users are roles."""

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
"""Operator commands; the columns `order`, `before` and `after` are JSON."""

state = Table(
    "state",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Progress of accounting as keys and values: latest writer, accounted time, and checkpoints of
users and roles."""

SUMS = {
    usage: ("held", "overused", "owed", "entitled"),
    activity: ("offers", "refused", "wanted", "waited"),
    capacity: ("amount",),
    role_usage: ("held",),
    role_activity: ("offers", "refused"),
}
"""Columns with amounts that can be added up, by table; the other columns are the key of a row."""
