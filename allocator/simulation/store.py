"""Trace files: reading and writing traces as Parquet, one file per trace.

The file's columns describe tasks; everything else is in its metadata. A file can also be expanded
to a shared copy: plain NumPy files that are mapped into memory. All processes on a machine that
read the shared copy use the same memory.
"""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from allocator.files import require_creatable, whole
from allocator.simulation.trace import MICROSECONDS, MachineClass, Trace, TraceError

FORMAT: Final = 1
"""Version of the file format. A reader rejects all other versions."""

ROW_GROUP = 1 << 20
"""Number of tasks in a Parquet row group.

Writing needs the memory of one row group beyond the trace.
"""

_COLUMNS = ("submitted", "runtime", "user", "job", "demand", "constraint")
"""Columns of a shared copy; each is a NumPy file of its own."""
_PARQUET = b"PAR1"
"""First bytes of each Parquet file."""
_KEY = b"longshare"
_SEED = b"longshare.seed"
_DEMAND = "demand_"
_RECORDED = "recorded_wait_us"


class _About(BaseModel):
    """All content of a trace file except its tasks, as JSON; see docs/reference/trace-file.md."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = FORMAT
    resources: tuple[str, ...]
    users: tuple[str, ...]
    machines: tuple[MachineClass, ...] = ()
    constraints: tuple[tuple[int, ...], ...] = ()
    weights: tuple[float, ...] = ()
    commitments: tuple[tuple[float, ...], ...] = ()


_LATER = ("weights", "commitments")
"""Fields added after the first release.

They are omitted if empty, so that old readers still work.
"""


def require_replaceable(path: Path) -> None:
    """Refuse a path to which no trace can be written, such as the source of a trace.

    Raises:
        OSError: The file cannot be read, or no file can be created in its folder.
        TraceError: The path is a pipe, or a regular file with content of another format than
            Parquet.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if _is_pipe(path):
        raise TraceError(f"{path}: a trace cannot be written to a pipe; name a file")
    if not path.exists():
        require_creatable(path)
    elif path.is_file():
        with path.open("rb") as file:
            start = file.read(len(_PARQUET))
        if start not in {b"", _PARQUET}:
            raise TraceError(
                f"{path} exists and is not a trace, so it is kept; name another file for the trace"
            )


def write(trace: Trace, path: Path) -> None:
    """Write a trace to a Parquet file. An existing file is replaced once the new file is complete.

    Raises:
        OSError: The file cannot be written.
        TraceError: The path is a file with content of another format.
    """
    _write(trace, path, None, None)


def write_generated(trace: Trace, path: Path, seed: int | None) -> None:
    """Write a trace as `write` does, with the seed of its generator; None without a generator."""
    _write(trace, path, seed, None)


def write_recorded(trace: Trace, path: Path, waits: NDArray[np.int64] | None) -> None:
    """Write a trace as `write` does, with the waits that its source records.

    Args:
        trace: The tasks.
        path: The file.
        waits: Microseconds from submission to start, one entry per task; -1: not recorded. None:
            no task has a record.
    """
    _write(trace, path, None, None if waits is None or (waits < 0).all() else waits)


def _write(trace: Trace, path: Path, seed: int | None, waits: NDArray[np.int64] | None) -> None:
    require_replaceable(path)
    about = _About(
        resources=trace.resources,
        users=trace.users,
        machines=trace.machines,
        constraints=trace.constraints,
        weights=trace.weights,
        commitments=trace.commitments,
    )
    omitted = {field for field in _LATER if not getattr(about, field)}
    text = about.model_dump_json(exclude=omitted)
    metadata = {_KEY: text.encode()} | ({} if seed is None else {_SEED: str(seed).encode()})
    schema = _schema(trace.resources).with_metadata(metadata)
    if waits is not None:
        schema = schema.append(pa.field(_RECORDED, pa.int64(), nullable=False))
    with whole(path) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for table in _tables(trace, schema, waits):
            writer.write_table(table)


