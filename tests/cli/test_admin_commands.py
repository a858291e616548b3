"""The operators' commands against a running service."""

import csv
import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allocator.contract import allocator_pb2 as contract
from tests import forks
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.served import PATIENCE, Service, Stream, hello, service

SETTINGS = """
[policy]
name = "sdrf"
delta = 0.99
[users]
key = "framework_name"
counts_for = inf
[offers.demands]
batch = "cpus:1;mem:1024"
[[users.declared]]
name = "batch"
[[users.declared]]
name = "web"
weight = 3.0
commitment = 0.25
"""
HOSTILE = "[red]x\x1b[2J"
"""A hostile framework name; frameworks choose their names freely."""


class Prompt:
    """A shell and a service whose cluster is filled by the framework batch."""

    def __init__(self, running: Service) -> None:
        self.service = running
        self.stream = Stream(running.address)
        greeting = hello()
        greeting.hello.options.fairness_excluded.append("gpus")
        self.stream.say(greeting)
        self.stream.hear()
        self.stream.resynchronise(
            agents=[
                agent_call(
                    "s1", "cpus:4;mem:4096;gpus:2", {"f1": resources("cpus:4;mem:1024;gpus:1", "*")}
                )
            ],
            frameworks=[
                contract.AddFramework(
                    framework_id=framework,
                    info=framework_info(framework, "*", name=name),
                    active=False,
                )
                for framework, name in (("f1", "batch"), ("f2", HOSTILE))
            ],
        )
        self.stream.now_ns += 50 * SECOND
        self.stream.tell(tick=contract.Tick())

    def run(
        self, *arguments: str, code: int = 0, given: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        patient = ("--timeout", str(PATIENCE))
        completed = longshare(
            *arguments, *patient, given=given, LONGSHARE_ADDRESS=self.service.address, **environment
        )
        assert completed.returncode == code, completed.stdout + completed.stderr
        return completed

    def users(self) -> dict[str, dict[str, Any]]:
        reply = json.loads(self.run("shares", "--json").stdout)
        return {row["user"]: row for row in reply["users"]}


def longshare(
    *arguments: str, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return forks.longshare(*arguments, given=given, env=_environment(environment))


def _environment(added: dict[str, str]) -> dict[str, str]:
    """Return this process's environment without variables that change the format of output."""
    looks = {"COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "LONGSHARE_ADDRESS"}
    return {name: value for name, value in os.environ.items() if name not in looks} | added


@pytest.fixture
def prompt(tmp_path: Path) -> Iterator[Prompt]:
    with service(tmp_path, SETTINGS) as running:
        at = Prompt(running)
        yield at
        at.stream.close()


def test_shares_are_a_table_that_fits_80_columns_and_json_says_the_same(prompt: Prompt) -> None:
    shown = prompt.run("shares", COLUMNS="80").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    lines = {line.split()[1]: line.split() for line in prompt.run("shares").stdout.splitlines()[2:]}
    users = prompt.users()
    assert set(users) == {"batch", "web", HOSTILE}
    batch = users["batch"]
    assert lines["batch"] == [
        str(batch["rank"]),
        "batch",
        "no",
        "1",
        "20.0%",
        "100.0%",
        f"{batch['dominant_commitment']:.1%}",
        f"{batch['priority']:.4f}",
        "0.0%",
        "cpus:1",
        "mem:1024",
    ]
    assert batch["demands"] == [{"amounts": {"cpus": 1.0, "mem": 1024.0}}]


def test_hostile_names_are_escaped_in_the_output(prompt: Prompt) -> None:
    for command in (["shares"], ["explain", HOSTILE], ["top", "--once"]):
        shown = prompt.run(*command).stdout
        assert "[red]x\\x1b[2J" in shown
        assert "\x1b" not in shown


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_drops_columns_but_not_names(prompt: Prompt, columns: int) -> None:
    shown = prompt.run("shares", COLUMNS=str(columns)).stdout
    assert max(map(len, shown.splitlines())) <= columns
    for seen in ("batch", "prio-", "100.0%"):
        assert seen in shown


def test_an_explanation_has_sentences_and_numbers(prompt: Prompt) -> None:
    shown = prompt.run("explain", "batch", COLUMNS="80").stdout
    assert "has a commitment of 31.6% of cpus" in " ".join(shown.split())
    assert "dominant" in shown
    assert "does not count" in shown
    assert max(map(len, shown.splitlines())) <= 80
    explanation = json.loads(prompt.run("explain", "batch", "--json").stdout)
    assert explanation["priority"]["owed"] == pytest.approx(0.8 * (1 - 0.99**50))
    assert explanation["user"] == prompt.users()["batch"]


def test_an_unknown_user_ends_with_exit_code_1_and_suggests_similar_names(prompt: Prompt) -> None:
    completed = prompt.run("explain", "bacth", code=1)
    assert completed.stderr == "longshare: no such user: bacth; did you mean batch?\n"
    completed = prompt.run("weight", "set", "wbe", "2", code=1)
    assert "did you mean web?" in completed.stderr
    completed = prompt.run("commitments", "reset", "batch", "qqqqqq", code=1)
    assert "'longshare shares' shows all" in completed.stderr


def test_weights_are_set_and_unset(prompt: Prompt) -> None:
    assert (
        "weight 1 → 4, entitled to 20.0% → 50.0%"
        in prompt.run("weight", "set", "batch", "4").stdout
    )
    assert prompt.users()["batch"]["weight"] == 4.0
    change = json.loads(prompt.run("weight", "unset", "batch", "--json").stdout)["changes"][0]
    assert (change["before"]["weight"], change["after"]["weight"]) == (4.0, 1.0)
    assert (
        "it changes no value in 'longshare shares'" in prompt.run("weight", "unset", "batch").stdout
    )
    completed = prompt.run("weight", "set", "batch", "nan", code=1)
    assert "weight nan is not a number from 1e-06 to 1e+06" in completed.stderr


def test_resetting_all_commitments_requires_confirmation(prompt: Prompt) -> None:
    reset = ("commitments", "reset")
    owing = prompt.users()
    prompt.run(*reset, code=2)
    prompt.run(*reset, "batch", "--all", code=2)
    prompt.run(*reset, "--all", code=1)
    assert "2 have commitments" in prompt.run(*reset, "--all", given="n\n", code=1).stderr
    users = prompt.users()
    assert {name: row["commitments"] for name, row in users.items()} == {
        name: row["commitments"] for name, row in owing.items()
    }
    assert prompt.run(*reset, "batch").stdout.startswith("batch: commitment 31.6% → 0.0%")
    assert prompt.users()["web"] == owing["web"] | {"rank": prompt.users()["web"]["rank"]}
    report = json.loads(prompt.run(*reset, "--all", "--json", given="y\n").stdout)
    assert [change["after"]["user"] for change in report["changes"]] == ["web"]
    assert not json.loads(prompt.run(*reset, "--all", "--yes", "--json").stdout)["changes"]


def test_top_runs_until_interrupted_and_ends_with_exit_code_0(prompt: Prompt) -> None:
    top = forks.Longshare(
        ["top", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment({"LONGSHARE_ADDRESS": prompt.service.address}),
    )
    assert top.stdout is not None
    looks = [json.loads(top.stdout.readline()) for _ in range(2)]
    assert looks[0] == looks[1] == json.loads(prompt.run("shares", "--json").stdout)
    top.send_signal(signal.SIGINT)
    _, complaints = top.communicate(timeout=PATIENCE)
    assert (top.returncode, complaints) == (0, "")


def test_top_starts_with_a_summary_of_the_cluster(prompt: Prompt) -> None:
    shown = prompt.run("top", "--once", COLUMNS="80").stdout
    assert "2020-09-13 12:27:30 UTC, sdrf, master connected" in shown
    assert "cpus 4/4  gpus 1/2  mem 1024/4096" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("command", [["shares"], ["explain", "a"], ["top"], ["top", "--once"]])
def test_an_unreachable_service_is_named_with_exit_code_3(
    tmp_path: Path, command: list[str]
) -> None:
    address = f"unix://{tmp_path}/nobody.sock"
    completed = longshare(*command, "--address", address)
    assert completed.returncode == 3
    assert completed.stdout == ""
    (line,) = completed.stderr.splitlines()
    assert address in line
    assert "longshare serve" in line


def test_a_silent_service_ends_a_command_after_the_timeout(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/silent.sock")
        silent.listen()
        completed = longshare(
            "shares", "--address", f"unix://{tmp_path}/silent.sock", "--timeout", "0.2"
        )
    assert (completed.returncode, len(completed.stderr.splitlines())) == (3, 1)


def test_the_address_is_read_from_the_configuration(prompt: Prompt, tmp_path: Path) -> None:
    completed = longshare("shares", "--config", str(tmp_path / "longshare.toml"), "--json")
    assert completed.returncode == 0, completed.stderr
    assert len(json.loads(completed.stdout)["users"]) == 3
    completed = longshare("shares", "--config", str(tmp_path / "none.toml"))
    assert completed.returncode == 2
    assert "none.toml" in completed.stderr


def test_a_configuration_that_is_named_overrides_the_address_in_the_environment(
    prompt: Prompt, tmp_path: Path
) -> None:
    config, elsewhere = str(tmp_path / "longshare.toml"), f"unix://{tmp_path}/none.sock"
    completed = longshare("shares", "--config", config, LONGSHARE_ADDRESS=elsewhere)
    assert completed.returncode == 0, completed.stderr
    completed = longshare("shares", "--config", config, "--address", elsewhere)
    assert (completed.returncode, elsewhere in completed.stderr) == (3, True)
    completed = longshare("shares", LONGSHARE_ADDRESS="5060")
    assert (completed.returncode, completed.stderr.split(": ")[1]) == (2, "LONGSHARE_ADDRESS")


@pytest.mark.parametrize(
    "command",
    ["shares", "explain", "top", "weight set", "weight unset", "commitments reset"],
)
def test_help_lists_exit_codes_and_common_options(command: str) -> None:
    text = longshare(*command.split(), "--help", COLUMNS="100").stdout
    for word in ("Exit codes", "--address", "LONGSHARE_ADDRESS", "--config", "--json", "--timeout"):
        assert word in text


def test_metrics_recording_and_shares_agree_at_the_same_time(prompt: Prompt) -> None:
    running = prompt.service
    users = prompt.users()
    reply = json.loads(prompt.run("shares", "--json").stdout)
    with urllib.request.urlopen(running.metrics_url) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    seen = {
        (
            sample.name.removeprefix("longshare_user_"),
            *(sample.labels[k] for k in ("user", "resource") if k in sample.labels),
        ): sample.value
        for family in families
        for sample in family.samples
    }
    assert running.stop() == 0
    with running.recording.open() as file:
        recorded = {
            (row["user"], row["resource"]): row
            for row in csv.DictReader(file)
            if float(row["time"]) == reply["cluster"]["time"]
        }
    assert set(recorded) == {(user, name) for user in users for name in ("cpus", "mem", "gpus")}
    for user, row in users.items():
        for metric, field in {
            "weight": "weight",
            "entitlement_ratio": "entitlement",
            "priority": "priority",
            "rank": "rank",
            "dominant_share_ratio": "dominant_share",
            "dominant_commitment_ratio": "dominant_commitment",
            "shortfall_ratio": "shortfall",
        }.items():
            assert seen[metric, user] == row[field]
    for (user, name), sample in recorded.items():
        row = users[user]
        commitment = row["commitments"].get(name, 0.0)
        assert seen["allocation", user, name] == row["allocation"][name]
        assert seen["share_ratio", user, name] == row["shares"][name]
        assert seen.get(("commitment_ratio", user, name), 0.0) == commitment
        assert float(sample["allocation"]) == row["allocation"][name]
        assert float(sample["share"]) == pytest.approx(row["shares"][name], rel=1e-5)
        assert float(sample["commitment"]) == pytest.approx(commitment, rel=1e-5)
        assert float(sample["priority"]) == pytest.approx(row["priority"], rel=1e-5)
    assert seen["longshare_recorder_failed",] == 0.0


def test_users_without_frameworks_can_be_forgotten(prompt: Prompt) -> None:
    completed = prompt.run("commitments", "forget", HOSTILE, code=1)
    assert "has frameworks, so it would come back at once" in completed.stderr
    prompt.stream.tell(remove_framework=contract.RemoveFramework(framework_id="f2"))
    shown = prompt.run("commitments", "forget", HOSTILE).stdout
    assert "[red]x\\x1b[2J: forgotten, with a commitment of 0.0%" in shown
    assert set(prompt.users()) == {"batch", "web"}
    assert "no such user" in prompt.run("commitments", "forget", HOSTILE, code=1).stderr
