"""Jobs with all their changes, as they truly were, and what Slurm shows of them at a time."""

from dataclasses import dataclass, field, replace

from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import Job, JobDetail, SeenJob
from allocator.slurm.timelines import Attempt, Step

MIN_JOB_AGE = 300.0


@dataclass
class TrueJob:
    """A job of a user; the last attempt is open-ended if it never ends."""

    number: int
    user: str
    submitted: float
    attempts: list[Attempt] = field(default_factory=list)

    def changes(self) -> list[Step]:
        return [step for attempt in self.attempts for step in attempt.steps()]

    def seen(self, now: float) -> tuple[SeenJob, JobDetail] | None:
        """Return what Slurm shows at a time: the present attempt only, with its latest changes."""
        if now < self.submitted:
            return None
        begun = [attempt for attempt in self.attempts if attempt.start <= now]
        restarts = sum(
            attempt.end is not None and attempt.end <= now for attempt in self.attempts[:-1]
        )
        submitted = self.submitted
        if restarts:
            submitted = self.attempts[restarts - 1].end or 0.0
        job = Job(
            number=self.number, array=self.number, tasks="", heterogeneous=0, user=self.user,
            account="", partitions=("main",), qos="", state="PENDING", reason="Priority",
            priority=1, nice=0, submitted=submitted, eligible=submitted, started=None, ended=None,
            resized=False, restarts=restarts, quantities=Quantities(),
        )  # fmt: skip
        if len(begun) <= restarts:
            return SeenJob(job, 0.0), JobDetail(None, 0.0, None)
        attempt = begun[-1]
        ended = attempt.end if attempt.end is not None and attempt.end <= now else None
        if ended is not None and now - ended > MIN_JOB_AGE:
            return None
        until = now if ended is None else ended
        sizes = [size for size in attempt.sizes if size.time <= until]
        pauses = [
            (begin, finish if finish is not None and finish <= until else None)
            for begin, finish in attempt.pauses
            if begin <= until
        ]
        suspended = bool(pauses) and pauses[-1][1] is None
        visible = replace(attempt, pauses=pauses)
        ran = until - attempt.start - visible.paused(until)
        changed = None
        ran_before = 0.0
        if pauses:
            begin, finish = pauses[-1]
            changed = begin if finish is None else finish
            ran_before = begin - attempt.start - visible.paused(begin)
        state = "COMPLETED" if ended is not None else "SUSPENDED" if suspended else "RUNNING"
        job = replace(
            job,
            state=state,
            started=attempt.start,
            ended=ended,
            resized=len(sizes) > 1,
            quantities=sizes[-1].quantities,
        )
        detail = JobDetail(changed, ran_before, sizes[-1].time if len(sizes) > 1 else None)
        return SeenJob(job, ran), detail
