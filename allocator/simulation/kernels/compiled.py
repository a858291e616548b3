"""How kernels are compiled, and where what was compiled is kept."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

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


_Untyped: TypeAlias = Any
"""What Numba has no types for."""


def _prefetch(_context: _Untyped, array: _Untyped, _place: _Untyped) -> _Untyped:
    get_pointer: _Untyped = cgutils.get_item_pointer
    get_function: _Untyped = cgutils.get_or_insert_function

    def generate(
        context: _Untyped, builder: _Untyped, signature: _Untyped, arguments: _Untyped
    ) -> _Untyped:
        kind = signature.args[0]
        entries = context.make_array(kind)(context, builder, arguments[0])
        places = [arguments[1], *[ir.Constant(ir.IntType(64), 0)] * (kind.ndim - 1)]
        entry = get_pointer(context, builder, kind, entries, places)
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        asks = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = get_function(builder.module, asks, "llvm.prefetch.p0i8")
        to_read, all_caches, data = (ir.Constant(number, choice) for choice in (0, 3, 1))
        builder.call(function, [builder.bitcast(entry, pointer), to_read, all_caches, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: _Untyped = intrinsic(_prefetch)
"""Asks for an entry, or a row, of an array, so that it is there when it is read later."""


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
