"""Boot a throw-away Debian with systemd, and provide the packages to install there."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.ansible.debian import pristine

_PATIENCE = 60
"""Seconds to wait for a change of state."""
_BOOT_PATIENCE = 300
"""Seconds to wait for the end of the boot. A busy machine needs minutes."""
_ENTER = """
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done
shift
exec "$@"
"""


def package(pattern: str, otherwise: str) -> Path:
    """Return the newest built package of a name; skip the test without a package."""
    folder = Path(os.environ.get("LONGSHARE_PACKAGES", ""))
    packages = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if "LONGSHARE_PACKAGES" not in os.environ or not packages:
        pytest.skip(f"LONGSHARE_PACKAGES names no folder with {otherwise}")
    return packages[-1].absolute()


def depends(built: Path) -> str:
    """Return the dependencies of a package."""
    completed = subprocess.run(
        ["dpkg-deb", "--field", built, "Depends"], check=True, capture_output=True, text=True
    )
    return completed.stdout.strip()


def later(built: Path, folder: Path) -> Path:
    """Make the same package again, as of a later version."""
    subprocess.run(["dpkg-deb", "--raw-extract", built, folder / "unpacked"], check=True)
    control = folder / "unpacked/DEBIAN/control"
    lines = control.read_text().splitlines(keepends=True)
    control.write_text(
        "".join(line.strip() + "+later\n" if "Version:" in line else line for line in lines)
    )
    later = folder / f"later-{built.name}"
    pack = ("dpkg-deb", "-Znone", "--root-owner-group", "--build")
    subprocess.run([*pack, folder / "unpacked", later], check=True, stdout=subprocess.DEVNULL)
    return later


class Booted:
    """A running machine.

    Args:
        root: The root folder of its files, as seen from the host.
        init: The process id of its systemd, as seen from the host.
    """

    def __init__(self, root: Path, init: int) -> None:
        self.root = root
        self._enter = ["nsenter", "--target", str(init), "-m", "-u", "-i", "-n", "-p"]

    def run(self, *command: str) -> str:
        """Run a program in the machine; return its output."""
        completed = self._run(command)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout.strip()

    def fails(self, *command: str) -> bool:
        """Return whether a program fails in the machine."""
        return self._run(command).returncode != 0

    def _run(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, *command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def state(self) -> str:
        """Return the state of the machine's systemd, empty before systemd answers."""
        return self._run(("systemctl", "is-system-running")).stdout.strip()

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a program in the machine; its standard input is a pipe from the test."""
        return subprocess.Popen(
            [*self._enter, *command],
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def open(self, groups: list[Path]) -> None:
        """Let systemd use the control groups (version 1) of the machine, which systemd booted
        without.
        """
        if not groups:
            return
        for group in groups:
            self.run("mount", "-o", "remount,rw,bind", str(group.parent))
        self.run("systemctl", "daemon-reexec")
        self.until(lambda: self.state() == "running")

    def install(self, built: Path) -> None:
        """Install a package whose dependencies are already installed."""
        shutil.copy(built, self.root / "root")
        self.run("dpkg", "--force-unsafe-io", "--install", f"/root/{built.name}")

    def property(self, name: str, unit: str = "longshare") -> str:
        """Return a property of a service's unit."""
        return self.run("systemctl", "show", "--value", "--property", name, unit)

    def modes(self, *paths: str) -> dict[str, str]:
        """Return mode, owner and group of each path, such as `640 root longshare`."""
        lines = self.run("stat", "-c", "%n %a %U %G", *paths).splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition that systemd will meet."""
        end = time.monotonic() + _PATIENCE
        while not reached():
            assert time.monotonic() < end, self.run("journalctl", "--lines=50", "--output=cat")
            time.sleep(0.1)

    def path(self, path: str) -> Path:
        """Return a file of the machine, seen from outside."""
        return self.root / path.strip("/")

    def files(self) -> set[str]:
        """Return all installed, configured or stored files, except those of dpkg and logs."""
        kept = ("/proc", "/sys", "/run", "/dev", "/tmp", "/root", "/var/lib/dpkg", "/var/cache")
        passed = [word for path in kept for word in ("-path", path, "-prune", "-o")]
        paths = self.run("find", "/", *passed, "-print").splitlines()
        return {path for path in paths if not path.startswith(("/var/log/journal", "/var/tmp"))}


@contextmanager
def booted(dependencies: str, *units: str) -> Iterator[Booted]:
    """Boot a copy of the pristine Debian with dependencies; skip the test if that is impossible.

    Args:
        dependencies: Packages to install, as in a Depends field.
        units: Installed units that do not start at boot, because they fail without settings.
    """
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("systemd-nspawn is not installed, so no Debian is booted")
    with (
        TemporaryDirectory(prefix="longshare-machine-") as folder,
        _groups(Path(folder).name) as groups,
    ):
        root = Path(folder) / "root"
        subprocess.run(["cp", "-a", pristine(), root], check=True)
        satisfy = ("apt-get", "--yes", "--no-install-recommends", "satisfy", dependencies)
        disable = ("systemctl", "disable", *units)
        for command in (("apt-get", "update"), satisfy, *([disable] if units else ())):
            subprocess.run(["chroot", root, *command], check=True, stdout=subprocess.DEVNULL)
        log = Path(folder) / "console.log"
        # The machine needs neither the host's bus nor a scope there.
        enter = ("sh", "-c", _ENTER, "sh", *map(str, groups), "--")
        begin = ("systemd-nspawn", "--quiet", "--keep-unit", "--register=no", "--private-network")
        # From 256, systemd boots in version 1 of cgroups only if its command line asks for it.
        legacy = ("SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",) if groups else ()
        with (
            log.open("w") as console,
            subprocess.Popen(
                [*enter, *begin, "--console=pipe", "--boot", "--directory", root, *legacy],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            ) as container,
        ):
            try:
                machine = _up(root, container, log)
                machine.open(groups)
                yield machine
            finally:
                # The end of the first process ends all processes of the machine.
                for first in _children(container):
                    os.kill(first, signal.SIGKILL)


def _up(root: Path, container: subprocess.Popen[bytes], log: Path) -> Booted:
    """Wait until the machine has booted; skip the test if systemd-nspawn ends before.

    The test fails if a unit of the machine fails.
    """
    end = time.monotonic() + _BOOT_PATIENCE
    while container.poll() is None and time.monotonic() < end:
        for first in _children(container):
            machine = Booted(root, first)
            state = machine.state()
            if state == "running":
                return machine
            if state == "degraded":
                pytest.fail(f"failed units: {machine.run('systemctl', '--failed', '--plain')}")
        time.sleep(0.1)
    if container.poll() is None:
        pytest.fail(f"the Debian has not booted in {_BOOT_PATIENCE} s: {log.read_text()[-500:]}")
    pytest.skip(f"systemd-nspawn cannot boot a Debian here: {log.read_text()[-500:]}")


@contextmanager
def _groups(name: str) -> Iterator[list[Path]]:
    """Create a control group for the machine in each hierarchy that limits resources of units.

    Only version 1 of cgroups needs this; with version 2, systemd-nspawn creates the groups if
    permitted.
    """
    hierarchies = [Path("/sys/fs/cgroup", name) for name in ("memory", "pids")]
    made = [hierarchy / name for hierarchy in hierarchies if (hierarchy / "tasks").exists()]
    for group in made:
        group.mkdir()
    try:
        yield made
    finally:
        for group in made:
            for within in sorted(filter(Path.is_dir, group.rglob("*")), reverse=True):
                within.rmdir()
            group.rmdir()


def _children(container: subprocess.Popen[bytes]) -> list[int]:
    """Return the child processes of the container; the first is the machine's init."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    return [int(child) for child in children.read_text().split()] if children.exists() else []
