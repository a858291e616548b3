"""How kernels are compiled, and where what was compiled is kept."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

_HERE = Path(__file__).parent
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
"""Kernels own no arrays, so nothing counts references to those they are given; that would take
most of the time."""


_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_OPTIONS}
"""What only kernels call needs no entrance for others, which would take long to compile."""


wide: Callable[[int], int] = np.int64  # type: ignore[assignment]  # it is one, to a kernel
"""Makes a number one of 64 bits; a kernel is compiled for each type that it is called with."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function when a kernel that is compiled calls it."""
    compiled: Callable[P, R] = numba.njit(function, **_INNER)
    return compiled


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function as if it were written where it is called."""
    compiled: Callable[P, R] = numba.njit(function, inline="always", **_INNER)
    return compiled


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel that Python calls, at its first call, and keep the result for later runs.

    It is kept where Python keeps its own compiled modules, so that it is as trustworthy as they
    are, under a hash of all kernels: Numba alone would not notice that one which is called by
    another has changed. Where that folder cannot be written to, each process compiles anew.
    """
    folder = _HERE / "__pycache__" / f"kernels-{_version()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _anew(function)
    if not os.access(folder, os.W_OK):
        return _anew(function)
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        compiled: Callable[P, R] = numba.njit(function, cache=True, **_OPTIONS)
    finally:
        config.CACHE_DIR = before
    return compiled


def _anew(function: Callable[P, R]) -> Callable[P, R]:
    compiled: Callable[P, R] = numba.njit(function, **_OPTIONS)
    return compiled


def _version() -> str:
    sources = sorted(_HERE.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
