"""A fixture for comparisons of commitments with the records of a real Slurm."""

import pytest

from allocator.slurm import timelines


@pytest.fixture
def ends_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count each ended job until the end in Slurm's records.

    Otherwise, a job counts longer if a reading shows its processes on its nodes after its end, and
    no record tells how long.
    """
    monkeypatch.setattr(timelines, "_LONGEST_LEAVING", 0.0)
