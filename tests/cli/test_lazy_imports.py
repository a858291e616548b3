"""Each command imports only the modules it needs, so commands start quickly.

The tests count imported modules instead of measuring time.
"""

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
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(completed.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def idle() -> set[str]:
    return imported("--version")


def test_the_version_option_imports_no_library(idle: set[str]) -> None:
    assert {name.partition(".")[0] for name in idle} & LIBRARIES == set()
    assert "asyncio" not in idle


def test_the_version_option_imports_no_command_module(idle: set[str]) -> None:
    ours = {name for name in idle if name.startswith(("allocator.", "frameworks."))}
    assert ours == {f"allocator.cli{suffix}" for suffix in ("", ".connection", ".extras", ".later")}
    assert len(idle) < 230, "199 modules when this test was written"


@pytest.mark.parametrize(
    "command", [["shares"], ["explain", "anna"], ["weight", "list"]], ids=" ".join
)
def test_client_commands_import_neither_the_engine_nor_its_configuration(
    command: list[str],
) -> None:
    asking = imported(*command, "--address", "127.0.0.1:1")
    assert {"grpc", "google"} <= {name.partition(".")[0] for name in asking}
    needless = LIBRARIES - {"grpc", "google"}  # typer needs pydantic to convert values
    assert {name.partition(".")[0] for name in asking} & needless == set()
    rooms = ("allocator.cluster", "allocator.fairness", "allocator.plugins", "allocator.service.")
    within = {name for name in asking if name.startswith(rooms)}
    assert within <= {"allocator.service.addresses"}
    assert len(asking) < 320, "276 modules when this test was written"


def test_help_lists_all_commands_and_a_misspelt_command_gets_a_suggestion() -> None:
    command = [sys.executable, "-m", "allocator.cli"]
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert {"serve", "shares", "weight", "experiment"} <= set(helped.stdout.split())
    slip = subprocess.run([*command, "share"], capture_output=True, text=True, check=False)
    assert slip.returncode == 2
    assert "'shares'" in slip.stderr
