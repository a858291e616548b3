"""Forecasts of a pool: when users pass each other, and what a burst costs, if nothing else changes.

All forecasts follow from closed forms. Between changes a priority is a maximum of straight lines in
the policy's time (SDRF paper, Eq. 13), and a commitment moves exponentially (Eq. 12). Hypothetical
allocations are made on a copy of the pool, by the same operations as real allocations.

Functions that return `Cooperative` are generators: they yield between steps of O(m²) for m
resources, and after steps of O(n) for n users. Their return value is the forecast.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from allocator.cooperative import Cooperative
from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing

NOTICEABLE = 0.01
"""Fraction of the capacity; a smaller difference of commitments counts as no difference."""
_MOST_MEETINGS = 1000
"""Maximum number of meetings of two priorities. Two maxima of m lines each have fewer than m²
meetings."""

User = TypeVar("User", bound=Hashable)


class Passing(NamedTuple, Generic[User]):
    """A future change of the order: at the time `when`, user `passing` passes user `passed`."""

    when: float
    """The pool's time in seconds."""
    passing: User
    passed: User


class ForecastTurn(NamedTuple):
    """Forecast of the time at which further tasks of a user can be allocated."""

    ahead: int
    """Number of users that are ranked before the user now."""
    at_once: int
    """Number of tasks that the user is allocated in sequence before another user is ranked
    first."""
    first_after: float | None
    """Seconds until the user is ranked first for the last task. None: not before the end of the
    forecast."""


class Cost(NamedTuple, Generic[User]):
    """The cost of a burst to its user: higher commitments later, and users that then precede it.

    A burst is an allocation beyond the present one for a limited time.
    """

    after: float
    """Dominant commitment at the end of the burst."""
    without: float
    """Dominant commitment at the same time without the burst."""
    recovered: float | None
    """Seconds from the end of the burst until all commitments are equal to those without the burst,
    within `NOTICEABLE`. None: never."""
    overtaken: list[tuple[User, float | None]]
    """Users that are ranked before the user only because of the burst, and the seconds until that
    ends. None: not before the end of the forecast."""


def passings(pool: Pool[User], user: User, until: float) -> Cooperative[list[Passing[User]]]:
    """Return the times at which a user passes other users or is passed by them, soonest first.

    O(n · m²) for n users and m resources.

    Args:
        pool: The pool as it is now. Inactive users are not in the order.
        user: An active user.
        until: End of the forecast, in the pool's time.
    """
    order = list(pool)
    yield
    if user not in order:
        return []
    attribute, user_position = pool.attribute(user), order.index(user)
    span = pool.phase_at(pool.now), pool.phase_at(until)
    passages = []
    for position, candidate in enumerate(order):
        yield
        if candidate != user:
            changes = _changes(
                pool.policy, (attribute, pool.attribute(candidate)), span, user_position < position
            )
            for phase, ahead in changes:
                pair = (user, candidate) if ahead else (candidate, user)
                passages.append(Passing(pool.instant(phase), *pair))
    return sorted(passages, key=lambda passing: passing.when)


def below_after(standing: Standing[User], tau: float | None, level: float) -> float | None:
    """Return the seconds until all commitments of a user have decayed to a level.

    None: this never happens, or another commitment has meanwhile risen above the level.

    Args:
        standing: The user's present standing.
        tau: Time constant of the decay in seconds. None: commitments do not decay.
        level: A commitment, as a fraction of the capacity.
    """
    seconds = 0.0
    for name in standing.measured:
        commitment, limit = standing.commitments.get(name, 0.0), standing.overuse.get(name, 0.0)
        if commitment > level:
            if tau is None or limit >= level:
                return None
            seconds = max(seconds, tau * math.log((commitment - limit) / (level - limit)))
    for name in standing.measured:  # another commitment may have risen above `level` by then
        commitment, limit = standing.commitments.get(name, 0.0), standing.overuse.get(name, 0.0)
        if tau is not None and commitment <= level < limit + (commitment - limit) * math.exp(
            -seconds / tau
        ):
            return None
    return seconds


