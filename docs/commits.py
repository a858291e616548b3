"""The table of docs/lab/over-commits.md: figures of the commits in the repository's history."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MARK = "<!-- counts and ratios over commits -->"
PYTHON = "3.11"
_COLUMNS = 8
"""Number of commits in a table: the newest commits and the first commit."""


def add_table(app: Sphinx, page: str, source: list[str]) -> None:
    """Insert the table of commits into the page with the mark."""
    if MARK in source[0]:  # the history takes git seconds
        source[0] = source[0].replace(MARK, table(app.confdir.parent))


def setup(app: Sphinx) -> None:
    """Connect `add_table` to the build."""
    app.connect("source-read", add_table)


@dataclass(frozen=True)
class Commit:
    """A commit with a change of a file, and the figures from the commit on."""

    name: str
    day: str
    figures: dict[str, float]


def commits(root: Path) -> list[Commit]:
    """Return the commits with changed figures, oldest first; empty without a history."""
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
