"""A command imports what it needs and no more: that, not a clock, says if it starts quickly."""

import subprocess
import sys

import pytest

LIBRARIES = {
    *("aiohttp", "grpc", "google", "kazoo", "joblib", "matplotlib", "numba", "numpy"),
    *("prometheus_client", "pyarrow", "pydantic", "pymesos", "rich", "scipy", "structlog"),
}
SHOWING = """
import sys
sys.argv = ["longshare", *sys.argv[1:]]
from allocator.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", SHOWING, *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(told.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def idle() -> set[str]:
    return imported("--version")


def test_a_command_line_that_does_nothing_imports_no_library(idle: set[str]) -> None:
    assert {name.partition(".")[0] for name in idle} & LIBRARIES == set()
    assert "asyncio" not in idle


def test_and_of_ours_the_commands_alone(idle: set[str]) -> None:
    ours = {name for name in idle if name.startswith(("allocator.", "frameworks."))}
    named = ("allocator.cli", "allocator.contract.printable", "allocator.contract")
    others = {name for name in ours if not name.startswith("allocator.cli") and name not in named}
    assert others == {"frameworks.cli", "frameworks.local_mesos", "frameworks.local_mesos.cli"}
    assert len(idle) < 300, "it was 240 when this was written"


def test_asking_a_service_needs_neither_the_engine_nor_its_configuration() -> None:
    asking = imported("shares", "--address", "127.0.0.1:1")
    assert {"grpc", "google"} <= {name.partition(".")[0] for name in asking}
    needless = LIBRARIES - {"grpc", "google", "pydantic"}  # typer brings pydantic
    assert {name.partition(".")[0] for name in asking} & needless == set()
    rooms = ("allocator.cluster", "allocator.fairness", "allocator.plugins", "allocator.service.")
    within = {name for name in asking if name.startswith(rooms)}
    assert within <= {"allocator.service.addresses"}
    assert len(asking) < 480, "it was 408 when this was written"
