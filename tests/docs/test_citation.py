"""CITATION.cff describes the present version, with the papers that the pages cite."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^version: (.+)$", CITATION, re.MULTILINE) == [project["version"]]


def test_the_citation_has_a_date_exactly_if_the_version_is_released() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    assert newest
    released = re.findall(r" \((\d{4}-\d\d-\d\d)\)$", newest[1])
    assert re.findall(r"^date-released: (.+)$", CITATION, re.MULTILINE) == released


def test_the_page_on_fairness_cites_each_paper_of_the_citation() -> None:
    page = " ".join((ROOT / "docs/explanation/fairness.md").read_text(encoding="utf-8").split())
    papers = re.findall(r"^    (?:title|doi|    value): \"?(.+?)\"?$", CITATION, re.MULTILINE)
    assert len(papers) == 7  # four titles, two DOIs, and a number of arXiv
    assert [paper for paper in papers if paper not in page] == []
