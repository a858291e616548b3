"""A whole simulation: the steps of the reference and of allocator.fairness, without their objects.

Every number is worked out by the same operations in the same order as there, so it is the same
number to the last bit; docstrings name the counterparts.
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
"""How lines come from what a user holds and owes."""

NOTHING = -1
"""No task."""

NEXT, RUNNING, SLOTS, STARTS, TURNS, ACTIVE, FRESH, STALE, NEWCOMERS = range(9)
"""Places in `State.counters`: the next task to be submitted, how many run, how many slots have
been used, how many tasks have started, turns given, users active, users in `UserArrays.fresh`,
whether all accounts are settled but not rated, and how many users have become known."""
INSERTS, DELETES, MINIMA, ORDERS, COUNTERS = range(9, 14)
"""Further places: what a ranking is asked to do in the reference; then how many places."""
NOW, BASE, S, WEIGHTS, CLOCK = range(5)
"""Places in `State.clock`: seconds, seconds, e^(−(now − base)/τ), and the weights of all users that
are known; then how many places."""


class Rule(NamedTuple):
    """What is simulated."""

    kind: int
    tau: float
    """Seconds; infinite for policies that do not remember."""
    rebased_after: float
    """Seconds."""
    resource: int
    """Place of the one that counts, under ONE_RESOURCE; below 0: it is not shared."""
    shared: NDArray[np.int64]
    """Places of resources of which there is a capacity."""
    capacity: NDArray[np.int64]
    """Of all machines together."""
    scale: NDArray[np.float64]
    """Parts in a unit of each resource."""
    rounded: NDArray[np.bool_]
    """Whether amounts are rounded to the nearest part, and not down."""
    skip: bool
    constrained: bool
    """Whether constraints count; in one pool there are none."""
    counts_events: bool
    """Whether to count the events of a Live Tree."""
    by_live_tree: bool
    """Whether the Live Tree says who is first as well, and there is no tournament."""


class TaskArrays(NamedTuple):
    """Columns of the trace, and where the decisions go."""

    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    user: NDArray[np.int32]
    """Who the policy ranks: the user, or the job."""
    demand: NDArray[np.float64]
    constraint: NDArray[np.int32]
    started: NDArray[np.int64]
    machine: NDArray[np.int32]
    """Empty where there is one machine only."""
    following: NDArray[np.int32]
    """The user's next task, once that is submitted."""


class UserArrays(NamedTuple):
    """One entry per user: its account, and its queue."""

    allocation: NDArray[np.int64]
    shares: NDArray[np.float64]
    overuse: NDArray[np.float64]
    """By line."""
    commitment: NDArray[np.float64]
    """By line."""
    lines: NDArray[np.float64]
    settled_at: NDArray[np.float64]
    weight: NDArray[np.float64]
    known: NDArray[np.bool_]
    active: NDArray[np.bool_]
    turn: NDArray[np.int64]
    head: NDArray[np.int32]
    tail: NDArray[np.int32]
    runtime: NDArray[np.int64]
    """The head's; tasks lie far apart, so all that is asked of one is read at once."""
    following: NDArray[np.int32]
    """The head's likewise."""
    need: NDArray[np.int64]
    """What the head needs; if there is none, what the last one needed: the account's demand."""
    constraint: NDArray[np.int64]
    """Likewise."""
    monopoly: NDArray[np.int64]
    """Of such tasks; only for policies that ask. 0: there was none yet."""
    fresh: NDArray[np.int64]
    """Users of whom it is not known whether their head fits somewhere; only when skipping."""


