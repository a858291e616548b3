"""Prints answers of the service: tables for people, JSON for programs."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text

from allocator.contract import admin_pb2 as admin
from allocator.contract.printable import printable

_UNBOUNDED = 10_000
"""Columns of the output to a file or program, so that no line is cut."""


def console() -> Console:
    """Return a console for tables: as wide as the terminal, or without a limit for files.

    Without a terminal there are no colours.
    """
    bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if bounded else _UNBOUNDED, markup=False, highlight=False)


def as_json(message: Message, *, indent: int | None = 2) -> str:
    """Return a message of the service as JSON with all its fields, named as in the proto file.

    Args:
        message: The message.
        indent: Spaces of indentation; None: the JSON is a single line.
    """
    fields = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _convert_numbers(fields, message.DESCRIPTOR)
    return json.dumps(fields, indent=indent, sort_keys=True)  # maps have no order


def _convert_numbers(
    fields: dict[str, Any],
    descriptor: Any,  # noqa: ANN401 - one of two classes of protobuf
) -> None:
    """Replace 64-bit integers by numbers; the JSON form of protobuf writes them as strings.

    Args:
        fields: The message as a dictionary, which is changed.
        descriptor: The message's type.
    """
    for field in descriptor.fields:
        value = fields.get(field.name)
        if value is None:
            continue
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if isinstance(value, list) else [value]:
                _convert_numbers(part, field.message_type)
        elif field.cpp_type in {field.CPPTYPE_INT64, field.CPPTYPE_UINT64}:
            fields[field.name] = int(value)


_LEAST_WORTH = ("shortfall", "offered", "weight", "demand", "wants", "reason", "entitled")
"""Columns that are dropped on a narrow terminal, in this order."""
NAME = 32
"""Characters to which a user's name may be cut."""


def table_of_users(users: Sequence[admin.UserShare], width: int) -> Table:
    """Return a table of users' shares: a line for each user, children below their parent role.

    Args:
        users: All users, as in the service's answer.
        width: Characters in a line; if the table is wider, columns are left out and named below.
    """
    left_out: set[str] = set()
    if not any(row.HasField("task_share") for row in users):
        left_out.add("task share")
    if not any(row.HasField("offered_share") for row in users):
        left_out.add("offered")
    if not any(row.waits for row in users):
        left_out.add("reason")
    rows = list(_as_tree(users))
    table = _table_of_users(rows, left_out)
    spare = max(0, max((_name(*row).cell_len for row in rows), default=0) - NAME)
    hidden: list[str] = []
    for column in _LEAST_WORTH:
        if Console(width=_UNBOUNDED).measure(table).maximum - spare <= width:
            break
        if column not in left_out:
            hidden.append(column)
        left_out.add(column)
        table = _table_of_users(rows, left_out)
    if hidden:
        table.caption = Text(f"Too wide for this terminal: {', '.join(hidden)}.", style="dim")
        table.caption_justify = "left"
    return table


