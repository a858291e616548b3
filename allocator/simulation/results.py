"""Writes the result files of a simulation: rows per task and user, a time series, a summary."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from allocator.files import csv_cell, whole
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.series import Series
from allocator.simulation.store import ROW_GROUP
from allocator.simulation.summary import QUANTILES, UserSummary, quantiles_of, slowdowns

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


_SERIES = pa.schema(
    [
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("user", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("share", pa.float64(), nullable=False),
        pa.field("commitment", pa.float64()),
        pa.field("running", pa.int64(), nullable=False),
        pa.field("waiting", pa.int64(), nullable=False),
    ]
)


def write(
    outcome: Outcome,
    users: UserSummary,
    summary: Mapping[str, Any],
    folder: Path,
    series: Series | None = None,
) -> None:
    """Write a simulation's result files: tasks.parquet, users.csv, series.parquet and summary.json.

    The folder is created if missing, and series.parquet is written only if there is a series.
    Existing files are replaced once the new file is complete; the summary is written last.

    Args:
        outcome: The simulated outcome.
        users: The summary of each user.
        summary: The content of summary.json.
        folder: The folder for the files.
        series: Shares and commitments over time, if recorded.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with whole(folder / "tasks.parquet") as part:
        _write_tasks(outcome, part)
    with whole(folder / "users.csv") as part:
        _write_users(outcome, users, part)
    if series is not None:
        table = series_table(outcome, series)
        with whole(folder / "series.parquet") as part:
            pq.write_table(table, part, compression="zstd")
    with whole(folder / "summary.json") as part:
        part.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def tasks_table(outcome: Outcome) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return the content of tasks.parquet: an Arrow table with one row per task of the trace."""
    return pa.Table.from_batches(
        [batch for table in _tables(outcome) for batch in table.to_batches()], _SCHEMA
    )


def users_table(outcome: Outcome, users: UserSummary) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return the content of users.csv: one row per user. A mean over no task is NaN."""
    return pa.table(_columns(outcome, users))


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


def series_table(outcome: Outcome, series: Series) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return the content of series.parquet: an Arrow table with one row per instant and user."""
    trace, times = outcome.trace, series.times
    count = len(trace.users)
    running, waiting = running_and_waiting(outcome, times)
    names = pa.array(trace.users, pa.string())
    numbers = pa.array(np.tile(np.arange(count, dtype=np.int32), len(times)))
    commitments = series.commitments.ravel()
    return pa.Table.from_arrays(
        [
            pa.array(np.repeat(times, count)),
            pa.DictionaryArray.from_arrays(numbers, names),
            pa.array(series.shares.ravel()),
            pa.array(commitments, mask=np.isnan(commitments)),
            pa.array(running.ravel()),
            pa.array(waiting.ravel()),
        ],
        schema=_SERIES,
    )


def running_and_waiting(
    outcome: Outcome, times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count each user's running and waiting tasks at given instants.

    Tasks that start or end at exactly an instant are already counted as started or ended.

    Args:
        outcome: The simulated outcome.
        times: Instants in microseconds.

    Returns:
        Two arrays of shape (times, users): running tasks and waiting tasks.
    """
    trace = outcome.trace
    shape = len(times), len(trace.users)
    running, waiting = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    order = np.argsort(trace.user, kind="stable")
    ends = np.cumsum(np.bincount(trace.user, minlength=shape[1]))
    for user, (begin, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
        own = order[begin:end]
        ran = own[outcome.started[own] != NEVER]
        began, ended, submitted = (
            np.searchsorted(np.sort(column), times, side="right")
            for column in (outcome.started[ran], outcome.finished[ran], trace.submitted[own])
        )
        running[:, user] = began - ended
        waiting[:, user] = submitted - began
    return running, waiting


def _columns(outcome: Outcome, users: UserSummary) -> dict[str, Any]:
    user, count = outcome.trace.user, len(users.names)
    waits = quantiles_of(outcome.wait, user, count)
    slowdown = quantiles_of(slowdowns(outcome), user, count)
    return {
        "user": users.names,
        "tasks": users.tasks,
        "started": users.started,
        "completed": users.completed,
        "completion_ratio": users.completion_ratio,
        "mean_wait_s": users.mean_wait_s,
        "mean_slowdown": users.mean_slowdown,
        "usage": users.usage,
        **{f"wait_{name}_s": waits[:, column] for column, name in enumerate(QUANTILES)},
        **{f"slowdown_{name}": slowdown[:, column] for column, name in enumerate(QUANTILES)},
    }


def _write_users(outcome: Outcome, users: UserSummary, path: Path) -> None:
    columns = _columns(outcome, users)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for user, *row in zip(*columns.values(), strict=True):
            numbers = ["" if entry != entry else entry for entry in row]  # noqa: PLR0124 - NaN
            writer.writerow([csv_cell(user), *numbers])
