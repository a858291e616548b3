"""What engines leave to those that come after them."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.cluster.cooperative import Cooperative
from allocator.cluster.memory import Memory, MemoryChanges
from allocator.cluster.state import Cluster, ClusterStatistics
from allocator.cluster.users import Users


class MemoryHandover:
    """What a former engine has left, and what a successor must know.

    Args:
        memory: The former engine's; None: there was none.
    """

    def __init__(self, memory: Memory | None) -> None:
        self._inherited = memory
        """Until a snapshot says what is held now."""
        self._last = memory if memory is not None else Memory(0.0, {})

    def settle(self) -> None:
        """Follow that a snapshot has said what is held now."""
        self._inherited = None

    def places(self, cluster: Cluster) -> Mapping[str, int]:
        """Return the counted places of frameworks in the tree of roles."""
        return cluster.roles.counted() if self._inherited is None else self._inherited.places

    def known(self, users: Users, statistics: ClusterStatistics) -> Cooperative[Memory]:
        """Return what is to be handed on; if users are broken, what it was handed itself."""
        try:
            self._last = self._completed((yield from users.remembering()))
        except Exception:  # noqa: BLE001 - a healthy snapshot replaces whatever there is
            statistics.faults += 1
        return self._last

    def memory(self, users: Users) -> Memory:
        """Return what a successor must know that no master will tell it."""
        return self._completed(users.memory())

    def _completed(self, memory: Memory) -> Memory:
        """Add what was inherited, as long as no snapshot has said what is held now."""
        if self._inherited is None:
            return memory
        before, tau = self._inherited.users, self._inherited.tau
        return replace(
            memory,
            tau=memory.tau if tau is None else tau,
            users={
                user: replace(remembered, overuse=before[user].overuse)
                if user in before
                else remembered
                for user, remembered in memory.users.items()
            },
        )

    def changes(self, users: Users) -> MemoryChanges:
        """Return what a successor must know that it would not from what this returned before."""
        changes = users.changes()
        if self._inherited is None:
            return changes
        before, tau = self._inherited.users, self._inherited.tau
        return replace(
            changes,
            courses={
                user: replace(
                    course,
                    tau=course.tau if tau is None else tau,
                    remembered=replace(course.remembered, overuse=before[user].overuse),
                )
                if user in before
                else course
                for user, course in changes.courses.items()
            },
        )
