"""A service's files are distinct if written, private if secret, and never block a start."""

import grp
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from allocator import files
from allocator.files import require_own_folder
from allocator.service.config import ConfigError, load
from allocator.service.store.sqlite import SqliteStore
from tests.forks import Longshare, longshare
from tests.service.served import PATIENCE

ROOT = Path(__file__).parents[2]
TLS = '[listen]\naddress = "127.0.0.1:5060"\n[listen.tls]\ncertificate = "{0}/c"\nkey = "{0}/k"\n'


def check(folder: Path, text: str, *, record: str | None = None) -> str:
    """Return the error about the files that a configuration names, or an empty string."""
    config = folder / "longshare.toml"
    config.write_text(text.format(folder))
    try:
        load(config).require_files(config, None if record is None else folder / record)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("text", "record", "names"),
    [
        ('[store]\npath = "{0}/longshare.toml"\n', None, ("store.path", "--config")),
        ('[recorder]\nfile = "{0}/longshare.toml"\n', None, ("recorder.file", "--config")),
        ("", "longshare.toml", ("--record", "--config")),
        ('[store]\npath = "{0}/s"\n[recorder]\nfile = "{0}/s"\n', None, ("recorder", "store")),
        ('[store]\npath = "{0}/s"\n[recorder]\nfile = "{0}/s-wal"\n', None, ("recorder", "store")),
        ('[store]\npath = "{0}/s"\n[recorder]\nfile = "{0}/l"\n', None, ("recorder", "store")),
        ('[store]\npath = "{0}/s"\n[recorder]\nfile = "{0}/h"\n', None, ("recorder", "store")),
        ('[store]\npath = "{0}/s"\n', "x/../s", ("--record", "store.path")),
        ('[store]\npath = "{0}/s"\n[accounting]\ndatabase = "{0}/s"\n', None, ("acc", "store")),
        ('[store]\npath = "{0}/accounting.sqlite"\n', None, ("accounting.database", "store")),
        (TLS + '[recorder]\nfile = "{0}/k"\n', None, ("recorder.file", "listen.tls.key")),
        ('[listen]\naddress = "unix://{0}/s"\n[recorder]\nfile = "{0}/s"\n', None, ("recor", "li")),
    ],
)
def test_a_shared_path_is_refused_if_the_service_writes_to_it(
    tmp_path: Path, text: str, record: str | None, names: tuple[str, str]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "s").touch()
    (tmp_path / "l").symlink_to(tmp_path / "s")
    os.link(tmp_path / "s", tmp_path / "h")
    complaint = check(tmp_path, text, record=record)
    assert all(name in complaint for name in names), complaint
    assert "give each a path of its own" in complaint


