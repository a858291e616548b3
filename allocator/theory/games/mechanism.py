"""A repeated game played in exact fractions, and what it is worth to users."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from allocator.theory.games.game import Game, Plan, Vector
from allocator.theory.games.policies import GamePolicy
from allocator.theory.incentives.mechanism import Claim, share_epoch

Held: TypeAlias = list[tuple[Vector, ...]]
"""o_ir: by stage, user and resource; a stage appears as many times as it is played."""

_ZERO, _ONE = Fraction(0), Fraction(1)


def play(policy: GamePolicy, game: Game, plans: Sequence[Plan]) -> Held:
    """Return what users hold each time that a stage is played (SDRF: Eq. 10 and 6, in order).

    In a stage the shares of all, each on top of what the memory says it has had, are raised
    together from the lowest; who has what it claims stops, and so does who needs a resource that is
    used up. Where all need something of everything this is Eq. 10; where not, those who need
    nothing of what is used up go on.

    Args:
        policy: What is remembered, and which share is compared.
        game: Users, and how long they remember.
        plans: What each user claims, each time that a stage is played.

    Raises:
        ValueError: the policy shares one resource, and a user claims others but none of it.
    """
    memory = policy.memory(game)
    held: Held = []
    for stage in range(game.duration):
        claims = {
            user: _claim(policy, game, user, plan[stage], memory.before(user))
            for user, plan in enumerate(plans)
            if any(plan[stage])
        }
        got = dict(zip(claims, share_epoch(list(claims.values()), _ONE), strict=True))
        now = tuple(
            tuple(got[user] / claims[user].demand * amount for amount in plan[stage])
            if user in got
            else (_ZERO,) * len(game.resources)
            for user, plan in enumerate(plans)
        )
        memory.learn(now)
        held.append(now)
    return held


def _claim(policy: GamePolicy, game: Game, user: int, wants: Vector, before: Fraction) -> Claim:
    share = policy.measure(wants)
    if not share:
        raise ValueError(
            f"{policy.name} shares {game.resources[0]!r}, and {game.users[user].name!r} claims "
            "others but none of it"
        )
    entitled = game.entitlements[user]
    guaranteed = game.alpha * entitled * share / max(wants) if policy.guarantees else _ZERO
    return Claim(
        ratios={str(r): amount / share for r, amount in enumerate(wants) if amount},
        demand=share,
        weight=game.users[user].weight,
        before=before,
        guarantee=min(share, guaranteed),
    )


def utility(needs: Vector, holds: Vector) -> Fraction:
    """Return what an allocation is worth in a stage: useful dominant share (Eq. 2)."""
    parts = [have / need for have, need in zip(holds, needs, strict=True) if need]
    return max(needs) * min(*parts, _ONE) if parts else _ZERO


def worth(game: Game, user: int, held: Held) -> Fraction:
    """Return what a user gets of it all, later stages discounted (Eq. 3)."""
    total, value = _ZERO, _ONE
    for needs, now in zip(game.truth[user], held, strict=True):
        total += value * utility(needs, now[user])
        value *= game.patience
    return total
