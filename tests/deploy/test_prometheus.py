"""Alerts fire when they should, and query only existing metrics."""

import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.watched import DEPLOY, busy_service, prometheus, promtool, scraping
from tests.service.served import wait_for

RULES = DEPLOY / "prometheus" / "rules" / "longshare.yml"
PAGES = DEPLOY.parent / "docs" / "reference"


def rules(file: Path = RULES) -> str:
    """Return the contents of a file of rules without comments."""
    return re.sub(r"^\s*#.*$", "", file.read_text(), flags=re.MULTILINE)


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\blongshare_\w+", expression))


def test_promtool_accepts_configuration_and_rules_and_their_tests_pass() -> None:
    tool = promtool()
    if tool is None:
        pytest.skip("promtool is not installed, so the rules' own tests are not run")
    for arguments in (
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules/longshare.yml"],
        ["test", "rules", "rules_test.yml"],
        ["check", "rules", "rules/longshare-slurm.yml"],
        ["test", "rules", "slurm_rules_test.yml"],
    ):
        completed = subprocess.run(
            [tool, *arguments],
            cwd=DEPLOY / "prometheus",
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize(
    ("file", "tests", "page", "heading"),
    [
        ("longshare.yml", "rules_test.yml", "alerts.md", r"\w+"),
        ("longshare-slurm.yml", "slurm_rules_test.yml", "slurm-alerts.md", r"LongshareSlurm\w+"),
    ],
)
def test_every_alert_has_a_rule_test_and_a_section_with_instructions(
    file: str, tests: str, page: str, heading: str
) -> None:
    tested = (DEPLOY / "prometheus" / tests).read_text()
    sections = re.findall(rf"^## ({heading})$", (PAGES / page).read_text(), re.MULTILINE)
    of_file = rules(RULES.parent / file)
    alerts = re.findall(r"- alert: (\w+)$", of_file, re.MULTILINE)
    assert alerts == sections
    runbook = rf"runbook: docs/reference/{re.escape(page)}#(\w+)$"
    assert re.findall(runbook, of_file, re.MULTILINE) == [name.lower() for name in alerts]
    for name in alerts:
        assert f"alertname: {name}\n        eval_time" in tested, f"{name} is never seen to ring"


def test_the_service_shows_every_metric_that_rules_name(tmp_path: Path) -> None:
    named = names_in(rules())
    assert len(named) > 10
    with busy_service(tmp_path, hopeless=True) as (running, _):

        def missing() -> set[str]:
            with urllib.request.urlopen(running.metrics_url) as answer:
                families = text_string_to_metric_families(answer.read().decode())
                return named - {sample.name for family in families for sample in family.samples}

        wait_for(lambda: not missing())  # a client without a task is detected after a pass over all


@pytest.mark.slow
def test_a_real_prometheus_scrapes_the_service_and_evaluates_every_rule(tmp_path: Path) -> None:
    if prometheus() is None:
        pytest.skip("prometheus is not installed, so nothing is scraped")
    with (
        busy_service(tmp_path, hopeless=True) as (running, _),
        scraping(tmp_path, urlsplit(running.metrics_url).netloc) as asked,
    ):
        wait_for(lambda: bool(asked.samples('up{job="longshare",cluster="tested"} == 1')))
        recorded = set(re.findall(r"- record: (\S+)$", rules(), re.MULTILINE))
        missing = names_in(rules()) | recorded
        assert len(recorded) >= 4

        def all_seen() -> bool:
            missing.difference_update([name for name in missing if asked.samples(name)])
            return not missing

        wait_for(all_seen)

        def rules_of_all() -> list[dict[str, Any]]:
            groups = asked.get("rules")["groups"]
            of_mesos = (group for group in groups if "slurm" not in group["name"])
            return [rule for group in of_mesos for rule in group["rules"]]

        wait_for(lambda: all(rule["health"] != "unknown" for rule in rules_of_all()))
        evaluated = rules_of_all()
        assert {rule["health"] for rule in evaluated} == {"ok"}
        assert len(evaluated) == len(re.findall(r"- (?:alert|record):", rules()))
