"""A configuration is valid, or the error names the place of the mistake."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from allocator.cluster.settings import EngineSettings
from allocator.fairness.quantities import Quantities
from allocator.service import config as configuration
from allocator.service.config import Config, ConfigError, load

DOCS = Path(__file__).parents[2] / "docs"


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "longshare.toml"
    path.write_text(text)
    return load(path)


def test_the_example_in_the_documentation_is_valid_and_declares_no_user() -> None:
    assert load(DOCS / "longshare.toml").engine_settings().users == ()


def test_the_settings_for_trials_are_the_example_without_files() -> None:
    trial, example = load(DOCS / "trial.toml"), load(DOCS / "longshare.toml")
    assert (trial.store.kind, trial.accounting_database()) == ("none", None)
    for section in ("policy", "users", "metrics"):
        assert getattr(trial, section) == getattr(example, section)


def test_the_declared_user_in_the_comments_of_the_example_is_valid(tmp_path: Path) -> None:
    example = (DOCS / "longshare.toml").read_text()
    declared = read(tmp_path, re.sub(r"^# (?=\[\[|\w+ = )", "", example, flags=re.MULTILINE))
    assert [(user.name, user.weight) for user in declared.engine_settings().users] == [("web", 2.0)]


def test_the_shipped_module_connects_to_the_address_of_the_example() -> None:
    modules = json.loads((DOCS.parent / "deploy/module/modules.json").read_text())
    parameters = modules["libraries"][0]["modules"][0]["parameters"]
    address = load(DOCS / "longshare.toml").listen.address
    assert {"key": "address", "value": address} in parameters


def test_an_empty_file_has_sensible_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, "")
    assert config.policy.create().tau == pytest.approx(3600 / 0.693147, rel=1e-5)
    assert config.listen.address == "127.0.0.1:5060"
    assert config.recorder is None


def test_every_setting_reaches_the_engine(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """
        [policy]
        name = "sdrf"
        delta = 0.5
        form = "thesis"
        [users]
        key = "principal"
        forget_after = 60
        counts_for = 2
        declared = [{ name = "A", weight = 2, commitment = { cpus = 0.5 } }]
        [offers]
        allocation = "batch"
        demands = { spark = "cpus:1" }
        whole_from = 7
        hold_for = "all"
        longest_hold = 30
        learn_demands = true
        [constraints.spark]
        attributes = ["rack:1"]
        [limits]
        roles = 9
        """,
    ).engine_settings()
    assert (settings.user_key, settings.forget_after, settings.counts_for) == ("principal", 60, 2)
    assert settings.users[0].commitment == {"cpus": 0.5}
    assert settings.policy.model_dump()["form"] == "thesis"
    assert (settings.allocation, settings.whole_from) == ("batch", 7)
    assert settings.demands == {"spark": Quantities.parse("cpus:1")}
    assert (settings.hold_for, settings.longest_hold, settings.learn_demands) == ("all", 30, True)
    assert settings.constraints.keys() == {"spark"}
    assert settings.limits.roles == 9
    default = Config().engine_settings()
    names = [field.name for field in fields(EngineSettings)]
    same = {name for name in names if getattr(settings, name) == getattr(default, name)}
    assert same == {
        "compares_by_resource",
        "demands_must_agree",
        "departed_refuse_nothing",
        "exact_ties",
        "examines_for_clients",
        "few_frameworks_keep_places",
        "forgets_subtrees",
        "forgetting_unnames_parents",
        "frameworks_keep_places",
        "headroom_counts_volumes_once",
        "hold_by_turns",
        "keeps_accumulated_use",
        "keeps_weighted_users",
        "kinds_as_in_mesos",
        "leaf_keeps_commitments",
        "leaf_keeps_use",
        "leaves_only_in_trees",
        "left_out_agents_wait",
        "limits_sharing",
        "newcomers_by_use",
        "refusals_wait",
        "roles_leave_room",
        "roles_reserved_by_principal",
        "roles_reserved_for",
        "seed",
        "shared_volumes_once",
        "skips_refusing_clients",
        "skips_void_calls",
        "ties_after_half_lives",
    }, "a setting is not in the file above; these are no settings of the operator"
    assert (default.roles_leave_room, default.roles_reserved_for) == (True, 600.0)


def test_the_configuration_states_every_setting_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configuration, "EngineSettings", dict)
    settings: Any = Config().engine_settings()
    without_setting = {"seed"}  # tests set it; the service's order of agents is always the same
    assert {field.name for field in fields(EngineSettings)} - settings.keys() == without_setting


def test_an_infinite_counts_for_selects_the_papers_form(tmp_path: Path) -> None:
    policy = '[policy]\nname = "sdrf"\ndelta = 0.5\n'
    settings = read(tmp_path, f"{policy}[users]\ncounts_for = inf").engine_settings()
    assert settings.counts_for is None
    with pytest.raises(ConfigError, match="counts_for"):
        read(tmp_path, f"{policy}[users]\ncounts_for = 0.5")


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, "/var/lib/a/commitments.sqlite"),
        ({"XDG_STATE_HOME": "/x"}, "/x/longshare/commitments.sqlite"),
        ({"HOME": "/home/u"}, "/home/u/.local/state/longshare/commitments.sqlite"),
    ],
)
def test_the_default_store_is_in_the_state_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], path: str
) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert read(tmp_path, "").store.path == Path(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[polcy]\nname = 'drf'", "polcy: there is no such setting; did you mean policy"),
        ("[server]\nlisten = 'x'", "server: there is no such setting$"),
        ("[slurm]\nlag = 5", "slurm: this section is for `longshare slurm serve`, which works"),
        ("[stor]\nkind = 'none'", "stor: there is no such setting; did you mean store[?]$"),
        ("[accounting]\nkind = 'none'", "accounting.kind: .*; did you mean store.kind[?]"),
        ("[accounting]\ndatabse = 'none'", "accounting.databse: .*; did you mean database[?]"),
        (
            "[store]\nadress = ''",
            "store.adress: .*; did you mean listen.address or metrics.address",
        ),
        ("kind = 'none'", "[^.]kind: there is no such setting; did you mean store.kind[?]"),
        ("[constraints.x]\nwhitelst = []", "constraints.x.whitelst: .*; did you mean whitelist"),
        ("[[users.declared]]\nname = 'x'\nwieght = 1.0", "wieght: .*; did you mean weight"),
        ("[offers]\ncommitment = 0.5", "offers.commitment: .* mean users.declared.commitment"),
        ("[limits]\nroles = 99999999999999999999999999", "limits.roles: .*1000000000"),
        ("[limits]\nidle_users = 1000000001", "limits.idle_users: .*1000000000"),
        ("[limits]\nroles = true", "limits.roles: true is not a number"),
        ("[offers]\nwhole_from = 99999999999999999999999999", "offers.whole_from: .*1000000000"),
        ("[users]\nforget_after = inf", "users.forget_after: .*1000000000"),
        ("[users]\nforget_after = nan", "users.forget_after"),
        ("[users]\nforget_after = 1e300", "users.forget_after: .*1000000000"),
        ("[recorder]\nfile = 'x'\nevery = 1e300", "recorder.every: .*1000000000"),
        ("[policy]\nname = 'sdrf'\nhalf_life = 1e300", "policy: .*half_life = 1e.300 s would"),
        ("[policy]\nname = 'volcano'\nhalf_life = 1e-300", "policy: .*half_life = 1e-300 s would"),
        ('[store]\npath = "a\\u0000b"', "store.path: .*a.*b.* has a NUL character in it"),
        ('[store]\npath = ""', "store.path: the path names no file"),
        (f"[store]\npath = '/x/{'y' * 256}'", "store.path: a name in the path has more than 255"),
        (f"[store]\npath = '{'/y' * 2048}'", "store.path: the path has more than 4095 bytes"),
        ('[recorder]\nfile = "a\\u0000b"', "recorder.file: .*NUL"),
        ('[accounting]\ndatabase = "a\\u0000b"', "accounting.database: .*NUL"),
        (f"[accounting]\ndatabase = '{'y' * 256}'", "accounting.database: .*more than 255"),
        ('[policy]\nname = "drf"\nfile = "/a\\u0000b"', "policy: .*null"),
        ('[listen]\naddress = "unix:///a\\u0000b"', "listen.address: .*NUL"),
        (f"[listen]\naddress = 'unix:///{'y' * 107}'", "listen.address: .*at most 107 bytes"),
        (
            '[listen.tls]\ncertificate = "a\\u0000b"\nkey = ""',
            "listen.tls.certificate: .*NUL(.|\n)*listen.tls.key: the path names no file",
        ),
        (
            "[store]\nkind = 'zookeeper'\nhosts='a:1'\ncredentials=''",
            "store.credentials: .*no file",
        ),
        ('[[users.declared]]\nname = "a\\u0000b"', "users.declared\\[0\\].name: .*NUL"),
        ('[offers]\ndemands = { "a\\u0000b" = "cpus:1" }', "offers.demands: .*NUL"),
        ('[metrics]\nhosts = ["a\\u0000b"]', "metrics.hosts: .*NUL"),
        ("[policy]\nname = 'lottery'", "policy: .*there are: cdrf, cmmf"),
        ("[policy]\nname = 'sdrf'\ndelta = 1", "policy: .*switch long-term fairness off"),
        ("[policy]\nname = 'drf'\ndelta = 0.5", "policy: .*delta: there is no such setting"),
        ("[users]\nkey = 'team'", "users.key: .*'role', 'framework'"),
        ("[users]\ndeclared = [{name='A'}, {name='A'}]", "users.declared: .*declared twice: A"),
        (
            "[users]\ndeclared = [{name='A', weight=0}]",
            "users.declared\\[0\\].weight: .*greater than or equal to 0.000001",
        ),
        ("[users]\ndeclared = [{name='A', commitment=2}]", "users.declared\\[0\\].commitment"),
        ("[listen]\naddress = 'unix:run.sock'", "listen.address: .*absolute path"),
        (
            "[listen]\noperators = 'unix:///o'\ngroup_may_connect = true",
            "group_may_connect needs a Unix socket",
        ),
        (
            "[listen]\naddress = 'unix:///a'\ngroup_may_connect = true",
            "the group could also give orders; set operators",
        ),
        ("[listen]\naddress = '127.0.0.1'", "listen.address: .*not HOST:PORT"),
        ("[metrics]\naddress = 'example.org:80'", "metrics: .*other machines"),
        ("[recorder]\nfile = 'x'\nevery = 0", "recorder.every: .*0.001"),
        ("[store]\nkind = 'redis'", "store.kind: .*'sqlite', 'zookeeper' or 'none'"),
        ("[store]\nkind = 'zookeeper'", "store: .*needs hosts, as in 'zk1:2181,zk2:2181'"),
        ("[store]\nkind = 'zookeeper'\nhosts='a:1'\npath='x'", "store: .*has no path"),
        ("[store]\nkind = 'zookeeper'\nhosts='a:1'\nznode='x'", "store.znode: .*pattern"),
        ("[store]\nhosts = 'a:1'", "store: .*of kind 'sqlite' has no hosts"),
        ("[store]\nkind = 'none'\nevery = 2", "store: .*of kind 'none' has no every"),
        ("[store]\nevery = 0", "store.every: .*0.05"),
        ("[store]\npath = 3", "store.path: 3 is not a path in quotes"),
        ("[log]\nlevel = 'loud'", "log.level"),
        ("[log]\nlevel = 3", "log.level: it must be 'debug', "),
        ("policy = 3", "policy: 3 is not a table"),
        ("shadow = 'drf'", "shadow: 'drf' is not a list"),
        ("[policy]\nname = 3", "policy.name: 3 is not text"),
        (
            "[users]\ndeclared = [{name='A', commitment='x'}]",
            "users.declared\\[0\\].commitment: 'x' is not a number",
        ),
        ("name = ", "not valid TOML"),
        ("[policy]\nname = 'sdrf'\nhalf_life = true", "half_life: true is not a duration"),
        ("[constraints.x]\nwhitelist = ['node-[1-9']", "whitelist: .*bracket without its end"),
        ("[accounting]\ndatabase = 'None'", "accounting.database: 'None' is neither"),
        ("[metrics]\naddress = 'http://127.0.0.1:1'", "metrics.address: .*not HOST:PORT"),
        ("[listen]\naddress = '127.0.0.1:٣'", "listen.address: .*not HOST:PORT"),
        ("[users]\ndeclared = [{name='/a'}]", "users.declared: '/a' is not a valid name of a role"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"longshare.toml:(.|\n)*{complaint}"):
        read(tmp_path, text)


def test_a_missing_configuration_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.toml: No such file"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("listen", "allowed"),
    [
        ("address = '0.0.0.0:5060'", False),
        ("address = 'allocator.example:5060'", False),
        ("address = '10.0.0.1:5060'\ntls = { certificate = 'c', key = 'k' }", False),
        (
            "address = '10.0.0.1:5060'\ntls = { certificate = 'c', key = 'k', client_ca = 'a' }",
            True,
        ),
        ("address = '[::1]:5060'", True),
        ("address = 'localhost:5060'", True),
        ("address = 'unix:///run/longshare.sock'", True),
    ],
)
def test_listening_on_other_interfaces_requires_mutual_tls(
    tmp_path: Path, listen: str, *, allowed: bool
) -> None:
    file = tmp_path / "longshare.toml"
    file.write_text(f"[listen]\n{listen}\n")
    if allowed:
        load(file).listen.require_protection()
    else:
        with pytest.raises(ConfigError, match="client_ca"):
            load(file).listen.require_protection()


@pytest.mark.parametrize(
    "database",
    ["postgresql://user:secret@host/accounts", "postgresql://host/accounts?user=u&password=secret"],
)
def test_a_readable_configuration_with_a_database_password_is_refused(
    tmp_path: Path, database: str
) -> None:
    own = tmp_path / "longshare.toml"
    own.write_text(f'[accounting]\ndatabase = "{database}"\n')
    own.chmod(0o600)
    load(own).require_files(own)
    own.chmod(0o644)
    with pytest.raises(ConfigError, match="holds a secret"):
        load(own).require_files(own)
