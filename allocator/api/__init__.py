"""Longshare's public API for programs: the names in `__all__`, and no others.

Each name is imported on first use, so programs that use only policies and pools do not load NumPy.
Members of a public class are public, too, unless their names begin with an underscore.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from allocator.api.optima import optimum, violation
    from allocator.api.ranking import policies, policy, read_policies, register_policy
    from allocator.api.simulating import Simulation, Task, make_trace, simulate
    from allocator.conformance import Complaint, check_policy, complaints
    from allocator.fairness.account import Account
    from allocator.fairness.machines import Machines
    from allocator.fairness.policies.lines import LinePolicy
    from allocator.fairness.policies.policy import KeyPolicy, Policy
    from allocator.fairness.policies.sdrf import Sdrf
    from allocator.fairness.policies.stsf import Stsf
    from allocator.fairness.pool import Pool
    from allocator.fairness.quantities import Quantities
    from allocator.fairness.standing import Standing
    from allocator.simulation.store import read as read_trace
    from allocator.simulation.store import write as write_trace
    from allocator.simulation.trace import MachineClass, Trace
    from allocator.theory.divisible.optimum import Part, Shared
    from allocator.theory.divisible.problem import Problem
    from allocator.theory.properties.case import Violation

_PLACES: Final = {
    "Account": "allocator.fairness.account",
    "Complaint": "allocator.conformance",
    "KeyPolicy": "allocator.fairness.policies.policy",
    "LinePolicy": "allocator.fairness.policies.lines",
    "MachineClass": "allocator.simulation.trace",
    "Machines": "allocator.fairness.machines",
    "Part": "allocator.theory.divisible.optimum",
    "Policy": "allocator.fairness.policies.policy",
    "Pool": "allocator.fairness.pool",
    "Problem": "allocator.theory.divisible.problem",
    "Quantities": "allocator.fairness.quantities",
    "Sdrf": "allocator.fairness.policies.sdrf",
    "Shared": "allocator.theory.divisible.optimum",
    "Simulation": "allocator.api.simulating",
    "Standing": "allocator.fairness.standing",
    "Stsf": "allocator.fairness.policies.stsf",
    "Task": "allocator.api.simulating",
    "Trace": "allocator.simulation.trace",
    "Violation": "allocator.theory.properties.case",
    "check_policy": "allocator.conformance",
    "complaints": "allocator.conformance",
    "make_trace": "allocator.api.simulating",
    "optimum": "allocator.api.optima",
    "policies": "allocator.api.ranking",
    "policy": "allocator.api.ranking",
    "read_policies": "allocator.api.ranking",
    "read_trace": "allocator.simulation.store:read",
    "register_policy": "allocator.api.ranking",
    "simulate": "allocator.api.simulating",
    "violation": "allocator.api.optima",
    "write_trace": "allocator.simulation.store:write",
}
"""Module that defines each public name. A name after a colon is the module's own name for it."""

__all__ = [
    "Account",
    "Complaint",
    "KeyPolicy",
    "LinePolicy",
    "MachineClass",
    "Machines",
    "Part",
    "Policy",
    "Pool",
    "Problem",
    "Quantities",
    "Sdrf",
    "Shared",
    "Simulation",
    "Standing",
    "Stsf",
    "Task",
    "Trace",
    "Violation",
    "check_policy",
    "complaints",
    "make_trace",
    "optimum",
    "policies",
    "policy",
    "read_policies",
    "read_trace",
    "register_policy",
    "simulate",
    "violation",
    "write_trace",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a public name of any kind
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _colon, attribute = _PLACES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