def test_a_file_that_is_only_read_may_be_named_twice(tmp_path: Path) -> None:
    assert not check(tmp_path, TLS.replace("{0}/c", "{0}/k"))
    assert not check(tmp_path, '[store]\npath = "{0}/s"\n[recorder]\nfile = "/dev/null"\n')


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('[store]\nkind = "zookeeper"\nhosts = "a:1"\ncredentials = "{0}/k"\n', "k"),
        (TLS, "k"),
        ('[accounting]\ndatabase = "postgresql://me:pass@host/db"\n', "longshare.toml"),
    ],
)
def test_a_world_readable_secret_is_refused(tmp_path: Path, text: str, secret: str) -> None:
    (tmp_path / "longshare.toml").touch()
    (tmp_path / "k").write_text("user:pass\n")
    for mode, refused in ((0o644, True), (0o604, True), (0o640, False), (0o600, False)):
        (tmp_path / secret).chmod(mode)
        complaint = check(tmp_path, text)
        assert (f"chmod o-rwx {tmp_path}/{secret}" in complaint) == refused, (oct(mode), complaint)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('[recorder]\nfile = "{0}/pipe"\n', []),
        ("", ["--record", "{0}/pipe"]),
        (TLS.replace("{0}/k", "{0}/pipe"), []),
        (TLS.replace("{0}/c", "{0}/pipe"), []),
        ('[policy]\nname = "mine"\nfile = "{0}/pipe"\n', []),
        ('[[shadow]]\nname = "mine"\nfile = "{0}/pipe"\n', []),
        ('[store]\nkind = "zookeeper"\nhosts = "a:1"\ncredentials = "{0}/pipe"\n', []),
        (None, []),
    ],
)
def test_a_pipe_is_refused_without_waiting(
    tmp_path: Path, text: str | None, arguments: list[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "k").touch(0o600)
    config, log = tmp_path / "longshare.toml", tmp_path / "log"
    sections = '[metrics]\naddress = "127.0.0.1:0"\n[accounting]\ndatabase = "none"\n'
    sections += "" if "[store]" in str(text) else f'[store]\npath = "{tmp_path}/store"\n'
    if text is None:
        config = tmp_path / "pipe"
    else:
        config.write_text((text + sections).format(tmp_path))
    given = [argument.format(tmp_path) for argument in arguments]
    with log.open("wb") as errors:
        started = Longshare(["serve", "--config", str(config), *given], stderr=errors)
        try:
            assert started.wait(PATIENCE) == 2, log.read_text()
        finally:
            started.kill()
    assert "not a plain file" in log.read_text()


ZOOKEEPER = '[store]\nkind = "zookeeper"\nhosts = "a:1"\ncredentials = "{0}/absent"\n'


def checked(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `longshare serve --check`, which must create no file."""
    config = folder / "longshare.toml"
    store = "" if "[store]" in text else '[store]\npath = "{0}/new/store"\n'
    config.write_text((text + store).format(folder))
    before = sorted(folder.rglob("*"))
    completed = longshare("serve", "--config", str(config), "--check", *arguments)
    assert sorted(folder.rglob("*")) == before
    return completed


@pytest.mark.parametrize(
    ("text", "arguments", "complaints"),
    [
        (
            TLS.replace("{0}/k", "{0}/secret") + 'client_ca = "{0}/a/b"\n',
            (),
            ("listen.tls.certificate: {0}/c: No such file", "listen.tls.client_ca: {0}/a/b: No"),
        ),
        (TLS, (), ("listen.tls.key: {0}/k: No such file", "listen.tls.certificate: {0}/c: No")),
        (ZOOKEEPER, (), ("store.credentials: {0}/absent: No such file",)),
        (ZOOKEEPER.replace("absent", "secret"), (), ("secret does not contain USER:PASSWORD",)),
        (
            '[policy]\nname = "mine"\nfile = "{0}/policy.py"\n',
            (),
            ("policy: {0}/policy.py: No such file",),
        ),
        (
            '[[shadow]]\nname = "mine"\nfile = "{0}/policy.py"\n',
            (),
            ("{0}/policy.py: No such file",),
        ),
        (
            '[store]\npath = "{0}/secret/store"\n',
            (),
            ("store.path: {0}/secret/store: {0}/secret is not", "accounting.database: {0}/secret/"),
        ),
        ('[store]\npath = "{0}/folder"\n', (), ("store.path: {0}/folder: Is a directory",)),
        (
            '[accounting]\ndatabase = "{0}/secret/x/a"\n',
            (),
            ("accounting.database: {0}/secret/x/a: {0}/secret is not a folder",),
        ),
        (
            '[recorder]\nfile = "{0}/secret/x/r.csv"\n',
            (),
            ("recorder.file: {0}/secret/x/r.csv: {0}/secret is not a folder",),
        ),
        ('[recorder]\nfile = "{0}/link"\n', (), ("recorder.file: {0}/link: a symbolic link",)),
        ("", ("--record", "{0}/absent/log"), ("--record: {0}/absent/log: No such file",)),
        (
            '[listen]\naddress = "unix://{0}/absent/s"\noperators = "unix://{0}/secret"\n',
            (),
            (
                "listen.address: {0}/absent/s: No such file",
                "listen.operators: {0}/secret exists and is not a socket",
            ),
        ),
    ],
)
def test_a_check_names_each_file_that_cannot_be_opened(
    tmp_path: Path, text: str, arguments: tuple[str, ...], complaints: tuple[str, ...]
) -> None:
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    given = [argument.format(tmp_path) for argument in arguments]
    completed = checked(tmp_path, text, *given)
    assert (completed.returncode, completed.stdout) == (2, ""), completed.stderr
    for complaint in complaints:
        assert complaint.format(tmp_path) in completed.stderr


def test_a_check_accepts_files_that_exist_or_that_the_service_creates(tmp_path: Path) -> None:
    for name in ("c", "k", "a", "old.csv"):
        (tmp_path / name).touch(0o600)
    SqliteStore(tmp_path / "store").close()
    (tmp_path / "log").write_text("a former log")
    text = TLS.replace("127.0.0.1:5060", "unix://{0}/s") + (
        'client_ca = "{0}/a"\n[store]\npath = "{0}/store"\n'
        '[accounting]\ndatabase = "{0}/new/folder/accounts"\n[recorder]\nfile = "{0}/old.csv"\n'
    )
    completed = checked(tmp_path, text, "--record", str(tmp_path / "log"))
    assert (completed.returncode, completed.stderr) == (0, "")
    assert (tmp_path / "log").read_text() == "a former log"


@pytest.mark.parametrize(
    ("listen", "kept_away"),
    [
        ('address = "127.0.0.1:5060"', {"address": "masters and operators"}),
        (
            'address = "127.0.0.1:5060"\noperators = "[::1]:5061"',
            {"address": "masters", "operators": "operators"},
        ),
        ('address = "127.0.0.1:856"\noperators = "127.0.0.1:5061"', {"operators": "operators"}),
        ('address = "127.0.0.1:856"', {}),
        ('address = "unix://{0}/s"', {}),
    ],
)
def test_a_check_names_each_address_that_any_user_of_the_machine_may_take(
    tmp_path: Path, listen: str, kept_away: dict[str, str]
) -> None:
    completed = checked(tmp_path, f"[listen]\n{listen}\n")
    assert (completed.returncode, completed.stdout) == (0, f"{tmp_path}/longshare.toml: valid\n")
    notes = completed.stderr.splitlines()
    assert len(notes) == len(kept_away), notes
    for note, (name, peers) in zip(notes, kept_away.items(), strict=True):
        assert f"listen.{name}: while the service restarts, any user of this machine may " in note
        assert f"and so keep {peers} away. Use a Unix socket, or a port below 1024" in note


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_check_refuses_files_in_a_folder_that_every_user_can_write(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    text = '[store]\npath = "{0}/shared/store"\n[recorder]\nfile = "{0}/shared/r.csv"\n'
    completed = checked(tmp_path, text, "--record", f"{folder}/log")
    assert completed.returncode == 2
    for complaint in ("store.path", "accounting.database", "recorder.file", "--record"):
        assert f"{complaint}: {folder}/" in completed.stderr
    assert completed.stderr.count(f"every user of this machine can write the folder {folder}") == 4


def test_a_check_refuses_a_store_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, -1)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(OSError, match="could replace the file"):
        require_own_folder(tmp_path / "store")
    for user in (owner, 0):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        require_own_folder(tmp_path / "store")


@pytest.mark.parametrize(
    ("group", "members", "refused"),
    [
        ("longshare", [], False),
        ("longshare", ["longshare"], False),
        ("root", [], False),
        (None, [], False),
        ("longshare", ["longshare", "eve"], True),
        ("staff", [], True),
        ("staff", ["longshare"], True),
    ],
)
def test_a_check_refuses_a_folder_that_a_shared_group_can_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str | None,
    members: list[str],
    *,
    refused: bool,
) -> None:
    def entry(number: int) -> SimpleNamespace:
        assert number == tmp_path.stat().st_gid
        if group is None:
            raise KeyError(number)
        return SimpleNamespace(gr_name=group, gr_mem=members)

    monkeypatch.setattr(grp, "getgrgid", entry)
    monkeypatch.setattr(files, "user_name", lambda number: "longshare" if number else "root")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid or 1234)
    require_own_folder(tmp_path / "store")  # no group can write the folder
    tmp_path.chmod(0o770)
    complaint = f"members of the group {group} can write the folder {tmp_path}: chmod g-w"
    with pytest.raises(OSError, match=complaint) if refused else nullcontext():
        require_own_folder(tmp_path / "store")


@pytest.mark.parametrize("name", ["store", "recorder.csv", "key"])
def test_a_check_names_files_that_the_user_may_not_open(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    config = tmp_path / "longshare.toml"
    (folder / "key").touch(0o600)
    config.write_text(
        f'[store]\npath = "{folder}/store"\n[recorder]\nfile = "{folder}/recorder.csv"\n'
        f'[listen.tls]\ncertificate = "{config}"\nkey = "{folder}/key"\n'
    )
    command = [sys.executable, "-m", "allocator.cli", "serve", "--check", "--config", str(config)]
    folder.chmod(0o500)
    (folder / "key").chmod(0)
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    folder.chmod(0o700)
    assert completed.returncode == 2
    assert re.search(rf"{folder}/{name}: (Permission denied|user \S+ cannot)", completed.stderr)


def test_a_check_for_slurm_names_an_absent_slurm_conf(tmp_path: Path) -> None:
    config = tmp_path / "longshare.toml"
    config.write_text(
        f'[slurm]\nconf = "{tmp_path}/slurm.conf"\n[store]\npath = "{tmp_path}/store"\n'
    )
    completed = longshare("slurm", "serve", "--config", str(config), "--check")
    assert completed.returncode == 2
    assert f"slurm.conf: {tmp_path}/slurm.conf: No such file" in completed.stderr
