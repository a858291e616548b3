"""`longshare figure`: a figure of a paper, computed anew."""

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import USAGE, fail

if TYPE_CHECKING:
    from allocator.figures.figure import Cell, PaperFigure

_LARGEST = 1000
"""Denominator up to which a fraction is printed as one."""


def figure(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="sdrf-1, sdrf-2, sdrf-3, sdrf-4, sdrf-6, tsf-1, thesis-1.1, thesis-2.5, "
            "thesis-2.6, sprayer, memory-workload or memory-blocking.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write the picture.")] = Path(
        "runs/figures"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Compute a figure of the SDRF paper, the TSF paper, the thesis or our own, and draw it.

    Exit codes: 0, done; 2, there is no such figure, or the picture cannot be written.
    """
    from rich.console import Console

    from allocator.figures.catalogue import FIGURES
    from allocator.figures.picture import draw

    if name not in FIGURES:
        raise typer.BadParameter(
            f"there is no figure {name!r}; there are: {', '.join(FIGURES)}", param_hint="NAME"
        )
    with Console(stderr=True).status("Computing"):
        made = FIGURES[name]()
    try:
        file = draw(made, out)
    except OSError as error:
        fail(USAGE, error)
    if as_json:
        typer.echo(json.dumps(_as_json(made, file), ensure_ascii=False))
    else:
        _show(made, file)


def _as_json(made: "PaperFigure", file: Path) -> dict[str, object]:
    return {
        "name": made.name,
        "source": made.source,
        "title": made.title,
        "columns": made.columns,
        "rows": [[one if isinstance(one, str) else float(one) for one in row] for row in made.rows],
        "facts": {what: float(number) for what, number in made.facts.items()},
        "ours": made.ours,
        "picture": str(file),
    }


def _show(made: "PaperFigure", file: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{made.title}\n{made.source}")
    for number, column in enumerate(made.columns):
        table.add_column(column, justify="right" if number else "left")
    for row in made.rows:
        table.add_row(*map(_cell, row))
    console = Console()
    console.print(table)
    for what, value in made.facts.items():
        console.print(f"{what}: {_cell(value)}", markup=False)
    console.print(f"Chosen here: {made.ours}.", markup=False)
    console.print(str(file), markup=False, soft_wrap=True)


def _cell(value: "Cell") -> str:
    if isinstance(value, Fraction) and 1 < value.denominator <= _LARGEST:
        return str(value)
    return value if isinstance(value, str) else f"{float(value):.4g}"
