"""Our distributions, built as pip builds them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {".": ["allocator", "frameworks"], "packages/pymesos": ["http_parser", "pymesos"]}


def built_wheels(where: Path, folder: Path, *sources: str) -> Path:
    """Have pip build wheels of sources into a folder."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", folder, *sources], cwd=where, check=True)
    return folder
