"""How far everybody gets with what there is, if each goes on as it begins: in equal strides."""

from collections.abc import Sequence
from typing import NamedTuple

from allocator.cluster.steps import Steps

_HALVINGS = 20
_STRETCH = 50
"""Ways beyond which each look at all of them is a step."""


class Way(NamedTuple):
    """How one goes on."""

    begin: float
    """Where it stands."""
    stride: float
    """How far a task moves it."""
    part: float
    """Of what there is, what a task takes."""


def reached(ways: Sequence[Way], end: float, part: float = 1.0) -> Steps[float]:
    """Return how far there is enough for all until each is there, at most to an end.

    Args:
        ways: Of those who stand before the end; by where they do.
        end: Where it is far enough.
        part: Of what there is, what all may take.
    """
    low, middle = ways[0].begin, end
    for _ in range(_HALVINGS):
        if _taken(ways, middle) > part:
            end = middle
        elif middle == end:
            return end
        else:
            low = middle
        if len(ways) > _STRETCH:
            yield
        middle = (low + end) / 2
    return low


def _taken(ways: Sequence[Way], end: float) -> float:
    """Return which part of what there is all take until each has reached an end."""
    return sum([part * -((begin - end) // stride) for begin, stride, part in ways if begin < end])
