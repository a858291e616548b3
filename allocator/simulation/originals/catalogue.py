"""Which original belongs to which policy, and how often it looks."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from allocator import plugins
from allocator.complaints import complaints
from allocator.fairness import policies
from allocator.fairness.policies.duration import seconds
from allocator.fairness.quantities import Quantities
from allocator.simulation.originals.frozen import Frozen
from allocator.simulation.originals.htcondor import Condor
from allocator.simulation.originals.kai import Kai, KaiCycles
from allocator.simulation.originals.karma import OriginalKarma
from allocator.simulation.originals.kueue import Kueue
from allocator.simulation.originals.original import Original
from allocator.simulation.originals.slurm import Slurm
from allocator.simulation.originals.volcano import OriginalVolcano

AS_ORIGINAL = "original"
"""As a period: that of the original."""

_ORIGINALS: Mapping[str, type[Original]] = {
    "slurm-fair-tree": Slurm,
    "htcondor": Condor,
    "kueue-afs": Kueue,
    "volcano": OriginalVolcano,
    "karma": OriginalKarma,
    "kai": KaiCycles,
}


def create_policy(name: str, parameters: Mapping[str, object]) -> policies.Policy:
    """Make a policy of the live cluster, or one that is there for simulations alone.

    Raises:
        ValueError: there is none of that name, or it does not take the parameters.
    """
    if name != Kai.name:
        return plugins.create(name, parameters)
    try:
        return Kai.model_validate(dict(parameters))
    except ValidationError as error:
        raise ValueError(f"policy 'kai': {'; '.join(complaints(error, Kai))}") from None


def period_of(policy: policies.Policy, sampled: float | str) -> float:
    """Return the seconds between two looks.

    Args:
        policy: What is imitated.
        sampled: Seconds, a duration such as "5m", or "original".

    Raises:
        ValueError: it is none of these, or nothing is sampled under the policy.
    """
    kind = _ORIGINALS.get(policy.name, Frozen)
    if kind is Frozen and (policy.counts_tasks or policy.per_machine or policy.queues):
        raise ValueError(
            f"under {policy.name} priorities are not only of users; nothing is sampled"
        )
    if sampled != AS_ORIGINAL:
        period = seconds(sampled)
        if not isinstance(period, float | int) or not 0.0 < period < math.inf:
            raise ValueError(f"{sampled!r} is no time from one look to the next, such as '5m'")
        return float(period)
    if kind is Frozen:
        raise ValueError(
            f"{policy.name} is not sampled by anybody; say how often, such as '5m'. "
            f"Originals are known of: {', '.join(_ORIGINALS)}"
        )
    return kind.PERIOD


def original_of(policy: policies.Policy, capacity: Quantities, period: float) -> Original:
    """Return accounts as the original of a policy keeps them, looking so often."""
    make: Callable[[Any, Quantities, float], Original] = _ORIGINALS.get(policy.name, Frozen)
    return make(policy, capacity, period)
