"""Memory handover: the state that an engine inherits, such as commitments, and hands over."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.cluster.state import Cluster, ClusterStatistics
from allocator.cluster.users import Users
from allocator.cooperative import Cooperative
from allocator.users.memory import Memory, MemoryChanges, OccupiedPlaces, RememberedUser


class MemoryHandover:
    """Combines the memory of an earlier engine with the current state of the users.

    A memory is the state, mainly the users' commitments, that an engine hands over to its
    successor. Before the first snapshot, current allocations are unknown, and so are the users'
    over-uses and rates of use. Until then, these are taken from the inherited memory.

    Args:
        memory: The memory of the earlier engine; None if there is no earlier engine.
    """

    def __init__(self, memory: Memory | None) -> None:
        self._inherited = memory
        """The inherited memory, until a snapshot provides current allocations."""
        self._last = memory if memory is not None else Memory(0.0, {})

    def complete(self) -> None:
        """Stop using the inherited memory, because a snapshot has provided current allocations."""
        self._inherited = None

    def places(self, cluster: Cluster) -> Mapping[str, OccupiedPlaces]:
        """Return the role-tree nodes that each framework occupies, and reservations of nodes.

        Admitted frameworks without counted nodes have an entry with 0 nodes, if the store must keep
        places of frameworks. Before the first snapshot, the nodes are those of the inherited
        memory.

        Returns:
            The nodes by `role_places.digest` of the framework ID.
        """
        if self._inherited is not None:
            return self._inherited.places
        frameworks, nodes = cluster.framework_places, cluster.roles.counted()
        if not frameworks.outlive_restart:
            return nodes
        return {
            name: place._replace(nodes=0) for name, place in frameworks.counted().items()
        } | nodes

    def known(self, users: Users, statistics: ClusterStatistics) -> Cooperative[Memory]:
        """Return the users' current memory; if computing it fails, return the last memory computed.

        Generator for cooperative steps. A failure is not raised, because the snapshot will replace
        the broken state.

        Args:
            users: The users before a snapshot.
            statistics: Counts a failure as a fault.
        """
        try:
            self._last = self._with_inherited((yield from users.memory_in_steps()))
        except Exception:  # noqa: BLE001 - a healthy snapshot replaces broken state
            statistics.faults += 1
        return self._last

    def memory(self, users: Users) -> Memory:
        """Return the state, such as commitments, that a successor cannot learn from a master.

        Args:
            users: The current users, from which the state is taken.
        """
        return self._with_inherited(users.memory())

    def _with_inherited(self, memory: Memory) -> Memory:
        """Return a memory with the rates of use and the time constant of the inherited memory.

        Once a snapshot has provided current allocations, the memory is returned unchanged.
        """
        if self._inherited is None:
            return memory
        before, tau = self._inherited.users, self._inherited.tau
        return replace(
            memory,
            tau=memory.tau if tau is None else tau,
            users={
                user: _with_rates(remembered, before[user]) if user in before else remembered
                for user, remembered in memory.users.items()
            },
        )

    def changes(self, users: Users) -> Cooperative[MemoryChanges]:
        """Return the parts of the memory that have changed since the last call.

        Before the first snapshot, over-uses and rates of use are those of the inherited memory.
        Generator for cooperative steps. Users must not change until it is exhausted.

        Args:
            users: The current users, from which the changes are taken.
        """
        changes = yield from users.changes_in_steps()
        if self._inherited is None:
            return changes
        before, tau = self._inherited.users, self._inherited.tau
        return replace(
            changes,
            courses={
                user: replace(
                    course,
                    tau=course.tau if tau is None else tau,
                    remembered=_with_rates(course.remembered, before[user]),
                )
                if user in before
                else course
                for user, course in changes.courses.items()
            },
        )


def _with_rates(remembered: RememberedUser, before: RememberedUser) -> RememberedUser:
    """Return a user's state with the over-use and the rate of use that it had before."""
    accumulated = remembered.accumulated._replace(rate=before.accumulated.rate)
    return replace(remembered, overuse=before.overuse, accumulated=accumulated)
