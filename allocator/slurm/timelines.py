"""Timelines: the resources that a job has held at each time, over all its attempts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.slurm.jobs import Job, JobDetail

UserPath: TypeAlias = tuple[str, ...]
"""Names from the root of the tree of users to the user. Without a tree: one name."""
_ROUNDING = 2.0
"""Seconds. Slurm rounds times to whole seconds, so durations that differ by less may be equal."""


_CLOCKS = 60.0
"""Seconds by which the clock of slurmctld may be ahead."""
_LONGEST_LEAVING = 600.0
"""Maximum number of seconds for which the processes of an ended job count. Processes that remain
longer cannot be killed, and the site is responsible for them."""

_LONGEST_UNSEEN = 60.0
"""Maximum number of seconds before a reading for which an attempt counts that was requeued unseen.
After a pause of the service, the attempt may have started at any time."""


class Step(NamedTuple):
    """From a time on, a job holds these resources."""

    time: float
    """Seconds since 1970."""
    quantities: Quantities


class Correction(NamedTuple):
    """An assumption about a change whose time Slurm does not tell."""

    job: int
    since: float
    until: float
    """The true time of the change lies between these times, in seconds since 1970."""
    reason: str


@dataclass
class Attempt:
    """One attempt to run a job."""

    start: float
    """Times are in seconds since 1970."""
    sizes: list[Step]
    """The resources of the allocation, from the start, and from each change of size."""
    pauses: list[tuple[float, float | None]] = field(default_factory=list)
    """Suspensions: their begin and end. None: the job is still suspended."""
    end: float | None = None
    leaving: float | None = None
    """Time of the first reading that showed processes on the nodes after the end that Slurm tells.
    None: no reading showed such processes."""
    user: UserPath = ()
    """The user that the resources count for. A requeued job may change its account."""
    settled_pauses: float = 0.0
    """Seconds of the suspensions that `settle` has removed from `pauses`."""

    def paused(self, until: float) -> float:
        """Return the seconds of all suspensions up to a time."""
        if not self.pauses:
            return self.settled_pauses
        return self.settled_pauses + sum(
            max(min(until if end is None else end, until) - begin, 0.0)
            for begin, end in self.pauses
        )

    def settle(self, until: float) -> None:
        """Replace the suspensions that ended before a time by their sum."""
        remaining: list[tuple[float, float | None]] = []
        for begin, end in self.pauses:
            if end is None or end > until:
                remaining.append((begin, end))
            else:
                self.settled_pauses += end - begin
        self.pauses = remaining

    def steps(self) -> Iterator[Step]:
        """Yield the resources that the job holds, in order of time.

        A suspended job keeps its memory and its generic resources, but not its cores.
        """
        if not self.pauses and len(self.sizes) == 1:  # as most attempts
            if self.end is None or self.sizes[0].time < self.end:
                yield self.sizes[0]
            if self.end is not None:
                yield Step(self.end, NO_QUANTITIES)
            return
        changes = {step.time for step in self.sizes}
        for begin, finish in self.pauses:
            changes |= {begin} if finish is None else {begin, finish}
        for time in sorted(changes):
            if self.end is not None and time >= self.end:
                break
            size = next(step.quantities for step in reversed(self.sizes) if step.time <= time)
            suspended = any(
                begin <= time and (finish is None or time < finish) for begin, finish in self.pauses
            )
            yield Step(time, _without_cores(size) if suspended else size)
        if self.end is not None:
            yield Step(self.end, NO_QUANTITIES)


def _possible(detail: JobDetail, start: float, now: float) -> bool:
    """Return whether the times of changes lie between the start of an attempt and the present."""
    times = (detail.suspended, detail.resized)
    return all(time is None or start <= time <= now + _CLOCKS for time in times)


def _without_cores(quantities: Quantities) -> Quantities:
    return Quantities({name: amount for name, amount in quantities.items() if name != "cpus"})


class JobTimeline:
    """All attempts of one job, as far as they have been seen.

    Args:
        number: The job's id.
        since: When the job was first submitted, in seconds since 1970.
    """

    __slots__ = ("_current", "attempts", "number", "restarts", "since")

    def __init__(self, number: int, since: float = 0.0) -> None:
        self.number = number
        self.since = since
        self.attempts: list[Attempt] = []
        self.restarts = 0
        self._current: Attempt | None = None
        """The attempt that Slurm shows. None: the job is pending, or nothing is known."""

    @property
    def open(self) -> Attempt | None:
        """The attempt that holds resources now; None without an attempt."""
        return next((attempt for attempt in self.attempts if attempt.end is None), None)

    def steps(self) -> list[tuple[UserPath, Step]]:
        """Return the resources that the job holds, in order of time, each with its user."""
        return [(attempt.user, step) for attempt in self.attempts for step in attempt.steps()]

    def needs_detail(self, job: Job, ran: float, now: float) -> bool:
        """Return whether the times of suspensions and changes of size must be asked for.

        Args:
            job: The job as it is now.
            ran: Seconds for which the present attempt has run.
            now: The time of the reading, in seconds since 1970.
        """
        if job.started is None:
            return False
        attempt = self._attempt(job)
        if attempt is None:
            suspended, paused, resized = False, 0.0, job.resized
        else:
            suspended = bool(attempt.pauses) and attempt.pauses[-1][1] is None
            paused = attempt.paused(now if job.ended is None else job.ended)
            resized = job.resized and job.quantities != attempt.sizes[-1].quantities
        if job.ended is not None:
            return resized or job.ended - job.started - ran != paused
        return (
            resized
            or job.suspended != suspended
            or (not suspended and now - job.started - ran > paused + _ROUNDING)
        )

    def update(
        self, job: Job, user: UserPath, detail: JobDetail | None, now: float, before: float
    ) -> list[Correction]:
        """Take over what Slurm tells about the job.

        Args:
            job: The job as it is now.
            user: The user that a new attempt counts for.
            detail: Times of suspensions and changes of size, if `needs_detail`.
            now: The time of the reading, in seconds since 1970.
            before: The time of the reading before.

        Returns:
            The assumptions about changes whose time Slurm does not tell.
        """
        corrections: list[Correction] = []
        if job.leaving and job.started is None:
            return self._leave(job, user, now, before)
        if job.restarts > self.restarts + (self._current is not None):
            reason = "attempts that were requeued before they were seen"
            corrections.append(Correction(self.number, self.since, job.submitted, reason))
        latest = self.open
        if latest and latest.pauses and job.restarts > self.restarts:
            reason = "the end of a suspension before the job was requeued"
            if latest.pauses[-1][1] is None:
                begin = latest.pauses[-1][0]
                corrections.append(Correction(self.number, begin, job.submitted, reason))
        if job.started is None:
            return corrections + self._wait(job, now)
        attempt = self._attempt(job)
        if attempt is None:
            self.close(min(job.submitted, job.started))
            attempt = Attempt(job.started, [Step(job.started, job.quantities)], user=user)
            self.attempts.append(attempt)
            if job.resized:
                reason = "the size before the latest change of size"
                corrections.append(Correction(self.number, job.started, now, reason))
        elif attempt.start != job.started:  # the job began when its nodes were configured
            attempt.start = job.started
            attempt.sizes[0] = Step(job.started, attempt.sizes[0].quantities)
        self.restarts, self._current = job.restarts, attempt
        if detail is not None and not _possible(detail, job.started, now):
            detail = None
        corrections += self._resize(attempt, job, detail, now)
        corrections += self._suspend(attempt, job, detail)
        self._end(attempt, job, now, before)
        return corrections

    def _leave(self, job: Job, user: UserPath, now: float, before: float) -> list[Correction]:
        """Let a requeued job hold its resources until the time of its next submission.

        If the attempt was not seen before, it begins now. A user could otherwise requeue jobs at
        once, and compute in processes that ignore SIGTERM.
        """
        if self.open is not None:
            return []
        start = min(max(job.submitted, before, now - _LONGEST_UNSEEN), now)
        self._current = Attempt(start, [Step(start, job.quantities)], user=user)
        self.attempts.append(self._current)
        self.restarts = max(job.restarts - 1, 0)
        reason = "the start of an attempt that was requeued before it was seen"
        return [Correction(self.number, start, now, reason)]

    def _wait(self, job: Job, now: float) -> list[Correction]:
        """End the latest attempt of a pending job, if the attempt is open.

        The end may be later than the reading's time, which is the time before the first command.
        """
        corrections, latest = [], self.open
        if latest is not None and job.restarts == self.restarts:
            reason = "a start that slurmctld forgot when it crashed"
            corrections.append(Correction(self.number, latest.start, now, reason))
        self.close(job.submitted)
        self.restarts = job.restarts
        return corrections

    def close(self, time: float) -> None:
        """End the open attempt; if the latest attempt has ended already, correct its end.

        Slurm tells the time of a requeue only after the job has left its nodes, so an end that was
        assumed before can be too late.

        Args:
            time: The end in seconds since 1970; an attempt never ends before its start.
        """
        attempt = self.open
        if attempt is not None:
            attempt.end = max(time, attempt.start)
        elif self.attempts:
            latest = self.attempts[-1]
            if latest.end is not None and latest.start <= time < latest.end:
                latest.end = time
        self._current = None

    def add(self, record: Attempt) -> None:
        """Take over an attempt from the accounting, unless its resources are known already."""
        for known in self.attempts:
            if known.start == record.start and known.end in {None, known.start}:
                known.end = record.end  # open, or a start that slurmctld forgot
            if known.start <= record.start and (known.end is None or record.start < known.end):
                return
        self.attempts.append(record)
        self.attempts.sort(key=lambda attempt: attempt.start)

    def settle(self, until: float) -> None:
        """Forget what ended before a time, except for the latest attempt and sums.

        A job can be requeued or suspended without end.
        """
        self.attempts = [
            attempt
            for attempt in self.attempts
            if attempt.end is None or attempt.end > until or attempt is self.attempts[-1]
        ]
        for attempt in self.attempts:
            if attempt.pauses:
                attempt.settle(until)

    def _attempt(self, job: Job) -> Attempt | None:
        """Return the known part of a job's present attempt; None if nothing is known."""
        if self._current is not None and job.restarts == self.restarts:
            return self._current
        # After a requeue, a job that is cancelled before its next start has its former attempt.
        latest = self.attempts[-1] if self.attempts else None
        return latest if latest is not None and latest.start == job.started else None

    def _end(self, attempt: Attempt, job: Job, now: float, before: float) -> None:
        """End an attempt when the job's processes have left its nodes.

        A user could otherwise end jobs at once, and compute in processes that ignore SIGTERM.

        Slurm does not tell when the processes left. They count from Slurm's end for as long as from
        the first reading that showed them to the first reading without them. On average, that is
        the true time, because a reading shows a short stay less often than a long stay.
        """
        if job.ended is None:
            attempt.end = attempt.leaving = None
            return
        latest = job.ended + _LONGEST_LEAVING
        if job.leaving:
            attempt.leaving = now if attempt.leaving is None else attempt.leaving
            attempt.end = None if now < latest else latest
        elif attempt.leaving is None:
            attempt.end = job.ended
        elif attempt.end is None:
            attempt.end = min(max(job.ended + now - attempt.leaving, before), latest)

    def _resize(
        self, attempt: Attempt, job: Job, detail: JobDetail | None, now: float
    ) -> list[Correction]:
        """Add a change of size, if any, to an attempt."""
        latest = attempt.sizes[-1]
        if latest.quantities == job.quantities:
            return []
        if detail is not None and detail.resized is not None and detail.resized >= latest.time:
            attempt.sizes.append(Step(detail.resized, job.quantities))
            return []
        attempt.sizes.append(Step(max(now, latest.time), job.quantities))
        return [Correction(self.number, latest.time, now, "the time of a change of size")]

    def _suspend(self, attempt: Attempt, job: Job, detail: JobDetail | None) -> list[Correction]:
        """Add suspensions to an attempt, if there were any.

        Slurm tells the time of the latest suspension or resumption, and the run time before the
        latest suspension. One unseen suspension is known exactly; several suspensions are known by
        their sum.
        """
        if detail is None or detail.suspended is None:
            return []
        changed, pauses = detail.suspended, attempt.pauses
        known = attempt.settled_pauses
        known += sum(finish - begin for begin, finish in pauses if finish is not None)
        unseen = max(changed - attempt.start - detail.ran_before - known, 0.0)
        exact = True
        if pauses and pauses[-1][1] is None:
            begin = pauses[-1][0]
            if begin == changed and job.suspended:
                return []
            pauses[-1] = (begin, begin + unseen)
            exact = job.suspended or abs(begin + unseen - changed) < _ROUNDING
        elif unseen:
            pauses.append((changed - unseen, changed))
            exact = not job.suspended
        if job.suspended:
            pauses.append((changed, None))
        reason = "the times of several suspensions"
        return [] if exact else [Correction(self.number, attempt.start, changed, reason)]
