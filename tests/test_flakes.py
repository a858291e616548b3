"""The search for flakes counts what has passed since the last failure, of one commit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flakes import Run, beside, descendants, in_a_row, schedule
from tests.service.served import wait_for


def run(*, passed: bool) -> Run:
    return Run("a1b2", ["disk"], [], 7, mesos=False, seconds=400, passed=passed, said="1 passed")


def test_a_failure_begins_the_count_again() -> None:
    runs = [run(passed=passed) for passed in (True, True, False, True, True, True)]
    assert in_a_row(runs[:2]) == 2
    assert in_a_row(runs[:3]) == 0
    assert in_a_row(runs) == 3
    assert in_a_row([]) == 0


def test_who_starves_does_so_with_all_threads_and_is_of_the_run() -> None:
    begin = "import subprocess, sys, threading; threading.Thread(target=input).start(); "
    child = begin + "print(subprocess.Popen(['sleep', '100']).pid, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        assert {parent.pid, grandchild} <= descendants(os.getpid())
        assert descendants(parent.pid) == {grandchild}
        wait_for(lambda: rescheduled(parent.pid) == [os.SCHED_BATCH] * 2)
        os.kill(grandchild, signal.SIGKILL)
        parent.stdin.write("\n")


def test_what_works_beside_a_search_ends_with_it_though_it_is_killed() -> None:
    search = (
        "from tests import flakes\n"
        "from contextlib import ExitStack\n"
        "with ExitStack() as stack:\n"
        "    for work in (flakes._burn, flakes._write, flakes._starve):\n"
        "        stack.enter_context(flakes.beside(work, 1))\n"
        "    print('begun', flush=True)\n"
        "    input()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", search], stdin=pipe, stdout=pipe) as searching:
        assert searching.stdout is not None
        assert searching.stdout.readline() == b"begun\n"
        begun = descendants(searching.pid)
        searching.kill()
    assert len(begun) >= 3
    wait_for(lambda: not any(Path(f"/proc/{process}/exe").exists() for process in begun))


def test_a_run_beside_which_nothing_works_any_more_is_none() -> None:
    with pytest.raises(RuntimeError, match="getpid has ended"), beside(os.getpid, 1) as (working,):
        working.join()


def test_a_search_with_a_real_mesos_that_lacks_something_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "mesos-master").touch()
    search = subprocess.run(
        [sys.executable, "-m", "tests.flakes", "--runs", "0", "--only", "mesos"],
        env={**os.environ, "LONGSHARE_MESOS_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[1],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert search.returncode == 2
    assert f"LONGSHARE_MESOS_HOME: {tmp_path} lacks mesos-agent, " in search.stderr


def rescheduled(process: int) -> list[int]:
    """Schedule a process in a way that no search does, beside which this may run; look at it."""
    schedule(process, os.SCHED_BATCH)
    threads = Path(f"/proc/{process}/task").iterdir()
    return [os.sched_getscheduler(int(thread.name)) for thread in threads]
