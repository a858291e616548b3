"""Other systems' own accounting, compared with literal sums over jobs and sampling instants."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness.quantities import Quantities
from allocator.simulation.fast import supports
from allocator.simulation.originals.catalogue import create_policy, emulated_scheduler, period_of
from allocator.simulation.originals.kai import Request, division
from allocator.simulation.originals.karma import quantum
from allocator.simulation.originals.original import EmulatedScheduler
from allocator.simulation.reference import simulate
from allocator.simulation.setting import Setting, SettingError
from tests.examples import examples
from tests.simulation.crowded import trace_of

CAPACITY = Quantities({"cpus": 8000})
H, PERIOD, END = 40.0, 10.0, 95.3

Job = tuple[float, float, int, int]
"""Start and end in seconds, user, CPUs."""


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    """Draw jobs that never begin or end at a sampling instant."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 180), st.integers(1, 80), st.integers(0, 1), st.integers(1, 3)
            ),
            max_size=12,
        )
    )
    return [
        (s / 2 + 1 / 8, (s + length) / 2 + 3 / 8, user, cpus) for s, length, user, cpus in drawn
    ]


def told(policy: str, parameters: dict[str, object], script: list[Job]) -> EmulatedScheduler:
    """Let an original hear of all that happens until the end."""
    chosen = create_policy(policy, {"half_life": H, **parameters})
    original = emulated_scheduler(chosen, CAPACITY, PERIOD)
    demands = {cpus: Quantities({"cpus": cpus * 1000}) for cpus in (1, 2, 3)}
    for user in (0, 1):
        original.join(user, 1.0 + user, 0.0)
    events = [(end, 0, start, user, cpus) for start, end, user, cpus in script]
    events += [(start, 1, start, user, cpus) for start, _end, user, cpus in script]
    for when, starts, since, user, cpus in sorted(events):
        if when < END:
            original.renewed(when)
            if starts:
                original.started(user, demands[cpus], when)
            else:
                original.ended(user, demands[cpus], since, when)
    original.renewed(END)
    return original


