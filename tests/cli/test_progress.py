"""Work of more than two seconds shows progress on standard error."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_incentives import PROFILE
from tests.cli.test_optimum import PROBLEM
from tests.forks import longshare

WORK = """
import time
from allocator.cli.progress import bar, working
with working("compiling the simulator"):
    time.sleep(float({0!r}))
with bar("simulating", 1234, "tasks"):
    time.sleep(float({0!r}))
print("done")
"""


@pytest.mark.slow  # waits
@pytest.mark.parametrize(
    ("seconds", "lines"),
    [
        ("2.5", ["longshare: compiling the simulator …", "longshare: simulating 1,234 tasks …"]),
        ("0", []),
    ],
)
def test_a_pipe_gets_one_line_for_each_piece_of_long_work(seconds: str, lines: list[str]) -> None:
    program = [sys.executable, "-c", WORK.format(seconds)]
    completed = subprocess.run(program, capture_output=True, text=True, check=True)
    assert completed.stderr.splitlines() == lines
    assert completed.stdout == "done\n"


@pytest.mark.parametrize(
    "command",
    [
        ("games", "search", "--policy", "drf", "--property", "envy-freeness", "--trials", "1"),
        ("incentives", "profile.toml"),
        ("optimum", "problem.toml", "--policy", "drf"),
    ],
)
def test_commands_without_a_terminal_print_no_empty_line(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    for name, text in (("profile.toml", PROFILE), ("problem.toml", PROBLEM)):
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / part) if part.endswith(".toml") else part for part in command]
    completed = longshare(*given)
    assert (completed.returncode, completed.stderr) == (0, "")
