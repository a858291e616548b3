"""A run ends with its time machine page, and prints the path of the page."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from frameworks.cli import _film
from frameworks.harness import film
from tests.film.reading import film_of

RECORDED = Path(__file__).parents[1] / "service" / "record" / "logs_of_0_1" / "flat-sdrf.log"


def test_the_recording_of_a_run_becomes_a_page_whose_path_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(RECORDED, tmp_path / film.EVENTS)
    _film(tmp_path, None, 1, Console())
    page = tmp_path / film.FILM
    assert f"Time machine: {page} (open it in a browser)" in capsys.readouterr().out
    assert film_of(page.read_bytes())["about"]["policy"] == "sdrf"


def test_only_runs_with_the_first_seed_of_a_variant_are_filmed(tmp_path: Path) -> None:
    for variant in ("pools-7", "together-7", "pools-8"):
        (tmp_path / variant).mkdir()
        (tmp_path / variant / film.EVENTS).touch()
    names = [recording.parent.name for recording in film.recordings(tmp_path, 7)]
    assert names == ["pools-7", "together-7"]


def test_an_unplayable_recording_loses_only_the_film(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / film.EVENTS).write_text("nothing")
    _film(tmp_path, None, 1, Console())
    assert "No time machine of" in capsys.readouterr().out
    assert not (tmp_path / film.FILM).exists()
