"""The commands `longshare slurm …` on a real Slurm."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from allocator.cli import app
from allocator.slurm.factors import NO_FACTOR, USUAL_DIFFERENCE, FactorUpdate
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, bridge_to, reason_to_skip

OURS = USUAL_DIFFERENCE + 500
"""A site factor of Longshare."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    settings = SlurmSettings(nodes=(NodeGroup("n", 1, 4, 1000),))
    with LocalSlurm(tmp_path_factory.mktemp("slurm") / "slurm", settings, ROOT) as running:
        running.submit("--ntasks=4", "--mem=10", user="games", script="sleep 100")
        running.submit("--ntasks=4", "--mem=10", "--array=1-3", user="games")
        running.submit("--ntasks=2", "--mem=10", user="man")
        running.submit("--hold", "--mem=10", user="man")
        bridge = bridge_to(running, 10.0, 0.0)
        while not bridge.poll().tree.capacity or not bridge.state.running:
            pass
        yield running


def run(slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    return CliRunner().invoke(app, ["slurm", *arguments])


def test_check_finds_no_problem_in_a_slurm_that_follows_the_order(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(slurm, monkeypatch, "check", "--json")
    assert result.exit_code == 0
    assert {finding["kind"] for finding in json.loads(result.output)} <= {"note"}
    assert "will follow the order" in run(slurm, monkeypatch, "check").output


def test_order_shows_the_first_jobs_and_changes_nothing(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = slurm.run("sprio", "--noheader", "--format=%i %S")
    result = run(slurm, monkeypatch, "order", "--json", "--history", "1h")
    answer = json.loads(result.stdout)
    assert [job["user"] for job in answer["jobs"]] == ["man", "games", "games", "games"]
    assert answer["passed_over"] == {"JobHeldUser": 1}
    table = run(slurm, monkeypatch, "order", "--history", "1h").output
    assert "passed over, because of JobHeldUser" in table
    assert slurm.run("sprio", "--noheader", "--format=%i %S") == before


def test_reset_takes_back_our_site_factors_and_keeps_those_of_others(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = bridge_to(slurm, 10.0, 0.0)
    bridge.poll()
    jobs = (seen.job for seen in bridge.state.pending)
    pending = next(job.number for job in jobs if job.user == "man" and job.reason != "JobHeldUser")
    slurm.run("scontrol", "update", f"jobid={pending}", "sitefactor=12345")
    cycle = bridge.poll()
    assert cycle.foreign == [str(pending)]
    result = run(slurm, monkeypatch, "reset")
    assert result.exit_code == 0, result.output
    factors = bridge.client.site_factors()
    assert {job: factor for job, factor in factors.items() if factor} == {str(pending): 12345}


def priority(slurm: LocalSlurm, job: int) -> int:
    return int(slurm.run("squeue", "--noheader", f"--job={job}", "--Format=prioritylong"))


def test_reset_also_takes_back_the_factors_of_jobs_that_sprio_does_not_list(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = slurm.submit("--mem=10", "--begin=now+1hour", "--nice=4", user="news")
    held = slurm.submit("--mem=10", "--begin=now+1hour", user="news")
    plain = slurm.submit("--mem=10", "--begin=now+1hour", user="news")
    for job in (later, held):
        slurm.run("scontrol", "update", f"jobid={job}", f"sitefactor={OURS}")
    slurm.run("scontrol", "hold", str(held))
    result = run(slurm, monkeypatch, "reset")
    assert result.exit_code == 0, result.output
    assert priority(slurm, later) == priority(slurm, plain) == 1
    told = r"does not tell the site factors of \d other jobs.*`longshare slurm reset --all`"
    assert re.search(told, result.stderr, re.DOTALL)
    assert not run(slurm, monkeypatch, "reset", "--all").stderr
    slurm.run("scontrol", "release", str(held))
    assert priority(slurm, held) == 1
    slurm.run("scancel", "--user=news")


def test_a_job_that_is_held_loses_its_factor_before_it_is_released(slurm: LocalSlurm) -> None:
    job = slurm.submit("--ntasks=2", "--mem=10", user="news")
    bridge = bridge_to(slurm, 10.0, 0.0)
    while not bridge.client.site_factors().get(str(job)):
        bridge.poll()
    bridge.poll()  # sprio now lists the factor
    slurm.run("scontrol", "hold", str(job))
    assert FactorUpdate(str(job), NO_FACTOR) in bridge.poll().updates
    slurm.run("scontrol", "release", str(job))
    assert priority(slurm, job) == 1
    slurm.run("scancel", "--user=news")


def test_factors_are_sent_once_although_sprio_lists_new_records_late(slurm: LocalSlurm) -> None:
    slurm.submit("--ntasks=2", "--mem=10", "--array=1-5", "--nice=3", user="news")
    bridge = bridge_to(slurm, 10.0, 0.0)
    first = bridge.poll()
    assert {placed.user for placed in first.order.placed} >= {("news",)}
    assert bridge.poll().updates == []
    assert bridge.poll().updates == []
    slurm.run("scancel", "--user=news")


def test_order_counts_tasks_with_tsf_and_refuses_policies_that_cannot_order_jobs(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(slurm, monkeypatch, "order", "--policy", "tsf", "--json", "--history", "1h")
    shares = {user["user"]: user["share"] for user in json.loads(result.stdout)["users"]}
    assert shares["games"] == pytest.approx(1.0)
    refused = run(slurm, monkeypatch, "order", "--policy", "cdrf")
    assert refused.exit_code == 2
    assert "choose tsf or stsf" in refused.output


def test_commands_take_policy_users_and_slurm_conf_from_the_services_file(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "longshare.toml"
    conf = slurm.environment["SLURM_CONF"]
    users = '[users]\nkey = "account"\n[[users.declared]]\nname = "weighty"\nweight = 3\n'
    file.write_text(f'[policy]\nname = "drf"\n{users}[slurm]\nconf = "{conf}"\n')

    def without_environment(*arguments: str) -> Result:
        monkeypatch.setenv("PATH", slurm.environment["PATH"])
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none.conf"))
        return CliRunner().invoke(app, ["slurm", *arguments, "--config", str(file)])

    answer = json.loads(without_environment("order", "--json", "--history", "1h").stdout)
    weights = {row["user"]: (row["weight"], row["commitment"]) for row in answer["users"]}
    assert weights["weighty"] == (3.0, 0.0), "the file declares the user, and drf has no memory"
    assert without_environment("check").exit_code == 0
    assert without_environment("reset").exit_code == 0
    both = without_environment("order", "--policy", "drf")
    assert (both.exit_code, both.stderr.count("not both")) == (2, 1)
    file.write_text("[users]\nkey = 7\n")
    assert without_environment("check").exit_code == 2
