"""Runs a sweep: simulates all unfinished cells in parallel, on this machine or on a cluster."""

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
"""Seconds between two looks for finished files. Files show progress with every joblib backend."""


@dataclass(frozen=True)
class SimulatorKind:
    """Backend that simulates cells, and its number of processes.

    Args:
        backend: Backend of joblib: "loky", "multiprocessing", "sequential", "dask" or "ray".
        jobs: Number of processes; -1 means one per core. Clusters have their own workers and ignore
            it.
        scheduler: HOST:PORT of Dask's scheduler; None except for "dask".
    """

    backend: str = "loky"
    jobs: int = -1
    scheduler: str | None = None

    @contextmanager
    def started(self) -> Iterator[None]:
        """Context in which joblib uses this backend.

        Raises:
            ValueError: The backend is not available.
        """
        options: dict[str, Any] = {}
        try:
            if self.backend == "ray":
                from ray.util.joblib import register_ray  # noqa: PLC0415 - imported only for this backend

                register_ray()
            if self.scheduler is not None:
                options["scheduler_host"] = self.scheduler
            config = joblib.parallel_config(backend=self.backend, n_jobs=self.jobs, **options)
        except (ImportError, TypeError) as error:
            raise ValueError(f"backend {self.backend!r}: {error}") from error
        with config:
            yield


def cells_of(sweep: Sweep, sources: Sequence[Source]) -> list[Cell]:
    """List all cells of a sweep, without duplicates. Cells of the same trace are adjacent.

    Args:
        sweep: The content of the sweep's file.
        sources: The sweep's traces.
    """
    cells = {
        cell.key: cell
        for source in sources
        for grid in sweep.grids
        for load in grid.loads or (None,)
        for policy in grid.policies
        for parameters in policy.settings()
        for cell in [
            Cell(
                source,
                policy.policy,
                parameters,
                load,
                grid.blocking,
                grid.users,
                policy.per,
                grid.engine,
                grid.keep,
                policy.sampled,
                grid.liars,
                _code(policy.policy),
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
    """Simulate all unfinished cells. Return the number of cells that were unfinished.

    Each worker writes the files of its own cells, so finished cells remain if others fail. All
    workers on a machine share one copy of a trace in memory.

    Args:
        cells: Cells to compute.
        folder: Folder of the results. On a cluster, every worker must have access to this folder
            and to the traces.
        engine: Backend that runs the simulations.
        on_progress: Receives the number of cells finished so far in this run.

    Raises:
        ValueError: The backend is not available, or a cell cannot be simulated.
        OSError: A file cannot be read or written.
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
    """Context with uncompressed copies of all traces that are used by more than one cell.

    Workers map the copies into memory, so that all workers on a machine share the memory. The
    copies are deleted at the end of the context.

    Args:
        cells: The cells to simulate.
        folder: Folder for the copies.

    Yields:
        For each copied trace, the folder of its copy.
    """
    counts = Counter(cell.source for cell in cells)
    with TemporaryDirectory(prefix="shared-", dir=folder) as temporary:
        copies = {
            source: Path(temporary, source.digest) for source, cells in counts.items() if cells > 1
        }
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
    finished = threading.Event()

    def report() -> None:
        on_progress(sum(cell.is_finished(folder) for cell in cells))

    def watch() -> None:
        while not finished.wait(_LOOK_EVERY):
            report()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        report()
