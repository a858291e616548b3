"""The engine serves users in the order a forecast predicts, in a role tree."""

import asyncio
import random
import threading
from collections.abc import Generator
from dataclasses import dataclass, replace

import pytest

from allocator.cluster.engine import Engine
from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.operators.forecast import (
    MOST_WAITING,
    PEER_WAITING,
    Forecasts,
    InvalidQuestionError,
    TooManyForecastsError,
)
from allocator.service.show.explain import explain, users_before
from allocator.service.show.explanations import ExplanationFacts
from allocator.service.show.shares import user_shares
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import MasterSide, Offered, agent_call, framework_info
from tests.cluster.test_hopeless_clients import quota

ROLES = ("a", "b", "b/c", "b/d", "c/e", "c/f", "g")
SLOTS = 6
"""Number of agents that hold a single task each and become free in turn."""


def framework(role: str, demand: str = "cpus:1") -> contract.AddFramework:
    info = mesos.FrameworkInfo.FromString(framework_info(f"f-{role}", role))
    info.labels.labels.add(key="longshare.demand", value=demand)
    data = info.SerializeToString()
    return contract.AddFramework(framework_id=f"f-{role}", info=data, active=True)


@dataclass
class Played:
    """A full cluster: roles hold several tasks each, and the slot agents are deactivated."""

    master: MasterSide
    hopeless: set[str]
    """Roles whose tasks fit on no agent."""

    def forecast(self, user: str, tasks: int) -> admin.ForecastReply:
        request = admin.ForecastRequest(user=user, tasks=tasks, demand={"cpus": 1.0})
        return asyncio.run(Forecasts(self.master.engine, EngineLock()).answer(request))

    def free(self, slot: int) -> list[Offered]:
        """Activate a slot agent, without changing any allocation; return the offers."""
        return self.master.send(contract.ActivateAgent(agent_id=f"slot{slot}"), contract.Tick())


def played(seed: int, policy: str = "sdrf") -> Played:
    chance = random.Random(seed)
    owing = tuple(DeclaredUser(role, commitment=chance.random()) for role in ROLES)
    parameters = {"half_life": 600.0} if policy == "sdrf" else {}
    master = MasterSide(policy, parameters, users=owing)
    for slot in range(SLOTS):
        master.send(agent_call(f"slot{slot}", "cpus:1;mem:64"))
        master.send(contract.DeactivateAgent(agent_id=f"slot{slot}"))
    roles = chance.sample(ROLES, chance.randint(3, len(ROLES)))
    running = list[Offered]()
    for number in range(chance.randint(4, 10)):
        running += master.add_agent(f"s{number}", "cpus:1;mem:64")
        if chance.random() < 0.7 and roles:
            role = roles.pop()
            running += master.send(framework(role))
            running += master.tick(chance.random() * 20)
    for role in roles:
        running += master.send(framework(role))
    holders = sorted({offer.framework for offer in running})
    for gone in chance.sample(holders, min(2, len(holders))):
        master.send(contract.SuppressOffers(framework_id=gone))
        for offer in running:
            if offer.framework == gone:
                master.recover(offer)
        master.tick(chance.random() * 20)
        master.send(contract.ReviveOffers(framework_id=gone))
    hopeless = set(chance.sample(("h", "b/h", "i/j"), chance.randint(0, 3)))
    for role in hopeless:
        demands = ("cpus:32", "cpu:1", "cpus:1;gpus:1")
        master.send(framework(role, chance.choice(demands)))
    master.tick(chance.random() * 20)
    return Played(master, hopeless)


def users(state: Played) -> list[str]:
    return [client.role for client in state.master.engine.clients()]


@pytest.mark.parametrize("policy", ["sdrf", "drf"])
@pytest.mark.parametrize("seed", range(15))
def test_as_many_tasks_come_before_other_users_as_predicted(seed: int, policy: str) -> None:
    for user in set(users(played(seed, policy))):
        state = played(seed, policy)
        if user in state.hopeless:
            continue
        name = f"{user}/." if f"{user}/." in state.master.engine.users() else user
        wait = state.forecast(name, SLOTS).wait
        served = [offer.role for slot in range(SLOTS) for offer in state.free(slot)]
        first = next((n for n, role in enumerate(served) if role != user), len(served))
        assert len(served) == SLOTS
        assert wait.at_once == first
        assert (wait.ahead == 0) == (served[0] == user)


