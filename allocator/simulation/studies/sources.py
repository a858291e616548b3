"""Finds or makes the trace files that a sweep needs."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from allocator.complaints import unknown
from allocator.simulation import store
from allocator.simulation.formats import swf
from allocator.simulation.generator import (
    crowded_month,
    google_constrained_hour,
    google_month,
    google_month_plain,
)
from allocator.simulation.studies.cells import Source, digest
from allocator.simulation.studies.plan import Generated, Recorded, TraceFile
from allocator.simulation.trace import Trace

GENERATORS = {
    "google-month": google_month,
    "google-month-plain": google_month_plain,
    "google-constrained-hour": google_constrained_hour,
    "crowded-month": crowded_month,
}


def resolve(
    traces: Sequence[TraceFile | Generated | Recorded], beside: Path, folder: Path
) -> Iterator[Source]:
    """Yield the trace of each entry of a sweep. Missing traces are generated or converted first.

    Recorded workloads without a file are left out.

    Args:
        traces: The entries for traces in the sweep's file.
        beside: Folder of the sweep's file, to which paths are relative.
        folder: Folder for generated and converted traces.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: A generator does not exist.
    """
    for trace in traces:
        if isinstance(trace, TraceFile):
            path = (beside / trace.path).absolute()
            yield Source(path, digest(path), path.stem)
            continue
        if isinstance(trace, Recorded):
            file = recorded(trace)
            if file is not None:
                name = trace.recorded.partition(".")[0]
                path = (folder / f"{name}.parquet").absolute()
                _make(path, partial(_converted, file))
                yield Source(path, digest(path), name)
            continue
        if trace.generate not in GENERATORS:
            raise ValueError(unknown("generator", trace.generate, GENERATORS))
        generator = GENERATORS[trace.generate]
        tasks = trace.tasks or generator.TASKS
        for seed in trace.seeds:
            path = (folder / f"{trace.generate}-{tasks}-{seed}.parquet").absolute()
            _make(path, partial(generator.generate, seed, tasks), seed)
            yield Source(path, digest(path), trace.generate, seed)


def recorded(trace: Recorded) -> Path | None:
    """Return the file of a recorded workload, or None if the file does not exist."""
    folder = os.environ.get("LONGSHARE_DATA")
    path = Path(folder, trace.recorded) if folder else None
    return path if path is not None and path.exists() else None


def _converted(file: Path) -> Trace:
    return swf.convert(file).trace


def _make(path: Path, make: Callable[[], Trace], seed: int | None = None) -> None:
    """Write a trace file atomically; an existing file is kept.

    Args:
        path: The file.
        make: Function that creates the trace, called only if needed.
        seed: Seed of the generator; None without a generator.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        store.write_generated(make(), path, seed)
