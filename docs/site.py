"""Build a site from these pages.

Files outside docs/ are copied if a page links to them. The page Reference is made of the public
API, and the figures in docs/lab/over-commits.md come from the repository's history.
"""

import json
import re
import runpy
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_BEYOND = re.compile(
    r"\]\(((?:\.\./)+)(?!tutorials/|how-to/|reference/|explanation/|contributing/|research/|lab/|img/|notebooks/)([^)#]+)"
)
MARK = "<!-- counts and ratios over commits -->"
PYTHON = "3.11"
_COLUMNS = 8
"""Number of commits in a table: the newest commits and the first commit."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each file of the repository that a page links to, and the page Reference.

    Raises:
        FileNotFoundError: A linked file does not exist.
    """
    root = Path(config.docs_dir).parent
    for page in files.documentation_pages():
        for path in _BEYOND.findall(page.content_string):
            if not (root / path).is_file():
                raise FileNotFoundError(f"{page.src_uri}: there is no {path} in the repository")
            uri = f"repository/{path}"
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(root / path)))
    reference = runpy.run_path(str(Path(__file__).parent / "reference.py"))
    files.append(File.generated(config, "reference/api.md", content=reference["page"]()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the copied files; insert the table of commits into its page."""
    if MARK in markdown:
        markdown = markdown.replace(MARK, table(Path(config.docs_dir).parent))
    return _BEYOND.sub(r"](repository/\1", markdown)


@dataclass(frozen=True)
class Commit:
    """A commit that changed one of the files, and the figures from then on."""

    name: str
    day: str
    figures: dict[str, float]


def commits(root: Path) -> list[Commit]:
    """Return the commits that changed figures, oldest first; empty without a history."""
    files = ("bench/counts.json", "bench/ratios.json")
    log = _git(root, "log", "--reverse", "--format=%h %cs", "--", *files)
    distinct: list[Commit] = []
    for line in log.splitlines():
        name, day = line.split()
        counts = _held(root, name, files[0]).get(PYTHON, {})
        figures = {**counts, **_held(root, name, files[1])}
        if not distinct or figures != distinct[-1].figures:
            distinct.append(Commit(name, day, figures))
    return distinct


def _git(root: Path, *arguments: str) -> str:
    """Return git's output, or an empty string if git fails."""
    try:
        done = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607 - whichever git there is
            cwd=root,
            check=False,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return ""
    return done.stdout


def _held(root: Path, commit: str, file: str) -> dict[str, Any]:
    """Return the contents of a file at a commit; empty if the file did not exist."""
    held: dict[str, Any] = json.loads(_git(root, "show", f"{commit}:{file}") or "{}")
    return held


def table(root: Path) -> str:
    """Return a table: a row a figure, a column a commit."""
    history = commits(root)
    if not history:
        return "*This copy of the documentation was made without the history of the repository.*"
    shown = history if len(history) <= _COLUMNS else [history[0], *history[1 - _COLUMNS :]]
    rows = [
        ["", *(f"`{commit.name}` {commit.day}" for commit in shown)],
        ["---", *("--:" for _ in shown)],
    ]
    for name in dict.fromkeys(name for commit in reversed(shown) for name in commit.figures):
        figures = (commit.figures.get(name) for commit in shown)
        rows.append([name, *("" if figure is None else f"{figure:,}" for figure in figures)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
