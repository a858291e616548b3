"""A written file is either complete or unchanged, and nothing except files is ever replaced."""

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from allocator.files import csv_cell, whole


def test_a_file_is_unchanged_until_the_new_one_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")
    with whole(file) as part:
        part.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_the_former_file(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")

    def fail() -> None:
        with whole(file) as part:
            part.write_text("half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_and_a_pipe_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole(pipe) as part:
            part.write_text("through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with whole(Path("/dev/null")) as part:
        assert part == Path("/dev/null")


def test_a_link_is_kept_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "link", tmp_path / "there" / "page.html"
    link.symlink_to(file)
    with whole(link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert file.read_text() == "new"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("'=1", "''=1"),
        ("team=1", "team=1"),
        ("", ""),
    ],
)
def test_a_name_is_no_formula_in_a_csv_file(name: str, cell: str) -> None:
    assert csv_cell(name) == cell


def test_a_full_disk_is_named_with_the_file_and_leaves_the_former_file(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")

    def fill() -> None:
        with whole(file) as part:
            part.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as `write` raises it

    with pytest.raises(OSError, match=re.escape(str(file))) as caught:
        fill()
    assert caught.value.errno == errno.ENOSPC
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]
    with (
        pytest.raises(OSError, match="/dev/full"),
        whole(Path("/dev/full")) as part,
        part.open("w", encoding="utf-8") as stream,
    ):
        stream.write("x")
