"""`longshare trace fit`: compares generated traces with published figures of Google's trace."""

import json
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import USAGE, fail
from allocator.cli.simulate import compiled

if TYPE_CHECKING:
    from allocator.simulation.studies.fitting import Fit


def fit(
    *,
    tasks: Annotated[
        int, typer.Option(min=100_000, help="Number of tasks of each month.")
    ] = 1_000_000,
    months: Annotated[int, typer.Option(min=1, help="Number of months, with seeds from 1.")] = 2,
    draws: Annotated[
        int,
        typer.Option(
            min=0, help="Number of parameter sets to draw and try first; 0: only the present set."
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 1,
    as_json: options.AsJson = False,
) -> None:
    """Compare generated traces of google-month with published figures of Google's real trace.

    Published simulations of the real trace are compared, too. Unpublished parameters (inequality of
    users, bursts, spread of failures) are set so that the published figures are met. With --draws
    the command searches for better parameters: half of the draws anywhere, half near the best ones.
    Every line is a figure. A miss of 1 is a factor of 2 in the number of events, or 5 % in how much
    less users wait.

    Exit codes: 0, done; 2, no such months can be generated.

    Example: longshare trace fit --draws 10
    """
    from allocator.cli.progress import bar
    from allocator.simulation.generator.google_month import FITTED
    from allocator.simulation.studies import fingerprints, fitting

    all_months = fingerprints.Months(tasks, tuple(range(1, months + 1)))
    total = fingerprints.simulations(all_months, fingerprints.LOADS)
    total += draws * fingerprints.simulations(all_months, fitting.SEARCHED)
    compiled()
    try:
        with bar("simulating", total, "runs") as report:
            counter = count(1)

            def on_simulation() -> None:
                report(next(counter))

            trials = list(fitting.search(draws, seed, all_months, on_simulation))
            best = min(trials, key=lambda trial: trial.miss).knobs if trials else FITTED
            whole = fitting.tried(best, all_months, on_simulation=on_simulation)
    except ValueError as error:
        fail(USAGE, error)
    if as_json:
        answer = {"fit": asdict(whole), "tried": [asdict(trial) for trial in trials]}
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        _show(whole)


def _show(whole: "Fit") -> None:
    from rich.table import Table

    from allocator.cli.tables import console

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("published")
    for heading in ("wanted", "here", "from", "to", "miss"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("source")
    for figure in whole.found:
        bound = "" if figure.relation == "=" else f"{figure.relation} "
        table.add_row(
            figure.name,
            f"{bound}{figure.published:.3g}",
            f"{figure.measured:.3g}",
            f"{min(figure.seeds):.3g}",
            f"{max(figure.seeds):.3g}",
            f"{figure.miss:.2f}",
            figure.source,
        )
    out = console()
    out.print(table)
    knobs = asdict(whole.knobs)
    loops = knobs.pop("loops") or {}
    out.print("with " + ", ".join(f"{name} {value:g}" for name, value in knobs.items()))
    if loops:
        out.print("failures: " + ", ".join(f"{name} {value:g}" for name, value in loops.items()))
    out.print(f"all together: {whole.miss:.2f}")
