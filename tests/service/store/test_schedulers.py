"""Services for Mesos and for Slurm refuse each other's stores."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.service.scheduler_commands import Scheduler
from allocator.service.store import StoreError
from allocator.service.store.rows import StoreRows
from allocator.service.store.sqlite import SqliteStore, require_usable
from allocator.service.store.zookeeper import decode_node, encode_node
from allocator.users.memory import Memory, OccupiedPlaces, RememberedUser
from tests.service.served import PATIENCE
from tests.service.stored import memory, whole

OTHER: dict[Scheduler, Scheduler] = {"mesos": "slurm", "slurm": "mesos"}


def save_in(file: Path, scheduler: Scheduler | None, kept: Memory) -> Memory:
    with closing(SqliteStore(file, scheduler)) as store:
        store.save(whole(kept))
    return kept


def save_in_node(scheduler: Scheduler | None, kept: Memory) -> bytes:
    rows = StoreRows(scheduler)
    for _ in rows.take(whole(kept)):
        pass
    return encode_node(rows, b"w" * 16)


def require_node_of(node: bytes, scheduler: Scheduler, kept: Memory) -> None:
    """Check that a ZooKeeper node is read for its scheduler only."""
    assert decode_node(node, scheduler) == kept
    with pytest.raises(StoreError, match=f"commitments of {scheduler.capitalize()}'s users"):
        decode_node(node, OTHER[scheduler])


@pytest.mark.parametrize("scheduler", OTHER)
def test_a_store_of_another_scheduler_is_refused_and_stays_unchanged(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    file = tmp_path / "commitments.sqlite"
    kept = save_in(file, scheduler, memory())
    before = file.read_bytes()
    expected = rf"commitments.sqlite: contains commitments of {scheduler.capitalize()}'s users.*set"
    for set_aside in (False, True):
        with pytest.raises(StoreError, match=expected):
            SqliteStore(file, OTHER[scheduler], set_aside=set_aside)
    assert file.read_bytes() == before
    with closing(SqliteStore(file, scheduler)) as store:
        assert store.load() == kept
    require_node_of(save_in_node(scheduler, kept), scheduler, kept)


@pytest.mark.parametrize("scheduler", OTHER)
def test_an_empty_store_states_its_scheduler(tmp_path: Path, scheduler: Scheduler) -> None:
    file = tmp_path / "commitments.sqlite"
    save_in(file, scheduler, Memory(5.0, {}))
    with pytest.raises(StoreError, match=scheduler.capitalize()):
        SqliteStore(file, OTHER[scheduler])


def of_places(kept: Memory) -> Memory:
    return replace(kept, places={"0123456789abcdef": OccupiedPlaces(7)})


def with_use_of(*names: str) -> Callable[[Memory], Memory]:
    user = RememberedUser(dict.fromkeys(names, 0.25), {"cpus": 0.5})
    return lambda kept: replace(kept, users={**kept.users, "b": user})


@pytest.mark.parametrize(
    ("change", "scheduler"),
    [
        (of_places, "mesos"),
        (with_use_of("disk"), "mesos"),
        (with_use_of("gres/gpu", "disk"), "mesos"),
        (with_use_of("gres/shard"), "slurm"),
        (with_use_of("tasks"), "slurm"),
    ],
)
def test_a_store_of_a_former_version_opens_for_its_own_scheduler_only(
    tmp_path: Path, change: Callable[[Memory], Memory], scheduler: Scheduler
) -> None:
    file = tmp_path / "commitments.sqlite"
    kept = save_in(file, None, change(memory()))
    with pytest.raises(StoreError, match=f"commitments of {scheduler.capitalize()}'s users"):
        SqliteStore(file, OTHER[scheduler])
    require_node_of(save_in_node(None, kept), scheduler, kept)
    with closing(SqliteStore(file, scheduler)) as store:
        assert store.load() == kept


@pytest.mark.parametrize("scheduler", OTHER)
def test_a_store_of_a_former_version_that_both_could_have_written_opens_for_both(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    file = tmp_path / "commitments.sqlite"
    kept = save_in(file, None, memory())
    save_in(file, scheduler, kept)
    with pytest.raises(StoreError, match="set another path or znode"):
        SqliteStore(file, OTHER[scheduler])


@pytest.mark.parametrize("scheduler", OTHER)
def test_the_command_names_the_store_of_another_scheduler_and_ends(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    file, config = tmp_path / "commitments.sqlite", tmp_path / "longshare.toml"
    save_in(file, OTHER[scheduler], memory())
    config.write_text(
        f'[store]\npath = "{file}"\n[listen]\naddress = "unix://{tmp_path}/socket"\n'
        '[metrics]\naddress = "127.0.0.1:0"\n[accounting]\ndatabase = "none"\n'
    )
    command = ["serve"] if scheduler == "mesos" else ["slurm", "serve"]
    before = sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir())
    for options in ([], ["--check"]):
        ended = subprocess.run(
            [sys.executable, "-m", "allocator.cli", *command, "--config", str(config), *options],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
        expected = f"store: {file}: contains commitments of {OTHER[scheduler].capitalize()}"
        assert expected in ended.stderr
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir()) == before


def test_a_check_accepts_a_store_of_its_own_scheduler_and_a_store_that_is_being_written(
    tmp_path: Path,
) -> None:
    file = tmp_path / "commitments.sqlite"
    require_usable(file, "mesos")  # the service creates the file
    save_in(file, "mesos", memory())
    require_usable(file, "mesos")
    content = file.read_bytes()
    file.write_bytes(content[:-10])
    require_usable(file, "mesos")
    file.write_bytes(b"another file")
    with pytest.raises(StoreError, match=r"commitments\.sqlite: not a SQLite file"):
        require_usable(file, "mesos")
