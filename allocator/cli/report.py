"""`longshare report`: draws the results of a sweep's simulations."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.connection import USAGE, fail, keep_folder


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder that `longshare sweep` filled.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report.", show_default="RESULTS")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Policy with which users' gains are compared, by its name in the report.",
            show_default="drf",
        ),
    ] = None,
    papers: Annotated[
        bool,
        typer.Option("--papers", help="Compare the papers' findings with your own traces, too."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Draw a sweep's figures, on one HTML page and as PNG files.

    Workloads like those of the papers are compared with the papers' findings; your own traces are
    not.

    Exit codes: 0, done; 2, there are no results, none is of the baseline, or a file cannot be
    written.

    Example: longshare report results --out report
    """
    from allocator.simulation.studies.report import PAGE, write_report

    target = out or folder
    keep_folder("--out", out)
    try:
        sections = write_report(folder, target, baseline, papers=papers)
    except (OSError, ValueError) as error:
        fail(USAGE, error)
    if as_json:
        findings = {
            "page": str(target / PAGE),
            "sections": {
                section.name: {
                    "title": section.title,
                    "claims": [asdict(claim) for claim in section.claims],
                }
                for section in sections
            },
        }
        typer.echo(json.dumps(findings, indent=2))
        return
    for section in sections:
        typer.echo(section.title)
        for claim in section.claims:
            verdict = "DIFFERS" if claim.agrees is False else claim.verdict
            typer.echo(f"  {verdict}: {claim.measured}")
    typer.echo(f"{target / PAGE}")