def looks() -> Iterator[tuple[float, float]]:
    for number in range(1, int(END // PERIOD) + 1):
        yield (number - 1) * PERIOD, number * PERIOD


def slurm(script: list[Job]) -> float:
    d, use = 1.0 - 0.693 / H, 0.0

    def charge(since: float, until: float) -> float:
        ran = int(until) - int(since)
        return float(ran * d**ran)

    for last, now in looks():
        ended = [job for job in script if last < job[1] < now]
        use += sum(charge(max(s, last), end) * cpus / 8 for s, end, _u, cpus in ended)
        use *= float(d**PERIOD)
        running = [job for job in script if job[0] < now < job[1]]
        use += sum(charge(max(s, last), now) * cpus / 8 for s, _e, _u, cpus in running)
    return float(use)


def htcondor(script: list[Job]) -> float:
    beta, priority = 0.5 ** (PERIOD / H), 0.5 / 8
    for last, now in looks():
        seconds = []
        for start, end, _user, cpus in script:
            if start < now and end > last:
                begun = max(int(start), int(last))
                # AddMatch subtracts the charge again, without effect.
                missed = begun - int(last) if end < now else 0
                seconds.append((int(min(end, now)) - begun - missed) * cpus / 8)
        priority = max(priority * beta + sum(seconds) / PERIOD * (1 - beta), 0.5 / 8)
    return priority


def volcano(script: list[Job]) -> float:
    use = 0.0
    for _last, now in looks():
        held = sum(cpus / 8 for start, end, _user, cpus in script if start < now < end)
        use = use * 2.0 ** (-PERIOD / H) + held * PERIOD
    return use


def kueue(script: list[Job]) -> float:
    penalty, consumed, last = 1 - 0.5 ** (PERIOD / H), 0.0, 0.0

    def held(now: float, admitted: int) -> float:
        started = [job for place, job in enumerate(ordered) if place < admitted]
        return float(sum(job[3] / 8 for job in started if job[1] > now))

    def sample(now: float, admitted: int) -> float:
        alpha = 1 - float(0.5 ** ((now - last) / H))
        return consumed * (1 - alpha) + held(now, admitted) * alpha

    ordered = sorted((job for job in script if job[0] < END), key=lambda job: (job[0], job[3]))
    for admitted, (start, _end, _user, cpus) in enumerate([*ordered, (END, END, 0, 0)]):
        while last + PERIOD <= start:
            consumed, last = sample(last + PERIOD, admitted), last + PERIOD
        if start < END:
            consumed, last = sample(start, admitted + 1) + penalty * cpus / 8, start
    return consumed


@pytest.mark.parametrize(
    ("policy", "parameters", "literally"),
    [
        ("slurm-fair-tree", {}, slurm),
        ("htcondor", {"slots": 8.0}, htcondor),
        ("volcano", {}, volcano),
        ("kueue-afs", {}, kueue),
    ],
)
@given(script=jobs())
@examples(40)
def test_usage_equals_the_sum_over_the_sampling_instants_of_the_system(
    policy: str,
    parameters: dict[str, object],
    literally: Callable[[list[Job]], float],
    script: list[Job],
) -> None:
    original = told(policy, parameters, script)
    for user in (0, 1):
        expected = literally([job for job in script if job[2] == user]) / (1.0 + user)
        assert original.key(user)[0] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_htcondor_undercharges_jobs_that_begin_and_end_between_two_samples() -> None:
    """`AddMatch` takes 4 s off, and `RemoveMatch` adds the 5 s from the start, not 9 s."""
    original = told("htcondor", {"slots": 8000.0}, [(84.0, 89.0, 0, 1)])
    aging = 0.5 ** (PERIOD / H)
    least = 0.5 / 8000
    expected = least * aging + (5 - 4) / PERIOD / 8 * (1 - aging)
    assert original.key(0)[0] == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_karma_allocates_free_slices_one_by_one_within_a_quantum(alpha: float) -> None:
    """Eight slices for four equals are two each: a borrowed slice costs a credit at once."""
    rows = [(0.0, 7.0, "e", 8.0, 0.0)]
    rows += [(1.0, 600.0, user, 1.0, 0.0) for user in "abcd" for _ in range(8)]
    trace = trace_of(rows)
    setting = Setting("karma", {"alpha": alpha}, capacity=(8.0, 1.0), sampled="original")
    started = simulate(trace, setting).started == 7_000_000
    got = [int(started[trace.user == trace.users.index(user)].sum()) for user in "abcd"]
    assert got == [2, 2, 2, 2]


def test_karma_counts_a_borrowed_slice_once_within_a_quantum_and_at_the_look() -> None:
    original = emulated_scheduler(create_policy("karma", {"alpha": 0.5}), CAPACITY, 60.0)
    original.join(0, 1.0, 0.0)
    original.join(1, 1.0, 0.0)
    slices = 2**16 // 8
    keys = []
    for when in (1.0, 1.0, 1.0, 61.0):
        original.renewed(when)
        original.started(0, Quantities({"cpus": 1000}), when)
        keys.append(original.key(0)[1])
    assert keys[1] == keys[0], "two CPUs are its guarantee"
    assert keys[2] == keys[0] + slices
    public = 2 * slices
    assert keys[3] == keys[2] - public + slices, "sampling adds public credits; one slice is new"


def test_the_published_code_of_karma_and_ours_agree_over_480_quanta() -> None:
    """The answers are stored, because the original breaks ties by the order of a hash table."""
    same = ties = 0
    for case in json.loads((Path(__file__).parent / "vectors" / "karma.json").read_text()):
        balance = [case["credits"]] * case["users"]
        for demands, allocations, after in case["quanta"]:
            ours = quantum(balance, demands, case["slices"], case["public"])
            if (ours.allocations, ours.credits) == (allocations, after):
                same += 1
            else:
                assert sum(ours.allocations) == sum(allocations)
                assert sorted(ours.credits) == sorted(after)
                ties += 1
            balance = after
    assert (same, ties) == (461, 19)


def test_karma_allocates_its_published_example_as_printed() -> None:
    balance, printed = [999999999999] * 3, [(4, 1, 1), (0, 3, 0), (1, 1, 4)]
    for demands, expected in zip([(4, 1, 1), (0, 3, 0), (2, 2, 5)], printed, strict=True):
        settled = quantum(balance, demands, 6, 3)
        assert tuple(settled.allocations) == expected
        balance = settled.credits


def test_kai_divides_the_remainder_by_weights_that_past_use_reduces() -> None:
    def asked(weight: float, used: float, wanted: float) -> Request:
        return Request(weight, used, wanted)

    even = [asked(1.0, 0.0, 100.0), asked(1.0, 0.0, 100.0)]
    assert division(100.0, even, 1.0) == [50.0, 50.0]
    used = [asked(1.0, 0.5, 100.0), asked(1.0, 0.0, 100.0)]  # P = 0.5 and 1.0
    assert division(90.0, used, 1.0) == [30.0, 60.0]
    assert division(100.0, used, 1.0) == [33.0, 67.0], (
        "the rest goes to the user that lost most by rounding"
    )
    one_wants_little = [asked(1.0, 0.0, 10.0), asked(1.0, 0.0, 100.0), asked(2.0, 0.0, 100.0)]
    assert division(100.0, one_wants_little, 0.0) == [10.0, 30.0, 60.0]
    heavy = [asked(1.0, 1.0, 100.0), asked(1.0, 0.0, 100.0)]
    assert division(100.0, heavy, 1.0) == [0.0, 100.0]


TRACE = trace_of(
    [
        (number * 0.7, 11.0, user, 1, 0)
        for number in range(60)
        for user in ("a", "b", "c")[: 1 + number % 3]
    ]
)


@pytest.mark.parametrize(
    "policy", ["slurm-fair-tree", "htcondor", "kueue-afs", "volcano", "karma", "kai"]
)
def test_every_original_starts_every_task_and_never_more_than_fit(policy: str) -> None:
    outcome = simulate(TRACE, Setting(policy, capacity=(5.0, 1.0), sampled="original"))
    assert (outcome.started >= TRACE.submitted).all()
    running = [
        int(((outcome.started <= when) & (outcome.finished > when)).sum())
        for when in outcome.started.tolist()
    ]
    assert max(running) == 5


@pytest.mark.parametrize("policy", ["slurm-fair-tree", "htcondor", "kueue-afs", "volcano"])
def test_sampling_at_every_event_decides_as_the_exact_ranking(policy: str) -> None:
    """Every task takes whole seconds, and a second's look is a small part of the half-life."""
    rows = [(3.0 * n, 40.0 + 7.0 * (n % 5), "abc"[n % 7 % 3], 1.0 + n % 2, 0.0) for n in range(80)]
    exact = Setting(policy, {"half_life": 3000.0}, capacity=(6.0, 1.0))
    often = Setting(policy, {"half_life": 3000.0}, capacity=(6.0, 1.0), sampled=0.5)
    seldom = Setting(policy, {"half_life": 3000.0}, capacity=(6.0, 1.0), sampled=600.0)
    trace = trace_of(rows)
    starts = simulate(trace, exact).started
    if policy not in ("slurm-fair-tree", "htcondor"):  # these policies count whole seconds only
        assert (simulate(trace, often).started == starts).mean() > 0.9
    assert (simulate(trace, seldom).started != starts).any()


def test_under_slurm_a_user_gets_all_free_resources_between_two_samples() -> None:
    """Priorities are constant for 300 s, so ten jobs of a start before the first job of b."""
    rows = [(0.0, 60.0, user, 1.0, 0.0) for user in "ab" for _ in range(10)]
    trace = trace_of(rows)
    sampled = simulate(trace, Setting("slurm-fair-tree", capacity=(2.0, 1.0), sampled="original"))
    waits = [float(sampled.wait[trace.user == user].mean()) for user in (0, 1)]
    assert waits == [120.0, 420.0]  # five pairs each, a minute each
    exact = simulate(trace, Setting("slurm-fair-tree", capacity=(2.0, 1.0)))
    assert math.isclose(
        exact.wait[trace.user == 0].mean(), exact.wait[trace.user == 1].mean(), rel_tol=0.2
    )


@pytest.mark.parametrize(
    ("policy", "sampled", "complaint"),
    [
        ("kai", None, "kai divides the cluster again in each cycle"),
        ("drf", "original", "drf has no original; give a sampling period"),
        ("tsf", "5m", "under tsf priorities do not depend on users alone"),
        ("volcano", "often", "'often' is not a duration"),
        ("volcano", 0.0, "0.0 is not a sampling period"),
    ],
)
def test_invalid_sampling_intervals_are_refused(
    policy: str, sampled: float | str | None, complaint: str
) -> None:
    with pytest.raises(SettingError, match=complaint):
        Setting(policy, sampled=sampled)


def test_sampled_policies_use_the_plain_simulator_and_the_original_interval() -> None:
    assert supports(Setting("drf"))
    assert not supports(Setting("drf", sampled="5m"))
    assert period_of(create_policy("slurm-fair-tree", {}), "original") == 300.0
    assert period_of(create_policy("drf", {}), "90s") == 90.0
