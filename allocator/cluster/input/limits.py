"""Limits on input, so that no framework or agent can overload the allocator."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds on input from frameworks and agents; input beyond a bound is quarantined.

    The defaults are generous. Sizes of text are in bytes of UTF-8.
    """

    subscription: int = 2**20
    """Bytes of a FrameworkInfo or a SlaveInfo."""
    name: int = 1024
    """Bytes of a role, of a framework's ID or name, or of a principal."""
    role_depth: int = 32
    """Levels of a role: `eng/web` has two."""
    roles: int = 256
    """Roles of one framework, including their ancestors: `eng/web` and `eng/db` are three."""
    all_roles: int = 10_000
    """Roles of all frameworks together, counted for each framework with their ancestors. Each
    takes about 3 kB of memory. A framework beyond the limit is quarantined until it
    subscribes again, or a snapshot arrives."""
    frameworks: int = 0
    """Frameworks with roles, of all principals together. A framework beyond the limit is
    quarantined until it subscribes again, or a snapshot arrives. 0, which event logs without this
    limit mean: without a limit."""
    exclusions: int = 0
    """Pairs of a role and an agent that one framework's offer constraints exclude. A framework
    beyond the limit is quarantined until it subscribes again, or a snapshot arrives. 0, which
    event logs without this limit mean: without a limit."""
    all_exclusions: int = 0
    """Pairs that all frameworks exclude together. Beyond the limit, of the principal with the
    most pairs, the framework with the most pairs is quarantined. 0, which event logs without this
    limit mean: without a limit."""
    label: int = 2**16
    """Characters of a label that Longshare reads."""
    patterns: int = 32
    """Globs, ranges and networks in a framework's lists of hosts. Each of them is tried on each
    agent."""
    attributes: int = 32
    """Attributes that a framework requires of agents."""
    resources: int = 64
    """Resources in a demand, a request or a minimum; also alternatives of a minimum."""
    minimums: int = 0
    """Different minimums of a framework, over all its roles and alternatives. Each is compared with
    each free agent. 0, which event logs without this limit mean: without a limit."""
    filters: int = 0
    """Maximum number of a client's offer filters on one agent. Beyond the limit, the filter that
    ends first is dropped. 0, which event logs without this limit mean: without a limit."""
    all_filters: int = 0
    """Maximum number of different declined resources, counted on each agent, of all filters. Beyond
    the limit, the principal with the most loses its oldest. 0, which event logs without this limit
    mean: without a limit."""
    smallest_demand: float = 0.001
    """The demand floor: minimum size of a unit of tasks, as a fraction of the largest agent in some
    resource. 0: without a floor."""
    unanswered: float = 1.0
    """Outstanding-offer limit: fraction of the cluster that one framework may be offered without
    answering. The agent that reaches the limit is still offered. 1: without a limit, as in
    stock Mesos."""
    all_unanswered: float = 1.0
    """Fraction of the cluster that all frameworks of one principal together may be offered without
    answering. 1, which event logs without this limit mean: without a limit."""
    answered_after: float = 0.0
    """Seconds after which an unanswered offer is assumed to be used, where the master does not
    report usage (before Mesos 1.10). 0: offers are assumed to be used at once."""
    entries: int = 0
    """Entries of a list: labels and capabilities of a framework, roles of its offer filters,
    attributes of an agent with the items of their values, reservations of a resource with their
    labels. 0: without a limit, as in event logs that do not record the setting."""
    resource: int = 2**18
    """Bytes of one resource; if `entries` is set, also of the resources of a request, and of an
    operation. A range of every second port takes a tenth of the default."""
    resource_kind: int = 0
    """Bytes of the texts that distinguish a kind of resource; each reservation and label counts as
    128 bytes more. A resource with more counts, but is not offered. 0, which event logs without
    this limit mean: resources are left out if they exceed `resource` or `entries`."""
    requested: int = 0
    """Ranges and items of sets in a request. 0, which event logs without this limit mean: without a
    limit."""
    idle_users: int = 10_000
    """Users without frameworks and commitments that stay known, at all levels. Beyond the limit,
    users with the least mean use are forgotten early; among equals, the longest idle."""

    @property
    def bounds_unanswered(self) -> bool:
        """Whether a limit applies to outstanding offers."""
        return self.unanswered < 1.0 or self.all_unanswered < 1.0
