"""Agents that a client may use, given its placement constraint and its excluded agents."""

import gc
import weakref
from dataclasses import replace
from random import Random

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.offers.offer_constraints import Exclusions, _members
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.machines import AllExcept
from tests.cluster.master_side import MasterSide, agent_call, framework_info
from tests.cluster.test_hopeless_clients import lines
from tests.examples import scaled

PICKY, OTHER = Client("a", "picky"), Client("a", "other")


def test_a_client_may_use_agents_that_its_constraint_admits_and_that_it_does_not_exclude() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1"]})
    may_use = exclusions.may_use(PICKY, None)
    assert may_use is not None
    assert [may_use(agent) for agent in ("s1", "s2")] == [False, True]
    both = exclusions.may_use(PICKY, {"s1", "s3"}.__contains__)
    assert both is not None
    assert [both(agent) for agent in ("s1", "s2", "s3")] == [False, False, True]
    assert exclusions.may_use(OTHER, None) is None, "a client without exclusions may use all agents"


def test_the_combined_constraint_is_the_same_object_until_the_constraint_changes() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1"]})
    may_use = exclusions.may_use(PICKY, None)
    assert may_use is not None
    exclusions.put_agent("s2", [PICKY])
    assert exclusions.may_use(PICKY, None) is may_use
    assert not may_use("s2")


def test_a_new_list_of_exclusions_replaces_the_former_list() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1"]})
    exclusions.put_framework("picky", {"a": ["s2"]})
    may_use = exclusions.may_use(PICKY, None)
    assert may_use is not None
    assert [may_use(agent) for agent in ("s1", "s2")] == [True, False]


class Constraint:
    """A placement constraint that can be removed."""

    def __call__(self, agent: str) -> bool:
        return agent == "s1"


@pytest.mark.parametrize("gone", [True, False])
def test_nothing_is_kept_for_a_client_without_exclusions(*, gone: bool) -> None:
    exclusions, constraint = Exclusions(), Constraint()
    exclusions.add_framework("picky", {"a": ["s1", "s2"]})
    both = exclusions.may_use(PICKY, constraint)
    assert both is exclusions.may_use(PICKY, constraint)
    kept = weakref.ref(constraint)
    del both, constraint
    if gone:
        exclusions.discard_framework("picky")
    else:
        for agent in ("s1", "s2"):
            assert exclusions.put_agent(agent, []) == [PICKY]
    gc.collect()
    assert kept() is None
    assert exclusions.number(PICKY) == 0
    assert [exclusions.excludes(PICKY, agent) for agent in ("s1", "s2")] == [False, False]
    assert [list(exclusions.of(agent)) for agent in ("s1", "s2")] == [[], []]


def test_a_framework_with_too_many_pairs_is_unlisted_and_the_others_are_not() -> None:
    exclusions = Exclusions(most=3)
    exclusions.add_framework("other", {"a": ["s1", "s2", "s3"]})
    exclusions.add_framework("picky", {"a": ["s1", "s2"], "b": ["s1", "s2", "s3"]})
    [(framework, flaw)] = exclusions.take_unlisted()
    assert (framework, flaw.reason) == ("picky", "limit")
    assert "limits.exclusions" in flaw.words
    assert exclusions.number(PICKY) == 0, "no memory is spent on an unlisted framework"
    assert exclusions.number(OTHER) == 3
    assert exclusions.put_agent("s4", [PICKY]) == []
    exclusions.put_framework("picky", {"a": ["s1"]})
    assert exclusions.number(PICKY) == 1, "an update lists all exclusions again"
    assert exclusions.take_unlisted() == []


def test_an_agent_that_brings_a_framework_beyond_the_limit_keeps_the_others_exclusions() -> None:
    exclusions = Exclusions(most=2)
    exclusions.add_framework("picky", {"a": ["s1", "s2"]})
    exclusions.put_agent("s2", [OTHER, PICKY])
    exclusions.put_agent("s3", [OTHER, PICKY])
    assert [name for name, _ in exclusions.take_unlisted()] == ["picky"]
    assert [exclusions.number(client) for client in (OTHER, PICKY)] == [2, 0]
    assert list(exclusions.of("s3")) == [OTHER]


