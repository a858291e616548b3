"""Blocks of the documentation, and a shell that runs a page's commands one after the other.

A comment before a block tells how tests treat the block:

    <!-- not run: REASON -->      the commands need something that a test lacks
    <!-- file: NAME -->           the block is the content of that file
    <!-- not configuration -->    the block is TOML, but not a configuration
    <!-- before: COMMANDS -->     no block follows; the reader has run these commands already
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from frameworks.harness.ports import free_port
from tests.forks import Longshare

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
"""Seconds within which a command's output must match the page."""
PROGRAMS = re.compile(
    r"(#.*\n|\w+=\S+ )*"
    r"(\$|longshare|make|git|curl|bash|\S*bin/\S+|python3?|pip|docker|cmake|mesos-\w+|mkdir|cd) "
)
"""Pattern that recognises a block of commands without the language `sh` or `console`."""
_PARTS = re.compile(
    r"^<!-- before:\n(?P<before>.*?)^-->"
    r"|^(?:<!-- (?P<mark>(?:not|file)\b[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_FRESH = ["-m", "allocator.cli"]
_LATE = "the order is in the log, but not in the audit yet: its database is slow or fails\n"
"""End of an answer if the disk is slow; the test does not repeat the order."""
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:[.,:]\d+)*(?!\w)")
"""A number that is not part of a name, such as agent-1."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, or a comment with commands."""

    page: Path
    line: int
    mark: str
    language: str
    text: str

    @property
    def runs(self) -> bool:
        """Whether the block holds commands."""
        if self.mark.startswith("file: "):
            return False
        return self.language in {"sh", "bash", "shell", "console"} or (
            not self.language and PROGRAMS.match(self.text) is not None
        )

    @property
    def steps(self) -> Iterator[tuple[str, str]]:
        """Yield the commands of the block, each with the output shown below it."""
        if not self.text.startswith("$ "):
            yield self.text, ""
            return
        for step in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = re.sub(r"\\\n", "", step).partition("\n")
            yield command, output

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def pages() -> list[Path]:
    """Return the paths of all documentation pages."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = page.read_text()
    collected = []
    for part in _PARTS.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["before"] is not None:
            collected.append(Block(page, line, "before", "sh", part["before"]))
        else:
            collected.append(Block(page, line, part["mark"] or "", part["language"], part["text"]))
    return collected


def looks_like(output: str, written: str) -> bool:
    """Return whether an output matches the page, ignoring numbers, blanks and parts behind `…`."""

    def shape(text: str) -> str:
        return " ".join(_NUMBER.sub("0", text).split())

    pattern = ".*".join(re.escape(shape(part).strip()) for part in written.split("…"))
    shown = shape(output.removesuffix(_LATE))
    return re.fullmatch(pattern.replace(r".*", " ?.*"), shown) is not None


class Forks:
    """Runs the `longshare` commands of the shell in forks of the test process.

    The test process has imported the modules already, so commands start quickly. The client is
    `forked.py`: it passes its signals to the fork, and its end also ends the fork.
    """

    def __init__(self, socket_file: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(socket_file))
        self._listening.listen(50)
        self._commands: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        """Accept no more commands, and wait for the running commands."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        for command in self._commands:
            command.join()

    def _accept(self) -> None:
        with suppress(OSError):  # the socket is closed
            while True:
                client = self._listening.accept()[0]
                self._commands.append(threading.Thread(target=self._run, args=(client,)))
                self._commands[-1].start()

    def _run(self, client: socket.socket) -> None:
        with client:
            size, streams, *_ = socket.recv_fds(client, 8, 3)
            with client.makefile("rb") as rest:
                data = rest.read(int.from_bytes(size))
            if not data or len(data) < int.from_bytes(size):
                for stream in streams:
                    os.close(stream)
                return  # the client has ended, perhaps within its request
            request = data.decode(errors="surrogateescape")
            folder, environment, arguments = (
                part.split("\0") for part in request.split("\0\0", maxsplit=2)
            )
            process = Longshare(
                arguments[1:],
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                cwd=folder[0],
                env=dict(pair.split("=", 1) for pair in environment),
            )
            for stream in streams:
                os.close(stream)
            answering = threading.Thread(target=self._answer, args=(client, process))
            answering.start()
            with suppress(ConnectionError):
                while number := client.recv(1):
                    process.send_signal(number[0])
            process.kill()
            answering.join()

    @staticmethod
    def _answer(client: socket.socket, process: Longshare) -> None:
        code = process.wait()
        with suppress(OSError):  # the client has ended
            client.sendall(code.to_bytes(2, signed=True))
            client.shutdown(socket.SHUT_RDWR)


