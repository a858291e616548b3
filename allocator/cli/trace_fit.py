"""`longshare trace fit`: how near a made-up month comes to what is published of Google's."""

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
    tasks: Annotated[int, typer.Option(min=100_000, help="Of each month.")] = 1_000_000,
    months: Annotated[int, typer.Option(min=1, help="How many, seeds 1 to so many.")] = 2,
    draws: Annotated[
        int, typer.Option(min=0, help="Search so many others first; 0: those in use.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 1,
    as_json: options.AsJson = False,
) -> None:
    """Hold google-month against all that is published of the real one and of simulations of it.

    What is not published (how unequal users are, how bursty, how failures are spread) is set so
    that the rest comes out; --draws looks for something nearer, half of the draws anywhere and
    half near the best. Every line is a figure; a miss of 1 is a factor of 2 in the number of
    events, 5 % in how much less users wait.

    Exit codes: 0, done; 2, no months can be made so.
    """
    from allocator.cli.progress import bar
    from allocator.simulation.generator.google_month import FITTED
    from allocator.simulation.studies import fingerprints, fitting

    several = fingerprints.Months(tasks, tuple(range(1, months + 1)))
    total = fingerprints.simulations(several, fingerprints.LOADS)
    total += draws * fingerprints.simulations(several, fitting.SEARCHED)
    compiled()
    try:
        with bar("simulating", total, "runs") as report:
            done = count(1)

            def on_simulation() -> None:
                report(next(done))

            tried = list(fitting.search(draws, seed, several, on_simulation))
            best = min(tried, key=lambda one: one.miss).knobs if tried else FITTED
            whole = fitting.tried(best, several, on_simulation=on_simulation)
    except ValueError as error:
        fail(USAGE, error)
    if as_json:
        told = {"fit": asdict(whole), "tried": [asdict(one) for one in tried]}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
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
    for one in whole.found:
        bound = "" if one.relation == "=" else f"{one.relation} "
        table.add_row(
            one.name,
            f"{bound}{one.wanted:.3g}",
            f"{one.got:.3g}",
            f"{min(one.seeds):.3g}",
            f"{max(one.seeds):.3g}",
            f"{one.miss:.2f}",
            one.source,
        )
    out = console()
    out.print(table)
    knobs = asdict(whole.knobs)
    loops = knobs.pop("loops") or {}
    out.print("with " + ", ".join(f"{name} {value:g}" for name, value in knobs.items()))
    if loops:
        out.print("failures: " + ", ".join(f"{name} {value:g}" for name, value in loops.items()))
    out.print(f"all together: {whole.miss:.2f}")
