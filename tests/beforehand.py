"""Compiles what tests run: the tests themselves, the kernels of the fast path, and the C++ module
where it can be built.

`python -m tests.beforehand`, which `.ci/run` starts while it installs other Pythons: no two
tests compile the same at once then, nor do pytest's workers, each of which collects all tests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from allocator.simulation import fast
from tests.module.built import build


def main() -> None:
    """Compile; what is compiled already is left as it is."""
    compiled = Path(__file__).parent / "__pycache__"
    if not any(compiled.glob(f"conftest.{sys.implementation.cache_tag}-pytest-*.pyc")):
        collecting = [sys.executable, "-m", "pytest", "--collect-only", "-qqq"]
        subprocess.run(collecting, stdout=subprocess.DEVNULL, check=False)
    fast.compile_kernels()
    try:
        build()
    except pytest.skip.Exception as lacking:
        print(lacking)


if __name__ == "__main__":
    main()