@pytest.mark.parametrize("seed", range(12))
def test_a_turn_comes_at_the_predicted_time(seed: int) -> None:
    for user in set(users(played(seed))):
        state = played(seed)
        if user in state.hopeless:
            continue
        name = f"{user}/." if f"{user}/." in state.master.engine.users() else user
        forecast = state.forecast(name, 1).wait
        if not forecast.HasField("first_after") or forecast.first_after <= 2.0:
            continue
        for wait, has_it in (
            (forecast.first_after - 1.0, False),
            (forecast.first_after + 1.0, True),
        ):
            state = played(seed)
            state.master.wait(wait)
            [offer] = state.free(0)
            assert (offer.role == user) == has_it


def test_some_predicted_turns_are_in_the_future() -> None:
    later = 0
    for seed in range(12):
        state = played(seed)
        for user in set(users(state)) - state.hopeless:
            wait = state.forecast(user, 1).wait
            later += wait.HasField("first_after") and wait.first_after > 2.0
    assert later > 3


@pytest.mark.parametrize("seed", range(15))
def test_forecast_and_explanation_agree_on_the_users_ahead(seed: int) -> None:
    state = played(seed)
    engine = state.master.engine
    passed_over, rows = run_to_completion(engine.unservable_users()), user_shares(engine)
    for row in rows:
        if not row.standing.active:
            continue
        kept = ExplanationFacts(passed_over=passed_over)
        explanation = explain(engine, row, rows, kept)
        wait = state.forecast(row.user, 1).wait
        if row.user in passed_over:
            assert (explanation.turn, explanation.passed_over) == (0, True)
            assert "none of its frameworks can be offered more" in explanation.words[0]
            continue
        assert explanation.users_ahead == wait.ahead
        assert sum(map(len, users_before(engine, row.user, passed_over).values())) == wait.ahead
        assert (explanation.turn == 1 and not explanation.above) == (wait.ahead == 0)
        assert ("it is next" in explanation.words[0]) == (wait.ahead == 0)


def branch() -> MasterSide:
    """Return a cluster in which B/c holds an agent, and A and B/b wait."""
    master = MasterSide()
    master.send(agent_call("slot", "cpus:1;mem:64"), contract.DeactivateAgent(agent_id="slot"))
    master.send(framework("B/c"))
    master.add_agent("s1", "cpus:1;mem:64")
    master.send(framework("A"), framework("B/b"))
    return master


def test_users_ahead_of_the_parent_role_count_as_ahead() -> None:
    master = branch()
    state = Played(master, set())
    forecast = state.forecast("B/b", 1)
    assert (forecast.wait.ahead, forecast.wait.at_once) == (1, 0)
    rows = user_shares(master.engine)
    [row] = [row for row in rows if row.user == "B/b"]
    explanation = explain(master.engine, row, rows, ExplanationFacts())
    assert [(comparison.user, comparison.ahead.user) for comparison in explanation.above] == [
        ("B", "A")
    ]
    assert any("Its parent B is served after A" in words for words in explanation.words)
    [offer] = master.send(contract.ActivateAgent(agent_id="slot"), contract.Tick())
    assert offer.role == "A"


def test_a_forecast_names_the_users_that_stay_ahead_and_the_command_that_names_holders() -> None:
    state = Played(branch(), set())
    words = list(state.forecast("B/b", 1).words)
    assert "Its turn for the task does not come within 1.0 d, because A stays ahead of it." in words
    assert any(
        "free now could hold no such task; 'longshare explain B/b' names" in w for w in words
    )
    words = list(state.forecast("newcomer", 1).words)
    assert "The resources that are free now could hold 0 such tasks." in words


def test_a_task_too_large_for_every_agent_has_no_predicted_turn() -> None:
    master = branch()
    master.send(framework("huge", "cpus:32"))
    request = admin.ForecastRequest(user="huge", tasks=1)
    forecast = asyncio.run(Forecasts(master.engine, EngineLock()).answer(request))
    assert (forecast.wait.at_once, forecast.wait.most, forecast.wait.HasField("first_after")) == (
        0,
        0,
        False,
    )
    assert "No agent could hold such a task, even if no other task ran there." in forecast.words
    assert "none of its frameworks can be offered more" in forecast.words[0]
    second_forecast = asyncio.run(
        Forecasts(master.engine, EngineLock()).answer(admin.ForecastRequest(user="A", tasks=1))
    )
    assert (second_forecast.wait.ahead, list(second_forecast.passed_over)) == (0, ["huge"])
    assert any(
        words.startswith("No agent could serve") and "huge" in words
        for words in second_forecast.assumptions
    )


def test_only_agents_the_user_may_be_offered_count_as_capacity() -> None:
    master = MasterSide()
    master.send(framework("a"), contract.SuppressOffers(framework_id="f-a"))
    master.send(agent_call("s1", "cpus(b):4;mem(b):64"), agent_call("s2", "cpus:3;mem:64"))
    master.send(agent_call("s3", "cpus:8;mem:64"), contract.DeactivateAgent(agent_id="s3"))
    state = Played(master, set())
    for user in ("a", "newcomer"):
        wait = state.forecast(user, 1).wait
        assert (wait.room, wait.most) == (3, 3)


