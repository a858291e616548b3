"""Shadow policies follow all events, decide nothing, and do not affect other parts."""

import json
import urllib.request
from pathlib import Path

import pytest

from allocator import plugins
from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.service.config import ConfigError, load
from allocator.service.masters.session import SessionStatistics
from allocator.service.show import shadows as shadows_module
from allocator.service.show.offer_history import OfferTrail
from allocator.service.show.shadows import Shadows
from allocator.service.show.wait_reasons import Waits
from tests.cluster.master_side import SECOND, MasterSide, agent_call, framework_info, resources
from tests.forks import longshare
from tests.plugins.written import file, key
from tests.service.served import Stream, service

SDRF = policies.create("sdrf", {"half_life": 60.0})


class FollowedMaster(MasterSide):
    """A master whose allocator is followed by shadow policies."""

    def __init__(self, shadows: Shadows) -> None:
        self._shadows = shadows
        super().__init__()

    def restore(self, snapshot: contract.Snapshot) -> object:  # type: ignore[override]
        if self.engine.settings.policy != SDRF:
            self.engine = Engine(
                EngineSettings(SDRF),
                before_change=lambda at: self._shadows.before_change(self.engine, at),
            )
            self.engine.watch(OfferTrail(), self._shadows)
        return super().restore(snapshot)


def played(master: MasterSide) -> list[bytes]:
    """Play a cluster where a takes all agents, then b arrives; return all decisions."""
    running = master.add_framework("f1", "a")
    for number in range(6):
        running += master.add_agent(f"s{number}", "cpus:1;mem:1024")
    decided = []
    for second in range(60):
        if second == 20:
            running += master.add_framework("f2", "b")
        if second % 5 == 0:
            running = master.begin_anew(running)
        running += master.tick()
        decided.append(repr(running).encode())
    return decided


def test_decisions_are_the_same_with_shadows_and_without() -> None:
    shadows = Shadows({"drf": policies.create("drf", {}), "sdrf": SDRF})
    followed = FollowedMaster(shadows)
    assert played(followed) == played(FollowedMaster(Shadows({})))
    drf, same = shadows.followers
    rows = {row.user: row for row in run_to_completion(shadows.compare(followed.engine, drf))}
    assert rows["a"].commitment == 0.0, "under DRF there are no commitments"
    assert rows["a"].gain == pytest.approx(-rows["b"].gain)
    for row in run_to_completion(shadows.compare(followed.engine, same)):
        assert row.turn == row.shadow_turn
        standing = followed.engine.pool.standing(row.user)
        assert row.commitment == pytest.approx(standing.commitment, abs=1e-9)
    assert not drf.failure
    assert not same.failure


def test_queued_events_of_shadows_are_bounded_and_change_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadows_module, "MOST_WAITING", 6)
    waited: dict[bool, list[int]] = {False: [], True: []}
    gains = []
    for prompt in (False, True):
        shadows = Shadows({"drf": policies.create("drf", {})})
        master = FollowedMaster(shadows)
        for number in range(60):
            if number == 1:
                master.add_framework("f1", "a")
                master.add_framework("f2", "b")
                master.engine.pool.set_commitment("b", 1.0)
            elif number < 8:
                master.add_agent(f"s{number}", "cpus:1;mem:1024")
            else:
                master.tick()
            if prompt:
                run_to_completion(shadows.replay())
            waited[prompt].append(shadows.waiting)
        rows = run_to_completion(shadows.compare(master.engine, shadows.followers[0]))
        gains.append([(row.user, row.gain) for row in rows])
    assert max(waited[True]) == 0
    assert 6 < max(waited[False]) < 2 * 6, "the queue is bounded below the number of events"
    assert gains[0] == gains[1]
    assert gains[0][0][1] != 0.0


def test_a_comparison_runs_in_steps_while_events_arrive() -> None:
    shadows = Shadows({"drf": policies.create("drf", {})})
    master = FollowedMaster(shadows)
    master.add_agent("s0", "cpus:1;mem:1024")
    for number in range(20):
        master.add_framework(f"f{number}", f"user{number}")
        master.engine.pool.set_commitment(f"user{number}", number / 20)
    [follower] = shadows.followers
    comparing, steps = shadows.compare(master.engine, follower), 0
    rows = None
    while rows is None:
        try:
            next(comparing)
        except StopIteration as end:
            rows = end.value
        else:
            steps += 1
            if steps == 3:
                master.add_agent("s1", "cpus:1;mem:1024")
            elif steps == 7:
                master.begin_anew([])
            elif steps % 2:
                master.tick()
    assert steps > 7
    assert not follower.failure
    assert {row.user for row in rows} == {f"user{number}" for number in range(20)}


def test_a_shadow_whose_policy_failed_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))
    plugins.load(file(tmp_path, key("return account.sharez if account.shares else 0.0")))
    shadows = Shadows({"mine": policies.create("mine", {})})
    followed = FollowedMaster(shadows)
    followed.add_framework("f1", "a")
    assert followed.add_agent("first", "cpus:1;mem:1024"), "offers continue"
    followed.tick()
    run_to_completion(shadows.replay())
    [follower] = shadows.followers
    assert "policy 'mine' failed, so there is no result: AttributeError" in follower.failure
    assert run_to_completion(shadows.compare(followed.engine, follower)) == []


