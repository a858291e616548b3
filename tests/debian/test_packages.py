"""The packages work when installed in a running Debian."""

import json
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocator.service.store.file import COMPANIONS
from tests.debian.booted import Booted, booted, depends, later, package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = """
[policy]
name = "drf"
[[users.declared]]
name = "batch"
[listen]
address = "127.0.0.1:5060"
[metrics]
address = "127.0.0.1:9105"
[recorder]
file = "/var/log/longshare/shares.csv"
every = 0.1
"""
LOCAL_MESOS = (
    *("longshare", "local-mesos", "--agents", "1", "--port", "0"),
    *("--allocator", "127.0.0.1:5060"),
)


@pytest.fixture(scope="module")
def service() -> Path:
    return package("longshare_*.deb", "a package of the service; try `make packages-check`")


@pytest.fixture(scope="module")
def module() -> Path:
    return package(
        "longshare-module-*.deb",
        "a package of the module; try `make packages-check MESOS_SOURCE=DIR`",
    )


@pytest.fixture(scope="module")
def machine(service: Path) -> Iterator[Booted]:
    with booted(depends(service)) as running:
        yield running


@pytest.fixture
def installed(machine: Booted, service: Path) -> Iterator[Booted]:
    """A machine on which the service's package was just installed for the first time."""
    machine.install(service)
    yield machine
    machine.run("dpkg", "--purge", "longshare")
    shutil.rmtree(machine.path("/etc/systemd/system/longshare.service.d"), ignore_errors=True)


def configure(machine: Booted, settings: str) -> None:
    machine.path("/etc/longshare/longshare.toml").write_text(settings)


def pid(machine: Booted) -> str:
    return machine.property("MainPID")


def started_again(machine: Booted, before: str) -> bool:
    return machine.property("ActiveState") == "active" and pid(machine) not in {"0", before}


def test_once_installed_the_service_runs_answers_and_is_started_with_the_machine(
    installed: Booted,
) -> None:
    assert installed.property("ActiveState") == "active"
    assert installed.run("systemctl", "is-enabled", "longshare") == "enabled"
    assert installed.run("stat", "-c", "%U", f"/proc/{pid(installed)}") == "longshare"
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9105/healthz').status)"
    assert installed.run("python3", "-c", ask) == "200"
    assert installed.run("longshare", "--version").startswith("longshare 1.")


def test_files_have_the_intended_owners(installed: Booted) -> None:
    modes = {
        "/etc/longshare": "750 root longshare",
        "/etc/longshare/longshare.toml": "640 root longshare",
        "/etc/logrotate.d/longshare": "644 root root",
        "/lib/systemd/system/longshare.service": "644 root root",
        "/opt/longshare/bin/longshare": "755 root root",
        "/var/lib/longshare": "700 longshare longshare",
    }
    assert installed.modes(*modes) == modes


def test_a_killed_service_is_started_again(installed: Booted) -> None:
    before = pid(installed)
    installed.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "longshare")
    installed.until(lambda: started_again(installed, before))
    assert installed.property("NRestarts") == "1"


def test_a_service_that_hangs_is_started_again_by_the_watchdog(installed: Booted) -> None:
    changed = installed.path("/etc/systemd/system/longshare.service.d/sooner.conf")
    changed.parent.mkdir()
    journal = ("journalctl", "--unit", "longshare", "--output=cat")
    changed.write_text("[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n")
    installed.run("systemctl", "daemon-reload")
    installed.run("systemctl", "restart", "longshare")
    before = pid(installed)
    installed.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "longshare")
    installed.until(lambda: started_again(installed, before))
    installed.until(lambda: "Watchdog timeout" in installed.run(*journal))


def test_after_a_log_rotation_the_service_continues_in_a_new_file(installed: Booted) -> None:
    configure(installed, SETTINGS)
    installed.run("systemctl", "restart", "longshare")
    before = pid(installed)
    shares = installed.path("/var/log/longshare/shares.csv")
    installed.run("systemd-run", "--unit=mesos", *LOCAL_MESOS)
    try:
        installed.until(lambda: shares.exists() and shares.stat().st_size > 0)
        first = shares.stat().st_ino
        installed.run("logrotate", "--force", "/etc/logrotate.d/longshare")
        installed.until(lambda: shares.exists() and shares.stat().st_ino != first)
    finally:
        installed.run("systemctl", "stop", "mesos")
    assert pid(installed) == before
    assert shares.with_name("shares.csv.1").exists()