def test_a_task_kept_out_by_smaller_tasks_is_reported_with_settings_that_help() -> None:
    master = MasterSide()
    master.send(framework("small"))
    master.add_agent("s1", "cpus:4;mem:64")
    master.send(framework("large", "cpus:4"))
    request = admin.ForecastRequest(user="large", tasks=1)
    words = " ".join(asyncio.run(Forecasts(master.engine, EngineLock()).answer(request)).words)
    assert "smaller tasks may fill every gap" in words
    assert 'offers.hold_for = "one"' in words
    assert 'offers.allocation = "batch"' in words
    assert "smaller" not in " ".join(Played(master, set()).forecast("small", 1).words)


def test_resources_kept_for_guarantees_are_told_with_the_turn() -> None:
    master = branch()
    master.send(quota("B", guarantee="cpus:1"), quota("z", guarantee="cpus:1;mem:64"))
    said = (
        "Before the order of users, free resources are kept for the unmet guarantees of "
        "z (cpus 1, mem 64)."
    )
    state = Played(master, set())
    assert state.forecast("A", 1).wait.ahead == 0
    assert said in state.forecast("A", 1).words
    own = "The quota of role z guarantees cpus 1, mem 64 more than the role holds. Until "
    assert any(words.startswith(own) for words in state.forecast("z", 1).words)
    assert any("leaves out quotas" in words for words in state.forecast("A", 1).assumptions)
    assert said in run_to_completion(master.engine.wording.about_clients("A"))
    assert state.master.send(contract.ActivateAgent(agent_id="slot"), contract.Tick()) == []


@pytest.mark.parametrize("seed", range(30))
def test_a_forecast_names_each_quota_that_decides_before_the_order(seed: int) -> None:
    state = played(seed)
    assert not any("quota" in words for words in state.forecast("a", 1).assumptions)
    chance = random.Random(seed)
    for role in chance.sample("abcg", chance.randint(1, 3)):
        guaranteed, limited = f"cpus:{chance.randint(1, 3)}", f"cpus:{chance.randint(0, 3)}"
        kind = chance.randrange(3)
        state.master.send(
            quota(role, guarantee=guaranteed if kind else "", limit="" if kind == 2 else limited)
        )
    known = state.master.engine.users()
    forecasts = {
        user: state.forecast(f"{user}/." if f"{user}/." in known else user, 1)
        for user in {*users(state)} - state.hopeless
    }
    assert all(any("quotas" in w for w in forecast.assumptions) for forecast in forecasts.values())
    texts = {user: " ".join(forecast.words) for user, forecast in forecasts.items()}
    served = [offer.role for offer in state.free(0)]
    first = {user for user, forecast in forecasts.items() if not forecast.wait.ahead}
    for role in served:
        if role not in first:
            assert f"quota of role {role.partition('/')[0]} guarantees" in texts[role]
    for user in first - {*served}:
        assert "unmet guarantees of" in texts[user] or "The limits of role" in texts[user]


def test_a_forecast_counts_no_more_tasks_than_the_limits_of_the_role_permit() -> None:
    master = MasterSide()
    master.send(framework("a/b"), contract.SuppressOffers(framework_id="f-a/b"))
    master.send(quota("a", limit="cpus:3"))
    master.add_agent("s1", "cpus:8;mem:1024;ports:[31000-32000]")
    reply = Played(master, set()).forecast("a/b", 5)
    assert (reply.wait.room, reply.wait.most) == (3, 8)
    assert "The limits of role a permit no more than cpus 3 now." in reply.words


def test_a_forecast_names_the_time_at_which_a_commitment_rises_above_a_level() -> None:
    master = MasterSide("sdrf", {"half_life": 600.0}, users=(DeclaredUser("b"),))
    master.send(framework("a"))
    master.add_agent("s1", "cpus:8;mem:64")
    request = admin.ForecastRequest(user="a", below=0.25)
    reply = asyncio.run(Forecasts(master.engine, EngineLock()).answer(request))
    assert reply.below_after == 0.0
    assert "Its commitment is not above 25.0% now." in reply.words
    assert "In 10.0 min its commitment rises above 25.0%." in reply.words


