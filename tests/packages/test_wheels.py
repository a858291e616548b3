"""Built distributions contain everything in the checkout, and install with pip alone."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packages.building import PACKAGES, ROOT, built_wheels


def _files(folder: Path, *packages: str) -> Iterator[str]:
    for package in packages:
        for path in (folder / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(folder))


def _contents(wheel: Path) -> set[str]:
    return {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, "built"],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (archive,) = (source / "built").glob("longshare-*.tar.gz")
    return archive


@pytest.mark.slow
def test_the_wheels_hold_every_file_of_their_packages_and_no_other(wheels: Path) -> None:
    built = {name for wheel in wheels.glob("*.whl") for name in _contents(wheel)}
    wanted = {name for folder, names in PACKAGES.items() for name in _files(ROOT / folder, *names)}
    assert built == wanted
    assert {
        "allocator/service/show/page/index.html",
        "frameworks/experiments/sdrf-adaptive.toml",
    } < built


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel_and_contains_the_licence(
    sdist: Path, wheels: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} < names
    (made,) = built_wheels(tmp_path, tmp_path / "made", str(sdist)).glob("longshare-*.whl")
    (direct,) = wheels.glob("longshare-*.whl")
    assert _contents(made) == _contents(direct)


@pytest.mark.slow
def test_the_wheels_are_installed_by_pip_alone_and_work_elsewhere(
    wheels: Path, tmp_path: Path
) -> None:
    home = tmp_path / "fresh"
    venv.create(home, with_pip=True)
    # Longshare's dependencies are copied from this environment, without a network; Longshare is
    # not.
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            [home / "bin" / command[0], *command[1:]],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("pip", "install", "--quiet", "--no-index", "--no-deps", *wheels.glob("*.whl"))
    version = next(wheels.glob("longshare-*.whl")).name.split("-")[1]
    assert run("longshare", "--version").strip() == f"longshare {version} (pure)"
    assert "sdrf-adaptive" in run("longshare", "experiment", "list")
    settings = tmp_path / "longshare.toml"
    settings.write_text('[policy]\nname = "stsf"\nhalf_life = "1h"\n')
    run("longshare", "serve", "--check", "--config", settings)
    where = "import allocator, frameworks, http_parser as p; print(allocator.__file__, p.__file__)"
    assert all(path.startswith(str(home)) for path in run("python", "-c", where).split())
