"""The live engine shares resources equally among equal users, at every instant."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.config import load
from allocator.service.record.event_log import decode_settings, encode_settings
from tests.cluster.master_side import MasterSide
from tests.cluster.test_policies import cpus
from tests.cluster.test_task_offers import add

POLICIES = [
    "slurm-fair-tree",
    "kueue-afs",
    "volcano",
    "htcondor",
    "dynamic-drf",
    "karma",
    "sdrf",
    "stsf",
]


def eight_for_four(policy: str, start: float, later: float, *, exact_ties: bool) -> Counter[str]:
    """Return each user's CPUs after eight CPUs become free in sequence at one instant."""
    parameters: dict[str, object] = {"half_life": 3600.0} if policy in ("sdrf", "stsf") else {}
    master = MasterSide(policy, parameters)
    master.engine = Engine(replace(master.settings, exact_ties=exact_ties))
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for role in "abcd":
        add(master, role, role, "cpus:1;mem:1024")
    master.wait(start)
    master.add_agent("s1", "cpus:4;mem:4096")
    master.wait(later)
    given = Counter[str]()
    for number in range(8):
        given += cpus(master.add_agent(f"t{number}", "cpus:1;mem:1024"))
    return given


@pytest.mark.parametrize("policy", POLICIES)
def test_eight_free_cpus_are_two_each_for_four_equals_at_every_instant(policy: str) -> None:
    chance = random.Random(43)
    for _ in range(25):
        start, later = chance.uniform(0.0, 3e3), chance.uniform(0.0, 3e3)
        given = eight_for_four(policy, start, later, exact_ties=False)
        assert given == dict.fromkeys("abcd", 2), (start, later)


def test_event_logs_without_a_rule_for_ties_mean_the_former_rule(tmp_path: Path) -> None:
    settings = EngineSettings(policies.create("volcano", {}))
    assert settings.exact_ties
    plain = json.loads(encode_settings(settings))
    del plain["exact_ties"]
    assert decode_settings(json.dumps(plain).encode()).exact_ties
    path = tmp_path / "longshare.toml"
    path.write_text('[policy]\nname = "volcano"\n')
    live = load(path).engine_settings()
    assert not live.exact_ties
    assert not decode_settings(encode_settings(live)).exact_ties
