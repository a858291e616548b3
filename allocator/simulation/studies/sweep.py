"""A sweep's engine: all cells that are not there yet, in parallel, here or on a cluster."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib

from allocator.fairness import policies
from allocator.simulation import store
from allocator.simulation.studies.cells import Cell, Code, Source, compute
from allocator.simulation.studies.plan import Sweep

_LOOK_EVERY = 0.5
"""Seconds between two looks at what is finished: files tell it under every backend."""


@dataclass(frozen=True)
class SimulatorKind:
    """Where cells are computed.

    Args:
        backend: One of joblib's: "loky", "multiprocessing", "sequential", "dask" or "ray".
        jobs: Processes; -1 for one per core. Clusters have workers of their own.
        scheduler: HOST:PORT of Dask's scheduler.
    """

    backend: str = "loky"
    jobs: int = -1
    scheduler: str | None = None

    @contextmanager
    def started(self) -> Iterator[None]:
        """Have joblib use it.

        Raises:
            ValueError: it is not there.
        """
        more: dict[str, Any] = {}
        try:
            if self.backend == "ray":
                from ray.util.joblib import register_ray  # noqa: PLC0415 - only where it is used

                register_ray()
            if self.scheduler is not None:
                more["scheduler_host"] = self.scheduler
            config = joblib.parallel_config(backend=self.backend, n_jobs=self.jobs, **more)
        except (ImportError, TypeError) as error:
            raise ValueError(f"backend {self.backend!r}: {error}") from error
        with config:
            yield


def cells_of(sweep: Sweep, sources: Sequence[Source]) -> list[Cell]:
    """Return a sweep's cells, those of one trace together; equal ones once."""
    cells = {
        cell.key: cell
        for source in sources
        for grid in sweep.grids
        for load in grid.loads or (None,)
        for several in grid.policies
        for parameters in several.settings()
        for cell in [
            Cell(
                source,
                several.policy,
                parameters,
                load,
                grid.blocking,
                grid.users,
                several.per,
                grid.engine,
                grid.keep,
                several.sampled,
                grid.liars,
                _code(several.policy),
                grid.events,
            )
        ]
    }
    return list(cells.values())


def _code(policy: str) -> Code | None:
    origin = policies.find(policy).origin if policy in policies.names() else None
    return None if origin is None else Code(origin.file, origin.sha256)


def run(
    cells: Sequence[Cell],
    folder: Path,
    engine: SimulatorKind,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Compute the cells that are not finished; return how many were not.

    Each worker writes its own cells' files, so what was finished stays when others fail. All
    workers on a machine have one copy of a trace in memory.

    Args:
        cells: What is wanted.
        folder: Where results are; on a cluster every worker must see it there, and the traces.
        engine: Where to compute them.
        on_progress: Is told how many of the missing are finished.

    Raises:
        ValueError: the backend is not there, or a cell cannot be simulated.
        OSError: a file cannot be read or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in cells if not cell.is_finished(folder)]
    if missing:
        with (
            engine.started(),
            _shared(missing, folder) as copies,
            _watched(missing, folder, on_progress),
        ):
            joblib.Parallel(batch_size=1)(
                joblib.delayed(compute)(cell, folder, copies.get(cell.source)) for cell in missing
            )
    return len(missing)


@contextmanager
def _shared(cells: Sequence[Cell], folder: Path) -> Iterator[dict[Source, Path]]:
    """Lay out the traces that several cells are of, for as long as it takes; return where."""
    times = Counter(cell.source for cell in cells)
    with TemporaryDirectory(prefix="shared-", dir=folder) as room:
        copies = {source: Path(room, source.digest) for source, cells in times.items() if cells > 1}
        for source, copy in copies.items():
            store.share(source.path, copy)
        yield copies


@contextmanager
def _watched(
    cells: Sequence[Cell], folder: Path, on_progress: Callable[[int], None] | None
) -> Iterator[None]:
    if on_progress is None:
        yield
        return
    done = threading.Event()

    def look() -> None:
        on_progress(sum(cell.is_finished(folder) for cell in cells))

    def watch() -> None:
        while not done.wait(_LOOK_EVERY):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        look()
