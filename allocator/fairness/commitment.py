"""Commitments: charges for having used more than the entitlement (SDRF paper, §3.4 and §5.1)."""

import math
from math import expm1

_SHORTEST_HALF_LIFE = 1e-6
_LONGEST_HALF_LIFE = 1e12
"""Seconds. With a shorter half-life commitments vanish at once; with a longer one they never build
up."""


def time_constant(delta: float) -> float:
    """Return τ = −1/ln δ in seconds for a discount factor δ per second (SDRF paper, Eq. 12).

    Raises:
        ValueError: δ is not strictly between 0 and 1.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(
            f"delta = {delta} would switch long-term fairness off: at 0 commitments last no "
            "time, at 1 they never build up; give a number in between, such as 0.999"
        )
    return -1.0 / math.log(delta)


def time_constant_of_half_life(seconds: float) -> float:
    """Return τ in seconds for commitments with a half-life in seconds.

    Raises:
        ValueError: the half-life is not from a microsecond to 10¹² seconds.
    """
    if not _SHORTEST_HALF_LIFE <= seconds <= _LONGEST_HALF_LIFE:
        raise ValueError(
            f"half_life = {seconds:g} s would switch long-term fairness off; "
            f"give a time from {_SHORTEST_HALF_LIFE:g} to {_LONGEST_HALF_LIFE:g} seconds, such as "
            "3600 or '1h'"
        )
    return seconds / math.log(2.0)


def overuse(share: float, entitlement: float) -> float:
    """Return the over-use ō = max(share − entitlement, 0) (SDRF paper, Eq. 7)."""
    return max(share - entitlement, 0.0)


def decayed(commitment: float, towards: float, elapsed: float, tau: float) -> float:
    """Return a commitment after some seconds of constant over-use (SDRF paper, Eq. 12).

    The result is (1 − δ)·ō + δ·c₀, with the discount factor δ for the elapsed seconds.

    Args:
        commitment: c₀, as a share of the resource's capacity.
        towards: ō, the constant over-use.
        elapsed: Seconds, not negative.
        tau: Time constant in seconds.
    """
    return commitment + (towards - commitment) * approached(elapsed, tau)


def decay_phase(elapsed: float, tau: float) -> float:
    """Return −e^(−elapsed/τ), the negative decay factor after some seconds, with τ in seconds."""
    return -math.exp(-elapsed / tau)


def stretch(settled_at: float, base: float, tau: float) -> float:
    """Return e^((settled_at − base)/τ), which converts the slope of a priority's line.

    A commitment c₀ at `settled_at` decays as c₀·e^(−(t − settled_at)/τ). With the decay factor
    s = e^(−(t − base)/τ), this is c₀ times the result times s.

    Args:
        settled_at: Time of the account's last accrual in seconds.
        base: Time at which phases begin, in seconds.
        tau: Time constant of commitments in seconds.
    """
    return math.exp((settled_at - base) / tau)


def approached(elapsed: float, tau: float) -> float:
    """Return 1 − e^(−elapsed/τ), the part of its way to the over-use that a commitment moves.

    In the SDRF paper's Eq. 12, this is 1 − δ with the discount factor δ for the elapsed seconds.

    Args:
        elapsed: Seconds, not negative.
        tau: Time constant in seconds.
    """
    return -expm1(-elapsed / tau)
