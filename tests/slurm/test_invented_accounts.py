"""Invented accounts cost little, and do not lower the entitlements of real users."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from allocator.fairness.policies import create
from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import ClusterNode, SeenJob
from allocator.slurm.state import (
    MOST_UNKNOWN_ACCOUNTS,
    ClusterState,
    Observation,
    StateSettings,
)
from allocator.slurm.timelines import UserPath
from allocator.slurm.users import Associations, UserKey, user_path
from tests.counted import counted
from tests.slurm.test_order import job

POLICY = create("sdrf", {"half_life": 3600})
CAPACITY = Quantities.parse("cpus:100;mem:10000")
NODES = (ClusterNode("n1", "IDLE", frozenset(), CAPACITY, ("main",), None),)


def state_of(key: UserKey, **settings: float) -> ClusterState:
    return ClusterState(
        StateSettings(
            POLICY,
            key,
            counts_for=settings.get("counts_for", 4.0),
            lag=settings.get("lag", 1.0),
            forget_after=settings.get("forget_after", 86400.0),
            idle_users=int(settings.get("idle_users", 1000)),
        ),
        0.0,
    )


def pending(number: int, user: str, account: str, now: float) -> SeenJob:
    return SeenJob(job(number, user, account=account, submitted=now, eligible=now), 0.0)


def running(number: int, user: str, account: str, start: float, cores: int) -> SeenJob:
    held = Quantities.parse(f"cpus:{cores};mem:{cores}")
    begun = {"state": "RUNNING", "reason": "None", "submitted": start, "started": start}
    return SeenJob(job(number, user, account=account, quantities=held, **begun), 0.0)


def observe(state: ClusterState, now: float, jobs: Iterable[SeenJob]) -> None:
    state.observe(Observation(now, list(jobs), {}, NODES))


def come_and_go(state: ClusterState, accounts: int, *always: SeenJob) -> float:
    """Let pending jobs of ever other users and accounts be cancelled; return the time."""
    now, number = 10.0, 1000
    while number < 1000 + accounts:
        names = range(number, min(number + MOST_UNKNOWN_ACCOUNTS, 1000 + accounts))
        invented = [pending(name, f"user{name}", f"x{name}", now) for name in names]
        observe(state, now, [*always, *invented])
        number, now = number + MOST_UNKNOWN_ACCOUNTS, now + 10.0
    observe(state, now, always)
    observe(state, now + 10.0, always)
    return now + 10.0


def names(state: ClusterState) -> set[str]:
    return set(state.present().tree.names())


@pytest.mark.parametrize("key", ["user", "account", "tree"])
def test_users_without_jobs_and_commitments_stay_within_a_limit(key: UserKey) -> None:
    state = state_of(key, idle_users=40)
    come_and_go(state, 1000, running(1, "man", "lab", 1.0, 10))
    assert len(names(state)) <= 42
    assert {"user": "man", "account": "lab", "tree": "lab/man"}[key] in names(state)


@pytest.mark.parametrize("key", ["account", "tree"])
def test_a_user_with_a_commitment_outlasts_names_that_used_nothing(key: UserKey) -> None:
    state = state_of(key, idle_users=20)
    observe(state, 1.0, [running(1, "man", "lab", 1.0, 90), running(2, "ann", "physics", 1.0, 9)])
    observe(state, 1801.0, [])
    before = state.settled.tree.standing("lab")
    assert before is not None
    come_and_go(state, 200)
    assert "lab" in names(state)


@pytest.mark.parametrize("key", ["account", "tree"])
def test_a_reading_costs_the_same_beside_accounts_that_are_gone(key: UserKey) -> None:
    def cost(accounts: int) -> int:
        state = state_of(key, idle_users=50)
        now = come_and_go(state, accounts)

        def read() -> None:
            observe(state, now + 2.0, [pending(1, "man", "lab", now)])
            state.present()

        return counted(read)

    assert cost(2000) < 1.2 * cost(100)


def test_pending_jobs_of_one_user_count_for_a_bounded_number_of_unknown_accounts() -> None:
    jobs = [pending(number, "games", f"x{number}", 1.0) for number in range(1, 500)]
    jobs += [pending(1000, "man", "lab", 1.0)]
    state = state_of("account")
    observe(state, 2.0, jobs)
    assert len(state.pending) == MOST_UNKNOWN_ACCOUNTS + 1
    assert state.uncounted == {"games": 499 - MOST_UNKNOWN_ACCOUNTS}
    assert len(names(state)) == MOST_UNKNOWN_ACCOUNTS + 1
    observe(state, 4.0, jobs[300:])  # the first jobs are cancelled: the next jobs count
    assert len(state.pending) == MOST_UNKNOWN_ACCOUNTS + 1
    requeued = [SeenJob(replace(seen.job, restarts=1), 0.0) for seen in jobs]
    state = state_of("account")
    observe(state, 2.0, requeued)
    assert len(names(state)) == MOST_UNKNOWN_ACCOUNTS + 1, "whether they have run or not"
    known = Associations(shares={(f"x{number}", ""): 1.0 for number in range(1, 500)})
    state = state_of("account")
    state.set_associations(known)
    observe(state, 2.0, jobs)
    assert len(state.pending) == 500, "accounts of slurmdbd have no such limit"


@pytest.mark.parametrize("key", ["account", "tree"])
def test_accounts_that_hold_nothing_do_not_dilute_the_entitlements_of_others(key: UserKey) -> None:
    def commitments(counts_for: float, invented: int) -> dict[UserPath, float]:
        state = state_of(key, counts_for=counts_for)
        honest = [running(1, "man", "lab", 1.0, 50), running(2, "ann", "physics", 1.0, 40)]
        others = [pending(10 + number, "games", f"x{number}", 1.0) for number in range(invented)]
        for now in range(2, 3600, 120):
            observe(state, float(now), [*honest, *others])
        tree = state.settled
        return {
            path: max(tree.commitments(path)[0].values(), default=0.0)
            for path in tree.users()
            if not path[0].startswith("x")
        }

    assert commitments(4.0, 80) == pytest.approx(commitments(4.0, 0))
    assert commitments(math.inf, 80) != pytest.approx(commitments(math.inf, 0)), "as in the paper"


def test_a_requeued_job_beyond_the_limit_holds_its_resources_until_its_end() -> None:
    state = state_of("account", idle_users=10)
    first = [running(number, "games", f"x{number}", 1.0, 1) for number in range(1, 103)]
    observe(state, 2.0, first)
    requeued = [replace(seen.job, state="PENDING", started=None, restarts=1) for seen in first]
    for now in (4.0, 20.0):
        observe(state, now, [SeenJob(job, 0.0) for job in requeued])
    assert len(state.pending) == MOST_UNKNOWN_ACCOUNTS
    assert not state.present().tree.pool.held()


COORDINATED = Associations(
    {"ann": "phys"}, {("phys", ""): 1.0, ("ann", ""): 1.0, ("phys", "ann"): 1.0}
)


def test_an_account_with_the_name_of_a_running_user_stops_no_reading() -> None:
    state = state_of("tree", forget_after=100.0)
    state.set_associations(Associations({}, {("phys", ""): 1.0}))
    jobs = [running(1, "ann", "phys", 1.0, 10)]
    observe(state, 2.0, jobs)
    observe(state, 4.0, jobs)
    state.set_associations(COORDINATED)
    jobs += [running(2, "bob", "ann", 5.0, 20)]
    for now in (6.0, 8.0, 10.0):
        observe(state, now, jobs)
    tree = state.present()
    held = {path: tree.standing(path).allocation.to_doubles()["cpus"] for path in tree.users()}
    assert held == {("phys", "ann", "."): 10.0, ("phys", "ann", "bob"): 20.0}
    observe(state, 12.0, jobs[1:])
    observe(state, 14.0, jobs[1:])
    assert not state.present().standing(("phys", "ann", ".")).allocation
    for now in (16.0, 18.0, 50_000.0, 100_000.0):
        observe(state, now, [])
    assert names(state) == set(), "users, accounts and leaves are forgotten"


def test_no_account_has_the_name_of_a_user_beside_it() -> None:
    parents = {"ann": "phys", "ann (user)": "phys", "(no account)": "phys"}
    tree = Associations(parents, {(account, ""): 1.0 for account in ("phys", *parents)})
    paths = {
        *(tree.path(account) for account in ("", *parents)),
        tree.user_path("ann", "phys"),
        tree.user_path("ann (user)", "phys"),
    }
    assert len(paths) == 6
    assert tree.user_path("ann", "phys") == ("phys", "ann (user)")
    assert len({user_path("ann", account, "account", tree) for account in ("", *parents)}) == 4


def test_the_readings_of_many_accounts_cost_a_multiple_of_their_number() -> None:
    def cost(accounts: int, seconds: int = 1) -> int:
        state = state_of("tree", lag=60.0)
        known = [f"x{number}" for number in range(accounts)]
        shares = dict.fromkeys(((account, "") for account in known), 1.0)
        state.set_associations(Associations(dict.fromkeys(known, "phys"), shares))
        jobs = [
            pending(10 + number, "games", name, 3.0 + number % seconds)
            for number, name in enumerate(known)
        ]
        observe(state, 2.0, [])
        observe(state, 56.0, jobs)
        return counted(state.present)

    assert cost(400, seconds=50) < 4 * cost(400), "however many times users begin to count at"
    assert cost(400) < 6 * cost(100)


def test_nested_accounts_cost_no_more_than_a_bounded_number_of_levels() -> None:
    def cost(levels: int) -> int:
        chain = [f"{number:03d}{'x' * 252}" for number in range(levels)]
        leaves = [f"leaf{number}{'x' * 240}" for number in range(50)]
        parents = {account: above for above, account in itertools.pairwise(["phys", *chain])}
        parents |= dict.fromkeys(leaves, chain[-1])
        state = state_of("tree")
        shares = dict.fromkeys(((account, "") for account in ("phys", *parents)), 1.0)
        state.set_associations(Associations(parents, shares))
        jobs = [pending(10 + number, "games", name, 3.0) for number, name in enumerate(leaves)]
        observe(state, 2.0, [])

        def read() -> None:
            observe(state, 3.5, jobs)
            observe(state, 6.5, jobs)
            state.present()

        return counted(read)

    assert cost(200) < 1.1 * cost(14)
