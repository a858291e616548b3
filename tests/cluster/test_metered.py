"""No instant is counted twice, whatever happens while accounts are closed and between services."""

from collections.abc import Callable

import pytest

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import run_to_completion
from allocator.fairness.metering import AccountCheckpoint, Meter, UsageAccumulator
from tests.cluster.master_side import SECOND, MasterSide, agent_call, framework_info, resources

TOTAL = "cpus:8;mem:4096"


AGENT = agent_call("s1", TOTAL, {"f-a": resources("cpus:3", "a"), "f-b": resources("cpus:1", "b")})


def metered(now_ns: int | None = None) -> MasterSide:
    """Return a master's side with a usage meter: user a holds three cores, user b one."""
    master = MasterSide("sdrf", {"delta": 0.99})
    master.engine = Engine(master.settings, meter=Meter())
    master.now_ns = master.now_ns if now_ns is None else now_ns
    restored(master)
    return master


def restored(master: MasterSide, agent: contract.AddAgent = AGENT) -> None:
    frameworks = [
        contract.AddFramework(framework_id=f"f-{user}", info=framework_info(f"f-{user}", user))
        for user in ("a", "b")
    ]
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent], frameworks=frameworks)
    snapshot.sequence = master.engine.sequence
    master.restore(snapshot)


def meter_of(master: MasterSide) -> Meter:
    meter = master.engine._meter
    assert meter is not None
    return meter


def written(
    master: MasterSide, meanwhile: Callable[[], None]
) -> tuple[UsageAccumulator, dict[str, AccountCheckpoint]]:
    """Return the usage that is written if a change follows the closing of the first accounts.

    As in idle moments, the closed accounts are summed before the next account is closed.
    """
    steps = master.engine.close_accounts()
    next(steps)
    meanwhile()
    meter_of(master).counted.add_up()
    formers = run_to_completion(steps)
    taken = meter_of(master).take()
    taken.add_up()
    return taken, formers


def sums(counted: UsageAccumulator) -> dict[str, float]:
    """Return core-seconds of users and of the cluster."""
    totals = {"cluster": sum(had["cpus"] for had in counted.capacity.values()) / 1000}
    for tallies in counted.users.values():
        for user, tally in tallies.items():
            held = tally.resources["cpus"].held / 1000
            totals[user] = totals.get(user, 0.0) + held
    return totals


def later(master: MasterSide, seconds: int, call: object) -> None:
    master.now_ns += seconds * SECOND
    master.send(call)


def changing(master: MasterSide) -> None:
    """Give user a two more cores 5 s later, and advance the clock by another 5 s."""
    later(master, 5, agent_call("s2", TOTAL, {"f-a": resources("cpus:2", "a")}))
    later(master, 5, contract.Tick())


def replacing(master: MasterSide) -> None:
    """Replace the cluster by a snapshot with the same allocations 10 s later."""
    master.now_ns += 10 * SECOND
    restored(master)


@pytest.mark.parametrize("meanwhile", [changing, replacing])
def test_a_crash_after_a_write_counts_no_instant_twice(
    meanwhile: Callable[[MasterSide], None],
) -> None:
    first = metered()
    later(first, 100, contract.Tick())
    taken, formers = written(first, lambda: meanwhile(first))
    # The service ends here; its successor starts 20 s later with the initial allocations.
    second = metered(first.now_ns + 20 * SECOND)
    meter = meter_of(second)
    assert meter.first_checkpoints is not None
    meter.bridge(formers, meter.first_checkpoints, second.engine.pool.capacity)
    later(second, 10, contract.Tick())
    both, (rest, _) = UsageAccumulator(), written(second, lambda: None)
    both.add(taken)
    both.add(rest)
    totals = sums(both)
    assert totals["a"] == pytest.approx(3 * 140.0, rel=1e-12)
    assert totals["b"] == pytest.approx(140.0, rel=1e-12)
    assert totals["cluster"] == pytest.approx(8 * 140.0, rel=1e-12)


@pytest.mark.parametrize("meanwhile", [changing, replacing])
def test_changes_while_accounts_are_closed_are_counted_in_the_next_account(
    meanwhile: Callable[[MasterSide], None],
) -> None:
    master = metered()
    later(master, 100, contract.Tick())
    begun = master.engine.close_accounts()  # and not continued
    next(begun)
    later(master, 10, contract.Tick())
    taken, _ = written(master, lambda: meanwhile(master))
    later(master, 20, contract.Tick())
    rest, _ = written(master, lambda: None)
    assert sums(taken)["a"] < 3 * 121.0
    both = UsageAccumulator()
    both.add(taken)
    both.add(rest)
    changed = meanwhile is changing
    totals = sums(both)
    assert totals["a"] == pytest.approx(3 * 140.0 + 2 * 25.0 * changed, rel=1e-12)
    assert totals["b"] == pytest.approx(140.0, rel=1e-12)
    assert totals["cluster"] == pytest.approx(8 * 140.0 + 8 * 25.0 * changed, rel=1e-12)


def test_an_offer_and_its_decline_are_counted_at_their_instants() -> None:
    master = metered()
    [user], later = ["c"], master.now_ns + SECOND
    [offer] = master.add_framework("f-c", user)
    master.now_ns = later
    master.recover(offer, refuse_seconds=60.0)
    acts = meter_of(master).counted.offer_events
    assert list(acts) == [((user,), later / SECOND - 1.0, False), ((user,), later / SECOND, True)]


def test_capacity_before_a_snapshot_with_another_capacity_is_counted() -> None:
    master = metered()
    later(master, 10, contract.Tick())
    restored(master, agent_call("s1", "cpus:4;mem:4096"))
    later(master, 10, contract.Tick())
    taken, _ = written(master, lambda: None)
    assert sums(taken)["cluster"] == pytest.approx(8 * 10.0 + 4 * 10.0)
