"""The search for flakes counts the runs that have passed since the last failure, of one commit."""

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


def test_a_failure_resets_the_count() -> None:
    runs = [run(passed=passed) for passed in (True, True, False, True, True, True)]
    assert in_a_row(runs[:2]) == 2
    assert in_a_row(runs[:3]) == 0
    assert in_a_row(runs) == 3
    assert in_a_row([]) == 0


def test_all_threads_of_all_descendants_of_a_run_can_be_starved() -> None:
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


def test_load_processes_end_with_a_killed_search() -> None:
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


def test_a_run_whose_load_process_ended_early_does_not_count() -> None:
    with pytest.raises(RuntimeError, match="getpid has ended"), beside(os.getpid, 1) as (working,):
        working.join()


def test_a_search_with_an_incomplete_real_mesos_is_not_started(tmp_path: Path) -> None:
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
    """Set a policy that no search uses; return the policies of all threads."""
    schedule(process, os.SCHED_BATCH)
    threads = Path(f"/proc/{process}/task").iterdir()
    return [os.sched_getscheduler(int(thread.name)) for thread in threads]
