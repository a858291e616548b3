"""What is public is named in one place, recorded, and changes only with the changelog."""

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


def test_each_public_name_is_there_and_listed_once() -> None:
    assert api.__all__ == sorted(api.__all__)
    assert set(api.__all__) == set(api._PLACES) == set(dir(api))
    for name in api.__all__:
        assert getattr(api, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'engine'"):
        _ = api.engine


def test_type_checkers_are_told_the_same_places() -> None:
    source = Path(api.__file__ or "").read_text()
    told = {
        (f"{module}:{name}" if alias else module, alias or name)
        for module, names in re.findall(r"^    from (\S+) import (.+)$", source, re.MULTILINE)
        for name, _as, alias in (each.strip().partition(" as ") for each in names.split(","))
    }
    assert {(place, name) for name, place in api._PLACES.items()} == told


def test_a_change_of_what_is_public_is_recorded() -> None:
    assert REFERENCE["recorded"]()[2] == REFERENCE["promised"](), "run: python docs/reference.py"


def test_and_told_in_the_changelog_with_its_signature_and_names() -> None:
    digest, changed, lines = REFERENCE["recorded"]()
    assert digest == REFERENCE["digest"](lines), "docs/api.txt is not to be written by hand"
    entries = re.split(r"^\* ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    (told,) = (entry for entry in entries if f"`{digest}`" in entry)
    assert [name for name in changed if name not in told] == [], f"{digest} must be told of them"


def test_the_record_notices_a_changed_name_parameter_type_and_default() -> None:
    lines = REFERENCE["promised"]()
    text = "\n".join(lines)
    for piece in ("simulate(trace: Trace", "runtime: float", "-> divisible.Shared", "int=1000"):
        assert piece in text
        changed = text.replace(piece, "").splitlines()
        assert REFERENCE["digest"](changed) != REFERENCE["digest"](lines)


def test_everything_public_says_what_it_is() -> None:
    silent = [entry.name for entry in REFERENCE["entries"]() if not entry.text]
    known = {"__init__"}  # the class says what it takes
    members = [name for name in silent if name.rpartition(".")[2] not in known]
    assert [name for name in members if "." not in name] == []


def test_what_is_public_is_typed() -> None:
    for name in ("simulate", "optimum", "violation", "check_policy", "policy", "make_trace"):
        hints = get_type_hints(getattr(api, name))
        assert "return" in hints, name
    assert (Path(importlib.import_module("allocator").__file__ or "").parent / "py.typed").exists()


def test_pools_and_policies_need_none_of_the_simulators_libraries() -> None:
    code = """
import sys
from allocator.api import KeyPolicy, LinePolicy, Pool, Quantities, Sdrf, check_policy, policy
from allocator.api import read_policies, register_policy
policy("drf")
heavy = {"numpy", "scipy", "numba", "pyarrow", "matplotlib", "grpc", "aiohttp"}
print(sorted(heavy & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
