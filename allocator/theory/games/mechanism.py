"""Plays a repeated game in exact fractions, and computes its value for each user."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from allocator.theory.games.game import Game, Plan, Vector
from allocator.theory.games.policies import GamePolicy
from allocator.theory.incentives.mechanism import Claim, share_epoch

Held: TypeAlias = list[tuple[Vector, ...]]
"""Allocations by stage, user and resource (o_ir). A repeated stage appears once per repetition."""

_ZERO, _ONE = Fraction(0), Fraction(1)


def play(policy: GamePolicy, game: Game, plans: Sequence[Plan]) -> Held:
    """Play a game: compute all users' allocations in each stage (SDRF paper, Eq. 10 and 6).

    Within a stage, the users' shares rise together, lowest share first. A user's share includes an
    amount for earlier stages, which the policy's memory gives. A user's allocation stops rising at
    its claim, or when a resource that the user needs is exhausted.

    If all users need some of every resource, this is Eq. 10. Otherwise, users that need nothing of
    the exhausted resource continue.

    Args:
        policy: The policy, which defines the share and the memory.
        game: The users and the decay factor.
        plans: Claims of each user for each stage played.

    Returns:
        For each stage played, each user's amount of each resource.

    Raises:
        ValueError: The policy shares one resource, and a user claims only other resources.
    """
    memory = policy.memory(game)
    held: Held = []
    for stage in range(game.duration):
        claims = {
            user: _claim(policy, game, user, plan[stage], memory.before(user))
            for user, plan in enumerate(plans)
            if any(plan[stage])
        }
        received = dict(zip(claims, share_epoch(list(claims.values()), _ONE), strict=True))
        allocations = tuple(
            tuple(received[user] / claims[user].demand * amount for amount in plan[stage])
            if user in received
            else (_ZERO,) * len(game.resources)
            for user, plan in enumerate(plans)
        )
        memory.learn(allocations)
        held.append(allocations)
    return held


def _claim(policy: GamePolicy, game: Game, user: int, claimed: Vector, before: Fraction) -> Claim:
    share = policy.measure(claimed)
    if not share:
        raise ValueError(
            f"{policy.name} shares {game.resources[0]!r}, and {game.users[user].name!r} claims "
            "others but none of it"
        )
    entitled = game.entitlements[user]
    guaranteed = game.alpha * entitled * share / max(claimed) if policy.guarantees else _ZERO
    return Claim(
        ratios={str(r): amount / share for r, amount in enumerate(claimed) if amount},
        demand=share,
        weight=game.users[user].weight,
        before=before,
        guarantee=min(share, guaranteed),
    )


def utility(needs: Vector, holds: Vector) -> Fraction:
    """Return the value of an allocation to a user in one stage (SDRF paper, Eq. 2).

    Only the part of the allocation that the user can use, given its needs, has value. The value is
    the dominant share of this part.

    Args:
        needs: The amounts that the user really needs.
        holds: The amounts that the user holds.
    """
    parts = [have / need for have, need in zip(holds, needs, strict=True) if need]
    return max(needs) * min(*parts, _ONE) if parts else _ZERO


def worth(game: Game, user: int, held: Held) -> Fraction:
    """Return a game's value to a user: the sum of the values of its allocations in all stages.

    Later stages count less, by the discount factor of the game (SDRF paper, Eq. 3).

    Args:
        game: The game.
        user: Index of the user.
        held: The allocations, as returned by `play`.
    """
    total, value = _ZERO, _ONE
    for needs, allocations in zip(game.truth[user], held, strict=True):
        total += value * utility(needs, allocations[user])
        value *= game.patience
    return total
