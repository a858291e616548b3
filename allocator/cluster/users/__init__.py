"""Users that share a Mesos cluster: a tree if users are roles, otherwise a flat list.

Siblings in the tree are ranked by the allocation and the commitments of their subtrees. A role with
both frameworks of its own and sub-roles competes with its sub-roles through a *virtual leaf*, named
`ROLE/.`.
"""

from typing import TypeAlias

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.users.users import Users
from allocator.users import user
from allocator.users.user import UserTask

User: TypeAlias = user.User[Client]
"""A user whose clients are frameworks in roles."""

__all__ = ["User", "UserTask", "Users"]
