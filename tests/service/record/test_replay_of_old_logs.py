"""Event logs of earlier versions replay bit for bit.

Those of 0.1 are of random clusters with all that a master can say: role trees and plain roles,
quotas, weights, constraints, demands, refusals, volumes, reservations, operators' orders. What was
decided otherwise on purpose since is not in them: what follows an event that contradicts what is
known; learned demands, which have a floor now; and where demands meet refusals, reservations or
minima, for nobody is given on paper any more what it would not take. Those of 1.0 are of simulated
worlds, with the same and with services that were killed, one for each policy and one more.
"""

from pathlib import Path

import pytest

from allocator.service.record.replay import replay

HERE = Path(__file__).parent
LOGS = sorted(HERE.glob("logs_of_*/*.log"))


def test_there_are_such_logs() -> None:
    assert len(LOGS) == 3 + 9


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_log_that_was_recorded_before_replays(path: Path) -> None:
    replayed = replay(path)
    assert replayed.difference is None
    assert replayed.left_out == 0
    assert replayed.offers > 50
