"""Mesos resource objects: identity, arithmetic, reservation, sharing.

A Mesos `Resource` message is split into its *kind* (everything but the amount and the role it
is allocated to) and its *amount*; `Resources` maps kinds to amounts. Fields that these modules
do not know stay in the kind's template and leave as they came.

Rules: `mesos-allocator.md` §2, after `src/common/resources.cpp` of Mesos 1.8.
"""

from allocator.cluster.resources.bag import (
    NOTHING,
    Resources,
    parse_allocated,
    parse_total,
    parse_used,
)
from allocator.cluster.resources.kinds import InvalidResource, Kind, decoded

__all__ = [
    "NOTHING",
    "InvalidResource",
    "Kind",
    "Resources",
    "decoded",
    "parse_allocated",
    "parse_total",
    "parse_used",
]
