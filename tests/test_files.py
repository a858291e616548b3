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
        assert part.samefile("/dev/null")


def test_a_link_is_kept_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "link", tmp_path / "there" / "page.html"
    link.symlink_to(file)
    with whole(link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_a_link_that_appears_during_a_write_leads_to_no_file(tmp_path: Path) -> None:
    private = tmp_path / "thesis"
    private.write_text("own")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / f"page.html.{os.getpid()}.part").symlink_to(private)
    with whole(folder / "page.html") as part:
        for name in list(folder.iterdir()):  # a user who may write the folder exchanges its names
            name.rename(f"{name}-away")
            name.symlink_to(tmp_path)
        part.write_text("new")
        (folder / "page.html").symlink_to(private)
    assert private.read_text() == "own"
    assert (folder / "page.html").read_text() == "new"
    assert not (folder / "page.html").is_symlink()


def test_a_pipe_that_becomes_a_link_leads_to_no_file(tmp_path: Path) -> None:
    private, pipe = tmp_path / "thesis", tmp_path / "pipe"
    private.write_text("own")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole(pipe) as part:
            pipe.unlink()
            pipe.symlink_to(private)
            part.write_text("through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert private.read_text() == "own"


def test_a_link_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, link = tmp_path / "thesis", tmp_path / "page.html"
    private.write_text("own")
    link.symlink_to(private)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    if link.lstat().st_uid == 0:
        os.lchown(link, 4712, -1)
    with pytest.raises(OSError, match="a link of user") as caught, whole(link):
        pass
    assert caught.value.filename == str(link)
    assert private.read_text() == "own"


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
