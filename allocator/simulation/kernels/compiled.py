"""Compiles the kernels with Numba, and caches the compiled code on disk."""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from allocator.files import trusted_folder

MISSING: str | None = None
"""Reason why kernels cannot be compiled here: the error of importing Numba. None: they can."""
try:
    import numba
    from llvmlite import ir
    from numba import types
    from numba.core import caching, cgutils
    from numba.extending import intrinsic
except ImportError as error:  # Numba also refuses a NumPy that is newer than it knows
    MISSING = str(error)

P = ParamSpec("P")
R = TypeVar("R")

_HERE = Path(__file__).parent
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
"""Options for all compilations by Numba.

Reference counting is switched off. Kernels own no arrays, and counting would take most of the time.
"""


_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_OPTIONS}
"""Options for functions that only kernels call.

They get no Python wrapper, because wrappers compile slowly.
"""


if MISSING is None:

    class _SharedFolder(caching.UserProvidedCacheLocator):
        """Finds cached kernels by their source, wherever the environment is."""

        def __init__(self, function: Callable[..., Any], file: str) -> None:
            super().__init__(function, file)  # type: ignore[no-untyped-call]
            config: Any = numba.config
            self._cache_path = str(config.CACHE_DIR)
            self._stamp = hashlib.sha256(Path(file).read_bytes()).hexdigest()

        def get_source_stamp(self) -> str:
            return self._stamp


wide: Callable[[int], int] = np.int64  # type: ignore[assignment]  # a type that Numba calls
"""Convert an integer to 64 bits. Mixed widths would make Numba compile a kernel several times."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: compile a function that only other kernels call, without a wrapper for Python.

    The function is compiled when the first kernel that calls it is compiled. Without Numba, all
    decorators of this module return the function itself.
    """
    if MISSING is not None:
        return function
    compiled: Callable[P, R] = numba.njit(function, **_INNER)
    return compiled


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: compile a small function by copying its body into each kernel that calls it."""
    if MISSING is not None:
        return function
    compiled: Callable[P, R] = numba.njit(function, inline="always", **_INNER)
    return compiled


_Untyped: TypeAlias = Any
"""An object for which Numba has no static type."""


def _prefetch(_context: _Untyped, array: _Untyped, _place: _Untyped) -> _Untyped:
    get_pointer: _Untyped = cgutils.get_item_pointer
    get_function: _Untyped = cgutils.get_or_insert_function

    def generate(
        context: _Untyped, builder: _Untyped, signature: _Untyped, arguments: _Untyped
    ) -> _Untyped:
        kind = signature.args[0]
        entries = context.make_array(kind)(context, builder, arguments[0])
        indices = [arguments[1], *[ir.Constant(ir.IntType(64), 0)] * (kind.ndim - 1)]
        entry = get_pointer(context, builder, kind, entries, indices)
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch_type = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = get_function(builder.module, prefetch_type, "llvm.prefetch.p0i8")
        to_read, all_caches, data = (ir.Constant(number, choice) for choice in (0, 3, 1))
        builder.call(function, [builder.bitcast(entry, pointer), to_read, all_caches, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: _Untyped = intrinsic(_prefetch) if MISSING is None else _prefetch
"""Start loading an array's entry, or row, into the processor's cache for a later read."""


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator for kernels that Python calls: compile at the first call, and cache on disk.

    The folder `longshare` in the user's cache folder has the compiled code, so all of the user's
    environments share it. The name of its subfolder contains a hash of all kernels, because Numba
    alone would not notice a change in a called kernel. Without a folder that only this user can
    write, each process compiles the kernels itself.
    """
    if MISSING is not None:
        return function
    folder = cache_folder()
    if folder is None:
        return _uncached(function)
    config: Any = numba.config
    previous = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR = str(folder)
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{_SharedFolder.__name__}"
    try:
        compiled: Callable[P, R] = numba.njit(function, cache=True, **_OPTIONS)
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = previous
    return compiled


def _uncached(function: Callable[P, R]) -> Callable[P, R]:
    compiled: Callable[P, R] = numba.njit(function, **_OPTIONS)
    return compiled


def cache_folder() -> Path | None:
    """Return the folder of the compiled kernels, or None if another user could change its files.

    The files contain code that Python executes, so the folder must be as safe as the sources. The
    folder belongs to this user, and no other user can exchange the folder or a folder above.
    """
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        own = (caches / "longshare", caches / "longshare" / f"kernels-{_version()}")
        for folder in (caches, *own):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = own[-1].resolve(strict=True)  # a home may be below a link
        with trusted_folder(path) as opened:
            status = os.fstat(opened)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return path if private and os.access(path, os.W_OK) else None


def _version() -> str:
    """Return a hash of the kernels and of the versions that compile them."""
    versions = f"{sys.implementation.cache_tag} {numba.__version__}"
    contents = (source.read_bytes() for source in sorted(_HERE.glob("*.py")))
    return hashlib.sha256(b"".join((versions.encode(), *contents))).hexdigest()[:16]
