"""Builds longshare-pymesos: setuptools, after pymesos's own sources have been put beside ours.

The sources are those of the published pymesos, by hash (`source.txt`), taken from wherever pip is
configured to look. A source distribution carries them along, so that what is built from it needs
no network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import build_meta

_HERE = Path(__file__).parent
_PACKAGE = _HERE / "pymesos"


def _with_sources() -> None:
    if _PACKAGE.is_dir():
        return
    download = [sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check"]
    download += ["download", "--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
    # The pip that builds us says to its hooks who we are; the one we run has another to ask.
    hooks = ("PEP517_", "_PYPROJECT_HOOKS_")
    environment = {name: it for name, it in os.environ.items() if not name.startswith(hooks)}
    with tempfile.TemporaryDirectory(dir=_HERE) as folder:
        subprocess.run(  # noqa: S603 - pip, with our own arguments
            [*download, "--require-hashes", "-r", _HERE / "source.txt", "--dest", folder],
            env=environment,
            check=True,
        )
        (archive,) = Path(folder).glob("pymesos-*.tar.gz")
        # Without a filter, which Python has since 3.11.4 only; by hash it is what it should be.
        shutil.unpack_archive(archive, folder)
        (unpacked,) = Path(folder).glob("pymesos-*/pymesos")
        shutil.move(unpacked, _PACKAGE)


def build_wheel(
    folder: str, settings: dict[str, str] | None = None, metadata: str | None = None
) -> str:
    """Build a wheel (PEP 517)."""
    _with_sources()
    return str(build_meta.build_wheel(folder, settings, metadata))


def build_editable(
    folder: str, settings: dict[str, str] | None = None, metadata: str | None = None
) -> str:
    """Build what refers to this folder (PEP 660)."""
    _with_sources()
    return str(build_meta.build_editable(folder, settings, metadata))


def build_sdist(folder: str, settings: dict[str, str] | None = None) -> str:
    """Build a source distribution, with pymesos's sources in it (PEP 517)."""
    _with_sources()
    return str(build_meta.build_sdist(folder, settings))
