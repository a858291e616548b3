"""A throw-away Debian for the roles, and the files that they need on the control machine."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.ansible.emulated import ANSIBLE, Played, environment

ROOT = ANSIBLE.parent
WHEELS = "/wheelhouse"
PROGRAMS = ("mesos-master", "mesos-agent", "mesos-executor")


def pristine() -> Path:
    """Return the Debian root that `make roles` has built; skip the test without a Debian."""
    folder = os.environ.get("LONGSHARE_DEBIAN")
    if not folder:
        pytest.skip("LONGSHARE_DEBIAN names no Debian, so no role is applied; try `make roles`")
    if os.geteuid() != 0:
        pytest.skip("only root can apply roles to a Debian in a folder")
    return Path(folder).absolute()


def packed_mesos(archive: Path) -> Path:
    """Pack Mesos's programs: the real programs if available, otherwise stubs with their names."""
    real = os.environ.get("LONGSHARE_MESOS_HOME")
    with tarfile.open(archive, "w:gz") as packed:
        for name in PROGRAMS:
            if real:
                packed.add(Path(real) / name, f"bin/{name}")
                continue
            program = tarfile.TarInfo(f"bin/{name}")
            text = b"#!/bin/sh\nexec sleep infinity\n"
            program.size, program.mode = len(text), 0o755
            packed.addfile(program, io.BytesIO(text))
    return archive


def built_wheels(folder: Path) -> Path:
    """Build the two wheels from a copy, so that no build files remain in the checkout."""
    source = folder / "source"
    for name in ("allocator", "frameworks", "packages"):
        # Another process may be compiling: files in __pycache__ are renamed once they are complete.
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    wheels = folder / "wheels"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", wheels, source, source / "packages" / "pymesos"),
        ],
        check=True,
    )
    return wheels


def fetched_requirements(folder: Path) -> Path:
    """Download the pinned requirements for Debian's Python, so that the Debian needs no index."""
    python = shutil.which("python3.11", path="/usr/bin")
    if python is None:
        pytest.skip("no /usr/bin/python3.11, so nothing can be fetched for Debian's Python")
    for file in ("runtime", "accounting", "extras"):
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", python, "download", "--quiet"),
                *("--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", folder),
                *("-r", ROOT / "requirements" / f"{file}.txt"),
            ],
            check=True,
        )
    return folder


class Debian:
    """A copy of the pristine Debian, to which playbooks are applied through a chroot.

    Args:
        folder: The folder for the copy, and for files to install.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        subprocess.run(["cp", "-a", str(pristine()), str(self.root)], check=True)
        (self.root / WHEELS.strip("/")).mkdir()
        self._home = folder
        self._fetched = fetched_requirements(folder / "fetched")
        module = folder / "module"
        module.mkdir()
        for name in ("allocator", "transport"):
            (module / f"liblongshare_{name}.so").write_bytes(b"not really a library")
        self._settings = {
            # Environment and HOME come from this process, because there is no login.
            "ansible_async_dir": "/root/.ansible_async",
            "ansible_become": "false",
            "ansible_connection": "community.general.chroot",
            "ansible_host": str(self.root),
            "longshare_wheels": str(built_wheels(folder)),
            "longshare_pip_arguments": f"--no-index --find-links {WHEELS}",
            "longshare_module_folder": str(module),
            "mesos_archive": str(packed_mesos(folder / "mesos.tar.gz")),
            "mesos_agent_master": "127.0.0.1:5050",
            "monitoring_nodes": "['127.0.0.1:9100']",
        }

    def play(self, playbook: str = "site.yml", **settings: str) -> Played:
        """Run a playbook; a single host is master and agent."""
        inventory = self._home / "inventory"
        known = " ".join(f'{name}="{value}"' for name, value in self._settings.items())
        inventory.write_text(f"[mesos_master]\ndebian {known}\n[mesos_agent]\ndebian\n")
        # Mounts disappear with the process, which has a mount namespace of its own.
        script = f"""
            set -e
            mount -t proc proc "$ROOT/proc"
            mount --rbind /dev "$ROOT/dev"
            mount --bind "$FETCHED" "$ROOT{WHEELS}"
            exec ansible-playbook playbooks/{playbook} "$@"
        """
        extra = [argument for pair in settings.items() for argument in ("-e", "=".join(pair))]
        completed = subprocess.run(
            [
                *("unshare", "--mount", "--propagation", "private"),
                *("sh", "-c", script, "sh", "-i", str(inventory), *extra),
            ],
            cwd=ANSIBLE,
            env=environment(self._home) | {"ROOT": str(self.root), "FETCHED": str(self._fetched)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Played(completed.returncode == 0, completed.stdout + completed.stderr)

    def run(self, *command: str) -> str:
        """Run a program in the Debian root; return its output."""
        completed = subprocess.run(
            ["chroot", self.root, *command], capture_output=True, text=True, check=True
        )
        return completed.stdout

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self.root / path.strip("/")).read_text()
