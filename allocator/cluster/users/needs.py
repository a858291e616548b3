"""What users' tasks need and where they may run, made of what is known of their clients' tasks."""

from allocator.cluster.frameworks import Client
from allocator.cluster.largest import Largest
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users.levels import Levels
from allocator.cluster.users.user import Task, User
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities


class Needs:
    """Follows clients' tasks for their users, and all above, if the policy counts tasks."""

    def __init__(self, settings: EngineSettings, levels: Levels) -> None:
        self._counts = settings.policy.counts_tasks
        self._machines = levels.machines

    def put(self, user: User, client: Client, task: Task) -> bool:
        """Say what a client's tasks need, and where they may run; return whether that is new.

        A user's tasks may run wherever one of its clients' may, or one of its sub-users', and need
        as much of each resource as the greediest of them. Costs O(resources) at each level, and
        O(agents) where a constraint is new there.
        """
        before = user.tasks.get(client)
        if before == task:
            return False
        user.tasks[client] = task
        self._replace(user, before, task)
        return True

    def discard(self, user: User, client: Client) -> None:
        """Forget what is known of a client's tasks."""
        before = user.tasks.pop(client, None)
        if before is not None:
            self._replace(user, before, None)

    def begin_leaf(self, user: User) -> None:
        """Have the tasks of a user's own be those of its virtual leaf, which is new."""
        if self._counts:
            assert user.below is not None
            for task in user.tasks.values():
                self._machines.admit(user.leaf, task.may_use)
            user.below.set_demand(user.leaf, _needed(user.own))

    def _replace(self, user: User, before: Task | None, after: Task | None) -> None:
        """Follow a change of a task of a user's own; None: it is not there."""
        if not self._counts:
            return
        if user.below is not None and user.leaf in user.below:
            self._follow(user.below, user.leaf, user.own, before, after)
        else:
            _renew(user.own, before, after)
        level = user
        while level.parent is not None:
            self._follow(level.siblings, level.name, level.all, before, after)
            level = level.parent

    def _follow(
        self,
        pool: Pool[str],
        name: str,
        needs: Largest,
        before: Task | None,
        after: Task | None,
    ) -> None:
        """Follow it for a user, or a virtual leaf, that has it among its tasks."""
        version = needs.version
        _renew(needs, before, after)
        moves = before is None or after is None or before.may_use != after.may_use
        if moves and after is not None:
            self._machines.admit(name, after.may_use)
        if moves and before is not None:
            self._machines.withdraw(name, before.may_use)
        if moves or needs.version != version:
            pool.set_demand(name, _needed(needs))


def _renew(needs: Largest, before: Task | None, after: Task | None) -> None:
    if after is not None and after.demand is not None:
        needs.put(after.demand)
    if before is not None and before.demand is not None:
        needs.discard(before.demand)


def _needed(needs: Largest) -> Quantities | None:
    return Quantities(dict(needs.of)) if needs.of else None
