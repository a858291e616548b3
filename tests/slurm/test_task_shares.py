"""TSF counts the jobs of a size that fit on all nodes, whatever partitions a job may use."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.fairness.policies import create
from allocator.fairness.quantities import Quantities
from allocator.slurm.bridge import Bridge, BridgeSettings
from allocator.slurm.client import SlurmClient
from allocator.slurm.jobs import ClusterNode, SeenJob
from allocator.slurm.order import order_jobs
from allocator.slurm.state import ClusterState, Observation, StateSettings
from allocator.slurm.task_shares import ALL_TASKS, TASKS, TaskShareMeasure, reason_against
from allocator.slurm.timelines import Attempt, Step
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, holding, poll_until, reason_to_skip
from tests.slurm.truth import TrueJob

NODES = [
    ClusterNode(name, "IDLE", frozenset(), Quantities.parse(text), ("main",), None)
    for name, text in (
        ("a1", "cpus:4;mem:4000"),
        ("a2", "cpus:4;mem:4000"),
        ("b1", "cpus:4;mem:1000;gpus:2"),
    )
]


def share(text: str, excluded: tuple[str, ...] = ()) -> float:
    shares = TaskShareMeasure(excluded)
    assert shares.set_nodes(NODES)
    return shares.measure(text)[TASKS] / ALL_TASKS[TASKS]


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("cpu=1,mem=100M,node=1,billing=1", 12),
        ("cpu=1,mem=1000M,node=1,billing=1", 9),
        ("cpu=1,mem=1500M,node=1,billing=1", 4),
        ("cpu=3,mem=100M,node=1,billing=1", 3),
        ("cpu=4,mem=200M,node=2,billing=1", 3),  # two parts fit on each of three nodes
        ("cpu=12,mem=300M,node=3,billing=1", 1),
        ("cpu=1,mem=10M,node=1,billing=1,gres/gpu=1", 2),
    ],
)
def test_a_jobs_task_share_is_one_divided_by_the_jobs_that_fit_on_the_cluster(
    text: str, jobs: int
) -> None:
    assert share(text) == pytest.approx(1 / jobs, abs=1e-9)


def test_a_job_whose_equal_parts_fit_nowhere_counts_by_its_dominant_share() -> None:
    assert share("cpu=9,mem=300M,node=2,billing=1") == pytest.approx(9 / 12)


def test_resources_that_do_not_count_bound_no_number_of_jobs() -> None:
    assert share("cpu=1,mem=1500M,node=1,billing=1", excluded=("mem",)) == pytest.approx(1 / 12)


def test_task_shares_of_jobs_of_different_sizes_add_up_and_rank_users() -> None:
    state = ClusterState(StateSettings(create("tsf", {}), lag=1.0), 0.0)
    shares = TaskShareMeasure()
    shares.set_nodes(NODES)
    sizes = {
        "ann": ["cpu=1,mem=1500M,node=1", "cpu=3,mem=10M,node=1"],
        "bob": ["cpu=4,mem=200M,node=2"],
    }
    jobs: list[SeenJob] = []
    for user, texts in sizes.items():
        for text in texts:
            size = Step(0.0, shares.measure(text))
            seen = TrueJob(len(jobs) + 1, user, 0.0, [Attempt(0.0, [size])]).seen(10.0)
            assert seen is not None
            jobs.append(seen[0])
    state.observe(Observation(10.0, jobs, {}, NODES))
    tree = state.present()
    assert tree.standing(("ann",)).share == pytest.approx(1 / 4 + 1 / 3)
    assert tree.standing(("bob",)).share == pytest.approx(1 / 3)
    assert tree.standing(("bob",)).priority < tree.standing(("ann",)).priority


def test_users_take_turns_by_the_task_shares_of_the_jobs_that_they_would_start() -> None:
    state = ClusterState(StateSettings(create("tsf", {}), lag=1.0), 0.0)
    shares = TaskShareMeasure()
    shares.set_nodes(NODES)
    sizes = {"ann": "cpu=1,mem=1500M,node=1", "bob": "cpu=1,mem=100M,node=1"}  # 1/4 and 1/12
    jobs = []
    for number in range(8):
        user = ("ann", "bob")[number % 2]
        seen = TrueJob(number + 1, user, 0.0).seen(10.0)
        assert seen is not None
        job = replace(seen[0].job, quantities=shares.measure(sizes[user]))
        jobs.append(SeenJob(job, 0.0))
    state.observe(Observation(10.0, jobs, {}, NODES))
    pending = [(seen.job, state.path_of(seen)) for seen in jobs]
    order = order_jobs(state.present(), pending, {}, state.nodes, {}, ahead=6, tasks_ahead=1)
    users = [placed.job.user for placed in order.placed]
    assert users[:6] == ["ann", "bob", "bob", "bob", "ann", "bob"]


def test_a_cluster_that_only_loses_a_node_for_a_time_has_the_same_task_shares() -> None:
    shares = TaskShareMeasure()
    assert shares.set_nodes(NODES)
    assert not shares.set_nodes([replace(NODES[0], state="DOWN"), *NODES[1:]])
    assert shares.set_nodes(NODES[1:])
    assert shares.measure("cpu=1,mem=100M,node=1")[TASKS] == ALL_TASKS[TASKS] // 8


@pytest.mark.parametrize("name", ["cdrf", "drfh", "per-machine-drf"])
def test_policies_that_need_one_kind_of_task_or_an_order_by_machine_are_refused(name: str) -> None:
    assert reason_against(create(name, {})) is not None
    assert reason_against(create("tsf", {})) is None


@pytest.mark.slow
@pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))
def test_in_partitions_with_different_nodes_tsf_ranks_by_tasks_and_drf_by_resources(
    tmp_path: Path,
) -> None:
    settings = SlurmSettings(
        nodes=(NodeGroup("a", 2, 4, 4000), NodeGroup("b", 1, 4, 1000)),
        partitions={"main": "ALL", "small": "b1"},
    )
    with LocalSlurm(tmp_path / "slurm", settings, ROOT) as slurm:
        slurm.submit("--mem=1400", user="games", script="sleep 60")
        for _ in range(2):
            slurm.submit("--partition=small", "--mem=100", user="man", script="sleep 60")
        priorities = {}
        for policy in ("tsf", "drf"):
            state = StateSettings(create(policy, {}), lag=1.0)
            client = SlurmClient(slurm.environment, timeout=20.0)
            bridge = Bridge(client, BridgeSettings(state, nodes_every=0.0), float(int(time.time())))
            held = {"games": 1, "man": 2}
            tree = poll_until(bridge, lambda _: holding(bridge, held), 60.0).tree  # noqa: B023
            standings = {user: tree.standing((user,)) for user in ("games", "man")}
            priorities[policy] = {user: found.priority for user, found in standings.items()}
    assert priorities["tsf"] == pytest.approx({"games": 1 / 4, "man": 2 / 12})
    assert priorities["drf"] == pytest.approx({"games": 1400 / 9000, "man": 2 / 12})
