"""Commitments computed from the records of ended jobs alone, with no code of Longshare's."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Held:
    """Resources of one user in one interval."""

    user: str
    start: float
    end: float
    amounts: Mapping[str, float]


def commitments(
    held: Iterable[Held],
    joined: Mapping[str, float],
    capacities: Iterable[tuple[float, Mapping[str, float]]],
    half_life: float,
    until: float,
) -> dict[str, dict[str, float]]:
    """Return each user's commitments at a time (SDRF paper, Eq. 7 and 12), users being equal.

    Args:
        held: All allocations.
        joined: The time from which each user counts in n.
        capacities: From each time on, the capacity by resource.
        half_life: Half-life of commitments in seconds.
        until: The time of the result.
    """
    held, capacities = list(held), sorted(capacities, key=lambda entry: entry[0])
    times = {time for part in held for time in (part.start, part.end)}
    times |= {*joined.values(), *(time for time, _ in capacities), until}
    moments = sorted(time for time in times if time <= until)
    rate = math.log(2.0) / half_life
    result: dict[str, dict[str, float]] = {user: {} for user in joined}
    for begin, end in pairwise(moments):
        known = [user for user, time in joined.items() if time <= begin]
        capacity = next((c for time, c in reversed(capacities) if time <= begin), {})
        for user in known:
            for resource, total in capacity.items():
                amount = sum(
                    part.amounts.get(resource, 0.0)
                    for part in held
                    if part.user == user and part.start <= begin < part.end
                )
                over = max(amount / total - 1.0 / len(known), 0.0)
                before = result[user].get(resource, 0.0)
                kept = math.exp(-rate * (end - begin))
                result[user][resource] = over + (before - over) * kept
    return result
