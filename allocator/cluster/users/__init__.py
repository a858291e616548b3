"""The users among whom fairness is kept: a tree where users are roles, else a plain list.

Siblings are ranked level by level, by what their subtrees hold and owe. A role that has both
frameworks of its own and sub-roles competes with these through a *virtual leaf*, `ROLE/.`.
"""

from allocator.cluster.users.commitments import FADED
from allocator.cluster.users.user import User, UserTask
from allocator.cluster.users.users import Users, in_range

__all__ = ["FADED", "User", "UserTask", "Users", "in_range"]