class Session:
    """A shell in a folder that looks like a checkout, with free ports of its own.

    Args:
        folder: Existing folder in which the commands run; it receives the files.
        fresh: Whether each `longshare` command starts a new interpreter.
    """

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self._folder = folder
        self._forks = None if fresh else Forks(folder / ".forks")
        self._steps = 0
        self._ports = {str(port): str(free_port()) for port in (5050, 5060, 5061, 9105)}
        self._lay_out()
        caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        environment = os.environ | {
            "HOME": str(folder),
            "XDG_CACHE_HOME": caches,  # kernels are compiled once, not for each page
            "LONGSHARE_ADDRESS": f"127.0.0.1:{self._ports['5060']}",
            "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._shell.stdin is not None
        self._shell.stdin.write("exec 3>&1; trap 'echo exit $? >&3' EXIT\n")

    def write(self, name: str, text: str) -> None:
        """Write a file into the folder."""
        (self._folder / name).write_text(self._moved(text))

    def run(self, commands: str) -> tuple[int, str]:
        """Run commands up to the first failure; return the exit code and the whole output.

        If one of several commands fails, the shell ends.
        """
        self._steps += 1
        output = self._folder / f".output-{self._steps}"
        step = self._folder / f".step-{self._steps}"
        several = "set -e\n" if commands.count("\n") > 0 else ""
        step.write_text(f"{several}{self._moved(commands)}\n")
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(
            f". {step} >{output} 2>&1 </dev/null 3>&-; code=$?; set +e; echo exit $code >&3\n"
        )
        self._shell.stdin.flush()
        status_line = self._shell.stdout.readline()
        return int(status_line.split()[1]), output.read_text()

    def close(self) -> None:
        """Kill the shell and all processes it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        if self._forks:
            self._forks.close()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _moved(self, text: str) -> str:
        """Replace the default ports in a text by the ports of this session."""
        return re.sub(
            r"(?:(?<=127\.0\.0\.1:)|(?<=\b0\.0\.0\.0:))\d+",
            lambda port: self._ports.get(port[0], port[0]),
            text,
        )

    def _lay_out(self) -> None:
        """Create docs/ and the programs; `longshare` uses this session's ports as defaults."""
        (self._folder / "docs").mkdir()
        for file in (ROOT / "docs").glob("*.toml"):
            self.write(f"docs/{file.name}", file.read_text())
        programs = self._folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        forked = ["-I", "-S", str(Path(__file__).with_name("forked.py")), f"{self._folder}/.forks"]
        longshare = shlex.join([sys.executable, *(forked if self._forks else _FRESH)])
        (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        (programs / "longshare").write_text(
            '#!/bin/sh\ncommand=$1\ncase "$command" in\n'
            f'local-mesos) shift; set -- "$command" --port {self._ports["5050"]}'
            f' --allocator 127.0.0.1:{self._ports["5060"]} "$@";;\n'
            f'framework) shift; set -- "$command" --master 127.0.0.1:{self._ports["5050"]} "$@";;\n'
            "esac\n"
            f'exec {longshare} "$@"\n'
        )
        for program in programs.iterdir():
            program.chmod(0o755)
