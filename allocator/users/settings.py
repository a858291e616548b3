"""Settings of the users: their policy, declared users, and when users are forgotten."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from allocator.fairness.policies import Policy

By = Literal["boost", "operator", "master", "slurm", "configuration", ""]
"""Source of a user's weight: an operator's boost or permanent weight, the scheduler (a master, or
Slurm), the configuration, or "" for the default."""


@dataclass(frozen=True, slots=True)
class DeclaredUser:
    """A user that the operator declares before the user's first client appears.

    A declared user is known from the start. The entitlements of other users are therefore smaller
    from the start.
    """

    name: str
    weight: float = 1.0
    commitment: float | Mapping[str, float] = 0.0
    """Initial commitment as a fraction of the cluster: one for every resource, or by resource
    name."""


@dataclass(frozen=True, slots=True)
class UserSettings:
    """All parameters of the user tree. A scheduler adapter derives them from its own settings."""

    policy: Policy
    declared: tuple[DeclaredUser, ...] = field(default=())
    tree: bool = False
    """Whether slashes in a user's name separate the levels of the tree, as in `physics/alice`. If
    false, all users are at the top level."""
    depth: float = math.inf
    """Maximum number of levels of a stored user that is restored."""
    exact_ties: bool = False
    """Whether only users with the same float as priority are equal. If false, users whose
    priorities differ by rounding only are equal, too."""
    steps_from_zero: bool = False
    """Whether priorities of half a step are between two steps (`Pool`)."""
    counts_for: float | None = None
    """Maximum weight with which a user counts in entitlements to a resource, as a multiple of the
    user's use of it. Users with an explicit weight always count with their full weight. None: all
    known users do, as in the SDRF paper."""
    forget_after: float = 86400.0
    """Seconds until an undeclared user without clients or allocation is forgotten. A user with a
    commitment stays known for longer."""
    idle_users: int = 10_000
    """Maximum number of known users without clients and commitments. Beyond the limit, users with
    the least mean use are forgotten early; among equals, the longest idle."""
    keeps_accumulated_use: bool = False
    """Whether accumulated use outlives snapshots and restarts, under policies with priorities by
    accumulated use. Users with much more accumulated use than a new user are then not forgotten by
    time. Beyond `idle_users`, users with nearly the accumulated use of a new user are first."""
    forgets_subtrees: bool = False
    """Whether users above idle users count as idle, too, and are forgotten at the same time. If
    false, only users without sub-users are idle."""
    leaf_keeps_commitments: bool = False
    """Whether the virtual leaf of a user keeps its own commitments when the user's last sub-user is
    gone. If false, the leaf of the next sub-users begins with all commitments of the user."""
    keeps_weighted_users: bool = False
    """Whether users with a weight of the scheduler other than 1 are known as long as they have it.
    They are at most `idle_users`; other weights of the scheduler make no user named. If false, each
    weight of the scheduler makes its user named, but only while the user is known otherwise."""
    leaves_only_in_trees: bool = False
    """Whether stored commitments of the name `x/.` belong to a virtual leaf only if `tree` is set.
    If false, a user with this name loses its commitments at a restart."""
    leaf_keeps_use: bool = False
    """Whether a virtual leaf keeps its mean use in the next tree even if its user has sub-users but
    no clients there. If false, the leaf begins without use once the user has clients again."""
    forgetting_unnames_parents: bool = False
    """Whether the weight of a user names no users above once an operator has forgotten the user. If
    false, these users stay named until the next tree."""
    demands_must_agree: bool = False
    """Whether a user's tasks are counted only if all its clients have the same demand. Commitments
    by resource then grow in any case. If false, the largest demand of the clients counts, so one
    client can raise the task share of its user."""
    compares_by_resource: bool = False
    """Whether policies compare with the entitlement to the compared resource. If false, they
    compare with the entitlement to the user's dominant resource."""
    newcomers_by_use: bool = False
    """Whether users count by their use in the mean accumulated use with which a new user begins. If
    false, users that never held anything count as much as all others."""
    scheduler: By = "master"
    """Source of the weights that the scheduler sends."""
    clients: str = "frameworks"
    """Plural noun for the clients of users, in messages to operators."""
