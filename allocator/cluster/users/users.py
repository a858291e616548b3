"""The users of a Mesos cluster: clients are frameworks in roles, and may share volumes."""

from collections.abc import Mapping

from typing_extensions import override

from allocator.cluster.agents.shared_volumes import SharedVolumes
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.text import is_valid_role
from allocator.cluster.settings import EngineSettings
from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import Quantities
from allocator.users.tree import UserTree
from allocator.users.user import User


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Users(UserTree[Client]):
    """The tree of users, each with the frameworks that act for the user in some role.

    Args:
        settings: The operator's settings.
        now: The time of the users' commitments, in seconds since the Unix epoch.
        excluded: Resources that do not count for fairness.
    """

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self.volumes = SharedVolumes()
        """Holders of shared volumes; empty if a shared volume counts for each client that holds
        it."""
        super().__init__(settings.user_settings(), now, excluded)

    @override
    def set_weights_in_steps(self, weights: Mapping[str, float]) -> Cooperative[None]:
        """Set weights of roles that the master has sent; ignore the weights if users are not roles.

        Other roles keep their weights. With `keeps_weighted_users`, weights of roles that no
        framework can have are ignored. Generator for cooperative steps.
        """
        if self._settings.keeps_weighted_users:
            depth = self._settings.depth
            weights = {
                role: weight
                for role, weight in weights.items()
                if role.count("/") < depth and is_valid_role(role)
            }
        return super().set_weights_in_steps(weights if self._settings.tree else {})

    def allocations_on(
        self, user: User[Client], held: Mapping[Client, Quantities], agent: str = ""
    ) -> dict[str, Quantities]:
        """Return allocations on one agent, added up by the sub-users of a user.

        The user's virtual leaf counts as a sub-user. Sub-users without an allocation on the agent
        have no entry.

        Args:
            user: A user with sub-users.
            held: Allocations on the agent, by client.
            agent: The agent's ID, by which shared volumes on the agent are counted once.
        """
        sums: dict[str, Quantities] = {}
        for client, quantities in held.items():
            name = user.member(client)
            if name is not None:
                sums[name] = sums.get(name, Quantities()) + quantities
        return {name: total - self.volumes.repeated(name, agent) for name, total in sums.items()}

    @override
    def _repeated(self, name: str) -> Quantities:
        return self.volumes.repeated(name)
