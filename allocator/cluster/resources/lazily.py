"""Properties that are worked out once."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazily(Generic[T]):  # noqa: N801 - a decorator, named as one
    """What `functools.cached_property` does, but for the lock that it takes before Python 3.12.

    Bags of resources are made and asked several times an event.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    def __get__(self, instance: Any, _owner: type) -> T:  # noqa: ANN401 - of any class
        worked_out: T = self._work_out(instance)
        setattr(instance, self._name, worked_out)  # which Python finds from then on
        return worked_out
