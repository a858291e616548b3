"""`Duration`: the type of policy parameters that are durations, such as half-lives."""

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from allocator.fairness.durations import read


def seconds(value: object) -> object:
    """Convert a duration such as '10m' to seconds; return values that are not text unchanged.

    Raises:
        ValueError: the text is not a duration.
    """
    if isinstance(value, str):
        duration = read(value)
        if duration is None:
            raise ValueError(
                f"{value!r} is not a duration; write seconds, '90s', '10m', '1h' or '2d'"
            )
        return duration
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a duration")  # noqa: TRY004
    return value


Duration: TypeAlias = Annotated[
    float, BeforeValidator(seconds), WithJsonSchema({"type": "number", "format": "duration"})
]
"""Seconds, or text such as '90s', '10m', '1h', '2d'."""
