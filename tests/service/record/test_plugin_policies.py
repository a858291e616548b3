"""The service ranks users by a plugin's policy, and the event log names its source."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from allocator.cli import app
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.config import ConfigError, load, load_listen
from allocator.service.record.event_log import recorded_code
from allocator.service.record.replay import open_log
from tests.cluster.master_side import agent_call, framework_info
from tests.plugins.written import NORM, file, key
from tests.service.served import Stream, service

FAILING = key("return account.share if not account.shares.get('disk') else 1 / 0")
SETTINGS = """
[policy]
name = "mine"
file = "{path}"
[[users.declared]]
name = "heavy"
weight = 2.0
"""


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))


@pytest.mark.slow
def test_a_policy_failing_at_run_time_is_logged_and_the_log_replays_only_with_it(
    tmp_path: Path,
) -> None:
    path, log = file(tmp_path, FAILING), tmp_path / "events"
    record = ["--record", str(log)]
    with service(tmp_path, SETTINGS.format(path=path), arguments=record) as running:
        stream = Stream(running.address)
        stream.open(agents=[agent_call("s1", "cpus:4;mem:4096;disk:9")])
        for role in ("light", "heavy"):
            info = framework_info(role, role)
            call = contract.AddFramework(framework_id=role, info=info, active=True)
            stream.tell(add_framework=call)
        running.wait_to_say('"policy failed"')
        assert f"ZeroDivisionError: division by zero ({path}, line 5)" in running.log.read_text()
        running.wait_for_metric("longshare_offers_total 1.0")
        stream.close()
        assert running.stop() == 0
    header, _ = open_log(log)
    code = recorded_code(header.settings)
    assert code is not None
    assert (code.file, code.source) == (str(path), FAILING)

    without = _replay(log)
    assert without.exit_code == 2
    assert "give that file with --policy-file" in without.stderr
    same = _replay(log, "--policy-file", str(path), "--json")
    assert (same.exit_code, json.loads(same.stdout)["same"]) == (0, True), same.stderr
    assert same.stderr.strip() == ""
    second_file = file(tmp_path, FAILING + "# another\n", "other.py")
    differing = _replay(log, "--policy-file", str(second_file), "--json")
    assert json.loads(differing.stdout)["other_policy"] == str(path)
    assert "this policy differs from the recorded policy" in differing.stderr
    saved = tmp_path / "saved.py"
    assert _replay(log, "--save-policy", str(saved)).exit_code == 0
    assert saved.read_text() == FAILING


def _replay(log: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", str(log), *arguments])


def _configuration(folder: Path, path: Path | str, name: str = "norm") -> Path:
    written = folder / "longshare.toml"
    written.write_text(f'[policy]\nname = "{name}"\nfile = "{path}"\npower = 3\n')
    return written


def test_the_configuration_names_a_policy_file_and_its_parameters(tmp_path: Path) -> None:
    path = file(tmp_path.resolve(), NORM)
    made = load(_configuration(tmp_path, path)).policy.create()
    assert (made.name, made.model_dump()) == ("norm", {"power": 3.0})


def test_an_unusable_policy_file_is_rejected_before_the_service_starts(tmp_path: Path) -> None:
    path = file(tmp_path.resolve(), NORM)
    for name, mode, complaint in (
        ("norms", 0o644, f"policy: {path} defines norm, not 'norms'"),
        ("norm", 0o666, f"policy: users other than its owner can write {path}"),
    ):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=complaint):
            load(_configuration(tmp_path, path, name))
    path.write_text(
        key("import random; return random.random()", "norm").replace(
            "norm'", "norm'\n    power: float = 1.0"
        )
    )
    path.chmod(0o644)
    with pytest.raises(
        ConfigError, match=r"'norm' cannot be used: a rule is broken: it returns the same"
    ):
        load(_configuration(tmp_path, path))
    path.write_text("x = (\n")
    with pytest.raises(ConfigError, match=r"policy: .*mine\.py, line 1: not valid Python"):
        load(_configuration(tmp_path, path))


def test_reading_the_listen_address_loads_no_policy(tmp_path: Path) -> None:
    path = file(tmp_path.resolve(), "raise SystemExit")
    path.chmod(0o666)
    written = _configuration(tmp_path, path)
    written.write_text(written.read_text() + '[listen]\naddress = "127.0.0.1:7777"\n')
    assert load_listen(written).address == "127.0.0.1:7777"
    written.write_text('[listen]\naddress = "nowhere"\n')
    with pytest.raises(ConfigError, match=r"listen\.address: 'nowhere' is not HOST:PORT"):
        load_listen(written)
