"""A fixture for tests that depend on the caches of resources."""

import pytest

from allocator.cluster.resources import bag, kinds
from allocator.cluster.resources.cache import Cache


@pytest.fixture
def empty_caches() -> None:
    """Empty the caches of resources, so that they drop nothing during the test.

    A cache that other tests have filled may drop a kind, and the kind is then parsed again as
    another object. Comparing two equal objects costs calls, and comparing an object with itself
    costs none.
    """
    for module in (bag, kinds):
        for value in vars(module).values():
            if isinstance(value, Cache):
                value._young, value._old, value._free = {}, {}, value._most
