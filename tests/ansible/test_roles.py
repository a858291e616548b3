"""The roles, applied to a real Debian in a folder."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ansible.debian import Debian
from tests.ansible.emulated import Played, tools
from tests.service.served import Service, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    tools()
    return Debian(tmp_path_factory.mktemp("debian"))


@pytest.fixture(scope="module")
def applied(debian: Debian) -> Played:
    played = debian.play()
    assert played.succeeded, played.output
    return played


def test_the_roles_can_be_applied_and_a_second_time_change_nothing(
    debian: Debian, applied: Played
) -> None:
    assert applied.count("changed") > 20
    repetition = debian.play()
    assert repetition.succeeded, repetition.output
    assert repetition.count("changed") == 0, repetition.output


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/etc/longshare", "750 root longshare"),
        ("/etc/longshare/longshare.toml", "640 root longshare"),
        ("/etc/systemd/system/longshare.service", "644 root root"),
        ("/etc/logrotate.d/longshare", "644 root root"),
        ("/opt/longshare/bin/longshare", "755 root root"),
        ("/usr/lib/longshare/liblongshare_allocator.so", "644 root root"),
        ("/opt/mesos/bin/mesos-master", "755 root root"),
        ("/etc/mesos/master.env", "640 root mesos"),
        ("/etc/mesos/agent.env", "640 root root"),
        ("/etc/mesos/modules.json", "644 root root"),
        ("/etc/prometheus/rules/longshare.yml", "644 root root"),
    ],
)
def test_files_have_the_intended_owners(
    debian: Debian, applied: Played, path: str, mode: str
) -> None:
    assert debian.run("stat", "-c", "%a %U %G", path).strip() == mode


def test_service_users_exist_and_cannot_log_in(debian: Debian, applied: Played) -> None:
    for user in ("longshare", "mesos"):
        assert debian.run("getent", "passwd", user).strip().endswith(":/usr/sbin/nologin")
        assert debian.run("id", "-Gn", user).split() == [user]


@pytest.mark.parametrize(
    "unit",
    ["longshare", "mesos-master", "mesos-agent", "prometheus", "prometheus-node-exporter"],
)
def test_units_are_started_with_the_machine(debian: Debian, applied: Played, unit: str) -> None:
    assert debian.run("systemctl", "is-enabled", unit).strip() == "enabled"


def test_the_service_and_the_settings_that_were_installed_work(
    debian: Debian, applied: Played
) -> None:
    assert debian.run("/opt/longshare/bin/longshare", "--version").startswith("longshare 1.")
    debian.run(
        *("setpriv", "--reuid=longshare", "--regid=longshare", "--clear-groups"),
        *("env", "STATE_DIRECTORY=/var/lib/longshare"),  # as systemd sets it
        *("/opt/longshare/bin/longshare", "serve", "--check"),
        *("--config", "/etc/longshare/longshare.toml"),
    )
    debian.run("/opt/longshare/bin/python", "-m", "pip", "check")


def test_prometheus_accepts_its_configuration_and_listens_on_localhost_only(
    debian: Debian, applied: Played
) -> None:
    debian.run("promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    assert '"127.0.0.1:9105"' in debian.read("/etc/prometheus/targets/longshare/main.yml")
    assert "=127.0.0.1:9090" in debian.read("/etc/default/prometheus")


@pytest.mark.parametrize(
    ("unit", "highest"),
    [
        ("longshare", 1.2),
        ("mesos-master", 1.7),  # loads modules, so memory may be executed
        ("mesos-agent", 8.3),  # starts the tasks of other users, so it runs as root
    ],
)
def test_systemd_rates_the_exposure_of_the_units_no_higher_than_today(
    debian: Debian, applied: Played, unit: str, highest: float
) -> None:
    judged = subprocess.run(
        [
            *("systemd-analyze", "security", "--offline=yes", "--no-pager"),
            *(f"--root={debian.root}", f"{unit}.service"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stdout
    assert float(exposure[1]) <= highest


def test_a_single_variable_switches_a_master_between_mesos_allocator_and_longshare(
    debian: Debian, applied: Played
) -> None:
    asked = debian.read("/etc/mesos/master.env")
    assert "MESOS_ALLOCATOR=org_longshare_Allocator" in asked
    (module,) = json.loads(debian.read("/etc/mesos/modules.json"))["libraries"][0]["modules"]
    socket = "unix:///run/longshare/allocator.sock"
    assert {"key": "address", "value": socket} in module["parameters"]
    unit = debian.read("/etc/systemd/system/mesos-master.service")
    assert "SupplementaryGroups=longshare" in unit

    assert debian.play(mesos_master_allocator="stock").succeeded
    alone = debian.read("/etc/mesos/master.env")
    assert "MESOS_ALLOCATOR" not in alone
    assert "MESOS_MODULES" not in alone

    assert debian.play().succeeded
    assert debian.read("/etc/mesos/master.env") == asked


def test_resources_of_the_inventory_reach_the_agent(debian: Debian, applied: Played) -> None:
    flags = debian.root / "etc/mesos/agent.env"
    before = flags.read_text()
    assert debian.play(mesos_agent_resources="cpus:1;mem:3072").succeeded
    assert "MESOS_RESOURCES=cpus:1;mem:3072\n" in flags.read_text()
    flags.write_text(before)  # the state that later tests expect


def test_settings_that_the_service_would_refuse_are_not_put_into_place(
    debian: Debian, applied: Played
) -> None:
    before = debian.read("/etc/longshare/longshare.toml")
    refused = debian.play(longshare_settings="'[policy] = 3'")
    assert not refused.succeeded
    assert debian.read("/etc/longshare/longshare.toml") == before


BRIEF = """
title = "Brief"
figure = "none"
shows = "that an experiment can be run"
duration = 12
policy = { name = "drf" }
[[cluster.agents]]
count = 2
resources = "cpus:4;mem:6144"
[tasks]
demand = "cpus:1;mem:1024"
run_time = 2
[[users]]
name = "A"
[[users]]
name = "B"
start = 4
[[claims]]
kind = "utilization"
above = 0.1
"""


def test_an_experiment_is_run_by_name_and_its_results_are_fetched(
    debian: Debian, applied: Played, tmp_path: Path
) -> None:
    (experiments,) = debian.root.glob("opt/longshare/lib/python*/site-packages/frameworks/exp*/")
    (experiments / "brief.toml").write_text(BRIEF)
    before = debian.read("/etc/longshare/longshare.toml")
    # The folder has no init that could start services, so the test starts them directly.
    with service(tmp_path, '[policy]\nname = "drf"') as allocator, master(allocator) as address:
        played = debian.play(
            "experiment.yml",
            experiment_name="brief",
            experiment_master=address,
            experiment_results=str(tmp_path / "home"),
        )
    assert played.succeeded, played.output
    summary = json.loads((tmp_path / "home" / "brief" / "summary.json").read_text())
    assert summary["agrees"] is True
    assert (tmp_path / "home" / "brief" / "figure.png").stat().st_size > 1000
    assert debian.read("/etc/longshare/longshare.toml") == before
    assert debian.run("find", "/tmp", "-name", "longshare-*") == ""


def test_an_unknown_experiment_is_refused_with_a_list_of_known_experiments(
    debian: Debian, applied: Played
) -> None:
    refused = debian.play("experiment.yml", experiment_name="fig-99", experiment_master="x:1")
    assert not refused.succeeded
    assert "sdrf-adaptive" in refused.output


@contextmanager
def master(allocator: Service) -> Iterator[str]:
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "allocator.cli", "local-mesos", "--agents", "2"),
            *("--resources", "cpus:4;mem:6144", "--port", "0"),
            *("--allocator", allocator.address),
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"Mesos master on (\S+)", process.stdout.readline())
            assert address is not None
            yield address[1]
        finally:
            process.terminate()
            process.wait()
