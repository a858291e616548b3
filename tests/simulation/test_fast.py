"""The fast path decides as the reference does, start for start."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.simulation import fast, reference
from allocator.simulation.formats import openb, swf
from allocator.simulation.generator import google_constrained_hour
from allocator.simulation.kernels import exact
from allocator.simulation.kernels.compiled import entry
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.trace import UNCONSTRAINED, MachineClass, Trace
from tests.examples import examples
from tests.simulation.workloads import SECOND, machine_workloads, pooled_workloads

ROOT = Path(__file__).parents[2]

pytestmark = [
    *(pytest.mark.slow, pytest.mark.timeout(600)),  # kernels are compiled first
    pytest.mark.skipif(fast.MISSING is not None, reason=f"no fast path: {fast.MISSING}"),
]


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Compile before hypothesis begins to trace."""
    order(0.0, 0.0, 0.0, 0.0, 0.0)
    fast.simulate(busy_month(tasks=1, users=1), Setting("drf", {}, (1.0, 1.0)))


DELTAS = st.sampled_from([0.001, 0.5, 0.9, 0.99, 0.9999, 0.999999])
POLICIES: st.SearchStrategy[tuple[str, dict[str, float | str]]] = st.one_of(
    st.tuples(st.sampled_from(["fifo", "drf", "drfh", "tsf", "cdrf"]), st.just({})),
    st.tuples(st.just("cmmf"), st.just({"resource": "cpus"})),
    st.tuples(
        st.just("sdrf"),
        st.fixed_dictionaries({"delta": DELTAS, "form": st.sampled_from(["journal", "thesis"])}),
    ),
    st.tuples(st.just("stsf"), st.fixed_dictionaries({"delta": DELTAS})),
)


@st.composite
def settings_of(draw: st.DrawFn, capacity: tuple[float, ...] | None) -> Setting:
    policy, parameters = draw(POLICIES)
    return Setting(
        policy,
        parameters,
        capacity,
        blocking=draw(st.sampled_from(["head-of-line", "skip"])),
        users=draw(st.sampled_from(["known", "appearing"])),
        per=draw(st.sampled_from(["user", "job"])),
        weights=draw(st.sampled_from([{}, {"0": 0.1}])),
        owes=draw(st.sampled_from([{}, {"0": 0.2}])),
    )


def assert_same(trace: Trace, setting: Setting) -> None:
    assert fast.supports(setting)
    of_users = setting.per == "user"
    seen = [Series(trace) if of_users else None for _ in range(2)]
    expected = reference.simulate(trace, setting, series=seen[0])
    np.testing.assert_array_equal(
        fast.simulate(trace, setting, series=seen[1]).started, expected.started
    )
    if seen[0] is not None and seen[1] is not None:
        np.testing.assert_array_equal(seen[1].times, seen[0].times)
        np.testing.assert_array_equal(seen[1].shares, seen[0].shares)
        np.testing.assert_allclose(seen[1].commitments, seen[0].commitments, 1e-9, 1e-12)
    outcome = fast.simulate(trace, setting)
    np.testing.assert_array_equal(outcome.started, expected.started)
    np.testing.assert_array_equal(outcome.machine, expected.machine)
    assert outcome.operations.events == expected.operations.events
    # The pool ranks a user once after several changes, the kernels after each change.
    assert outcome.operations.count.keys() >= expected.operations.count.keys()
    assert all(outcome.operations.count[name] >= n for name, n in expected.operations.count.items())


@given(st.data(), pooled_workloads())
def test_in_one_pool_every_task_starts_when_the_reference_starts_it(
    data: st.DataObject, workload: tuple[Trace, tuple[float, ...]]
) -> None:
    trace, capacity = workload
    assert_same(trace, data.draw(settings_of(capacity)))


