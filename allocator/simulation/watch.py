"""Measures how often and how long ranking operations run (SDRF paper, Table 1)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from time import perf_counter
from typing import Any

from typing_extensions import override

from allocator.fairness.ranking import Ranking
from allocator.simulation.outcome import Operations


class Watch:
    """Counts and times the operations of rankings: data structures that keep a pool's users sorted.

    An instance is passed to a pool as a function that wraps each ranking the pool creates.
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, ranking: Ranking[Any, Any]) -> Ranking[Any, Any]:
        """Wrap a ranking (users kept in order) so that its operations are counted and timed."""
        return _Watched(ranking, self)

    def operations(self, events: int) -> Operations:
        """Return the counts and times collected so far.

        Args:
            events: Swaps of neighbours that the Live Tree processed; copied into the result.
        """
        return Operations(dict(self.count), dict(self.seconds), events)


class _Watched(Ranking[Hashable, Any]):
    """A ranking that passes each operation to another ranking, and counts and times it.

    `advance` is not counted as an operation: its time is added to the operation that follows.
    """

    def __init__(self, ranking: Ranking[Any, Any], watch: Watch) -> None:
        self._ranking = ranking
        self._watch = watch
        self._updating = 0.0

    def _done(self, operation: str, begun: float) -> None:
        self._watch.seconds[operation] += perf_counter() - begun + self._updating
        self._watch.count[operation] += 1
        self._updating = 0.0

    @override
    def advance(self, now: float) -> None:
        begun = perf_counter()
        self._ranking.advance(now)
        self._updating += perf_counter() - begun

    @override
    def insert(self, element: Hashable, attribute: Any) -> None:
        begun = perf_counter()
        self._ranking.insert(element, attribute)
        self._done("insert", begun)

    @override
    def delete(self, element: Hashable) -> None:
        begun = perf_counter()
        self._ranking.delete(element)
        self._done("delete", begun)

    @override
    def minimum(self) -> Hashable:
        begun = perf_counter()
        first: Hashable = self._ranking.minimum()
        self._done("minimum", begun)
        return first

    @override
    def by_level(
        self, in_order: Callable[[list[Iterable[Hashable]]], Iterable[Hashable]]
    ) -> Iterator[Hashable]:
        return self._ranking.by_level(in_order)  # counted as the operation that calls it

    @override
    def __iter__(self) -> Iterator[Hashable]:
        # Not timed: the time depends on how far the caller iterates.
        self._watch.count["order"] += 1
        return iter(self._ranking)

    @override
    def __len__(self) -> int:
        return len(self._ranking)

    @property
    @override
    def events(self) -> int:
        return self._ranking.events
