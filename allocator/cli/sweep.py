"""`longshare sweep`: runs many simulations in parallel, and skips finished ones."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import fail_study
from allocator.cli.parameters import load_policy_files
from allocator.cli.progress import on_terminal
from allocator.cli.simulate import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.simulation.studies.cells import Cell
    from allocator.simulation.studies.sweep import SimulatorKind

Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        max=1000,
        help="Number of processes; -1: one for each core.",
        show_default="-1",
    ),
]
Backend = Annotated[
    str,
    typer.Option(help="loky or sequential: this machine; dask or ray: a cluster."),
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Dask's scheduler.", show_default=False)
]


def sweep(
    file: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP.toml",
            help="File of combinations, or a study's name; see docs/how-to/run-studies.md.",
        ),
    ],
    *,
    traces: Annotated[
        list[Path] | None,
        typer.Option("--trace", help="Trace to simulate instead of the file's traces; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results.", show_default="runs/SWEEP")
    ] = None,
    policy_files: options.PolicyFiles = None,
    jobs: Jobs = -1,
    backend: Backend = "loky",
    scheduler: Scheduler = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate every combination of traces, policies and loads that a file names.

    Finished simulations are not repeated unless their inputs change. After an interruption, or with
    more in the file, start the same command again. `longshare report` shows the results.

    Exit codes: 0, done; 2, the file or a trace cannot be used.

    Example: longshare sweep study.toml --out results
    """
    from allocator.simulation.studies.plan import (
        Recorded,
        TraceFile,
        read_sweep,
    )
    from allocator.simulation.studies.results import write_index
    from allocator.simulation.studies.sources import recorded, resolve
    from allocator.simulation.studies.sweep import SimulatorKind, cells_of

    if jobs == 0:
        raise typer.BadParameter("give 1 or more, or -1: one for each core", param_hint="--jobs")
    if scheduler is not None and backend != "dask":
        raise typer.BadParameter("it needs --backend dask", param_hint="--scheduler")
    load_policy_files(policy_files)
    try:
        plan, beside = read_sweep(file)
        selected = [TraceFile(path=path.absolute()) for path in traces] if traces else plan.traces
        folder = out or Path("runs") / Path(file).stem
        folder.mkdir(parents=True, exist_ok=True)
        sources = list(resolve(selected, beside, folder / "traces"))
        for trace in selected:
            if isinstance(trace, Recorded) and recorded(trace) is None:
                typer.echo(
                    f"trace {trace.recorded} is left out: the folder $LONGSHARE_DATA lacks it",
                    err=True,
                )
        cells = cells_of(plan, sources)
        names = ", ".join(source.name for source in sources)
        write_index(folder, f"{file}, tried on {names}" if traces else plan.title, cells)
        computed = compute(cells, folder / "cells", SimulatorKind(backend, jobs, scheduler))
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    if as_json:
        answer = {"folder": str(folder), "cells": len(cells), "computed": computed}
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo(
            f"{len(cells)} simulations, {computed} of them run now; "
            f"longshare report {folder} shows the results"
        )


def compute(cells: "Sequence[Cell]", folder: Path, engine: "SimulatorKind") -> int:
    """Run the unfinished simulations of a sweep, with a progress bar; return how many were run.

    Args:
        cells: All simulations of the sweep.
        folder: Folder with the results.
        engine: Backend and number of processes that run the simulations.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from allocator.simulation.studies import sweep as sweep_study

    if unfinished := [cell for cell in cells if not cell.is_finished(folder)]:
        engine.check()
        if engine.backend != "dask" and any(cell.engine == "fast" for cell in unfinished):
            compiled()  # otherwise each process would compile

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with on_terminal(*columns) as progress:
        task = progress.add_task("Simulations", total=len(unfinished))
        return sweep_study.run(
            cells, folder, engine, lambda finished: progress.update(task, completed=finished)
        )