def above_after(standing: Standing[User], tau: float | None, level: float) -> float | None:
    """Return the seconds until the first of a user's commitments rises above a level.

    None: no commitment does. The result is 0 if a commitment is above the level now.

    Args:
        standing: The user's present standing.
        tau: Time constant of the decay in seconds. None: commitments do not change.
        level: A commitment, as a fraction of the capacity.
    """
    rises = list[float]()
    for name in standing.measured:
        commitment, limit = standing.commitments.get(name, 0.0), standing.overuse.get(name, 0.0)
        if commitment > level:
            return 0.0
        if tau is not None and limit > level:
            rises.append(tau * math.log((limit - commitment) / (limit - level)))
    return min(rises, default=None)


def turn(
    pool: Pool[User], user: User, demand: Quantities, tasks: int, until: float
) -> Cooperative[ForecastTurn]:
    """Forecast when further tasks of an active user can be allocated, if resources are free.

    Args:
        pool: The pool as it is now. For a new user, pass a copy of the pool with this user.
        user: The user that asks for tasks.
        demand: Resources of one task.
        tasks: Number of further tasks, at least 1.
        until: End of the forecast, in the pool's time.
    """
    return (yield from turn_below([(pool, user)], demand, tasks, until))


def turn_below(
    levels: Sequence[tuple[Pool[User], User]], demand: Quantities, tasks: int, until: float
) -> Cooperative[ForecastTurn]:
    """Forecast when further tasks of a user in a role tree can be allocated.

    Resources are assumed to be free. A user is first in the tree if, at each level, the user or its
    ancestor is first in the pool of this level.

    Args:
        levels: Pairs of a pool as it is now and its member (the user or an ancestor), the top
            first.
        demand: Resources of one task.
        tasks: Number of tasks, at least 1.
        until: End of the forecast, in the pools' time.
    """
    users_ahead, at_once, after_allocation = 0, tasks, []
    for pool, member in levels:
        users_ahead += list(pool).index(member)
        yield
        at_once = min(at_once, _at_once(pool, member, demand, tasks))
        yield
        copy_of_pool = pool.twin()
        copy_of_pool.allocate(member, demand.times(tasks - 1), times=tasks - 1)
        after_allocation.append((copy_of_pool, member))
        yield
    first_after = yield from _first_after(after_allocation, until)
    return ForecastTurn(users_ahead, at_once, first_after)


def _at_once(pool: Pool[User], user: User, demand: Quantities, tasks: int) -> int:
    """Return how many tasks a user is allocated in sequence before another member is ranked first.

    Args:
        pool: The pool of the user and its siblings.
        user: The member that gets the tasks.
        demand: Resources of one task.
        tasks: Largest number to return.
    """
    siblings = [sibling for sibling in pool if sibling != user]
    (held, allocation_count), preview = pool.holding(user), pool.prospect(user)
    low, high = 0, tasks
    if siblings:
        best: tuple[object, ...] = (
            pool.prospect(siblings[0]).rank[0],
            pool.holding(siblings[0])[1],
            siblings[0],
        )
        while low < high:  # find the fewest tasks after which the user is not first
            middle = (low + high) // 2
            rank = preview.rank_of(held + demand.times(middle))[0] if middle else preview.rank[0]
            if (rank, allocation_count + middle, user) < best:
                low = middle + 1
            else:
                high = middle
    return low if siblings else tasks


def cost(
    pool: Pool[User], user: User, burst: Quantities, seconds: float, until: float
) -> Cooperative[Cost[User]]:
    """Forecast how a larger allocation for some time affects a user later.

    The resources of the burst are assumed to be free.

    Args:
        pool: The pool as it is now.
        user: The user of the burst.
        burst: Resources that the user would hold beyond its present allocation.
        seconds: Duration of the burst.
        until: End of the forecast, in the pool's time.
    """
    with_burst = pool.twin()
    yield
    without = pool.twin()
    yield
    end = pool.now + seconds
    with_burst.allocate(user, burst)
    with_burst.advance(end)
    with_burst.release(user, burst)
    without.advance(end)
    burst_standing = with_burst.standing(user)
    yield
    plain_standing = without.standing(user)
    yield
    excess = max(
        (
            burst_standing.commitments.get(name, 0.0) - plain_standing.commitments.get(name, 0.0)
            for name in burst_standing.measured
        ),
        default=0.0,
    )
    recovered: float | None = 0.0
    if excess > NOTICEABLE:
        tau = pool.policy.tau
        recovered = None if tau is None else tau * math.log(excess / NOTICEABLE)
    overtaking_users = yield from _overtaken(with_burst, without, user, until)
    return Cost(burst_standing.commitment, plain_standing.commitment, recovered, overtaking_users)


