"""A whole simulation of one pool: the steps of allocator.fairness.pool, without its objects.

Every number is worked out by the same operations in the same order as there, so it is the same
number to the last bit; comments name the counterparts.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import entry, kernel
from allocator.simulation.kernels.finishes import Finishes, pop, push
from allocator.simulation.kernels.fits import Needs, first_that_fits, fits, set_need
from allocator.simulation.kernels.tournament import NOBODY, Tournament, advance, change, play_all

FIFO, KEY_OF_ONE, DRF, SDRF_JOURNAL, SDRF_THESIS = range(5)
"""How lines come from what a user holds and owes."""

NOTHING = -1
"""No task."""

NEXT, RUNNING, SLOTS, STARTS, TURNS, KNOWN, ACTIVE, STALE, REBASES = range(9)
"""Places in `Pool.counters`: the next task to be submitted, how many run, how many slots have
been used, how many tasks have started, turns given, users known, users active, whether all
accounts are settled but not rated, and how often all were rated anew."""
NOW, BASE, S = range(3)
"""Places in `Pool.clock`: seconds, seconds, and e^(−(now − base)/τ)."""


class Rule(NamedTuple):
    """What is simulated."""

    kind: int
    tau: float
    """Seconds; only for those that remember."""
    rebased_after: float
    """Seconds."""
    resource: int
    """Place of the one that counts, under KEY_OF_ONE; below 0: it is not shared."""
    counted: NDArray[np.int64]
    """Places of resources of which there is a capacity."""
    appearing: bool
    skip: bool
    remembers: bool


class Tasks(NamedTuple):
    """Columns of the trace, and where the starts go."""

    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    party: NDArray[np.int32]
    """The user, or who else is ranked."""
    demand: NDArray[np.float64]
    started: NDArray[np.int64]
    following: NDArray[np.int32]
    """The party's next task, once that is submitted."""


class Parties(NamedTuple):
    """One entry per party: its account, and its queue."""

    allocation: NDArray[np.int64]
    share: NDArray[np.float64]
    overuse: NDArray[np.float64]
    commitment: NDArray[np.float64]
    settled_at: NDArray[np.float64]
    known: NDArray[np.bool_]
    active: NDArray[np.bool_]
    turn: NDArray[np.int64]
    lines: NDArray[np.float64]
    head: NDArray[np.int32]
    tail: NDArray[np.int32]
    need: NDArray[np.int64]
    """What the head needs."""


class Pool(NamedTuple):
    """All that changes."""

    tasks: Tasks
    parties: Parties
    running: Finishes
    tree: Tournament
    needs: Needs
    capacity: NDArray[np.int64]
    scale: NDArray[np.float64]
    """Parts in a unit of each resource."""
    rounded: NDArray[np.bool_]
    """Whether amounts are rounded to the nearest part, not down."""
    free: NDArray[np.int64]
    counters: NDArray[np.int64]
    clock: NDArray[np.float64]


@entry
def run(pool: Pool, rule: Rule, until: int) -> None:
    """Go on until so many tasks have been submitted; after the last one, until all is done."""
    tasks = pool.tasks
    while pool.counters[NEXT] < until:
        task = pool.counters[NEXT]
        now = tasks.submitted[task]
        _finish_until(pool, rule, now)
        _set_time(pool, rule, now)
        _submit(pool, rule, task)
        pool.counters[NEXT] += 1
        _start(pool, rule, now)
    if until == len(tasks.submitted):
        _finish_until(pool, rule, np.iinfo(np.int64).max)


@kernel
def _finish_until(pool: Pool, rule: Rule, now: int) -> None:
    counters, running = pool.counters, pool.running
    while counters[RUNNING] > 0 and running.when[0] <= now:
        when = running.when[0]
        slot = pop(running, counters[RUNNING])
        counters[RUNNING] -= 1
        _set_time(pool, rule, when)
        u = running.party[slot]
        _settle(pool, rule, u)  # Pool.release
        for r in range(len(pool.free)):
            pool.parties.allocation[u, r] -= running.held[slot, r]
            pool.free[r] += running.held[slot, r]
        _follow(pool, rule, u)
        _start(pool, rule, when)


@kernel
def _submit(pool: Pool, rule: Rule, task: int) -> None:
    parties, counters = pool.parties, pool.counters
    u = pool.tasks.party[task]
    if not parties.known[u]:  # Pool.add
        _unsettle(pool, rule)
        parties.known[u] = True
        parties.settled_at[u] = pool.clock[NOW]
        counters[KNOWN] += 1
    if not _could_ever_fit(pool, task):
        return
    pool.tasks.following[task] = NOTHING
    if parties.active[u]:
        pool.tasks.following[parties.tail[u]] = task
        parties.tail[u] = task
        return
    parties.tail[u] = task
    _set_head(pool, rule, u, task)
    parties.active[u] = True  # Pool.set_active
    counters[ACTIVE] += 1
    if _holds_nothing(parties.allocation[u]):
        counters[TURNS] += 1
        parties.turn[u] = counters[TURNS]
        if rule.kind == FIFO:
            parties.lines[u, 0, 0] = counters[TURNS]
    if not counters[STALE]:
        advance(pool.tree, parties.lines, pool.clock[S])
        change(pool.tree, parties.lines, u, True, pool.clock[S])


@kernel
def _could_ever_fit(pool: Pool, task: int) -> bool:
    could = True
    for r in range(len(pool.capacity)):
        could &= _need(pool, task, r) <= pool.capacity[r]
    return could


@kernel
def _set_head(pool: Pool, rule: Rule, u: int, task: int) -> None:
    parties = pool.parties
    parties.head[u] = task
    if task != NOTHING:
        for r in range(len(pool.free)):
            parties.need[u, r] = _need(pool, task, r)
    if rule.skip:
        set_need(pool.needs, u, parties.need[u], task != NOTHING)


