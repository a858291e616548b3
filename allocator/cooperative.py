"""Cooperative work: long work in steps, between which the event loop can run other tasks.

A function that does cooperative work is a generator with the return type `Cooperative`; each
`yield` ends a step. If a function has a plain form and a generator form, the generator form has the
name of the plain form with the suffix `_in_steps`: `fill` and `fill_in_steps`. The plain form runs
the generator form to completion. A generator without a plain form has no suffix.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Part = TypeVar("Part")
Cooperative: TypeAlias = Generator[None, None, T]
"""Work that may be interrupted at each `yield`. The generator's return value is the result."""
InParts: TypeAlias = Generator[Part | None, None, T]
"""Cooperative work with partial results: a `yield` passes a part, or None to end a step."""


def run_to_completion(work: Generator[object, None, T]) -> T:
    """Run all steps of cooperative work without a pause, and return the work's result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
