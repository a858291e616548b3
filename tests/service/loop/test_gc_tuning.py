"""Garbage collection time does not grow with the engine's state, and no garbage stays for good."""

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from allocator.service.loop import gc_tuning
from allocator.service.shared_parts import opening
from allocator.service.slurm.config import SlurmConfig
from allocator.service.slurm.follower import SlurmFollower
from bench.slurm import GeneratedSlurm


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


def test_users_that_a_reading_of_slurm_replaces_are_freed_although_they_were_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc_tuning, "MIN_SECONDS_BETWEEN_COLLECTIONS", 0.0)
    gc_tuning.enable()
    config = SlurmConfig.model_validate(
        {"slurm": {"every": 0.2}, "store": {"kind": "none"}, "accounting": {"database": "none"}}
    )

    async def follow() -> None:
        stop = asyncio.Event()
        async with opening(config) as parts:
            follower = SlurmFollower(config, parts, dry_run=True)
            follower.bridge.client = GeneratedSlurm(pending=20, running=10)
            following = asyncio.create_task(follower.run(stop))

            async def await_readings(count: int) -> None:
                while follower.contact.readings < count:
                    assert not following.done()
                    await asyncio.sleep(0.01)

            await await_readings(1)
            assert follower.contact.cycle is not None
            former = weakref.ref(follower.contact.cycle.tree.tree.pool)
            gc.collect()  # freezes the users of the first reading
            await await_readings(3)
            assert former() is None
            stop.set()
            await following

    asyncio.run(follow())


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
