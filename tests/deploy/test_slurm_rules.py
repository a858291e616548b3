"""Alerts of the service for Slurm query only existing metrics."""

import re

from allocator.fairness.policies import create
from allocator.service.show.metric_definitions import GroupCollector
from allocator.service.show.metrics import POOL
from allocator.service.slurm.follower import SlurmContact
from allocator.service.slurm.metrics import CONTACT, STATE
from allocator.slurm.adapter import SlurmAdapter
from allocator.slurm.bridge import Cycle
from allocator.slurm.order import Order
from allocator.slurm.state import ClusterState, StateSettings
from tests.deploy.watched import DEPLOY

RULES = (DEPLOY / "prometheus" / "rules" / "longshare-slurm.yml").read_text()
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


def test_the_service_shows_every_metric_that_rules_name() -> None:
    expressions = re.sub(r"^.*(record|summary|runbook):.*$", "", RULES, flags=re.MULTILINE)
    named = set(re.findall(r"\blongshare_\w+", expressions))
    assert len(named) >= 7
    assert named - OF_USERS <= shown()
