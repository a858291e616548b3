"""Reads numbers and names of problem, profile and game files, with understandable errors."""

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)

from allocator.complaints import complaints, listed


def _exactly(value: object) -> Fraction:
    """Convert a number to exactly the fraction that its decimal notation means (0.1 is 1/10)."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - what pydantic expects
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def _not_negative(value: Fraction) -> Fraction:
    if value < 0:
        raise ValueError(f"{float(value)} is less than 0")
    return value


def _positive(value: Fraction) -> Fraction:
    if value <= 0:
        raise ValueError(f"{float(value)} is not more than 0")
    return value


Amount = Annotated[Fraction, PlainValidator(_exactly), AfterValidator(_not_negative)]
Positive = Annotated[Fraction, PlainValidator(_exactly), AfterValidator(_positive)]
Name = Annotated[str, Field(min_length=1)]


class FileModel(BaseModel):
    """Base class for the tables of problem, profile and game files; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Read = TypeVar("Read", bound=FileModel)


def validated(model: type[Read], content: Mapping[str, Any]) -> Read:
    """Build an instance of a model from the content of a file.

    Args:
        model: The class to build.
        content: The file's content, as parsed from TOML or JSON.

    Raises:
        ValueError: A value is invalid; the message names its key in the file, the value and the
            reason.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ValueError(listed(complaints(error, model))) from None
