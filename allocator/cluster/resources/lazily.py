"""A decorator for properties that are computed once, on first use."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazily(Generic[T]):  # noqa: N801 - a decorator, named as one
    """Like `functools.cached_property`, but without the lock that Python before 3.12 takes.

    Bags of resources are created and read several times for each event, so the lock would be
    costly.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    def __get__(self, instance: Any, _owner: type) -> T:  # noqa: ANN401 - of any class
        worked_out: T = self._work_out(instance)
        setattr(instance, self._name, worked_out)  # found by Python from now on
        return worked_out
