"""The state of a cluster: applies what Slurm tells to a fairness pool, in order of time."""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

from typing_extensions import override

from allocator.fairness.policies.policy import Policy
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.slurm.jobs import ClusterNode, Job, JobDetail, JobKey, SeenJob
from allocator.slurm.owned_nodes import NodeEvent, OwnedNodes, present_job
from allocator.slurm.shares import ShareTree, name_of
from allocator.slurm.task_shares import ALL_TASKS, TASKS
from allocator.slurm.timelines import Attempt, Correction, JobTimeline, Step, UserPath
from allocator.slurm.users import Associations, UserKey, user_path
from allocator.users.memory import Memory
from allocator.users.settings import DeclaredUser, UserSettings

_REMEMBERED_CAPACITIES = 1000
_REMEMBERED_PATHS = 50_000
_KEPT_FINDINGS = 1000
"""Maximum number of kept findings of a kind."""
_PRESENT_JOINS = 5_000
"""Maximum of known users times different times at which users begin to count, in present pools."""
MOST_UNKNOWN_ACCOUNTS = 100
"""Maximum number of accounts unknown to slurmdbd, for the pending jobs of a system user. Without
enforced associations, anybody may submit jobs for invented accounts."""


@dataclass(frozen=True)
class StateSettings:
    """How the state ranks users, and how late Slurm may tell of a change."""

    policy: Policy
    user_key: UserKey = "user"
    excluded: tuple[str, ...] = ()
    """Names of resources that do not count."""
    counts_for: float = math.inf
    """As in `Pool`: limits a user's fraction of n by this multiple of its use."""
    lag: float = 60.0
    """Seconds by which the settled pools lag behind. A change that is seen within this time is
    applied at its own instant, in order."""
    forget_after: float = math.inf
    """Seconds without jobs and commitments after which a user is forgotten."""
    idle_users: int = 1000
    """Maximum number of known users and accounts without jobs and commitments. Above the limit,
    users are forgotten before `forget_after`: first the users with the least mean use."""
    declared: tuple[DeclaredUser, ...] = ()
    """Users that are known from the start, with their weights and first commitments."""

    @property
    def has_tree(self) -> bool:
        """Whether users are below the accounts of Slurm's tree."""
        return self.user_key != "user"

    def user_settings(self) -> UserSettings:
        """Return the settings of the tree of users."""
        return UserSettings(
            policy=self.policy,
            declared=self.declared,
            tree=self.has_tree,
            counts_for=None if math.isinf(self.counts_for) else self.counts_for,
            forget_after=self.forget_after,
            idle_users=self.idle_users,
            forgets_subtrees=True,
            leaf_keeps_commitments=True,
            keeps_accumulated_use=True,
            leaves_only_in_trees=True,
            leaf_keeps_use=True,
            forgetting_unnames_parents=True,
            compares_by_resource=True,
            newcomers_by_use=True,
            scheduler="slurm",
            clients="jobs",
        )


Finding = TypeVar("Finding")


class LateChange(NamedTuple):
    """A change seen after its time had been settled, and therefore applied too late."""

    job: int
    user: UserPath
    time: float
    """When the job's resources changed, in seconds since 1970."""
    applied: float
    """The time at which the change was applied."""


class PendingJob(NamedTuple):
    """A pending job, and the user that its resources will count for."""

    job: Job
    user: UserPath


@dataclass
class Observation:
    """The content of one reading of Slurm."""

    now: float
    """The time before the reading, in seconds since 1970."""
    jobs: Sequence[SeenJob]
    details: Mapping[int, JobDetail] = field(default_factory=dict)
    nodes: Sequence[ClusterNode] | None = None
    """None: the nodes were not read this time."""
    postponed: Sequence[int] = ()
    """Jobs whose details a later reading asks for. Until then their changes do not count."""

    @cached_property
    def by_key(self) -> dict[JobKey, SeenJob]:
        """The jobs by their identity."""
        return {seen.job.key: seen for seen in self.jobs}


