"""The checked-in Python code matches the protos and the installed libraries."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(
    {path.parent.relative_to(ROOT / "proto") for path in ROOT.glob("proto/**/*.proto")}
)
GENERATED = sorted(
    path.relative_to(ROOT) for folder in FOLDERS for path in ROOT.glob(f"{folder}/*_pb2*.py*")
)


def test_generated_code_equals_the_output_of_make_proto(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "proto" / "generate.py", "--out", tmp_path], check=True)

    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.py*")}
    stale = [path for path in GENERATED if fresh.get(path) != (ROOT / path).read_text()]

    assert not stale, "run `make proto`"
    assert fresh.keys() == set(GENERATED), "run `make proto`"


def test_stubs_exist_exactly_for_protos_that_declare_a_service() -> None:
    with_stubs = {path.stem for path in GENERATED if path.name.endswith("_pb2_grpc.py")}
    with_service = {
        f"{path.stem}_pb2_grpc"
        for path in ROOT.glob("proto/**/*.proto")
        if re.search(r"^service ", path.read_text(), re.MULTILINE)
    }
    assert with_stubs == with_service


def test_renewing_removes_the_code_of_a_proto_that_is_gone(tmp_path: Path) -> None:
    orphan = tmp_path / FOLDERS[0] / "gone_pb2.py"
    orphan.parent.mkdir(parents=True)
    orphan.write_text("")
    subprocess.run([sys.executable, ROOT / "proto" / "generate.py", "--out", tmp_path], check=True)
    assert not orphan.exists()


@pytest.mark.parametrize("path", [path for path in GENERATED if path.suffix == ".py"], ids=str)
def test_generated_code_loads_with_the_installed_libraries(path: Path) -> None:
    import_module(".".join(path.with_suffix("").parts))


@pytest.mark.parametrize(
    ("library", "stamp"),
    [
        ("protobuf", r"^# Protobuf Python Version: (\S+)$"),
        ("grpcio", r"^GRPC_GENERATED_VERSION = '(\S+)'$"),
    ],
)
def test_no_library_is_admitted_that_is_older_than_the_generated_code(
    library: str, stamp: str
) -> None:
    texts = [(ROOT / path).read_text() for path in GENERATED if path.suffix == ".py"]
    oldest_that_loads = max(
        Version(version) for text in texts for version in re.findall(stamp, text, re.MULTILINE)
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = next(
        requirement.specifier
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name == library
    )
    assert {(bound.operator, Version(bound.version)) for bound in declared} == {
        (">=", oldest_that_loads)
    }
