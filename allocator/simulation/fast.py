"""The fast path: the decisions of the reference simulator from compiled kernels."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.policies import Policy
from allocator.fairness.policies.cmmf import Cmmf
from allocator.fairness.policies.drf import Drf
from allocator.fairness.policies.fifo import Fifo
from allocator.fairness.policies.sdrf import Sdrf
from allocator.simulation.kernels import pooled
from allocator.simulation.kernels.finishes import new_finishes
from allocator.simulation.kernels.fits import new_needs
from allocator.simulation.kernels.tournament import new_tournament
from allocator.simulation.outcome import NEVER, Operations, Outcome
from allocator.simulation.parts import Parts
from allocator.simulation.reference import who
from allocator.simulation.setting import Setting
from allocator.simulation.trace import Trace

T = TypeVar("T", bound=np.generic)

_CHUNK = 1 << 17
"""Tasks between two reports of progress."""


def supports(setting: Setting) -> bool:
    """Whether there are kernels for a setting."""
    return setting.capacity is not None and type(setting.new_policy()) in (Fifo, Drf, Cmmf, Sdrf)


def simulate(
    trace: Trace, setting: Setting, progress: Callable[[int], None] | None = None
) -> Outcome:
    """Start the tasks of a trace as allocator.simulation.reference does, only faster.

    Args:
        trace: At most 2³¹ − 1 tasks.
        setting: One that is supported.
        progress: Is told now and then how many tasks have been submitted.

    Raises:
        SettingError: The setting does not fit the trace.
        ValueError: There are no kernels for the setting.
    """
    if not supports(setting):
        raise ValueError(f"there is no fast path for {setting}; use the reference simulator")
    machines = setting.machines(trace)
    parts = Parts.of(trace, machines)
    party, parties = who(trace, setting)
    capacity = parts.whole(machines)[0]
    rule = _rule(setting, trace, capacity)
    pool = _new_pool(trace, party, parties, parts, capacity, rule)
    tasks = len(trace)
    for done in range(0, tasks, _CHUNK):
        until = min(done + _CHUNK, tasks)
        pooled.run(pool, rule, until)
        if progress is not None:
            progress(until)
    started = pool.tasks.started
    return Outcome(
        trace=trace,
        started=started,
        machine=np.where(started == NEVER, np.int32(NEVER), np.int32(0)),
        operations=Operations(),
    )


def _read_only(column: NDArray[T]) -> NDArray[T]:
    """Return a view such that kernels are compiled for one kind of array only."""
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view


def _rule(setting: Setting, trace: Trace, capacity: NDArray[np.int64]) -> pooled.Rule:
    policy = setting.new_policy()
    tau = policy.tau
    return pooled.Rule(
        kind=_kind(policy),
        tau=math.inf if tau is None else tau,
        rebased_after=policy.rebased_after,
        resource=_place(policy, trace, capacity),
        counted=np.flatnonzero(capacity),
        appearing=setting.users == "appearing",
        skip=setting.blocking == "skip",
        remembers=tau is not None,
    )


def _kind(policy: Policy) -> int:
    if isinstance(policy, Sdrf):
        return pooled.SDRF_THESIS if policy.form == "thesis" else pooled.SDRF_JOURNAL
    return {Fifo: pooled.FIFO, Cmmf: pooled.KEY_OF_ONE, Drf: pooled.DRF}[type(policy)]


def _place(policy: Policy, trace: Trace, capacity: NDArray[np.int64]) -> int:
    """Return where the one resource that a policy goes by is, or −1."""
    if not isinstance(policy, Cmmf) or policy.resource not in trace.resources:
        return -1
    place = trace.resources.index(policy.resource)
    return place if capacity[place] else -1


def _new_pool(  # noqa: PLR0913, PLR0917 - all of it is laid out here
    trace: Trace,
    party: NDArray[np.int32],
    parties: int,
    parts: Parts,
    capacity: NDArray[np.int64],
    rule: pooled.Rule,
) -> pooled.Pool:
    tasks, resources = trace.demand.shape
    lines = max(len(rule.counted), 1) if rule.remembers else 1
    tree = new_tournament(parties)
    counters = np.zeros(9, np.int64)
    counters[pooled.KNOWN] = 0 if rule.appearing else parties
    counters[pooled.STALE] = 1
    return pooled.Pool(
        tasks=pooled.Tasks(
            submitted=_read_only(trace.submitted),
            runtime=_read_only(trace.runtime),
            party=_read_only(party),
            demand=_read_only(trace.demand),
            started=np.full(tasks, NEVER, np.int64),
            following=np.empty(tasks, np.int32),
        ),
        parties=pooled.Parties(
            allocation=np.zeros((parties, resources), np.int64),
            share=np.zeros((parties, resources)),
            overuse=np.zeros((parties, resources)),
            commitment=np.zeros((parties, resources)),
            settled_at=np.zeros(parties),
            known=np.full(parties, not rule.appearing),
            active=np.zeros(parties, np.bool_),
            turn=np.zeros(parties, np.int64),
            lines=np.zeros((parties, lines, 2)),
            head=np.full(parties, pooled.NOTHING, np.int32),
            tail=np.full(parties, pooled.NOTHING, np.int32),
            need=np.zeros((parties, resources), np.int64),
        ),
        running=new_finishes(tasks, resources),
        tree=tree,
        needs=new_needs(tree, resources),
        capacity=capacity,
        scale=np.array(parts.per_unit),
        rounded=np.array(parts.rounded),
        free=capacity.copy(),
        counters=counters,
        clock=np.array([0.0, 0.0, 1.0]),
    )
