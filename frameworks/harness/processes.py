"""Starts child processes, logs their output, and stops them all at the end."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 5.0
"""Seconds after which a process that was asked to stop is killed."""
_TAIL = 15


class ChildFailed(RuntimeError):  # noqa: N818 - the name says that a child failed
    """Raised if a child process has ended unexpectedly, or with an error."""


class Child:
    """A running child process, with its output in a log file.

    Args:
        name: Name in messages to people.
        command: The program and its arguments.
        log: File for the output.
        waits: True if the process waits at its start until `release` is called.
        ends: True if the process may end by itself, with exit code 0.
        farewell: Signal that asks the process to stop.
    """

    def __init__(  # noqa: PLR0913 - a process has as many options
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
        """True after `kill`: the end of the process is no failure."""
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the harness handles Ctrl-C and stops children in order
            )

    @property
    def ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def release(self) -> None:
        """Let the process continue, if it was started with `waits` and so waits for this call."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()

    def check(self) -> None:
        """Raise an error if the process has ended unexpectedly.

        Its end is expected after `kill`, and with exit code 0 if the process may end by itself.

        Raises:
            ChildFailed: The process has ended; the message shows its last lines of output.
        """
        code = self._process.poll()
        if self._ends and code == 0:
            return
        if code is not None and not self._expected:
            lines = self._log.read_text(errors="replace").splitlines()[-_TAIL:]
            output = "".join(f"\n  | {line}" for line in lines) or " (it said nothing)"
            raise ChildFailed(f"{self.name} ended with exit code {code}; see {self._log}:{output}")

    def await_line(self, pattern: str, patience: float) -> str:
        """Wait until a line of the output matches a pattern.

        Args:
            pattern: Regular expression with one group.
            patience: Maximum real time to wait, in seconds.

        Returns:
            The text of the group.

        Raises:
            ChildFailed: The process ended.
            TimeoutError: No line matched in time.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            match = re.search(pattern, self._log.read_text(errors="replace"))
            if match is not None:
                return match[1]
            self.check()
            time.sleep(0.02)
        raise TimeoutError(f"{self.name} did not come up within {patience:g} s; see {self._log}")

    def ask_to_stop(self) -> None:
        """Send the stop signal, without waiting for the end of the process.

        If the process has not been released yet, its standard input is closed too.
        """
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.send_signal(self._farewell)

    def kill(self) -> None:
        """Kill the process at once, as a crash would. `check` reports no error then."""
        self._process.kill()
        self._process.wait()
        self._expected = True

    def stop(self, deadline: float) -> None:
        """Wait until a process that was asked to stop has ended.

        At the deadline, kill it and its children.

        Args:
            deadline: Latest time, on the clock `time.monotonic`.
        """
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Children:
    """All processes of an experiment. At the end of a `with` block they are stopped, latest first.

    Args:
        logs: Folder for the processes' log files.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    def start(self, name: str, *arguments: str, waits: bool = False, ends: bool = False) -> Child:
        """Start a Longshare command, `longshare ARGUMENTS`, as a child process.

        Args:
            name: Name of the child, also for its log file.
            arguments: Arguments of the command.
            waits: True if the process waits at its start until `release` is called.
            ends: True if the process may end by itself, with exit code 0.
        """
        command = [sys.executable, "-m", "allocator.cli", *arguments]
        return self._register(Child(name, command, self.log(name), waits=waits, ends=ends))

    def start_program(
        self, name: str, *command: str, farewell: signal.Signals = signal.SIGTERM
    ) -> Child:
        """Start any program as a child process.

        Args:
            name: Name of the child, also for its log file.
            command: The program and its arguments.
            farewell: Signal that asks the process to stop.
        """
        return self._register(Child(name, command, self.log(name), farewell=farewell))

    def latest(self, name: str) -> Child:
        """Return the child that was started last under a given name."""
        return next(child for child in reversed(self._children) if child.name == name)

    def log(self, name: str) -> Path:
        """Return the path of a child's log file."""
        return self._logs / f"{name}.log"

    def _register(self, child: Child) -> Child:
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise an error if any child has ended unexpectedly, as `Child.check` does.

        Raises:
            ChildFailed: A child has ended.
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
        """Stop all running children, latest first."""
        deadline = time.monotonic() + PATIENCE
        children, self._children = self._children, []
        for child in reversed(children):
            child.ask_to_stop()
        for child in reversed(children):
            child.stop(deadline)
