"""Section marks (§) in the sources refer to sections of the page on Mesos's semantics."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "mesos-semantics.md").read_text()
FOLDERS = ("allocator/cluster", "frameworks/local_mesos", "tests/cluster", "deploy/module")


def section_marks() -> Iterator[tuple[str, str]]:
    """Yield each section mark with its file, except marks of the papers."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".cc", ".hpp"}:
                for line in path.read_text(encoding="utf-8").splitlines():
                    for mark in re.findall(r"§(\d(?:\.\d+)?)", line):
                        if "paper" not in line:
                            yield path.relative_to(ROOT).as_posix(), mark


def test_every_section_mark_names_a_section_of_the_page() -> None:
    sections = set(re.findall(r"^#+ (\d(?:\.\d+)?)\.? ", PAGE, re.MULTILINE))
    marks = list(section_marks())
    assert len(marks) > 20
    assert [mark for mark in marks if mark[1] not in sections] == []
