"""What is built holds all that is in the checkout."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


def _files(folder: Path, *packages: str) -> Iterator[str]:
    for package in packages:
        for path in (folder / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(folder))


@pytest.mark.slow
def test_the_wheels_hold_every_file_of_their_packages_and_no_other(tmp_path: Path) -> None:
    packages = {".": ["allocator", "frameworks"], "packages/http-parser": ["http_parser"]}
    for folder, names in packages.items():
        source = tmp_path / "source" / folder
        for name in names:
            shutil.copytree(ROOT / folder / name, source / name)
        for name in ("pyproject.toml", "README.md", *(["LICENSE"] if folder == "." else [])):
            shutil.copy(ROOT / folder / name, source)

    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*build, "--wheel-dir", tmp_path / "wheels", *packages],
        cwd=tmp_path / "source",
        check=True,
    )

    built = {
        name
        for wheel in (tmp_path / "wheels").glob("*.whl")
        for name in ZipFile(wheel).namelist()
        if ".dist-info/" not in name
    }
    wanted = {name for folder, names in packages.items() for name in _files(ROOT / folder, *names)}
    assert built == wanted
