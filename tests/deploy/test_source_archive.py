"""Debian packages can be built from an unpacked source archive, without Git."""

import importlib.util
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from platform import freedesktop_os_release
from types import ModuleType

ROOT = Path(__file__).parents[2]
BUILD = Path("deploy", "debian", "build.py")


def build_program(root: Path) -> ModuleType:
    """Return the program that builds packages from the sources in a folder."""
    spec = importlib.util.spec_from_file_location("build", root / BUILD)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def test_packages_of_an_archive_have_the_time_of_its_files_and_debians_release_in_their_version(
    tmp_path: Path,
) -> None:
    root = tmp_path / "archive"
    (root / BUILD.parent).mkdir(parents=True)
    for name in (BUILD, "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    when = datetime(2026, 11, 28, 12, 30, tzinfo=UTC).timestamp()
    os.utime(root / "pyproject.toml", (when, when))
    program = build_program(root)
    assert program.commit_time() == when
    release = freedesktop_os_release()
    end = f"+20261128123000+{release['ID']}{release.get('VERSION_ID', '')}"
    assert program.version(program.commit_time()).endswith(end)