class State(NamedTuple):
    """All that changes."""

    tasks: TaskArrays
    users: UserArrays
    running: Finishes
    tree: Tournament
    live: LiveTreeArrays
    """Empty, unless its events are counted."""
    room: FreeCapacityArrays
    stuck: Stuck
    counters: NDArray[np.int64]
    clock: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Of all users that are known, when so many have become so."""
    scratch: NDArray[np.int64]


DONE, PAUSED, DUE = range(3)
"""Why `run` has returned: nothing is left, so many events are over, or the next comes later."""


@entry
def run(state: State, rule: Rule, events: int, until: int) -> int:
    """Go through so many submissions and finishes, if they are no later than that."""
    counters, tasks, users, running = state.counters, state.tasks, state.users, state.running
    for _ in range(events):
        task, freed = counters[NEXT], wide(NOWHERE)
        leave = enter = False
        if counters[RUNNING] > 0 and (
            task == len(tasks.submitted) or running.when[0] <= tasks.submitted[task]
        ):
            now = running.when[0]
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
        _go_through(state, rule, now, user, freed, leave, enter)
    return PAUSED


@part
def _go_through(
    state: State, rule: Rule, now: int, user: int, freed: int, leave: bool, enter: bool
) -> None:
    """Follow what has happened to a user, and start what can be started.

    Args:
        state: All.
        rule: What is simulated.
        now: Microseconds.
        user: Whom something has happened to, or NOBODY.
        freed: Where something has finished, or NOWHERE.
        leave: Whether a ranking would lose the user at its old place.
        enter: Whether it would get the user at a new place.
    """
    users = state.users
    if state.counters[STALE]:
        user = NOBODY
        if _asks(state, rule, freed):
            _refresh(state, rule)
    elif not rule.by_live_tree:
        advance(state.tree, users.lines, state.clock[S])
    rate, begun = True, False
    while True:
        if user != NOBODY:
            if rate:
                _rate(state, rule, user)
            _rerank(state, rule, user, leave, enter)
            if begun:
                begun = False
                leave, enter = _go_on(state, rule, user)
                rate = enter
                continue
            _compete(state, rule, user)
        if not _asks(state, rule, freed):
            break
        user, machine = _choose(state, rule, freed)
        if user == NOBODY:
            break
        _start(state, rule, user, machine, now)
        begun = rate = leave = enter = True


@part
def _compete(state: State, rule: Rule, u: int) -> None:
    """Play the matches of a user again, if there is a tournament."""
    if not rule.by_live_tree:
        change(state.tree, state.users.lines, u, state.users.active[u], state.clock[S])


@part
def _finish(state: State, rule: Rule) -> tuple[int, int]:
    """Simulation._finish, and Pool.release; return the machine and the user."""
    slot = pop(state.running, state.counters[RUNNING])
    state.counters[RUNNING] -= 1
    u, machine = state.running.user[slot], state.running.machine[slot]
    _settle(state, rule, u)
    held = state.running.held[slot]
    for r in range(len(held)):
        state.users.allocation[u, r] -= held[r]
    give_back(state.room, machine, held)
    return machine, u


@part
def _submit(state: State, rule: Rule, task: int) -> int:
    """Simulation._submit; return the user if it has become active, or NOBODY."""
    users, counters = state.users, state.counters
    u = wide(state.tasks.user[task])
    if not users.known[u]:  # Pool.add
        _unsettle(state, rule)
        users.known[u] = True
        users.settled_at[u] = state.clock[NOW]
        counters[NEWCOMERS] += 1
        state.clock[WEIGHTS] = state.weights[counters[NEWCOMERS]]
    state.tasks.following[task] = NOTHING
    need = state.scratch
    for r in range(len(need)):
        need[r] = _whole(state.tasks.demand[task, r], rule.scale[r], rule.rounded[r])
    if not could_ever_fit(state.room, need, _constraint(state, rule, task)):
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
    nothing = True
    for amount in users.allocation[u]:
        nothing &= amount == 0
    if nothing:
        counters[TURNS] += 1
        users.turn[u] = counters[TURNS]
    return u


@part
def _start(state: State, rule: Rule, u: int, machine: int, now: int) -> None:
    """Simulation._start, and Pool.allocate."""
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
    _settle(state, rule, u)
    need = users.need[u]
    for r in range(len(need)):
        running.held[slot, r] = need[r]
        users.allocation[u, r] += need[r]
    take(state.room, machine, need)


@part
def _go_on(state: State, rule: Rule, u: int) -> tuple[bool, bool]:
    """Turn to a user's next task; return whether it leaves its place, and gets one."""
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
    """Say which task of a user is next; return whether that changes what it is rated by.

    Simulation._declare, Pool.set_demand.
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
    _settle(state, rule, u)
    everywhere = len(state.room.begin) - 2
    users.monopoly[u] = monopoly(
        state.room, users.need[u], constraint if rule.kind == CDRF else everywhere
    )
    return True


@part
def _constraint(state: State, rule: Rule, task: int) -> int:
    """Return the number of a task's constraint; the last one allows everything."""
    if rule.constrained and state.tasks.constraint[task] >= 0:
        return wide(state.tasks.constraint[task])
    return len(state.room.begin) - 2


@part
def _whole(amount: float, scale: float, rounded: bool) -> int:
    """Parts.whole."""
    scaled = amount * scale
    scaled = np.rint(scaled) if rounded else np.floor(scaled)
    if scaled == 0.0 and amount > 0.0:
        return 1
    return int(min(scaled, 2.0**62))


@part
def _asks(state: State, rule: Rule, freed: int) -> bool:
    """Whether anybody is to be looked at; when skipping, only who may have got room."""
    if rule.skip and freed == NOWHERE and state.counters[FRESH] == 0:
        return False
    return state.counters[ACTIVE] > 0  # type: ignore[no-any-return]


