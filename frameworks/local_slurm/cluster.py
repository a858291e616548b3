"""Starts and stops a throw-away Slurm from the programs that Debian's packages install."""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from frameworks.harness.ports import free_port
from frameworks.harness.processes import Children
from frameworks.local_slurm.configuration import (
    BACKUP,
    SlurmSettings,
    database_socket,
    gpu_files,
    gres_conf,
    munge_socket,
    slurm_conf,
    slurmdbd_conf,
)

_PROGRAMS = ("munged", "slurmctld", "slurmd", "squeue", "scontrol", "sbatch")
_CLIENTS = (
    "squeue",
    "scontrol",
    "sprio",
    "sinfo",
    "sacct",
    "sacctmgr",
    "sdiag",
    "sbatch",
    "scancel",
)
_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
_ACCOUNTING_PACKAGES = ("slurmdbd", "mariadb-server-core", "mariadb-client-core")
_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb")
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
_PATIENCE = 60.0
"""Seconds in which a daemon must answer after its start."""
_CANCELLING = 10.0
"""Seconds in which cancelled jobs should end."""
_INTERVAL = 0.1
"""Seconds between two attempts to reach a daemon."""


class SlurmError(RuntimeError):
    """Raised if the throw-away Slurm cannot be started, or a command of Slurm has failed."""


def missing_programs(*, accounting: bool = False) -> list[str]:
    """Return the programs that a throw-away Slurm needs and that this machine lacks.

    Args:
        accounting: Whether a database and slurmdbd are needed, too.
    """
    needed = (*_PROGRAMS, *(_ACCOUNTING if accounting else ()))
    return [name for name in needed if shutil.which(name, path=_search_path()) is None]


def obstacle(*, accounting: bool = False) -> str | None:
    """Return why a temporary Slurm cannot run on this machine; None if it can.

    Args:
        accounting: Whether a database and slurmdbd are needed, too.
    """
    missing = missing_programs(accounting=accounting)
    if missing:
        return (
            f"Slurm's programs {', '.join(missing)} are not installed; on Debian: apt-get install "
            + " ".join(_PACKAGES + (_ACCOUNTING_PACKAGES if accounting else ()))
        )
    if os.geteuid() != 0:
        return "only root can start a Slurm whose jobs belong to other users; run this as root"
    return None


def _search_path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}"


