"""Sets of integers stored as intervals, for Mesos's ranges (such as ports), however long."""

from collections.abc import Iterable, Iterator


class Intervals:
    """An immutable set of integers, stored as ascending intervals.

    The class has operators of frozenset. Their cost depends on the number of intervals, not on the
    number of integers.

    Args:
        pairs: (first, last) of each interval, in any order.

    Raises:
        ValueError: An interval ends before it begins, or two intervals overlap.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        joined: list[tuple[int, int]] = []
        for begin, end in sorted(pairs):
            if end < begin:
                raise ValueError(f"{begin}-{end} ends before it begins")
            if joined and begin <= joined[-1][1]:
                raise ValueError(f"{begin}-{end} and {joined[-1][0]}-{joined[-1][1]} overlap")
            if joined and begin == joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((begin, end))
        self._pairs = tuple(joined)

    def __or__(self, other: "Intervals") -> "Intervals":
        return Intervals((*self, *(other - self)))

    def __and__(self, other: "Intervals") -> "Intervals":
        return self - (self - other)

    def __sub__(self, other: "Intervals") -> "Intervals":
        remaining: list[tuple[int, int]] = []
        cuts = list(other)
        first = 0
        for begin, end in self:
            while first < len(cuts) and cuts[first][1] < begin:
                first += 1
            start = begin
            for cut_begin, cut_end in cuts[first:]:
                if cut_begin > end:
                    break
                if cut_begin > start:
                    remaining.append((start, cut_begin - 1))
                start = cut_end + 1
            if start <= end:
                remaining.append((start, end))
        return Intervals(remaining)

    def __ge__(self, other: "Intervals") -> bool:
        return not other - self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self._pairs == other._pairs

    def __hash__(self) -> int:
        return hash(self._pairs)

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._pairs)

    def __repr__(self) -> str:
        return f"[{','.join(f'{begin}-{end}' for begin, end in self)}]"
