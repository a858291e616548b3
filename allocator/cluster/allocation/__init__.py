"""Allocation: one cycle decides which available resources are offered to which clients.

See Mesos semantics, §3.
"""

from allocator.cluster.allocation.allocator import Allocator

__all__ = ["Allocator"]
