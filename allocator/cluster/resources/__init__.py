"""Mesos resource objects: identity, arithmetic, reservations and shared volumes.

A Mesos `Resource` message is split into its *kind* and its *amount*. The kind consists of all
fields except the amount and the role that the resource is allocated to. `Resources` maps kinds to
amounts. Unknown fields are kept in the kind's template and returned unchanged.

The rules are in docs/explanation/mesos-semantics.md (§2), after
`src/common/resources.cpp` of Mesos 1.8.
"""

from allocator.cluster.resources.bag import (
    NOTHING,
    Resources,
    known_allocated,
    parse_allocated,
    parse_allocated_in_steps,
    parse_total,
    parse_used,
)
from allocator.cluster.resources.kinds import (
    NOBODY,
    InvalidResource,
    Kind,
    decoded,
    entries,
    merge_reservations,
    reserver,
    shortened,
)

__all__ = [
    "NOBODY",
    "NOTHING",
    "InvalidResource",
    "Kind",
    "Resources",
    "decoded",
    "entries",
    "known_allocated",
    "merge_reservations",
    "parse_allocated",
    "parse_allocated_in_steps",
    "parse_total",
    "parse_used",
    "reserver",
    "shortened",
]
