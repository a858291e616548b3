"""Master calls: one function for each call of Mesos's `Allocator` interface (Mesos semantics, §1).

Each function *prepares* a call: it reads and validates the call without changing anything. The
function returns a closure that makes the change. The closure cannot fail, so an invalid call is
never applied in part.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from allocator.cluster.calls import agents, frameworks, operators, resources
from allocator.cluster.state import Cluster
from allocator.cooperative import Cooperative

Change: TypeAlias = Callable[[], Cooperative[None] | None]
"""Applies a prepared call to the cluster, perhaps in cooperative steps; cannot fail."""
Prepare: TypeAlias = Callable[[Cluster, Any], Change | Cooperative[Change]]
"""Validates a call, perhaps in cooperative steps; returns its change or raises `InvalidEvent`."""

PREPARE: dict[str, Prepare] = {
    "tick": operators.tick,
    "pause": operators.pause,
    "resume": operators.resume,
    "recover": operators.recover,
    "set_quota": operators.set_quota,
    "remove_quota": operators.remove_quota,
    "update_quota": operators.update_quota,
    "update_weights": operators.update_weights,
    "update_whitelist": operators.update_whitelist,
    "add_agent": agents.add,
    "remove_agent": agents.remove,
    "update_agent": agents.update,
    "add_resource_provider": agents.add_resource_provider,
    "activate_agent": agents.activate,
    "deactivate_agent": agents.deactivate,
    "update_unavailability": agents.update_unavailability,
    "update_inverse_offer": agents.update_inverse_offer,
    "get_inverse_offer_statuses": agents.get_inverse_offer_statuses,
    "add_framework": frameworks.add,
    "update_framework": frameworks.update,
    "remove_framework": frameworks.remove,
    "activate_framework": frameworks.activate,
    "deactivate_framework": frameworks.deactivate,
    "revive_offers": frameworks.revive,
    "suppress_offers": frameworks.suppress,
    "request_resources": frameworks.request,
    "recover_resources": resources.recover,
    "reject_offer": resources.reject,
    "update_allocation": resources.update_allocation,
    "update_available": resources.update_available,
    "transition_offered_to_allocated": resources.transition_offered_to_allocated,
}
"""name of the call in the contract's `Event` → function that prepares the call"""
