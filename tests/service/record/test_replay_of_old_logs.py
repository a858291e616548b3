"""Event logs of earlier versions replay bit for bit.

The logs of version 0.1 record random clusters with all calls of a master: role trees and plain
roles, quotas, weights, constraints, demands, declines, volumes, reservations, operators' orders.
They leave out cases decided differently on purpose since then:

* decisions after an event that contradicts the known state
* learned demands, which have a minimum now
* demands together with declines, reservations or minimum offers, as progressive filling no
  longer counts allocations that a client would decline

The logs of version 1.0 record simulated clusters with the same calls and killed services: a log
for each policy, and a second log of SDRF with declined offers.
"""

from pathlib import Path

import pytest

from allocator.service.record.replay import (
    apply_entry,
    new_engine,
    open_log,
    replay,
)

HERE = Path(__file__).parent
LOGS = sorted(HERE.glob("logs_of_*/*.log"))


def test_there_are_twelve_old_logs() -> None:
    assert len(LOGS) == 3 + 9


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_log_replays_without_difference(path: Path) -> None:
    replayed = replay(path)
    assert replayed.difference is None
    assert replayed.left_out == 0
    assert replayed.offers > 50


@pytest.mark.parametrize("path", LOGS[::4], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_slices_change_no_decision_of_an_old_log(path: Path) -> None:
    header, entries = open_log(path)
    engine, slices = new_engine(header), 0
    for entry in entries:
        if not entry.HasField("apply") or entry.apply.outcome.refusal:
            apply_entry(engine, entry)
            continue
        steps = engine.apply_in_steps(entry.apply.events, 1)
        slices += sum(part is not None for part in steps)
        decisions = engine.whole_answer().SerializeToString(deterministic=True)
        assert decisions == entry.apply.outcome.decisions
    assert slices > 10