def test_the_units_limits_are_in_force(installed: Booted) -> None:
    limits = installed.run("cat", f"/proc/{pid(installed)}/limits")
    (files,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    # A container has at most the resources of its host.
    around = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(files.split()[4]) == min(65536, around)
    assert installed.property("LimitNOFILE") == "65536"
    assert installed.property("MemoryMax") == str(4 << 30)
    assert installed.property("TasksMax") == "256"
    status = installed.run("cat", f"/proc/{pid(installed)}/status")
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    # Even the service's own user cannot write files of other users.
    assert installed.fails("nsenter", "-t", pid(installed), "-m", "touch", "/opt/longshare/new")


ENTER = """
import os, signal, sys
for group in sys.argv[1:]:
    with open(group, "w") as processes:
        processes.write(str(os.getpid()))
"""
CROWD = """
others = []
try:
    while len(others) < 1000:
        other = os.fork()
        if not other:
            signal.pause()
        others.append(other)
except BlockingIOError:
    print("refused, after", len(others))
for other in others:
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
"""
GREED = """
held = [b"x" * (64 << 20) for _ in range(96)]
print("has", len(held) * 64, "MiB")
"""


@pytest.fixture
def groups(installed: Booted) -> list[str]:
    """Return the files by which a process joins the control groups of the service's unit."""
    if "[not set]" in {installed.property("MemoryCurrent"), installed.property("TasksCurrent")}:
        pytest.skip("systemd-nspawn gives a Debian here no cgroups that bound memory and tasks")
    unit = installed.property("ControlGroup")
    return installed.run("find", "/sys/fs/cgroup", "-path", f"*{unit}/cgroup.procs").splitlines()


def test_a_thread_beyond_the_task_limit_of_the_unit_is_refused_and_the_service_continues(
    installed: Booted, groups: list[str]
) -> None:
    before = pid(installed)
    message, _, tasks = installed.run("python3", "-c", ENTER + CROWD, *groups).rpartition(" ")
    assert message == "refused, after"
    assert int(tasks) < int(installed.property("TasksMax"))
    assert pid(installed) == before


def test_a_service_above_the_memory_limit_of_its_unit_is_killed_and_restarted(
    installed: Booted, groups: list[str]
) -> None:
    with installed.start("python3", "-c", ENTER + GREED, *groups) as greedy:
        output, _ = greedy.communicate("")
    assert output == ""
    assert greedy.returncode == -signal.SIGKILL
    installed.until(lambda: installed.property("ActiveState") == "active")


def test_invalid_settings_stop_the_service_without_restarts(installed: Booted) -> None:
    configure(installed, "[policy]\nname = 3\n")
    assert installed.fails("systemctl", "restart", "longshare")
    assert installed.property("ExecMainStatus") == "2"
    assert installed.property("ActiveState") == "failed"
    assert installed.property("NRestarts") == "0"


def test_an_upgrade_keeps_settings_and_commitments_and_restarts_the_service(
    installed: Booted, service: Path, tmp_path: Path
) -> None:
    configure(installed, SETTINGS)
    installed.run("systemctl", "restart", "longshare")
    before, store = pid(installed), installed.path("/var/lib/longshare")
    # Temporary files of SQLite exist only during writes.
    kept = {path.name for path in store.iterdir() if not path.name.endswith(COMPANIONS)}
    assert kept
    installed.install(later(service, tmp_path))
    installed.until(lambda: started_again(installed, before))
    assert installed.path("/etc/longshare/longshare.toml").read_text() == SETTINGS
    mode = installed.run("stat", "-c", "%a %U %G", "/etc/longshare/longshare.toml")
    assert mode == "640 root longshare"
    assert installed.run("stat", "-c", "%a", "/etc/longshare") == "750"
    assert kept <= {path.name for path in store.iterdir()}


def test_a_disabled_service_stays_disabled_after_an_upgrade(
    installed: Booted, service: Path, tmp_path: Path
) -> None:
    installed.run("systemctl", "disable", "--now", "longshare")
    installed.install(later(service, tmp_path))
    assert installed.fails("systemctl", "is-enabled", "longshare")


def test_removal_keeps_settings_and_store_and_purge_deletes_both(
    machine: Booted, service: Path
) -> None:
    before = machine.files()
    machine.install(service)
    machine.run("dpkg", "--remove", "longshare")
    assert not machine.path("/opt/longshare").exists()
    assert machine.fails("systemctl", "cat", "longshare")
    assert machine.path("/etc/longshare/longshare.toml").exists()
    assert any(machine.path("/var/lib/longshare").iterdir())
    machine.run("dpkg", "--purge", "longshare")
    assert machine.files() - before == set()
    assert machine.run("getent", "passwd", "longshare").endswith(":/usr/sbin/nologin")


HOLD = """
import ctypes, sys
ctypes.CDLL("/usr/lib/longshare/liblongshare_transport.so").longshare_transport_interface
print("loaded", flush=True)
sys.stdin.read()
(mapped,) = {line.split(maxsplit=5)[5] for line in open("/proc/self/maps") if "longshare" in line}
print(mapped)
"""


@pytest.fixture(scope="module")
def master(module: Path) -> Iterator[Booted]:
    """A machine with the module."""
    with booted(depends(module)) as running:
        running.install(module)
        yield running


def test_the_examples_name_the_library_that_is_installed(master: Booted) -> None:
    (examples,) = master.path("/usr/share/doc").glob("longshare-module-*/examples")
    (library,) = json.loads((examples / "modules.json").read_text())["libraries"]
    assert master.path(library["file"]).is_file()
    assert "MESOS_ALLOCATOR=org_longshare_Allocator\n" in (examples / "master.env").read_text()


def test_an_upgrade_leaves_the_libraries_that_a_master_has_loaded_alone(
    master: Booted, module: Path, tmp_path: Path
) -> None:
    with master.start("python3", "-c", HOLD) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "loaded\n"
        master.install(later(module, tmp_path))
        output, _ = holding.communicate("")
    assert output.strip() == "/usr/lib/longshare/liblongshare_transport.so (deleted)"
    assert holding.returncode == 0
