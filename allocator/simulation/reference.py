"""The reference simulator: Algorithm 1 over the very policies that run the live cluster."""

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from allocator.fairness.machines import Machines
from allocator.fairness.plugin_sandbox import require_success
from allocator.fairness.policies import Policy
from allocator.fairness.policies.policy import KeyPolicy
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.quantities import Quantities
from allocator.simulation.free_capacity import FreeCapacity
from allocator.simulation.holding import Hold, Holds
from allocator.simulation.order import Exact, Sampled
from allocator.simulation.originals.catalogue import original_of, period_of
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting
from allocator.simulation.sharers import sharers
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace
from allocator.simulation.watch import Watch

Progress: TypeAlias = Callable[[int], None]
"""Called now and then with how many tasks have been dealt with: started, or known never to."""

_REPORTED = 1000
"""Tasks from one report of progress to the next."""


def simulate(
    trace: Trace,
    setting: Setting,
    progress: Progress | None = None,
    *,
    series: Series | None = None,
) -> Outcome:
    """Start every task of a trace as a policy would have; docs/simulation.md has the rules.

    The same trace and setting give the same starts. A task costs O(log n) in n users and a look
    at each machine; where users are skipped, each end of a task costs a look at all that wait.

    Raises:
        SettingError: The setting does not fit the trace.
        PolicyFailedError: The policy failed, so the starts would not be the policy's.
    """
    return ReferenceSimulation(trace, setting, series).run(progress)