def test_beyond_the_limit_of_all_frameworks_the_one_with_the_most_pairs_is_unlisted() -> None:
    exclusions = Exclusions(most_of_all=10)
    exclusions.add_framework("picky", {"a": [f"s{number}" for number in range(8)]})
    for name in ("x", "y", "z"):
        exclusions.add_framework(name, {"a": ["s1"]})
    assert [name for name, _ in exclusions.take_unlisted()] == ["picky"]
    assert all(exclusions.number(Client("a", name)) == 1 for name in "xyz")


def test_a_principal_with_many_frameworks_displaces_no_framework_of_another_principal() -> None:
    exclusions = Exclusions(most_of_all=20)
    exclusions.add_framework("picky", {"a": [f"s{number}" for number in range(9)]}, "honest")
    for number in range(8):
        exclusions.add_framework(f"f{number}", {"a": [f"s{agent}" for agent in range(8)]}, "crowd")
    assert exclusions.number(PICKY) == 9
    assert {name for name, _ in exclusions.take_unlisted()} == {
        f"f{number}" for number in range(1, 8)
    }


def test_as_many_frameworks_are_unlisted_as_exceed_the_limit_of_all_frameworks() -> None:
    exclusions = Exclusions(most_of_all=20)
    exclusions.add_framework("picky", {"a": [f"s{number}" for number in range(6)]}, "honest")
    for number in range(7):
        exclusions.add_framework(f"f{number}", {"a": ["s1", "s2"]}, "crowd")
    exclusions.add_framework("large", {"a": [f"s{number}" for number in range(8)]}, "second")
    pairs = [exclusions.number(Client("a", f"f{number}")) for number in range(7)]
    assert pairs == [2, 2, 2, 0, 0, 0, 0], "14 + 6 + 8 pairs are 8 too many"
    assert exclusions.number(PICKY) == 6
    assert len(exclusions.take_unlisted()) == 4


@pytest.mark.parametrize("agents_list_them", [False, True])
def test_the_principal_with_the_most_pairs_of_a_snapshot_loses_its_list(
    *, agents_list_them: bool
) -> None:
    master = MasterSide(limits=Limits(exclusions=400, all_exclusions=500))
    frameworks = {"honest": ("good", 90), **{f"f{number}": ("evil", 80) for number in range(8)}}
    snapshot = contract.Snapshot(time_ns=master.now_ns)
    for number in range(100):
        agent = agent_call(f"s{number}", "cpus:4;mem:4096")
        for name, (_, pairs) in frameworks.items():
            if agents_list_them and number < pairs:
                agent.excluded.exclusions.add(framework_id=name, role="r")
        snapshot.agents.append(agent)
    for name, (principal, pairs) in frameworks.items():
        info = framework_info(name, "r", principal=principal)
        call = snapshot.frameworks.add(framework_id=name, info=info, active=True)
        if not agents_list_them:
            call.excluded.add(role="r", agent_ids=[f"s{number}" for number in range(pairs)])
    master.settings = replace(master.settings, roles_leave_room=True)
    master.engine = Engine(master.settings)
    master.restore(snapshot)
    set_aside = set(master.engine.misfits())
    assert "honest" not in set_aside
    assert len(set_aside) == 3, "630 and 80 pairs of evil frameworks leave less than 500"


def test_to_discard_a_framework_costs_the_same_beside_any_number_of_others() -> None:
    def cost(count: int) -> int:
        exclusions = Exclusions()
        exclusions.add_framework("picky", {"a": ["s1"], "b": ["s1", "s2"]})
        for number in range(count):
            exclusions.add_framework(f"other{number}", {"a": ["s1"]})
        steps = lines(lambda: exclusions.discard_framework("picky"))
        assert list(exclusions.of("s2")) == []
        assert len(exclusions.of("s1")) == count
        return steps

    assert cost(100) == cost(1)


def test_an_update_has_the_result_of_a_removal_and_an_addition() -> None:
    for seed in range(scaled(60)):
        lot = Random(seed)
        limits = lot.choice([(0, 0), (9, 0), (0, 14), (9, 14)])
        updated, replaced = Exclusions(*limits), Exclusions(*limits)
        for _ in range(30):
            framework, principal = lot.choice("fgh"), lot.choice(["", "p", "q"])
            agents = {
                role: lot.sample(["s1", "s2", "s3", "s4"], lot.randrange(5))
                for role in lot.sample("abc", lot.randrange(4))
            }
            updated.put_framework(framework, agents, principal)
            replaced.discard_framework(framework)
            replaced.add_framework(framework, agents, principal)
            assert state(updated) == state(replaced), seed
            assert updated.take_unlisted() == replaced.take_unlisted(), seed


