"""Ranges of weights and commitments within which no sum, share or priority overflows."""

LEAST_WEIGHT = 1e-6
LARGEST_WEIGHT = 1e6
"""With weights in this range, no sum, share or priority overflows, with any number of users."""
LARGEST_COMMITMENT = 1e9
"""Fraction of the capacity. Real use cannot make a larger commitment."""
LARGEST_ACCUMULATED_USE = 1e18
"""Fraction of the capacity times seconds. Real use cannot accumulate to more."""


def in_range(user: object, weight: float) -> float:
    """Return a user's weight unchanged if it is in the permitted range, else raise an error.

    Args:
        user: The user's id, for the error message.
        weight: The weight to check.

    Raises:
        ValueError: the weight is out of range.
    """
    if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
        raise ValueError(
            f"user {user!r}: weight {weight} is not a number from {LEAST_WEIGHT:g} to "
            f"{LARGEST_WEIGHT:g}"
        )
    return weight
