"""A sweep's report: one page that needs nothing else, and its figures as PNG files."""

from pathlib import Path

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
    """Draw what a sweep's finished cells show, and return it.

    Args:
        folder: Of the sweep's results.
        out: Where the page and the folder `figures` go.
        baseline: The policy that others are held against in who gains and who loses; none: DRF,
            where it is.
        papers: Whether results of traces that no generator of ours has made, too, are held
            against what the papers found.

    Raises:
        ResultsError: the folder holds no results, or none of such a baseline.
        OSError: a file cannot be written.
    """
    title, results = read_results(folder)
    labels = dict.fromkeys(result.label for result in results)
    if baseline is not None and baseline not in labels:
        raise ResultsError(
            f"no result in {folder} is of a policy that is called {baseline!r}; there are: "
            + ", ".join(labels)
        )
    theirs = [result for result in results if papers or result.raw["seed"] is not None]
    own = [result for result in results if result not in theirs]
    sections = [
        *sdrf_findings.sections(theirs),
        *tsf_findings.sections(theirs),
        *own_findings.sections(own),
        *rivals.sections(results, baseline or _BASELINE),
        *gains.sections(results, baseline or _BASELINE),
    ]
    figures = save(((s.name, s.figure) for s in sections if s.figure is not None), out / "figures")
    if any("windows" in result.raw for result in results):
        (out / rivals.CSV).write_text(
            rivals.table(results, baseline or _BASELINE), encoding="utf-8"
        )
    if told := sdrf_study.table(theirs):
        (out / sdrf_study.CSV).write_text(told, encoding="utf-8")
    with whole(out / PAGE) as part:
        part.write_text(render(title, sections, figures), encoding="utf-8")
    return sections
