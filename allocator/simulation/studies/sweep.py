"""Runs a sweep: simulates all unfinished cells in parallel, on this machine or on a cluster."""

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib

from allocator import __version__
from allocator.fairness import policies
from allocator.files import open_folder, private_folder, whole
from allocator.simulation import store
from allocator.simulation.studies.cells import Cell, Code, Source, compute
from allocator.simulation.studies.plan import Sweep

_LOOK_EVERY = 0.5
"""Seconds between two looks for finished files. Files show progress with every backend."""

_SCHEDULER_PATIENCE = 10.0
"""Seconds until Dask's scheduler must answer."""


@dataclass(frozen=True)
class SimulatorKind:
    """Backend that simulates cells, and its number of processes.

    Args:
        backend: "dask", for the workers of a Dask cluster; or a backend of joblib: "loky",
            "multiprocessing", "sequential" or "ray".
        jobs: Number of processes; -1 means one per core. Clusters have their own workers and ignore
            it.
        scheduler: HOST:PORT of Dask's scheduler. None: the address in Dask's own configuration.
    """

    backend: str = "loky"
    jobs: int = -1
    scheduler: str | None = None

    def check(self) -> None:
        """Check that the backend is available, before longer work.

        Raises:
            ValueError: The backend is not available.
        """
        if self.backend == "dask":
            with _dask_client(self.scheduler):
                pass
        else:
            with self.started():
                pass

    @contextmanager
    def started(self) -> Iterator[None]:
        """Context in which joblib uses this backend.

        Raises:
            ValueError: The backend is not available.
        """
        try:
            if self.backend == "ray":
                from ray.util.joblib import register_ray  # noqa: PLC0415 - imported only for this backend

                register_ray()
            config = joblib.parallel_config(backend=self.backend, n_jobs=self.jobs)
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
        folder: Folder of the results. Workers of Ray must have access to this folder and to the
            traces at the same paths. Dask sends both.
        engine: Backend that runs the simulations.
        on_progress: Receives the number of cells finished so far in this run.

    Raises:
        ValueError: The backend is not available, or a cell cannot be simulated.
        OSError: A file cannot be read or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in cells if not cell.is_finished(folder)]
    if missing:
        with _watched(missing, folder, on_progress):
            if engine.backend == "dask":
                _run_on_dask(missing, folder, engine.scheduler)
            else:
                _run_here(missing, folder, engine)
    return len(missing)


def _run_here(cells: Sequence[Cell], folder: Path, engine: SimulatorKind) -> None:
    with engine.started(), _shared(cells, folder) as copies:
        joblib.Parallel(batch_size=1)(
            joblib.delayed(compute)(cell, folder, copies.get(cell.source)) for cell in cells
        )


def _run_on_dask(cells: Sequence[Cell], folder: Path, scheduler: str | None) -> None:
    """Simulate cells on the workers of a Dask cluster, and write their result files here.

    Traces, policy files and results travel through Dask. If a worker dies, Dask repeats its cells
    on another worker.

    Args:
        cells: The cells to simulate.
        folder: Folder of the results on this machine.
        scheduler: HOST:PORT of Dask's scheduler, or None.

    Raises:
        ValueError: The cluster cannot be used, or a cell cannot be simulated.
        OSError: A file cannot be read or written.
    """
    from distributed import KilledWorker, as_completed  # noqa: PLC0415 - imported only for this backend

    with _dask_client(scheduler) as client, warnings.catch_warnings():
        # A task, unlike scattered data, is repeated after the death of the worker that had it.
        warnings.filterwarnings("ignore", message="Sending large graph")
        traces = {
            source: client.submit(bytes, source.path.read_bytes(), key=f"trace-{source.digest}")
            for source in {cell.source for cell in cells}
        }
        codes = {
            cell.code: Path(cell.code.file).read_bytes() for cell in cells if cell.code is not None
        }
        results = [
            client.submit(
                _compute_on_worker, cell, traces[cell.source],
                codes[cell.code] if cell.code is not None else b"",
                __version__, key=f"cell-{cell.key}",
            )
            for cell in cells
        ]  # fmt: skip
        try:
            for _, files in as_completed(results, with_results=True):  # type: ignore[no-untyped-call]
                for name, content in files.items():
                    with whole(folder / name) as part:
                        part.write_bytes(content)
        except KilledWorker as error:
            raise ValueError(f"a simulation ended each Dask worker that ran it: {error}") from error


@contextmanager
def _dask_client(scheduler: str | None) -> Iterator[Any]:
    """Context with a connection to Dask's scheduler.

    Raises:
        ValueError: Dask is not installed, or no scheduler answers.
    """
    try:
        import dask  # noqa: PLC0415 - imported only for this backend
        from distributed import Client  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"backend 'dask': {error}; pip install 'longshare[cluster]'") from error
    address = scheduler or dask.config.get("scheduler-address", None)
    if address is None:
        raise ValueError("backend 'dask' needs a scheduler: add --scheduler HOST:PORT")
    try:
        client = Client(address, timeout=_SCHEDULER_PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"Dask's scheduler {address} does not answer: {error}") from error
    with client:
        yield client


def _compute_on_worker(cell: Cell, trace: bytes, code: bytes, version: str) -> dict[str, bytes]:
    """Simulate a cell on a Dask worker, and return the contents of its result files by name.

    The result file comes last, because it marks the cell as finished.

    Args:
        cell: The cell to simulate.
        trace: Content of the trace file.
        code: Content of the policy's source file; empty for policies of Longshare.
        version: Version of Longshare that sent the cell.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: The worker's Longshare has another version, or the cell cannot be simulated.
    """
    from distributed import get_worker  # noqa: PLC0415 - imported only for this backend

    worker = get_worker()
    if version != __version__:
        raise ValueError(
            f"Dask worker {worker.address}: Longshare {__version__} is installed; install {version}"
        )
    local = Path(worker.local_directory)
    path = local / f"{cell.source.digest}.parquet"  # a worker reads the trace once for many cells
    if not path.exists():
        with whole(path) as part:
            part.write_bytes(trace)
    cell = replace(cell, source=replace(cell.source, path=path))
    if cell.code is not None:
        file = local / f"{cell.code.sha256}.py"
        with whole(file) as part:
            part.write_bytes(code)
        cell = replace(cell, code=replace(cell.code, file=str(file)))
    with open_folder(local) as parent, private_folder(parent) as folder:
        compute(cell, folder.path)
        files = (cell.details(folder.path), cell.file(folder.path))
        return {file.name: file.read_bytes() for file in files if file.exists()}


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
    sources = [source for source, cells in counts.items() if cells > 1]
    with open_folder(folder) as parent, private_folder(parent, "shared-") as private:
        for source in sources:
            store.share(source.path, private.path / source.digest)
        yield {source: folder / private.name / source.digest for source in sources}


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
