"""Pages for contributors name existing files, and names that these files define."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs/explanation").glob("*.md")),
    *sorted((ROOT / "docs/contributing").glob("*.md")),
]
FOLDERS = (
    "",
    "allocator",
    "allocator/cluster",
    "allocator/fairness/policies",
    "allocator/service",
    "allocator/service/show",
    "allocator/simulation",
    "tests",
)
"""Folders that paths on these pages are relative to."""
_GENERATED = re.compile(r"<!-- table:.*?<!-- end -->", re.DOTALL)
_PATH = r"`([\w.-]+(?:/[\w.-]+)*\.(?:cc|csv|json|proto|py|toml|yml))`"
_DEFINED = re.compile(rf"((?:`[\w.]+`(?:,\s|\sand\s)?)+)\s(?:\(|in\s){_PATH}")


def text(page: Path) -> str:
    return _GENERATED.sub("", page.read_text(encoding="utf-8"))


def located(path: str) -> list[Path]:
    return [ROOT / folder / path for folder in FOLDERS if (ROOT / folder / path).is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_file_that_a_page_names_with_its_folder_exists(page: Path) -> None:
    named = {path for path in re.findall(_PATH, text(page)) if "/" in path and "NAME" not in path}
    assert {path for path in named if not located(path)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_name_that_a_page_places_in_a_module_is_defined_there(page: Path) -> None:
    for names, path in _DEFINED.findall(text(page)):
        sources = [file.read_text(encoding="utf-8") for file in located(path)]
        for name in re.findall(r"`[\w.]*?(\w+)`", names):
            defined = re.compile(rf"^\s*(?:(?:class|def) {name}\b|{name}\b.* =)", re.MULTILINE)
            assert any(defined.search(source) for source in sources), f"{name} in {path}"
