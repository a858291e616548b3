"""The operator's settings that affect the engine's decisions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from allocator.cluster.agents.placement_constraints import Constraint
from allocator.cluster.backfill.holds import HoldMode
from allocator.cluster.input.limits import Limits
from allocator.fairness.policies import Policy
from allocator.fairness.quantities import Quantities
from allocator.users.settings import DeclaredUser, UserSettings

UserKey = Literal["role", "framework", "principal", "framework_name"]
"""The property that identifies a user: clients with the same value belong to one user, and fairness
is between users."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """All parameters of the engine's decisions: the policy, the kind of users, and limits.

    Some rules have changed since 1.0. Their defaults here are the former rules, because an event
    log without the setting was recorded under them. `allocator.service.config` sets the present
    rules: `whole_from`, `exact_ties`, `counts_for`, `roles_leave_room`, `roles_reserved_for`,
    `roles_reserved_by_principal`, `hold_by_turns`, `shared_volumes_once`, `keeps_accumulated_use`,
    `forgets_subtrees`, `leaf_keeps_commitments`, `frameworks_keep_places`, `keeps_weighted_users`,
    `skips_refusing_clients`, `examines_for_clients`, `refusals_wait`, `departed_refuse_nothing`,
    `headroom_counts_volumes_once`, `leaves_only_in_trees`, `kinds_as_in_mesos`,
    `few_frameworks_keep_places`, `leaf_keeps_use`, `forgetting_unnames_parents`,
    `ties_after_half_lives`, `left_out_agents_wait`, `skips_void_calls`, `demands_must_agree`,
    `limits_sharing`, `compares_by_resource` and `newcomers_by_use`. All other defaults hold for the
    configuration, too.
    """

    policy: Policy
    user_key: UserKey = "role"
    users: tuple[DeclaredUser, ...] = field(default=())
    allocation: Literal["event", "batch"] = "event"
    """Whether freed resources are offered immediately ("event"), or at the next tick as in stock
    Mesos."""
    demands: Mapping[str, Quantities] = field(default_factory=dict)
    """Resource needs of one task, by framework name. These override what frameworks say
    themselves."""
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    """Placement constraints, by framework name, in addition to what frameworks say themselves."""
    whole_from: int = 0
    """Least number of simultaneously available agents for bulk allocation; 0 disables bulk
    allocation. Event logs without this setting mean 0."""
    exact_ties: bool = True
    """Whether only users with the same float as priority are equal. If false, users whose
    priorities differ by rounding only are equal, too. Event logs without this setting mean
    true."""
    learn_demands: bool = False
    """Whether to learn a framework's task demand from accepted offers, if the framework names
    none."""
    hold_for: HoldMode = "off"
    """How many backfill holds are allowed at a time."""
    longest_hold: float = 600.0
    """Maximum length of a backfill hold, in seconds."""
    counts_for: float | None = None
    """Maximum weight with which a user counts in entitlements to a resource, as a multiple of the
    user's use of it. Users with an explicit weight always count with their full weight. None: all
    known users do, as in the SDRF paper. Event logs without this setting mean None."""
    roles_leave_room: bool = False
    """Whether principals leave places in `limits.all_roles` to each other. If false, the first
    principals may take all places. Event logs without this setting mean false."""
    roles_reserved_for: float = 0.0
    """Seconds for which places in `limits.all_roles` stay reserved for frameworks that had them
    before a snapshot and are not in the snapshot, for example after a failover. Event logs without
    this setting mean 0: no reservations."""
    roles_reserved_by_principal: bool = False
    """Whether reserved places count for the principal of their framework. If false, they count as
    places of other principals. Event logs without this setting mean false."""
    hold_by_turns: bool = False
    """Whether the client that has waited longest for a hold is first. Event logs without this
    setting mean false."""
    shared_volumes_once: bool = False
    """Whether a shared volume counts once for a user, not once for each of its clients. Event
    logs without this setting mean false."""
    keeps_accumulated_use: bool = False
    """Whether users' accumulated use outlives snapshots and restarts. Beyond `limits.idle_users`,
    users whose accumulated use is nearest to a new user's are then forgotten first. If false,
    policies that rank by accumulated use forget the longest idle, and begin at zero after each
    snapshot. Event logs without this setting mean false."""
    forgets_subtrees: bool = False
    """Whether roles above idle roles count for `limits.idle_users`, and are forgotten at the same
    time. If false, only roles without sub-roles are idle. Event logs without this setting mean
    false."""
    leaf_keeps_commitments: bool = False
    """Whether the frameworks of a role itself keep their own commitments when the role's last
    sub-role is gone. If false, they begin with all commitments of the role when it has sub-roles
    again. Event logs without this setting mean false."""
    frameworks_keep_places: bool = False
    """Whether frameworks keep their places in `limits.frameworks` over a restart, and keep all
    places only under the same principal. Event logs without this setting mean false."""
    few_frameworks_keep_places: bool = False
    """Whether this is so however few places are taken. If false, frameworks keep places over a
    restart only if they take more than a sixteenth of the limit together. Event logs without this
    setting mean false."""
    keeps_weighted_users: bool = False
    """Whether roles with a weight of Mesos other than 1 are known as long as they have it, at most
    `limits.idle_users` of them. If false, a framework in such a role makes it count until
    `forget_after`. Event logs without this setting mean false."""
    skips_refusing_clients: bool = False
    """Whether the engine skips hopeless clients without visits. Some would refuse each number of
    tasks for which an agent has room. The tasks of other clients do not fit, and no restricted
    resource is reserved for these clients. A visit changes no quantity, but can change the port
    numbers in offers to other clients. Event logs without this setting mean false."""
    examines_for_clients: bool = False
    """Whether unchanged agents are examined only for clients that are added, activated or revived,
    if a cycle has examined all agents since the last tick. If false, such a cycle examines all
    agents for all clients. Event logs without this setting mean false."""
    refusals_wait: bool = False
    """Whether resources of an offer that the master's side refused wait for the next tick, and
    reserved resources for longer after repeated refusals. If false, they are offered again at once.
    Event logs without this setting mean false."""
    departed_refuse_nothing: bool = False
    """Whether `refusals_wait` ignores offers to a client that has left its role or is inactive. The
    client is the cause of such a refusal, and the resources are offered at once to all clients.
    Event logs without this setting mean false."""
    headroom_counts_volumes_once: bool = False
    """Whether a shared volume of several roles reduces no headroom for quotas. If false, the volume
    counts once for each framework and role, and the cluster can seem full. Event logs without this
    setting mean false."""
    leaves_only_in_trees: bool = False
    """Whether only names of roles can be names of virtual leaves, which end in `/.`. If false, a
    snapshot or a restart takes a user such as `x/.` for the leaf of `x`, so the user loses its
    commitments. Event logs without this setting mean false."""
    leaf_keeps_use: bool = False
    """Whether the frameworks of a role itself keep their mean use over a snapshot in which only its
    sub-roles have frameworks. If false, they count as new once they come back. Event logs without
    this setting mean false."""
    forgetting_unnames_parents: bool = False
    """Whether roles above a role that an operator forgets count by their use again, unless another
    weight names them. If false, they count with their full weight until a snapshot if the operator
    had set the weight of the forgotten role. Event logs without this setting mean false."""
    left_out_agents_wait: bool = False
    """Whether an agent whose resources were left out of a message, with the resources that are used
    on it, waits for a snapshot. If false, a new total makes all of them free. Event logs without
    this setting mean false."""
    skips_void_calls: bool = False
    """Whether a framework's calls that arrive in one message cost little. If true, the engine skips
    SUPPRESS and REVIVE calls that later calls make void, and frameworks that are added and removed
    again. It refreshes a framework's clients once.
    New subscriptions and requests then mark agents for the framework's own clients. If false, the
    engine carries out each call at once. Event logs without this setting mean false."""
    limits_sharing: bool = False
    """Whether the number of one principal's clients that share an agent in an allocation cycle is
    limited (`SharingLimit`). If false, all clients with a known demand or with reserved resources
    may share it. Event logs without this setting mean false."""
    ties_after_half_lives: bool = False
    """Whether users with equal decayed use are equal after any number of whole half-lives. If
    false, rounding errors decide between uses of half a step of 2^-40. Event logs without this
    setting mean false."""
    demands_must_agree: bool = False
    """Whether policies count the tasks of a user only if all frameworks of the user have the same
    demand. Other users are ranked by their dominant share, and commitments by resource grow in any
    case. If false, the largest demand of a user's frameworks counts, so a framework that runs
    nothing can raise the task share of its role. Event logs without this setting mean false."""
    compares_by_resource: bool = False
    """Whether policies compare a share with the entitlement to the same resource, and a task share
    with the entitlements to the resources that its tasks need. If false, they compare with the
    entitlement to the user's dominant resource. A user can raise the latter entitlement with
    allocations of a resource without other users. Event logs without this setting mean false."""
    newcomers_by_use: bool = False
    """Whether users count by their recent use in the mean accumulated use with which a new user
    begins under `karma`. If false, all known users count, so names that hold nothing give an
    advantage to new users. Event logs without this setting mean false."""
    kinds_as_in_mesos: bool = False
    """Whether the log was recorded with one kind for all resources that Mesos adds up, whatever the
    form of their labels. The engine ignores this setting, and always has one kind for them, because
    kinds are cached for all engines. If a decision differs, `longshare replay` warns about a log
    without this setting."""
    limits: Limits = field(default_factory=Limits)
    """Maximum sizes of inputs."""
    seed: int = 0
    """Seed of the order in which an allocation cycle visits agents, the engine's only random
    choice."""
    forget_after: float = 86400.0
    """Seconds until an undeclared user without frameworks or allocation is forgotten. A user
    with a commitment stays known for longer."""

    def user_settings(self) -> UserSettings:
        """Return the settings of the user tree. The levels of a role are levels of the tree."""
        return UserSettings(
            policy=self.policy,
            declared=self.users,
            tree=self.user_key == "role",
            depth=self.limits.role_depth if self.user_key == "role" else math.inf,
            exact_ties=self.exact_ties,
            steps_from_zero=not self.ties_after_half_lives,
            counts_for=self.counts_for,
            forget_after=self.forget_after,
            idle_users=self.limits.idle_users,
            keeps_accumulated_use=self.keeps_accumulated_use,
            forgets_subtrees=self.forgets_subtrees,
            leaf_keeps_commitments=self.leaf_keeps_commitments,
            keeps_weighted_users=self.keeps_weighted_users,
            leaves_only_in_trees=self.leaves_only_in_trees,
            leaf_keeps_use=self.leaf_keeps_use,
            forgetting_unnames_parents=self.forgetting_unnames_parents,
            demands_must_agree=self.demands_must_agree,
            compares_by_resource=self.compares_by_resource,
            newcomers_by_use=self.newcomers_by_use,
        )