def read(path: Path, count: int | None = None) -> Trace:
    """Read a trace from a Parquet file, or only its first `count` tasks.

    Reading needs the memory of one row group beyond the trace.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is not a trace, or the trace contradicts itself; the message says
            where.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if _is_pipe(path):
        raise TraceError(f"{path}: a trace cannot be read from a pipe; name a file")
    try:
        with pq.ParquetFile(path, read_dictionary=["user"]) as file:
            return _filled(file, _about(file.schema_arrow), count)
    except pa.ArrowInvalid as error:
        raise TraceError(
            f"{path} is not a trace: damaged, or not a Parquet file; 'longshare trace convert' "
            "makes traces"
        ) from error
    except TraceError as error:
        raise TraceError(f"{path} is not a trace: {error}") from error


def _is_pipe(path: Path) -> bool:
    """Return whether a path is a pipe, a socket, or `-`, which means the standard input."""
    return path.is_fifo() or path.is_socket() or str(path) == "-"


def seed_of(path: Path) -> int | None:
    """Return the seed of the generator that made a trace file; None if the file names no seed.

    Raises:
        OSError: The file cannot be read.
    """
    with pq.ParquetFile(path) as file:
        text = (file.schema_arrow.metadata or {}).get(_SEED, b"")
    return int(text) if text.isdigit() else None


def recorded_waits(path: Path) -> NDArray[np.float64] | None:
    """Return the waits that the source of a trace file records, in seconds, one entry per task.

    An entry is NaN if the source does not record the task's start. The result is None if the source
    records no start.

    Raises:
        OSError: The file cannot be read.
    """
    with pq.ParquetFile(path) as file:
        if file.schema_arrow.get_field_index(_RECORDED) < 0:
            return None
        waits = file.read(columns=[_RECORDED]).column(0).to_numpy()
    return np.where(waits < 0, np.nan, waits / MICROSECONDS)


def share(path: Path, folder: Path) -> None:
    """Expand a trace file to a shared copy, to be opened by `shared`.

    The copy takes 32 bytes per task, plus 8 bytes per task and resource.

    Args:
        path: The trace file.
        folder: The folder to create for the copy.

    Raises:
        OSError: A file cannot be read or written.
        TraceError: The file is not a trace.
    """
    trace = read(path)
    folder.mkdir(parents=True)
    for name in _COLUMNS:
        np.save(folder / f"{name}.npy", getattr(trace, name))


def shared(path: Path, folder: Path) -> Trace:
    """Open a shared copy: return a trace whose columns are mapped into memory.

    Args:
        path: The trace file, which has the metadata.
        folder: The folder that `share` wrote.

    Raises:
        OSError: A file cannot be read.
        TraceError: The file is not a trace.
    """
    with pq.ParquetFile(path) as file:
        about = _about(file.schema_arrow)
        # An empty file cannot be mapped.
        mode: Literal["r"] | None = "r" if file.metadata.num_rows else None
    columns = {
        name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode=mode)) for name in _COLUMNS
    }
    return Trace(
        resources=about.resources,
        users=about.users,
        machines=about.machines,
        constraints=about.constraints,
        weights=about.weights,
        commitments=about.commitments,
        **columns,
    )


def _schema(resources: tuple[str, ...]) -> Any:  # noqa: ANN401 - pyarrow has no types
    columns = [
        ("submitted_us", pa.int64()),
        ("runtime_us", pa.int64()),
        ("user", pa.dictionary(pa.int32(), pa.string())),
        ("job", pa.int64()),
        *((_DEMAND + resource, pa.float64()) for resource in resources),
        ("constraint", pa.int32()),
    ]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


def _tables(
    trace: Trace,
    schema: Any,  # noqa: ANN401
    waits: NDArray[np.int64] | None,
) -> Iterator[Any]:
    users = pa.array(trace.users, pa.string())
    for first in range(0, len(trace), ROW_GROUP):
        rows = slice(first, first + ROW_GROUP)
        yield pa.Table.from_arrays(
            [
                pa.array(trace.submitted[rows]),
                pa.array(trace.runtime[rows]),
                pa.DictionaryArray.from_arrays(pa.array(trace.user[rows]), users),
                pa.array(trace.job[rows]),
                *(
                    pa.array(np.ascontiguousarray(trace.demand[rows, resource]))
                    for resource in range(len(trace.resources))
                ),
                pa.array(trace.constraint[rows]),
                *(() if waits is None else (pa.array(waits[rows]),)),
            ],
            schema=schema,
        )


def _about(schema: Any) -> _About:  # noqa: ANN401
    text = (schema.metadata or {}).get(_KEY)
    if text is None:
        raise TraceError(
            "its metadata has no key 'longshare'; make one with 'longshare trace convert'"
        )
    try:
        version = json.loads(text).get("format")
        if version != FORMAT:
            raise TraceError(f"it has format {version!r}, this version reads {FORMAT}")
        about = _About.model_validate_json(text)
    except (ValidationError, AttributeError, json.JSONDecodeError) as error:
        raise TraceError(f"its metadata cannot be used: {error}") from error
    for field in _schema(about.resources):
        index = schema.get_field_index(field.name)
        if index < 0:
            raise TraceError(f"it has no column {field.name}")
        if field.name != "user" and schema.field(index).type != field.type:
            raise TraceError(
                f"column {field.name} is of type {schema.field(index).type}, not {field.type}"
            )
    return about


def _filled(file: Any, about: _About, count: int | None) -> Trace:  # noqa: ANN401
    tasks = file.metadata.num_rows
    if count is not None:
        tasks = min(tasks, count)
    names = [field.name for field in _schema(about.resources)]
    submitted, runtime, job = (np.empty(tasks, np.int64) for _ in range(3))
    user, constraint = (np.empty(tasks, np.int32) for _ in range(2))
    demand = np.empty((tasks, len(about.resources)))
    numbers = pa.array(about.users, pa.string())
    filled = 0
    for group in file.iter_batches(batch_size=ROW_GROUP, columns=names):
        if filled == tasks:
            break
        batch = group.slice(0, tasks - filled)
        rows = slice(filled, filled + len(batch))
        filled += len(batch)
        submitted[rows] = _column(batch, "submitted_us")
        runtime[rows] = _column(batch, "runtime_us")
        user[rows] = _users(batch, numbers)
        job[rows] = _column(batch, "job")
        constraint[rows] = _column(batch, "constraint")
        for index, resource in enumerate(about.resources):
            demand[rows, index] = _column(batch, _DEMAND + resource)
    return Trace(
        resources=about.resources,
        users=about.users,
        submitted=submitted,
        runtime=runtime,
        user=user,
        job=job,
        demand=demand,
        constraint=constraint,
        machines=about.machines,
        constraints=about.constraints,
        weights=about.weights,
        commitments=about.commitments,
    )


def _column(batch: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    column = batch.column(name)
    if column.null_count:
        raise TraceError(f"column {name} has empty entries")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _users(batch: Any, names: Any) -> NDArray[np.int32]:  # noqa: ANN401
    """Convert a row group's user column to user numbers of the trace.

    Each row group has its own dictionary of names, in its own order.

    Args:
        batch: A record batch of tasks.
        names: User names of the trace, as an Arrow array.
    """
    column = batch.column("user")
    if column.null_count:
        raise TraceError("column user has empty entries")
    numbers = pc.index_in(column.dictionary, names)
    if numbers.null_count:
        unknown = column.dictionary.filter(numbers.is_null())[0].as_py()
        raise TraceError(f"user {unknown!r} is not in its metadata")
    places: NDArray[np.int32] = column.indices.to_numpy(zero_copy_only=False)
    mapped: NDArray[np.int32] = numbers.to_numpy(zero_copy_only=False)[places].astype(np.int32)
    return mapped
