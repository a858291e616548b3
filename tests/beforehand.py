"""Compile all code that tests need: the tests, the kernels of the fast path, and the C++ module.

The C++ module is compiled if possible. `make test` runs `python -m tests.beforehand` while mypy
runs. Otherwise, several tests would compile the same code at once, and so would pytest's workers,
each of which collects all tests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from allocator.simulation import fast
from tests.module.built import build


def main() -> None:
    """Compile everything that is not compiled yet."""
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
