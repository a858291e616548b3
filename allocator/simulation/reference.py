"""The reference simulator: runs Algorithm 1 (Stateful DRF) with the live cluster's policies.

`allocator.simulation.fast` makes the same decisions faster; tests compare both.
"""

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
from allocator.simulation.originals.catalogue import emulated_scheduler, period_of
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting
from allocator.simulation.sharers import sharers
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace
from allocator.simulation.watch import Watch

Progress: TypeAlias = Callable[[int], None]
"""Progress callback. The argument counts the tasks that have started or can never start."""

_REPORTED = 1000
"""Number of tasks between two calls of the progress callback."""


def simulate(
    trace: Trace,
    setting: Setting,
    progress: Progress | None = None,
    *,
    series: Series | None = None,
) -> Outcome:
    """Simulate a trace under a policy; docs/reference/simulation.md gives the rules.

    The result is deterministic. Each task costs O(log n) for n users, plus one check of each
    machine. If the setting lets the simulator skip users, each finish also costs one check per
    waiting user.

    Args:
        progress: Called during the simulation with the number of processed tasks.
        series: Receives the users' shares and commitments at regular instants.
        trace: The submitted tasks.
        setting: The policy and the options of the simulation.

    Raises:
        SettingError: The setting does not fit the trace.
        PolicyFailedError: The policy raised an error; continuing would give starts that the policy
            did not choose.
    """
    return ReferenceSimulation(trace, setting, series).run(progress)