@pytest.mark.parametrize("wanted", ["cpus", "mem"])
def test_commitments_are_zero_for_a_resource_that_the_cluster_lacks(wanted: str) -> None:
    """Tested with a user without demand and one with demand, in each summation of demands."""
    trace = Trace(
        resources=("cpus", "mem"),
        users=("a", "b"),
        submitted=np.array([0, 0, 1]),
        runtime=np.array([0, 0, 0]),
        user=np.array([0, 1, 0], np.int32),
        job=np.array([0, 1, 0]),
        demand=np.array([[1.0, 0.0], [wanted == "cpus", wanted == "mem"], [1.0, 0.0]], np.float64),
        constraint=np.array([-1, -1, -1], np.int32),
        machines=(MachineClass(name="m", count=1, capacity=(0.0, 1.0), attributes={}),),
        constraints=(),
        weights=(),
        commitments=((0.0, 0.0), (0.1, 0.0)),
    )
    for policy in ("sdrf", "stsf"):
        setting = Setting(policy, {"delta": 0.001}, None)
        series = Series(trace)
        reference.simulate(trace, setting, series=series)
        assert not series.commitments.any()
        assert_same(trace, setting)


@pytest.mark.parametrize("users", ["known", "appearing"])
def test_weights_are_added_up_without_rounding_as_in_a_pool(
    users: Literal["known", "appearing"],
) -> None:
    """Eight jobs: adding their weights one by one changes the last digit, which breaks a tie."""
    job = np.array([0, 10, 1, 20, 2, 11, 21, 10, 10, 12, 10, 20])
    hours = np.array([0, 0, 0, 2, 0, 1, 0, 1, 1, 0, 1, 0])
    trace = Trace(
        resources=("cpus",),
        users=("a", "b", "c"),
        submitted=np.zeros(12, np.int64),
        runtime=hours * 3600 * SECOND,
        user=(job // 10).astype(np.int32),
        job=job,
        demand=np.ones((12, 1)),
        constraint=np.full(12, -1, np.int32),
        machines=(),
        constraints=(),
        weights=(0.3, 2.0, 1.0),
        commitments=(),
    )
    setting = Setting(
        "stsf", {"delta": 0.99}, (2.0,), blocking="head-of-line", users=users, per="job"
    )
    assert_same(trace, setting)


@given(st.data(), machine_workloads())
def test_on_machines_every_task_starts_when_and_where_the_reference_starts_it(
    data: st.DataObject, trace: Trace
) -> None:
    assert_same(trace, data.draw(settings_of(None)))


def busy_month(tasks: int, users: int) -> Trace:
    """Return tasks of users of very unequal sizes, as many as a cluster can hardly take."""
    rng = np.random.default_rng(tasks)
    part = rng.pareto(0.8, users) + 0.05
    user = rng.choice(users, tasks, p=part / part.sum()).astype(np.int32)
    return Trace(
        resources=("cpus", "mem"),
        users=tuple(map(str, range(users))),
        submitted=np.sort(rng.integers(0, 2 * tasks * SECOND, tasks)),
        runtime=(rng.lognormal(4.0, 2.0, tasks) * SECOND).astype(np.int64),
        user=user,
        job=user.astype(np.int64),
        demand=np.array([0.0125, 0.025, 0.0625, 0.03, 1 / 3])[rng.integers(0, 5, (tasks, 2))],
        constraint=np.full(tasks, UNCONSTRAINED, np.int32),
    )


@pytest.mark.parametrize("blocking", ["head-of-line", "skip"])
@pytest.mark.parametrize("delta", [0.9, 0.999, 0.99999])
def test_backends_process_the_backlog_of_many_users_identically(
    delta: float, blocking: str
) -> None:
    trace = busy_month(tasks=1500, users=40)
    setting = Setting("sdrf", {"delta": delta}, capacity_at(trace, 0.6), blocking)  # type: ignore[arg-type]
    assert_same(trace, setting)


@entry
def order(a: float, m: float, b: float, n: float, s: float) -> int:
    return exact.order(a, m, b, n, s)


COEFFICIENTS = st.one_of(
    st.floats(-1e3, 1e3), st.integers(-4, 4).map(float), st.sampled_from([0.1, 0.2, 0.3, 1 / 3])
).filter(lambda x: x == 0.0 or abs(x) > 1e-100)


@examples(500)
@given(
    COEFFICIENTS,
    COEFFICIENTS,
    COEFFICIENTS,
    st.floats(1e-60, 1.0),
    st.integers(-3, 3),
    st.integers(-3, 3),
)
def test_lines_are_compared_without_rounding(  # noqa: PLR0917 - hypothesis passes them so
    a: float, m: float, n: float, s: float, ulps: int, more: int
) -> None:
    meeting = a + (m - n) * s  # b + n·s ≈ a + m·s
    b = meeting + ulps * np.spacing(meeting)
    n *= 1.0 + more * 2.0**-52
    difference = (Fraction(a) + Fraction(m) * Fraction(s)) - (
        Fraction(b) + Fraction(n) * Fraction(s)
    )
    assert order(a, m, b, n, s) == (difference > 0) - (difference < 0)


def test_policies_without_a_kernel_are_reported_as_such() -> None:
    trace = busy_month(tasks=10, users=2)
    setting = Setting("dynamic-drf", {}, (1.0, 1.0))
    assert not fast.supports(setting)
    with pytest.raises(ValueError, match="use --reference"):
        fast.simulate(trace, setting)


def test_backends_agree_on_a_trace_without_tasks() -> None:
    trace = busy_month(tasks=0, users=3)
    for setting in (Setting("sdrf", {"delta": 0.9}, (1.0, 1.0)), Setting("drf", {}, (0.0, 0.0))):
        assert_same(trace, setting)


def test_progress_ends_with_all_tasks() -> None:
    trace = busy_month(tasks=10, users=2)
    progress: list[int] = []
    fast.simulate(trace, Setting("drf", {}, (1.0, 1.0)), progress.append)
    assert progress[-1] == 10


@pytest.fixture
def data() -> Path:
    folder = os.environ.get("LONGSHARE_DATA")
    if not folder:
        pytest.skip("LONGSHARE_DATA names no folder with real workloads")
    return Path(folder)


@pytest.mark.parametrize("part", [16, pytest.param(4, marks=pytest.mark.release)])
@pytest.mark.parametrize(
    ("policy", "parameters"), [("drf", {}), ("sdrf", {"delta": 0.99999}), ("fifo", {})]
)
def test_every_job_of_a_part_of_lcg_starts_when_the_reference_starts_it(
    data: Path, policy: str, parameters: dict[str, float | str], part: int
) -> None:
    trace = swf.convert(data / "lcg-2005.swf.gz").trace
    names = ("submitted", "runtime", "user", "job", "demand", "constraint")
    most = len(trace) // part
    trace = replace(trace, **{name: getattr(trace, name)[:most] for name in names})
    assert_same(trace, Setting(policy, parameters, capacity_at(trace, 0.5)))


@pytest.mark.parametrize("policy", ["tsf", "cdrf", "drf", "fifo"])
def test_every_pod_of_openb_starts_when_and_where_the_reference_starts_it(
    data: Path, policy: str
) -> None:
    trace = openb.convert(
        data / "openb_pod_list_gpuspec33.csv", data / "openb_node_list_all_node.csv"
    ).trace
    # A tenth of the machines, so that tasks have to wait.
    fewer = replace(
        trace,
        machines=tuple(replace(kind, count=math.ceil(kind.count / 10)) for kind in trace.machines),
    )
    assert_same(fewer, Setting(policy, blocking="skip"))


@pytest.mark.parametrize("policy", ["tsf", "cdrf", "drf", "cmmf"])
def test_each_job_a_user_a_constrained_hour_is_decided_alike(policy: str) -> None:
    hour = google_constrained_hour.generate(seed=1, tasks=9000)
    fewer = replace(
        hour,
        machines=tuple(replace(kind, count=max(kind.count // 10, 1)) for kind in hour.machines),
    )
    assert_same(fewer, Setting(policy, blocking="skip", per="job"))


CACHED = """
from allocator.simulation.kernels.compiled import entry

@entry
def doubled(number: int) -> int:
    return 2 * number

assert doubled(21) == 42
print(sum(doubled.stats.cache_hits.values()), sum(doubled.stats.cache_misses.values()))
"""


def test_environments_of_a_user_share_compiled_kernels(tmp_path: Path) -> None:
    counts = []
    for name in ("first", "second"):
        module = tmp_path / name / "doubled.py"
        module.parent.mkdir()
        module.write_text(CACHED)
        process = subprocess.run(
            [sys.executable, module],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "caches"), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        counts.append(process.stdout.split())
    assert counts == [["0", "1"], ["1", "0"]]
