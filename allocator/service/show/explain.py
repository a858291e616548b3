"""Explanation of a user's rank, and of how the rank will change, in numbers and in sentences."""

from collections.abc import Iterator

from allocator.contract import admin_pb2 as admin
from allocator.fairness.forecast import below_after
from allocator.fairness.policies.policy import Policy
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.standing import Standing
from allocator.formatting import called, clock, counted, duration, passing_clause
from allocator.service.show.explanations import (
    ExplanationFacts,
    add_waited,
)
from allocator.service.show.shares import UserShare, dominant
from allocator.users.adapter import SchedulerAdapter
from allocator.users.wording import Vocabulary

_TIE = 2.0**-40
"""Priorities that differ by less are called equal: policies with a memory compare in such steps."""
_LEAST_SHOWN = 0.0001
"""Smallest difference of priorities that is shown as a number."""
_LEAST_PART = 0.0005
"""Smallest fraction that is shown as more than 0.0%."""
_MOST_HOLDERS = 3
"""Maximum number of users that are named as holders of a resource."""
_RESOURCES_LACKING = {"nothing_free", "resources"}
"""Reasons, of Mesos and of Slurm, of a client that waits because other users hold resources."""


def explain(
    adapter: SchedulerAdapter, row: UserShare, rows: list[UserShare], cache: ExplanationFacts
) -> admin.Explanation:
    """Explain the rank of one user, and why the user gets nothing more.

    The caller fills in the fields of the reply that describe the user's share and the cluster.

    Args:
        adapter: The adapter to read.
        row: The share of the user.
        rows: The shares of all users.
        cache: Why the user gets nothing more. The caller collects these facts in cooperative
            steps, because that takes long.
    """
    siblings = [share for share in rows if share.parent == row.parent]
    wanting = [
        share for share in siblings if share.standing.active and share.user not in cache.passed_over
    ]
    standing, vocabulary = row.standing, adapter.wording.vocabulary
    explanation = admin.Explanation(
        priority=_priority(adapter.pool.policy, standing),
        priority_without_debt=_without_debt(adapter.pool.policy, standing),
        passings=_passings(adapter, standing.user, cache.passed_over),
    )
    explanation.rank_without_debt = 1 + sum(
        (share.standing.priority, share.rank) < (explanation.priority_without_debt, row.rank)
        for share in siblings
        if share is not row
    )
    explanation.passed_over = standing.user in cache.passed_over
    if explanation.passed_over:
        explanation.no_offers = vocabulary.passed_over
    elif standing.active and row in wanting:
        position = next(position for position, share in enumerate(wanting) if share is row)
        explanation.turn = position + 1
        if position > 0:
            explanation.ahead.CopyFrom(_neighbour(row, wanting[position - 1]))
        if position + 1 < len(wanting):
            explanation.behind.CopyFrom(_neighbour(row, wanting[position + 1]))
        before = users_before(adapter, standing.user, cache.passed_over)
        explanation.users_ahead = sum(map(len, before.values()))
        by_name = {share.user: share for share in rows}
        for member, members_ahead in before.items():
            if (
                member != standing.user
                and members_ahead
                and {member, members_ahead[-1]} <= by_name.keys()
            ):
                ahead = _neighbour(by_name[member], by_name[members_ahead[-1]])
                explanation.above.append(admin.Above(user=member, ahead=ahead))
    else:
        explanation.no_offers = adapter.wording.why_inactive(standing.user)
    if cache.seconds_without_master is not None:
        alone = cache.seconds_without_master
        at = f", since {clock(adapter.now, alone)}" if adapter.now else ""
        explanation.no_offers = f"{vocabulary.out_of_contact} for {duration(alone)}{at}"
    halved = halved_after(standing, adapter.pool.policy.tau)
    if halved is not None:
        explanation.halved_after = halved
    explanation.words.extend(_words(row, explanation, (len(siblings), len(wanting)), vocabulary))
    explanation.words.extend(cache.about_clients)
    if cache.seconds_without_master is None:
        adapter.wording.add_waits(
            explanation,
            cache.reasons,
            cache.idle_since,
            starved=row.shortfall > standing.entitlement / 2,
        )
        explanation.words.extend(_words_of_holders(row, rows, cache, vocabulary))
        explanation.words.extend(_words_of_offers(row, rows, cache))
    add_waited(explanation, cache, adapter.wording, adapter.now)
    return explanation


