"""Work that is done step by step, so that others can be heard between two steps."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Cooperative: TypeAlias = Generator[None, None, T]
"""Work that may be interrupted wherever it yields; what it returns is its result."""


def run_to_completion(steps: Cooperative[T]) -> T:
    """Do all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
