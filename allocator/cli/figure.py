"""`longshare figure`: computes and draws a figure of a paper."""

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import USAGE, fail, keep_folder

if TYPE_CHECKING:
    from allocator.figures.figure import Cell, PaperFigure

_LARGEST = 1000
"""Largest denominator of a fraction that is printed as a fraction."""


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
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the picture.")] = Path(
        "runs/figures"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Compute a figure of the SDRF paper, the TSF paper, the thesis or our own, and draw it.

    Exit codes: 0, done; 2, there is no such figure, or the picture cannot be written.

    Example: longshare figure sdrf-3 --out pictures
    """
    from rich.console import Console

    from allocator.figures.catalogue import FIGURES
    from allocator.figures.picture import draw

    if name not in FIGURES:
        from allocator.complaints import unknown

        raise typer.BadParameter(unknown("figure", name, FIGURES), param_hint="NAME")
    keep_folder("--out", out)
    with Console(stderr=True).status("Computing"):
        computed = FIGURES[name]()
    try:
        file = draw(computed, out)
    except OSError as error:
        fail(USAGE, error)
    if as_json:
        typer.echo(json.dumps(_as_json(computed, file), ensure_ascii=False))
    else:
        _show(computed, file)


def _as_json(computed: "PaperFigure", file: Path) -> dict[str, object]:
    return {
        "name": computed.name,
        "source": computed.source,
        "title": computed.title,
        "columns": computed.columns,
        "rows": [
            [cell if isinstance(cell, str) else float(cell) for cell in row]
            for row in computed.rows
        ],
        "facts": {description: float(number) for description, number in computed.facts.items()},
        "ours": computed.ours,
        "picture": str(file),
    }


def _show(computed: "PaperFigure", file: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{computed.title}\n{computed.source}")
    for number, column in enumerate(computed.columns):
        table.add_column(column, justify="right" if number else "left")
    for row in computed.rows:
        table.add_row(*map(_cell, row))
    console = Console()
    console.print(table)
    for description, value in computed.facts.items():
        console.print(f"{description}: {_cell(value)}", markup=False)
    console.print(
        f"Chosen by Longshare, because the source does not say: {computed.ours}.", markup=False
    )
    console.print(str(file), markup=False, soft_wrap=True)


def _cell(value: "Cell") -> str:
    if isinstance(value, Fraction) and 1 < value.denominator <= _LARGEST:
        return str(value)
    return value if isinstance(value, str) else f"{float(value):.4g}"
