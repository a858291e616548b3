"""The fast simulator: the reference simulator's decisions, made by compiled (Numba) kernels."""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.policies import Policy
from allocator.fairness.policies.cdrf import Cdrf
from allocator.fairness.policies.cmmf import Cmmf
from allocator.fairness.policies.drf import Drf
from allocator.fairness.policies.drfh import Drfh
from allocator.fairness.policies.fifo import Fifo
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.policies.stsf import Stsf
from allocator.fairness.policies.tsf import Tsf
from allocator.simulation.kernels import simulation as kernels
from allocator.simulation.kernels.compiled import MISSING, cache_folder
from allocator.simulation.kernels.finishes import new_finishes
from allocator.simulation.kernels.free_capacity import FreeCapacityArrays, new_free_capacity
from allocator.simulation.kernels.live_tree import EVENTS, new_live_tree
from allocator.simulation.kernels.stuck import new_stuck
from allocator.simulation.kernels.tournament import new_tournament
from allocator.simulation.outcome import NEVER, Operations, Outcome
from allocator.simulation.parts import Parts
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting
from allocator.simulation.sharers import Sharers, sharers
from allocator.simulation.trace import Trace

__all__ = ["MISSING", "cache_folder", "compile_kernels", "simulate", "supports"]

T = TypeVar("T", bound=np.generic)

_KINDS: dict[type[Policy], int] = {
    Fifo: kernels.FIFO,
    Cmmf: kernels.ONE_RESOURCE,
    Drf: kernels.DRF,
    Drfh: kernels.DRFH,
    Tsf: kernels.TSF,
    Cdrf: kernels.CDRF,
    Sdrf: kernels.SDRF,
    Stsf: kernels.STSF,
}
_NEVER = 2**63 - 1
_CHUNK = 1 << 18
"""Number of submissions and finishes between two calls of the progress callback."""


def supports(setting: Setting) -> bool:
    """Return whether the compiled kernels can simulate a setting.

    Other settings need the reference simulator. Without Numba, all settings do.
    """
    return (
        MISSING is None
        and setting.sampled is None
        and setting.blocking in {"head-of-line", "skip"}
        and type(setting.new_policy()) in _KINDS
    )


def simulate(
    trace: Trace,
    setting: Setting,
    progress: Callable[[int], None] | None = None,
    *,
    events: bool = True,
    series: Series | None = None,
) -> Outcome:
    """Simulate a trace with the same starts as allocator.simulation.reference, but faster.

    A task costs O(log n) for n users and O(log m) for m machines.

    Args:
        trace: A trace of at most 2³¹ − 1 tasks.
        setting: A supported setting.
        progress: Called now and then with the number of started tasks; at the end, with the number
            of all tasks.
        events: Whether to count operations and, under policies with drifting priorities, the events
            of a Live Tree (possible swaps of two neighbours). Counting takes extra time. If False,
            `operations` is empty.
        series: Receives the users' shares and commitments at regular instants.

    Raises:
        SettingError: The setting does not fit the trace.
        ValueError: The kernels do not support the setting.
    """
    if MISSING is not None:
        raise ValueError(
            f"there is no fast path without Numba ({MISSING}); use the reference simulator"
        )
    if not supports(setting):
        raise ValueError(f"the fast simulator cannot simulate {setting}; use --reference")
    machines = setting.machines(trace)
    parts = Parts.of(trace, machines)
    free_capacity = _room(trace, setting, parts)
    rule = _rule(trace, setting, parts, parts.whole(machines).sum(axis=0), events=events)
    state = _new_state(trace, rule, free_capacity, sharers(trace, setting))
    while True:
        reason = kernels.run(state, rule, _CHUNK, _NEVER if series is None else series.due)
        if reason == kernels.DONE:
            break
        if reason == kernels.DUE and series is not None:
            series.take(*_standings(state, rule, series.due))
        elif progress is not None:
            progress(int(state.counters[kernels.STARTS]))
    if progress is not None:
        progress(len(trace))
    started, machine = state.tasks.started, state.tasks.machine
    if not len(machine):
        machine = np.where(started == NEVER, np.int32(NEVER), np.int32(0))
    return Outcome(trace, started, machine, _operations(state) if events else Operations())