def users_before(
    adapter: SchedulerAdapter, user: str, passed_over: frozenset[str]
) -> dict[str, list[str]]:
    """Return the users that are served before a user, level by level of the tree.

    A user below other users also waits for the siblings of its parents. The result therefore has an
    entry for the user and for each parent: the siblings ahead of it, in the order in which they are
    served.

    Args:
        adapter: The adapter to read.
        user: An active user.
        passed_over: Users that no machine could serve, which are left out.
    """
    before = dict[str, list[str]]()
    for level in adapter.path(user):
        order = [
            member for member in level.pool if member == level.member or member not in passed_over
        ]
        before[level.member] = order[: order.index(level.member)] if level.member in order else []
    return before


def halved_after(standing: Standing[str], tau: float | None) -> float | None:
    """Return the seconds until the dominant commitment has halved, if no allocation changes.

    Each commitment moves exponentially towards the user's present over-use (SDRF paper, Eq. 12).
    The result is None if the commitment is zero or never falls to half, or if the policy does not
    track commitments.

    Args:
        standing: The user's present values.
        tau: Time constant of the decay, in seconds; None for a policy without commitments.
    """
    commitment = standing.commitment
    return below_after(standing, tau, commitment / 2) if commitment > 0.0 else None


def upcoming(adapter: SchedulerAdapter, passed_over: frozenset[str]) -> Iterator[admin.Passing]:
    """Yield the next changes in the order in which top-level users are served, soonest first.

    A change is a *passing*: one user overtakes another.

    Args:
        adapter: The adapter to read.
        passed_over: Users whose passings are skipped, because no machine could serve these users.
    """
    for when, passed, passing in adapter.pool.crossings():
        if passed_over.isdisjoint((passed, passing)):
            after = max(when - adapter.pool.now, 0.0)
            yield admin.Passing(after=after, passing=passing, passed=passed)


def _priority(policy: Policy, standing: Standing[str]) -> admin.Priority:
    """Return the parts of a user's priority: priority = (share held + commitment) / weight.

    Args:
        policy: The policy, which defines the priority.
        standing: The user's present values.
    """
    parts = admin.Priority(weight=standing.weight)
    if not policy.goes_by_shares:
        parts.held = standing.priority * standing.weight
        return parts
    if isinstance(policy, Sdrf) and policy.form == "thesis":
        sums = {
            name: share + standing.commitments[name] for name, share in standing.measured.items()
        }
        name = dominant(sums)
        parts.held_resource = parts.owed_resource = name
        parts.held = standing.measured.get(name, 0.0)
        parts.owed = standing.commitments.get(name, 0.0)
        return parts
    parts.held = max(standing.measured.values(), default=0.0)
    parts.held_resource = dominant(standing.measured)
    if policy.tau is not None:
        owed = {name: standing.commitments[name] for name in standing.measured}
        parts.owed, parts.owed_resource = standing.commitment, dominant(owed)
    return parts


def _without_debt(policy: Policy, standing: Standing[str]) -> float:
    if policy.tau is None:
        return standing.priority
    return max(standing.measured.values(), default=0.0) / standing.weight


def _passings(
    adapter: SchedulerAdapter, user: str, passed_over: frozenset[str]
) -> list[admin.Passing]:
    """Return the changes of a user's rank among its siblings, soonest first.

    A *passing* is a change at which one user overtakes another. Passings of the user's parents are
    included.

    Args:
        adapter: The adapter to read.
        user: The user.
        passed_over: Users that no machine could serve; passings with such a user are left out.
    """
    now = adapter.pool.now
    passings = [
        admin.Passing(after=max(when - now, 0.0), passing=passing, passed=passed)
        for level in adapter.path(user)
        for when, passed, passing in level.pool.crossings()
        if level.member in (passed, passing) and passed_over.isdisjoint((passed, passing))
    ]
    return sorted(passings, key=lambda passing: passing.after)


def _neighbour(row: UserShare, neighbour: UserShare) -> admin.Neighbour:
    priority = neighbour.standing.priority
    return admin.Neighbour(
        user=neighbour.user, priority=priority, distance=abs(priority - row.standing.priority)
    )


