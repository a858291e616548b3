"""Memory that a single hostile message can take, measured in a separate process."""

from collections.abc import Callable

import pytest

from allocator.contract import allocator_pb2 as contract
from bench.memory import MIB, cost, of_many_roles


@pytest.mark.slow
def test_a_hundred_thousand_roles_in_one_message_take_memory_up_to_the_limit() -> None:
    measured = cost(contract.Snapshot(frameworks=of_many_roles()))
    assert measured.subjects == 390
    assert measured.users == 39 * 256
    assert 4 < measured.kept < 96, measured


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        lambda n: {"agents": [contract.AddAgent(agent_id=f"{k:x}") for k in range(n)]},
        lambda n: {"frameworks": [contract.AddFramework(framework_id=f"{k:x}") for k in range(n)]},
    ],
    ids=["agents", "frameworks"],
)
def test_agents_and_frameworks_count_as_several_parts_each(
    part: Callable[[int], dict[str, list[contract.AddAgent]]],
) -> None:
    taken = cost(contract.Snapshot(**part(9_000)), 40 * 9_000)  # type: ignore[arg-type]
    assert taken.subjects == 9_000
    assert 1 < taken.kept < 25 * 9_000 * 150 / MIB, taken
    refused = cost(contract.Snapshot(**part(100_000)), 2**20)  # type: ignore[arg-type]
    assert refused.subjects == -1
    assert refused.kept < 32, refused