def ended_jobs(jobcomp: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each line that Slurm has written for an ended job, by name.

    Args:
        jobcomp: The file that `jobcomp/filetxt` writes.
    """
    for line in jobcomp.read_text().splitlines():
        yield dict(part.split("=", 1) for part in line.split(" ") if "=" in part)


class LocalSlurm:
    """A Slurm with virtual nodes on this machine, with all its files in one folder.

    Use it in a `with` block: at the end of the block, all jobs and daemons are stopped. Jobs run as
    real processes. Only root can start it, because slurmd switches to the users of the jobs.

    Args:
        folder: An empty or new folder for configuration, state and logs.
        settings: Nodes, partitions and other settings.
        root: A folder with a Debian. The Slurm of this Debian is started, for tests of another
            version. None: this machine's Slurm.
    """

    def __init__(
        self, folder: Path, settings: SlurmSettings | None = None, root: Path | None = None
    ) -> None:
        self.folder = folder.resolve()
        self._root = root
        self._mounted: list[Path] = []
        self.settings = SlurmSettings() if settings is None else settings
        self._children = Children(self.folder)
        self._spool: tempfile.TemporaryDirectory[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment of Slurm's client commands for this Slurm."""
        return {
            **{name: value for name, value in os.environ.items() if "SLURM" not in name},
            "PATH": f"{self.folder / 'bin'}:{_search_path()}",
            "SLURM_CONF": str(self.conf),
        }

    @property
    def _short_folder(self) -> Path:
        """Folder for sockets, and for the scripts of jobs, while this Slurm runs."""
        assert self._spool is not None, "the Slurm has not been started"
        return Path(self._spool.name)

    @property
    def jobcomp(self) -> Path:
        """The file into which Slurm writes a line for each ended job."""
        return self.folder / "jobcomp.txt"

    @property
    def conf(self) -> Path:
        """The configuration file."""
        return self.folder / "slurm.conf"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a client command of Slurm and return its standard output.

        Args:
            command: The command and its arguments.
            text: Its standard input.

        Raises:
            SlurmError: The command failed; the message has its standard error.
        """
        ended = subprocess.run(  # noqa: S603 - commands of the installed Slurm
            self._command(*command),
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise SlurmError(f"{' '.join(command)}: {ended.stderr.strip() or ended.stdout.strip()}")
        return ended.stdout

    def submit(self, *options: str, user: str = "games", script: str = "sleep 10") -> int:
        """Submit a batch job and return its id.

        Args:
            options: Options of sbatch.
            user: A user of this machine that the job belongs to.
            script: Commands of the job.
        """
        common = ("--parsable", f"--uid={user}", "--chdir=/", "--output=/dev/null")
        output = self.run("sbatch", *common, *options, text=f"#!/bin/sh\n{script}\n")
        return int(output.split(";")[0])

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._start_daemon("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        self._wait("slurmctld", lambda: self.run("sinfo"))

    def start_backup(self) -> None:
        """Start the second slurmctld under its own host name, without waiting for an answer."""
        conf = self.folder / "backup.conf"
        own = self.conf.read_text().replace("slurmctld.pid", "backup.pid")
        conf.write_text(own)  # slurmctld would stop the process that the file names
        hosts = self.folder / "hosts"
        hosts.write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.2 {BACKUP}\n")
        etc = Path("/") if self._root is None else self._root
        program = ("env", f"SLURM_CONF={conf}", *self._command("slurmctld", "-D", "-f", str(conf)))
        commands = (("hostname", BACKUP), ("mount", "--bind", hosts, etc / "etc/hosts"))
        script = " && ".join(shlex.join(map(str, command)) for command in commands)
        unshared = (
            "unshare",
            "--uts",
            "--mount",
            "sh",
            "-c",
            f"{script} && exec {shlex.join(program)}",
        )
        self._children.start_program("slurmctld-backup", *unshared)

    def kill_controller(self) -> None:
        """Kill slurmctld at once, as a crash would."""
        self._children.latest("slurmctld").kill()

    def stop_controller(self) -> None:
        """Stop slurmctld, which saves its state."""
        controller = self._children.latest("slurmctld")
        controller.ask_to_stop()
        controller.stop(time.monotonic() + _PATIENCE)
        controller.kill()  # so that its end is no failure

    def kill_accounting(self) -> None:
        """Kill slurmdbd at once. slurmctld keeps its records until slurmdbd answers again."""
        self._children.latest("slurmdbd").kill()

    def start_accounting(self) -> None:
        """Start slurmdbd, and wait until it answers."""
        self._start_daemon("slurmdbd", "slurmdbd", "-D")
        self._wait("slurmdbd", lambda: self.run("sacctmgr", "show", "clusters"))

    def change_records(self, statement: str) -> None:
        """Change the database of slurmdbd by a statement in SQL, as a fault of Slurm would."""
        socket = f"--socket={database_socket(self._short_folder)}"
        self.run("mariadb", "--no-defaults", socket, "--execute", statement, "slurm")

    def start_node(self, name: str) -> None:
        """Start the daemon of a node, without waiting until the node is up."""
        self._start_daemon(f"slurmd-{name}", "slurmd", "-D", "-N", name, "-f", str(self.conf))

    def kill_node(self, name: str) -> None:
        """Kill the daemon of a node at once. The processes of its jobs continue."""
        self._children.latest(f"slurmd-{name}").kill()

    def wait_until_idle(self) -> None:
        """Wait until all nodes are up and no job, not even a completing job, is on a node."""
        states = ("sinfo", "--noheader", "--Node", "--format=%N %t")
        self._wait("slurmd", lambda: self._require_idle(self.run(*states)))

    def stop(self) -> None:
        """Stop all daemons, then kill the remaining processes of jobs."""
        if self._root is not None:
            self._cancel_jobs()  # processes of newer versions do not have the marker
        self._children.stop()
        marker = f"SLURM_CONF={self.conf}".encode()
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and process.name != str(os.getpid()):
                try:
                    if marker in (process / "environ").read_bytes().split(b"\0"):
                        os.kill(int(process.name), signal.SIGKILL)
                except (OSError, ValueError):
                    continue  # the process has ended
        for place in reversed(self._mounted):
            subprocess.run(["umount", "--lazy", place], check=True)  # noqa: S603, S607
        self._mounted.clear()
        if self._spool is not None:
            self._spool.cleanup()

    def _cancel_jobs(self) -> None:
        """Cancel all jobs and wait until they have ended, unless the controller is gone."""
        running = ("squeue", "--noheader", "--states=all", "--format=%A %T")
        active = {"RUNNING", "COMPLETING", "SUSPENDED", "PENDING"}
        deadline = time.monotonic() + _CANCELLING
        try:
            while time.monotonic() < deadline:
                jobs = [line.split() for line in self.run(*running).splitlines()]
                if not (numbers := [number for number, state in jobs if state in active]):
                    return
                self.run("scancel", "--quiet", *numbers)
                time.sleep(_INTERVAL)
        except SlurmError:
            return

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        nodes = [name for group in self.settings.nodes for name in group.names()]
        ports = {name: free_port() for name in ("slurmctld", "slurmdbd", *nodes)}
        (self.folder / "state").mkdir()
        # Jobs belong to other users, which may not enter the folders of this user. The path of a
        # socket has at most 107 bytes, and the path of this Slurm's folder may be longer.
        self._spool = tempfile.TemporaryDirectory(prefix="longshare-slurm-")
        spool = self._short_folder
        spool.chmod(0o755)
        for name in nodes:
            (spool / name).mkdir(mode=0o755)
        self._enter_root(spool)
        self.conf.write_text(slurm_conf(self.settings, self.folder, spool, ports))
        (self.folder / "gres.conf").write_text(gres_conf(self.settings, self.folder))
        for group in self.settings.nodes:
            for name in group.names():
                for file in gpu_files(group, name, self.folder):
                    file.touch()
        self._start_munge()
        if self.settings.accounting:
            self._create_accounting(ports["slurmdbd"])
        self.start_controller()
        if self.settings.backup:
            self.start_backup()
        for name in nodes:
            self.start_node(name)
        self.wait_until_idle()

    @staticmethod
    def _require_idle(states: str) -> None:
        waiting = {line.split()[0] for line in states.splitlines() if line.split()[1] != "idle"}
        if waiting:
            raise SlurmError(f"these nodes are not idle: {', '.join(sorted(waiting))}")

    def _start_munge(self) -> None:
        key, socket = self.folder / "munge.key", munge_socket(self._short_folder)
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        places = {
            "socket": socket,
            "key-file": key,
            "pid-file": self.folder / "munged.pid",
            "log-file": self.folder / "munged.messages",
            "seed-file": self.folder / "munged.seed",
        }
        options = [f"--{name}={path}" for name, path in places.items()]
        self._start_daemon("munged", "munged", "--foreground", "--force", *options)
        self._wait("munged", lambda: self.run("munge", "--no-input", f"--socket={socket}"))

    def _create_accounting(self, port: int) -> None:
        data, socket = self.folder / "database", database_socket(self._short_folder)
        # A server that starts removes all temporary tables in its folder for temporary files.
        temporary = self.folder / "database-temporary"
        temporary.mkdir()
        self.run(
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            f"--tmpdir={temporary}",
            "--user=root",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--force",  # also if host names cannot be looked up, as inside a root
        )
        self._start_daemon(
            "mariadbd",
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            f"--tmpdir={temporary}",
            f"--socket={socket}",
            f"--pid-file={self.folder / 'mariadbd.pid'}",
            "--skip-networking",
            "--innodb-buffer-pool-size=64M",
            # With it, slurmdbd ends at some conflicts. Older versions do not have this option.
            "--loose-innodb-snapshot-isolation=OFF",
        )
        client = ("mariadb", "--no-defaults", f"--socket={socket}", "--execute")
        self._wait("mariadbd", lambda: self.run(*client, "CREATE DATABASE IF NOT EXISTS slurm"))
        configuration = self.folder / "slurmdbd.conf"
        configuration.touch(0o600)
        configuration.write_text(slurmdbd_conf(self.folder, self._short_folder, port))
        self.start_accounting()
        self.run("sacctmgr", "--immediate", "add", "cluster", "trial")

    def _start_daemon(self, name: str, program: str, *arguments: str) -> None:
        variables = (
            f"SLURM_CONF={self.conf}",
            f"MYSQL_UNIX_PORT={database_socket(self._short_folder)}",
        )
        self._children.start_program(name, "env", *variables, *self._command(program, *arguments))

    def _command(self, program: str, *arguments: str) -> list[str]:
        """Return the command that runs a program of the installed Slurm, or of the root's.

        Raises:
            SlurmError: The program is not installed.
        """
        if self._root is not None:
            search = f"PATH={_SYSTEM_FOLDERS}:/usr/local/bin:/usr/bin:/bin"
            return ["chroot", str(self._root), "env", search, program, *arguments]
        path = shutil.which(program, path=_search_path())
        if path is None:
            raise SlurmError(f"{program} is not installed")
        return [path, *arguments]

    def _enter_root(self, spool: Path) -> None:
        """Make this Slurm's folders visible inside the root, and its commands outside of it."""
        if self._root is None:
            return
        # Versions before 23 do not know this value, and find the machine's cgroups on their own.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        # slurmctld since 24.11 looks up the name of each client, which takes seconds without names.
        shutil.copy("/etc/hosts", self._root / "etc/hosts")
        for place in (Path("/proc"), Path("/sys"), Path("/dev"), self.folder, spool):
            inside = self._root / place.relative_to("/")
            inside.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", place, inside], check=True)  # noqa: S603, S607
            self._mounted.append(inside)
        commands = self.folder / "bin"
        commands.mkdir()
        for name in _CLIENTS:
            wrapper = commands / name
            wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(self._command(name))} "$@"\n')
            wrapper.chmod(0o755)

    def _wait(self, name: str, attempt: Callable[[], object]) -> None:
        """Repeat an attempt until it succeeds.

        Args:
            name: The daemon that the attempt needs, for the error message.
            attempt: Raises `SlurmError` if the daemon does not answer yet.

        Raises:
            SlurmError: The daemon did not answer in time; the message has the last error.
            ChildFailed: A daemon has ended; the message has the end of its log.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                attempt()
            except SlurmError as error:
                self._children.check()
                if time.monotonic() > deadline:
                    raise SlurmError(
                        f"{name} did not answer in {_PATIENCE:g} s: {error}; see {self.folder}"
                    ) from error
                time.sleep(_INTERVAL)
            else:
                return