def _words(
    row: UserShare,
    explanation: admin.Explanation,
    numbers: tuple[int, int],
    vocabulary: Vocabulary,
) -> list[str]:
    """Return the sentences about a user's rank, priority and entitlement, and their changes.

    Args:
        row: The user's share.
        explanation: The explanation in numbers.
        numbers: Numbers of the user's siblings, and of the active ones among them.
        vocabulary: The words of the scheduler.
    """
    standing = row.standing
    words = [_words_of_rank(row, explanation, numbers, vocabulary)]
    words.append(_words_of_priority(standing, explanation.priority))
    words.append(_words_of_entitlement(row))
    words.extend(_words_of_neighbours(explanation))
    if explanation.priority.owed >= _LEAST_PART:
        if explanation.rank_without_debt != row.rank:
            words.append(
                "Without its commitment it would have priority "
                f"{explanation.priority_without_debt:.4f} and rank {explanation.rank_without_debt}."
            )
        words.append(_words_of_decay(explanation))
    for passing in explanation.passings:
        clause = passing_clause(passing.passing, passing.passed, standing.user, "may overtake")
        words.append(f"If nothing changes, {clause} in {duration(passing.after)}.")
    return words


def _words_of_rank(
    row: UserShare,
    explanation: admin.Explanation,
    numbers: tuple[int, int],
    vocabulary: Vocabulary,
) -> str:
    siblings, wanting = numbers
    want = vocabulary.want
    among = f"the users below {row.parent}" if row.parent else "all users"
    rank = f"{called(row.user)} has rank {row.rank} of {siblings} among {among}"
    if explanation.no_offers:
        return f"{rank}, but {vocabulary.gets_nothing}: {explanation.no_offers}."
    if explanation.turn == 1 and explanation.above:
        return f"{rank}; it is first of the users there that {want}."
    if explanation.turn == 1:
        return f"{rank}; it is next of the users that {want}."
    return f"{rank}, and is number {explanation.turn} of the {wanting} users that {want}."


def _words_of_priority(standing: Standing[str], parts: admin.Priority) -> str:
    if parts.held and not parts.held_resource:
        return f"Its priority is {standing.priority:.4f}; the lowest priority is served first."
    held = f"holds {_part(parts.held)} of {parts.held_resource}" if parts.held else "holds nothing"
    commitment = (
        f"a commitment of {_part(parts.owed)} of {parts.owed_resource}"
        if parts.owed
        else "no commitment"
    )
    return (
        f"It {held} and has {commitment}; divided by its weight of {parts.weight:g}, that gives "
        f"priority {standing.priority:.4f}. The lowest priority is served first."
    )


def _part(fraction: float) -> str:
    """Return a positive fraction in percent."""
    return f"{fraction:.1%}" if fraction >= _LEAST_PART else "less than 0.1%"


def _words_of_entitlement(row: UserShare) -> str:
    standing = row.standing
    entitled = f"It is entitled to {standing.entitlement:.1%} of the cluster"
    if row.shortfall >= _LEAST_PART:
        return f"{entitled} and holds {row.shortfall:.1%} less."
    if standing.share - standing.entitlement >= _LEAST_PART:
        return f"{entitled} and holds {standing.share - standing.entitlement:.1%} more."
    return f"{entitled}."


