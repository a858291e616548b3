"""Run a real PostgreSQL server from Debian's package in a separate folder, without privileges."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.service.served import freeze

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
PATIENCE = 90.0


def why_not() -> str:
    """Return why no PostgreSQL server can be started; an empty string if a start is possible."""
    if not PROGRAMS:
        return "needs PostgreSQL (Debian's package postgresql)"
    if os.getuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return ""


class Postgres:
    """A PostgreSQL server that listens only on a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = PROGRAMS[-1].parent
        self.url = f"postgresql://tester@/postgres?host={folder}"
        self._made = 0
        folder.mkdir(parents=True)
        self._as: list[str] = []
        if os.getuid() == 0:
            user = _other_user()
            assert user is not None
            setpriv = shutil.which("setpriv")
            assert setpriv is not None
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as = [
                *(setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
            ]
        plain = ("--no-locale", "--encoding=SQL_ASCII")  # as in the C locale
        made = ("-D", f"{folder}/data", "--no-sync", *plain)
        self._run("initdb", "-U", "tester", "-A", "trust", *made)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["-k", str(self._folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        self._process = subprocess.Popen(
            [*self._as, self._bin / "postgres", "-D", self._folder / "data", *options],
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
        )
        ready = [str(self._bin / "pg_isready"), "-q", "-h", str(self._folder), "-U", "tester"]
        deadline = time.monotonic() + PATIENCE
        while subprocess.run(ready, check=False).returncode:
            assert time.monotonic() < deadline, "PostgreSQL does not become ready"
            time.sleep(0.05)

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        self._made += 1
        name = f"test_{self._made}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres?", f"/{name}?")

    def kill(self) -> None:
        """End the server at once, without a checkpoint."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)
            self._process = None

    def stall(self, *, stalled: bool) -> None:
        """Stop all processes of the server, or let them continue."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        if stalled:
            freeze(self._process.pid)  # and starts no more children
        for pid in map(int, children.read_text().split()):
            os.kill(pid, signal.SIGSTOP if stalled else signal.SIGCONT)
        if not stalled:
            self._process.send_signal(signal.SIGCONT)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, self._bin / program, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _other_user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None