@kernel
def _need(pool: Pool, task: int, r: int) -> int:
    """Parts.whole."""
    amount = pool.tasks.demand[task, r]
    scaled = amount * pool.scale[r]
    scaled = np.rint(scaled) if pool.rounded[r] else np.floor(scaled)
    if scaled == 0.0 and amount > 0.0:
        return 1
    return int(min(scaled, 2.0**62))


@kernel
def _holds_nothing(allocation: NDArray[np.int64]) -> bool:
    nothing = True
    for amount in allocation:
        nothing &= amount == 0
    return nothing


@kernel
def _start(pool: Pool, rule: Rule, now: int) -> None:
    """Start what can be started (Stateful DRF, Algorithm 1)."""
    parties, counters, tree, tasks = pool.parties, pool.counters, pool.tree, pool.tasks
    while counters[ACTIVE] > 0:
        if counters[STALE]:
            _refresh(pool, rule)
        s = pool.clock[S]
        advance(tree, parties.lines, s)
        if rule.skip:
            u = first_that_fits(pool.needs, tree, parties.lines, pool.free, s)
            if u == NOBODY:
                return
        else:
            u = tree.winner[1]
            if not fits(parties.need[u], pool.free):
                return
        task = parties.head[u]
        slot = push(
            pool.running,
            counters[RUNNING],
            counters[SLOTS],
            now + tasks.runtime[task],
            counters[STARTS],
        )
        counters[RUNNING] += 1
        counters[SLOTS] = max(counters[SLOTS], counters[RUNNING])
        counters[STARTS] += 1
        tasks.started[task] = now
        pool.running.party[slot] = u
        _settle(pool, rule, u)  # Pool.allocate
        for r in range(len(pool.free)):
            need = parties.need[u, r]
            pool.running.held[slot, r] = need
            parties.allocation[u, r] += need
            pool.free[r] -= need
        following = tasks.following[task]
        _set_head(pool, rule, u, following)
        if following == NOTHING:  # Pool.set_active
            parties.active[u] = False
            counters[ACTIVE] -= 1
            if not counters[STALE]:
                change(tree, parties.lines, u, False, s)
        _follow(pool, rule, u)


@kernel
def _set_time(pool: Pool, rule: Rule, microseconds: int) -> None:
    """Pool.advance."""
    clock = pool.clock
    now = microseconds / 1e6
    if not now > clock[NOW]:
        return
    if pool.counters[STALE]:
        _refresh(pool, rule)
    clock[NOW] = now
    if rule.remembers:
        if now - clock[BASE] > rule.rebased_after:
            _unsettle(pool, rule)
            clock[BASE] = now
        clock[S] = math.exp(-(now - clock[BASE]) / rule.tau)


@kernel
def _settle(pool: Pool, rule: Rule, u: int) -> None:
    """Account.settle."""
    parties = pool.parties
    now = pool.clock[NOW]
    elapsed = now - parties.settled_at[u]
    if not rule.remembers or not elapsed > 0.0:
        return
    part = -math.expm1(-elapsed / rule.tau)
    for r in rule.counted:
        owed = parties.commitment[u, r]
        parties.commitment[u, r] = owed + (parties.overuse[u, r] - owed) * part
    parties.settled_at[u] = now


@kernel
def _unsettle(pool: Pool, rule: Rule) -> None:
    """Pool._unsettle."""
    if pool.counters[STALE]:
        return
    for u in range(len(pool.parties.known)):
        if pool.parties.known[u]:
            _settle(pool, rule, u)
    pool.counters[STALE] = 1


@kernel
def _refresh(pool: Pool, rule: Rule) -> None:
    """Pool._refresh."""
    parties = pool.parties
    for u in range(len(parties.known)):
        if parties.known[u]:
            _rate(pool, rule, u)
    play_all(pool.tree, parties.lines, parties.active, pool.clock[S])
    pool.counters[STALE] = 0
    pool.counters[REBASES] += 1


@kernel
def _follow(pool: Pool, rule: Rule, u: int) -> None:
    """Pool._hold, after what is held has changed."""
    if pool.counters[STALE]:
        return
    parties, s = pool.parties, pool.clock[S]
    _rate(pool, rule, u)
    if parties.active[u]:
        advance(pool.tree, parties.lines, s)
        change(pool.tree, parties.lines, u, True, s)


@kernel
def _rate(pool: Pool, rule: Rule, u: int) -> None:
    """Pool._rate and the policies' attributes."""
    parties = pool.parties
    if rule.kind == FIFO:
        parties.lines[u, 0, 0] = parties.turn[u]
        return
    if rule.kind == KEY_OF_ONE:
        r = rule.resource
        if r >= 0:
            parties.lines[u, 0, 0] = parties.allocation[u, r] / pool.capacity[r]
        return
    most = 0.0
    for r in rule.counted:
        parties.share[u, r] = parties.allocation[u, r] / pool.capacity[r]
        most = max(most, parties.share[u, r])
    if rule.kind == DRF:
        parties.lines[u, 0, 0] = most
        return
    entitlement = 1.0 / pool.counters[KNOWN]
    stretch = math.exp((parties.settled_at[u] - pool.clock[BASE]) / rule.tau)
    for line, r in enumerate(rule.counted):
        share = parties.share[u, r]
        rate = max(share - entitlement, 0.0)
        parties.overuse[u, r] = rate
        held = share if rule.kind == SDRF_THESIS else most
        parties.lines[u, line, 0] = held + rate
        parties.lines[u, line, 1] = (parties.commitment[u, r] - rate) * stretch
