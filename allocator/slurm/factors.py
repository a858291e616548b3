"""Site factors: the numbers that make Slurm follow an order, and the fewest changes of them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

_UNIT = 1009
_MARK = 500
"""Each factor that Longshare sets is a multiple of `_UNIT` plus `_MARK`. By this remainder,
Longshare recognises its own factors, also after a restart."""
_HIGHEST = 2_000_000
"""Largest multiple of the unit. Slurm accepts factors up to 2,147,483,645."""
_MIDDLE = 1_000_000
_LOWEST = 1
_GAP = 500
"""Multiples of the unit between neighbours. They leave space for jobs that come between."""
NO_FACTOR = 0
SMALLEST_FACTOR = _LOWEST * _UNIT + _MARK
"""The smallest site factor that Longshare sets."""
USUAL_DIFFERENCE = _GAP * _UNIT
"""Difference between the site factors of neighbours, as long as no job was put between them."""


class FactorUpdate(NamedTuple):
    """The site factor that a job should have."""

    target: str
    """The job as `scontrol` knows it."""
    factor: int


class FactorPlan(NamedTuple):
    """The changes of site factors that make Slurm follow an order."""

    updates: list[FactorUpdate]
    """Most important first."""
    postponed: int
    """Number of changes that exceed the limit; a later plan contains them."""
    foreign: list[str]
    """Jobs with a site factor of another program or person. They keep it."""


def is_ours(factor: int) -> bool:
    """Return whether Longshare has set this site factor."""
    level, remainder = divmod(factor, _UNIT)
    return remainder == _MARK and _LOWEST <= level <= _HIGHEST


def plan_factors(
    order: Sequence[str],
    current: Mapping[str, int],
    limit: int,
    owner: Callable[[str], str] = str,
) -> FactorPlan:
    """Return the fewest changes of site factors after which jobs have decreasing factors in order.

    A job that is not in the order loses its factor, if Longshare has set it, and if the job would
    otherwise pass a job of the order. A change is as important as the first place in the order that
    would otherwise be wrong. If there are too many changes, those of one user take at most half of
    the limit, unless other users have too few.

    Args:
        order: Jobs, the first first.
        current: Present site factors, other than 0, by job.
        limit: Maximum number of updates.
        owner: Returns the user of a job. By default, each job has a user of its own.
    """
    foreign = [job for job, factor in current.items() if factor and not is_ours(factor)]
    skipped = set(foreign)
    ordered = [job for job in order if job not in skipped]
    levels = {job: factor // _UNIT for job, factor in current.items() if is_ours(factor)}
    wanted = _assign(ordered, levels)
    places = {job: place for place, job in enumerate(ordered)}
    # From the lowest to the highest wanted level, for the place of a job that must be lowered.
    rising = sorted((level, -place) for place, level in enumerate(wanted))
    importance: list[tuple[int, FactorUpdate]] = []
    for place, (job, level) in enumerate(zip(ordered, wanted, strict=True)):
        if levels.get(job) != level:
            first_wrong = min(place, _place_of(levels.get(job), rising, len(ordered)))
            importance.append((first_wrong, FactorUpdate(job, level * _UNIT + _MARK)))
    for job, level in levels.items():
        if job not in places:
            first_wrong = _place_of(level, rising, len(ordered))
            if first_wrong < len(ordered):
                importance.append((first_wrong, FactorUpdate(job, NO_FACTOR)))
    importance.sort(key=lambda entry: entry[0])
    updates = [update for _, update in importance]
    if len(updates) > limit:
        updates = _shared(updates, (limit + 1) // 2, owner)
    return FactorPlan(updates[:limit], max(len(updates) - limit, 0), foreign)


def _shared(
    updates: Iterable[FactorUpdate], most: int, owner: Callable[[str], str]
) -> list[FactorUpdate]:
    """Return updates, the most important first, with those beyond a user's maximum at the end."""
    first: list[FactorUpdate] = []
    later: list[FactorUpdate] = []
    counts = Counter[str]()
    for update in updates:
        user = owner(update.target)
        counts[user] += 1
        (first if counts[user] <= most else later).append(update)
    return first + later


def _place_of(level: int | None, rising: list[tuple[int, int]], count: int) -> int:
    """Return the place in the order that a job with a level would have; `count`: behind all."""
    if level is None or not rising or level < rising[0][0]:
        return count
    return count - bisect_left(rising, (level + 1, -count))


def _assign(ordered: Sequence[str], levels: Mapping[str, int]) -> list[int]:
    """Return decreasing levels for jobs in order; as many jobs as possible keep their level."""
    known = [levels.get(job) for job in ordered]
    kept = _longest_decreasing(known)
    if not kept:
        return _spread(len(ordered), _MIDDLE + _GAP, _LOWEST - 1)
    assigned: list[int] = []
    above = None
    start = 0
    for place in (*kept, len(ordered)):
        count = place - start
        level = known[place] if place < len(ordered) else None
        upper = above if above is not None else (level or 0) + (count + 1) * _GAP
        lower = level if level is not None else max(upper - (count + 1) * _GAP, _LOWEST - 1)
        if upper > _HIGHEST or upper - lower <= count:
            return _spread(len(ordered), _MIDDLE + _GAP, _LOWEST - 1)
        assigned += _spread(count, upper, lower)
        if level is not None:
            assigned.append(level)
        above, start = level, place + 1
    return assigned


def _spread(count: int, upper: int, lower: int) -> list[int]:
    """Return decreasing levels strictly between two levels, at most `_GAP` apart."""
    gap = min((upper - lower) // (count + 1), _GAP)
    return [upper - gap * (place + 1) for place in range(count)]


def _longest_decreasing(levels: Sequence[int | None]) -> list[int]:
    """Return the places of a longest strictly decreasing subsequence. O(n log n)."""
    tails: list[int] = []  # negated levels, rising
    last_places: list[int] = []
    before: list[int | None] = [None] * len(levels)
    for place, level in enumerate(levels):
        if level is None:
            continue
        length = bisect_left(tails, -level)
        before[place] = last_places[length - 1] if length else None
        if length == len(tails):
            tails.append(-level)
            last_places.append(place)
        else:
            tails[length], last_places[length] = -level, place
    kept: list[int] = []
    latest = last_places[-1] if last_places else None
    while latest is not None:
        kept.append(latest)
        latest = before[latest]
    return kept[::-1]