class Noted(list[Finding]):
    """The first findings of a kind, and the number of all findings."""

    total = 0
    """The number of findings since the start."""

    @override
    def append(self, finding: Finding) -> None:
        """Count a finding. Keep the finding unless `_KEPT_FINDINGS` earlier findings are kept."""
        self.total += 1
        if len(self) < _KEPT_FINDINGS:
            super().append(finding)


@dataclass
class Findings:
    """Changes since the start that could not be applied exactly."""

    corrections: Noted[Correction] = field(default_factory=Noted)
    """Changes whose time Slurm did not tell."""
    late: Noted[LateChange] = field(default_factory=Noted)
    lost: Noted[Correction] = field(default_factory=Noted)
    """Jobs that Slurm forgot before their end was seen."""
    unseen: list[tuple[float, float]] = field(default_factory=list)
    """Intervals in which jobs may have started and ended without being seen."""


_NO_JOB = JobKey(0, "")


class _Change(NamedTuple):
    """A change of the pools at a time. Changes at one time are applied in the order of `rank`."""

    time: float
    rank: int
    job: JobKey
    user: UserPath
    before: Quantities
    after: Quantities


_CAPACITY, _JOIN, _RELEASE, _ALLOCATE = range(4)
"""Order of changes at one time."""


class ClusterState:
    """Follows the jobs and nodes of a cluster, and keeps the commitments of its users.

    The *settled* pools lag behind the present by some time, so that changes can be applied in order
    although Slurm tells them late. The *present* pools are a copy with all known changes applied.

    Args:
        settings: Policy, users, and lag.
        now: The time from which changes count, in seconds since 1970. Commitments that `settled`
            is given belong to this time.
    """

    def __init__(self, settings: StateSettings, now: float) -> None:
        self.settings = settings
        self._began = now
        self.settled = ShareTree(settings.user_settings(), now, settings.excluded)
        self.findings = Findings()
        self.observed = now
        """The time of the latest observation, in seconds since 1970."""
        self.pending: list[PendingJob] = []
        """The pending jobs of the latest observation, apart from jobs of too many accounts."""
        self.uncounted = Counter[str]()
        """Number of pending jobs of too many unknown accounts, by system user."""
        self._waiting: set[UserPath] = set()
        """The users with pending jobs."""
        self.running = 0
        """The number of jobs that hold resources, at the latest observation."""
        self.started: list[Job] = []
        """The running jobs that started between the two latest observations."""
        self.nodes: dict[str, ClusterNode] = {}
        self.associations = Associations()
        self._listed = math.inf
        """Jobs that get their accounts later may have accounts that the tree of accounts lacks."""
        self._moved: dict[JobKey, float] = {}
        """Jobs with an unknown account that differs from the one at their submission, and the time
        of the first reading with this account. A task that Slurm has split from its array may have
        such an account, too."""
        self.awaiting: set[JobKey] = set()
        """Jobs of the latest observation that wait for the next tree of accounts. Their accounts
        may be new, and below others."""
        self._paths: dict[tuple[str, str], UserPath] = {}
        """Users by the user and the account of their jobs."""
        self.capacities: deque[tuple[float, Quantities]] = deque(maxlen=_REMEMBERED_CAPACITIES)
        """The latest changes of the capacity: the time of each, and the capacity from then on."""
        self._capacity = Quantities()
        self._global: list[_Change] = []
        """Changes of the capacity that are not settled, in order of time."""
        self._joining: dict[UserPath, float] = {}
        """Users that are not settled, and the time from which they are known."""
        self._known_users: set[UserPath] = set()
        self._timelines: dict[JobKey, JobTimeline] = {}
        self._held: dict[JobKey, tuple[UserPath, Quantities]] = {}
        """User and resources of each job that holds resources in the settled pools."""
        self._unsettled: set[JobKey] = set()
        """Jobs with changes that are not settled."""
        self._owned = OwnedNodes()
        self._last: dict[JobKey, SeenJob] = {}
        self._postponed: dict[int, int] = {}
        """Jobs whose details the next reading asks for, with their places in this order."""
        self._not_ended: set[tuple[str, str]] = set()
        """User and account of the jobs of the latest observation that have not ended."""

    def set_associations(self, associations: Associations, listed: float = math.inf) -> None:
        """Replace the tree of accounts and its shares, from the next observation on.

        Args:
            associations: The tree of accounts.
            listed: The time before the reading of the tree, in seconds since 1970.
        """
        self._listed = listed
        if associations != self.associations:
            self.associations = associations
            self._paths.clear()
            self.settled.set_weights(associations.weights(self.settings.user_key))

    def inherit(self, memory: Memory) -> None:
        """Take over commitments and the weights of operators from a store.

        They belong to the time at which the state began.
        """
        self.settled.inherit(memory)
        for path in self.settled.users():
            self._known_users.add(path)

    def begin_again(self) -> None:
        """Forget all jobs, but no commitments, weights, accounts and nodes, as a restart does.

        After an unexpected error, the jobs may be inconsistent with the pools. The next observation
        then counts the jobs from the settled time on.
        """
        fresh = ClusterState(self.settings, self.settled.now)
        fresh.settled.set_capacity(self.settled.capacity)
        fresh.set_associations(self.associations, self._listed)
        fresh.inherit(self.settled.tree.memory())
        fresh.findings, fresh.nodes, fresh.capacities = self.findings, self.nodes, self.capacities
        fresh._capacity, fresh._global = self._capacity, self._global
        fresh._owned.set_nodes(self.nodes.values())
        self.__dict__.update(fresh.__dict__)

    def needs_details(self, now: float, jobs: Iterable[SeenJob]) -> list[int]:
        """Return the jobs whose suspensions or changes of size must be asked for.

        Jobs that the reading before postponed come first.

        Args:
            now: The time of the reading, in seconds since 1970.
            jobs: All jobs of the reading.
        """
        needed = [
            seen.job.number
            for seen in jobs
            if seen.job.started is not None
            and (
                seen.job.ended is None
                or self._last.get(seen.job.key) != seen
                or seen.job.number in self._postponed
            )
            and (self._timelines.get(seen.job.key) or JobTimeline(seen.job.number)).needs_detail(
                seen.job, seen.ran, now
            )
        ]
        return sorted(needed, key=lambda job: self._postponed.get(job, len(self._postponed)))

    def vanished(self, observation: Observation) -> list[JobKey]:
        """Return the jobs that held resources when last seen, and that a reading does not show."""
        gone = set(self._last).difference(observation.by_key)  # without computing hashes again
        return [job for job in gone if job in self._timelines and self._timelines[job].open]

    def add_records(self, records: Iterable[tuple[JobKey, UserPath, Attempt]]) -> None:
        """Take over attempts from the accounting (`sacct` or jobcomp) that were not seen.

        Args:
            records: For each attempt: the job, and the user that its resources count for.
        """
        for job, user, attempt in records:
            if attempt.end is not None and attempt.end <= self.settled.now:
                continue
            timeline = self._timelines.get(job)
            if timeline is None:
                timeline = self._timelines[job] = JobTimeline(job.number)
            self._join(user, attempt.start)
            timeline.add(replace(attempt, user=user))
            self._unsettled.add(job)

    def observe(self, observation: Observation) -> None:
        """Take over what a reading of Slurm showed, then settle everything older than the lag."""
        now = observation.now
        if observation.nodes is not None:
            self._observe_nodes(observation.nodes, now)
        for vanished in self.vanished(observation):
            self._timelines[vanished].close(self.observed)
            self._unsettled.add(vanished)
            lost = Correction(vanished.number, self.observed, now, "the end of the job")
            self.findings.lost.append(lost)
        last, self._last = self._last, observation.by_key
        self.pending, self.uncounted = [], Counter()
        self.running = 0
        self.started = _started(observation, last, self.observed)
        self._not_ended = set()
        awaited, self.awaiting = self.awaiting, set()
        again = {*self._postponed, *observation.details}
        self._postponed = {job: place for place, job in enumerate(observation.postponed)}
        unknown: dict[str, set[str]] = {}
        """Accounts of pending jobs unknown to slurmdbd, by system user."""
        for seen in observation.jobs:
            job = seen.job
            before = last.get(job.key)
            if last and (before is None or before.job is not job):
                self._note_account(job, None if before is None else before.job, now)
            if (job.submitted >= self._listed or self._moved) and self._awaits_accounts(job, now):
                self.awaiting.add(job.key)
                if job.key not in self._timelines:
                    continue
            elif not self._count_job(job, unknown, now):
                continue
            is_new = before is None or before.job is not job or job.key in awaited
            if is_new or job.leaving or job.number in again:
                self._observe_job(seen, observation.details.get(job.number), now)
        self._observe_owned_nodes(observation, last)
        self._forget_timelines(last)
        latest = now - self.settings.lag
        self._moved = {job: time for job, time in self._moved.items() if time > latest}
        self.observed = now
        self.settle(now - self.settings.lag)
        self._waiting = {user for _, user in self.pending}
        self.settled.activate(self._waiting)

    def settle(self, until: float) -> None:
        """Apply all changes up to a time to the settled pools, for good."""
        if until <= self.settled.now:
            return
        since = self.settled.now
        changes, settled = self._changes(until)
        for change in changes:
            if change.rank in {_RELEASE, _ALLOCATE} and change.time == since > self._began:
                self._note_late(change)
            self._apply(self.settled, change)
            if change.rank in {_RELEASE, _ALLOCATE}:
                if change.after:
                    self._held[change.job] = change.user, change.after
                else:
                    self._held.pop(change.job, None)
        self._global = [change for change in self._global if change.time > until]
        self._joining = {user: time for user, time in self._joining.items() if time > until}
        for job in self._unsettled:
            self._timelines[job].settle(until)
        self._unsettled -= settled
        for job in settled:
            if job not in self._last and job not in self._held:
                self._timelines.pop(job, None)
        self.settled.advance(until)
        self.settled.count_users()
        self._forget()

    def present(self) -> ShareTree:
        """Return a copy of the pools with all known changes applied, at the time of observation.

        If users begin to count at many different times, several times become one in this copy. Each
        such time costs O(users).
        """
        tree = self.settled.fork()
        for change in self._with_few_joins(self._changes(self.observed)[0]):
            self._apply(tree, change)
        tree.advance(self.observed)
        tree.tree.update_entitlements()
        tree.activate(self._waiting)
        return tree

    def path_of(self, seen: SeenJob) -> UserPath:
        """Return the user that a job's resources count for."""
        return self.path(seen.job.user, seen.job.account)

    def path(self, user: str, account: str) -> UserPath:
        """Return the user that the resources of a job of a system user and an account count for."""
        key = user, account
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= _REMEMBERED_PATHS:
                self._paths.clear()
            path = user_path(*key, self.settings.user_key, self.associations)
            self._paths[key] = path
        return path

    def seen(self) -> Iterable[SeenJob]:
        """Return all jobs of the latest observation."""
        return self._last.values()

    def busy_users(self) -> set[UserPath]:
        """Return the users with jobs: pending, running, or with changes that are not settled."""
        busy = {self.path_of(seen) for seen in self._last.values()}
        return busy | self._owners()

    def _owners(self) -> set[UserPath]:
        """Return the users of settled allocations, and of jobs with changes that are not."""
        attempts = (a for job in self._unsettled for a in self._timelines[job].attempts)
        return {user for user, _ in self._held.values()} | {attempt.user for attempt in attempts}

    def forget(self, paths: Iterable[UserPath]) -> None:
        """Let users without jobs be unknown until their next job."""
        for path in paths:
            self._known_users.discard(path)
            self._joining.pop(path, None)

    def _observe_nodes(self, nodes: Sequence[ClusterNode], now: float) -> None:
        capacity = sum((node.quantities for node in nodes if node.counts), start=Quantities())
        if self.settings.policy.counts_tasks:
            capacity += ALL_TASKS
        if capacity != self._capacity:
            lost = [
                node.changed
                for node in nodes
                if not node.counts
                and node.name in self.nodes
                and self.nodes[node.name].counts
                and node.changed is not None
                and node.changed > self.observed
            ]
            time = min(now, max(lost)) if lost else now
            if not self.nodes:  # the capacity of the time before is unknown
                time = self.settled.now
            self._capacity = capacity
            self.capacities.append((time, capacity))
            self._global.append(_Change(time, _CAPACITY, _NO_JOB, (), NO_QUANTITIES, capacity))
        self.nodes = {node.name: node for node in nodes}
        self._count_idle(self._owned.set_nodes(nodes), now)

    def _observe_owned_nodes(
        self, observation: Observation, last: Mapping[JobKey, SeenJob]
    ) -> None:
        """Count the idle resources of nodes that jobs keep for their user.

        Args:
            observation: The content of a reading of Slurm.
            last: The jobs of the observation before.
        """
        owned = self._owned
        if not owned.jobs and not any(
            seen.job.exclusive and (seen.job.started is not None or seen.job.leaving)
            for seen in observation.jobs
        ):
            return
        events = [
            NodeEvent(self.observed, key, job, starts=False)
            for key, job in owned.jobs.items()
            if key not in observation.by_key
        ]
        for seen in observation.jobs:
            if seen.job.key not in self.awaiting:
                before = last.get(seen.job.key)
                if before is None or before.job is not seen.job or self._starts_unseen(seen.job):
                    events += self._node_events(seen.job, observation.now)
        events.sort(key=attrgetter("time"))
        for time, together in groupby(events, attrgetter("time")):
            self._count_idle(owned.apply(together), time)

    def _starts_unseen(self, job: Job) -> bool:
        """Return whether a running job is not known on its nodes yet."""
        return job.started is not None and job.ended is None and job.key not in self._owned.jobs

    def _node_events(self, job: Job, now: float) -> list[NodeEvent]:
        """Return the start and the end of a job on its nodes since the observation before."""
        known = self._owned.jobs.get(job.key)
        if known is not None and job.leaving:
            return []
        present = present_job(self._with_start(job), self.path(job.user, job.account))
        ended = self._left(job)
        if known is not None and present is not None and known.started == present.started:
            if ended is not None:
                return [NodeEvent(ended, job.key, known, starts=False)]
            present = present._replace(user=known.user)
            if present == known:
                return []
            return [  # the size has changed
                NodeEvent(now, job.key, known, starts=False),
                NodeEvent(now, job.key, present, starts=True),
            ]
        events = []
        if known is not None:
            end = max(min(job.submitted, job.started or now, now), known.started)
            events.append(NodeEvent(end, job.key, known, starts=False))
        if present is None or (ended is not None and ended <= self.settled.now):
            return events
        events.append(NodeEvent(present.started, job.key, present, starts=True))
        if ended is not None:
            events.append(NodeEvent(ended, job.key, present, starts=False))
        return events

    def _with_start(self, job: Job) -> Job:
        """Return a job; a requeued job that leaves its nodes has the start of its attempt."""
        timeline = self._timelines.get(job.key)
        if job.leaving and job.started is None and timeline is not None and timeline.open:
            return replace(job, started=timeline.open.start)
        return job

    def _left(self, job: Job) -> float | None:
        """Return when an ended job left its nodes; None while it uses them."""
        if job.ended is None or job.leaving:
            return None
        timeline = self._timelines.get(job.key)
        attempts = timeline.attempts if timeline else []
        ends = (a.end for a in attempts if a.start == job.started and a.end is not None)
        return next(ends, job.ended)

    def _count_idle(self, users: Collection[UserPath], time: float) -> None:
        """Let users hold the idle resources of their nodes from a time on."""
        for user in users:
            idle = self._owned.idle(user)
            if self.settings.policy.counts_tasks and idle:
                part, total = self._owned.share(idle)
                idle += Quantities({TASKS: max(ALL_TASKS[TASKS] * part // total, 1)})
            key = JobKey(0, name_of(user))
            timeline = self._timelines.get(key)
            if timeline is None:
                if not idle:
                    continue
                timeline = self._timelines[key] = JobTimeline(0)
                timeline.attempts.append(Attempt(time, [Step(time, idle)], user=user))
                self._join(user, time)
            sizes = timeline.attempts[0].sizes
            step = Step(max(time, sizes[-1].time), idle)
            if step.time == sizes[-1].time:
                sizes[-1] = step
            else:
                sizes.append(step)
            settled = sum(size.time <= self.settled.now for size in sizes)
            del sizes[: max(settled - 1, 0)]
            timeline.attempts[0].start = sizes[0].time
            self._unsettled.add(key)

    def _note_account(self, job: Job, before: Job | None, now: float) -> None:
        """Record a job with an unknown account that the job lacked at the reading before.

        Users can change the accounts of their pending jobs.

        Args:
            job: A new or changed job.
            before: The job at the reading before; None if the job is new.
            now: The time of the reading, in seconds since 1970.
        """
        if job.account in self.associations.accounts:
            return
        is_late = before is None and job.submitted < self.observed
        if is_late or (before is not None and job.account != before.account):
            self._moved[job.key] = now

    def _awaits_accounts(self, job: Job, now: float) -> bool:
        """Return whether a job waits for the next tree of accounts, at most for the lag."""
        since = self._moved.get(job.key, job.submitted)
        return (
            since >= self._listed
            and now - since < self.settings.lag
            and self.settings.user_key != "user"
            and bool(job.account)
            and job.account not in self.associations.accounts
            and (job.key not in self._timelines or (job.started is None and job.key in self._moved))
        )

    def _counts(self, job: Job, unknown: dict[str, set[str]]) -> bool:
        """Return whether a job without a start counts; add its account to its system user's."""
        if self.settings.user_key == "user" or job.account in self.associations.accounts:
            return True
        accounts = unknown.setdefault(job.user, set())
        if job.account not in accounts and len(accounts) >= MOST_UNKNOWN_ACCOUNTS:
            return False
        accounts.add(job.account)
        return True

    def _count_job(self, job: Job, unknown: dict[str, set[str]], now: float) -> bool:
        """Count a job as pending or running; return whether it counts, or has held resources.

        Args:
            job: The job.
            unknown: Accounts of pending jobs unknown to slurmdbd, by system user.
            now: The time of the reading, in seconds since 1970.
        """
        if job.started is not None:
            if job.ended is None:
                self._not_ended.add((job.user, job.account))
                self.running += 1
            return True
        if not self._counts(job, unknown):
            self.uncounted[job.user] += job.pending
            return job.key in self._timelines
        if job.ended is None:
            self._not_ended.add((job.user, job.account))
        if job.pending:
            user = self.path(job.user, job.account)
            self.pending.append(PendingJob(job, user))
            if user in self._joining or user not in self._known_users:
                self._join(user, min(job.submitted, now))
        return True

    def _forget_timelines(self, last: Mapping[JobKey, SeenJob]) -> None:
        """Forget the timelines of settled jobs that Slurm does not show any more.

        Args:
            last: The jobs of the observation before.
        """
        for job in set(last).difference(self._last):
            if job not in self._unsettled and job not in self._held:
                self._timelines.pop(job, None)

    def _observe_job(self, seen: SeenJob, detail: JobDetail | None, now: float) -> None:
        job, key = seen.job, seen.job.key
        if job.number in self._postponed:
            return
        user = self.path_of(seen)
        self._join(user, min(job.submitted, now))
        timeline = self._timelines.get(key)
        if timeline is None:
            if job.started is None and not job.restarts and not job.leaving:
                return
            if job.ended is not None and job.ended <= self.settled.now and not job.leaving:
                return
            timeline = self._timelines[key] = JobTimeline(job.number, job.submitted)
            if job.submitted <= self._began:
                timeline.restarts = job.restarts  # the earlier attempts do not count
        for correction in timeline.update(job, user, detail, now, self.observed):
            self.findings.corrections.append(correction)
        self._unsettled.add(key)

    def _join(self, user: UserPath, time: float) -> None:
        """Make a user known from a time on, or from the settled time if that is later."""
        if user not in self._known_users:
            self._known_users.add(user)
            self._joining[user] = max(time, self.settled.now)
        elif time < self._joining.get(user, -math.inf):
            self._joining[user] = max(time, self.settled.now)

    def _changes(self, until: float) -> tuple[list[_Change], set[JobKey]]:
        """Return the changes after the settled time and up to a time, in order.

        Returns:
            The changes, and the jobs that have no later changes.
        """
        since = self.settled.now
        changes = [change for change in self._global if change.time <= until]
        changes += [
            _Change(time, _JOIN, _NO_JOB, user, NO_QUANTITIES, NO_QUANTITIES)
            for user, time in self._joining.items()
            if time <= until
        ]
        settled = set()
        for job in self._unsettled:
            owner, held = self._held.get(job, ((), NO_QUANTITIES))
            steps = self._timelines[job].steps()
            now_owner, now_held = owner, NO_QUANTITIES
            for user, step in steps:
                if step.time > since:
                    break
                now_owner, now_held = user, step.quantities
            if held and (not now_held or now_owner != owner):  # seen too late
                changes.append(_change(since, job, owner, held, NO_QUANTITIES))
                held = NO_QUANTITIES
            if now_held != held:  # seen too late, or a new start of the state
                changes.append(_change(since, job, now_owner, held, now_held))
                held = now_held
            for user, step in steps:
                if since < step.time <= until and step.quantities != held:
                    changes.append(_change(step.time, job, user, held, step.quantities))
                    held = step.quantities
            if not steps or steps[-1][1].time <= until:
                settled.add(job)
        changes.sort(key=lambda change: change[:3])
        return changes, settled

    def _with_few_joins(self, changes: list[_Change]) -> list[_Change]:
        """Return changes in which users begin to count at a bounded number of different times."""
        times = sorted({change.time for change in changes if change.rank == _JOIN})
        most = max(_PRESENT_JOINS // max(len(self._known_users), 1), 1)
        if len(times) <= most:
            return changes
        size = -(-len(times) // most)
        later = {
            time: times[min(at - at % size + size, len(times)) - 1] for at, time in enumerate(times)
        }
        joins = (
            change._replace(time=later[change.time]) if change.rank == _JOIN else change
            for change in changes
        )
        return sorted(joins, key=lambda change: change[:3])

    @staticmethod
    def _apply(tree: ShareTree, change: _Change) -> None:
        tree.advance(change.time)
        if change.rank == _CAPACITY:
            tree.set_capacity(change.after)
        elif change.rank == _JOIN:
            tree.add(change.user)
        else:
            tree.change(change.user, change.before, change.after)

    def _note_late(self, change: _Change) -> None:
        """Record a change that is applied at the settled time, because it was seen too late."""
        steps = [step.time for _, step in self._timelines[change.job].steps()]
        true_time = max((time for time in steps if time <= change.time), default=change.time)
        late = LateChange(change.job.number, change.user, true_time, change.time)
        self.findings.late.append(late)

    def _forget(self) -> None:
        """Forget users that have had no jobs and no commitments for a long time."""
        busy = {self.path(*names) for names in self._not_ended}
        busy |= self._owners()
        tree = self.settled.tree
        tree.set_busy({name_of(path[:depth]) for path in busy for depth in range(1, len(path) + 1)})
        for name in tree.forget_idle():
            self._known_users.discard(self.settled.path_of(name))
        tree.update_entitlements()


def _started(observation: Observation, last: Mapping[JobKey, SeenJob], since: float) -> list[Job]:
    """Return the running jobs that started after the observation before.

    Args:
        observation: The content of a reading of Slurm.
        last: The jobs of the observation before.
        since: The time of the observation before, in seconds since 1970.
    """
    second = math.floor(since)  # Slurm tells whole seconds
    latest = [
        job
        for job, _ in observation.jobs
        if job.started is not None and job.started >= second and job.ended is None
    ]
    return [job for job in latest if job.key not in last or last[job.key].job.started is None]


def _change(
    time: float, job: JobKey, user: UserPath, before: Quantities, after: Quantities
) -> _Change:
    return _Change(time, _ALLOCATE if after else _RELEASE, job, user, before, after)