def test_exclusions_are_the_pairs_of_the_last_reports() -> None:
    agents = ["s1", "s2", "s3", "s4", "s5"]
    for seed in range(scaled(60)):
        lot, exclusions = Random(seed), Exclusions()
        roles = lot.choice(["abcd", "abcdefghij"])
        expected: set[tuple[Client, str]] = set()
        for _ in range(40):
            framework, agent = lot.choice("fg"), lot.choice(agents)
            kind = lot.choice(["put", "put", "add", "discard", "agent", "agent"])
            if kind == "agent":
                clients = {Client(lot.choice(roles), lot.choice("fg")) for _ in range(4)}
                before = {client for client, name in expected if name == agent}
                assert exclusions.put_agent(agent, clients) == sorted(before ^ clients)
                expected = {pair for pair in expected if pair[1] != agent}
                expected |= {(client, agent) for client in clients}
            else:
                lists = [lot.sample(agents, lot.randrange(5)) for _ in range(2)]
                excluded = {role: lot.choice(lists) for role in lot.sample(roles, lot.randrange(5))}
                excluded |= {role: lists[0] for role in roles if lot.random() < 0.3}
                if kind != "add":
                    expected = {pair for pair in expected if pair[0].framework != framework}
                if kind == "discard":
                    exclusions.discard_framework(framework)
                else:
                    report = exclusions.put_framework if kind == "put" else exclusions.add_framework
                    report(framework, excluded)
                    expected |= {
                        (Client(role, framework), name)
                        for role, names in excluded.items()
                        for name in names
                    }
            for name in agents:
                listed = list(exclusions.of(name))
                assert len(listed) == len(set(listed))
                assert {(client, name) for client in listed} == {
                    pair for pair in expected if pair[1] == name
                }
                assert {(client, name) for client in by_rows(exclusions, name)} == {
                    pair for pair in expected if pair[1] == name
                }
            for client in (Client(role, framework) for role in roles for framework in "fg"):
                excluded_agents = {name for owner, name in expected if owner == client}
                assert exclusions.number(client) == len(excluded_agents)
                predicate = exclusions.may_use(client, None)
                for name in agents:
                    assert exclusions.excludes(client, name) == (name in excluded_agents)
                    assert (predicate is None or predicate(name)) == (name not in excluded_agents)
                named = [*predicate.excluded] if isinstance(predicate, AllExcept) else []
                assert sorted(named) == sorted(excluded_agents)
                assert len(named) == len(excluded_agents)
            assert exclusions._total == len(expected)
            assert len(exclusions) == len({client for client, _ in expected})
        exclusions.discard_framework("f")
        exclusions.discard_framework("g")
        assert not any((exclusions._numbers, exclusions._frameworks, exclusions._pairs))
        assert len(exclusions._names) <= len(agents)


def by_rows(exclusions: Exclusions, agent: str) -> list[Client]:
    """Return the excluding clients of an agent, read from the rows of their frameworks."""
    clients = list[Client]()
    for framework in exclusions.frameworks(agent):
        roles, row = exclusions.row(framework, agent)
        bits = int.from_bytes(row, "little")
        clients += [Client(role, framework) for n, role in enumerate(roles) if bits >> n & 1]
    return clients


def test_a_predicate_stays_right_after_roles_with_one_list_differ() -> None:
    exclusions, second = Exclusions(), Client("b", "picky")
    exclusions.put_framework("picky", {"a": ["s1"], "b": ["s1"]})
    predicates = [exclusions.may_use(client, None) for client in (PICKY, second)]
    exclusions.put_agent("s2", {second})
    assert [exclusions.may_use(client, None) for client in (PICKY, second)] == predicates
    assert [predicate is not None and predicate("s2") for predicate in predicates] == [True, False]


@pytest.mark.interpreted
def test_roles_with_equal_lists_cost_no_more_than_a_role() -> None:
    def cost(roles: int) -> int:
        exclusions = Exclusions()
        halves = [[f"s{number}" for number in range(half, 1000, 2)] for half in range(2)]
        first, second = ({f"r{number}": half for number in range(roles)} for half in halves)
        exclusions.put_framework("picky", first)
        return lines(lambda: exclusions.put_framework("picky", second))

    assert cost(50) < 1.5 * cost(1)


