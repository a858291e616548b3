"""Usage of roles if users are no roles, compared with a slow sum."""

import random
from collections import Counter

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.cluster.metering import role_meter
from allocator.cluster.metering.role_meter import RoleMeter
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.metering import (
    LONGEST_GAP,
    AccountCheckpoint,
    AccountState,
    Meter,
    UsageAccumulator,
)
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resources,
)

ROLES = ("eng/web", "eng/db", "ops", "eng")


def metered(now_ns: int | None = None) -> tuple[MasterSide, RoleMeter]:
    """Return a master's side whose users are framework names, each with several roles."""
    master = MasterSide("sdrf", {"delta": 0.99}, user_key="framework_name")
    master.engine = Engine(master.settings, meter=Meter())
    if now_ns is not None:
        master.now_ns = now_ns
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    assert master.engine.role_meter is not None
    return master, master.engine.role_meter


def sums(*counted: UsageAccumulator) -> dict[str, float]:
    """Return resource-seconds by role."""
    held: dict[str, float] = {}
    for accumulator in counted:
        for tallies in accumulator.users.values():
            for role, tally in tallies.items():
                for integrals in tally.resources.values():
                    held[role] = held.get(role, 0.0) + integrals.held / 1000
    return held


class Reference:
    """Adds up the allocation of each role before each advance of the clock."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], int] = {}
        self.seconds: Counter[str] = Counter()

    def pass_time(self, seconds: int) -> None:
        for (_agent, role), cores in self.held.items():
            for above in {role, role.partition("/")[0]}:
                self.seconds[above] += cores * seconds


@pytest.mark.parametrize(("seed", "most"), [(0, 20_000), (1, 20_000), (2, 3)])
def test_sums_equal_a_slow_reference_at_any_time_of_reading(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_meter, "MOST_WAITING", most)
    chance, reference = random.Random(seed), Reference()
    master, meter = metered()
    for name in ("f1", "f2"):
        master.send(
            contract.AddFramework(
                framework_id=name, info=framework_info(name, *ROLES), active=False
            )
        )
    taken: list[UsageAccumulator] = []
    taking: Cooperative[tuple[UsageAccumulator, dict[str, AccountCheckpoint]]] | None = None
    for number in range(300):
        seconds = chance.choice((0, 1, 7, 900))
        master.now_ns += seconds * SECOND
        reference.pass_time(seconds)
        if chance.random() < 0.6 or not reference.held:
            role, cores = chance.choice(ROLES), chance.randint(1, 4)
            used = {chance.choice(("f1", "f2")): resources(f"cpus:{cores}", role)}
            master.send(agent_call(f"s{number}", "cpus:4;mem:64", used))
            reference.held[f"s{number}", role] = cores
        else:
            gone = chance.choice(list(reference.held))
            master.remove_agent(gone[0])
            del reference.held[gone]
        if taking is None and chance.random() < 0.1:
            taking = meter.close_period(master.engine.now)
        assert len(meter._notes) <= most
        if chance.random() < 0.3:
            run_to_completion(meter.add_up_in_steps())
        if taking is not None:
            try:
                next(taking)
            except StopIteration as end:
                taken.append(end.value[0])
                taking = None
    last, _ = run_to_completion(
        meter.close_period(master.engine.now)
    )  # an unfinished reading is dropped
    assert len(taken) > 5
    assert sums(*taken, last) == pytest.approx(reference.seconds)
    assert len(set().union(*(accumulator.users for accumulator in (*taken, last)))) > 5, (
        "hours are counted separately"
    )


def test_no_instant_counts_twice_after_a_snapshot_and_in_another_service() -> None:
    frameworks = [
        contract.AddFramework(framework_id="f1", info=framework_info("f1", *ROLES), active=False)
    ]

    def restored(master: MasterSide, cores: int) -> None:
        used = {"f1": resources(f"cpus:{cores}", "eng/web")}
        agents = [agent_call("s1", "cpus:8;mem:64", used)]
        snapshot = contract.Snapshot(
            time_ns=master.now_ns, agents=agents, frameworks=frameworks, sequence=master.sequence
        )
        master.restore(snapshot)

    first, meter = metered()
    restored(first, 3)
    first.tick(100)
    taking = meter.close_period(first.engine.now)
    next(taking)
    first.now_ns += 10 * SECOND
    restored(first, 5)  # the smaller of both allocations counts in between
    first.tick(5)
    taken, formers = run_to_completion(taking)
    assert sums(taken) == {"eng": 300.0, "eng/web": 300.0}
    rest, _ = run_to_completion(meter.close_period(first.engine.now))
    assert sums(rest) == {"eng": 3 * 10.0 + 5 * 5.0, "eng/web": 3 * 10.0 + 5 * 5.0}
    # The service ended before it could write the rest; another service begins.
    first.now_ns += 15 * SECOND
    second, accumulator = metered(first.now_ns)
    restored(second, 5)
    second.tick(10)
    assert accumulator.beginning is not None
    accumulator.bridge(
        formers, {"eng/web": AccountCheckpoint(first.now_ns / 1e9, formers["eng"].state)}
    )
    gone_on, _ = run_to_completion(accumulator.close_period(second.engine.now))
    assert sums(taken, gone_on)["eng/web"] == 3 * 130.0 + 5 * 10.0


@pytest.mark.parametrize("seconds", [-5, 0, int(LONGEST_GAP) + 1])
def test_empty_and_too_long_gaps_and_time_before_a_clock_catches_up_are_not_counted(
    seconds: int,
) -> None:
    master, meter = metered()
    role, begun = "ops", master.now_ns / 1e9
    holds = resources("cpus:2", role)
    used = {"f1": holds}
    added = contract.AddFramework(framework_id="f1", info=framework_info("f1", role), active=False)
    master.send(added)
    master.send(agent_call("s1", "cpus:4;mem:64", used))
    master.tick(100)
    master.now_ns += seconds * SECOND
    agents = [agent_call("s1", "cpus:4;mem:64", used)]
    master.restore(
        contract.Snapshot(
            time_ns=master.now_ns, agents=agents, frameworks=[added], sequence=master.sequence
        )
    )
    master.tick(10)
    taken, formers = run_to_completion(meter.close_period(master.engine.now))
    assert sums(taken) == {role: 2 * (110.0 + min(seconds, 0))}
    assert formers[role].at == begun + 110.0 + seconds


@pytest.mark.parametrize(("seconds", "counted"), [(0.5, 0.5), (0.0, 0.0), (LONGEST_GAP + 1.0, 0.0)])
def test_a_gap_between_services_counts_the_allocation_before_and_after(
    seconds: float, counted: float
) -> None:
    master, meter = metered()
    begun = master.now_ns / 1e9
    stretch = AccountState(Quantities({"cpus": 2000}), 1.0, {}, {}, active=True)
    meter.bridge(
        {"ops": AccountCheckpoint(begun, stretch)},
        {"ops": AccountCheckpoint(begun + seconds, stretch)},
    )
    taken, _ = run_to_completion(meter.close_period(master.engine.now))
    assert sums(taken).get("ops", 0.0) == 2 * counted


def test_an_allocation_restored_before_the_clock_catches_up_counts_from_that_time_on() -> None:
    master, meter = metered()
    agent = agent_call("s1", "cpus:4;mem:64", {"f1": resources("cpus:2", "ops")})
    added = contract.AddFramework(framework_id="f1", info=framework_info("f1", "ops"), active=False)
    master.send(added, agent)
    master.tick(100)
    master.wait(-10.0)
    master.restore(
        contract.Snapshot(time_ns=master.now_ns, frameworks=[added], sequence=master.sequence)
    )
    master.wait(5.0)
    master.send(agent)
    master.tick(15)
    taken, _ = run_to_completion(meter.close_period(master.engine.now))
    assert sums(taken) == {"ops": 2 * 110.0}


def test_offers_count_in_their_role_and_its_ancestors_and_invalid_roles_do_not() -> None:
    master, meter = metered()
    master.add_framework("f1", "eng/web")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    master.wait(10.0)
    master.recover(offer, refuse_seconds=5)
    taken, _ = run_to_completion(meter.close_period(master.engine.now))
    [tallies] = taken.users.values()
    assert {role: (tally.offers, tally.refused) for role, tally in tallies.items()} == {
        "eng/web": (1, 1),
        "eng": (1, 1),
    }
    assert sums(taken) == dict.fromkeys(("eng", "eng/web"), (2.0 + 1024.0) * 10.0)
    assert not meter.with_ancestors("a//b")
    assert not meter.with_ancestors("/".join("a" * 40))


def test_if_users_are_roles_no_second_meter_counts_them() -> None:
    master = MasterSide("drf")
    assert Engine(master.settings, meter=Meter()).role_meter is None


@pytest.mark.parametrize(("seconds", "counted"), [(0.5, 0.5), (LONGEST_GAP, LONGEST_GAP)])
def test_a_snapshot_counts_the_allocation_common_to_before_and_after(
    seconds: float, counted: float
) -> None:
    meter = RoleMeter(Limits())
    begun = START_NS / 1e9
    for role, core in (("ops", 2000), ("gone", 1000)):
        meter.note(role, begun, Quantities({"cpus": core}))
    held = {"ops": Quantities({"cpus": 3000}), "new": Quantities({"cpus": 1000})}
    run_to_completion(meter.resume_in_steps(begun, begun + seconds, held, reset=False))
    taken, formers = run_to_completion(meter.close_period(begun + seconds))
    assert sums(taken) == {"ops": 2 * counted}
    assert set(formers) == {"ops", "new"}
    assert not any(former.state.active for former in formers.values()), "no role waits for offers"
    assert meter.beginning is None


def test_a_reset_meter_begins_with_the_present_roles() -> None:
    meter = RoleMeter(Limits())
    begun = START_NS / 1e9
    for role in ("gone", "new"):
        meter.note(role, begun, Quantities({"cpus": 1000}))
    run_to_completion(
        meter.resume_in_steps(begun, begun + 5.0, {"new": Quantities({"cpus": 1000})}, reset=True)
    )
    assert meter.beginning is not None
    assert {role: former.at for role, former in meter.beginning.items()} == {"new": begun + 5.0}
    taken, formers = run_to_completion(meter.close_period(begun + 10.0))
    assert sums(taken) == {"new": 5.0}
    assert set(formers) == {"new"}
    assert formers["new"].state.entitlement == 0.0, "a role has no entitlement"


def test_a_role_within_limits_is_counted() -> None:
    meter = RoleMeter(Limits(name=9, role_depth=3))
    assert meter.with_ancestors("a/b/c") == ("a/b/c", "a/b", "a")
    assert meter.with_ancestors("a/b/c/d") == ()
    assert meter.with_ancestors("r" * 9) == ("r" * 9,)
    assert meter.with_ancestors("r" * 10) == ()
