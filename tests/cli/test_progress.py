"""Work of more than two seconds shows progress on standard error."""

import subprocess
import sys

import pytest

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
