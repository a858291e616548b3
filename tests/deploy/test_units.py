"""The systemd unit, the container's recipe and the log rotation have the intended contents."""

import configparser
import re
import shutil
import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest

from allocator.service.config import Config

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = [DEPLOY / "systemd" / name for name in ("longshare.service", "longshare-slurm.service")]
each_unit = pytest.mark.parametrize("unit_file", UNITS, ids=lambda path: path.stem)


def _analyzer() -> str:
    """Return the path of systemd-analyze; skip the test if it is not installed."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed, so nobody judges the unit")
    return analyze


def _require_low_exposure(unit_file: Path, threshold: int) -> None:
    """Check that systemd rates the exposure of a unit as no higher than tenths of a point."""
    judged = subprocess.run(
        [
            *(_analyzer(), "security", "--offline=yes", f"--threshold={threshold}", "--no-pager"),
            str(unit_file),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout[-500:]
    assert "Overall exposure level" in judged.stdout


@each_unit
def test_systemd_accepts_the_unit_and_rates_its_exposure_as_low(unit_file: Path) -> None:
    # The only permitted complaint: the unit's program is not installed on the build machine.
    verified = subprocess.run(
        [_analyzer(), "verify", "--man=no", str(unit_file)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [
        line
        for line in verified.stderr.splitlines()
        if unit_file.name in line and "is not executable" not in line
    ]
    assert complaints == []
    _require_low_exposure(unit_file, threshold=15)


def test_the_drop_in_for_low_ports_permits_lower_ports_and_keeps_the_exposure_low(
    tmp_path: Path,
) -> None:
    added = configparser.ConfigParser(interpolation=None)
    added.optionxform = str  # type: ignore[assignment,method-assign]
    added.read(DEPLOY / "systemd" / "low-port.conf")
    assert added["Service"] == {
        "AmbientCapabilities": "CAP_NET_BIND_SERVICE",
        "CapabilityBoundingSet": "CAP_NET_BIND_SERVICE",
        "PrivateUsers": "no",  # the capability would apply to a namespace without network
    }
    changed = tmp_path / "longshare.service"
    install = "[Install]\n"
    lines = "".join(f"{key}={value}\n" for key, value in added["Service"].items())
    changed.write_text(UNITS[0].read_text().replace(install, lines + install))
    _require_low_exposure(changed, threshold=18)


def test_masters_reach_the_service_at_the_same_protected_address_in_all_shipped_settings() -> None:
    roles = DEPLOY.parent / "ansible" / "roles"
    master = (roles / "mesos_master" / "defaults" / "main.yml").read_text()
    address = re.search(r"^mesos_master_longshare_address: (\S+)$", master, re.MULTILINE)
    assert address is not None
    shipped = {
        "docs": (DEPLOY.parent / "docs" / "longshare.toml").read_text(),
        "container": (DEPLOY / "container" / "longshare.toml").read_text(),
    }
    for role, variable in (("longshare", "settings"), ("experiment", "service")):
        defaults = (roles / role / "defaults" / "main.yml").read_text()
        block = re.search(rf"^{role}_{variable}: \|\n((?:  .*\n|\n)+)", defaults, re.MULTILINE)
        assert block is not None
        shipped[role] = textwrap.dedent(block[1])
    for name, text in shipped.items():
        listen = Config.model_validate(tomllib.loads(text)).listen
        assert (name, listen.address, listen.seizable("mesos")) == (name, address[1], [])
        assert listen.operators is not None
        # Ansible runs the master as mesos, which its unit adds to the group of the service.
        assert listen.group_may_connect == (name in {"longshare", "experiment"})
    unit = (roles / "mesos_master" / "templates" / "mesos-master.service.j2").read_text()
    assert "\nSupplementaryGroups=longshare\n" in unit


def test_the_container_starts_with_a_configuration_that_is_valid() -> None:
    settings = tomllib.loads((DEPLOY / "container" / "longshare.toml").read_text())
    config = Config.model_validate(settings)
    config.listen.require_protection()
    operate = (DEPLOY.parent / "docs" / "how-to" / "operate.md").read_text()
    assert f"docker exec -i -e LONGSHARE_ADDRESS={config.listen.operators} longshare" in operate


def test_the_container_is_built_from_existing_files_and_does_not_run_as_root() -> None:
    recipe = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", "")
    for line in recipe.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (DEPLOY.parent / source).exists(), source
    final = recipe.split("FROM ")[-1]
    assert re.search(r"^ARG ID=[1-9]\d*$", final, re.MULTILINE)
    assert re.search(r"^USER \$ID:\$ID$", final, re.MULTILINE)
    assert "--require-hashes" in recipe


def test_logrotate_accepts_the_rotation() -> None:
    logrotate = shutil.which("logrotate") or shutil.which("logrotate", path="/usr/sbin")
    if logrotate is None:
        pytest.skip("logrotate is not installed, so nobody reads its configuration")
    rotation = (DEPLOY / "logrotate" / "longshare").read_text()
    assert "reload longshare.service" in rotation
    known = subprocess.run(
        [logrotate, "--debug", "/dev/stdin"],
        input=rotation.replace("su longshare longshare", "su root root"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert known.returncode == 0, known.stderr
    assert "error:" not in known.stderr


@each_unit
def test_the_unit_permits_writes_only_in_its_own_folders(unit_file: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(unit_file)
    service = unit["Service"]
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert "ReadWritePaths" not in service
    assert service["User"] != "root"


def test_each_way_to_install_gives_the_folder_of_settings_one_mode() -> None:
    """Only root and the service's group may read settings, which can contain a password."""
    root = DEPLOY.parent
    ways = {
        **dict.fromkeys(UNITS, r"^ConfigurationDirectoryMode=(\d+)$"),
        **{
            DEPLOY / "debian" / "service" / f"{name}.postinst": r"chmod (\d+) /etc/longshare$"
            for name in ("longshare", "longshare-slurm")
        },
        root / "ansible" / "roles" / "longshare" / "tasks" / "configure.yml": (
            r"path: /etc/longshare$(?:\n    .*)*\n    mode: \"(\d+)\""
        ),
        root / "docs" / "how-to" / "install.md": r"install -d -m (\d+) -g \w+ /etc/longshare$",
    }
    modes = {
        path.name: set(re.findall(pattern, path.read_text("utf-8"), re.MULTILINE))
        for path, pattern in ways.items()
    }
    assert [name for name, values in modes.items() if values != {"0750"}] == []


@each_unit
def test_the_unit_limits_resources_of_the_service(unit_file: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(unit_file)
    service = unit["Service"]
    assert int(service["LimitNOFILE"]) >= 65536
    assert service["MemoryMax"] != "infinity"
    assert int(service["TasksMax"]) < 1000
