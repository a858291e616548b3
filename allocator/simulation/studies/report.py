"""Writes the report of a sweep: an HTML page, and its figures as PNG files."""

from pathlib import Path

from allocator.complaints import alternatives
from allocator.files import whole
from allocator.simulation.studies import (
    gains,
    own_findings,
    rivals,
    sdrf_findings,
    sdrf_study,
    tsf_findings,
)
from allocator.simulation.studies.drawing import save
from allocator.simulation.studies.page import render
from allocator.simulation.studies.results import ResultsError, read_results
from allocator.simulation.studies.section import Section

PAGE = "report.html"


_BASELINE = "drf"


def write_report(
    folder: Path, out: Path, baseline: str | None = None, *, papers: bool = False
) -> list[Section]:
    """Write a report about the finished cells of a sweep, and return the report's sections.

    Args:
        folder: Folder with the sweep's results.
        out: Folder for the page; the figures go to its folder `figures`.
        baseline: Label of the policy with which all others are compared; None selects DRF if it was
            simulated.
        papers: True to compare results with the papers' findings even if the trace was not made by
            Longshare's generators.

    Raises:
        ResultsError: The folder has no results, or no results of the baseline.
        OSError: A file cannot be written.
    """
    title, results = read_results(folder)
    labels = dict.fromkeys(result.label for result in results)
    if baseline is not None and baseline not in labels:
        raise ResultsError(
            f"--baseline: {folder} has no results of {baseline!r}{alternatives(baseline, labels)}"
        )
    paper_results = [result for result in results if papers or result.raw["seed"] is not None]
    own_results = [result for result in results if result not in paper_results]
    sections = [
        *sdrf_findings.sections(paper_results),
        *tsf_findings.sections(paper_results),
        *own_findings.sections(own_results),
        *rivals.sections(results, baseline or _BASELINE),
        *gains.sections(results, baseline or _BASELINE),
    ]
    figures = save(
        ((section.name, section.figure) for section in sections if section.figure is not None),
        out / "figures",
    )
    if any("windows" in result.raw for result in results):
        with whole(out / rivals.CSV) as part:
            part.write_text(rivals.table(results, baseline or _BASELINE), encoding="utf-8")
    if csv_text := sdrf_study.table(paper_results):
        with whole(out / sdrf_study.CSV) as part:
            part.write_text(csv_text, encoding="utf-8")
    with whole(out / PAGE) as part:
        part.write_text(render(title, sections, figures), encoding="utf-8")
    return sections