def _table_of_users(rows: Sequence[tuple[int, admin.UserShare]], left_out: set[str]) -> Table:
    names = [_name(*row) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("rank", justify="right", no_wrap=True)
    widest = max((name.cell_len for name in names), default=0)
    table.add_column(
        "user", no_wrap=True, overflow="ellipsis", min_width=max(len("user"), min(widest, NAME))
    )
    columns = [column for column in _COLUMNS if column not in left_out]
    for column in columns:
        if column in {"demand", "reason"}:
            table.add_column(_COLUMNS[column][0], no_wrap=True)
        else:
            right = column != "wants"
            heading = _COLUMNS[column][0]
            table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for name, (_, row) in zip(names, rows, strict=True):
        cells = [_COLUMNS[column][1](row) for column in columns]
        table.add_row(str(row.rank), name, *map(Text, cells), style=None if row.active else "dim")
    return table


def _name(depth: int, row: admin.UserShare) -> Text:
    return Text("  " * depth + printable(row.user))


def table_of_resources(user: admin.UserShare, cluster: admin.Cluster) -> Table:
    """Return a table of one user's holdings and commitments, with a line for each resource."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("resource", overflow="fold")
    for header in ("allocation", "of", "share", "commitment"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    for name in sorted(user.shares):
        table.add_row(
            Text(printable(name)),
            f"{user.allocation[name]:.15g}",
            f"{cluster.capacity.get(name, 0.0):.15g}",
            f"{user.shares[name]:.1%}",
            f"{user.commitments.get(name, 0.0):.1%}",
            _remark(name, user),
        )
    return table


def table_of_weights(users: Sequence[admin.UserShare]) -> Table:
    """Return a table of users' weights, with the source of each weight and the end of boosts."""
    from allocator.formatting import duration

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("user", no_wrap=True, overflow="ellipsis")
    for header in ("weight", "entitled to"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for depth, row in _as_tree(users):
        by = row.weight_by or "default"
        if row.HasField("boost_ends_after"):
            ends = duration(row.boost_ends_after)
            by = f"boost, ends in {ends}; then {row.weight_after_boost:g}"
        table.add_row(_name(depth, row), f"{row.weight:g}", f"{row.entitlement:.1%}", by)
    return table


def lines_of_cluster(cluster: admin.Cluster) -> str:
    """Return text about the cluster: time, policy, master, allocation, next change of the order."""
    if not cluster.time:
        return f"{cluster.policy}, no master has connected yet"
    time = datetime.fromtimestamp(cluster.time, tz=UTC)
    used = "  ".join(
        f"{printable(name)} {cluster.allocation.get(name, 0.0):.15g}/{total:.15g}"
        for name, total in sorted(cluster.capacity.items())
    )
    master = "master connected" if cluster.connected else "NO MASTER CONNECTED"
    counts = f"agents {cluster.agents}, frameworks {cluster.frameworks}"
    lines = [
        f"{time:%Y-%m-%d %H:%M:%S} UTC, {cluster.policy}, {master}",
        f"{counts}, users that want offers {cluster.wanting}",
        f"allocated: {used}",
    ]
    if cluster.HasField("next_passing"):
        from allocator.formatting import duration

        passing = cluster.next_passing
        lines.append(
            f"next, in {duration(passing.after)}: {printable(passing.passing)} may overtake "
            f"{printable(passing.passed)}"
        )
    return "\n".join(lines)


def line_without_master(cluster: admin.Cluster) -> str:
    """Return a warning that no master is connected, with the duration and the consequences."""
    from allocator.formatting import duration

    if cluster.agents or cluster.frameworks:
        consequence = "no framework gets offers, and the values below are the last known"
        if not cluster.HasField("alone"):
            return f"no master is connected: {consequence}"
        return f"no master has been connected for {duration(cluster.alone)}: {consequence}"
    elapsed = f" {duration(cluster.alone)} ago" if cluster.HasField("alone") else ""
    return (
        f"no master has connected since the service started{elapsed}; a master tries again every "
        "few seconds"
    )


def lines_of_changes(reply: admin.OrderReply) -> str:
    """Return a text with a line for each user that an operator command has changed."""
    lines = []
    for change in reply.changes:
        before, after = change.before, change.after
        if not change.HasField("after"):
            commitment = before.dominant_commitment
            lines.append(
                f"{printable(before.user)}: forgotten, with a commitment of {commitment:.1%}"
            )
            continue
        parts = []
        if before.weight != after.weight:
            parts.append(f"weight {before.weight:g} → {after.weight:g}{_lasting(after)}")
            parts.append(f"entitled to {before.entitlement:.1%} → {after.entitlement:.1%}")
        parts += _changed_commitments(before, after)
        lines.append(f"{printable(after.user)}: {', '.join(parts)}, rank {after.rank}")
    if not lines:
        lines.append("the service carried out the order; it changes no value in 'longshare shares'")
    if reply.HasField("stored") and not reply.stored:
        lines.append(
            "the change is in force, but not stored yet: the store is slow or fails, or belongs to "
            "the service of the leading master"
        )
    if reply.HasField("audited") and not reply.audited:
        lines.append(
            "the order is in the log, but not in the audit yet: its database is slow or fails"
        )
    if reply.volatile:
        lines.append("the change will not last: the service has no store, so a restart forgets it")
    return "\n".join(lines)


def _changed_commitments(before: admin.UserShare, after: admin.UserShare) -> list[str]:
    """Return texts that describe how an operator command has changed a user's commitments.

    One text about the dominant commitment is enough if all other commitments are 0 or have changed,
    too. Otherwise there is a text for each changed resource.

    Args:
        before: The user before the command.
        after: The user after the command.
    """
    names = sorted({*before.commitments, *after.commitments})
    pairs = {name: (before.commitments[name], after.commitments[name]) for name in names}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if any(max(pairs[name]) for name in pairs.keys() - changed.keys()):
        return [
            f"commitment of {printable(name)} {former:.1%} → {present:.1%}"
            for name, (former, present) in changed.items()
        ]
    former, present = before.dominant_commitment, after.dominant_commitment
    return [f"commitment {former:.1%} → {present:.1%}"] if changed else []


def _lasting(row: admin.UserShare) -> str:
    from allocator.formatting import duration

    return f" for {duration(row.boost_ends_after)}" if row.HasField("boost_ends_after") else ""


def _as_tree(users: Sequence[admin.UserShare]) -> Iterator[tuple[int, admin.UserShare]]:
    """Yield each user with its depth in the role tree, followed by its sub-users."""
    below: dict[str, list[admin.UserShare]] = {}
    for row in users:
        below.setdefault(row.parent, []).append(row)

    def walk(parent: str, depth: int) -> Iterator[tuple[int, admin.UserShare]]:
        for row in below.get(parent, ()):
            yield depth, row
            yield from walk(row.user, depth + 1)

    return walk("", 0)


def _demand(demand: admin.Demand) -> str:
    return " ".join(
        f"{printable(name)}:{demand.amounts[name]:g}" for name in sorted(demand.amounts)
    )


def _remark(name: str, user: admin.UserShare) -> str:
    if name == user.dominant_resource:
        return "dominant"
    return "" if name in user.counted else "does not count"


def _wants(row: admin.UserShare) -> str:
    return "passed over" if row.passed_over else "yes" if row.active else "no"


_COLUMNS: dict[str, tuple[str, Callable[[admin.UserShare], str]]] = {
    "wants": ("wants\noffers", _wants),
    "weight": ("weight", lambda row: f"{row.weight:g}"),
    "entitled": ("entit-\nled to", lambda row: f"{row.entitlement:.1%}"),
    "share": ("share", lambda row: f"{row.dominant_share:.1%}"),
    "offered": ("of that\noffered", lambda row: f"{row.offered_share:.1%}"),
    "task share": (
        "task\nshare",
        lambda row: f"{row.task_share:.1%}" if row.HasField("task_share") else "-",
    ),
    "commitment": ("commit-\nment", lambda row: f"{row.dominant_commitment:.1%}"),
    "priority": ("prio-\nrity", lambda row: f"{row.priority:.4f}"),
    "shortfall": ("short-\nfall", lambda row: f"{row.shortfall:.1%}"),
    "demand": ("demand", lambda row: "\n".join(dict.fromkeys(map(_demand, row.demands)))),
    "reason": ("reason\nto wait", lambda row: row.waits),
}
"""Heading and cell text of each column of the table of users."""


def table_of_shadow(shadow: admin.Shadow) -> Table | Text:
    """Return a table of top-level users, in the order of a shadow policy.

    If the shadow policy has failed, return a line with the reason.
    """
    name = printable(shadow.name)
    if shadow.failure:
        return Text(f"{name}: the service stopped this shadow: {printable(shadow.failure)}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.title, table.title_justify = name, "left"
    for heading in ("turn", "as decided"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("user", overflow="fold")
    table.add_column("commitment", justify="right", no_wrap=True)
    table.add_column("gain, h", justify="right", no_wrap=True)
    for user in shadow.users:
        turns = (str(turn) if turn else "-" for turn in (user.shadow_turn, user.turn))
        differs = user.shadow_turn != user.turn
        cells = (printable(user.user), f"{user.commitment:.1%}", f"{user.gain / 3600:+.3f}")
        table.add_row(*turns, *map(Text, cells), style=None if differs else "dim")
    return table