def _words_of_holders(
    row: UserShare, rows: list[UserShare], cache: ExplanationFacts, vocabulary: Vocabulary
) -> Iterator[str]:
    """Yield sentences about the users that hold the resource of which the user finds too little.

    The resource is the fullest of several candidates: the resources that clients of the user lack
    on suitable machines. If the adapter does not know these resources, the candidates are the
    resources that the user's tasks need, or that count. Outstanding offers count as held.

    The adapter knows holdings of scalar resources. For other resources, such as ports, the
    sentence names only the lack.

    A second sentence names remedies for now and for good. It needs a user that holds less than half
    of its entitlement, and a largest holder of more than this entitlement, relative to weights.

    Args:
        row: The user's share.
        rows: The shares of all users.
        cache: Why the user gets nothing more.
        vocabulary: The words of the scheduler.
    """
    if all(wait.reason not in _RESOURCES_LACKING for wait in cache.reasons):
        return
    lacking = {name for wait in cache.reasons for name in wait.lacking_resources}
    demanded = {name for demand in row.demands for name in demand}
    needed = lacking or demanded or row.standing.shares.keys()
    top_level = [share for share in rows if not share.parent]
    held = {
        name: sum(share.holdings[name].share for share in top_level if name in share.holdings)
        for name in sorted(needed)
    }
    name = dominant(held)
    if not name:
        if lacking:
            names = ", ".join(sorted(lacking))
            yield f"For its next task, {vocabulary.machine}s have too little free: {names}."
        return
    amounts = {
        share.user: share.holdings[name].allocation
        for share in top_level
        if name in share.holdings and share.holdings[name].allocation
    }
    total = sum(amounts.values())
    largest = sorted(amounts, key=lambda user: (-amounts[user], user))[:_MOST_HOLDERS]
    idle = {share.user for share in top_level if not share.standing.active}
    parts = [
        f"{called(user)} {_amount(amounts[user])}"
        f"{f' ({vocabulary.wants_nothing})' if user in idle else ''}"
        for user in largest
    ]
    if others := len(amounts) - len(largest):
        rest = total - sum(amounts[user] for user in largest)
        parts.append(f"{counted(others, 'other user')} {_amount(rest)}")
    yield (
        f"Users hold {_amount(total)} of the cluster's {_amount(total / held[name])} {name}: "
        f"{', '.join(parts)}."
    )
    holder = next(share.standing for share in top_level if share.user == largest[0])
    due = row.standing.entitlement / row.standing.weight
    if row.shortfall > row.standing.entitlement / 2 and holder.share / holder.weight > due:
        yield (
            f"Longshare does not preempt: wait for resources of {called(largest[0])}, or "
            f"{vocabulary.remedy}."
        )


def _amount(amount: float) -> str:
    return f"{amount:,.10g}"


def _words_of_offers(
    row: UserShare, rows: list[UserShare], cache: ExplanationFacts
) -> Iterator[str]:
    """Yield sentences about resources in unanswered offers, if the scheduler reports them.

    Such resources count as held, although no task uses them. The user that holds most of them is
    named if the explained user waits because too little is free.

    Args:
        row: The user's share.
        rows: The shares of all users.
        cache: Why the user gets nothing more.
    """
    if row.offered_share:
        yield (
            f"It has not answered offers of {row.offered_share:.1%} of {row.dominant_resource}, "
            "which count for its share."
        )
    if all(wait.reason != "nothing_free" for wait in cache.reasons):
        return
    others = [
        share
        for share in rows
        if share.offered_share
        and not f"{row.user}/".startswith(f"{share.user}/")
        and not share.user.startswith(f"{row.user}/")
    ]
    if others:
        largest = max(others, key=lambda share: (share.offered_share or 0.0, share.user))
        yield (
            f"{called(largest.user)} holds {largest.offered_share:.1%} of "
            f"{largest.dominant_resource} in offers that it has not answered, more than any other "
            "user."
        )


def _words_of_neighbours(explanation: admin.Explanation) -> list[str]:
    words, neighbours = [], [above.ahead for above in explanation.above]
    if explanation.HasField("ahead"):
        ahead = explanation.ahead
        neighbours.append(ahead)
        words.append(
            f"Directly ahead is {called(ahead.user)}, whose priority value is "
            f"{_difference('smaller', ahead.distance)}."
        )
    if explanation.HasField("behind"):
        behind = explanation.behind
        neighbours.append(behind)
        words.append(
            f"Directly behind is {called(behind.user)}, whose priority value is "
            f"{_difference('larger', behind.distance)}."
        )
    words.extend(
        f"Its parent {called(above.user)} is served after {called(above.ahead.user)}, whose "
        f"priority value is {_difference('smaller', above.ahead.distance)}."
        for above in explanation.above
    )
    if any(neighbour.distance < _TIE for neighbour in neighbours):
        words.append(
            "If priorities are equal, the priority that grows more slowly is served first, then "
            "the user with fewer allocations, then the first name in the alphabet."
        )
    return words


def _difference(direction: str, distance: float) -> str:
    if distance < _TIE:
        return "equal"
    amount = f"{distance:.4f}" if distance >= _LEAST_SHOWN else f"less than {_LEAST_SHOWN:.4f}"
    return f"{direction} by {amount}"


def _words_of_decay(explanation: admin.Explanation) -> str:
    if not explanation.HasField("halved_after"):
        return "While its allocation does not change, its commitment will not fall to half."
    when = duration(explanation.halved_after)
    return f"If nothing changes, its commitment will have halved in {when}."
