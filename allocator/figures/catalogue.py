"""All computable figures, by the name that `longshare figure` accepts."""

from collections.abc import Callable

from allocator.figures.constraint_graph import constraint_graph
from allocator.figures.dominant import dominant_shares
from allocator.figures.figure import PaperFigure
from allocator.figures.lead import fig_6
from allocator.figures.live_tree import live_tree
from allocator.figures.memory import by_blocking, by_workload
from allocator.figures.objectives import objectives
from allocator.figures.sprayer import sprayer
from allocator.figures.tanks import max_min, water_filling
from allocator.figures.unfairness import under_drf, under_sdrf

FIGURES: dict[str, Callable[[], PaperFigure]] = {
    "sdrf-1": under_drf,
    "sdrf-2": water_filling,
    "sdrf-3": under_sdrf,
    "sdrf-4": live_tree,
    "sdrf-6": fig_6,
    "tsf-1": constraint_graph,
    "thesis-1.1": objectives,
    "thesis-2.5": max_min,
    "thesis-2.6": dominant_shares,
    "sprayer": sprayer,
    "memory-workload": by_workload,
    "memory-blocking": by_blocking,
}
