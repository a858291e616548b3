"""Users that share the cluster: a tree if users are roles, otherwise a flat list.

Siblings in the tree are ranked by the allocation and the commitments of their subtrees. A role with
both frameworks of its own and sub-roles competes with its sub-roles through a *virtual leaf*, named
`ROLE/.`.
"""

from allocator.cluster.users.commitments import NEGLIGIBLE_COMMITMENT
from allocator.cluster.users.user import User, UserTask
from allocator.cluster.users.users import Users, in_range

__all__ = ["NEGLIGIBLE_COMMITMENT", "User", "UserTask", "Users", "in_range"]
