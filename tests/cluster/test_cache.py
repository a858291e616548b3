"""Caches of resources return equal values, and keep within their bounds in bytes."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.resources import bag, decoded, kinds, parse_allocated, parse_total
from allocator.cluster.resources.cache import Cache
from tests.cluster.master_side import resource, resources


@given(keys=st.lists(st.integers(0, 50)), size=st.integers(0, 200))
def test_a_lookup_returns_the_stored_value_and_the_cache_keeps_its_size(
    keys: list[int], size: int
) -> None:
    cache: Cache[int, str] = Cache(1_000_000)
    for key in keys:
        value = cache.get(key)
        assert value is None or value == str(key)
        assert cache.put(key, str(key), size) == str(key)
        assert len(cache) * (1024 + 12 * size) <= 1_000_000


def test_recently_used_entries_stay_in_the_cache() -> None:
    cache: Cache[int, int] = Cache(10_000_000)
    for key in range(20_000):
        cache.put(key, key, 10)
        assert cache.get(key) == key
    assert 4000 < len(cache) < 9_000
    assert cache.get(0) is None


@pytest.mark.slow  # as each allocation is traced
def test_many_large_resources_do_not_stay_in_memory() -> None:
    large = "[" + ",".join(f"{2 * n}-{2 * n}" for n in range(2500)) + "]"
    message, messages = resource("ports", large), []
    for n in range(300):
        message.allocation_info.role = f"r{n}"
        messages.append(message.SerializeToString())
    assert len(messages[0]) > 15_000
    tracemalloc.start()
    for entry in messages:
        parse_allocated([entry])
    kept, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2 * 64 * 2**20, "for bags and messages"


def test_an_entry_that_would_evict_a_large_part_of_the_cache_is_not_stored() -> None:
    cache: Cache[int, int] = Cache(10_000_000)
    cache.put(1, 1, 1_000)
    cache.put(2, 2, 10_000)
    assert (cache.get(1), cache.get(2)) == (1, None)


def test_the_cache_of_resources_takes_at_most_a_quarter_of_a_gib() -> None:
    every = [value for room in (bag, kinds) for value in vars(room).values()]
    caches = [value for value in every if isinstance(value, Cache)]
    assert caches
    assert sum(2 * cache._most for cache in caches) <= 2**28


def test_equal_resources_are_the_same_objects() -> None:
    messages, held = resources("cpus:1;mem:64"), resources("cpus:1;mem:64", "eng")
    assert parse_total(messages) is parse_total(list(messages))
    assert parse_allocated(held)[1] is parse_allocated(list(held))[1]
    assert decoded(messages[0])[0] is decoded(bytes(bytearray(messages[0])))[0]
    [cpus, _mem] = parse_total(messages)
    assert decoded(resources("cpus:7")[0])[0] is cpus
    template = cpus.template
    assert kinds.encoded(template, 1234, "eng") is kinds.encoded(template, 1234, "eng")
