"""What will come if nothing changes but what is asked about: who passes whom, and what it costs.

All follows from closed forms: between changes a priority is a maximum of straight lines in the
policy's time (Eq. 13), and a commitment moves exponentially (Eq. 12). Hypotheses are tried on a
twin of the pool, by the same operations as facts.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing

NOTICEABLE = 0.01
"""A difference of commitments below this, of the cluster, is none."""
_MOST_MEETINGS = 1000
"""Of two priorities; of maxima of m lines each there are fewer than m²."""

User = TypeVar("User", bound=Hashable)


class Passing(NamedTuple, Generic[User]):
    """From an instant on one user is served before another, which was not so before."""

    when: float
    """Seconds; the pool's time."""
    passing: User
    passed: User


class ForecastTurn(NamedTuple):
    """When tasks that a user asks for would have their turn."""

    ahead: int
    """Users that are before it now."""
    at_once: int
    """Tasks that it is given before anybody else has a turn."""
    first_after: float | None
    """Seconds until its turn for the last one comes; None: not as far as one looks."""


class Cost(NamedTuple, Generic[User]):
    """What a burst costs its user afterwards."""

    after: float
    """Dominant commitment when it is over."""
    without: float
    """The same without it."""
    recovered: float | None
    """Seconds from its end until no commitment differs noticeably; None: never."""
    overtaken: list[tuple[User, float | None]]
    """Who is before the user because of it, and after how many seconds no more; None: not as far
    as one looks."""


def passings(pool: Pool[User], user: User, until: float) -> list[Passing[User]]:
    """Return when a user passes others, or is passed, soonest first. O(n · m²).

    Args:
        pool: As it is now; who wants nothing is not in the order.
        user: An active user.
        until: How far to look, in the pool's time.
    """
    order = list(pool)
    if user not in order:
        return []
    own, place = pool.attribute(user), order.index(user)
    span = pool.phase_at(pool.now), pool.phase_at(until)
    found = []
    for other_place, other in enumerate(order):
        if other != user:
            changes = _changes(pool.policy, (own, pool.attribute(other)), span, place < other_place)
            for phase, ahead in changes:
                pair = (user, other) if ahead else (other, user)
                found.append(Passing(pool.instant(phase), *pair))
    return sorted(found, key=lambda passing: passing.when)


def below_after(standing: Standing[User], tau: float | None, level: float) -> float | None:
    """Return in how many seconds a dominant commitment is not above a level; None: never."""
    after = 0.0
    for name in standing.measured:
        owed, towards = standing.commitments.get(name, 0.0), standing.overuse.get(name, 0.0)
        if owed > level:
            if tau is None or towards >= level:
                return None
            after = max(after, tau * math.log((owed - towards) / (level - towards)))
    for name in standing.measured:  # another may have risen above it by then
        owed, towards = standing.commitments.get(name, 0.0), standing.overuse.get(name, 0.0)
        if tau is not None and owed <= level < towards + (owed - towards) * math.exp(-after / tau):
            return None
    return after


def turn(
    pool: Pool[User], user: User, demand: Quantities, tasks: int, until: float
) -> ForecastTurn:
    """Return when further tasks of an active user have their turn, if there is room for them.

    Args:
        pool: As it is now; a newcomer has been added to a twin of it.
        user: Who wants them.
        demand: Quantities of one task.
        tasks: How many, at least one.
        until: How far to look, in the pool's time.
    """
    return turn_below([(pool, user)], demand, tasks, until)


def turn_below(
    levels: Sequence[tuple[Pool[User], User]], demand: Quantities, tasks: int, until: float
) -> ForecastTurn:
    """Return when further tasks of a user in a tree have their turn, if there is room for them.

    A user is first in a tree if at each level its member is the first.

    Args:
        levels: Pools as they are now, the top first, each with its member: the user or one above.
        demand: Quantities of one task.
        tasks: How many, at least one.
        until: How far to look, in the pools' time.
    """
    ahead = sum(list(pool).index(member) for pool, member in levels)
    at_once = min(_at_once(pool, member, demand, tasks) for pool, member in levels)
    later = [(pool.twin(), member) for pool, member in levels]
    for pool, member in later:
        pool.allocate(member, demand.times(tasks - 1), times=tasks - 1)
    return ForecastTurn(ahead, at_once, _first_after(later, until))


