"""Where a sweep's traces come from: files, and the generator, whose traces become files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from allocator.simulation import store
from allocator.simulation.generator import google_constrained_hour, google_month
from allocator.simulation.studies.cells import Source, digest
from allocator.simulation.studies.plan import Generated, TraceFile

GENERATORS = {
    "google-month": google_month,
    "google-constrained-hour": google_constrained_hour,
}


def resolve(
    traces: Sequence[TraceFile | Generated], beside: Path, folder: Path
) -> Iterator[Source]:
    """Go through the traces of a sweep; those that are to be generated are, if not there yet.

    Args:
        traces: As the sweep's file names them.
        beside: The folder of the sweep's file.
        folder: Where generated traces are kept.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: there is no such generator.
    """
    for trace in traces:
        if isinstance(trace, TraceFile):
            path = (beside / trace.path).absolute()
            yield Source(path, digest(path), path.stem)
            continue
        if trace.generate not in GENERATORS:
            raise ValueError(
                f"there is no generator {trace.generate!r}; there are: {', '.join(GENERATORS)}"
            )
        generator = GENERATORS[trace.generate]
        tasks = trace.tasks or generator.TASKS
        for seed in trace.seeds:
            path = (folder / f"{trace.generate}-{tasks}-{seed}.parquet").absolute()
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                part = path.with_suffix(".part")
                store.write(generator.generate(seed, tasks), part)
                part.replace(path)
            yield Source(path, digest(path), trace.generate, seed)
