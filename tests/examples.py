"""Numbers of examples in proportion to Hypothesis's loaded profile, whose usual number is 100."""

from typing import Any

from hypothesis import settings


def scaled(number: int) -> int:
    """Return the number of cases for this run, at least one; `number` is the usual number."""
    return max(number * settings().max_examples // 100, 1)


def examples(number: int, **options: Any) -> settings:  # noqa: ANN401 - the options of `settings`
    """Return Hypothesis's settings for a test that usually tries a number of examples."""
    return settings(max_examples=scaled(number), **options)
