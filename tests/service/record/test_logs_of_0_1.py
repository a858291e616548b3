"""Logs that the first version recorded are decided again bit for bit.

They are of random clusters with all that a master can say: role trees and plain roles, quotas,
weights, constraints, demands, refusals, volumes, reservations, operators' orders. What was decided
otherwise on purpose since is not in them: what follows an event that contradicts what is known,
and learned demands, which have a floor now.
"""

from pathlib import Path

import pytest

from allocator.service.record.replay import replay

LOGS = sorted(Path(__file__).with_name("logs_of_0_1").glob("*.log"))


def test_there_are_such_logs() -> None:
    assert len(LOGS) == 10


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_recorded_by_version_0_1_replays(path: Path) -> None:
    replayed = replay(path)
    assert replayed.difference is None
    assert replayed.left_out == 0
    assert replayed.offers > 50
