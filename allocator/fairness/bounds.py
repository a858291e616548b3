"""What weights and debts may be, so that no sum, share or priority overflows."""

LEAST_WEIGHT = 1e-6
LARGEST_WEIGHT = 1e6
"""Between these no sum, share or priority overflows, with any number of users."""
LARGEST_COMMITMENT = 1e9
"""Fraction of the capacity; a debt beyond is one of numbers, not of use."""


def in_range(user: object, weight: float) -> float:
    """Return a weight.

    Raises:
        ValueError: it is out of range.
    """
    if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
        raise ValueError(
            f"user {user!r}: weight {weight} is not a number from {LEAST_WEIGHT:g} to "
            f"{LARGEST_WEIGHT:g}"
        )
    return weight
