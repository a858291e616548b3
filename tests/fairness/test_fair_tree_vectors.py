"""Slurm's own `fair_tree.c` and Longshare order the users of random account trees alike.

The vectors are results of this file's function, of 20 August 2026, computed outside this
repository. Each association has a number, its parent's number, shares, raw use, and a rank: the
highest rank is first, and 0 marks an account.
"""

import json
from itertools import combinations
from pathlib import Path

from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

VECTORS = Path(__file__).parent / "vectors" / "slurm-fair-tree.json"
Row = tuple[int, int, int, int, int]


def pools_of(rows: dict[int, Row]) -> dict[int, Pool[int]]:
    """Make a pool of each account's children, with their use in Slurm."""
    pools: dict[int, Pool[int]] = {}
    for number, parent, shares, use, _rank in rows.values():
        if parent < 0:
            continue
        policy = policies.create("slurm-fair-tree", {})
        pool = pools.setdefault(parent, Pool(policy, capacity=Quantities({"cpus": 1000})))
        pool.add(number, weight=float(shares), commitment={"use": use / 1e6})
        pool.set_active(number, True)
    return pools


def ancestry(rows: dict[int, Row], number: int) -> list[int]:
    chain = [number]
    while rows[chain[0]][1] >= 0:
        chain.insert(0, rows[chain[0]][1])
    return chain


def test_of_two_users_the_one_with_the_higher_rank_in_slurm_is_first_here() -> None:
    compared = tied = 0
    for case in json.loads(VECTORS.read_text()):
        rows: dict[int, Row] = {row[0]: tuple(row) for row in case["tree"]}
        pools = pools_of(rows)
        users = [row for row in rows.values() if row[4]]
        for former, latter in combinations(users, 2):
            mine, theirs = ancestry(rows, former[0]), ancestry(rows, latter[0])
            level = next(k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
            pool = pools[mine[level - 1]]
            first, second = mine[level], theirs[level]
            ahead = pool.standing(second).priority - pool.standing(first).priority
            if ahead == 0.0:
                tied += 1
                continue
            order = list(pool)
            assert (ahead > 0.0) == (order.index(first) < order.index(second))
            assert (ahead > 0.0) == (former[4] > latter[4]), (case, former, latter)
            compared += 1
    assert (compared, tied) == (1836, 94)


def test_slurms_code_does_not_merge_tied_accounts_although_its_documentation_says_otherwise() -> (
    None
):
    """Users without use come after users with use, because their account was added later."""
    unordered = 0
    for case in json.loads(VECTORS.read_text()):
        accounts = [row for row in case["tree"] if not row[4] and row[3]]
        for first, second in combinations(accounts, 2):
            if first[1] != second[1] or first[3] * second[2] != second[3] * first[2]:
                continue
            ranks = [
                {row[4]: row[3] for row in case["tree"] if row[1] == account[0] and row[4]}
                for account in (first, second)
            ]
            if ranks[0] and ranks[1]:
                used = [use for _rank, use in sorted({**ranks[0], **ranks[1]}.items())]
                unordered += used != sorted(used, reverse=True)
    assert unordered == 2
