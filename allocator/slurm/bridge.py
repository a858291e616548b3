"""The bridge to one Slurm: reads the state, orders pending jobs, and sets site factors."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from allocator.slurm.checks import keeps_accounting
from allocator.slurm.client import CommandError, JobcompFile, SlurmClient
from allocator.slurm.factors import (
    NO_FACTOR,
    SMALLEST_FACTOR,
    FactorUpdate,
    is_ours,
    plan_factors,
)
from allocator.slurm.jobs import (
    JobKey,
    JobReader,
    quantities,
    read_details,
    read_nodes,
)
from allocator.slurm.order import Order, QueueReader, is_ready, order_jobs
from allocator.slurm.reasons import ReasonGroup, group_of
from allocator.slurm.records import Record, read_accounting, read_jobcomp
from allocator.slurm.rows import RejectedRecords, ShapeError, reason_of
from allocator.slurm.shares import ShareTree
from allocator.slurm.state import ClusterState, Observation, PendingJob, StateSettings
from allocator.slurm.task_shares import TaskShareMeasure
from allocator.slurm.timelines import Correction
from allocator.slurm.users import Associations, read_associations

_ACCOUNTS_AGAIN = 10.0
"""Minimum seconds between two readings of the accounts for jobs whose accounts may be new."""
_REMEMBERED_POLLS = 20
"""Number of polls whose starts determine how far the order reaches."""
_FEWEST_AHEAD = 100
"""Minimum number of jobs in the order of each group, if so many are pending."""
_MOST_DETAILS = 200
"""Maximum number of jobs whose suspensions and changes of size one reading asks for."""
_BATCH = 100
"""Number of site factors that one command sets."""
_WRITE_FOR = 2.0
"""Seconds after which a reading sends no further command with site factors."""
_CONTESTED_FOR = 600.0
"""Seconds for which each user has places of its own, after a ready job without a place started."""
_STARTS_AHEAD = 3
"""The order has this many times the jobs that started between any two of the latest polls."""


@dataclass(frozen=True)
class BridgeSettings:
    """How often Slurm is read, and how far the order reaches."""

    state: StateSettings
    dry_run: bool = True
    """True: site factors are planned and shown, but not set."""
    nodes_every: float = 30.0
    """Seconds between two readings of the nodes."""
    accounts_every: float = 300.0
    """Seconds between two readings of the tree of accounts."""
    ahead: int = 1000
    """Maximum number of jobs in the order, for each group of jobs that compete. After some polls,
    the order has only so many jobs as may start before the next poll."""
    tasks_ahead: int = 100
    """Maximum number of pending tasks of one array in the order."""
    updates: int = 1000
    """Maximum number of site factors to set after one reading."""
    records_wait: float = 300.0
    """Seconds for which readings wait for missing records of slurmdbd. Slurm's default `MinJobAge`
    is as long, so the wait makes the bridge miss no jobs."""


@dataclass
class Cycle:
    """The result of one poll: the order, and the site factors."""

    now: float
    """The time of the reading, in seconds since 1970."""
    tree: ShareTree
    """The pools at the time of the reading."""
    order: Order
    dry_run: bool = True
    """Whether site factors are only planned."""
    updates: list[FactorUpdate] = field(default_factory=list)
    """Site factors that were set, or in a dry run would be set."""
    postponed: int = 0
    """Number of site factors that a later poll sets."""
    foreign: list[str] = field(default_factory=list)
    """Jobs with a site factor of another program or person."""
    failures: list[str] = field(default_factory=list)
    """Messages of Slurm about factors that could not be set."""

    @property
    def passed_over(self) -> Counter[ReasonGroup]:
        """Numbers of pending jobs that are not in the order, by the group of Slurm's reason."""
        groups = Counter[ReasonGroup]()
        for code, number in self.order.passed_over.items():
            groups[group_of(code)] += number
        return groups


_NEVER = -1e18
"""The time of a reading that has not succeeded yet."""


class _History(NamedTuple):
    """Memory of ended jobs, and units of allocations, according to the configuration of Slurm."""

    min_job_age: float
    """Seconds for which `squeue` shows ended jobs."""
    accounting: bool
    """Whether slurmdbd keeps the accounting. Only then `sacct` and `sacctmgr` answer."""
    jobcomp: Path | None
    """The file of `jobcomp/filetxt`, if Slurm writes one."""
    began: str
    """Start time of the present slurmctld. After a crash, `squeue` may lack jobs of the last
    seconds, and the records may have these jobs."""
    whole_cores: bool
    """Whether Slurm allocates all threads of a core to one job."""


