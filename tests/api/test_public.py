"""The public API is listed in a single place, recorded, and changes only with the changelog."""

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from allocator import api

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))


def test_each_public_name_exists_and_is_listed_once() -> None:
    assert api.__all__ == sorted(api.__all__)
    assert set(api.__all__) == set(api._PLACES) == set(dir(api))
    for name in api.__all__:
        assert getattr(api, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'engine'"):
        _ = api.engine


def test_type_checkers_see_the_same_modules() -> None:
    source = Path(api.__file__ or "").read_text()
    imported = {
        (f"{module}:{name}" if alias else module, alias or name)
        for module, names in re.findall(r"^    from (\S+) import (.+)$", source, re.MULTILINE)
        for name, _as, alias in (item.strip().partition(" as ") for item in names.split(","))
    }
    assert {(place, name) for name, place in api._PLACES.items()} == imported


def test_a_change_of_the_public_api_is_recorded() -> None:
    assert REFERENCE["recorded"]()[2] == list(REFERENCE["promised"]()), (
        "run: python docs/reference.py"
    )


def test_the_changelog_names_the_recorded_api_change() -> None:
    digest, changed, lines = REFERENCE["recorded"]()
    assert digest == REFERENCE["digest"](lines), "docs/api.txt must not be edited by hand"
    entries = re.split(r"^\* ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    (recorded,) = (entry for entry in entries if f"`{digest}`" in entry)
    assert [name for name in changed if name not in recorded] == [], (
        f"{digest} must be told of them"
    )


def test_the_record_notices_a_changed_name_parameter_type_and_default() -> None:
    lines = list(REFERENCE["promised"]())
    text = "\n".join(lines)
    for piece in ("simulate(trace: Trace", "runtime: float", "-> divisible.Shared", "int=1000"):
        assert piece in text
        changed = text.replace(piece, "").splitlines()
        assert REFERENCE["digest"](changed) != REFERENCE["digest"](lines)


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in api.__all__ if not REFERENCE["docstring"](name)] == []


def test_the_public_api_is_typed() -> None:
    for name in ("simulate", "optimum", "violation", "check_policy", "policy", "make_trace"):
        hints = get_type_hints(getattr(api, name))
        assert "return" in hints, name
    assert (Path(importlib.import_module("allocator").__file__ or "").parent / "py.typed").exists()


def test_pools_and_policies_import_no_library_of_the_simulators() -> None:
    code = """
import sys
from allocator.api import KeyPolicy, LinePolicy, Pool, Quantities, Sdrf, check_policy, policy
from allocator.api import read_policies, register_policy
policy("drf")
heavy = {"numpy", "scipy", "numba", "pyarrow", "matplotlib", "grpc", "aiohttp"}
print(sorted(heavy & set(sys.modules)))
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "[]"
