"""The documentation as a site: `make docs` writes build/site. Every warning ends the build."""

import itertools
import posixpath
import sys
import tomllib
from pathlib import Path
from string import Template
from typing import Any

import nbformat
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

from docs.notebook import markdown  # noqa: E402 - from the folder above

project = "Longshare"
release = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]
version = release.rpartition(".")[0]

extensions = ["commits", "myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["theme"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
default_role = "code"
add_module_names = False
smartquotes = False  # it would turn the two hyphens of an option into a dash
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"Longshare {version}"
html_static_path = ["theme/site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_use_index = False
templates_path = ["theme"]

SHELVES = {
    "Tutorials": ["tutorials/first-hour", "tutorials/operators-day", "tutorials/*"],
    "How-to guides": [
        "how-to/install",
        "how-to/install-the-module",
        "how-to/operate",
        "how-to/run-with-slurm",
        "how-to/troubleshoot",
        "how-to/secure",
        "how-to/account",
        "how-to/choose-a-policy",
        "how-to/choose-a-half-life",
        "how-to/simulate",
        "how-to/prepare-a-trace",
        "how-to/replay",
        "how-to/run-studies",
        "how-to/use-from-python",
        "how-to/write-a-framework",
        "how-to/*",
    ],
    "Notebooks": ["notebooks/*"],
    "Reference": ["glossary", "reference/configuration", "reference/*"],
    "Explanation": [
        "explanation/fairness",
        "explanation/security-model",
        "explanation/architecture",
        "explanation/*",
    ],
    "Contributing": ["contributing/development", "contributing/recipes", "contributing/*"],
    "Research": ["research/reproduction", "research/*"],
}
"""The sidebar. A page without a line of its own comes at the end of its folder's shelf."""

MOVED = {
    "accounting": "how-to/account",
    "advice": "how-to/choose-a-half-life",
    "alerts": "reference/alerts",
    "api": "how-to/use-from-python",
    "architecture": "explanation/architecture",
    "benchmarks": "lab/benchmarks",
    "configuration": "reference/configuration",
    "contributing/former-names": "lab/former-names",
    "deploy": "how-to/install",
    "development": "contributing/development",
    "errata": "research/errata",
    "experiments": "research/experiments",
    "fast-path": "explanation/fast-path",
    "field-reports": "lab/field-reports",
    "figures": "research/figures",
    "first-hour": "tutorials/first-hour",
    "former-names": "lab/former-names",
    "framework-authors": "how-to/write-a-framework",
    "games": "research/games",
    "how-to/run-beside-slurm": "how-to/run-with-slurm",
    "mesos-semantics": "explanation/mesos-semantics",
    "module": "how-to/install-the-module",
    "operations": "how-to/operate",
    "operators-day": "tutorials/operators-day",
    "optimum": "research/optimum",
    "over-commits": "lab/over-commits",
    "own-policy": "tutorials/first-policy",
    "policies": "reference/policies",
    "properties": "research/properties",
    "reference": "reference/api",
    "replay": "how-to/replay",
    "reproduce": "research/reproduction",
    "rivals": "research/other-schedulers",
    "security": "how-to/secure",
    "simulation": "how-to/simulate",
    "slips": "how-to/correct-a-framework",
    "studies": "how-to/run-studies",
    "traces": "how-to/prepare-a-trace",
    "track-record": "lab/track-record",
    "troubleshooting": "how-to/troubleshoot",
    "world": "contributing/world",
}
"""Former addresses of pages, and their present addresses."""


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the tables of contents to the first page, and the lab's to the lab's first page."""
    if page == app.config.root_doc:
        for shelf, pages in SHELVES.items():
            source[0] += _contents(pages, f":caption: {shelf}\n:hidden:")
    elif page == "lab/index":
        source[0] = f"---\norphan: true\n---\n{source[0]}" + _contents(["*"], ":titlesonly:")


_SENTENCE = 25
"""Characters in a cell of a table of sentences; shorter cells are numbers or words."""
_IDENTIFIER = 20
"""Characters of an identifier that leaves no space for a second column on a phone."""


def mark_tables(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    """Prepare wide tables for phones, on which `site.css` shows each row as a card.

    A table of sentences has a long cell, and three columns or long identifiers. Its cells get their
    headings, and roles, because a card is no table for browsers.
    """
    if "<table" not in context.get("body", ""):
        return
    body = BeautifulSoup(context["body"], "html.parser")
    for table in body.select("table.docutils"):
        headings = [cell.get_text(" ", strip=True) for cell in table.select("thead th")]
        cells = [(cell, cell.get_text(" ", strip=True)) for cell in table.select("td")]
        identifiers = [text for _, text in cells[:: len(headings) or 1]]
        is_wide = len(headings) > 2 or max(map(len, identifiers), default=0) > _IDENTIFIER
        if is_wide and max((len(text) for _, text in cells), default=0) > _SENTENCE:
            table["class"] = f"docutils sentences {' '.join(table.get_attribute_list('class'))}"
            table["role"] = "table"
            for tags, role in _ROLES.items():
                for part in table.select(tags):
                    part["role"] = role
            for (cell, text), heading in zip(cells, itertools.cycle(headings), strict=False):
                if heading and text and len(headings) > 2:
                    cell["data-heading"] = heading
    context["body"] = str(body)


_ROLES = {
    "thead, tbody": "rowgroup",
    "tr": "row",
    "th": "columnheader",
    "td": "cell",
}
"""Roles of the parts of a table, by selector."""


def read_notebook(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn a notebook into Markdown."""
    if app.env.doc2path(page).suffix == ".ipynb":
        source[0] = markdown(nbformat.reads(source[0], as_version=4), posixpath.basename(page))


def _contents(pages: list[str], options: str) -> str:
    return "\n".join(["\n```{toctree}", ":glob:", options, "", *pages, "```\n"])


def add_redirects(app: Sphinx, exception: Exception | None) -> None:
    """Write a page at each address of `MOVED`, which leads a browser to the new address."""
    page = Template((DOCS / "theme" / "moved.html").read_text("utf-8"))
    for old, new in MOVED.items():
        address = posixpath.relpath(f"{new}.html", posixpath.dirname(old))
        (app.outdir / f"{old}.html").write_text(page.substitute(address=address), "utf-8")


class Docstring(GoogleDocstring):
    """A docstring with prose in the section Returns, where a colon ends no type."""

    def _consume_returns_section(
        self,
        preprocess_types: bool = False,  # noqa: ARG002, FBT001, FBT002 - as Sphinx calls it
    ) -> list[tuple[str, str, list[str]]]:
        return [("", "", self._dedent(self._consume_to_next_section()))]


def read_sections(  # noqa: PLR0913, PLR0917 - as Sphinx calls it
    app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Turn the sections Args, Returns and Raises of a docstring into fields."""
    if kind not in {"attribute", "property"}:
        lines[:] = Docstring(lines).lines()


def setup(app: Sphinx) -> None:
    """Connect the functions above to the build."""
    app.connect("source-read", add_navigation)
    app.connect("source-read", read_notebook)
    app.connect("html-page-context", mark_tables)
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("build-finished", add_redirects)
