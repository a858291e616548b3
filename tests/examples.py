"""The number of Hypothesis's examples of a test, in proportion to the loaded profile."""

from typing import Any

from hypothesis import settings


def examples(number: int, **options: Any) -> settings:  # noqa: ANN401 - the options of `settings`
    """Return settings for a test with `number` examples, if the profile has a hundred."""
    scaled = number * settings.default.max_examples // 100
    return settings(max_examples=max(scaled, 1), **options)
