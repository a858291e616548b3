"""The latest starts of jobs, for the status page."""

from collections import deque
from collections.abc import Callable, Iterable

from allocator.service.show.offer_trail import MOST_OFFERS, OfferRecord
from allocator.slurm.jobs import SeenJob
from allocator.slurm.shares import name_of
from allocator.slurm.timelines import UserPath

_AT_A_TIME = 10
"""Maximum number of starts that are recorded after one reading."""


class StartTrail:
    """Records the latest starts of jobs."""

    def __init__(self) -> None:
        self.offers: deque[OfferRecord] = deque(maxlen=MOST_OFFERS)
        """The starts, the earliest first."""
        self._latest: float | None = None
        """Time of the latest start that was recorded; None before the first reading."""

    def note(self, seen: Iterable[SeenJob], path_of: Callable[[SeenJob], UserPath]) -> None:
        """Record the jobs that have started since the reading before.

        Args:
            seen: All jobs of a reading.
            path_of: Returns the user that a job's resources count for.
        """
        starts = [entry.job.started for entry in seen if entry.job.started is not None]
        latest = max(starts, default=self._latest)
        if self._latest is not None:
            new = [
                (started, entry)
                for entry in seen
                if (started := entry.job.started) is not None and started > self._latest
            ]
            new.sort(key=lambda start: (start[0], start[1].job.number))
            for started, entry in new[-_AT_A_TIME:]:
                self.offers.append(_record(started, entry, name_of(path_of(entry))))
        self._latest = latest


def _record(started: float, seen: SeenJob, user: str) -> OfferRecord:
    job = seen.job
    return OfferRecord(
        time=started,
        user=user,
        role=job.account,
        framework=f"job {job.number}",
        host=",".join(job.partitions),
        resources=job.quantities.to_doubles(),
        why=f"Slurm started it {started - job.submitted:.0f} s after its submission.",
    )
