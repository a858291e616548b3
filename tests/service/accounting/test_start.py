"""A service without the accounting extra says so; an accounting file belongs to one service."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.service.accounting.database import Database
from tests.forks import longshare
from tests.service.served import PATIENCE, service, wait_for

WITHOUT_SQLALCHEMY = """
import sys
sys.modules["sqlalchemy"] = None  # as if it were not installed
from allocator.cli import main
main()
"""


def settings(folder: Path, name: str, database: str | None = None) -> Path:
    config = folder / f"{name}.toml"
    accounting = "" if database is None else f'[accounting]\ndatabase = "{database}"\n'
    config.write_text(
        f'[listen]\naddress = "unix://{folder}/{name}.sock"\n'
        '[metrics]\naddress = "127.0.0.1:0"\n'
        f'[store]\npath = "{folder}/{name}.sqlite"\n{accounting}'
    )
    return config


@contextmanager
def without_sqlalchemy(folder: Path) -> Iterator[Path]:
    """Run a service in which SQLAlchemy is not installed; yield its log."""
    log = folder / "log"
    command = [sys.executable, "-c", WITHOUT_SQLALCHEMY, "serve", "--config"]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, settings(folder, "lean")], stderr=out)
    try:
        wait_for(lambda: "ready" in log.read_text() or process.poll() is not None)
        yield log
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.mark.slow
def test_without_the_extra_usage_and_audit_name_the_package_to_install(
    tmp_path: Path,
) -> None:
    with without_sqlalchemy(tmp_path) as log:
        for command in ("usage", "audit"):
            completed = CliRunner().invoke(
                app, [command, "--address", f"unix://{tmp_path}/lean.sock"]
            )
            assert completed.exit_code == 1
            assert "this service keeps no accounts" in completed.stderr
            assert "longshare[accounting] is not installed" in completed.stderr
        assert "Traceback" not in log.read_text()


def test_a_second_service_on_the_same_accounting_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "accounting.sqlite"
    with service(tmp_path, f'[accounting]\ndatabase = "{file}"\n'):
        config = settings(tmp_path, "second", str(file))
        second = longshare("serve", "--config", str(config))
        assert second.returncode == 2
        assert f"accounting.database: {file}: in use by another service" in second.stderr


def test_a_service_beside_the_store_of_another_scheduler_refuses_its_accounts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "accounting.sqlite"
    with closing(Database(file, "slurm")):
        pass
    refused = longshare("serve", "--config", str(settings(tmp_path, "mesos")))
    assert refused.returncode == 2
    assert f"accounting.database: {file}: contains accounts of Slurm's users" in refused.stderr


def test_a_damaged_accounting_file_does_not_prevent_a_start(tmp_path: Path) -> None:
    file = tmp_path / "accounting.sqlite"
    file.write_text("not a database")
    with service(tmp_path, f'[accounting]\ndatabase = "{file}"\n') as running:
        running.wait_to_say("not a SQLite file")
