"""Jobs with `--exclusive=user` count with the idle resources of their nodes."""

from collections.abc import Iterable, Sequence

import pytest

from allocator.fairness.policies import create
from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import ClusterNode, Job, JobReader, SeenJob, read_nodes
from allocator.slurm.owned_nodes import NodeEvent
from allocator.slurm.state import ClusterState, Observation, StateSettings
from allocator.slurm_notation import node_names
from tests.slurm.test_jobs import PENDING, changed, printed
from tests.slurm.test_order import job, ordered, targets, tree

SIZE = Quantities.parse("cpus:16;mem:1000;gpus:2")
NODES = tuple(
    ClusterNode(f"n{number}", "IDLE", frozenset(), SIZE, ("main",), None) for number in range(1, 5)
)
WHOLE = {"cpus": 64.0, "gpus": 8.0}


def running(
    number: int, user: str, nodes: str, cores: int, *, start: float, end: float | None = None
) -> Job:
    """Return an exclusive job."""
    return job(
        number, user, nodes=nodes, exclusive=True, started=start, submitted=start, ended=end,
        state="RUNNING" if end is None else "COMPLETED",
        quantities=Quantities.parse(f"cpus:{cores}"),
    )  # fmt: skip


def state_of(policy: str = "sdrf", lag: float = 5.0) -> ClusterState:
    parameters = {"half_life": 60} if policy == "sdrf" else {}
    return ClusterState(StateSettings(create(policy, parameters), lag=lag), 0.0)


def observe(
    state: ClusterState,
    jobs: Sequence[Job],
    now: float,
    nodes: Sequence[ClusterNode] | None = NODES,
) -> None:
    seen = [
        SeenJob(shown, (now if shown.ended is None else shown.ended) - (shown.started or now))
        for shown in jobs
    ]
    state.observe(Observation(now, seen, nodes=nodes))


def held(state: ClusterState, user: str) -> dict[str, float]:
    amounts = state.present().standing((user,)).allocation.to_doubles()
    return {name: amount for name, amount in amounts.items() if amount}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n[08-10,3],gpu1", ("n08", "n09", "n10", "n3", "gpu1")),
        ("r[1-2]n[1-2]x", ("r1n1x", "r1n2x", "r2n1x", "r2n2x")),
    ],
)
def test_the_nodes_of_a_list_are_named(text: str, names: tuple[str, ...]) -> None:
    assert node_names(text) == names


def test_a_user_with_an_exclusive_job_holds_whole_nodes_once() -> None:
    state = state_of()
    first = running(1, "a", "n[1-4]", 4, start=10.0)
    observe(state, [first], 11.0)
    assert held(state, "a") == WHOLE
    second = running(2, "a", "n[1-4]", 8, start=12.0)
    plain = job(
        3, "a", nodes="n1", started=12.0, state="RUNNING", quantities=Quantities.parse("cpus:2")
    )
    observe(state, [first, second, plain], 13.0)
    assert held(state, "a") == WHOLE
    observe(state, [running(1, "a", "n[1-4]", 4, start=10.0, end=14.0), second, plain], 15.0)
    assert held(state, "a") == WHOLE, "the second job keeps the nodes"
    observe(state, [running(2, "a", "n[1-4]", 8, start=12.0, end=16.0), plain], 17.0)
    assert held(state, "a") == {"cpus": 2.0}
    observe(state, [], 19.0)
    assert held(state, "a") == {}
    observe(state, [], 60.0)
    assert not state._timelines
    assert not state._owned._nodes


def test_plain_jobs_that_run_before_the_first_exclusive_job_count_once() -> None:
    state = state_of()
    plain = job(
        3, "a", nodes="n1", started=2.0, state="RUNNING", quantities=Quantities.parse("cpus:2")
    )
    observe(state, [plain], 11.0)
    observe(state, [plain, running(1, "a", "n[1-2]", 4, start=12.0)], 13.0)
    assert held(state, "a") == {"cpus": 32.0, "gpus": 4.0}


def test_a_job_that_was_requeued_before_it_was_seen_holds_whole_nodes_until_it_has_left() -> None:
    state = state_of()
    observe(state, [], 9.0)
    leaving = job(
        1, "a", nodes="n[1-4]", exclusive=True, submitted=3.0, state="COMPLETING", restarts=1,
        quantities=Quantities.parse("cpus:4"),
    )  # fmt: skip
    for now in (11.0, 13.0):
        observe(state, [leaving], now)
        assert held(state, "a") == WHOLE
    observe(state, [job(1, "a", submitted=14.0, restarts=1, exclusive=True)], 15.0)
    assert held(state, "a") == {}
    assert not state._owned._nodes


def test_commitments_are_those_of_a_job_with_all_cores_from_its_start_to_its_end() -> None:
    state, reference = state_of(), state_of()
    waiting = job(9, "b", quantities=SIZE)
    for now, end in ((20.0, None), (40.0, 33.0), (90.0, 33.0)):
        observe(state, [running(1, "a", "n[1-4]", 4, start=10.0, end=end), waiting], now)
        whole = job(
            1, "a", started=10.0, submitted=10.0, ended=end,
            state="RUNNING" if end is None else "COMPLETED",
            quantities=Quantities.parse("cpus:64;gpus:8"),
        )  # fmt: skip
        observe(reference, [waiting, whole], now)
    commitments = state.settled.standing(("a",)).commitments
    assert commitments["cpus"] > 0.0
    assert commitments == pytest.approx(reference.settled.standing(("a",)).commitments)


