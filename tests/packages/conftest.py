"""Our wheels, built once from a copy of the checkout."""

import shutil
from pathlib import Path

import pytest

from tests.packages.building import PACKAGES, ROOT, built_wheels


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the sources of distributions, so that builds leave no files in the checkout."""
    copied = tmp_path_factory.mktemp("source")
    for folder, names in PACKAGES.items():
        for name in names:
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder / name, copied / folder / name, ignore=unwanted)
        beside = (
            ["LICENSE", "setup.py"]
            if folder == "."
            else ["MANIFEST.in", "build_backend.py", "source.txt"]
        )
        for name in ("pyproject.toml", "README.md", *beside):
            shutil.copy(ROOT / folder / name, copied / folder)
    return copied


@pytest.fixture(scope="session")
def wheels(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheels(source, tmp_path_factory.mktemp("wheels"), *PACKAGES)
