"""What a simulation leaves on disk: a row per task, a row per user, and a summary."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.store import ROW_GROUP
from allocator.simulation.summary import Users

_SCHEMA = pa.schema(
    [
        pa.field("user", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("job", pa.int64(), nullable=False),
        pa.field("submitted_us", pa.int64(), nullable=False),
        pa.field("started_us", pa.int64()),
        pa.field("finished_us", pa.int64()),
        pa.field("machine", pa.int32()),
    ]
)


def write(outcome: Outcome, users: Users, summary: Mapping[str, Any], folder: Path) -> None:
    """Write tasks.parquet, users.csv and summary.json; the folder is made if there is none.

    Files that are there already are replaced once the new one is complete, the summary last.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "tasks.parquet", lambda path: _write_tasks(outcome, path))
    _replace(folder / "users.csv", lambda path: _write_users(users, path))
    _replace(
        folder / "summary.json",
        lambda path: path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8"),
    )


def tasks_table(outcome: Outcome) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return a row per task of the trace, as tasks.parquet has them."""
    return pa.Table.from_batches(
        [batch for table in _tables(outcome) for batch in table.to_batches()], _SCHEMA
    )


def users_table(users: Users) -> Any:  # noqa: ANN401 - likewise
    """Return a row per user, as users.csv has them; a mean of no task is not a number."""
    return pa.table(_columns(users))


def _replace(path: Path, write_to: Callable[[Path], object]) -> None:
    part = path.with_name(path.name + ".part")
    try:
        write_to(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_tasks(outcome: Outcome, path: Path) -> None:
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        for table in _tables(outcome):
            writer.write_table(table)


def _tables(outcome: Outcome) -> Iterator[Any]:
    trace = outcome.trace
    users = pa.array(trace.users, pa.string())
    for first in range(0, len(trace), ROW_GROUP):
        rows = slice(first, first + ROW_GROUP)
        started, machine = outcome.started[rows], outcome.machine[rows]
        never = started == NEVER
        yield pa.Table.from_arrays(
            [
                pa.DictionaryArray.from_arrays(pa.array(trace.user[rows]), users),
                pa.array(trace.job[rows]),
                pa.array(trace.submitted[rows]),
                pa.array(started, mask=never),
                pa.array(started + trace.runtime[rows], mask=never),
                pa.array(machine, mask=never),
            ],
            schema=_SCHEMA,
        )


def _columns(users: Users) -> dict[str, Any]:
    return {
        "user": users.names,
        "tasks": users.tasks,
        "started": users.started,
        "completed": users.completed,
        "completion_ratio": users.completion_ratio,
        "mean_wait_s": users.mean_wait_s,
        "mean_slowdown": users.mean_slowdown,
        "usage": users.usage,
    }


def _write_users(users: Users, path: Path) -> None:
    columns = _columns(users)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if entry != entry else entry for entry in row])  # noqa: PLR0124 - not a number