class _Reading(NamedTuple):
    """Facts from one reading of Slurm."""

    history: _History
    observation: Observation
    associations: Associations | None
    """The tree of accounts; None if it was not read this time."""
    records: list[Record]
    """Attempts in the accounting, if the reading needs the accounting."""
    unseen_until: float | None
    """Jobs that ended before this time may have been forgotten since the latest reading. None:
    `squeue` has shown all ends, or the records have them."""


class Bridge:
    """Follows a Slurm, which then starts jobs in the order of a policy.

    A poll that raises `CommandError` or `ShapeError` changes nothing. Slurm continues with its
    present order, and a later poll catches up.

    Args:
        client: Runs Slurm's client commands.
        settings: How often Slurm is read, and how far the order reaches.
        since: The time from which jobs count, in seconds since 1970: the time of stored
            commitments, or earlier to count the jobs that the accounting remembers.
        apply: Runs a function that changes the state and returns the present users. A program that
            reads the state in another thread than `poll` passes a function that takes turns.
    """

    def __init__(
        self,
        client: SlurmClient,
        settings: BridgeSettings,
        since: float,
        apply: Callable[[Callable[[], ShareTree]], ShareTree] = lambda change: change(),
    ) -> None:
        self.client = client
        self.settings = settings
        self.state = ClusterState(settings.state, since)
        self._apply = apply
        self._history: _History | None = None
        """From Slurm's configuration, at the latest reading of the nodes; None before the first."""
        counts_tasks = settings.state.policy.counts_tasks
        self._task_shares = TaskShareMeasure(settings.state.excluded) if counts_tasks else None
        self._measure = quantities if self._task_shares is None else self._task_shares.measure
        self.rejected = RejectedRecords()
        """Counts unreadable jobs and records."""
        self._reader = JobReader(self._measure, self.rejected)
        self._queue_reader = QueueReader()
        self._jobcomp = JobcompFile()
        self._accounts_reading: Future[bytes] | None = None
        """A reading of the accounts that has begun, and was not taken over yet."""
        self._accounts_asked = _NEVER
        """Time at which the latest reading of the accounts began."""
        self.accounts_failure = ""
        """Error of the latest reading of the accounts; empty if it succeeded."""
        self.records_failure = ""
        """Reason why the latest records are missing or incomplete; empty for complete records."""
        self._records_wait_began: float | None = None
        """Time of the first reading with missing records; None after complete records."""
        self._nodes_read = self._accounts_read = _NEVER
        self._factors: dict[str, int] = {}
        """The latest known site factors of pending jobs. sprio does not list new jobs, held or
        dependent jobs, and jobs with a later begin time."""
        self._begun: dict[str, int] = {}
        """The latest known site factors of jobs that have started since, if Slurm shows the jobs.
        A requeued job has its factor again."""
        self._running: list[str] = []
        """The running jobs in `_begun`. Running jobs lose their factors, so a requeued job cannot
        pass the order."""
        self._starts: deque[int] = deque(maxlen=_REMEMBERED_POLLS)
        """Numbers of jobs that started between the latest polls."""
        self._placed: set[str] = set()
        """The jobs of the latest order, as `scontrol` knows them."""
        self._contested_until = _NEVER
        """Time until which each user has places of its own."""

    def poll(self, now: float | None = None) -> Cycle:
        """Read Slurm once, apply what has changed, and set the site factors of pending jobs.

        Args:
            now: The time in seconds since 1970; by default the system clock.

        Raises:
            CommandError: A client command failed, for example because no controller answers.
            ShapeError: A command printed something unknown.
        """
        started = time.time() if now is None else now
        reading = self._read(started)
        pending = self.state.pending
        tree = self._apply(partial(self._take_over, reading))
        if self._passed_places(pending):
            self._contested_until = started + _CONTESTED_FOR
        self._note_factors(self.client.site_factors())
        order = self._order(tree, contested=started < self._contested_until)
        self._placed = {placed.target for placed in order.placed}
        return self._write(Cycle(started, tree, order, self.settings.dry_run))

    def _read(self, now: float) -> "_Reading":
        """Read Slurm without changing the state."""
        settings, state = self.settings, self.state
        history, nodes = self._history, None
        nodes_due = now - self._nodes_read >= settings.nodes_every
        if history is None or nodes_due:
            history = _history(self.client.configuration())
        restarted = self._history is not None and history.began != self._history.began
        associations = self._read_associations(now, history)
        if nodes_due:
            nodes = read_nodes(self.client.nodes(), whole_cores=history.whole_cores)
            self._reader.set_nodes(nodes)
            if self._task_shares is not None and self._task_shares.set_nodes(nodes):
                self._reader.forget()
        jobs = self._reader.read(self.client.jobs())
        asked = state.needs_details(now, jobs)
        asked, postponed = asked[:_MOST_DETAILS], asked[_MOST_DETAILS:]
        names = {job.number: job.single for job, _ in jobs} if asked else {}
        texts = self.client.details({number: names[number] for number in asked})
        details = read_details(texts, self.rejected)
        if history.jobcomp is not None and not history.accounting:
            self._jobcomp.note_size(history.jobcomp, now, state.settled.now)
        away = now - state.observed > history.min_job_age
        records: list[Record] = []
        complete = True
        observation = Observation(now, jobs, details, nodes, postponed)
        needed = away or bool(state.vanished(observation))
        if needed or restarted:
            try:
                records, complete = self._records(now, history)
            except CommandError:
                if needed or self._history is None:
                    raise
                # The next reading of the nodes asks again for the records of a possible crash.
                history = history._replace(began=self._history.began)
        unseen_until = now - history.min_job_age if away and not complete else None
        return _Reading(history, observation, associations, records, unseen_until)

    def _read_associations(self, now: float, history: _History) -> Associations | None:
        """Return the tree of accounts if a reading of it has ended, else None.

        slurmdbd may need long for its answer, so another thread waits for the answer. Only the
        first reading waits, too. After a failure, the former tree remains.

        Raises:
            CommandError: slurmdbd has never answered, so the tree of accounts is unknown.
            ShapeError: A command printed something unknown, and the tree of accounts is unknown.
        """
        settings = self.settings
        if not history.accounting or settings.state.user_key == "user":
            return None
        if self._accounts_reading is None:
            if not self._accounts_due(now):
                return None
            self._accounts_asked = now
            self._accounts_reading = _in_thread(self.client.associations)
        reading, is_first = self._accounts_reading, self._accounts_read == _NEVER
        if is_first:
            wait([reading], self.client.timeout)
        if not reading.done():
            if is_first:
                raise CommandError(
                    f"sacctmgr has not listed the accounts within {self.client.timeout:g} s; the "
                    "next reading waits for the same list"
                )
            return None
        self._accounts_reading = None
        try:
            associations = read_associations(reading.result(), self.rejected)
        except (CommandError, ShapeError) as error:
            if isinstance(error, ShapeError):
                self.rejected.add("sacctmgr", reason_of(error))
            if is_first:
                raise
            self._accounts_read, self.accounts_failure = now, str(error)
            return None
        self.accounts_failure = ""
        return associations

    def _without_moves_out(self, associations: Associations) -> Associations:
        """Return a tree in which accounts stay below their former parents."""
        parents = dict(associations.parents)
        for account, (before, above) in associations.moves_out(self.state.associations).items():
            parents[account] = before
            self.rejected.add(
                "sacctmgr",
                f"the account {account} has moved from {before or 'the top'} to "
                f"{above or 'the top'}, as Slurm lets coordinators do. It stays at its former "
                "place until the service starts again",
            )
        return replace(associations, parents={name: up for name, up in parents.items() if up})

    def _accounts_due(self, now: float) -> bool:
        """Return whether to read the accounts: regularly, and soon if jobs have new accounts."""
        since = now - self._accounts_read
        pause = max(_ACCOUNTS_AGAIN, self._accounts_read - self._accounts_asked)
        return since >= self.settings.accounts_every or (
            bool(self.state.awaiting) and since >= pause
        )

    def _take_over(self, reading: "_Reading") -> ShareTree:
        """Apply what Slurm has shown, and return the present users.

        After an unexpected error, the state begins again, so the next reading can succeed.
        """
        try:
            return self._applied(reading)
        except Exception:
            self.state.begin_again()
            raise

    def _applied(self, reading: "_Reading") -> ShareTree:
        observation = reading.observation
        self._history = reading.history
        if reading.associations is not None:
            associations = self._without_moves_out(reading.associations)
            self.state.set_associations(associations, self._accounts_asked - 1.0)
            self._accounts_read = observation.now
        if reading.records:
            self._catch_up(observation, reading.records)
        if reading.unseen_until is not None:
            self.state.findings.unseen.append((self.state.observed, reading.unseen_until))
        self.state.observe(observation)
        if observation.nodes is not None:
            self._nodes_read = observation.now
        self._starts.append(len(self.state.started))
        return self.state.present()

    def _catch_up(self, observation: Observation, records: list[Record]) -> None:
        """Take over from the accounting what `squeue` does not show any more."""
        state, now = self.state, observation.now
        shown = {(seen.job.number, seen.job.started) for seen in observation.jobs}
        found = []
        for record in records:
            if (record.job, record.attempt.start) in shown:
                continue  # squeue tells more, and is right after a crash of slurmctld
            if record.attempt.end is None:
                start = record.attempt.start
                if start < now:  # otherwise the next reading shows the job
                    reason = "the end of a job that only slurmdbd shows as running"
                    state.findings.corrections.append(Correction(record.job, start, now, reason))
                continue
            path = state.path(record.user, record.account)
            found.append((JobKey(record.job, record.user), path, record.attempt))
            if not record.exact and (record.attempt.end or now) > state.settled.now:
                attempt = record.attempt
                reason = "the times of suspensions and changes of size"
                state.findings.corrections.append(
                    Correction(record.job, attempt.start, attempt.end or now, reason)
                )
        state.add_records(found)

    def _records(self, now: float, history: _History) -> tuple[list[Record], bool]:
        """Return the attempts since the settled time, and True if all attempts are recorded.

        Raises:
            CommandError: slurmdbd does not answer, or does not have all records of slurmctld yet,
                and the wait for these records has not ended.
            ShapeError: A command printed something unknown.
        """
        if not history.accounting:
            if history.jobcomp is not None and history.jobcomp.is_file():
                settled = self.state.settled.now
                lines = self._jobcomp.lines(history.jobcomp, settled)
                return read_jobcomp(lines, self._measure, self.rejected, settled), True
            return [], False
        records: list[Record] = []
        failure = ""
        try:
            if queued := self.client.queued_records():
                failure = (
                    f"slurmctld has not sent {queued} messages to slurmdbd yet, so records of "
                    "`sacct` are missing. If the number stays, check that slurmdbd runs; `sdiag` "
                    "shows it as DBD Agent queue size"
                )
            attempts = self.client.accounting(self.state.settled.now)
            records = read_accounting(attempts, self._measure, self.rejected)
        except CommandError as error:
            failure = failure or str(error)
        if not failure:
            self.records_failure, self._records_wait_began = "", None
            return records, True
        if self._records_wait_began is None:
            self._records_wait_began = now
        if now - self._records_wait_began < self.settings.records_wait:
            raise CommandError(failure)
        self.records_failure = failure
        return records, False

    def _note_factors(self, listed: Mapping[str, int]) -> None:
        """Replace the known site factors, apart from jobs that sprio does not list.

        A job keeps its factor when it starts, and has the factor again once it is requeued.
        """
        targets = {str(job.number): job.target for job, _ in self.state.pending}
        present = {targets.get(job, job): factor for job, factor in listed.items()}
        former = self._begun | self._factors
        for job, _ in self.state.pending:
            if job.target not in present:
                if job.target in former:
                    present[job.target] = former[job.target]
                elif job.restarts and is_ours(job.priority + job.nice):
                    present[job.target] = job.priority + job.nice
        gone = {job for job, factor in former.items() if job not in present and is_ours(factor)}
        self._begun, self._running = {}, []
        for seen in self.state.seen():
            target = seen.job.target
            if target in gone:
                self._begun[target] = former[target]
                if seen.job.started is not None and seen.job.ended is None:
                    self._running.append(target)
        self._factors = present

    def _passed_places(self, pending: Sequence[PendingJob]) -> bool:
        """Return whether a ready job without a place has started since the latest reading.

        Args:
            pending: The pending jobs of the latest reading. Tasks belong to the job of their array.
        """
        placed = self._placed
        unplaced = [job for job in self.state.started if job.target not in placed]
        if not unplaced:
            return False
        ready = {(job.array, job.user) for job, _ in pending if is_ready(job.reason)}
        return any((job.array, job.user) in ready for job in unplaced)

    def _order(self, tree: ShareTree, *, contested: bool) -> Order:
        running_tasks: Counter[int] = Counter(
            seen.job.array
            for seen in self.state.seen()
            if seen.job.tasks and seen.job.started is not None and seen.job.ended is None
        )
        base = {}
        for job, _ in self.state.pending:
            if factor := self._factors.get(job.target):
                base[job.number] = job.priority - factor
        order = order_jobs(
            tree,
            self.state.pending,
            running_tasks,
            self.state.nodes,
            base,
            ahead=self._ahead(),
            tasks_ahead=self.settings.tasks_ahead,
            contested=contested,
            reader=self._queue_reader,
        )
        if self.state.uncounted:
            order.passed_over["UnknownAccount"] += self.state.uncounted.total()
        return order

    def _ahead(self) -> int:
        """Return the number of jobs of the order: several times those that start in a period."""
        if len(self._starts) < _REMEMBERED_POLLS:
            return self.settings.ahead
        expected = max(_FEWEST_AHEAD, _STARTS_AHEAD * max(self._starts))
        return min(expected, self.settings.ahead)

    def _write(self, cycle: Cycle) -> Cycle:
        """Plan the site factors of a cycle, and set them unless this is a dry run."""
        wanted = [placed.target for placed in cycle.order.placed]
        plan = plan_factors(wanted, self._factors, self.settings.updates, self._owner())
        started = self._running[: max(self.settings.updates - len(plan.updates), 0)]
        resets = [FactorUpdate(target, NO_FACTOR) for target in started]
        cycle.updates = plan.updates + resets
        cycle.postponed, cycle.foreign = plan.postponed, plan.foreign
        if not self.settings.dry_run:
            self._send(cycle)
        return cycle

    def _owner(self) -> Callable[[str], str]:
        """Return a function that returns the system user of a pending job."""

        @cache
        def users() -> dict[str, str]:  # only plans with too many updates need them
            return {str(job.array): job.user for job, _ in self.state.pending}

        return lambda target: users().get(target.partition("_")[0], "")

    def _send(self, cycle: Cycle) -> None:
        """Set the site factors of a cycle, as many as the time allows."""
        updates, cycle.updates = cycle.updates, []
        deadline = time.monotonic() + _WRITE_FOR
        for first in range(0, len(updates), _BATCH):
            if first and time.monotonic() >= deadline:
                break
            batch = updates[first : first + _BATCH]
            failures = self.client.set_factors(batch)
            cycle.updates += batch
            cycle.failures += failures
            if not failures:
                for target, factor in batch:
                    if self._begun.pop(target, None) is None:
                        self._factors[target] = factor
        cycle.postponed += len(updates) - len(cycle.updates)


