"""CITATION.cff describes the present version, with the papers that the pages cite."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^version: (.+)$", CITATION, re.MULTILINE) == [project["version"]]


def test_the_page_on_fairness_cites_each_paper_of_the_citation() -> None:
    page = (ROOT / "docs/explanation/fairness.md").read_text(encoding="utf-8")
    papers = re.findall(r"^    doi: (.+)$", CITATION, re.MULTILINE)
    assert len(papers) == 2
    assert [paper for paper in papers if paper not in page] == []
