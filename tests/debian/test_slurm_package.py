"""The package of the service for Slurm works beside Debian's own Slurm in a running Debian."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.debian.booted import Booted, booted, depends, later, package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

UNIT = "longshare-slurm"
SETTINGS = "/etc/longshare/longshare.toml"
SLURM = "slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge"
SLURM_CONF = """
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PriorityType=priority/multifactor
PriorityCalcPeriod=1
MpiDefault=none
MailProg=/bin/true
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def service() -> Path:
    return package(
        "longshare-slurm_*.deb", "a package of the service for Slurm; try `make packages-check`"
    )


@pytest.fixture(scope="module")
def machine(service: Path) -> Iterator[Booted]:
    """A machine on which Debian's Slurm runs two jobs at a time, and more are pending."""
    # Without slurm.conf, slurmd of Debian 13 seeks a slurmctld for 90 s, and then fails.
    with booted(f"{depends(service)}, {SLURM}", "slurmctld", "slurmd") as running:
        # Slurm finds no address of a machine that has 127.0.0.1 only.
        running.run("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        conf = running.path("/etc/slurm/slurm.conf")
        conf.write_text(SLURM_CONF.format(host=running.run("hostname")))
        running.run("systemctl", "restart", "munge", "slurmctld", "slurmd")
        running.until(lambda: running.run("sinfo", "--noheader", "--format=%t") == "idle")
        for user in ("games", "games", "games", "man", "man"):
            job = ("--cpus-per-task=2", "--mem=10", "--chdir=/", "--output=/dev/null")
            running.run("sbatch", *job, f"--uid={user}", "--wrap=sleep 1000")
        yield running


@pytest.fixture
def installed(machine: Booted, service: Path) -> Iterator[Booted]:
    """A machine on which the package was just installed for the first time."""
    machine.install(service)
    yield machine
    machine.run("dpkg", "--purge", UNIT)


def factors(machine: Booted) -> set[int]:
    """Return the site factors of pending jobs."""
    return {int(line) for line in machine.run("sprio", "--noheader", "--format=%S").split()}


def metric(machine: Booted, name: str) -> float:
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9105/metrics').read().decode())"
    lines = machine.run("python3", "-c", ask).splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_once_installed_the_service_reads_slurm_and_changes_nothing(installed: Booted) -> None:
    assert installed.property("ActiveState", UNIT) == "active"
    assert installed.run("systemctl", "is-enabled", UNIT) == "enabled"
    pid = installed.property("MainPID", UNIT)
    assert installed.run("stat", "-c", "%U", f"/proc/{pid}") == "slurm"
    installed.until(lambda: metric(installed, "longshare_slurm_ordered_jobs") == 3.0)
    shown = installed.run("longshare", "shares", "--config", SETTINGS)
    assert "games" in shown
    time.sleep(3.0)  # a reading begins every two seconds
    assert factors(installed) == {0}


def test_without_dry_run_the_sandboxed_service_sets_the_order(installed: Booted) -> None:
    settings = installed.path(SETTINGS)
    settings.write_text(settings.read_text().replace("dry_run = true", "dry_run = false"))
    installed.run("systemctl", "restart", UNIT)
    installed.until(lambda: factors(installed) != {0})
    assert installed.property("NRestarts", UNIT) == "0"
    installed.run("systemctl", "stop", UNIT)
    installed.run("longshare", "slurm", "reset")
    installed.until(lambda: factors(installed) == {0})


def test_files_have_the_intended_owners(installed: Booted) -> None:
    modes = {
        "/etc/longshare": "750 root slurm",
        SETTINGS: "640 root slurm",
        "/etc/logrotate.d/longshare-slurm": "644 root root",
        "/lib/systemd/system/longshare-slurm.service": "644 root root",
        "/opt/longshare/bin/longshare": "755 root root",
        "/var/lib/longshare": "700 slurm slurm",
    }
    assert installed.modes(*modes) == modes


def test_an_upgrade_keeps_settings_and_restarts_the_service(
    installed: Booted, service: Path, tmp_path: Path
) -> None:
    settings = installed.path(SETTINGS)
    changed = settings.read_text() + "# changed\n"
    settings.write_text(changed)
    before = installed.property("MainPID", UNIT)
    installed.install(later(service, tmp_path))
    installed.until(lambda: installed.property("MainPID", UNIT) not in {"0", before})
    assert settings.read_text() == changed


def test_a_purge_leaves_nothing_behind(machine: Booted, service: Path) -> None:
    before = machine.files()
    machine.install(service)
    machine.run("dpkg", "--purge", UNIT)
    left = {path for path in machine.files() - before if not path.startswith("/var/lib/slurm")}
    assert left == set()


def test_the_packages_of_both_services_are_not_installed_together(
    installed: Booted, service: Path
) -> None:
    other = package("longshare_*.deb", "a package of the service for Mesos")
    with pytest.raises(AssertionError, match="conflict"):
        installed.install(other)
