"""What is long begins at once, each on a worker of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.served import wait_for

LONG = """
import time
from pathlib import Path

import pytest

@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_that_waits_for_the_others(number):
    here = Path(__file__).parent
    (here / f"{Path(__file__).stem}.begun").touch()
    ends = time.monotonic() + 60
    while len(list(here.glob("*.begun"))) < 3:
        assert time.monotonic() < ends, "the others wait until this one is done"
        time.sleep(0.01)
"""
SHORT = """
import pytest

@pytest.mark.parametrize("number", range(100))
def test_that_is_short(number):
    pass
"""


@pytest.mark.slow
def test_what_is_long_begins_on_all_workers_at_once(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: waits\n")
    for name in ("test_one.py", "test_two.py", "test_three.py"):
        (tmp_path / name).write_text(LONG)
    (tmp_path / "test_short.py").write_text(SHORT)
    every = [*(sys.executable, "-m", "pytest", "-p", "tests.conftest"), "-v"]
    with (tmp_path / "said").open("w+") as said:
        running = subprocess.Popen(
            [*every, "-n", "3", "--dist", "worksteal", str(tmp_path)],
            cwd=Path(__file__).parents[1],
            stdout=said,
            stderr=subprocess.STDOUT,
        )

        def passed() -> int:
            said.seek(0)
            return said.read().count(" PASSED ")

        try:  # how long pytest-xdist then takes to end is not what is claimed
            wait_for(lambda: passed() == 109 or running.poll() is not None)
        finally:
            running.kill()
            running.wait()
        assert passed() == 109, (tmp_path / "said").read_text()
