"""The compiled simulation: the reference simulator and the pool's accounts, on arrays.

Operations and their order are those of the reference simulator and of `allocator.fairness`, so that
results are equal to the last bit. A "Python counterpart" in a docstring is the function or method
there that does the same.

A user's *head* is its next waiting task. A user is *active* if it has one. A user's priority is the
maximum of its *lines*, value + slope·s, where s is the decay factor e^(−t/τ). The order of users is
kept by a tournament (module tournament) or by a Live Tree (module live_tree).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.kernels.compiled import entry, kernel, part, prefetch, wide
from allocator.simulation.kernels.finishes import Finishes, pop, push
from allocator.simulation.kernels.free_capacity import (
    NOWHERE,
    FreeCapacityArrays,
    could_ever_fit,
    first_fit,
    give_back,
    monopoly,
    take,
)
from allocator.simulation.kernels.live_tree import (
    LiveTreeArrays,
    clear,
    delete,
    insert,
    replace,
    update,
)
from allocator.simulation.kernels.stuck import Stuck, first_unstuck, set_aside, take_back
from allocator.simulation.kernels.tournament import (
    NOBODY,
    Tournament,
    advance,
    change,
    play_all,
    precedes,
)

FIFO, ONE_RESOURCE, DRF, DRFH, TSF, CDRF, SDRF, SDRF_THESIS, STSF = range(9)
"""Policies. A policy determines how a user's lines follow from its allocation and commitments."""

NOTHING = -1
"""Task number that means "no task"."""

NEXT, RUNNING, SLOTS, STARTS, TURNS, ACTIVE, FRESH, STALE, NEWCOMERS = range(9)
"""Indices in `State.counters`.

NEXT: the next task to submit. RUNNING: running tasks. SLOTS: slots ever used in the heap of running
tasks. STARTS: started tasks. TURNS: queue positions given (FIFO). ACTIVE: active users. FRESH:
users in `UserArrays.fresh`. STALE: 1 if all accounts are up to date, but priorities are not
computed yet. NEWCOMERS: users that have appeared.
"""
INSERTS, DELETES, MINIMA, ORDERS, COUNTERS = range(9, 14)
"""Further indices in `State.counters`, and the number of counters.

The counters say how often the reference simulator's ranking would do each operation.
"""
NOW, BASE, S, WEIGHTS, CLOCK = range(5)
"""Indices in `State.clock`, and its length.

Times are in seconds. NOW: current time. BASE: base time of the priorities. S: e^(−(now − base)/τ).
WEIGHTS: total weight of known users.
"""


class Rule(NamedTuple):
    """Constants of one simulation: the policy, the cluster, and options."""

    kind: int
    tau: float
    """Time constant τ of the decay in seconds; infinite for policies without memory."""
    rebased_after: float
    """Seconds after which the base time of the priorities is moved to the current time."""
    resource: int
    """Under ONE_RESOURCE: index of the resource that counts.

    Negative if the cluster has none of it.
    """
    shared: NDArray[np.int64]
    """Indices of the shared resources: those with a capacity above 0."""
    capacity: NDArray[np.int64]
    """Total capacity of all machines, in parts."""
    scale: NDArray[np.float64]
    """Parts per unit, by resource."""
    rounded: NDArray[np.bool_]
    """By resource: True if amounts are rounded to the nearest part, False if rounded down."""
    skip: bool
    constrained: bool
    """True if placement constraints count; in a single pool all tasks are unconstrained."""
    counts_events: bool
    """True if a Live Tree is kept in order to count its events."""
    by_live_tree: bool
    """True if the Live Tree also finds the first user, so that no tournament is needed."""


class TaskArrays(NamedTuple):
    """The trace's tasks as arrays, and the start and machine chosen for each."""

    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    user: NDArray[np.int32]
    """By task: number of its sharer (a user, or a job if each job counts as a user)."""
    demand: NDArray[np.float64]
    constraint: NDArray[np.int32]
    started: NDArray[np.int64]
    machine: NDArray[np.int32]
    """Chosen machine of each task; an empty array if the cluster has only one machine."""
    following: NDArray[np.int32]
    """For each submitted task, the same user's next submitted task."""


