"""The engine: events in, decisions out; a deterministic state machine.

It reads no clock, does no I/O and draws no unseeded number: the same messages always give the
same decisions.
"""

from allocator.cluster.engine.engine import Engine, Watcher
from allocator.cluster.engine.view import PlaceState, TaskFit, UserRank

__all__ = ["Engine", "PlaceState", "TaskFit", "UserRank", "Watcher"]
