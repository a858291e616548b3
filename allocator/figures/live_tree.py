"""Fig. 4 of the SDRF paper: the data structures of a Live Tree, with elements and events.

An event is the possible swap of two neighbours in the order.
"""

from allocator.fairness.live_tree import LiveTree
from allocator.fairness.priorities import PriorityLine as Priority
from allocator.fairness.priorities import StraightLines
from allocator.figures.figure import Line, Panel, PaperFigure

PRIORITIES = {
    0: Priority(value=6, slope=-1),
    1: Priority(value=1, slope=1),
    2: Priority(value=8, slope=0),
    3: Priority(value=3, slope=0),
    4: Priority(value=9, slope=-2),
    5: Priority(value=4, slope=1),
}
"""Priority of each element, as a line in time."""


def tree() -> LiveTree[int, Priority]:
    """Return the Live Tree that Fig. 4 of the SDRF paper shows, at time 0."""
    built: LiveTree[int, Priority] = LiveTree(StraightLines(), now=0)
    for element, priority in PRIORITIES.items():
        built.insert(element, priority)
    return built


def live_tree() -> PaperFigure:
    """Compute Fig. 4 of the SDRF paper: the tree of elements, the tree of events, and the array."""
    elements = tree()
    order = list(elements)
    events = {crossing.left: crossing for crossing in elements.crossings()}
    rows = tuple(
        (
            str(position + 1),
            str(element),
            elements[element].value,
            elements[element].slope,
            events[element].when if element in events else "none",
            str(events[element].right) if element in events else "none",
        )
        for position, element in enumerate(order)
    )
    return PaperFigure(
        name="sdrf-4",
        source="Stateful DRF, Fig. 4",
        title="A Live Tree: array, elements tree and events tree",
        columns=("in order", "element", "priority now", "slope", "event at", "with"),
        rows=rows,
        panels=(
            _structure(order, {element: crossing.when for element, crossing in events.items()}),
        ),
        ours="elements and priorities. Each tree of the paper is drawn as a row in its order; in "
        "Longshare the elements tree is a sorted list and the events tree a heap",
        facts={
            "elements": len(order),
            "events": len(events),
            "first event at": min(crossing.when for crossing in events.values()),
        },
    )


def _structure(order: list[int], times: dict[int, float]) -> Panel:
    """Return the panel of Fig. 4: the array below, elements in the middle, and events on top.

    Args:
        order: The elements in order.
        times: Time of the event of each element with its successor.
    """
    array = [Line(f"[{element}]", (element,), (0,)) for element in sorted(order)]
    elements = [Line(str(element), (rank,), (1,)) for rank, element in enumerate(order)]
    soonest = sorted(times, key=lambda element: times[element])
    events = [Line(f"t = {times[element]}", (rank,), (2,)) for rank, element in enumerate(soonest)]
    from_array = [
        (position, len(array) + order.index(element))
        for position, element in enumerate(sorted(order))
    ]
    to_events = [
        (len(array) + order.index(element), 2 * len(array) + rank)
        for rank, element in enumerate(soonest)
    ]
    return Panel(
        title="solid: array to elements; dashed: elements to events",
        across="each row in its order, the first on the left",
        up="",
        rows=("array", "elements", "events"),
        lines=(*array, *elements, *events),
        kind="graph",
        links=tuple(from_array),
        dashed=tuple(to_events),
    )
