"""Runs Slurm's client commands: reads jobs and nodes, and sets site factors."""

import getpass
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from threading import Timer
from typing import IO

from allocator.slurm.checks import keeps_accounting
from allocator.slurm.factors import FactorUpdate
from allocator.slurm.jobs import OWN_COLUMNS, SEPARATOR, TEXT_COLUMNS, WIDTHS
from allocator.slurm.records import ACCOUNTING_COLUMNS
from allocator.slurm.rows import COLUMN_END, ShapeError, decoded
from allocator.slurm.users import ASSOCIATION_COLUMNS

_PRIVATE = ("SQUEUE_", "SPRIO_", "SACCT_", "SINFO_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
"""Beginnings of environment variables that would change the output of client commands."""
_SYSTEM_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_RACES = ("already finished", "Invalid job id", "Job/step already completing")
"""Parts of messages about jobs that have ended since they were read. They are no failures."""


_BLOCK_BYTES = 1 << 20
"""Size of the blocks in which a file is read."""
_RECORD_END = re.compile(rb" ExitCode=\d+:\d+ ?\n$")
"""The end of a record of `jobcomp/filetxt`."""
_LONGEST_END = 64
"""Maximum number of bytes of the end of a record."""
_LATE_CLOCK = 60.0
"""Seconds by which the clock of slurmctld may be behind."""
_SIZES_EVERY = 10.0
"""Minimum seconds between two remembered sizes of a file."""
_LONGEST_DETAILS = 1 << 16
"""Maximum number of bytes of a job's details that are kept. The times of a job's changes come
first. The command of a job comes later, and can have a megabyte."""
_EACH_RECORD = "--array-unique"
"""Prints a line for each record of an array. Slurm has this option up to version 22."""
_EACH_TASK = "--array"
"""Prints a line for each task of an array. Without it, newer versions combine records."""


_WITHOUT_CONFIGURATION = "establish a configuration source"
"""Part of the message of Slurm's commands if they find no slurm.conf."""


class CommandError(RuntimeError):
    """A client command of Slurm failed; the message has the command and its messages."""


class SlurmClient:
    """Runs Slurm's client commands, which find the present controller on their own.

    Args:
        environment: Environment of the commands; by default that of this process. `SLURM_CONF`
            names the configuration file.
        timeout: Seconds after which a command is ended, because no controller answers.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, timeout: float = 60.0) -> None:
        inherited = os.environ if environment is None else environment
        self._environment = {
            name: value for name, value in inherited.items() if not name.startswith(_PRIVATE)
        }
        self._environment["SLURM_TIME_FORMAT"] = "%s"  # seconds since 1970
        self._environment["SLURM_BITSTR_LEN"] = "0"  # all task ids of an array
        self._path = f"{self._environment.get('PATH', '')}:{_SYSTEM_FOLDERS}"
        self.timeout = timeout
        """Seconds after which a command is ended."""
        self._array_option = _EACH_RECORD

    def jobs(self) -> bytes:
        """Return all jobs, also recently ended jobs, for `JobReader`."""
        try:
            return self._queue(self._array_option)
        except CommandError as error:
            if self._array_option == _EACH_TASK or "unrecognized option" not in str(error):
                raise
            printed = self._queue(_EACH_TASK)
            self._array_option = _EACH_TASK
            return printed

    def _queue(self, array_option: str) -> bytes:
        separator = _random_separator()
        *first, last = OWN_COLUMNS
        own = [f"{name}:{SEPARATOR}" for name in first]
        texts = [f"{name}:{WIDTHS.get(name, '')}{separator}" for name in (last, *TEXT_COLUMNS)]
        # Other users of this machine see a command's options, but not its environment.
        printed = self._output(
            *("squeue", "--all", "--local", array_option, "--states=all", "--noheader"),
            variables={"SQUEUE_FORMAT2": ",".join([*own, *texts])},
        )
        return printed.replace(separator.encode(), COLUMN_END.encode())

    def details(self, jobs: Mapping[int, str]) -> dict[int, str]:
        """Return the details of each job by job id, for `read_details`. One command reads all jobs.

        Jobs that Slurm has forgotten meanwhile are left out.

        Args:
            jobs: Names of single records (`Job.single`) by job id.

        Raises:
            CommandError: The controller does not answer.
            ShapeError: The output does not have a part for each job.
        """
        if not jobs:
            return {}
        separator = _random_separator()
        hosts = f"{separator}[1-2]"  # scontrol may repeat its input, but prints each host in a line
        asked = [f"show job {name}\nshow hostnames {hosts}\n" for name in jobs.values()]
        end = f"{separator}1\n{separator}2\n".encode()
        parts, errors = self._beginnings(("scontrol", "--oneliner"), "".join(asked), end)
        messages = _messages(errors)
        for failure in _failures(messages):
            raise CommandError(f"scontrol failed: {failure}")
        texts = list(map(decoded, parts))
        if len(texts) != len(jobs):
            raise ShapeError(f"scontrol show job: {len(texts)} parts for {len(jobs)} jobs")
        shown = zip(jobs, texts, strict=True)
        return {job: text for job, text in shown if "JobId=" in text or not messages}

    def nodes(self) -> str:
        """Return all nodes, for `read_nodes`."""
        return self._run("scontrol", "--oneliner", "--all", "show", "nodes")

    def site_factors(self) -> dict[str, int]:
        """Return the site factors of pending jobs by job id.

        Slurm lists only jobs that may start now, and new jobs only after `PriorityCalcPeriod`.

        Raises:
            CommandError: The command failed, for example because Slurm has no multifactor plugin.
            ShapeError: A line has another form.
        """
        factors = {}
        for line in self._run("sprio", "--noheader", "--format=%i|%S").splitlines():
            job, _, factor = line.strip().partition("|")
            try:
                factors[job.strip()] = int(factor)
            except ValueError:
                raise ShapeError(f"sprio: the site factor is not a number: {line!r}") from None
        return factors

    def associations(self) -> bytes:
        """Return this cluster's tree of accounts with its shares, for `read_associations`.

        One slurmdbd may serve several clusters. Under load, sacctmgr needs tens of seconds for some
        thousand associations, so it has ten times the timeout of other commands.

        Raises:
            CommandError: slurmctld or slurmdbd does not answer.
            ShapeError: slurmctld does not tell the name of its cluster.
        """
        cluster = self.configuration().get("ClusterName", "")
        if not cluster:
            raise ShapeError("scontrol show config: the setting ClusterName is missing")
        columns = ",".join(ASSOCIATION_COLUMNS)
        show = ("sacctmgr", "--noheader", "show", "associations", "wopl")
        columns = f"format={columns}"
        return self._output(*show, f"cluster={cluster}", columns, timeout=10 * self.timeout)

    def accounting(self, since: float) -> bytes:
        """Return all attempts since a time, for `read_accounting`.

        Args:
            since: Seconds since 1970.
        """
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
        separator = _random_separator()
        printed = self._output(
            *("sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable"),
            f"--delimiter={separator}",
            f"--starttime={start}",
            "--endtime=now",
            f"--format={','.join(ACCOUNTING_COLUMNS)}",
        )
        return printed.replace(separator.encode(), COLUMN_END.encode())

    def queued_records(self) -> int:
        """Return the number of messages that slurmctld has not sent to slurmdbd yet.

        Raises:
            CommandError: slurmctld does not answer.
            ShapeError: slurmctld does not tell the number.
        """
        match = re.search(r"^DBD Agent queue size: *(\d+)$", self._run("sdiag"), re.MULTILINE)
        if match is None:
            raise ShapeError("sdiag: the field `DBD Agent queue size` is missing")
        return int(match[1])

    def configuration(self) -> dict[str, str]:
        """Return the settings of the running slurmctld by name."""
        settings = {}
        for line in self._run("scontrol", "show", "config").splitlines():
            name, equals, value = line.partition("=")
            if equals:
                settings[name.strip()] = value.strip()
        return settings

    def partitions(self) -> str:
        """Return all partitions, a line for each."""
        return self._run("scontrol", "--oneliner", "--all", "show", "partitions")

    def admin_level(self, user: str) -> str:
        """Return a user's rights in slurmdbd: `None`, `Operator` or `Administrator`."""
        return self._run(
            "sacctmgr", "--parsable2", "--noheader", "show", "user", user, "format=adminlevel"
        ).strip()

    def set_factors(self, updates: Iterable[FactorUpdate]) -> list[str]:
        """Set site factors, with one command for all.

        Returns:
            Messages of Slurm about updates that failed, without jobs that have ended meanwhile.

        Raises:
            CommandError: The controller does not answer.
        """
        lines = [f"update jobid={target} sitefactor={factor}\n" for target, factor in updates]
        if not lines:
            return []
        ended = self._start(("scontrol",), "".join(lines), {}, self.timeout)
        failures = _failures(_messages(ended.stderr))
        if any("Unable to contact" in text for text in failures):
            raise CommandError(f"scontrol: {failures[0]}")
        return failures

    def _run(
        self,
        *command: str,
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Return the output of a command as text."""
        return decoded(self._output(*command, variables=variables, timeout=timeout))

    def _output(
        self,
        *command: str,
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """Return the output of a command."""
        ended = self._start(command, "", variables or {}, timeout or self.timeout)
        if ended.returncode or b"error:" in ended.stderr:
            messages = _messages(ended.stderr) or _messages(ended.stdout) or ["without a message"]
            text = "; ".join(message.removeprefix(f"{command[0]}: ") for message in messages)
            if _WITHOUT_CONFIGURATION in text:
                text += "; give the path of slurm.conf, as SLURM_CONF or as the setting slurm.conf"
            raise CommandError(f"{command[0]} failed: {text}")
        return ended.stdout

    def _beginnings(
        self, command: Sequence[str], text: str, end: bytes
    ) -> tuple[list[bytes], bytes]:
        """Return the beginnings of the parts of a command's output, and its messages.

        Args:
            command: The command and its arguments.
            text: Its standard input.
            end: Ends each part.
        """
        with _in_memory("asked") as asked, _in_memory("errors") as errors:
            asked.write(text.encode())
            asked.seek(0)
            with (
                subprocess.Popen(  # noqa: S603 - a client command of the installed Slurm
                    [self._program(command[0]), *command[1:]],
                    env=self._environment,
                    stdin=asked,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                ) as process
            ):
                timer = Timer(self.timeout, process.kill)
                timer.start()
                try:
                    parts = list(_beginnings(process.stdout or BytesIO(), end))
                finally:
                    in_time = timer.is_alive()
                    timer.cancel()
            if not in_time:
                raise self._late(command[0])
            errors.seek(0)
            return parts, errors.read()

    def _start(
        self, command: Sequence[str], text: str, variables: Mapping[str, str], timeout: float
    ) -> "subprocess.CompletedProcess[bytes]":
        try:
            return subprocess.run(  # noqa: S603 - a client command of the installed Slurm
                [self._program(command[0]), *command[1:]],
                env={**self._environment, **variables},
                input=text.encode(),
                capture_output=True,
                check=False,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise self._late(command[0], timeout) from None

    def _program(self, name: str) -> str:
        """Return the path of a client command."""
        program = shutil.which(name, path=self._path)
        if program is None:
            raise CommandError(f"{name} is not installed; Debian's package slurm-client has it")
        return program

    def _late(self, name: str, timeout: float | None = None) -> CommandError:
        """Return the error for a command that was ended."""
        return CommandError(
            f"{name} has not ended within {timeout or self.timeout:g} s; does slurmctld answer? "
            "`scontrol ping` tells"
        )


def _message(output: bytes) -> str:
    return output.decode(errors="backslashreplace").strip()


def _messages(output: bytes) -> list[str]:
    """Return the lines of an output, without empty lines."""
    return [line.strip() for line in _message(output).splitlines() if line.strip()]


def _failures(messages: Iterable[str]) -> list[str]:
    """Return messages about failures, without messages about jobs that have ended meanwhile."""
    return [text for text in messages if not any(race in text for race in _RACES)]


def _in_memory(name: str) -> IO[bytes]:
    """Return a file that a command can use, and that needs no room on a disk (Linux only)."""
    return os.fdopen(os.memfd_create(name), "w+b")


def _beginnings(output: IO[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the first `_LONGEST_DETAILS` bytes of each part of an output; `end` ends each part."""
    part, rest = b"", b""
    while block := output.read(_BLOCK_BYTES):
        *ended, rest = (rest + block).split(end)
        for text in ended:
            yield (part + text)[:_LONGEST_DETAILS]
            part = b""
        part = (part + rest[: -len(end)])[:_LONGEST_DETAILS]
        rest = rest[-len(end) :]


def _random_separator() -> str:
    """Return a text that users cannot guess. Texts from users then never contain the separator."""
    return f"L{secrets.token_urlsafe(9)}"


def may_set_factors(client: SlurmClient, configuration: Mapping[str, str]) -> bool:
    """Return whether this process may set site factors.

    Root, SlurmUser, and operators and administrators in slurmdbd may.

    Args:
        client: Asks for the rights in slurmdbd.
        configuration: Settings of slurmctld by name.

    Raises:
        CommandError: slurmdbd does not answer.
    """
    own = os.geteuid()
    if own == 0 or configuration.get("SlurmUser", "").endswith(f"({own})"):
        return True
    if not keeps_accounting(configuration):
        return False
    return client.admin_level(getpass.getuser()) in {"Operator", "Administrator"}


def complete_lines(path: Path, offset: int = 0) -> Iterator[str]:
    """Yield the complete lines of a text file to which other programs append.

    `surrogateescape` decodes invalid UTF-8. A line longer than a block is yielded in parts.

    Args:
        path: The file.
        offset: Bytes before the first line to yield.
    """
    with path.open("rb") as file:
        file.seek(offset)
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > _BLOCK_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                yield decoded(line)


class JobcompFile:
    """The file of `jobcomp/filetxt`, without the records before the settled time.

    slurmctld appends a record after the end of its job. So a record lies after the size that the
    file had at an earlier time, if its job ended after that time.
    """

    def __init__(self) -> None:
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file."""
        self._sizes: list[tuple[float, int]] = []
        """Times in seconds since 1970, and the size of the file at each, in bytes."""

    def note_size(self, path: Path, now: float, settled: float) -> None:
        """Remember the size of the file, if the file ends with a complete record.

        Args:
            path: The file.
            now: The time in seconds since 1970.
            settled: The time in seconds since 1970 from which records may be needed.
        """
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(max(status.st_size - _LONGEST_END, 0))
                end = file.read(_LONGEST_END)
        except OSError:
            self._sizes = []
            return
        identity = status.st_dev, status.st_ino
        if identity != self._identity or (self._sizes and status.st_size < self._sizes[-1][1]):
            self._identity, self._sizes = identity, []
        usable = sum(time < settled - _LATE_CLOCK for time, _ in self._sizes)
        del self._sizes[: max(usable - 1, 0)]
        is_due = not self._sizes or now - self._sizes[-1][0] >= _SIZES_EVERY
        if is_due and _RECORD_END.search(end):
            self._sizes.append((now, status.st_size))

    def lines(self, path: Path, settled: float) -> Iterator[str]:
        """Yield the lines that may belong to jobs that ended after a time."""
        offsets = [size for time, size in self._sizes if time < settled - _LATE_CLOCK]
        return complete_lines(path, max(offsets, default=0))
