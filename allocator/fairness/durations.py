"""Durations as text: '90s', '10m', '1h', '2d'."""

import re
from collections.abc import Mapping

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of each unit, by its letter."""


def read(text: str, units: Mapping[str, float] = UNITS) -> float | None:
    """Return the length in seconds of a duration such as '10m'.

    None: the text does not consist of digits, with decimal points, and a known unit.

    Args:
        text: A number and a unit.
        units: Seconds of each unit, by its letter.

    Raises:
        ValueError: the digits and points are not a number, such as '1.2.3m'.
    """
    match = re.fullmatch(rf"\s*([0-9.]+)\s*([{''.join(units)}])\s*", text)
    return None if match is None else float(match[1]) * units[match[2]]
