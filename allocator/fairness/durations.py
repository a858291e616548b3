"""Durations as people write them: '90s', '10m', '1h', '2d'."""

import re
from collections.abc import Mapping

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds, by the letter that stands for them."""


def read(text: str, units: Mapping[str, float] = UNITS) -> float | None:
    """Return seconds; None: the text has another form.

    Raises:
        ValueError: what stands before the unit is no number.
    """
    match = re.fullmatch(rf"\s*([0-9.]+)\s*([{''.join(units)}])\s*", text)
    return None if match is None else float(match[1]) * units[match[2]]
