"""Child processes that never outlive their parent's interest in them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 5.0
"""Seconds between asking a process to stop and killing it."""
_TAIL = 15


class ChildFailed(RuntimeError):  # noqa: N818 - it names the child, which is what failed
    """A child ended before its time."""


class Child:
    """A process with its output in a log file.

    Args:
        name: For people.
        command: What to run.
        log: Where its output goes.
        waits: Whether it waits for `release`.
        ends: Whether it may end by itself, if it ends well.
        farewell: The signal that asks it to stop.
    """

    def __init__(  # noqa: PLR0913 - they are what starting a process takes
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        waits: bool = False,
        ends: bool = False,
        farewell: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self._ends = ends
        self._log = log
        self._farewell = farewell
        self._expected = False
        """Whether it may have ended."""
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the harness, which stops them in order
            )

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def release(self) -> None:
        """Let a process go that was started to wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()

    def check(self) -> None:
        """Raise if the process has ended.

        Raises:
            ChildFailed: it has; the message shows its last words.
        """
        code = self._process.poll()
        if self._ends and code == 0:
            return
        if code is not None and not self._expected:
            lines = self._log.read_text(errors="replace").splitlines()[-_TAIL:]
            said = "".join(f"\n  | {line}" for line in lines) or " (it said nothing)"
            raise ChildFailed(f"{self.name} ended with exit code {code}; see {self._log}:{said}")

    def ask_to_stop(self) -> None:
        """Send the signal, and the end of its input to one that still waits."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.send_signal(self._farewell)

    def kill(self) -> None:
        """Kill it, as a crash would, and expect nothing more of it."""
        self._process.kill()
        self._process.wait()
        self._expected = True

    def stop(self, deadline: float) -> None:
        """Wait until it has stopped; from the deadline on kill it with all its children."""
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Children:
    """Processes that are stopped together, the latest first, however the block ends."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    def start(self, name: str, *arguments: str, waits: bool = False, ends: bool = False) -> Child:
        """Start `longshare ARGUMENTS`."""
        command = [sys.executable, "-m", "allocator.cli", *arguments]
        return self._keep(Child(name, command, self.log(name), waits=waits, ends=ends))

    def start_program(
        self, name: str, *command: str, farewell: signal.Signals = signal.SIGTERM
    ) -> Child:
        """Start a program that is not ours."""
        return self._keep(Child(name, command, self.log(name), farewell=farewell))

    def latest(self, name: str) -> Child:
        """Return the latest child of a name."""
        return next(child for child in reversed(self._children) if child.name == name)

    def log(self, name: str) -> Path:
        """Return where the output of a child goes."""
        return self._logs / f"{name}.log"

    def _keep(self, child: Child) -> Child:
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise if one has ended.

        Raises:
            ChildFailed: one has.
        """
        for child in self._children:
            child.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all that still run, the latest first."""
        deadline = time.monotonic() + PATIENCE
        children, self._children = self._children, []
        for child in reversed(children):
            child.ask_to_stop()
        for child in reversed(children):
            child.stop(deadline)
