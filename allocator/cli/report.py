"""`longshare report`: what the simulations of a sweep show together."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.connection import USAGE, fail


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder that `longshare sweep` filled.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report.", show_default="RESULTS")
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="Policy that users gain or lose against, as the report calls it.")
    ] = "drf",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Draw a sweep's figures, on one HTML page and as PNG files, and compare them with the papers.

    Exit codes: 0, done; 2, there are no results, or a file cannot be written.
    """
    from allocator.simulation.studies.report import PAGE, write_report  # noqa: PLC0415 - `--help`

    target = out or folder
    try:
        sections = write_report(folder, target, baseline)
    except (OSError, ValueError) as error:
        fail(USAGE, str(error))
    if as_json:
        told = {
            "page": str(target / PAGE),
            "sections": {
                section.name: {
                    "title": section.title,
                    "claims": [asdict(claim) for claim in section.claims],
                }
                for section in sections
            },
        }
        typer.echo(json.dumps(told, indent=2))
        return
    for section in sections:
        typer.echo(section.title)
        for claim in section.claims:
            typer.echo(f"  {'as in the paper' if claim.agrees else 'DIFFERS'}: {claim.ours}")
    typer.echo(f"{target / PAGE}")