def _overtaken(
    with_burst: Pool[User], without: Pool[User], user: User, until: float
) -> Cooperative[list[tuple[User, float | None]]]:
    """Return the users that a burst causes to be ranked before the user of the burst.

    A burst is an allocation beyond the present one for a limited time.

    Args:
        with_burst: The pool after the burst.
        without: The pool at the same time without the burst.
        user: The user of the burst.
        until: End of the forecast, in the pools' time.

    Returns:
        Each of these users, and the seconds from the end of the burst until the burst's user passes
        it. None: this does not happen before `until`.
    """
    burst_order = list(with_burst)
    yield
    plain_order = list(without)
    yield
    if user not in burst_order:
        return []
    overtaking = set(burst_order[: burst_order.index(user)]) - set(
        plain_order[: plain_order.index(user)]
    )
    seconds_until_passed: dict[User, float] = {}
    for passing in (yield from passings(with_burst, user, until)):
        seconds_until_passed.setdefault(passing.passed, passing.when - with_burst.now)
    return [
        (overtaker, seconds_until_passed.get(overtaker))
        for overtaker in burst_order
        if overtaker in overtaking
    ]


def _first_after(
    levels: Sequence[tuple[Pool[User], User]], until: float
) -> Cooperative[float | None]:
    """Return the seconds until, at each level of the role tree, the member is first in its pool.

    Args:
        levels: Pairs of a pool and its member, as for `turn_below`.
        until: End of the forecast, in the pools' time. If the time is later, the result is None.
    """
    preceding_members = set[tuple[int, User]]()
    changes = list[tuple[float, int, Passing[User]]]()
    for level, (pool, member) in enumerate(levels):
        order = list(pool)
        preceding_members.update((level, preceding) for preceding in order[: order.index(member)])
        upcoming = yield from passings(pool, member, until)
        changes += [(passing.when, level, passing) for passing in upcoming]
    if not preceding_members:
        return 0.0
    for when, level, passing in sorted(changes, key=lambda change: change[0]):
        if passing.passing == levels[level][1]:
            preceding_members.discard((level, passing.passed))
        else:
            preceding_members.add((level, passing.passing))
        if not preceding_members:
            return when - levels[level][0].now
    return None


def _changes(
    policy: Policy,
    pair: tuple[Any, Any],
    span: tuple[float, float],
    ahead: bool,  # noqa: FBT001
) -> Iterator[tuple[float, bool]]:
    """Yield the phases at which one of two users passes the other, in ascending order.

    A phase is the policy's own time coordinate: seconds, or −e^(−t/τ).

    Args:
        policy: The policy of the pool.
        pair: The two users' priorities as functions of the phase (`Policy.attribute`).
        span: First and last phase.
        ahead: Whether the first user is ranked before the second at the first phase.

    Yields:
        The phase, and whether the first user is ranked before the second from then on.
    """
    begin, end = span
    for meeting, following in pairwise([*_meetings(policy, pair, begin, end), end]):
        middle = (meeting + following) / 2
        (first_rank, first_tolerance), (second_rank, second_tolerance) = (
            policy.rank(pair[0], middle),
            policy.rank(pair[1], middle),
        )
        if (
            first_rank[0] == second_rank[0]
            and abs(first_rank[1] - second_rank[1]) <= first_tolerance + second_tolerance
        ):
            continue  # still equal, except for rounding
        if (first_rank < second_rank) != ahead:
            ahead = first_rank < second_rank
            yield meeting, ahead


def _meetings(policy: Policy, pair: tuple[Any, Any], begin: float, end: float) -> Iterator[float]:
    """Yield the phases, in ascending order, at which two users' priorities meet.

    At such a phase, the order of the users may change. A phase is the policy's own time coordinate:
    seconds, or −e^(−t/τ).

    Args:
        policy: The policy of the pool.
        pair: The two users' priorities as functions of the phase (`Policy.attribute`).
        begin: First phase.
        end: Last phase.
    """
    phase = begin
    for _ in range(_MOST_MEETINGS):
        meeting = policy.crossing(*pair, phase)
        if meeting is None or meeting >= end:
            return
        yield meeting
        phase = math.nextafter(meeting, math.inf)
