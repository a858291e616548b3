"""How much of one thing anybody may say, so that nobody's words are work for all."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Generous bounds; who goes beyond one is set aside alone until it says less.

    Sizes are in bytes of UTF-8.
    """

    subscription: int = 2**20
    """Bytes of a FrameworkInfo, or of a SlaveInfo."""
    name: int = 1024
    """Of a role, of a framework's name, of a principal."""
    role_depth: int = 32
    """Levels of a role: `eng/web` has two."""
    roles: int = 256
    """Of one framework, with all roles above them: `eng/web` and `eng/db` are three."""
    all_roles: int = 10_000
    """Of all frameworks together, counted likewise for each; one takes some 3 kB of memory. Whoever
    comes with more than are left is set aside until it subscribes anew, or a snapshot comes."""
    label: int = 2**16
    """Bytes of a label that is read here."""
    patterns: int = 32
    """Globs, ranges and networks in a framework's lists of hosts: each is tried on each agent."""
    attributes: int = 32
    """Attributes that a framework asks for."""
    resources: int = 64
    """Different resources in a demand, a request or a minimum, and alternatives to the latter."""
    smallest_demand: float = 0.001
    """The least that a task counts as where agents are filled task by task: a part of what the
    largest agent has of some resource. 0: whatever is demanded."""
    unanswered: float = 1.0
    """The part of the cluster that offers to one framework may come to which it has not answered,
    before it gets no more; and one agent beyond. 1: all of it, as in stock Mesos."""
    answered_after: float = 0.0
    """Seconds for which an offer counts as unanswered where the master does not say what is used,
    before Mesos 1.10, and nothing of it comes back with a filter. 0: not at all."""
    resource: int = 2**18
    """Bytes of one resource: a range of every other port takes a tenth."""
    idle_users: int = 10_000
    """Users without frameworks and debts that stay known; beyond, users that have used least on
    average are forgotten before their time, and of equals those longest idle."""