class ReferenceSimulation:
    """A simulated cluster: waiting tasks, running tasks, and the rule that starts the next task.

    Args:
        trace: The submitted tasks.
        setting: The policy and the options of the simulation.
        series: Receives the users' shares and commitments at regular instants. If the setting
            samples usage, nothing is recorded, because no values exist between samples.

    Raises:
        SettingError: The setting does not fit the trace.
    """

    def __init__(self, trace: Trace, setting: Setting, series: Series | None = None) -> None:
        self.trace = trace
        self._series = series
        self.now = 0
        """Current simulated time in microseconds."""
        self._skips = setting.blocking != "head-of-line"
        self._holds = Holds(setting.blocking)
        self._free_capacity = FreeCapacity(trace, setting)
        self._machine_classes: Machines[int] = Machines()
        for machine, capacity in enumerate(self._free_capacity.capacities):
            self._machine_classes.put(str(machine), capacity)
        policy = self._policy = setting.new_policy()
        self._counts_tasks = policy.counts_tasks
        self._per_machine = policy.per_machine and setting.capacity is None
        self._watch = Watch()
        self.pool: Exact | Sampled = self._new_order(policy, setting)
        all_sharers = sharers(trace, setting)
        self._user: list[int] = all_sharers.number.tolist()
        self._weights: list[float] = all_sharers.weights.tolist()
        present = [
            (resource, name)
            for resource, name in enumerate(trace.resources)
            if self._free_capacity.capacity[name]
        ]
        for user in np.flatnonzero(all_sharers.known).tolist():
            self._add(
                user,
                {
                    name: float(all_sharers.commitments[user, resource])
                    for resource, name in present
                },
            )
        self.waiting: defaultdict[int, deque[int]] = defaultdict(deque)
        """Indices of waiting tasks by user, in order of submission."""
        self._stuck: set[int] = set()
        """Users whose next task fits on no machine, except perhaps on a machine just freed.

        Used only if users are skipped.
        """
        self._declared: dict[int, tuple[Quantities, int]] = {}
        """For each user, the demand and the constraint that were last declared to the pool."""
        self._held: defaultdict[int, dict[int, Quantities]] = defaultdict(dict)
        """For each machine, the resources that each user holds there."""
        self._running: list[tuple[int, int, int]] = []
        """Heap of running tasks: (finish time, serial number of the start, task index)."""
        self._processed = self._starts = 0
        self._started = np.full(len(trace), NEVER, np.int64)
        self._machine = np.full(len(trace), NEVER, np.int32)

    def run(
        self, progress: Progress | None = None, observe: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Process all submissions and finishes in order of time. Return where and when tasks ran.

        Args:
            progress: Called with the number of processed tasks.
            observe: Called after each submission or finish; may read the simulation, not change it.

        Raises:
            PolicyFailedError: The policy raised an error.
        """
        reported = 0
        for _ in self._events():
            observe()
            require_success(self._policy)
            if progress is not None and self._processed >= reported + _REPORTED:
                reported = self._processed
                progress(reported)
        if progress is not None:
            progress(self._processed)
        return Outcome(
            self.trace, self._started, self._machine, self._watch.operations(self.pool.events)
        )

    def _events(self) -> Iterator[None]:
        for task, instant in enumerate(self.trace.submitted.tolist()):
            while self._running and self._running[0][0] <= instant:
                self._finish()
                yield
            self._record_series(instant)
            self._submit(task, instant)
            yield
        while self._running:
            self._finish()
            yield

    def _record_series(self, instant: int) -> None:
        """Record shares and commitments at each instant due before the next event.

        Args:
            instant: Time of the next event in microseconds.
        """
        series, pool = self._series, self.pool
        while series is not None and isinstance(pool, Exact) and instant > series.due:
            shares, commitments = np.zeros(len(self._weights)), np.zeros(len(self._weights))
            for standing in pool.still().standings_at(series.due / MICROSECONDS):
                shares[standing.user], commitments[standing.user] = (
                    standing.share,
                    standing.commitment,
                )
            if pool.policy.tau is None:
                commitments[:] = math.nan
            series.take(shares, commitments)

    def running(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over running tasks as (user number, task index, machine number)."""
        for _finish, _serial, task in self._running:
            yield self._user[task], task, int(self._machine[task])

    def next_user(self) -> int:
        """Return the first waiting user in the policy's order.

        At least one user must be waiting.
        """
        return self.pool.minimum()

    def _new_order(self, policy: Policy, setting: Setting) -> Exact | Sampled:
        capacity = self._free_capacity.capacity
        if setting.sampled is None:
            return Exact(
                policy,
                capacity=capacity,
                machines=self._machine_classes,
                watch=self._watch,
                exact_ties=isinstance(policy, KeyPolicy | Sdrf),  # as in the compiled kernels
            )
        period = period_of(policy, setting.sampled)
        return Sampled(emulated_scheduler(policy, capacity, period), self._watch)

    def _add(self, user: int, commitments: dict[str, float]) -> None:
        self.pool.join(user, self._weights[user], commitments)

    def _advance(self, instant: int) -> None:
        self.now = instant
        self.pool.advance(instant / MICROSECONDS)

    def _submit(self, task: int, instant: int) -> None:
        self._advance(instant)
        user = self._user[task]
        if user not in self.pool:
            self._add(user, {})
        if self._free_capacity.could_ever_hold(task):
            self.waiting[user].append(task)
            if len(self.waiting[user]) == 1:
                self._declare(user, task)
                self.pool.set_active(user, True)
        else:
            self._processed += 1
        self._start(None)

    def _finish(self) -> None:
        self._record_series(self._running[0][0])
        finish, _serial, task = heapq.heappop(self._running)
        self._advance(finish)
        user, machine = self._user[task], int(self._machine[task])
        self.pool.ended(
            user, self._free_capacity.demand(task), int(self._started[task]) / MICROSECONDS
        )
        self._free_capacity.give_back(task, machine)
        if self._per_machine:
            remaining = self._held[machine].pop(user) - self._free_capacity.demand(task)
            if remaining:
                self._held[machine][user] = remaining
        self._start(machine)

    def _start(self, freed: int | None) -> None:
        """Start waiting tasks in the policy's order until no further task can start.

        Args:
            freed: The machine on which a task has just finished. None: no task has finished just
                now.
        """
        while self.pool.active:
            chosen = self._next(freed)
            if chosen is None:
                return
            user, machine = chosen
            task = self.waiting[user].popleft()
            demand = self._free_capacity.demand(task)
            self._free_capacity.take(task, machine)
            self.pool.started(user, demand)
            if self._per_machine:
                held = self._held[machine]
                held[user] = held.get(user, Quantities()) + demand
            self._stuck.discard(user)
            if self._holds.end(user):
                self._stuck.clear()  # users that the hold barred may use the rest of the machine
            if self.waiting[user]:
                self._declare(user, self.waiting[user][0])
            else:
                self.pool.set_active(user, False)
            self._started[task] = self.now
            self._machine[task] = machine
            self._starts += 1
            self._processed += 1
            finish = self.now + int(self.trace.runtime[task])
            heapq.heappush(self._running, (finish, self._starts, task))

    def _next(self, freed: int | None) -> tuple[int, int] | None:
        """Return (user, machine) for the next task to start, or None if no task can start.

        Args:
            freed: The machine on which a task has just finished. None: no task has finished just
                now.
        """
        if not self._skips:
            user = self.next_user()
            machine = self._free_capacity.first_fit(self.waiting[user][0])
            return None if machine is None else (user, machine)
        if freed is None and len(self._stuck) == self.pool.active:
            return None
        if self._per_machine:
            return self._next_on_a_machine(freed)
        tried_holds = False
        for user in self.pool:
            machine = self._place(user, freed)
            if machine is not None:
                return user, machine
            if not tried_holds:
                self._hold_in_turn(freed)  # before users later in the order take the capacity
                tried_holds = True
        self._hold_in_turn(freed)
        return None

    def _next_on_a_machine(self, freed: int | None) -> tuple[int, int] | None:
        """Return (user, machine) for a policy that ranks the users of each machine separately.

        The lowest-numbered machine with a fitting next task is chosen, then the first user in that
        machine's order. None: no next task fits.

        Args:
            freed: The machine on which a task has just finished. None: no task has finished just
                now.
        """
        machines = [self._place(user, freed) for user in self.pool]
        machine = min((candidate for candidate in machines if candidate is not None), default=None)
        if machine is None:
            return None
        capacity = self._free_capacity.capacities[machine]
        assert isinstance(self.pool, Exact)
        for user in self.pool.order_on(capacity, self._held[machine]):
            if self._free_capacity.fits(self.waiting[user][0], machine):
                return user, machine
        raise AssertionError(f"nothing fits on machine {machine}")

    def _place(self, user: int, freed: int | None) -> int | None:
        """Return the machine on which a user's next task can start now, or None.

        The lowest-numbered machine with enough free capacity is chosen. Machines that are
        held for other users are left out, unless the task finishes early enough.

        Args:
            user: The user's number.
            freed: The machine on which a task has just finished. None: no task has finished just
                now.
        """
        task = self.waiting[user][0]
        finish = self.now + int(self.trace.runtime[task])
        if user in self._stuck:
            if freed is None or not self._free_capacity.fits(task, freed):
                return None
            return None if self._holds.keeps_off(user, freed, finish) else freed
        machine = self._free_capacity.first_fit(task, self._holds.barred(user, finish))
        if machine is None:
            self._stuck.add(user)
        return machine

    def _hold_in_turn(self, freed: int | None) -> None:
        """Hold machines for the next tasks of waiting users, longest without a hold first.

        A hold keeps a machine free for a task. The method stops at the first user whose next task
        fits, because this task can start without a hold.

        Args:
            freed: The machine on which a task has just finished. None: no task has finished just
                now.
        """
        for user in self._holds.in_turn(self.pool):
            if self._place(user, freed) is not None:
                return
            self._hold(user)

    def _hold(self, user: int) -> None:
        """Let a user hold a machine for its next task, which fits on no machine now.

        The method chooses the unheld machine that will have enough capacity first. Nothing is held
        if no unheld machine could ever run the task.
        """
        task = self.waiting[user][0]
        ends = defaultdict[int, list[tuple[int, int]]](list)
        for finish, _serial, running in sorted(self._running):
            ends[int(self._machine[running])].append((finish, running))
        ready = [
            (self._free_capacity.free_for(task, machine, ends[machine]), machine)
            for machine in self._free_capacity.empty_for(task)
            if not self._holds.on(machine)
        ]
        if ready:
            ready_at, machine = min(ready)
            self._holds.begin(Hold(user, machine, ready_at))

    def _declare(self, user: int, task: int) -> None:
        """Give the pool the demand of a user's next task, if the policy needs it.

        Policies that compare numbers of tasks, such as TSF, compute users' shares from it.
        """
        if not self._counts_tasks:
            return
        free_capacity = self._free_capacity
        demand, constraint = free_capacity.demand(task), free_capacity.constraint(task)
        known = self._declared.get(user)
        if known is not None and known[0] is demand and known[1] == constraint:
            return
        self._declared[user] = demand, constraint
        if known is None or known[1] != constraint:
            self._machine_classes.restrict(
                user,
                None
                if constraint == UNCONSTRAINED
                else lambda machine: free_capacity.allows(constraint, int(machine)),
            )
        assert isinstance(self.pool, Exact)
        self.pool.set_demand(user, demand)
