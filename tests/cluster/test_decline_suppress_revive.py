"""Offer filters, suppress, revive, and the activity of frameworks (§1.4, §3.7)."""

from dataclasses import replace
from random import Random

import pytest

from allocator.cluster.agents.agent import Agent
from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import SECOND, MasterSide, Offered, agent_call, framework_info
from tests.cluster.test_client_index import events
from tests.cluster.test_placements import info
from tests.cluster.test_task_offers import with_settings
from tests.counted import counted


def one_offer() -> tuple[MasterSide, Offered]:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    return master, offer


def test_a_declined_offer_is_not_repeated_before_its_filter_expires() -> None:
    master, offer = one_offer()
    assert master.recover(offer, refuse_seconds=3) == []
    assert master.engine.filters == 1
    assert [len(master.tick()) for _ in range(3)] == [0, 0, 1]
    assert master.engine.filters == 0


def test_a_filter_shorter_than_the_interval_still_holds_for_the_next_batch() -> None:
    master, offer = one_offer()
    assert master.recover(offer, refuse_seconds=0.1) == []
    assert [len(master.tick()) for _ in range(2)] == [0, 1]


def test_a_decline_without_a_filter_holds_until_the_next_batch_and_no_longer() -> None:
    master, offer = one_offer()
    assert master.recover(offer, refuse_seconds=0) == []
    assert len(master.tick()) == 1


def test_a_filter_expires_at_its_time_and_not_a_nanosecond_before() -> None:
    master, offer = one_offer()
    assert master.recover(offer, refuse_seconds=3) == []
    master.now_ns += 3 * SECOND - 1
    assert master.send(contract.Tick()) == []
    master.now_ns += 1
    assert len(master.send(contract.Tick())) == 1


@pytest.mark.parametrize("refuse_seconds", [-1.0, float("nan")])
def test_a_filter_with_invalid_refuse_seconds_lasts_five_seconds(refuse_seconds: float) -> None:
    master, offer = one_offer()
    assert master.recover(offer, refuse_seconds=refuse_seconds) == []
    assert [len(master.tick()) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_a_filter_without_refuse_seconds_lasts_five_seconds() -> None:
    master, offer = one_offer()
    assert master.recover(offer, default_filter=True) == []
    assert [len(master.tick()) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_a_filter_expires_after_a_year_at_the_latest() -> None:
    master, offer = one_offer()
    assert master.recover(offer, refuse_seconds=1e300) == []
    for _ in range(365 * 12 - 1):
        assert master.tick(7200) == []
    assert master.tick(7199) == []
    assert len(master.tick()) == 1


def test_an_offer_with_more_than_the_declined_resources_passes_the_filter() -> None:
    master, offer = one_offer()
    master.recover(offer, "mem:512", refuse_seconds=1000)
    assert master.tick() == []
    [bigger] = master.recover(offer, "cpus:1")
    assert bigger.resources == "cpus:1;mem:512"


def test_an_offer_with_less_than_the_declined_resources_is_excluded() -> None:
    master, offer = one_offer()
    master.recover(offer, refuse_seconds=1000)
    master.remove_agent("s1")
    assert len(master.add_agent("s1", "cpus:1;mem:512")) == 1, "filters end with their agent"


def test_a_filter_binds_only_the_framework_role_and_agent_that_it_names() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    [other_role] = master.recover(offer, refuse_seconds=1000)
    assert (other_role.framework, other_role.role) == ("f1", "b")
    assert master.recover(other_role, refuse_seconds=1000) == []
    [other_framework] = master.add_framework("f2", "a")
    assert other_framework.framework == "f2"


def test_revive_drops_the_filters_of_the_named_roles_and_offers_at_once() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    [offer] = master.recover(offer, refuse_seconds=1000)
    assert master.recover(offer, refuse_seconds=1000) == []
    [revived] = master.send(contract.ReviveOffers(framework_id="f1", roles=["b"]))
    assert revived.role == "b"
    assert master.recover(revived, refuse_seconds=1000) == []
    assert len(master.send(contract.ReviveOffers(framework_id="f1"))) == 1


def test_a_suppressed_role_gets_no_offers_until_it_is_revived() -> None:
    master, offer = one_offer()
    for _ in range(2):
        master.send(contract.SuppressOffers(framework_id="f1"))
    assert master.recover(offer) == []
    assert master.tick() == []
    assert len(master.send(contract.ReviveOffers(framework_id="f1"))) == 1
    assert master.send(contract.ReviveOffers(framework_id="f1")) == []


def test_suppressing_one_role_leaves_the_other() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b")
    master.send(contract.SuppressOffers(framework_id="f1", roles=["a"]))
    assert [o.role for o in master.add_agent("s1", "cpus:2;mem:1024")] == ["b"]


def test_an_inactive_framework_gets_no_offers_and_loses_its_filters() -> None:
    master, offer = one_offer()
    master.recover(offer, refuse_seconds=1000)
    master.send(contract.DeactivateFramework(framework_id="f1"))
    assert master.engine.filters == 0
    assert master.tick() == []
    assert len(master.send(contract.ActivateFramework(framework_id="f1"))) == 1


def test_deactivation_keeps_suppressed_roles() -> None:
    master, offer = one_offer()
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.recover(offer)
    master.send(contract.DeactivateFramework(framework_id="f1"))
    assert master.send(contract.ActivateFramework(framework_id="f1")) == []


def test_an_inactive_agent_is_not_offered_but_counts() -> None:
    master, offer = one_offer()
    master.send(contract.DeactivateAgent(agent_id="s1"))
    assert master.recover(offer) == []
    assert master.tick() == []
    assert master.engine.pool.capacity["cpus"] == 2000
    assert master.send(contract.ActivateAgent(agent_id="s1")) == []
    assert len(master.tick()) == 1, "activation itself triggers nothing"


def test_leaving_a_role_ends_its_offers_and_filters_and_keeps_its_tasks_accounted() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    assert offer.role == "a"
    master.recover(offer, "cpus:1;mem:512", refuse_seconds=1000)
    master.send(contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "b")))
    assert master.engine.filters == 0
    assert master.engine.pool.standing("a").allocation["cpus"] == 1000
    offers = master.recover(offer, "cpus:1;mem:512")
    assert {o.role for o in offers} == {"b"}
    assert all(s.allocation["cpus"] == 0 or s.user == "b" for s in master.engine.pool.standings())


