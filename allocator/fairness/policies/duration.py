"""Durations among the parameters of policies."""

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

from allocator.fairness.durations import read


def seconds(value: object) -> object:
    """Read a duration such as 600 or '10m'; what is no text is left to others to check.

    Raises:
        ValueError: the text is not a duration.
    """
    if isinstance(value, str):
        duration = read(value)
        if duration is None:
            raise ValueError(
                f"{value!r} is not a duration; write seconds, or such as '90s', '10m', '1h', '2d'"
            )
        return duration
    return value


Duration: TypeAlias = Annotated[float, BeforeValidator(seconds)]
"""Seconds, or such as '90s', '10m', '1h', '2d'."""
