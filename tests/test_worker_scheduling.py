"""Long tests start at once, each on its own worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        assert time.monotonic() < ends, "other tests wait until this test has ended"
        time.sleep(0.01)
"""
SHORT = """
import pytest

@pytest.mark.parametrize("number", range(100))
def test_that_is_short(number):
    pass
"""


@pytest.mark.slow
def test_long_tests_begin_on_all_workers_at_once(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: waits\n")
    for name in ("test_one.py", "test_two.py", "test_three.py"):
        (tmp_path / name).write_text(LONG)
    (tmp_path / "test_short.py").write_text(SHORT)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest"),
            *("-n", "3", "--dist", "worksteal", str(tmp_path)),
        ],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "LONGSHARE_FAILURES": "failures"},  # not the folder of the outer run
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "109 passed" in ended.stdout
