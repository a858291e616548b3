"""Forked commands end with the process that requested them."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.service.served import PATIENCE

ROOT = Path(__file__).parents[1]
REQUESTER = """
import os
import sys
import time
from subprocess import DEVNULL
from tests.forks import Longshare

command, folder = ["-m", "http.server", "0", "--bind=127.0.0.1"], sys.argv[1]
fork = Longshare(command, cwd=folder, stdout=DEVNULL, stderr=DEVNULL)
while os.readlink(f"/proc/{fork.pid}/cwd") != folder:  # until the fork begins the command
    time.sleep(0.02)
print(fork.pid, flush=True)
os._exit(1)  # as pytest ends after a timeout
"""


def test_a_fork_ends_when_the_requesting_process_ends_without_stopping_it(tmp_path: Path) -> None:
    requester = subprocess.run(
        [sys.executable, "-c", REQUESTER, tmp_path.resolve()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert requester.returncode == 1, requester.stderr
    command = Path("/proc") / requester.stdout.strip() / "cmdline"
    deadline = time.monotonic() + PATIENCE
    with suppress(FileNotFoundError):
        while b"tests.forks" in command.read_bytes():
            assert time.monotonic() < deadline, "the fork still runs"
            time.sleep(0.02)
