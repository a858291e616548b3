"""Alerts of the service for Slurm fire when they should, and query only existing metrics."""

import re
import subprocess

import pytest

from allocator.fairness.policies import create
from allocator.service.show.metric_definitions import GroupCollector
from allocator.service.show.metrics import POOL
from allocator.service.slurm.follower import SlurmContact
from allocator.service.slurm.metrics import CONTACT, STATE
from allocator.slurm.adapter import SlurmAdapter
from allocator.slurm.bridge import Cycle
from allocator.slurm.order import Order
from allocator.slurm.state import ClusterState, StateSettings
from tests.deploy.watched import DEPLOY, promtool

FOLDER = DEPLOY / "prometheus"
RULES = (FOLDER / "rules" / "longshare-slurm.yml").read_text()
PAGE = (DEPLOY.parent / "docs" / "reference" / "slurm-alerts.md").read_text()
OF_USERS = {
    "longshare_user_shortfall_ratio",
    "longshare_user_entitlement_ratio",
    "longshare_user_takes_nothing",
}
"""Metrics that all schedulers share; tests/deploy/test_prometheus.py scrapes them."""


def shown() -> set[str]:
    """Return the metrics of a service after its first reading."""
    state = ClusterState(StateSettings(create("sdrf", {"half_life": 60.0})), 0.0)
    contact = SlurmContact()
    contact.note(Cycle(0.0, state.present(), Order()), 0.1)
    groups = ((CONTACT, contact), (STATE, state), (POOL, SlurmAdapter(state)))
    families = (family for group in groups for family in GroupCollector(*group).collect())
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    }


def test_promtool_accepts_the_rules_and_their_tests_pass() -> None:
    tool = promtool()
    if tool is None:
        pytest.skip("promtool is not installed, so the rules' own tests are not run")
    for arguments in (
        ["check", "rules", "rules/longshare-slurm.yml"],
        ["test", "rules", "slurm_rules_test.yml"],
    ):
        completed = subprocess.run(
            [tool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr


def test_every_alert_has_a_rule_test_and_a_section_with_instructions() -> None:
    alerts = re.findall(r"- alert: (\w+)$", RULES, re.MULTILINE)
    assert alerts == re.findall(r"^## (LongshareSlurm\w+)$", PAGE, re.MULTILINE)
    assert re.findall(r"runbook: docs/reference/slurm-alerts\.md#(\w+)$", RULES, re.MULTILINE) == [
        name.lower() for name in alerts
    ]
    tested = (FOLDER / "slurm_rules_test.yml").read_text()
    for name in alerts:
        assert f"alertname: {name}\n        eval_time" in tested, f"{name} is never seen to ring"


def test_the_service_shows_every_metric_that_rules_name() -> None:
    expressions = re.sub(r"^.*(record|summary|runbook):.*$", "", RULES, flags=re.MULTILINE)
    named = set(re.findall(r"\blongshare_\w+", expressions))
    assert len(named) >= 7
    assert named - OF_USERS <= shown()