class UserArrays(NamedTuple):
    """Each user's account, and the queue of its waiting tasks."""

    allocation: NDArray[np.int64]
    shares: NDArray[np.float64]
    overuse: NDArray[np.float64]
    """Over-use, by user and line."""
    commitment: NDArray[np.float64]
    """Commitments, by user and line."""
    lines: NDArray[np.float64]
    accrued_at: NDArray[np.float64]
    weight: NDArray[np.float64]
    known: NDArray[np.bool_]
    active: NDArray[np.bool_]
    turn: NDArray[np.int64]
    head: NDArray[np.int32]
    tail: NDArray[np.int32]
    runtime: NDArray[np.int64]
    """Run time of the head, in microseconds.

    The head's data is copied, so that one read suffices: tasks are far apart in memory.
    """
    following: NDArray[np.int32]
    """The task after the head, also a copy."""
    need: NDArray[np.int64]
    """Demand of the head, or of the last head if no task waits."""
    constraint: NDArray[np.int64]
    """Constraint of the head, or of the last head if no task waits."""
    monopoly: NDArray[np.int64]
    """Number of tasks like the head that all machines could run; 0 if not computed yet.

    Only policies that count tasks use this number.
    """
    fresh: NDArray[np.int64]
    """Users whose head has not been tried on machines yet; used only if users are skipped."""


class State(NamedTuple):
    """All arrays that a simulation changes. Repeated calls of `run` continue the simulation."""

    tasks: TaskArrays
    users: UserArrays
    running: Finishes
    tree: Tournament
    live: LiveTreeArrays
    """The Live Tree; empty unless events are counted."""
    free_capacity: FreeCapacityArrays
    stuck: Stuck
    counters: NDArray[np.int64]
    clock: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Entry k is the total weight of the known users after k users have appeared."""
    scratch: NDArray[np.int64]


DONE, PAUSED, DUE = range(3)
"""Results of `run`: why it returned.

