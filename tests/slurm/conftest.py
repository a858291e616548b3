"""A fixture for comparisons of commitments with the records of a real Slurm."""

import math

import pytest

from allocator.slurm import timelines


@pytest.fixture
def ends_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count each ended job until the end in Slurm's records.

    Otherwise, a job whose processes need more than `_LEAVES_AT_ONCE` seconds to leave its nodes
    counts longer, and no record tells how long. Processes need as long on a slow machine, and if
    slurmctld is killed meanwhile.
    """
    monkeypatch.setattr(timelines, "_LEAVES_AT_ONCE", math.inf)
