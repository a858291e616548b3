"""tests/index.md indexes every test folder, and names existing files."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
INDEX = (TESTS / "index.md").read_text(encoding="utf-8").partition("\n- ")[2]
PATHS = sorted(set(re.findall(r"`([\w/.]+)`", INDEX)))


@pytest.mark.parametrize("path", PATHS)
def test_every_path_in_the_index_of_tests_exists(path: str) -> None:
    assert (TESTS / path).exists()


def test_the_index_names_every_folder_with_tests() -> None:
    folders = {file.parent.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py")}
    named = {(path if (TESTS / path).is_dir() else Path(path).parent.as_posix()) for path in PATHS}
    assert folders - named == set()


def test_the_index_names_every_file_with_tests_of_the_allocation() -> None:
    files = {
        file.relative_to(TESTS).as_posix()
        for folder in ("cluster", "fairness")
        for file in (TESTS / folder).rglob("test_*.py")
    }
    assert files - set(PATHS) == set()
