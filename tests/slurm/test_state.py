"""Commitments are exact, however late and however rarely Slurm is read."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness.policies import create
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import ClusterNode, JobDetail, SeenJob
from allocator.slurm.shares import ShareTree
from allocator.slurm.state import ClusterState, Observation, StateSettings
from allocator.slurm.timelines import Attempt, JobTimeline, Step
from tests.counted import counted
from tests.examples import examples
from tests.slurm.test_order import job as job_of
from tests.slurm.truth import TrueJob

POLICY = create("sdrf", {"half_life": 60})
CAPACITY = Quantities.parse("cpus:40;mem:4000")
NODES = (ClusterNode("n1", "IDLE", frozenset(), CAPACITY, ("main",), None),)
LAG = 120.0


def cores(number: int) -> Quantities:
    return Quantities.parse(f"cpus:{number};mem:{number * 37}")


def observe(
    state: ClusterState, jobs: Sequence[TrueJob], now: float, most_details: int | None = None
) -> None:
    seen = {job.number: view for job in jobs if (view := job.seen(now)) is not None}
    listed = [view[0] for view in seen.values()]
    asked = state.needs_details(now, listed)
    details = {number: seen[number][1] for number in asked[:most_details]}
    postponed = asked[len(details) :]
    state.observe(Observation(now, listed, details, NODES, postponed))


def reference(jobs: Sequence[TrueJob], until: float) -> Pool[str]:
    """Apply all changes to a pool in order of time, as they truly were."""
    pool: Pool[str] = Pool(POLICY, capacity=CAPACITY)
    joined = {job.user: min(j.submitted for j in jobs if j.user == job.user) for job in jobs}
    changes = [(time, 0, 0, user, Quantities()) for user, time in joined.items()]
    changes += [
        (step.time, 1, job.number, job.user, step.quantities)
        for job in jobs
        for step in job.changes()
    ]
    held: dict[int, Quantities] = {}
    for time, rank, number, user, quantities in sorted(changes, key=lambda change: change[:3]):
        if time > until:
            break
        pool.advance(time)
        if rank == 0:
            pool.add(user)
        else:
            pool.release(user, held.pop(number, Quantities()))
            pool.allocate(user, quantities)
            held[number] = quantities
    pool.advance(until)
    return pool


@st.composite
def attempts(draw: st.DrawFn, since: float) -> list[Attempt]:
    result = []
    time = since
    count = draw(st.integers(1, 3))
    for number in range(count):
        start = time + draw(st.integers(0, 60))
        end = start + draw(st.integers(1, 200))
        inner = sorted(draw(st.sets(st.integers(int(start) + 1, int(end)), max_size=3)))
        attempt = Attempt(start, [Step(start, cores(draw(st.integers(1, 9))))], [], end)
        kind = draw(st.sampled_from(["plain", "resized", "suspended"]))
        if number < count - 1:  # Slurm does not show what happened just before a requeue
            kind = "plain"
        if kind == "resized" and inner and inner[0] < end:
            attempt.sizes.append(Step(float(inner[0]), cores(draw(st.integers(1, 9)))))
        if kind == "suspended" and len(inner) > 1 and inner[1] < end:
            attempt.pauses.append((float(inner[0]), float(inner[1])))
        result.append(attempt)
        time = end
    return result


@st.composite
def true_jobs(draw: st.DrawFn) -> list[TrueJob]:
    jobs = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        submitted = float(draw(st.integers(1, 300)))
        user = draw(st.sampled_from(["ann", "bob", "cyd"]))
        jobs.append(TrueJob(number, user, submitted, draw(attempts(submitted))))
    return jobs


def require_exact(state: ClusterState, jobs: Sequence[TrueJob], now: float) -> None:
    for tree, time in ((state.settled, state.settled.now), (state.present(), now)):
        pool, exact = tree.pools[()], reference(jobs, time)
        assert set(pool.users()) == set(exact.users())
        for user in exact.users():
            assert pool.held(user) == exact.held(user)
            none = dict.fromkeys(CAPACITY, 0.0)  # a resource without an entry has no commitment
            assert none | pool.debts(user)[0] == pytest.approx(
                none | exact.debts(user)[0], abs=1e-12
            )


def nothing_assumed(state: ClusterState) -> bool:
    findings = state.findings
    return not (findings.corrections or findings.late or findings.lost)


@examples(60)
@given(true_jobs(), st.lists(st.floats(0.5, 90.0), min_size=8, max_size=20))
def test_commitments_are_exact_or_the_state_tells_what_it_assumed(
    jobs: list[TrueJob], gaps: list[float]
) -> None:
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    now = 0.5
    for gap in gaps:
        observe(state, jobs, now)
        now += gap
    observe(state, jobs, now)
    if nothing_assumed(state):
        require_exact(state, jobs, now)


def test_changes_whose_details_are_postponed_count_from_their_own_time() -> None:
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    sizes, pauses = [Step(5.0, cores(4)), Step(20.0, cores(1))], [(20.0, 30.0)]
    jobs = [TrueJob(number, "ann", 1.0, [Attempt(5.0, list(sizes))]) for number in range(1, 7)]
    jobs += [
        TrueJob(number, "bob", 1.0, [Attempt(5.0, sizes[:1], list(pauses), 33.0)])
        for number in range(7, 11)
    ]
    for now in range(0, 80, 2):
        observe(state, jobs, now + 0.5, most_details=1)
    assert nothing_assumed(state)
    require_exact(state, jobs, 78.5)


def test_findings_are_counted_and_only_the_first_are_kept() -> None:
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    jobs = [
        TrueJob(number, "ann", 1.0, [Attempt(5.0, [Step(5.0, cores(1))])]) for number in range(1500)
    ]
    observe(state, jobs, 6.0)
    observe(state, [], 8.0)
    assert (len(state.findings.lost), state.findings.lost.total) == (1000, 1500)


def test_the_details_of_one_user_do_not_keep_those_of_other_users_waiting() -> None:
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    often = [Step(float(now), cores(now % 7 + 1)) for now in range(2, 60, 2)]
    jobs = [TrueJob(number, "ann", 1.0, [Attempt(2.0, list(often))]) for number in range(1, 4)]
    jobs.append(TrueJob(9, "bob", 1.0, [Attempt(2.0, [Step(2.0, cores(8)), Step(11.0, cores(2))])]))
    for now in range(1, 21, 2):
        observe(state, jobs, now + 0.5, most_details=1)
    assert state.present().standing(("bob",)).allocation == cores(2)


def test_a_number_that_slurm_gives_to_another_users_job_counts_for_each_of_them() -> None:
    """A controller that crashed has forgotten a job, and gives its number to the next one."""
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    forgotten = TrueJob(1, "ann", 1.0, [Attempt(2.0, [Step(2.0, cores(30))])])
    second = TrueJob(1, "bob", 12.0, [Attempt(13.0, [Step(13.0, cores(8))])])
    for now in (4.5, 6.5):
        observe(state, [forgotten], now)
    for now in (14.5, 16.5):
        observe(state, [second], now)
    assert [lost.job for lost in state.findings.lost] == [1]
    for tree in (state.present(), settled_until(state, 16.5)):
        held = {path[0]: tree.standing(path).allocation for path in tree.users()}
        assert held == {"ann": Quantities(), "bob": cores(8)}
    ended = TrueJob(1, "ann", 1.0, [replace(forgotten.attempts[0], end=6.5)])
    require_exact(state, [ended, replace(second, number=2)], 16.5)


def test_a_start_that_slurm_has_forgotten_does_not_count_and_is_reported() -> None:
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    waiting = TrueJob(1, "ann", 1.0)
    observe(state, [replace(waiting, attempts=[Attempt(2.0, [Step(2.0, cores(30))])])], 4.5)
    observe(state, [waiting], 8.5)
    [correction] = state.findings.corrections
    assert (correction.job, correction.since, correction.until) == (1, 2.0, 8.5)
    require_exact(state, [waiting], 8.5)


def test_a_job_that_is_requeued_during_a_slow_reading_counts_until_its_requeue() -> None:
    """The time of a reading is the time before its first command."""
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    first, second = (
        Attempt(2.0, [Step(2.0, cores(30))], [], 10.0),
        Attempt(15.0, [Step(15.0, cores(30))]),
    )
    job = TrueJob(1, "ann", 1.0, [first, second])
    observe(state, [job], 4.5)
    view = job.seen(10.2)
    assert view is not None
    state.observe(Observation(9.3, [view[0]], {}, NODES))
    assert state.present().standing(("ann",)).allocation == cores(30)
    for now in (12.5, 16.5):
        observe(state, [job], now)
    assert nothing_assumed(state)
    require_exact(state, [job], 16.5)


@pytest.mark.parametrize("lag", [LAG, 1.0])
@pytest.mark.parametrize("unseen", [0, 10.5])
def test_each_attempt_counts_for_the_account_that_the_job_had_at_its_start(
    lag: float, unseen: float
) -> None:
    state = ClusterState(StateSettings(POLICY, "account", lag=lag), 0.0)
    first, second = (
        Attempt(2.0, [Step(2.0, cores(8))], [], 9.0),
        Attempt(12.0, [Step(12.0, cores(8))]),
    )
    truth = TrueJob(1, "games", 1.0, [first, second])
    later = TrueJob(1, "games", 1.0, [first, replace(second, end=20.0)])
    readings = [(truth, 4.5, "lab"), (truth, 10.5, "phys"), (truth, 14.5, "phys")]
    readings += [(later, 24.5, "phys"), (later, 40.5, "phys")]
    for job, now, account in readings:
        if now == unseen:
            continue
        view = job.seen(now)
        assert view is not None
        seen = view[0]._replace(job=replace(view[0].job, account=account))
        state.observe(Observation(now, [seen], {}, NODES))
        present = state.present()
        held = {path[0]: present.standing(path).allocation for path in present.users()}
        holder = {4.5: "lab", 14.5: "phys"}.get(now)
        assert {user for user, amounts in held.items() if amounts} == ({holder} - {None})
    if lag == LAG:
        assert nothing_assumed(state)
        jobs = [TrueJob(1, "lab", 1.0, [first]), TrueJob(2, "phys", 9.0, later.attempts[1:])]
        require_exact(state, jobs, 40.5)


def settled_until(state: ClusterState, until: float) -> ShareTree:
    state.settle(until)
    return state.settled


@examples(10)
@given(true_jobs())
def test_nothing_is_assumed_if_slurm_is_read_each_second(jobs: list[TrueJob]) -> None:
    state = ClusterState(StateSettings(POLICY, lag=LAG), 0.0)
    for now in range(700):
        observe(state, jobs, now + 0.5)
    assert nothing_assumed(state)
    require_exact(state, jobs, 699.5)


def test_a_job_that_was_requeued_often_costs_as_much_as_a_new_job() -> None:
    """A user can requeue a job without end."""

    def requeued(number: int) -> tuple[int, int]:
        """Return the calls of two readings after some attempts, and the number of attempts."""
        state = ClusterState(StateSettings(POLICY, lag=60.0), 0.0)

        def attempt(count: int) -> None:
            begin = 20.0 + 40.0 * count
            waits = job_of(1, "games", submitted=begin, eligible=begin, restarts=count)
            runs = replace(waits, state="RUNNING", started=begin + 10.0, quantities=cores(4))
            for seen, now in ((waits, begin + 5.0), (runs, begin + 20.0)):
                state.observe(Observation(now, [SeenJob(seen, 0.0)], {}, NODES))
                state.present()

        for count in range(number):
            attempt(count)
        calls = counted(lambda: attempt(number))
        [timeline] = state._timelines.values()
        return calls, len(timeline.attempts)

    few, many = requeued(10), requeued(200)
    assert many[1] == few[1] <= 5
    assert many[0] <= few[0] + 10


def test_a_job_that_was_suspended_often_keeps_only_the_latest_suspensions() -> None:
    """Slurm suspends jobs on shared nodes again and again, and preempted jobs."""
    timeline, ran = JobTimeline(1), 0.0
    begun = job_of(1, "games", state="RUNNING", submitted=0.0, started=10.0, quantities=cores(4))
    timeline.update(begun, ("games",), None, 11.0, 9.0)
    for count in range(500):
        stop = 20.0 + 20.0 * count
        ran += 10.0
        stopped = replace(begun, state="SUSPENDED")
        assert timeline.needs_detail(stopped, ran, stop + 1.0)
        assert not timeline.update(
            stopped, ("games",), JobDetail(stop, ran, None), stop + 1.0, stop
        )
        detail = JobDetail(stop + 10.0, ran, None)
        assert timeline.needs_detail(begun, ran, stop + 11.0)
        assert not timeline.update(begun, ("games",), detail, stop + 11.0, stop)
        assert not timeline.needs_detail(begun, ran + 1.0, stop + 11.0)
        timeline.settle(stop - 50.0)
    [attempt] = timeline.attempts
    assert len(attempt.pauses) <= 5
    assert attempt.paused(20_000.0) == 5000.0
    assert len(timeline.steps()) <= 12
