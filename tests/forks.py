"""`longshare` in separate processes, forked from a process that has imported all commands need.

Imports of half a second would otherwise dominate the duration of command-line tests. A fork runs
`allocator.cli`, or another module, like `python -m`, with its own arguments, environment, folder,
streams and signals. The fork is a child of the requesting process. The kernel kills the fork when
the requesting process ends, because pytest ends without a warning after a timeout.

tests/cli/test_lazy_imports.py, tests/frameworks and the first pages of the documentation test that
the command also starts without a fork.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATIENCE = 300.0
"""Longest duration of a command in seconds; a compiler may run."""
_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2): this process becomes the parent of orphaned descendants."""
_SET_PARENT_DEATH_SIGNAL = 1
"""Option of prctl(2): this process gets a signal when its parent ends."""
_WARM = (
    *("allocator.cli.serve", "allocator.service.server", "allocator.cli.shares"),
    *("allocator.cli.top", "allocator.cli.usage", "allocator.cli.simulate"),
    *("allocator.cli.report", "allocator.cli.figure", "allocator.cli.optimum"),
    *("allocator.cli.properties", "allocator.simulation.fast", "matplotlib.figure"),
    *("matplotlib.backends.backend_agg", "frameworks.cli", "scipy.optimize"),
)
_ROOT = Path(__file__).parents[1]
_LIBC = ctypes.CDLL(None)
_asking = threading.Lock()


class Longshare(subprocess.Popen[Any]):
    """A process that runs `longshare` with arguments; otherwise like `subprocess.Popen`.

    The arguments `-m MODULE` run another module of this checkout.
    """

    def _execute_child(self, args: list[str], *rest: Any) -> None:  # noqa: ANN401 - as it is there
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        streams = [
            usual if end == -1 else end for usual, end in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        wanted = {"args": args, "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ)}
        with _asking:
            self.pid = _ask(wanted, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def longshare(
    *arguments: str, given: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return its output."""
    pipe = subprocess.PIPE
    with Longshare(
        [*arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env
    ) as process:
        try:
            output, complained = process.communicate(given, PATIENCE)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess([*arguments], process.returncode, output, complained)


@functools.cache
def _origin() -> socket.socket:
    """Start the forking process, which ends with this process."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, its = socket.socketpair()
    with its:
        origin = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", str(its.fileno())],
            pass_fds=[its.fileno()],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
        )
    atexit.register(origin.wait)
    atexit.register(ours.close)  # runs before `origin.wait`
    return ours


def _ask(wanted: dict[str, Any], streams: list[int]) -> int:
    origin = _origin()
    request = json.dumps(wanted).encode()
    socket.send_fds(origin, [len(request).to_bytes(8)], streams)
    origin.sendall(request)
    return int.from_bytes(_exactly(origin, 8))


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _fork_as_asked(channel: socket.socket) -> bool:
    """Fork at each request; return True in a fork, and False after the last request."""
    requester = os.getppid()
    while True:
        size, streams, *_ = socket.recv_fds(channel, 8, 3)
        if not size:
            return False
        wanted = json.loads(_exactly(channel, int.from_bytes(size)))
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            child = os.fork()
            if child == 0:
                os.close(read)
                os.close(write)
                channel.close()
                _end_with(requester, between)
                _become(wanted, streams)
                return True
            os.write(write, child.to_bytes(8))
            os._exit(0)
        os.waitpid(between, 0)
        channel.sendall(os.read(read, 8))
        for end in (read, write, *streams):
            os.close(end)


def _end_with(requester: int, between: int) -> None:
    """Let the kernel kill this process when the requesting process ends.

    Args:
        requester: The requesting process.
        between: This process's first parent, which ends at once; the requester then is the parent.
    """
    while os.getppid() == between:
        time.sleep(0.0005)
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != requester:
        os._exit(1)


def _become(wanted: dict[str, Any], streams: list[int]) -> None:
    for usual, stream in enumerate(streams):
        os.dup2(stream, usual)
        os.close(stream)
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", 1, closefd=False, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.argv = (
        wanted["args"][1:] if wanted["args"][:1] == ["-m"] else ["longshare", *wanted["args"]]
    )


def main() -> None:
    """Import, fork, and run the command in each fork."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the requesting process
    for name in _WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=int(sys.argv[1]))
    if _fork_as_asked(channel):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os._exit(_run())


def _run() -> int:
    """Run the module; return its exit code when everything except the interpreter has ended.

    Memory shared with the forking process is not freed, because that would copy the memory first.
    """
    module = "allocator.cli" if sys.argv[0] == "longshare" else sys.argv[0]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    main()