class ReferenceSimulation:
    """A cluster, tasks that wait and run, and Algorithm 1 in front of it.

    Args:
        trace: What is submitted.
        setting: How it is dealt with.
        series: Is told how users stand now and then, unless the order goes by samples: that knows
            nothing in between.

    Raises:
        SettingError: The setting does not fit the trace.
    """

    def __init__(self, trace: Trace, setting: Setting, series: Series | None = None) -> None:
        self.trace = trace
        self._series = series
        self.now = 0
        """Microseconds"""
        self._skips = setting.blocking != "head-of-line"
        self._holds = Holds(setting.blocking)
        self._room = FreeCapacity(trace, setting)
        self._places: Machines[int] = Machines()
        for machine, capacity in enumerate(self._room.capacities):
            self._places.put(str(machine), capacity)
        policy = self._policy = setting.new_policy()
        self._counts_tasks = policy.counts_tasks
        self._per_machine = policy.per_machine and setting.capacity is None
        self._watch = Watch()
        self.pool: Exact | Sampled = self._new_order(policy, setting)
        who = sharers(trace, setting)
        self._user: list[int] = who.number.tolist()
        self._weights: list[float] = who.weights.tolist()
        there = [(r, name) for r, name in enumerate(trace.resources) if self._room.capacity[name]]
        for user in np.flatnonzero(who.known).tolist():
            self._add(user, {name: float(who.debts[user, r]) for r, name in there})
        self.waiting: defaultdict[int, deque[int]] = defaultdict(deque)
        """By user, its tasks that wait, the next one first"""
        self._stuck: set[int] = set()
        """Users whose next task fits nowhere, except perhaps where something has just finished;
        kept only while all who wait are looked at each time."""
        self._declared: dict[int, tuple[Quantities, int]] = {}
        """By user, the demand and the constraint that the pool knows"""
        self._held: defaultdict[int, dict[int, Quantities]] = defaultdict(dict)
        """By machine, what users hold there"""
        self._running: list[tuple[int, int, int]] = []
        """(finish, serial number of the start, task), a heap"""
        self._dealt_with = self._starts = 0
        self._started = np.full(len(trace), NEVER, np.int64)
        self._machine = np.full(len(trace), NEVER, np.int32)

    def run(
        self, progress: Progress | None = None, look: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Go through everything that happens, in order of time.

        Args:
            progress: Told how far it is.
            look: Called after each event; may look, not touch.

        Raises:
            PolicyFailedError: The policy failed.
        """
        reported = 0
        for _ in self._events():
            look()
            require_success(self._policy)
            if progress is not None and self._dealt_with >= reported + _REPORTED:
                reported = self._dealt_with
                progress(reported)
        if progress is not None:
            progress(self._dealt_with)
        return Outcome(
            self.trace, self._started, self._machine, self._watch.operations(self.pool.events)
        )

    def _events(self) -> Iterator[None]:
        for task, when in enumerate(self.trace.submitted.tolist()):
            while self._running and self._running[0][0] <= when:
                self._finish()
                yield
            self._tell(when)
            self._submit(task, when)
            yield
        while self._running:
            self._finish()
            yield

    def _tell(self, when: int) -> None:
        """Say how users stand at all instants that are due before the next event."""
        series, pool = self._series, self.pool
        while series is not None and isinstance(pool, Exact) and when > series.due:
            shares, owed = np.zeros(len(self._weights)), np.zeros(len(self._weights))
            for standing in pool.still().standings_at(series.due / MICROSECONDS):
                shares[standing.user], owed[standing.user] = standing.share, standing.commitment
            if pool.policy.tau is None:
                owed[:] = math.nan
            series.take(shares, owed)

    def running(self) -> Iterator[tuple[int, int, int]]:
        """Go through what runs now: a user, its task, and the machine's number."""
        for _finish, _serial, task in self._running:
            yield self._user[task], task, int(self._machine[task])

    def next_user(self) -> int:
        """Return the user that is next; somebody must be waiting."""
        return self.pool.minimum()

    def _new_order(self, policy: Policy, setting: Setting) -> Exact | Sampled:
        capacity = self._room.capacity
        if setting.sampled is None:
            return Exact(
                policy,
                capacity=capacity,
                machines=self._places,
                watch=self._watch,
                exact_ties=isinstance(policy, KeyPolicy | Sdrf),  # as the compiled kernels compare
            )
        period = period_of(policy, setting.sampled)
        return Sampled(original_of(policy, capacity, period), self._watch)

    def _add(self, user: int, owed: dict[str, float]) -> None:
        self.pool.join(user, self._weights[user], owed)

    def _advance(self, when: int) -> None:
        self.now = when
        self.pool.advance(when / MICROSECONDS)

    def _submit(self, task: int, when: int) -> None:
        self._advance(when)
        user = self._user[task]
        if user not in self.pool:
            self._add(user, {})
        if self._room.could_ever_hold(task):
            self.waiting[user].append(task)
            if len(self.waiting[user]) == 1:
                self._declare(user, task)
                self.pool.set_active(user, True)
        else:
            self._dealt_with += 1
        self._start(None)

    def _finish(self) -> None:
        self._tell(self._running[0][0])
        finish, _serial, task = heapq.heappop(self._running)
        self._advance(finish)
        user, machine = self._user[task], int(self._machine[task])
        self.pool.ended(user, self._room.demand(task), int(self._started[task]) / MICROSECONDS)
        self._room.give_back(task, machine)
        if self._per_machine:
            rest = self._held[machine].pop(user) - self._room.demand(task)
            if rest:
                self._held[machine][user] = rest
        self._start(machine)

    def _start(self, freed: int | None) -> None:
        """Start tasks as long as there is one to be started.

        Args:
            freed: Where something has just finished; None: nowhere.
        """
        while self.pool.active:
            chosen = self._next(freed)
            if chosen is None:
                return
            user, machine = chosen
            task = self.waiting[user].popleft()
            demand = self._room.demand(task)
            self._room.take(task, machine)
            self.pool.started(user, demand)
            if self._per_machine:
                held = self._held[machine]
                held[user] = held.get(user, Quantities()) + demand
            self._stuck.discard(user)
            if self._holds.end(user):
                self._stuck.clear()  # who was kept off that machine may use what is left of it
            if self.waiting[user]:
                self._declare(user, self.waiting[user][0])
            else:
                self.pool.set_active(user, False)
            self._started[task] = self.now
            self._machine[task] = machine
            self._starts += 1
            self._dealt_with += 1
            finish = self.now + int(self.trace.runtime[task])
            heapq.heappush(self._running, (finish, self._starts, task))

    def _next(self, freed: int | None) -> tuple[int, int] | None:
        """Return whose next task is to be started, and on which machine; None: nobody's."""
        if not self._skips:
            user = self.next_user()
            machine = self._room.first_fit(self.waiting[user][0])
            return None if machine is None else (user, machine)
        if freed is None and len(self._stuck) == self.pool.active:
            return None
        if self._per_machine:
            return self._next_on_a_machine(freed)
        before = False
        for user in self.pool:
            machine = self._place(user, freed)
            if machine is not None:
                return user, machine
            if not before:
                self._hold_in_turn(freed)  # before users that come later in order take the room
                before = True
        self._hold_in_turn(freed)
        return None

    def _next_on_a_machine(self, freed: int | None) -> tuple[int, int] | None:
        """Take the first machine on which something fits, and there the first user."""
        places = [self._place(user, freed) for user in self.pool]
        machine = min((place for place in places if place is not None), default=None)
        if machine is None:
            return None
        capacity = self._room.capacities[machine]
        assert isinstance(self.pool, Exact)
        for user in self.pool.order_on(capacity, self._held[machine]):
            if self._room.fits(self.waiting[user][0], machine):
                return user, machine
        raise AssertionError(f"nothing fits on machine {machine}")

    def _place(self, user: int, freed: int | None) -> int | None:
        """Return the first machine that the next task of a user fits on, and is not kept off."""
        task = self.waiting[user][0]
        finish = self.now + int(self.trace.runtime[task])
        if user in self._stuck:
            if freed is None or not self._room.fits(task, freed):
                return None
            return None if self._holds.bars(user, freed, finish) else freed
        machine = self._room.first_fit(task, self._holds.barred(user, finish))
        if machine is None:
            self._stuck.add(user)
        return machine

    def _hold_in_turn(self, freed: int | None) -> None:
        """Hold machines for users in turn, up to the first user that needs none."""
        for user in self._holds.in_turn(self.pool):
            if self._place(user, freed) is not None:
                return
            self._hold(user)

    def _hold(self, user: int) -> None:
        """Hold the machine that will be free for a user's next task first, if any is not held."""
        task = self.waiting[user][0]
        ends = defaultdict[int, list[tuple[int, int]]](list)
        for finish, _serial, running in sorted(self._running):
            ends[int(self._machine[running])].append((finish, running))
        ready = [
            (self._room.free_for(task, machine, ends[machine]), machine)
            for machine in self._room.empty_for(task)
            if not self._holds.on(machine)
        ]
        if ready:
            when, machine = min(ready)
            self._holds.begin(Hold(user, machine, when))

    def _declare(self, user: int, task: int) -> None:
        """Tell the pool what a user's next task needs, if the policy asks for that."""
        if not self._counts_tasks:
            return
        room = self._room
        demand, constraint = room.demand(task), room.constraint(task)
        known = self._declared.get(user)
        if known is not None and known[0] is demand and known[1] == constraint:
            return
        self._declared[user] = demand, constraint
        if known is None or known[1] != constraint:
            self._places.restrict(
                user,
                None
                if constraint == UNCONSTRAINED
                else lambda machine: room.allows(constraint, int(machine)),
            )
        assert isinstance(self.pool, Exact)
        self.pool.set_demand(user, demand)