@part
def _choose(state: State, rule: Rule, freed: int) -> tuple[int, int]:
    """Return whose next task is to be started, and where; NOBODY: nobody's.

    Simulation._next: Algorithm 1 of Stateful DRF, or the first user whose next task fits.

    Args:
        state: All.
        rule: What is simulated.
        freed: Machine on which something has just finished, or NOWHERE.
    """
    users, room, tree, s = state.users, state.room, state.tree, state.clock[S]
    if rule.counts_events:
        update(state.live, s)
    if not rule.skip:
        state.counters[MINIMA] += 1
        u = state.live.users[0] if rule.by_live_tree else tree.winner[1]
        machine = first_fit(room, users.need[u], users.constraint[u])
        return (NOBODY, NOWHERE) if machine == NOWHERE else (u, machine)
    state.counters[ORDERS] += 1
    best, place = wide(NOBODY), wide(NOWHERE)
    i = 0
    while i < state.counters[FRESH]:
        u = users.fresh[i]
        machine = first_fit(room, users.need[u], users.constraint[u])
        if machine == NOWHERE:
            state.counters[FRESH] -= 1
            users.fresh[i] = users.fresh[state.counters[FRESH]]
            set_aside(state.stuck, room, u, users.need[u], users.constraint[u])
            continue
        if best == NOBODY or precedes(users.lines, u, best, s):
            best, place = u, machine
        i += 1
    if freed != NOWHERE:
        u = first_unstuck(state.stuck, tree, users.lines, room, users.constraint, freed, best, s)
        if u != NOBODY:
            best, place = u, freed
    return best, place


@part
def _forget_fresh(state: State, u: int) -> None:
    for i in range(state.counters[FRESH]):
        if state.users.fresh[i] == u:
            state.counters[FRESH] -= 1
            state.users.fresh[i] = state.users.fresh[state.counters[FRESH]]
            return


@part
def _set_time(state: State, rule: Rule, microseconds: int) -> None:
    """Pool.advance."""
    clock = state.clock
    now = microseconds / 1e6
    if not now > clock[NOW]:
        return
    if state.counters[STALE]:
        _refresh(state, rule)
    clock[NOW] = now
    if rule.tau < np.inf:
        if now - clock[BASE] > rule.rebased_after:
            _unsettle(state, rule)
            clock[BASE] = now
        clock[S] = math.exp(-(now - clock[BASE]) / rule.tau)


@part
def _settle(state: State, rule: Rule, u: int) -> None:
    """Account.settle."""
    users, now = state.users, state.clock[NOW]
    elapsed = now - users.settled_at[u]
    if rule.tau == np.inf or not elapsed > 0.0:
        return
    part = -math.expm1(-elapsed / rule.tau)
    for line in range(users.lines.shape[1]):
        owed = users.commitment[u, line]
        users.commitment[u, line] = owed + (users.overuse[u, line] - owed) * part
    users.settled_at[u] = now


@part
def _unsettle(state: State, rule: Rule) -> None:
    """Pool._unsettle."""
    if state.counters[STALE]:
        return
    for u in range(len(state.users.known)):
        if state.users.known[u]:
            _settle(state, rule, u)
    state.counters[STALE] = 1


@kernel
def _refresh(state: State, rule: Rule) -> None:
    """Pool._refresh."""
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
    """Count what a ranking would have to do, and do it where its events are counted."""
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
    """Pool._rate, and the policies' keys and attributes."""
    users, kind = state.users, rule.kind
    if kind == FIFO:
        users.lines[u, 0, 0] = users.turn[u]
        return
    if kind == ONE_RESOURCE:
        r = rule.resource
        if r >= 0:
            users.lines[u, 0, 0] = users.allocation[u, r] / rule.capacity[r] / users.weight[u]
        return
    most = _measure(state, rule, u)
    if rule.tau == np.inf:
        users.lines[u, 0, 0] = most / users.weight[u]
        return
    weight = users.weight[u]
    entitlement = weight / state.clock[WEIGHTS]
    stretch = math.exp((users.settled_at[u] - state.clock[BASE]) / rule.tau) / weight
    for line in range(users.lines.shape[1]):  # Account.owe, Sdrf.attribute
        share = users.shares[u, line]
        rate = max(share - entitlement, 0.0)
        users.overuse[u, line] = rate
        held = share if kind == SDRF_THESIS else most
        users.lines[u, line, 0] = (held + rate) / weight
        users.lines[u, line, 1] = (users.commitment[u, line] - rate) * stretch


@part
def _measure(state: State, rule: Rule, u: int) -> float:
    """Work out shares as the policy measures them; return the dominant one."""
    users = state.users
    most = 0.0
    if rule.kind in (TSF, CDRF, STSF):  # Account.tasks_of
        for r in range(len(rule.scale)):
            alone = users.need[u, r] * users.monopoly[u]
            if alone > 0:
                most = max(most, users.allocation[u, r] / alone)
        users.shares[u, 0] = most
        return most
    for line, r in enumerate(rule.shared):
        share = users.allocation[u, r] / rule.capacity[r]
        users.shares[u, line] = share
        if rule.kind != DRFH or users.need[u, r] > 0:
            most = max(most, share)
    return most
