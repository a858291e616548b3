"""Compiles modules of the engine with mypyc if LONGSHARE_COMPILED is 1.

Without this variable, setuptools reads pyproject.toml only, and the wheel is pure Python. The
sources are the same. A compiled wheel contains them beside the compiled modules.
"""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = ("allocator/cluster", "allocator/fairness", "allocator/users")
"""Packages whose modules are compiled."""
_MESOS_TEXT = "reads text of Mesos's messages, which is bytes if it is not UTF-8"
_ADAPTER = "interpreted adapters derive from its classes"
INTERPRETED = {
    "allocator/cluster/agents/placement_constraints.py": _MESOS_TEXT,
    "allocator/cluster/frameworks/subscription.py": _MESOS_TEXT,
    "allocator/fairness/machines.py": "its objects are copied with all that they refer to",
    "allocator/fairness/plugin_sandbox.py": "creates classes inside functions",
    "allocator/fairness/policies": "pydantic makes constructors, and plugins derive from classes",
    "allocator/fairness/standing.py": "has generic data classes",
    "allocator/users/adapter.py": _ADAPTER,
    "allocator/users/view.py": _ADAPTER,
    "allocator/users/wording.py": _ADAPTER,
}
"""Parts of these folders that stay interpreted, with the reason. So does each `__init__.py`."""


def compiled_modules() -> list[str]:
    """Return the paths of the modules to compile, relative to the checkout."""
    paths = chain.from_iterable(sorted(Path(package).rglob("*.py")) for package in COMPILED)
    return [
        str(path)
        for path in paths
        if path.name != "__init__.py"
        and not any(path.is_relative_to(interpreted) for interpreted in INTERPRETED)
    ]


def extensions() -> list[Extension]:
    """Translate the modules to C, and return the extensions for setuptools to build."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only a compiled build needs mypy

    translated: list[Extension] = mypycify(
        ["--config-file", "pyproject.toml", *compiled_modules()],
        opt_level=os.environ.get("LONGSHARE_OPTIMIZATION", "3"),
        debug_level="0",
        multi_file=True,  # several processors can compile, and a compiler needs little memory
        group_name="longshare",
    )
    for source in {source for extension in translated for source in extension.sources}:
        repair_weak_references(Path(source))
    for extension in translated:
        extension.extra_compile_args = [
            *extension.extra_compile_args,
            "-ffp-contract=off",  # one rounding instead of two would change decisions
            "-fno-semantic-interposition",
        ]
        extension.extra_link_args = ["-Wl,-Bsymbolic-functions"]
    return translated


def repair_weak_references(source: Path) -> None:
    """Change a C file so that objects of its classes may have weak references.

    mypyc 2.4 neither clears an object's weak references when the object ends, nor leaves them out
    when the garbage collector visits what the object refers to. Both would crash the interpreter.
    """
    text = source.read_text("utf-8")
    text = re.sub(
        r"^.*\(char \*\)self \+ sizeof\(PyObject \*\) \+.*\n", "", text, flags=re.MULTILINE
    )
    text = text.replace(
        "CPy_TRASHCAN_BEGIN(self,", f"{_CLEAR_WEAK_REFERENCES}CPy_TRASHCAN_BEGIN(self,"
    )
    source.write_text(text, "utf-8")


_CLEAR_WEAK_REFERENCES = (
    "if (Py_TYPE(self)->tp_weaklistoffset) PyObject_ClearWeakRefs((PyObject *)self);\n    "
)


class ParallelBuild(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Compiles the C files of an extension on all processors."""

    def build_extensions(self) -> None:
        """Build all extensions."""
        compile_files = self.compiler.compile

        def compile_in_parallel(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                objects = threads.map(lambda source: compile_files([source], **options), sources)
                return list(chain.from_iterable(objects))

        self.compiler.compile = compile_in_parallel
        super().build_extensions()


if __name__ == "__main__":
    # pip asks for requirements and metadata first, each in a process; mypyc would run in each.
    is_build = not {"egg_info", "dist_info"}.intersection(sys.argv)
    if os.environ.get("LONGSHARE_COMPILED") == "1" and is_build:
        setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
    else:
        setup()
