"""Garbage collection time does not grow with the engine's state, and no garbage stays for good."""

import gc
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from allocator.service.loop import gc_tuning


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = [
        callback for callback in gc.callbacks if callback is not gc_tuning._freeze_after_full
    ]
    gc.unfreeze()


@pytest.fixture(autouse=True)
def rested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_tuning, "_last_collection", -gc_tuning.MIN_SECONDS_BETWEEN_COLLECTIONS)


class Node:
    """An object that refers to itself, as in a reference cycle of parent and child."""

    def __init__(self) -> None:
        self.itself = self


def test_objects_that_survive_a_full_collection_are_not_scanned_again() -> None:
    gc_tuning.enable()
    known = [[number] for number in range(50_000)]
    gc.collect()
    assert gc.get_freeze_count() > len(known)
    assert len(gc.get_objects()) < len(known), "later collections scan fewer objects"


def test_garbage_of_a_replaced_snapshot_is_collected_at_the_next_snapshot() -> None:
    gc_tuning.enable()
    former = Node()
    gone = weakref.ref(former)
    gc.collect()
    del former
    gc.collect()
    assert gone() is not None, "frozen objects are not collected"
    gc_tuning.collect_after_snapshot()
    assert gone() is None


def test_snapshots_in_quick_succession_cause_a_single_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc_tuning.enable()
    collected: list[int] = []
    monkeypatch.setattr(gc_tuning, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    for _ in range(5):
        gc_tuning.collect_after_snapshot()
    assert len(collected) == 1


def test_an_untuned_process_is_not_changed() -> None:
    frozen = gc.get_freeze_count()
    gc_tuning.collect_after_snapshot()
    assert gc.get_freeze_count() == frozen


def test_memory_returns_to_the_system_while_the_process_is_larger_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trims: list[int] = []
    now = resident = 0
    monkeypatch.setattr(gc_tuning, "_resident", lambda: resident * 2**20)
    monkeypatch.setattr(gc_tuning, "_window_end", 0.0)
    monkeypatch.setattr(gc_tuning, "_next_return", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(gc_tuning, "trim_soon", lambda: trims.append(now))
    for now in range(200):
        resident = 80 if now < 30 else 110 if now < 40 else 500
        gc_tuning.trim_if_grown()
    assert trims == [*range(40, 60, 5)]
    trims.clear()
    for now in range(200, 300):
        resident = 700 if now < 212 else 510
        gc_tuning.trim_if_grown()
    assert trims == [200, 205, 210]
