"""The adapter shows a Slurm to the shared parts of the service, and carries out orders."""

import asyncio
from dataclasses import replace

import pytest

from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.fairness.metering import Meter
from allocator.fairness.policies import create
from allocator.fairness.quantities import Quantities
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.operators.forecast import Forecasts
from allocator.service.show.explain import explain
from allocator.service.show.explanations import collect_facts
from allocator.service.show.shares import user_shares
from allocator.slurm.adapter import SlurmAdapter
from allocator.slurm.jobs import ClusterNode, SeenJob
from allocator.slurm.reasons import BRIEFLY, GROUP_ORDER, group_of
from allocator.slurm.state import ClusterState, Observation, StateSettings
from allocator.slurm.timelines import Attempt, Step
from allocator.users.orders import InvalidOrder
from tests.slurm.truth import TrueJob

CAPACITY = Quantities.parse("cpus:40;mem:4000")
NODES = (ClusterNode("n1", "IDLE", frozenset(), CAPACITY, ("main",), None),)
SIZE = Quantities.parse("cpus:30;mem:300")
LAG = 60.0


class FollowedSlurm:
    """A state and its adapter, with readings at chosen times."""

    def __init__(self, meter: Meter | None = None) -> None:
        policy = create("sdrf", {"half_life": 100.0})
        self.state = ClusterState(StateSettings(policy, lag=LAG), 0.0)
        self.adapter = SlurmAdapter(self.state, meter)

    def read(self, now: float, *pending: SeenJob) -> None:
        """Show the running job of ann, and pending jobs."""
        running = TrueJob(1, "ann", 0.0, [Attempt(0.0, [Step(0.0, SIZE)])]).seen(now)
        assert running is not None
        self.state.observe(Observation(now, [running[0], *pending], {}, NODES))
        self.adapter.show(self.state.present())

    def order(self, **parts: object) -> None:
        self.adapter.order(operator.Order(**parts))  # type: ignore[arg-type]


def waiting(number: int, user: str, reason: str = "Priority") -> SeenJob:
    shown = TrueJob(number, user, 0.0).seen(1.0)
    assert shown is not None
    return SeenJob(replace(shown[0].job, reason=reason, quantities=SIZE), 0.0)


def explained(adapter: SlurmAdapter, user: str) -> admin.Explanation:
    rows = user_shares(adapter)
    facts = run_to_completion(collect_facts(adapter, user))
    return explain(adapter, next(row for row in rows if row.user == user), rows, facts)


def test_displays_show_the_present_and_memory_is_that_of_the_settled_time() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    adapter = slurm.adapter
    assert (adapter.now, adapter.settled_at) == (200.0, 140.0)
    assert adapter.changes().time == 140.0
    ann = adapter.standing("ann")
    assert ann is not None
    assert ann.share == 0.75
    stored = slurm.state.settled.standing(("ann",))
    assert 0.0 < stored.commitment < ann.commitment


def test_a_user_with_pending_jobs_is_active_and_waits_for_its_turn() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"), waiting(3, "ann"))
    explanation = explained(slurm.adapter, "ann")
    assert explanation.words[0] == (
        "ann has rank 2 of 2 among all users, and is number 2 of the 2 users that "
        "have pending jobs."
    )
    assert explanation.words[-1] == (
        "Its job 3 is pending: waits for its turn; Slurm says Priority; bob is served first."
    )


def test_a_user_whose_jobs_cannot_start_is_passed_over_with_slurms_reason() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob", "Dependency"), waiting(4, "bob", "Dependency"))
    explanation = explained(slurm.adapter, "bob")
    assert explanation.passed_over
    assert "none of its pending jobs can start" in explanation.words[0]
    assert explanation.words[-1] == (
        "Its jobs 2, 4 are pending: waits for other jobs; Slurm says Dependency."
    )
    assert not slurm.adapter.could_be_served("bob")


def test_an_unknown_reason_is_shown_and_belongs_to_a_group_of_its_own() -> None:
    assert group_of("SomethingNew") == "other"
    assert set(BRIEFLY) == {"no_controller", *GROUP_ORDER}
    assert group_of("QOSGrpCpuLimit") == "group_limit"
    assert group_of("AssocMaxJobsLimit") == "own_limit"


def test_a_forecast_speaks_of_nodes_and_pending_jobs() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    request = admin.ForecastRequest(user="ann", tasks=1, demand={"cpus": 8.0, "mem": 10.0})
    reply = asyncio.run(Forecasts(slurm.adapter, EngineLock()).answer(request))
    assert reply.wait.room == 1
    assert reply.wait.most == 5
    assert reply.words[0] == "ann has no pending jobs now; this forecast assumes that it has some."
    assert any("No node or user comes or goes" in text for text in reply.assumptions)


def test_an_ordered_weight_applies_to_the_present_at_once() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    before = slurm.adapter.revision
    slurm.order(set_weight=operator.SetWeight(user="bob", weight=4.0))
    bob = slurm.adapter.standing("bob")
    assert bob is not None
    assert bob.weight == 4.0
    assert slurm.adapter.weights.by("bob") == "operator"
    assert slurm.adapter.revision != before


def test_a_boost_ends_by_the_present_time() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    slurm.order(set_weight=operator.SetWeight(user="bob", weight=4.0, seconds=50.0))
    for now, weight in ((249.0, 4.0), (251.0, 1.0)):
        slurm.read(now, waiting(2, "bob"))
        bob = slurm.adapter.standing("bob")
        assert bob is not None
        assert bob.weight == weight


def test_a_user_with_jobs_cannot_be_forgotten() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    with pytest.raises(InvalidOrder, match="user 'ann' has jobs"):
        slurm.order(forget_users=operator.ForgetUsers(users=["ann"]))


def test_a_forgotten_user_is_known_again_with_its_next_job() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    slurm.read(400.0)
    slurm.order(forget_users=operator.ForgetUsers(users=["bob"]))
    assert "bob" not in slurm.adapter.users()
    slurm.read(401.0, waiting(5, "bob"))
    assert "bob" in slurm.adapter.users()


def test_accounts_hold_the_integral_of_what_each_user_held_up_to_the_settled_time() -> None:
    meter = Meter()
    slurm = FollowedSlurm(meter)
    slurm.read(200.0, waiting(2, "bob"))
    checkpoints = run_to_completion(slurm.adapter.close_accounts())
    assert checkpoints["ann"].at == 140.0
    usage = meter.take()
    run_to_completion(usage.add_up_in_steps())
    held = sum(hour["ann"].resources["cpus"].held for hour in usage.users.values() if "ann" in hour)
    assert held == pytest.approx(30_000 * 140.0)


def test_commitments_survive_in_the_memory_of_the_adapter() -> None:
    slurm = FollowedSlurm()
    slurm.read(200.0, waiting(2, "bob"))
    slurm.order(set_weight=operator.SetWeight(user="bob", weight=2.0))
    memory = slurm.state.settled.tree.memory()
    restarted = ClusterState(slurm.state.settings, memory.time)
    restarted.inherit(memory)
    before, after = (state.settled.standing(("ann",)) for state in (slurm.state, restarted))
    assert after.commitments == pytest.approx(before.commitments)
    assert restarted.settled.standing(("bob",)).weight == 2.0
