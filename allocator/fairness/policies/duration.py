"""Durations among the parameters of policies."""

import re
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: object) -> object:
    """Read a duration such as 600 or '10m'; what is no text is left to others to check.

    Raises:
        ValueError: the text is not a duration.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([smhd])\s*", value)
        if match is None:
            raise ValueError(
                f"{value!r} is not a duration; write seconds, or such as '90s', '10m', '1h', '2d'"
            )
        return float(match[1]) * _UNITS[match[2]]
    return value


Duration: TypeAlias = Annotated[float, BeforeValidator(seconds)]
"""Seconds, or such as '90s', '10m', '1h', '2d'."""