@pytest.mark.parametrize("counts_for", [4.0, None])
def test_a_forecast_names_the_assumption_of_constant_entitlements(counts_for: float | None) -> None:
    """A newly begun user counts more and more, so former users' entitlements fall."""
    master = MasterSide("sdrf", {"half_life": 600.0})
    master.engine = Engine(replace(master.settings, counts_for=counts_for))
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    master.send(framework("a"))
    master.add_agent("s1", "cpus:8;mem:64")
    reply = Played(master, set()).forecast("a", 1)
    named = any("Entitlements stay as they are now." in words for words in reply.assumptions)
    assert named == (counts_for is not None)


def test_one_thread_computes_all_forecasts_and_ends_a_computation_without_a_caller() -> None:
    forecasts = Forecasts(crowded().engine, EngineLock())
    steps, threads = list[int](), set[int]()

    def endless() -> Generator[None, None, admin.ForecastReply]:
        while True:
            steps.append(0)
            threads.add(threading.get_ident())
            yield

    async def scenario() -> None:
        computing = [asyncio.create_task(forecasts._compute(endless())) for _ in range(3)]
        while not steps:  # noqa: ASYNC110 - another thread adds to the list
            await asyncio.sleep(0.01)
        for task in computing:
            task.cancel()
        await asyncio.wait(computing)
        reply = await forecasts.answer(admin.ForecastRequest(user="a"))  # the thread is free
        assert reply.assumptions
        done = len(steps)
        await asyncio.sleep(0.01)
        assert len(steps) == done

    asyncio.run(scenario())
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_further_forecasts_are_refused_while_many_wait() -> None:
    forecasts = Forecasts(crowded().engine, EngineLock())
    request = admin.ForecastRequest(user="a")

    async def scenario() -> None:
        async with forecasts._turn:
            waiting = [
                asyncio.create_task(forecasts.answer(request, peer))
                for peer in ("a", "b")
                for _ in range(MOST_WAITING // 2)
            ]
            await asyncio.sleep(0)
            with pytest.raises(TooManyForecastsError, match="ask again later"):
                await forecasts.answer(request, "c")
            waiting.pop().cancel()
            await asyncio.sleep(0)
            waiting.append(asyncio.create_task(forecasts.answer(request, "c")))
        assert all(reply.assumptions for reply in await asyncio.gather(*waiting))

    asyncio.run(scenario())


def test_the_forecasts_of_one_peer_leave_places_to_other_peers() -> None:
    forecasts = Forecasts(crowded().engine, EngineLock())
    request = admin.ForecastRequest(user="a")

    async def scenario() -> None:
        async with forecasts._turn:
            many = [asyncio.create_task(forecasts.answer(request, "eve")) for _ in range(40)]
            await asyncio.sleep(0)
            other = asyncio.create_task(forecasts.answer(request, "alice"))
        replies = await asyncio.gather(*many, return_exceptions=True)
        refused = [reply for reply in replies if isinstance(reply, TooManyForecastsError)]
        assert len(refused) == 40 - PEER_WAITING
        assert "of this peer" in str(refused[0])
        assert (await other).assumptions
        assert (await forecasts.answer(request, "eve")).assumptions
        assert not forecasts._waiting

    asyncio.run(scenario())


def test_a_task_of_unknown_resources_is_refused_before_the_agents_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = crowded().engine
    monkeypatch.setattr(engine, "survey", None)
    demand = {f"resource-{number}": 1.0 for number in range(5000)}
    request = admin.ForecastRequest(user="a", tasks=1, demand=demand)
    with pytest.raises(InvalidQuestionError, match="the cluster has no resource-0"):
        asyncio.run(Forecasts(engine, EngineLock()).answer(request))


@pytest.mark.parametrize("field", ["demand", "burst"])
def test_a_resource_that_the_cluster_lacks_is_named_with_a_similar_one(field: str) -> None:
    request = admin.ForecastRequest(user="a", burst_seconds=60.0)
    getattr(request, field).update({"cpu": 1.0, "mem": 1.0})
    with pytest.raises(InvalidQuestionError, match="the cluster has no cpu; did you mean cpus"):
        asyncio.run(Forecasts(crowded().engine, EngineLock()).answer(request))


def test_a_burst_beyond_the_cluster_with_what_the_user_holds_is_named() -> None:
    engine = crowded().engine  # a is offered the only agent

    def answer(user: str) -> str:
        request = admin.ForecastRequest(user=user, burst={"cpus": 4.0}, burst_seconds=60.0)
        return " ".join(asyncio.run(Forecasts(engine, EngineLock()).answer(request)).words)

    assert "With this burst it would hold cpus:8;mem:512, but the cluster has" in answer("a")
    assert "but the cluster has" not in answer("b")


def crowded() -> MasterSide:
    master = MasterSide("sdrf", {"half_life": 60.0})
    for role in "ab":
        master.add_framework(f"f-{role}", role)
    master.add_agent("s1", "cpus:4;mem:512")
    return master