def _in_thread(command: Callable[[], bytes]) -> Future[bytes]:
    """Return the future output of a command. The end of the program does not wait for it."""
    future: Future[bytes] = Future()

    def run() -> None:
        try:
            future.set_result(command())
        except Exception as error:  # noqa: BLE001 - the reader of the future raises it
            future.set_exception(error)

    Thread(target=run, name="accounts", daemon=True).start()
    return future


def _history(configuration: Mapping[str, str]) -> _History:
    """Return for how long, and where, Slurm records ended jobs, and what it allocates.

    Args:
        configuration: Settings of slurmctld by name.

    Raises:
        ShapeError: A setting is missing, or has an unknown form.
    """
    if "BOOT_TIME" not in configuration:
        raise ShapeError("scontrol show config: the setting BOOT_TIME is missing")
    age = configuration.get("MinJobAge", "").partition(" ")[0]
    if not age.isdecimal():
        raise ShapeError(f"scontrol show config: MinJobAge is {age!r}, not a number of seconds")
    is_text_file = configuration.get("JobCompType", "") == "jobcomp/filetxt"
    jobcomp = Path(configuration.get("JobCompLoc", "")) if is_text_file else None
    began = configuration["BOOT_TIME"]
    whole_cores = "CR_CPU" not in configuration.get("SelectTypeParameters", "").upper()
    return _History(float(age), keeps_accounting(configuration), jobcomp, began, whole_cores)


