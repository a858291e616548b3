"""The allocation run: which free resources are offered to whom (§3)."""

from allocator.cluster.allocation.allocator import Allocator

__all__ = ["Allocator"]