def test_a_failing_shadow_does_not_affect_other_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    shadows = Shadows({"drf": policies.create("drf", {}), "sdrf": SDRF})
    followed = FollowedMaster(shadows)
    followed.add_framework("f1", "a")
    followed.add_agent("first", "cpus:1;mem:1024")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("of a policy's own")

    shadow = shadows.followers[0].shadow
    assert shadow is not None
    monkeypatch.setattr(shadow.pool, "advance", fail)
    assert followed.add_agent("s", "cpus:1;mem:1024"), "offers continue"
    followed.tick()
    run_to_completion(shadows.replay())
    assert shadows.followers[0].failure == "ZeroDivisionError: of a policy's own"
    assert run_to_completion(shadows.compare(followed.engine, shadows.followers[0])) == []
    assert run_to_completion(shadows.compare(followed.engine, shadows.followers[1])) != []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[[shadow]]\nname = "drf"\n' * 5, "shadow"),
        ('[[shadow]]\nname = "drf"\n' * 2, "defined twice"),
        ('[[shadow]]\nname = "per-machine-drf"\n', "no single order"),
        ('[[shadow]]\nname = "tsf"\n', "counts tasks"),
        ('[[shadow]]\nname = "sdrf"\n', "half_life"),
        ('[[shadow]]\nname = "dfr"\n', "dfr"),
    ],
)
def test_policies_that_cannot_be_shadows_are_refused(
    settings: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "longshare.toml"
    path.write_text(settings)
    with pytest.raises(ConfigError, match=said):
        load(path)


@pytest.mark.slow
def test_shadows_appear_in_metrics_page_and_command(tmp_path: Path) -> None:
    settings = """
[policy]
name = "sdrf"
half_life = "1h"
[[shadow]]
name = "drf"
[[shadow]]
name = "sdrf"
half_life = "1m"
[[users.declared]]
name = "owing"
commitment = 0.9
[[users.declared]]
name = "holding"
"""
    with service(tmp_path, settings) as running:
        stream = Stream(running.address)
        held = {"f1": resources("cpus:3;mem:3072", "holding")}
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", held)],
            frameworks=[
                contract.AddFramework(
                    framework_id=framework, info=framework_info(framework, role), active=True
                )
                for framework, role in (("f1", "holding"), ("f2", "owing"))
            ],
        )
        for _ in range(3):
            stream.now_ns += 60 * SECOND
            stream.tell(tick=contract.Tick())
        with urllib.request.urlopen(running.metrics_url) as answer:
            text = answer.read().decode()
        assert 'longshare_shadow_turn{shadow="drf",user="owing"} 1.0' in text
        assert 'longshare_shadow_failed{shadow="sdrf half_life=1m"} 0.0' in text
        page = running.metrics_url.removesuffix("metrics") + "api/status"
        with urllib.request.urlopen(page) as answer:
            seen = json.load(answer)
        shadows = seen["shadows"]
        assert [shadow["name"] for shadow in shadows] == ["drf", "sdrf half_life=1m"]
        drf = {row["user"]: row for row in shadows[0]["users"]}
        forgetful = {row["user"]: row for row in shadows[1]["users"]}
        really = {row["user"]: row["commitment"] for row in seen["users"]}
        assert drf["owing"]["shadow_turn"] == 1
        assert drf["owing"]["commitment"] == 0.0
        assert forgetful["owing"]["commitment"] == pytest.approx(0.9 / 8, abs=0.01)
        assert really["owing"] == pytest.approx(0.9, abs=0.05)
        asked = longshare("shadow", "--address", running.address, "--json")
        assert json.loads(asked.stdout)["shadows"][1]["name"] == "sdrf half_life=1m"
        asked = longshare("shadow", "--address", running.address)
        assert "as decided" in asked.stdout
        stream.close()


def labelled(framework: str, role: str, demand: str) -> contract.AddFramework:
    info = mesos.FrameworkInfo.FromString(framework_info(framework, role))
    info.labels.labels.add(key="longshare.demand", value=demand)
    data = info.SerializeToString()
    return contract.AddFramework(framework_id=framework, info=data, active=True)


@pytest.mark.parametrize("follow", ["at once", "late"])
def test_a_user_whose_tasks_fit_no_agent_has_no_gain_and_no_turn(follow: str) -> None:
    shadows = Shadows({"drf": policies.create("drf", {})})
    master = FollowedMaster(shadows)
    waits = Waits(master.engine, SessionStatistics(connected=True), shadows)
    master.add_agent("s1", "cpus:8;mem:64")
    master.send(labelled("huge", "huge", "cpus:32"))
    master.send(labelled("one", "one", "cpus:1"), labelled("two", "two", "cpus:1"))
    for second in range(120):
        if second == 40:
            master.add_agent("s2", "cpus:8;mem:64")
        if second == 80:
            master.send(contract.SuppressOffers(framework_id="huge"))
            master.send(contract.ReviveOffers(framework_id="huge"))
            master.add_agent("s3", "cpus:8;mem:64")
        if follow == "at once":
            run_to_completion(shadows.replay())
        master.tick()
    [follower] = shadows.followers
    apart = {row.user: row for row in run_to_completion(shadows.compare(master.engine, follower))}
    huge = apart["huge"]
    assert (huge.gain, huge.turn, huge.shadow_turn, huge.passed_over) == (0.0, 0, 0, True)
    assert sorted((apart[user].turn, apart[user].shadow_turn) for user in ("one", "two")) == [
        (1, 1),
        (2, 2),
    ]
    run_to_completion(waits.examine())
    assert waits.passed_over == {"huge"}
    master.add_agent("s9", "cpus:32;mem:64")
    run_to_completion(waits.examine())
    assert waits.passed_over == frozenset()
    [follower] = shadows.followers
    apart = {row.user: row for row in run_to_completion(shadows.compare(master.engine, follower))}
    assert not apart["huge"].passed_over
    assert apart["huge"].shadow_turn > 0
