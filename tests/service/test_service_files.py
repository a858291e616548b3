"""A service's files are distinct if written, private if secret, and never block a start."""

import os
from pathlib import Path

import pytest

from allocator.service.config import ConfigError, load
from tests.forks import Longshare
from tests.service.served import PATIENCE

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