def compile_kernels() -> bool:
    """Compile the kernels, or load them from the cache, before the first simulation.

    Otherwise, the first simulation would have to wait for the compiler. Return True if the kernels
    were compiled, False if the cache had them.

    Raises:
        ValueError: Numba cannot be imported.
    """
    empty = Trace(
        resources=("cpus",),
        users=("nobody",),
        submitted=np.empty(0, np.int64),
        runtime=np.empty(0, np.int64),
        user=np.empty(0, np.int32),
        job=np.empty(0, np.int64),
        demand=np.empty((0, 1)),
        constraint=np.empty(0, np.int32),
    )
    simulate(empty, Setting("drf", capacity=(1.0,)))
    compiled: Any = kernels.run
    return bool(compiled.stats.cache_misses)


def _standings(
    state: kernels.State, rule: kernels.Rule, instant: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return all users' dominant shares and commitments at an instant, for the recorded series.

    Args:
        state: State of the simulation after the last event before the instant.
        rule: Constants of the simulation.
        instant: Time in microseconds, not later than the next event.
    """
    users, clock = state.users, state.clock
    held = users.allocation
    shares = held[:, rule.shared] / rule.capacity[rule.shared]
    dominant = shares.max(axis=1, initial=0.0)
    if rule.tau == math.inf:
        return dominant, np.full(len(dominant), math.nan)
    if not len(rule.shared):
        return dominant, dominant  # without shared resources there is no overuse
    if rule.kind == kernels.STSF:
        with np.errstate(divide="ignore", invalid="ignore"):
            tasks = np.where(users.need > 0, held / (users.need * users.monopoly[:, None]), 0.0)
        measured = np.nan_to_num(tasks).max(axis=1, initial=0.0, keepdims=True)
    else:
        measured = shares
    entitlement = users.weight / clock[kernels.WEIGHTS] if users.known.any() else users.weight
    overuse = np.maximum(measured - entitlement[:, None], 0.0)
    decayed = -np.expm1(-(instant / 1e6 - users.accrued_at) / rule.tau)
    commitments = users.commitment + (overuse - users.commitment) * decayed[:, None]
    return dominant, np.where(users.known, commitments.max(axis=1, initial=0.0), 0.0)


def _operations(state: kernels.State) -> Operations:
    counted = {
        "insert": kernels.INSERTS,
        "delete": kernels.DELETES,
        "minimum": kernels.MINIMA,
        "order": kernels.ORDERS,
    }
    count = {name: int(state.counters[counter]) for name, counter in counted.items()}
    return Operations(
        count={name: number for name, number in count.items() if number},
        events=int(state.live.numbers[EVENTS]),
    )


def _room(trace: Trace, setting: Setting, parts: Parts) -> FreeCapacityArrays:
    if setting.capacity is not None:
        return new_free_capacity(parts.whole(np.array([setting.capacity])), [1], [])
    return new_free_capacity(
        parts.whole(np.array([kind.capacity for kind in trace.machines])),
        [kind.count for kind in trace.machines],
        [sorted(allowed) for allowed in trace.constraints],
    )


def _rule(
    trace: Trace, setting: Setting, parts: Parts, capacity: NDArray[np.int64], *, events: bool
) -> kernels.Rule:
    policy = setting.new_policy()
    kind = _KINDS[type(policy)]
    if isinstance(policy, Sdrf) and kind == kernels.SDRF and policy.form == "thesis":
        kind = kernels.SDRF_THESIS
    resource = -1
    if isinstance(policy, Cmmf) and policy.resource in trace.resources:
        index = trace.resources.index(policy.resource)
        resource = index if capacity[index] else -1
    return kernels.Rule(
        kind=kind,
        tau=math.inf if policy.tau is None else policy.tau,
        rebased_after=policy.rebased_after,
        resource=resource,
        shared=np.flatnonzero(capacity),
        capacity=capacity,
        scale=np.array(parts.per_unit),
        rounded=np.array(parts.rounded),
        skip=setting.blocking == "skip",
        constrained=setting.capacity is None,
        counts_events=events and policy.tau is not None,
        by_live_tree=events and policy.tau is not None and setting.blocking != "skip",
    )


def _new_state(
    trace: Trace, rule: kernels.Rule, free_capacity: FreeCapacityArrays, all_sharers: Sharers
) -> kernels.State:
    tasks, resources = trace.demand.shape
    users = len(all_sharers)
    by_resource = rule.kind in (kernels.SDRF, kernels.SDRF_THESIS)
    lines = max(len(rule.shared), 1) if by_resource else 1
    tree = new_tournament(users)
    clock = np.zeros(kernels.CLOCK)
    clock[kernels.S] = 1.0
    weights = _weights(all_sharers)
    clock[kernels.WEIGHTS] = weights[0]
    return kernels.State(
        tasks=kernels.TaskArrays(
            submitted=_read_only(trace.submitted),
            runtime=_read_only(trace.runtime),
            user=_read_only(all_sharers.number),
            demand=_read_only(trace.demand),
            constraint=_read_only(trace.constraint),
            started=np.full(tasks, NEVER, np.int64),
            machine=np.full(tasks if len(free_capacity.kind) > 1 else 0, NEVER, np.int32),
            following=np.empty(tasks, np.int32),
        ),
        users=kernels.UserArrays(
            allocation=np.zeros((users, resources), np.int64),
            shares=np.zeros((users, resources)),
            overuse=np.zeros((users, lines)),
            commitment=_initial_commitments(all_sharers, rule, lines),
            lines=np.zeros((users, lines, 2)),
            accrued_at=np.zeros(users),
            weight=all_sharers.weights,
            known=all_sharers.known.copy(),
            active=np.zeros(users, np.bool_),
            turn=np.zeros(users, np.int64),
            head=np.full(users, kernels.NOTHING, np.int32),
            tail=np.full(users, kernels.NOTHING, np.int32),
            runtime=np.zeros(users, np.int64),
            following=np.full(users, kernels.NOTHING, np.int32),
            need=np.zeros((users, resources), np.int64),
            constraint=np.zeros(users, np.int64),
            monopoly=np.zeros(users, np.int64),
            fresh=np.empty(users, np.int64),
        ),
        running=new_finishes(tasks, resources),
        tree=tree,
        live=new_live_tree(users if rule.counts_events else 0, lines),
        free_capacity=free_capacity,
        stuck=new_stuck(tree, resources),
        counters=np.zeros(kernels.COUNTERS, np.int64),
        clock=clock,
        weights=weights,
        scratch=np.zeros(resources, np.int64),
    )


def _weights(all_sharers: Sharers) -> NDArray[np.float64]:
    """Return running totals of the users' weights: entry k is the sum after k users have joined.

    The users known from the start join first, then all others in order of their first submission.
    The sums are exact and rounded once, as in a pool (`allocator.fairness.pool_parameters`).
    """
    ratios = [weight.as_integer_ratio() for weight in all_sharers.weights.tolist()]
    # Denominators of doubles are powers of two.
    unit = max((denominator for _, denominator in ratios), default=1)
    units = [numerator * (unit // denominator) for numerator, denominator in ratios]
    known = sum(units[user] for user in np.flatnonzero(all_sharers.known).tolist())
    newcomers = (units[user] for user in _newcomers(all_sharers))
    return np.array([total / unit for total in accumulate(newcomers, initial=known)])


def _newcomers(all_sharers: Sharers) -> list[int]:
    """Return the users that join the pool only with their first submission, in this order.

    The users are numbers, as in `all_sharers`.
    """
    if all_sharers.known.all():  # the usual case; otherwise each task must be read
        return []
    first = np.full(len(all_sharers), len(all_sharers.number), np.int64)
    # The last write to an index remains.
    first[all_sharers.number[::-1]] = np.arange(len(all_sharers.number) - 1, -1, -1)
    order = np.argsort(first)
    newcomers: list[int] = order[~all_sharers.known[order]].tolist()
    return newcomers


def _initial_commitments(
    all_sharers: Sharers, rule: kernels.Rule, lines: int
) -> NDArray[np.float64]:
    """Return initial commitments in the layout of the kernels, shape (users, lines).

    SDRF keeps one line per shared resource. For other policies, each line repeats the user's
    largest commitment.

    Args:
        lines: Number of commitment values that the kernels keep for each user.
        all_sharers: The simulated users, with their commitments by resource of the trace.
        rule: Constants of the simulation.
    """
    if rule.kind in (kernels.SDRF, kernels.SDRF_THESIS):
        commitments = np.zeros((len(all_sharers), lines))
        commitments[:, : len(rule.shared)] = all_sharers.commitments[:, rule.shared]
        return commitments
    # Commitments for resources that the cluster does not have are dropped.
    shared = all_sharers.commitments[:, rule.shared]
    return np.repeat(shared.max(axis=1, initial=0.0)[:, np.newaxis], lines, axis=1)


def _read_only(column: NDArray[T]) -> NDArray[T]:
    """Return a read-only view of an array of the trace.

    If all these arrays are read-only, Numba compiles each kernel for one array type only.
    """
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view
