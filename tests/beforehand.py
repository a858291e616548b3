"""Compiles what tests run: the kernels of the fast path, and the C++ module where it can be built.

`python -m tests.beforehand`, which `.ci/run` starts while it installs other Pythons: no two
tests compile the same at once then.
"""

import pytest

from allocator.simulation import fast
from tests.module.built import build


def main() -> None:
    """Compile; what is compiled already is left as it is."""
    fast.compile_kernels()
    try:
        build()
    except pytest.skip.Exception as lacking:
        print(lacking)


if __name__ == "__main__":
    main()
