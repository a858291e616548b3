"""Finds the emulated scheduler and the sampling period for a policy."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from allocator import plugins
from allocator.complaints import complaints
from allocator.fairness import policies
from allocator.fairness.policies.duration import seconds
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.frozen import SampledPolicy
from allocator.simulation.originals.htcondor import Condor
from allocator.simulation.originals.kai import Kai, KaiCycles
from allocator.simulation.originals.karma import EmulatedKarma
from allocator.simulation.originals.kueue import Kueue
from allocator.simulation.originals.original import EmulatedScheduler
from allocator.simulation.originals.slurm import Slurm
from allocator.simulation.originals.volcano import EmulatedVolcano

AS_ORIGINAL = "original"
"""Value of the option `sampled` that selects the original system's own period."""

_ORIGINALS: Mapping[str, type[EmulatedScheduler]] = {
    "slurm-fair-tree": Slurm,
    "htcondor": Condor,
    "kueue-afs": Kueue,
    "volcano": EmulatedVolcano,
    "karma": EmulatedKarma,
    "kai": KaiCycles,
}


def create_policy(name: str, parameters: Mapping[str, object]) -> policies.Policy:
    """Create a policy by name: a policy of the live cluster, or "kai", which only simulations have.

    Raises:
        ValueError: No policy has this name, or the policy rejects the parameters.
    """
    if name != Kai.name:
        return plugins.create(name, parameters)
    try:
        return Kai.model_validate(dict(parameters))
    except ValidationError as error:
        raise ValueError(f"policy 'kai': {'; '.join(complaints(error, Kai))}") from None


def period_of(policy: policies.Policy, sampled: float | str) -> float:
    """Convert the option `sampled` to a sampling period in seconds.

    Args:
        policy: The policy to emulate.
        sampled: Seconds, a duration such as "5m", or "original".

    Raises:
        ValueError: The value is invalid, or the policy cannot be sampled.
    """
    kind = _ORIGINALS.get(policy.name, SampledPolicy)
    if kind is SampledPolicy and (policy.counts_tasks or policy.per_machine or policy.queues):
        raise ValueError(
            f"under {policy.name} priorities do not depend on users alone; they cannot be sampled"
        )
    if sampled != AS_ORIGINAL:
        period = seconds(sampled)
        if not isinstance(period, float | int) or not 0.0 < period < math.inf:
            raise ValueError(f"{sampled!r} is not a sampling period, such as '5m'")
        return float(period)
    if kind is SampledPolicy:
        raise ValueError(
            f"{policy.name} has no original; give a sampling period, such as '5m'. "
            f"Policies with an original: {', '.join(_ORIGINALS)}"
        )
    return kind.PERIOD


def emulated_scheduler(
    policy: policies.Policy, capacity: Quantities, period: float
) -> EmulatedScheduler:
    """Create the emulation of the scheduler that a policy models, for example Slurm.

    A policy that models no scheduler keeps its own accounts, with priorities computed only once per
    period.

    Args:
        policy: The policy to emulate.
        capacity: The cluster's capacity.
        period: Sampling period in seconds.
    """
    create: Callable[[Any, Quantities, float], EmulatedScheduler] = _ORIGINALS.get(
        policy.name, SampledPolicy
    )
    return create(policy, capacity, period)
