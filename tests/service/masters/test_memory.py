"""What one message can cost in memory, however its bytes are chosen, in a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos

MIB = 2**20
PROBE = """
import resource, sys
from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.masters import wire

engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": 60.0})))
data = sys.stdin.buffer.read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
try:
    message = wire.parse(data, int(sys.argv[1]))
except wire.WireError as error:
    print(peak() - before, -1, -1)
else:
    engine.restore(contract.Options(), message.snapshot)
    print(peak() - before, engine.agents + engine.frameworks, len(engine.users()))
"""


def cost(snapshot: contract.Snapshot, most_parts: int = 2**23) -> tuple[float, int, int]:
    """Return MiB, how many agents and frameworks there are then, and users; −1: it is refused."""
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(most_parts)],
        input=data,
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    kib, subjects, users = map(int, done.stdout.split())
    return kib * 1024 / MIB, subjects, users


def of_many_roles() -> Iterator[contract.AddFramework]:
    multi_role = mesos.FrameworkInfo.Capability(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)
    for number in range(390):
        roles = [f"{number:x}.{each:x}" for each in range(256)]
        info = mesos.FrameworkInfo(user="u", name="n", roles=roles, capabilities=[multi_role])
        yield contract.AddFramework(
            framework_id=f"f{number}", info=info.SerializeToString(), active=True
        )


@pytest.mark.slow
def test_a_hundred_thousand_roles_in_one_message_cost_what_those_within_the_limit_do() -> None:
    mib, frameworks, users = cost(contract.Snapshot(frameworks=of_many_roles()))
    assert frameworks == 390
    assert users == 39 * 256
    assert mib < 96, mib


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        lambda n: {"agents": [contract.AddAgent(agent_id=f"{k:x}") for k in range(n)]},
        lambda n: {"frameworks": [contract.AddFramework(framework_id=f"{k:x}") for k in range(n)]},
    ],
    ids=["agents", "frameworks"],
)
def test_parts_of_which_much_is_kept_count_for_several(
    part: Callable[[int], dict[str, list[contract.AddAgent]]],
) -> None:
    kept, subjects, _users = cost(contract.Snapshot(**part(9_000)), 40 * 9_000)  # type: ignore[arg-type]
    assert subjects == 9_000
    assert kept * MIB < 25 * 9_000 * 150
    refused, subjects, _users = cost(contract.Snapshot(**part(100_000)), 2**20)  # type: ignore[arg-type]
    assert subjects == -1
    assert refused < 32
