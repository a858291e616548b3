"""The command `longshare figure`."""

import json
import re
from pathlib import Path

import pytest

from allocator.cli import figure
from allocator.figures.catalogue import FIGURES
from tests.forks import longshare

ROOT = Path(__file__).parents[2]


def test_a_figure_is_written_as_picture_and_json(tmp_path: Path) -> None:
    completed = longshare("figure", "thesis-2.6", "--out", str(tmp_path), "--json")
    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout)
    assert report["rows"][0] == ["A", 4.0, 160.0, 3.0, 120.0, 2 / 3]
    assert Path(report["picture"]).exists()


def test_an_unknown_figure_lists_the_known_figures() -> None:
    completed = longshare("figure", "sdrf-9")
    assert completed.returncode == 2
    assert "sprayer" in completed.stderr


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_named_in_help_and_made_by_make_reproduce(name: str) -> None:
    assert name in str(figure.figure.__annotations__["name"].__metadata__[0].help)
    recipe = (ROOT / "Makefile").read_text().partition("\nreproduce:")[2].partition("\n\n")[0]
    assert name in re.findall(r"[\w.-]+", recipe)
