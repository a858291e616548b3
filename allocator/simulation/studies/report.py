"""A sweep's report: one page that needs nothing else, and its figures as PNG files."""

from pathlib import Path

from allocator.simulation.studies import gains, sdrf_findings, tsf_findings
from allocator.simulation.studies.drawing import save
from allocator.simulation.studies.page import render
from allocator.simulation.studies.results import read_results
from allocator.simulation.studies.section import Section

PAGE = "report.html"


def write_report(folder: Path, out: Path, baseline: str = "drf") -> list[Section]:
    """Draw what a sweep's finished cells show, and return it.

    Args:
        folder: Of the sweep's results.
        out: Where the page and the folder `figures` go.
        baseline: The policy that others are held against in who gains and who loses.

    Raises:
        ResultsError: the folder holds no results.
        OSError: a file cannot be written.
    """
    title, results = read_results(folder)
    sections = [
        *sdrf_findings.sections(results),
        *tsf_findings.sections(results),
        *gains.sections(results, baseline),
    ]
    figures = save(((s.name, s.figure) for s in sections if s.figure is not None), out / "figures")
    part = out / f"{PAGE}.part"
    part.write_text(render(title, sections, figures), encoding="utf-8")
    part.replace(out / PAGE)
    return sections