def test_a_framework_without_resources_in_a_role_it_left_is_unknown_there() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    master.send(contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "b")))
    assert master.engine.user("a", "f1") == "a", "known while it has an allocation there"
    master.recover(offer)
    assert master.engine.user("a", "f1") is None


def test_resubscribing_sets_exactly_the_suppressed_roles_it_names() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "b", suppressed=["a"])
    master.send(
        contract.UpdateFramework(
            framework_id="f1", info=framework_info("f1", "a", "b"), suppressed_roles=["b"]
        )
    )
    assert [o.role for o in master.add_agent("s1", "cpus:2;mem:1024")] == ["a"]


def test_a_framework_that_changes_its_name_takes_its_allocation_to_the_other_user() -> None:
    master = MasterSide(user_key="framework_name")
    master.add_framework("f1", "a", name="before")
    master.add_agent("s1", "cpus:2;mem:1024")
    assert master.engine.pool.standing("before").allocation["cpus"] == 2000
    master.send(
        contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "a", name="after"))
    )
    assert master.engine.pool.standing("after").allocation["cpus"] == 2000
    assert master.engine.pool.standing("before").allocation["cpus"] == 0


def test_a_revive_and_a_decline_in_one_message_both_take_effect() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    [two] = master.add_agent("s2", "cpus:2;mem:1024")
    assert master.recover(offer, refuse_seconds=3600) == []
    [next_offer] = master.send(
        contract.ReviveOffers(framework_id="f1"),
        contract.RecoverResources(
            framework_id="f1",
            agent_id="s2",
            resources=two.messages,
            filters=mesos.Filters(refuse_seconds=3600).SerializeToString(),
        ),
    )
    assert next_offer.agent == "s1"
    assert master.tick() == []


def for_clients(policy: str = "sdrf", *, rule: bool = True) -> MasterSide:
    """Return a master whose engine examines unchanged agents for revived clients only."""
    master = MasterSide(policy, {"half_life": 60.0} if policy == "sdrf" else {})
    master.settings = replace(
        master.settings, examines_for_clients=rule, skips_refusing_clients=True
    )
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    return master


