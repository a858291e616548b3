"""A written file is either complete or unchanged, and nothing except files is ever replaced."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from allocator.files import csv_cell, open_folder, private_folder, whole
from tests.exchanged import exchange_new_folders


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


@pytest.mark.parametrize("kind", ["link", "of another user", "writable", "in use"])
def test_a_folder_that_is_exchanged_before_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The test exchanges the folder as another user can who may write `shared`."""
    if kind == "of another user" and os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    private, shared, replacement = (tmp_path / name for name in ("thesis", "shared", "other"))
    private.write_text("own")
    replacement.mkdir(mode=0o700)
    if kind == "of another user":
        os.chown(replacement, 4711, -1)
    if kind in {"link", "in use"}:
        (replacement / "page.html").hardlink_to(private)
    if kind == "writable":
        replacement.chmod(0o777)
    shared.mkdir()
    shared.chmod(0o2775)
    exchange_new_folders(shared, replacement, monkeypatch, link=kind == "link")
    refused = pytest.raises(OSError, match=r"exchanged|Not a directory")
    with refused as caught, whole(shared / "page.html") as part:
        part.write_text("new")
    assert caught.value.filename == str(shared / "page.html")
    assert private.read_text() == "own"
    assert not (shared / "page.html").exists()


def test_a_link_that_is_exchanged_after_its_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, link = tmp_path / "thesis", tmp_path / "link"
    private.write_text("own")
    link.symlink_to(tmp_path / "page.html")
    readlink = os.readlink

    def exchange_and_read(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        link.unlink()
        link.symlink_to(private)
        return readlink(*arguments, **named)

    monkeypatch.setattr(os, "readlink", exchange_and_read)
    with whole(link) as part:
        part.write_text("new")
    assert private.read_text() == "own"
    assert (tmp_path / "page.html").read_text() == "new"


def test_a_private_folder_needs_no_modes_where_no_other_user_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems keep no modes; each folder has the mode 755."""
    mkdir = os.mkdir
    monkeypatch.setattr(os, "mkdir", lambda path, _mode, **named: mkdir(path, 0o755, **named))
    with whole(tmp_path / "page.html") as part:
        part.write_text("new")
    assert (tmp_path / "page.html").read_text() == "new"


def test_a_private_folder_is_deleted_with_its_content_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "thesis").write_text("own")
    with open_folder(tmp_path) as parent, private_folder(parent) as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        (folder.path / "copy").mkdir()
        (folder.path / "copy" / "column").write_text("1")
        (folder.path / "note").write_text("2")
        (tmp_path / folder.name).rename(tmp_path / "away")
        (tmp_path / "others").rename(tmp_path / folder.name)
    assert (tmp_path / folder.name / "thesis").read_text() == "own"
    assert not list((tmp_path / "away").iterdir())


def test_a_link_of_the_process_leads_to_its_pipe_or_replaces_its_file(tmp_path: Path) -> None:
    """/dev/stdout is a link of the process."""
    reader, writer = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{writer}")
    with whole(tmp_path / "link") as part:
        part.write_text("through")
    os.close(writer)
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    with (
        (tmp_path / "file").open("w", encoding="utf-8") as file,
        whole(Path(f"/proc/self/fd/{file.fileno()}")) as part,
    ):
        part.write_text("new")
    assert (tmp_path / "file").read_text() == "new"


def test_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="Too many") as caught, whole(tmp_path / "one"):
        pass
    assert caught.value.filename == str(tmp_path / "one")


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


@pytest.mark.parametrize("kind", ["file", "pipe", "device", "missing", "link"])
def test_a_link_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target, link = tmp_path / "thesis", tmp_path / "page.html"
    if kind in {"file", "link"}:
        target.write_text("own")
    if kind == "pipe":
        os.mkfifo(target)
    link.symlink_to("/dev/null" if kind == "device" else target)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    if link.lstat().st_uid == 0:
        os.lchown(link, 4712, -1)
    path = link
    if kind == "link":  # the user's own link leads to the link of another user
        path = tmp_path / "own"
        path.symlink_to(link)
        os.lchown(path, 4711, -1) if path.lstat().st_uid == 0 else None
    with pytest.raises(OSError, match="a link of user") as caught, whole(path):
        pass
    assert caught.value.filename == str(path)
    assert kind not in {"file", "link"} or target.read_text() == "own"


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