def test_the_number_of_former_roles_does_not_matter() -> None:
    exclusions = Exclusions()
    for number in range(300):
        exclusions.put_framework("picky", {f"r{number}": ["s1"], f"r{number + 1}": ["s1", "s2"]})
        exclusions.put_agent("s2", {Client("other", "picky")})
    assert len(exclusions._pairs["picky"].masks) < 4
    assert len(exclusions._names) == 2


def test_an_agent_may_unlist_a_framework_that_no_longer_excludes_it() -> None:
    exclusions = Exclusions(most_of_all=4)
    exclusions.add_framework("large", {"z": ["s1", "s2", "s3", "s4"]})
    exclusions.put_agent("s1", {Client("a", "small"), Client("b", "small")})
    assert [name for name, _ in exclusions.take_unlisted()] == ["large"]
    assert sorted(exclusions.of("s1")) == [Client("a", "small"), Client("b", "small")]
    assert not exclusions.of("s2")


def state(exclusions: Exclusions) -> tuple[object, ...]:
    """Return all facts that decisions and limits depend on."""
    return (
        {
            (framework, role): {*_members(mask, exclusions._names)}
            for framework, pairs in exclusions._pairs.items()
            for role, mask in pairs.masks.items()
        },
        {agent: sorted(exclusions.of(agent)) for agent in exclusions._frameworks},
        {framework: pairs.number for framework, pairs in exclusions._pairs.items()},
        exclusions._principals,
        exclusions._total,
        exclusions._unlisted,
    )


def test_a_client_gets_a_new_predicate_if_an_update_changes_its_agents() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1", "s2"]})
    former = exclusions.may_use(PICKY, None)
    exclusions.put_framework("picky", {"a": ["s2", "s1"]})
    assert exclusions.may_use(PICKY, None) is former
    assert not exclusions.take_changes().agents
    exclusions.put_framework("picky", {"a": ["s2", "s3"]})
    assert exclusions.may_use(PICKY, None) is not former
    assert exclusions.take_changes().clients == {PICKY: None}


@pytest.mark.interpreted
def test_roles_with_different_lists_run_no_code_for_a_pair() -> None:
    names = [f"s{number}" for number in range(1000)]

    def cost(roles: int) -> int:
        lot, exclusions = Random(1), Exclusions()
        exclusions.add_framework("other", {"a": names})
        first, second = (
            {f"r{number}": lot.sample(names, 500) for number in range(roles)} for _ in range(2)
        )
        exclusions.put_framework("picky", {"all": names, **first})
        return lines(lambda: exclusions.put_framework("picky", {"all": names, **second}))

    assert cost(40) - cost(10) < 30 * 50, "a role of 500 agents runs fewer than 50 lines"


@pytest.mark.interpreted
def test_an_agent_reads_its_excluding_roles_eight_at_a_time() -> None:
    def cost(roles: int) -> int:
        lot, made = Random(1), MasterSide("drf", {})
        made.send(*(agent_call(f"s{number}", "cpus:4;mem:64") for number in range(50)))
        info = framework_info("f", *(f"r{number}" for number in range(roles)))
        call = contract.AddFramework(framework_id="f", info=info, active=True)
        for role in range(roles):
            excluded = [f"s{number}" for number in range(50) if lot.random() < 0.5]
            call.excluded.add(role=f"r{role}", agent_ids=excluded)
        made.send(call)
        index = made.engine._cycle._allocator._index
        index.update()
        index._excluded.clear()
        return lines(lambda: [index.excluded_from(f"s{number}") for number in range(50)])

    assert cost(80) - cost(8) < 50 * 72 * 3, "a role costs an agent fewer than 3 lines"


@pytest.mark.interpreted
def test_an_update_costs_nothing_for_each_pair_that_stays() -> None:
    def cost(agents: int) -> int:
        exclusions = Exclusions()
        names = [f"s{number}" for number in range(agents)]
        exclusions.add_framework("picky", {"a": names, "b": names})
        update = {"a": names, "b": [*names[1:], "new"]}
        return lines(lambda: exclusions.put_framework("picky", update))

    assert cost(500) == cost(10)


@pytest.mark.interpreted
def test_a_list_beyond_the_limit_is_not_recorded_pair_by_pair() -> None:
    exclusions, names = Exclusions(most=1000), [f"s{number}" for number in range(600)]
    update = {"a": names, "b": names}
    for _ in range(2):
        assert lines(lambda: exclusions.put_framework("picky", update)) < 150
        [(_, flaw)] = exclusions.take_unlisted()
        assert "1200 pairs" in flaw.words
