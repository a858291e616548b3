"""Installed packages are pinned by hash, satisfy the declared requirements, and fit any index."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("requirements/*.txt"))
PYMESOS = "packages/pymesos"
OF_THEIR_OWN = ("operations", "release")  # separate environments
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.15"]


def _project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


def _entries(file: Path) -> list[str]:
    """Return the requirements of `file`, each with its options on a line of its own."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE)
    return text.replace("\\\n", " ").splitlines()


def _pins(python: str, beside: str | None = None) -> Iterator[Requirement]:
    """Yield the pins of the common environment, or of a separate environment."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    for file in FILES:
        if file.stem != beside if beside else file.stem in OF_THEIR_OWN:
            continue
        for entry in _entries(file):
            pin = Requirement(entry.split(" --hash=")[0])
            if pin.marker is None or pin.marker.evaluate(environment):
                yield pin


def _declared() -> list[Requirement]:
    ours, pymesos = _project("."), _project(PYMESOS)
    declared = ours["project"]["dependencies"] + pymesos["project"]["dependencies"]
    for extra in ours["project"]["optional-dependencies"].values():
        declared += [
            requirement for requirement in extra if not requirement.startswith("longshare[")
        ]
    for name, group in ours["dependency-groups"].items():
        declared += group if name not in OF_THEIR_OWN else []
    return [Requirement(requirement) for requirement in declared]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_requirement_has_exactly_a_version_and_its_hashes(file: Path) -> None:
    entry = re.compile(r"[a-z0-9-]+==[a-z0-9.]+(?: ; [^@/\\-]+)?(?: +--hash=sha256:[0-9a-f]{64})+")
    entries = _entries(file)
    assert entries
    assert [line for line in entries if not entry.fullmatch(line.strip())] == []


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("beside", [None, *OF_THEIR_OWN])
def test_each_distribution_is_pinned_once_for_each_python(python: str, beside: str | None) -> None:
    names = [pin.name for pin in _pins(python, beside)]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_satisfy_the_requirements_of_the_packages(python: str) -> None:
    pymesos = _project(PYMESOS)["project"]
    versions = {pin.name: str(pin.specifier).removeprefix("==") for pin in _pins(python)}
    versions[pymesos["name"]] = pymesos["version"]

    unmet = [
        declared
        for declared in _declared()
        if not declared.specifier.contains(versions.get(canonicalize_name(declared.name), "0"))
    ]

    assert not unmet, "run `make lock`"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("beside", OF_THEIR_OWN)
def test_the_pins_of_separate_environments_satisfy_the_requirements_of_their_group(
    python: str, beside: str
) -> None:
    versions = {pin.name: str(pin.specifier).removeprefix("==") for pin in _pins(python, beside)}
    declared = map(Requirement, _project(".")["dependency-groups"][beside])
    assert [
        requirement
        for requirement in declared
        if not requirement.specifier.contains(versions[requirement.name])
    ] == []


def test_no_version_is_local_because_indexes_refuse_local_versions() -> None:
    versions = [_project(folder)["project"]["version"] for folder in (".", PYMESOS)]
    assert [Version(version).local for version in versions] == [None, None]
    local = [
        requirement
        for requirement in _declared()
        for clause in requirement.specifier
        if "+" in clause.version
    ]
    assert not local


def test_the_service_needs_neither_numerical_libraries_nor_a_database() -> None:
    heavy = {
        "sqlalchemy",
        "joblib",
        "matplotlib",
        "numba",
        "numpy",
        "pyarrow",
        "scipy",
        "longshare-pymesos",
    }
    base = {
        Requirement(requirement).name for requirement in _project(".")["project"]["dependencies"]
    }
    pinned = {line.partition("==")[0] for line in _entries(ROOT / "requirements" / "runtime.txt")}
    assert not heavy & (base | pinned)
