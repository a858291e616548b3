"""The engine: a deterministic state machine that turns events into decisions.

The engine reads no clock, does no I/O and draws no unseeded random numbers. The same messages
always give the same decisions.
"""

from allocator.cluster.engine.engine import Engine, Watcher
from allocator.cluster.engine.view import TaskFit

__all__ = ["Engine", "TaskFit", "Watcher"]
