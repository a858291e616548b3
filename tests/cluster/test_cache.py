"""Caches of resources return equal values, and keep within their bounds in bytes."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.resources import bag, decoded, kinds, parse_allocated, parse_total
from allocator.cluster.resources.cache import Cache, MessageCache
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


def test_the_caches_of_resources_take_at_most_400_mib() -> None:
    every = [value for room in (bag, kinds) for value in vars(room).values()]
    caches = [value for value in every if isinstance(value, Cache)]
    assert caches
    assert sum(2 * cache._most for cache in caches) + kinds._LONG._most <= 400 * 2**20


Actions = st.tuples(st.sampled_from(["written", "received"]), st.integers(0, 20))


@given(actions=st.lists(Actions), size=st.integers(0, 200))
def test_a_message_cache_returns_what_was_stored_and_keeps_its_size(
    actions: list[tuple[str, int]], size: int
) -> None:
    cache: MessageCache[int, str] = MessageCache(10_000)
    for action, number in actions:
        data, content = b"%d" % number, number if action == "written" else None
        entry = cache.received(data)
        assert entry is None or (entry.parsed, entry.data) == (str(number), data)
        assert cache.written(number) in {None, data}
        cache.put(data, str(number), size, content)
        assert len(cache) * (1024 + size) <= 10_000
        assert cache._free == 10_000 - len(cache) * (1024 + size)
        if content is not None and cache.received(data) is not None:
            assert cache.written(content) == data


def found(cache: MessageCache[int, int], numbers: range, rounds: int) -> int:
    """Return the number of messages that the cache contains in the last of some rounds."""
    hits = 0
    for _ in range(rounds):
        hits = 0
        for number in numbers:
            if cache.received(b"%d" % number) is not None:
                hits += 1
            else:
                cache.put(b"%d" % number, number, 0)
    return hits


def test_a_message_cache_keeps_a_part_of_messages_that_do_not_all_fit_and_return_in_turn() -> None:
    cache: MessageCache[int, int] = MessageCache(100 * 1024)
    assert found(cache, range(100), 3) == 100
    assert found(cache, range(150), 10) >= 90
    assert found(cache, range(300), 10) >= 90


def test_a_message_cache_replaces_messages_that_do_not_return() -> None:
    cache: MessageCache[int, int] = MessageCache(100 * 1024)
    found(cache, range(100), 3)
    assert found(cache, range(1000, 1100), 20) >= 95


@pytest.mark.usefixtures("empty_caches")
def test_equal_resources_are_the_same_objects() -> None:
    messages, held = resources("cpus:1;mem:64"), resources("cpus:1;mem:64", "eng")
    assert parse_total(messages) is parse_total(list(messages))
    assert parse_allocated(held)[1] is parse_allocated(list(held))[1]
    assert decoded(messages[0])[0] is decoded(bytes(bytearray(messages[0])))[0]
    [cpus, _mem] = parse_total(messages)
    assert decoded(resources("cpus:7")[0])[0] is cpus
    assert kinds.encoded(cpus, 1234, "eng") is kinds.encoded(cpus, 1234, "eng")