@pytest.mark.parametrize("seed", range(12))
def test_agents_examined_for_revived_clients_are_offered_as_if_examined_for_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents are visited in one order, because their number determines a random order."""

    def by_name(_: Random, agents: list[Agent]) -> None:
        agents.sort(key=lambda agent: agent.id)

    monkeypatch.setattr(Random, "shuffle", by_name)
    chance, both = Random(seed), [for_clients(rule=rule) for rule in (False, True)]
    offers, known = list[Offered](), set[str]()
    for number in range(250):
        quota = contract.UpdateQuota(role="b")
        if seed % 4 == 0 and number == 50:
            quota.guarantees.amounts["cpus"] = 6.0
        calls: list[object] = [*events(both[0], chance, offers, known)]
        if seed % 4 == 0 and number in {50, 150}:
            calls.append(quota)
        if chance.random() < 0.3:
            for master in both:
                master.wait(1.0)
            calls.append(contract.Tick())
        expected, made = (master.send(*calls) for master in both)
        assert made == expected
        offers += made
    assert not both[1].engine.statistics.faults
    before, after = (master.engine.statistics.candidates for master in both)
    assert after < before


@pytest.mark.parametrize("suppressed", [0, 1])
def test_a_revival_of_a_client_that_fits_nowhere_visits_no_agent(suppressed: int) -> None:
    def cost(agents: int) -> tuple[int, int]:
        master = for_clients("drf")
        master.send(*[agent_call(f"s{number}", "cpus:4;mem:64") for number in range(agents)])
        for name in ("f", "g"):
            master.send(
                contract.AddFramework(
                    framework_id=name, info=info(name, [name], {"demand": "cpus:9"}), active=True
                )
            )
        master.tick()
        master.send(contract.ReviveOffers(framework_id="g"))
        if suppressed:
            master.send(contract.SuppressOffers(framework_id="f"))
        before = master.engine.statistics.candidates
        calls = counted(lambda: master.send(contract.ReviveOffers(framework_id="f")))
        return calls, master.engine.statistics.candidates - before

    cost(2)  # fills the caches
    (few, first), (many, second) = cost(50), cost(100)
    assert (first, second) == (0, 0)
    assert many <= few + (50 * 20 if suppressed else 0)


def test_void_calls_of_a_message_change_nothing_if_they_are_skipped() -> None:
    """A call is void if a later call of its framework about all roles overrules the call."""
    for seed in range(60):
        lot = Random(seed)
        masters = [with_settings(MasterSide(), skips_void_calls=skips) for skips in (False, True)]
        calls: list[object] = []
        for _ in range(lot.randrange(1, 12)):
            make = lot.choice([contract.SuppressOffers, contract.ReviveOffers])
            roles = lot.choice([[], [], [], ["a"], ["b"]])
            calls.append(make(framework_id=lot.choice("fg"), roles=roles))
            if lot.random() < 0.2:
                calls.append(agent_call(f"s{len(calls)}", "cpus:1;mem:64"))
        results = []
        for master in masters:
            master.add_framework("f", "a", "b")
            master.add_framework("g", "a")
            for offer in master.add_agent("s0", "cpus:2;mem:64"):
                master.recover(offer, refuse_seconds=60.0)
            master.send(*calls)
            offers = sorted((offer.agent, offer.resources) for offer in master.tick())
            frameworks = master.engine._cluster.ledger.frameworks.values()
            suppressed = {framework.id: set(framework.suppressed) for framework in frameworks}
            results.append((offers, suppressed, master.engine.filters))
        assert results[0] == results[1], seed


def test_a_message_with_many_suppress_and_revive_calls_costs_as_much_as_one_pair() -> None:
    def cost(pairs: int) -> int:
        master = with_settings(MasterSide(), skips_void_calls=True)
        master.add_framework("f", *(f"r{n}" for n in range(50)))
        suppress = contract.SuppressOffers(framework_id="f")
        pair = (suppress, contract.ReviveOffers(framework_id="f"))
        return counted(lambda: master.send(*pair * pairs))

    cost(1)  # fills the caches
    assert cost(100) <= cost(1) + 100 * 2 * 20