def test_a_job_that_starts_and_ends_between_two_readings_counts_with_whole_nodes() -> None:
    state, reference = state_of(), state_of()
    waiting = job(9, "b", quantities=SIZE)
    observe(state, [waiting], 10.0)
    observe(reference, [waiting], 10.0)
    for now in (20.0, 90.0):
        observe(state, [running(1, "a", "n[1-4]", 1, start=11.0, end=19.0), waiting], now)
        whole = job(
            1, "a", started=11.0, submitted=11.0, ended=19.0, state="COMPLETED",
            quantities=Quantities.parse("cpus:64;gpus:8"),
        )  # fmt: skip
        observe(reference, [waiting, whole], now)
    commitments = state.settled.standing(("a",)).commitments
    assert commitments["gpus"] > 0.0
    assert commitments == pytest.approx(reference.settled.standing(("a",)).commitments)


def test_a_vanished_or_requeued_job_keeps_no_nodes() -> None:
    state = state_of()
    observe(
        state, [running(1, "a", "n1", 1, start=10.0), running(2, "b", "n2", 1, start=10.0)], 11.0
    )
    observe(state, [job(1, "a", restarts=1, submitted=12.0)], 13.0)
    assert held(state, "a") == held(state, "b") == {}


def test_whole_nodes_count_after_an_unexpected_error() -> None:
    state = state_of()
    jobs = [running(1, "a", "n[1-4]", 4, start=10.0)]
    observe(state, jobs, 11.0)
    state.begin_again()
    observe(state, jobs, 12.0, None)
    assert held(state, "a") == WHOLE


def test_an_unchanged_reading_counts_no_nodes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of()
    jobs = [running(number, "a", "n[1-4]", 4, start=10.0) for number in range(1, 5)]
    observe(state, jobs, 11.0)
    applied: list[int] = []
    count = state._owned.apply

    def apply(events: Iterable[NodeEvent]) -> set[tuple[str, ...]]:
        applied.append(1)
        return count(events)

    monkeypatch.setattr(state._owned, "apply", apply)
    observe(state, jobs, 12.0)
    assert not applied
    observe(state, jobs[1:], 13.0)
    assert applied == [1]


def test_changed_nodes_change_the_idle_resources() -> None:
    state = state_of()
    jobs = [running(1, "a", "n[1-4]", 4, start=10.0)]
    observe(state, jobs, 11.0)
    observe(state, jobs, 12.0, NODES[:3])
    assert held(state, "a")["cpus"] == 3 * 15.0 + 4.0


def test_whole_nodes_count_in_task_shares() -> None:
    state = state_of("tsf")
    observe(state, [running(1, "a", "n[1-4]", 4, start=10.0)], 11.0)
    assert held(state, "a")["tasks"] == 1_000_000.0  # the job itself has no task share here


def exclusive(number: int, user: str, **changes: object) -> Job:
    """Return a pending exclusive job of four cores. Its node has 100 cores."""
    spare = Quantities.parse("cpus:96;mem:9900")
    plain = job(number, user, exclusive=True, spare=spare, placement=("", ""))
    fields = {"quantities": Quantities.parse("cpus:100;mem:100")} | changes
    return job(number, user, **{
        "exclusive": plain.exclusive, "spare": spare, "placement": plain.placement, **fields,
    })  # fmt: skip


def test_an_exclusive_job_takes_its_turn_with_whole_nodes_and_further_jobs_share_them() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [exclusive(number, "a") for number in range(1, 6)]
    jobs += [job(number, "b") for number in range(11, 41)]
    order = targets(ordered(shares, jobs))
    assert order[:27] == ["1", *map(str, range(11, 36)), "2"], "25 jobs of b have as many cores"
    assert set(order[27:31]) >= {"3", "4"}


def test_exclusive_jobs_on_different_nodes_share_none() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [exclusive(number, "a", placement=(f"n{number}", "")) for number in range(1, 4)]
    jobs += [job(number, "b") for number in range(11, 71)]
    order = targets(ordered(shares, jobs))
    assert order.index("3") > 50
    memory = Quantities.parse("cpus:100;mem:6000")
    kept = Quantities.parse("cpus:96;mem:4000")
    jobs = [exclusive(number, "a", quantities=memory, spare=kept) for number in range(1, 4)]
    jobs += [job(number, "b") for number in range(11, 71)]
    assert targets(ordered(shares, jobs)).index("3") > 50, "two do not fit into the memory"


def test_a_pending_exclusive_job_has_spare_resources_and_a_placement() -> None:
    reader = JobReader()
    reader.set_nodes(
        read_nodes("NodeName=n1 State=IDLE Partitions=gpu CfgTRES=cpu=16,mem=100M,gres/gpu=4")
    )
    row = changed(
        PENDING, arraytaskid="N/A", partition="gpu", oversubscribe="USER", mincpus="3",
        reqnodes="n1", tres_alloc="cpu=1,mem=20M,node=2,gres/gpu=1",
    )  # fmt: skip
    ((pending, _),) = reader.read(printed(row))
    assert pending.quantities == Quantities.parse("cpus:32;mem:20;gpus:8")
    assert pending.spare == Quantities.parse("cpus:26;mem:180;gpus:7")
    assert pending.placement == ("n1", "(null)")
