"""The allocation run: which free resources are offered to whom (§3)."""

from allocator.cluster.allocation.run import Allocation

__all__ = ["Allocation"]
