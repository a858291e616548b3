"""Counts users by their real use: n, the total weight of a pool's users (SDRF paper, Eq. 7).

With the papers' rule every known user counts with its whole weight. So names without any use dilute
the entitlement of all other users. Here a user counts with its whole weight only once it uses a
fraction of its entitlement, and with less weight below.

Users are counted for each resource separately, by their use of this resource. So names that hold a
rare or idle resource dilute no entitlement to any other resource.

Bound: let one organisation's names use the share s of a resource together: their present use, or
their average use if that is larger. Let H be the total weight of all other users, and k the
parameter `times`. Then each other user i is entitled to at least (1 − k s) w_i / H.

Proof: W is the largest solution of the equation in `counted_weight`.

1. The other users count for at most H. Each name of the organisation counts for at most k times its
   use, as a fraction of W. A use is half of the present use plus half of the average, so these uses
   sum up to at most s. The names count for at most k s W, also if they take turns.
2. So W ≤ H + k s W, and W ≤ H / (1 − k s).
3. The entitlement of i divides w_i by at most H + k s W ≤ H / (1 − k s). ∎
"""

import math
from collections.abc import Iterable
from typing import NamedTuple


class CountedUser(NamedTuple):
    """A user's weight and its use of one resource, for the computation of `counted_weight`."""

    weight: float
    use: float
    """Share of the resource that the user uses, averaged with its mean over time, as a fraction of
    the pool's part."""
    named: bool
    """Whether the user is declared by an operator, or has a weight that was set. A named user
    counts whole, whatever it uses."""

    def weight_of(self, total: float, times: float) -> float:
        """Return the weight with which the user counts: min(weight, times · use · total).

        A named user counts with its whole weight.

        Args:
            total: The weight with which all users together count.
            times: The user's fraction of `total` is at most this multiple of its use.
        """
        return self.weight if self.named else min(self.weight, times * self.use * total)


def counted_weight(users: Iterable[CountedUser], times: float) -> float:
    """Return W, the total weight with which all users of a pool count for one resource.

    W is the largest solution of W = Σ min(w, times · use · W), where a named user
    (`CountedUser.named`) adds its whole weight w. So users that together use the fraction s of the
    resource reduce the entitlements of all other users by at most times · s. The result is 0 if no
    user is named and all users together use less than 1 / times of the fraction of the resource to
    which the pool is entitled. O(n log n).

    Args:
        users: All known users, with their use of the resource.
        times: A user's fraction of W is at most this multiple of its use.
    """
    whole: list[float] = []
    partly: list[tuple[float, float, float]] = []
    for weight, use, named in users:
        if named:
            whole.append(weight)
        elif use > 0.0:
            slope = times * use
            partly.append((weight / slope, weight, slope))
    # A user counts whole from W = weight / slope on. Users are visited in order of this W.
    partly.sort()
    slopes = [slope for _, _, slope in partly]
    remaining = math.fsum(slopes)
    sums = math.fsum(whole)
    total = sums / (1.0 - remaining) if remaining < 1.0 else math.inf
    for index, (from_total, weight, slope) in enumerate(partly):
        if total <= from_total:
            return total
        whole.append(weight)
        sums += weight
        remaining = remaining - slope if index + 1 < len(partly) else 0.0
        total = sums / (1.0 - remaining) if remaining < 1.0 else math.inf
    return math.fsum(whole)
