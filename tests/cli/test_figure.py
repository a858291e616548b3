"""`longshare figure` at the prompt."""

import json
from pathlib import Path

from tests.cli.test_commands import longshare


def test_a_figure_is_a_picture_a_table_and_json(tmp_path: Path) -> None:
    told = longshare("figure", "thesis-2.6", "--out", str(tmp_path), "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["rows"][0] == ["A", 4.0, 160.0, 3.0, 120.0, 2 / 3]
    assert Path(found["picture"]).exists()


def test_a_figure_that_is_not_there_names_those_that_are() -> None:
    told = longshare("figure", "sdrf-9")
    assert told.returncode == 2
    assert "sprayer" in told.stderr
