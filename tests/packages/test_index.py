"""Longshare is installed by name, from an index with its wheels in addition to the public index."""

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.packages.building import ROOT

# pip downloads packages missing in its cache. At each commit, test_wheels.py installs the wheels
# without dependencies.
pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(600)]

LARGEST = 55 * 10**6
"""Maximum bytes of a service with its commands, without pip, pip's dependencies and bytecode."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name
        pass


@pytest.fixture(scope="module")
def index(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve our distributions, and nothing else, the way an index does (PEP 503)."""
    folder = tmp_path_factory.mktemp("index")
    for wheel in wheels.glob("*.whl"):
        project = folder / wheel.name.partition("-")[0].replace("_", "-")
        project.mkdir()
        shutil.copy(wheel, project)
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def lean(index: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an environment with the result of `pip install longshare`."""
    home = tmp_path_factory.mktemp("lean") / "environment"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    completed = subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", "longshare"],
        env={**os.environ, "PIP_EXTRA_INDEX_URL": index},
        check=False,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    return home


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _in(home, home, home / "bin" / "longshare", *arguments)


def _in(home: Path, folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the environment's programs first on the path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**clean, "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_installation_by_name_is_small_and_its_service_works(lean: Path) -> None:
    (packages,) = lean.glob("lib/python*/site-packages")
    size = sum(
        file.stat().st_size
        for file in packages.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    )
    assert size < LARGEST
    (lean / "longshare.toml").write_text('[policy]\nname = "sdrf"\nhalf_life = "1h"\n')
    checked = _run(lean, "serve", "--check", "--config", "longshare.toml")
    assert checked.returncode == 0, checked.stderr
    assert "pip install 'longshare[accounting]'" in checked.stderr
    assert "sdrf-adaptive" in _run(lean, "experiment", "list").stdout


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["trace", "generate", "google-month", "x.parquet"], "simulation"),
        (["framework", "--name", "a", "--master", "127.0.0.1:1"], "experiments"),
    ],
)
def test_a_command_without_its_extra_names_the_extra(
    lean: Path, command: list[str], extra: str
) -> None:
    completed = _run(lean, *command)
    assert completed.returncode == 2, completed.stderr
    assert f"longshare[{extra}]" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_accounting_without_its_extra_is_refused_with_a_reason(lean: Path) -> None:
    (lean / "accounts.toml").write_text('[accounting]\ndatabase = "accounts.sqlite"\n')
    completed = _run(lean, "serve", "--check", "--config", "accounts.toml")
    assert completed.returncode == 2, completed.stdout
    assert "longshare[accounting]" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_a_new_user_can_serve_a_policy_simulate_a_trace_and_run_a_notebook(
    lean: Path, tmp_path: Path
) -> None:
    walk: list[str | Path] = ["bash", ROOT / "tests" / "packages" / "walk.sh"]
    done = _in(lean, tmp_path, *walk, "serve")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All decisions are the same" in done.stdout
    # Dependencies of an extra are copied from this environment, without a network; Longshare is
    # not.
    (packages,) = lean.glob("lib/python*/site-packages")
    brought = packages / "simulation.pth"
    brought.write_text(sysconfig.get_path("purelib"))
    notebook = shutil.copy(ROOT / "docs" / "notebooks" / "your_own_trace.py", tmp_path)
    try:
        done = _in(lean, tmp_path, *walk, "simulate", notebook)
    finally:
        brought.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "norm on one pool" in done.stdout
