"""Shares count among siblings: a coordinator's accounts divide its account's entitlement only."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from allocator.fairness.quantities import Quantities
from allocator.slurm.order import order_jobs
from allocator.slurm.state import ClusterState, Observation
from allocator.slurm.users import Associations, UserKey
from tests.slurm.test_invented_accounts import (
    COORDINATED,
    NODES,
    observe,
    pending,
    running,
    state_of,
)

HIGHEST = 2_147_483_646.0
"""The highest share that sacctmgr accepts."""
TREES: tuple[UserKey, ...] = ("account", "tree")
FLAT = Associations(shares={("lab", ""): 2.0, ("physics", ""): 1.0, ("physics", "ann"): 7.0})


def coordinated(accounts: int) -> Associations:
    """Two accounts with equal shares; the coordinator of one has added accounts below it."""
    added = [f"p{number:02d}" for number in range(accounts)]
    shares = {("lab", ""): 1.0, ("lab", "man"): 1.0, ("physics", ""): 1.0, ("physics", "ann"): 1.0}
    for account in added:
        shares |= {(account, ""): HIGHEST, (account, "games"): HIGHEST}
    return Associations(dict.fromkeys(added, "physics"), shares)


def order(state: ClusterState) -> str:
    """Return the first letters of the users, in the order of their jobs."""
    placed = order_jobs(
        state.present(),
        state.pending,
        {},
        {node.name: node for node in NODES},
        {},
        ahead=100,
        tasks_ahead=100,
    ).placed
    return "".join(entry.job.user[0] for entry in placed)


@pytest.mark.parametrize("key", TREES)
def test_accounts_of_a_coordinator_take_turns_as_its_account_alone(key: UserKey) -> None:
    def turns(accounts: int) -> str:
        state = state_of(key)
        state.set_associations(coordinated(accounts))
        jobs = [pending(number, "man", "lab", 1.0) for number in range(1, 11)]
        for number in range(10):
            account = f"p{number % accounts:02d}" if accounts else "physics"
            jobs.append(pending(100 + number, "games", account, 1.0))
        observe(state, 2.0, jobs)
        observe(state, 10.0, jobs)
        return order(state)

    assert turns(0) == "mg" * 10
    assert turns(1) == turns(10) == turns(0)


@pytest.mark.parametrize("key", TREES)
def test_new_accounts_of_a_coordinator_begin_with_the_commitment_of_its_account(
    key: UserKey,
) -> None:
    state = state_of(key)
    state.set_associations(coordinated(20))
    honest = running(1, "man", "lab", 1.0, 5)
    for number in range(20):  # each account runs one job, for a minute
        now = 60.0 * number + 2.0
        jobs = [honest, running(10 + number, "games", f"p{number:02d}", now, 95)]
        observe(state, now, jobs)
        observe(state, now + 59.0, jobs)
    state.set_associations(coordinated(30))
    jobs = [pending(100 + number, "games", f"p{20 + number:02d}", now) for number in range(10)]
    jobs += [pending(200 + number, "man", "lab", now) for number in range(3)]
    observe(state, now + 60.0, jobs)
    observe(state, now + 70.0, jobs)
    assert order(state).startswith("mmmg")


@pytest.mark.parametrize("key", TREES)
def test_shares_of_a_coordinator_change_no_entitlement_but_those_of_its_account(
    key: UserKey,
) -> None:
    state = state_of(key)
    state.set_associations(coordinated(10))
    jobs = [running(1, "man", "lab", 1.0, 10), running(2, "ann", "physics", 1.0, 10)]
    jobs += [running(10 + number, "games", f"p{number:02d}", 1.0, 1) for number in range(10)]
    observe(state, 2.0, jobs)
    observe(state, 10.0, jobs)
    tree = state.present()
    assert tree.standing(("lab",)).entitlement == pytest.approx(0.5)
    assert tree.standing(("physics",)).entitlement == pytest.approx(0.5)
    assert tree.standing(("physics",)).allocation == Quantities.parse("cpus:20;mem:20")


@pytest.mark.parametrize("key", TREES)
def test_accounts_below_the_lowest_level_have_no_shares_beside_accounts_above(
    key: UserKey,
) -> None:
    chain = [f"a{level}" for level in range(1, 18)]
    parents = {account: above for above, account in itertools.pairwise(chain)}
    parents["beside"] = "a14"
    shares = dict.fromkeys(((account, "") for account in (*chain, "beside")), 1.0)
    shares |= {("a17", ""): HIGHEST, ("a17", "ann"): HIGHEST, ("a15", "ann"): 3.0}
    tree = Associations(parents, shares)
    lowest = tuple(chain[:15])
    assert tree.path("a15") == tree.path("a17") == lowest
    weights = tree.weights(key)
    expected = {lowest[:depth]: 1.0 for depth in range(1, 16)} | {(*lowest[:14], "beside"): 1.0}
    if key == "tree":
        expected[*lowest, "ann"] = 3.0
    assert weights == expected
    assert tree.account_path("a17") == tree.account_path("a15") == lowest


def test_own_jobs_of_an_account_compete_with_its_sub_accounts_by_the_shares_of_its_users() -> None:
    shares = {("physics", ""): 3.0, ("p", ""): 2.0, ("p", "ann"): 9.0}
    shares |= {("physics", "ann"): 4.0, ("physics", "bob"): 1.0}
    tree = Associations({"p": "physics"}, shares)
    assert tree.weights("account") == {
        ("physics",): 3.0,
        ("physics", "p"): 2.0,
        ("physics", "physics"): 5.0,
    }
    assert tree.account_path("physics") == ("physics", "physics")
    assert tree.account_path("p") == ("physics", "p")


def test_accounts_without_sub_accounts_have_their_own_shares() -> None:
    assert FLAT.weights("account") == {("lab",): 2.0, ("physics",): 1.0}
    assert FLAT.account_path("physics") == ("physics",)
    assert FLAT.weights("user") == {}


def test_jobs_of_an_account_count_once_when_its_first_sub_account_comes_and_goes() -> None:
    state = state_of("account", forget_after=100.0)
    state.set_associations(Associations({}, {("phys", ""): 1.0}))
    jobs = [running(1, "ann", "phys", 1.0, 10), pending(3, "ann", "phys", 1.0)]

    def held(now: float) -> dict[str, float]:
        observe(state, now, jobs)
        tree = state.present()
        assert order(state) == "a"
        return {
            "/".join(path): cores
            for path in tree.users()
            if (cores := tree.standing(path).allocation.to_doubles().get("cpus", 0.0))
        }

    assert held(2.0) == held(4.0) == {"phys": 10.0}
    state.set_associations(COORDINATED)
    jobs += [running(2, "bob", "ann", 5.0, 20), running(4, "ann", "phys", 5.0, 1)]
    for now in (6.0, 8.0, 10.0):
        assert held(now) == {"phys/.": 10.0, "phys/ann": 20.0, "phys/phys": 1.0}
    del jobs[2]
    state.set_associations(Associations({}, {("phys", ""): 1.0}))
    for now in (12.0, 14.0):
        assert held(now) == {"phys/.": 10.0, "phys/phys": 1.0}
    jobs.clear()
    for now in (16.0, 18.0, 50_000.0, 100_000.0):
        state.observe(Observation(now, [], {}, NODES))
    assert not state.present().tree.names()


@pytest.mark.parametrize("key", TREES)
@pytest.mark.parametrize("restarts", [0, 1])
def test_jobs_that_change_to_a_new_account_wait_for_its_place_in_the_tree(
    key: UserKey, restarts: int
) -> None:
    state = state_of(key, lag=60.0)
    state.set_associations(coordinated(0), listed=1.0)
    jobs = [pending(1, "man", "lab", 0.5), pending(2, "games", "physics", 0.5)]
    jobs = [seen._replace(job=replace(seen.job, restarts=restarts)) for seen in jobs]
    observe(state, 2.0, jobs)
    jobs[1] = jobs[1]._replace(job=replace(jobs[1].job, account="p00"))
    jobs.append(jobs[1]._replace(job=replace(jobs[1].job, number=3)))  # split from its array
    for now in (4.0, 6.0):
        observe(state, now, jobs)
        assert order(state) == "m"
        assert {seen.number for seen in state.awaiting} == {2, 3}
    state.set_associations(coordinated(1), listed=5.0)
    observe(state, 8.0, jobs)
    assert order(state) == "mgg"
    assert not state.awaiting
    assert {user[0] for _, user in state.pending} == {"lab", "physics"}


def test_jobs_with_accounts_that_the_tree_never_has_wait_no_longer_than_the_lag() -> None:
    state = state_of("account", lag=60.0)
    state.set_associations(coordinated(0), listed=1.0)
    job = pending(2, "games", "physics", 0.5)
    observe(state, 2.0, [job])
    job = job._replace(job=replace(job.job, account="x"))
    observe(state, 4.0, [job])
    observe(state, 63.0, [job])
    assert order(state) == ""
    observe(state, 65.0, [job])
    assert order(state) == "g"


def random_tree(random: Random, names: Sequence[str]) -> Associations:
    """Return a tree of some of the accounts, in random places."""
    chosen = random.sample(names, random.randint(1, len(names)))
    parents = {
        name: random.choice(chosen[:place])
        for place, name in enumerate(chosen)
        if place and random.random() < 0.8
    }
    return Associations(parents, {(name, ""): 1.0 for name in chosen})


def above(account: str, parents: Mapping[str, str]) -> list[str]:
    """Return the accounts above an account, up to the top."""
    path: list[str] = []
    while account in parents:
        account = parents[account]
        assert account not in path
        path.append(account)
    return path


def test_accounts_stay_below_all_their_former_accounts_whatever_moves() -> None:
    random = Random(5)
    accepted = 0
    for _ in range(500):
        former, present = (random_tree(random, "abcdefgh") for _ in range(2))
        moves = present.moves_out(former)
        kept = {account: before for account, (before, _) in moves.items()}
        parents = {name: up for name, up in ({**present.parents, **kept}).items() if up}
        for account in sorted(former.accounts & present.accounts):
            remaining = [
                name for name in above(account, former.parents) if name in present.accounts
            ]
            assert set(remaining) <= set(above(account, parents))
            accepted += parents.get(account, "") != "".join(remaining[:1])
    assert accepted > 50


def test_commitments_stored_by_name_of_account_are_restored_and_decay() -> None:
    """Former versions stored all accounts at the top level."""
    former = state_of("user")
    for now in (2.0, 3600.0, 3602.0):
        observe(former, now, [running(1, "p00", "", 1.0, 90), running(2, "lab", "", 1.0, 5)])
    state = state_of("account")
    state.inherit(former.settled.tree.memory())
    state.set_associations(coordinated(1))
    jobs = [running(3, "games", "p00", 3611.0, 10)]
    observe(state, 3612.0, jobs)
    observe(state, 3620.0, jobs)
    assert {"p00", "lab", "physics/p00"} <= set(state.present().tree.names())
    for now in (200_000.0, 400_000.0, 800_000.0):
        observe(state, now, [])
    assert not state.present().tree.names()