class Removal(NamedTuple):
    """Result of taking back site factors."""

    removed: int
    """The number of jobs whose factor was taken back."""
    uncertain: list[str]
    """Jobs with an unknown site factor."""


def take_back_factors(client: SlurmClient, *, uncertain_too: bool = False) -> Removal:
    """Take back all site factors that Longshare has set.

    sprio lists no running, held or dependent jobs, and no jobs with a later begin time. The factor
    of such a job is only known if the factor is the whole priority.

    Args:
        client: Runs Slurm's client commands.
        uncertain_too: True: also set unknown factors to 0.

    Raises:
        CommandError: A client command failed, or Slurm did not accept an update.
        ShapeError: A command printed something unknown.
    """
    factors = client.site_factors()
    ours = [job for job, factor in factors.items() if is_ours(factor)]
    uncertain = []
    for job, _ in JobReader().read(client.jobs()):
        if job.ended is not None or str(job.number) in factors:
            continue
        if is_ours(job.priority + job.nice):
            ours.append(job.target)
        elif not job.priority or job.priority >= SMALLEST_FACTOR:
            uncertain.append(job.target)
    if uncertain_too:
        ours, uncertain = ours + uncertain, []
    failures = client.set_factors(FactorUpdate(job, NO_FACTOR) for job in ours)
    if failures:
        raise CommandError(f"scontrol: {len(failures)} site factors remain: {failures[0]}")
    return Removal(len(ours), uncertain)