DONE: all events are processed. PAUSED: the event limit is reached. DUE: the next event comes after
`until`.
"""


@entry
def run(state: State, rule: Rule, events: int, until: int) -> int:
    """Process submissions and finishes in order of time, until done or a limit is reached.

    Return DONE, PAUSED after `events` events, or DUE if the next event is later than `until`.

    Args:
        state: State of the simulation, which is changed.
        rule: Constants of the simulation.
        events: Maximum number of submissions and finishes to process.
        until: Time in microseconds of the latest event to process.
    """
    counters, tasks, users, running = state.counters, state.tasks, state.users, state.running
    for _ in range(events):
        task, freed = counters[NEXT], wide(NOWHERE)
        leave = enter = False
        if counters[RUNNING] > 0 and (
            task == len(tasks.submitted) or running.finish[0] <= tasks.submitted[task]
        ):
            now = running.finish[0]
            if now > until:
                return DUE
            _set_time(state, rule, now)
            freed, user = _finish(state, rule)
            leave = enter = users.active[user]
        elif task < len(tasks.submitted):
            now = tasks.submitted[task]
            if now > until:
                return DUE
            _set_time(state, rule, now)
            user = _submit(state, rule, task)
            enter = user != NOBODY
            counters[NEXT] += 1
        else:
            return DONE
        _process(state, rule, now, user, freed, leave, enter)
    return PAUSED


@part
def _process(
    state: State, rule: Rule, now: int, user: int, freed: int, leave: bool, enter: bool
) -> None:
    """Update the order of users after a submission or finish, and start all tasks that can start.

    Args:
        state: State of the simulation.
        rule: Constants of the simulation.
        now: Current time in microseconds.
        user: The user whose position in the order of users may change, or NOBODY.
        freed: The machine on which a task has finished, or NOWHERE.
        leave: True if the user was in the order before the event and must be removed.
        enter: True if the user must then be inserted at its new position.
    """
    users = state.users
    if state.counters[STALE]:
        user = NOBODY
        if _may_start(state, rule, freed):
            _refresh(state, rule)
    elif not rule.by_live_tree:
        advance(state.tree, users.lines, state.clock[S])
    rate, started = True, False
    while True:
        if user != NOBODY:
            if rate:
                _rate(state, rule, user)
            _rerank(state, rule, user, leave, enter)
            if started:
                started = False
                leave, enter = _advance_queue(state, rule, user)
                rate = enter
                continue
            _compete(state, rule, user)
        if not _may_start(state, rule, freed):
            break
        user, machine = _choose(state, rule, freed)
        if user == NOBODY:
            break
        _start(state, rule, user, machine, now)
        started = rate = leave = enter = True


@part
def _compete(state: State, rule: Rule, u: int) -> None:
    """Update the tournament after user u's priority changed, or it began or ceased to wait.

    Without effect if a Live Tree keeps the order of users instead.
    """
    if not rule.by_live_tree:
        change(state.tree, state.users.lines, u, state.users.active[u], state.clock[S])


@part
def _finish(state: State, rule: Rule) -> tuple[int, int]:
    """Process the end of the running task that finishes first. Return (its machine, its user).

    Python counterparts: `ReferenceSimulation._finish` and `Pool.release`.
    """
    slot = pop(state.running, state.counters[RUNNING])
    state.counters[RUNNING] -= 1
    u, machine = state.running.user[slot], state.running.machine[slot]
    _accrue(state, rule, u)
    held = state.running.held[slot]
    for r in range(len(held)):
        state.users.allocation[u, r] -= held[r]
    give_back(state.free_capacity, machine, held)
    return machine, u


@part
def _submit(state: State, rule: Rule, task: int) -> int:
    """Process the submission of a task, given by its index in the trace.

    Return the task's user if it had no waiting task before, else NOBODY. Python counterpart:
    `ReferenceSimulation._submit`.
    """
    users, counters = state.users, state.counters
    u = wide(state.tasks.user[task])
    if not users.known[u]:  # Pool.add
        _accrue_all(state, rule)
        users.known[u] = True
        users.accrued_at[u] = state.clock[NOW]
        counters[NEWCOMERS] += 1
        state.clock[WEIGHTS] = state.weights[counters[NEWCOMERS]]
    state.tasks.following[task] = NOTHING
    need = state.scratch
    for r in range(len(need)):
        need[r] = _whole(state.tasks.demand[task, r], rule.scale[r], rule.rounded[r])
    if not could_ever_fit(state.free_capacity, need, _constraint(state, rule, task)):
        return NOBODY
    if users.active[u]:
        state.tasks.following[users.tail[u]] = task
        if users.tail[u] == users.head[u]:
            users.following[u] = task
        users.tail[u] = task
        return NOBODY
    users.tail[u] = task
    _set_head(state, rule, u, task)
    users.active[u] = True  # Pool.set_active
    counters[ACTIVE] += 1
    idle = True
    for amount in users.allocation[u]:
        idle &= amount == 0
    if idle:
        counters[TURNS] += 1
        users.turn[u] = counters[TURNS]
    return u


@part
def _start(state: State, rule: Rule, u: int, machine: int, now: int) -> None:
    """Start a user's next task on a machine, and update the user's account and the machine.

    Python counterparts: `ReferenceSimulation._start` and `Pool.allocate`.

    Args:
        state: State of the simulation.
        rule: Constants of the simulation.
        u: The user's number.
        machine: The machine's number; the task must fit.
        now: Current time in microseconds.
    """
    users, counters, tasks, running = state.users, state.counters, state.tasks, state.running
    task = users.head[u]
    slot = push(
        running,
        counters[RUNNING],
        counters[SLOTS],
        now + users.runtime[u],
        counters[STARTS],
    )
    counters[RUNNING] += 1
    counters[SLOTS] = max(counters[SLOTS], counters[RUNNING])
    counters[STARTS] += 1
    running.user[slot] = u
    running.machine[slot] = machine
    tasks.started[task] = now
    if len(tasks.machine) > 0:
        tasks.machine[task] = machine
    _accrue(state, rule, u)
    need = users.need[u]
    for r in range(len(need)):
        running.held[slot, r] = need[r]
        users.allocation[u, r] += need[r]
    take(state.free_capacity, machine, need)


@part
def _advance_queue(state: State, rule: Rule, u: int) -> tuple[bool, bool]:
    """Advance a user's queue after its first task started: make the next waiting task the head.

    A user without further waiting tasks becomes inactive.

    Returns:
        (leave, enter): whether the caller must remove the user from the order of users, and whether
        the caller must then insert the user at its new position.
    """
    users = state.users
    if rule.skip:
        take_back(state.stuck, u)
        _forget_fresh(state, u)
    following = users.following[u]
    if following != NOTHING:
        declared = _set_head(state, rule, u, following)
        return declared, declared
    users.active[u] = False  # Pool.set_active
    state.counters[ACTIVE] -= 1
    return True, False


@part
def _set_head(state: State, rule: Rule, u: int, task: int) -> bool:
    """Make a waiting task the next task of a user. Return whether the user's priority may change.

    Under policies that count tasks, such as TSF, the priority depends on the demand of the next
    task: the demand determines how many tasks the user could run alone.

    Python counterparts: `ReferenceSimulation._declare` and `Pool.set_demand`.

    Args:
        state: State of the simulation.
        rule: Constants of the simulation.
        u: The user's number.
        task: Index of the task in the trace.
    """
    users = state.users
    users.head[u] = task
    users.runtime[u] = state.tasks.runtime[task]
    following = users.following[u] = state.tasks.following[task]
    if following != NOTHING:
        prefetch(state.tasks.runtime, following)
        prefetch(state.tasks.demand, following)
        prefetch(state.tasks.following, following)
    constraint = _constraint(state, rule, task)
    same = users.constraint[u] == constraint
    users.constraint[u] = constraint
    for r in range(len(rule.scale)):
        need = _whole(state.tasks.demand[task, r], rule.scale[r], rule.rounded[r])
        same &= users.need[u, r] == need
        users.need[u, r] = need
    if rule.skip:
        users.fresh[state.counters[FRESH]] = u
        state.counters[FRESH] += 1
    if rule.kind not in (DRFH, TSF, CDRF, STSF) or (same and users.monopoly[u] > 0):
        return False
    _accrue(state, rule, u)
    everywhere = len(state.free_capacity.begin) - 2
    users.monopoly[u] = monopoly(
        state.free_capacity, users.need[u], constraint if rule.kind == CDRF else everywhere
    )
    return True


@part
def _constraint(state: State, rule: Rule, task: int) -> int:
    """Return the number of a task's placement constraint, for the functions of `free_capacity`.

    Tasks without a constraint get the last number, with which tasks may run on all machines.
    """
    if rule.constrained and state.tasks.constraint[task] >= 0:
        return wide(state.tasks.constraint[task])
    return len(state.free_capacity.begin) - 2


@part
def _whole(amount: float, scale: float, rounded: bool) -> int:
    """Convert an amount of a resource to a whole number of parts.

    Python counterpart: `Parts.whole`.

    Args:
        amount: The amount in the trace's units.
        scale: Parts per unit.
        rounded: True to round to the nearest part, False to round down.
    """
    scaled = amount * scale
    scaled = np.rint(scaled) if rounded else np.floor(scaled)
    if scaled == 0.0 and amount > 0.0:
        return 1
    return int(min(scaled, 2.0**62))


@part
def _may_start(state: State, rule: Rule, freed: int) -> bool:
    """Return False if certainly no task can start now, so that the caller can skip the search.

    If the policy skips users whose next task does not fit, the search is needed only after a user
    got a new next task or a machine was freed.

    Args:
        state: State of the simulation.
        rule: Constants of the simulation.
        freed: The machine on which a task has just finished, or NOWHERE.
    """
    if rule.skip and freed == NOWHERE and state.counters[FRESH] == 0:
        return False
    return state.counters[ACTIVE] > 0  # type: ignore[no-any-return]


@part
def _choose(state: State, rule: Rule, freed: int) -> tuple[int, int]:
    """Return (user, machine) for the task that starts next, or (NOBODY, NOWHERE) if none can start.

    Python counterpart: `ReferenceSimulation._next`. The first user in the policy's order is chosen.
    If the policy skips users whose next task does not fit, the first user whose next task fits is
    chosen.

    Args:
        state: State of the simulation.
        rule: Constants of the simulation.
        freed: The machine on which a task has just finished, or NOWHERE.
    """
    users, free_capacity, tree, s = state.users, state.free_capacity, state.tree, state.clock[S]
    if rule.counts_events:
        update(state.live, s)
    if not rule.skip:
        state.counters[MINIMA] += 1
        u = state.live.users[0] if rule.by_live_tree else tree.winner[1]
        machine = first_fit(free_capacity, users.need[u], users.constraint[u])
        return (NOBODY, NOWHERE) if machine == NOWHERE else (u, machine)
    state.counters[ORDERS] += 1
    best, best_machine = wide(NOBODY), wide(NOWHERE)
    i = 0
    while i < state.counters[FRESH]:
        u = users.fresh[i]
        machine = first_fit(free_capacity, users.need[u], users.constraint[u])
        if machine == NOWHERE:
            state.counters[FRESH] -= 1
            users.fresh[i] = users.fresh[state.counters[FRESH]]
            set_aside(state.stuck, free_capacity, u, users.need[u], users.constraint[u])
            continue
        if best == NOBODY or precedes(users.lines, u, best, s):
            best, best_machine = u, machine
        i += 1
    if freed != NOWHERE:
        u = first_unstuck(
            state.stuck, tree, users.lines, free_capacity, users.constraint, freed, best, s
        )
        if u != NOBODY:
            best, best_machine = u, freed
    return best, best_machine


@part
def _forget_fresh(state: State, u: int) -> None:
    for i in range(state.counters[FRESH]):
        if state.users.fresh[i] == u:
            state.counters[FRESH] -= 1
            state.users.fresh[i] = state.users.fresh[state.counters[FRESH]]
            return


@part
def _set_time(state: State, rule: Rule, microseconds: int) -> None:
    """Set the clock and the decay factor s to a time in microseconds.

    Python counterpart: `Pool.advance`.

    A time that is not later than the clock is ignored.
    """
    clock = state.clock
    now = microseconds / 1e6
    if not now > clock[NOW]:
        return
    if state.counters[STALE]:
        _refresh(state, rule)
    clock[NOW] = now
    if rule.tau < np.inf:
        if now - clock[BASE] > rule.rebased_after:
            _accrue_all(state, rule)
            clock[BASE] = now
        clock[S] = math.exp(-(now - clock[BASE]) / rule.tau)


@part
def _accrue(state: State, rule: Rule, u: int) -> None:
    """Compute the commitments of user u at the current time.

    Since the last call, old commitments have decayed, and use above the user's entitlement has
    added to them.

    Python counterpart: `Account.settle`.
    """
    users, now = state.users, state.clock[NOW]
    elapsed = now - users.accrued_at[u]
    if rule.tau == np.inf or not elapsed > 0.0:
        return
    decayed = -math.expm1(-elapsed / rule.tau)
    for line in range(users.lines.shape[1]):
        commitment = users.commitment[u, line]
        users.commitment[u, line] = commitment + (users.overuse[u, line] - commitment) * decayed
    users.accrued_at[u] = now


@part
def _accrue_all(state: State, rule: Rule) -> None:
    """Compute all known users' commitments at the current time; mark all priorities as outdated.

    `_refresh` computes the outdated priorities before the next task starts.

    Must be called before a change that concerns all users, such as a new total weight.
    """
    if state.counters[STALE]:
        return
    for u in range(len(state.users.known)):
        if state.users.known[u]:
            _accrue(state, rule, u)
    state.counters[STALE] = 1


@kernel
def _refresh(state: State, rule: Rule) -> None:
    """Compute the priorities of all known users, and sort all active users again.

    Called before a task starts, if `_accrue_all` has marked the priorities as outdated.
    """
    users = state.users
    for u in range(len(users.known)):
        if users.known[u]:
            _rate(state, rule, u)
    s = state.clock[S]
    if not rule.by_live_tree:
        play_all(state.tree, users.lines, users.active, s)
    state.counters[STALE] = 0
    state.counters[INSERTS] += state.counters[ACTIVE]
    if rule.counts_events:
        clear(state.live, s)
        for u in range(len(users.active)):
            if users.active[u]:
                insert(state.live, users.lines, u)


@part
def _rerank(state: State, rule: Rule, u: int, leave: bool, enter: bool) -> None:
    """Count deletes and inserts in the order of users, and update the Live Tree if there is one.

    Called when the priority of a user has changed, or the user becomes active or inactive.

    Args:
        state: State of the simulation.
        rule: Constants of the simulation.
        u: The user's number.
        leave: True if the user must be removed from the order.
        enter: True if the user must then be inserted at its new position.
    """
    users, counters = state.users, state.counters
    counters[DELETES] += leave
    counters[INSERTS] += enter
    if rule.counts_events and (leave or enter):
        update(state.live, state.clock[S])
        if leave and enter:
            replace(state.live, users.lines, u)
        elif leave:
            delete(state.live, u)
        else:
            insert(state.live, users.lines, u)


@part
def _rate(state: State, rule: Rule, u: int) -> None:
    """Compute the lines (value, slope) of a user's priority from its account and the policy.

    Python counterpart: the policy's key, as Pool calls it.

    Args:
        state: State of the simulation; the lines are stored there.
        rule: Constants of the simulation.
        u: The user's number.
    """
    users, kind = state.users, rule.kind
    if kind == FIFO:
        users.lines[u, 0, 0] = users.turn[u]
        return
    if kind == ONE_RESOURCE:
        r = rule.resource
        if r >= 0:
            users.lines[u, 0, 0] = users.allocation[u, r] / rule.capacity[r] / users.weight[u]
        return
    dominant = _measure(state, rule, u)
    if rule.tau == np.inf:
        users.lines[u, 0, 0] = dominant / users.weight[u]
        return
    weight = users.weight[u]
    entitlement = weight / state.clock[WEIGHTS]
    factor = math.exp((users.accrued_at[u] - state.clock[BASE]) / rule.tau) / weight
    for line in range(users.lines.shape[1]):  # Account.owe, Sdrf.attribute
        share = users.shares[u, line]
        rate = max(share - entitlement, 0.0)
        users.overuse[u, line] = rate
        held = share if kind == SDRF_THESIS else dominant
        users.lines[u, line, 0] = (held + rate) / weight
        users.lines[u, line, 1] = (users.commitment[u, line] - rate) * factor


@part
def _measure(state: State, rule: Rule, u: int) -> float:
    """Store the shares of user u that the policy compares, and return the largest (dominant) share.

    TSF policies count tasks, as a fraction of the tasks that the user could run alone. Other
    policies count fractions of the capacity.
    """
    users = state.users
    dominant = 0.0
    if rule.kind in (TSF, CDRF, STSF):  # Account.tasks_of
        for r in range(len(rule.scale)):
            monopoly_amount = users.need[u, r] * users.monopoly[u]
            if monopoly_amount > 0:
                dominant = max(dominant, users.allocation[u, r] / monopoly_amount)
        users.shares[u, 0] = dominant
        return dominant
    for line, r in enumerate(rule.shared):
        share = users.allocation[u, r] / rule.capacity[r]
        users.shares[u, line] = share
        if rule.kind != DRFH or users.need[u, r] > 0:
            dominant = max(dominant, share)
    return dominant