def _at_once(pool: Pool[User], user: User, demand: Quantities, tasks: int) -> int:
    """Return how many of its tasks a user is given before another member of its pool is first."""
    siblings = [sibling for sibling in pool if sibling != user]
    (held, had), prospect = pool.holding(user), pool.prospect(user)
    low, high = 0, tasks
    if siblings:
        best: tuple[object, ...] = (
            pool.prospect(siblings[0]).rank[0],
            pool.holding(siblings[0])[1],
            siblings[0],
        )
        while low < high:  # the first number of tasks with which it is not first any more
            middle = (low + high) // 2
            rank = prospect.rank_of(held + demand.times(middle))[0] if middle else prospect.rank[0]
            if (rank, had + middle, user) < best:
                low = middle + 1
            else:
                high = middle
    return low if siblings else tasks


def cost(
    pool: Pool[User], user: User, burst: Quantities, seconds: float, until: float
) -> Cost[User]:
    """Return what it costs a user to hold more for some time, if that is free.

    Args:
        pool: As it is now.
        user: Who would.
        burst: What it would hold beyond what it holds.
        seconds: For how long.
        until: How far to look afterwards, in the pool's time.
    """
    with_it, without = pool.twin(), pool.twin()
    over = pool.now + seconds
    with_it.allocate(user, burst)
    with_it.advance(over)
    with_it.release(user, burst)
    without.advance(over)
    then, else_ = with_it.standing(user), without.standing(user)
    surplus = max(
        (then.commitments.get(n, 0.0) - else_.commitments.get(n, 0.0) for n in then.measured),
        default=0.0,
    )
    recovered: float | None = 0.0
    if surplus > NOTICEABLE:
        tau = pool.policy.tau
        recovered = None if tau is None else tau * math.log(surplus / NOTICEABLE)
    return Cost(
        then.commitment,
        else_.commitment,
        recovered,
        _overtaken(with_it, without, user, until),
    )


def _overtaken(
    with_it: Pool[User], without: Pool[User], user: User, until: float
) -> list[tuple[User, float | None]]:
    order, other_order = list(with_it), list(without)
    if user not in order:
        return []
    before = set(order[: order.index(user)]) - set(other_order[: other_order.index(user)])
    back: dict[User, float] = {}
    for passing in passings(with_it, user, until):
        back.setdefault(passing.passed, passing.when - with_it.now)
    return [(other, back.get(other)) for other in order if other in before]


def _first_after(levels: Sequence[tuple[Pool[User], User]], until: float) -> float | None:
    """Return in how many seconds each member is the first of its pool; None: not until then."""
    before = set[tuple[int, User]]()
    changes = list[tuple[float, int, Passing[User]]]()
    for level, (pool, member) in enumerate(levels):
        order = list(pool)
        before.update((level, preceding) for preceding in order[: order.index(member)])
        changes += [(passing.when, level, passing) for passing in passings(pool, member, until)]
    if not before:
        return 0.0
    for when, level, passing in sorted(changes, key=lambda change: change[0]):
        if passing.passing == levels[level][1]:
            before.discard((level, passing.passed))
        else:
            before.add((level, passing.passing))
        if not before:
            return when - levels[level][0].now
    return None


def _changes(
    policy: Policy,
    pair: tuple[Any, Any],
    span: tuple[float, float],
    ahead: bool,  # noqa: FBT001
) -> Iterator[tuple[float, bool]]:
    """Go through phases at which the first of two passes the other (True) or is passed (False)."""
    begin, end = span
    for meeting, following in pairwise([*_meetings(policy, pair, begin, end), end]):
        middle = (meeting + following) / 2
        (own, blur), (other, its_blur) = policy.rank(pair[0], middle), policy.rank(pair[1], middle)
        if own[0] == other[0] and abs(own[1] - other[1]) <= blur + its_blur:
            continue  # they have not parted yet, whatever rounding says
        if (own < other) != ahead:
            ahead = own < other
            yield meeting, ahead


def _meetings(policy: Policy, pair: tuple[Any, Any], begin: float, end: float) -> Iterator[float]:
    """Go through phases after which the order of two may be another one, strictly rising."""
    phase = begin
    for _ in range(_MOST_MEETINGS):
        meeting = policy.crossing(*pair, phase)
        if meeting is None or meeting >= end:
            return
        yield meeting
        phase = math.nextafter(meeting, math.inf)
