"""A recorded log replays bit for bit, and the scan ranking decides as the Live Tree."""

from dataclasses import replace
from pathlib import Path

from allocator.cluster.engine import Engine
from allocator.fairness.policies.sdrf import Sdrf
from allocator.service.record.event_log import decode_settings
from allocator.service.record.replay import apply_entry, open_log, recorded_outcome
from allocator.service.store import codec
from tests.world.checkers.checker import Violated


def check(path: Path) -> int:
    """Replay a recorded log, with the slow reference ranking where available.

    Returns:
        The number of compared entries.

    Raises:
        Violated: A decision differs.
    """
    cut: list[int] = []
    header, entries = open_log(path, cut.append)
    settings = decode_settings(header.settings)
    if isinstance(settings.policy, Sdrf):
        scan = settings.policy.model_copy(update={"ranking": "scan"})
        settings = replace(settings, policy=scan)
    engine = Engine(settings, memory=codec.decode(header.memory) if header.memory else None)
    number = 0
    for number, entry in enumerate(entries, 1):
        repeated, recorded = apply_entry(engine, entry), recorded_outcome(entry)
        if repeated != recorded:
            raise Violated(f"entry {number} of {path.name} is decided otherwise by the scan")
    return number
