"""A damaged or foreign store is rejected with a reason, or moved away on request."""

import os
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from allocator.service.store import StoreError
from allocator.service.store.sqlite import SqliteStore
from tests.service.served import PATIENCE, Service, service
from tests.service.store.test_store import POLICY, damaged, garbage, saved
from tests.service.stored import memory, whole

SET_ASIDE = f'{POLICY}[store]\non_damage = "set aside"\npath = '


def test_a_pipe_is_rejected_at_once(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    os.mkfifo(file)
    with pytest.raises(StoreError, match=r"commitments.sqlite: not a plain file"):
        SqliteStore(file)


def test_a_folder_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    file.mkdir()
    with pytest.raises(StoreError, match=r"commitments.sqlite: Is a directory"):
        SqliteStore(file)


@contextmanager
def as_somebody() -> Iterator[Path]:
    """Yield a folder while the process has the rights of an unprivileged user."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)
            Path(folder).chmod(0o755)


@pytest.mark.parametrize("what", ["the file", "its folder"])
def test_a_store_without_write_permission_is_rejected_at_the_start(what: str) -> None:
    with as_somebody() as folder:
        file = folder / "commitments.sqlite"
        saved(file)
        file.chmod(0o444 if what == "the file" else 0o666)
        folder.chmod(0o777 if what == "the file" else 0o555)
        if os.geteuid() == 0:
            os.seteuid(65534)
        with pytest.raises(StoreError, match=r"commitments.sqlite: Permission denied"):
            SqliteStore(file)


def test_random_damage_is_reported_with_the_file_name(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    saved(file)
    sound = file.read_bytes()
    chance = random.Random(5)
    reported = 0
    for _ in range(60):
        content = bytearray(sound)
        for _ in range(chance.choice([1, 1, 20])):
            content[chance.randrange(100, len(content))] = chance.choice([0xFF, 0x80, 0])
        file.write_bytes(content)
        try:
            store = SqliteStore(file)
        except StoreError as error:
            reported += str(error).startswith(f"{file}: ")
            continue
        with closing(store):
            assert store.load() == memory(users=200), "undetected damage changes no data"
            reported += 1
    assert reported == 60


def test_text_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    saved(file)
    file.write_bytes(file.read_bytes().replace(b"CREATE TABLE users", b"CREATE TABLE \xff\xfesers"))
    with pytest.raises(StoreError, match=r"commitments.sqlite: damaged"):
        SqliteStore(file)
    file.unlink()
    saved(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE memory SET data = CAST(x'ff80' AS TEXT)")
    with pytest.raises(StoreError, match=r"commitments.sqlite: damaged"):
        SqliteStore(file)


def test_a_damaged_store_is_moved_away_if_configured(tmp_path: Path) -> None:
    file, aside = tmp_path / "state.sqlite", tmp_path / "state.sqlite.damaged-1"
    damaged(file)
    content = file.read_bytes()
    with service(tmp_path, f'{SET_ASIDE}"{file}"\n') as running:
        log_text = running.log.read_text()
        assert running.stop() == 0
    assert aside.read_bytes() == content
    assert "a damaged store has been set aside" in log_text
    assert str(aside) in log_text
    damaged(file)
    with closing(SqliteStore(file, set_aside=True)) as store:
        assert store.load() is None
        with pytest.raises(StoreError, match="in use by another service"):
            SqliteStore(file)
        store.save(whole(memory()))
    assert (tmp_path / "state.sqlite.damaged-2").exists(), "a second damaged store gets a new name"


def test_a_file_of_another_program_is_never_moved_away(tmp_path: Path) -> None:
    file = tmp_path / "commitments.sqlite"
    garbage(file)
    content = file.read_bytes()
    refused = Service(tmp_path, f'{SET_ASIDE}"{file}"\n')
    assert refused.process.wait(PATIENCE) == 2
    assert "not a SQLite file" in refused.log.read_text()
    assert file.read_bytes() == content
