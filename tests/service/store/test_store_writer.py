"""If two services share a store, the service of the leading master writes the store."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest
from typing_extensions import override

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.store import StoreTaken, StoreUnavailable
from allocator.service.store import writer as writer_module
from allocator.service.store.sqlite import SqliteStore
from allocator.service.store.writer import TAKEN_PATIENCE, StoreWriter, saving_to_store
from allocator.users.memory import Memory, MemoryChanges, RememberedUser
from tests.cluster.master_side import SECOND
from tests.service.served import PATIENCE

T = TypeVar("T")
NOW = 1_600_000_000
NEWS = Memory(3e9, {"a": RememberedUser({"cpus": 0.5})})


class SharedStore(SqliteStore):
    """A store that another service writes to as well."""

    shared = True
    left_out = 0
    others: Memory | None = None
    """Memory saved by the other service and not loaded yet."""
    down = False
    taken = False
    """Whether the other service wrote last."""
    saves = 0

    @override
    def recall(self) -> Memory | None:
        if self.down:
            raise StoreUnavailable("no answer")
        news, self.others = self.others, None
        self.taken = self.taken and news is None
        return news

    @override
    def take_over(self) -> None:
        self.taken = False

    @override
    def save(self, changes: MemoryChanges) -> None:
        if self.taken:
            raise StoreTaken("another service has written it")
        self.saves += 1


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a load timeout that a stalled test process does not exceed."""
    monkeypatch.setattr(writer_module, "RECALL_PATIENCE", PATIENCE)


def with_keeper(
    folder: Path,
    play: Callable[[StoreWriter, SharedStore, Engine], Awaitable[T]],
    every: float = 60.0,
) -> T:
    """Run `play` with a store writer whose engine has received a snapshot; return its result."""

    async def played() -> T:
        engine = Engine(EngineSettings(policy=policies.create("sdrf", {"delta": 0.99})))
        engine.restore(contract.Options(), contract.Snapshot(time_ns=NOW * SECOND))
        with closing(SharedStore(folder / "commitments.sqlite")) as store:
            async with saving_to_store(engine, store, every) as keeper:
                return await play(keeper, store, engine)

    return asyncio.run(played())


def test_all_waiting_masters_get_the_memory_stored_by_another_service(tmp_path: Path) -> None:
    async def play(keeper: StoreWriter, store: SharedStore, _: Engine) -> list[Memory | None]:
        store.others = NEWS
        return list(await asyncio.gather(keeper.recall(), keeper.recall()))

    assert with_keeper(tmp_path, play) == [NEWS, NEWS]


def test_loaded_memory_is_kept_until_a_master_is_served(tmp_path: Path) -> None:
    async def play(keeper: StoreWriter, store: SharedStore, _: Engine) -> list[Memory | None]:
        store.others = NEWS
        seen = [await keeper.recall(), await keeper.recall()]
        keeper.take_over()
        return [*seen, await keeper.recall()]

    assert with_keeper(tmp_path, play) == [NEWS, NEWS, None]


def test_a_load_that_timed_out_does_not_answer_the_next_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RECALL_PATIENCE", 0.0)

    async def play(keeper: StoreWriter, store: SharedStore, _: Engine) -> Memory | None:
        assert await keeper.recall() is None, "the load timed out"
        assert keeper._reading is not None
        await keeper._reading
        monkeypatch.setattr(writer_module, "RECALL_PATIENCE", PATIENCE)
        store.others = NEWS
        return await keeper.recall()

    assert with_keeper(tmp_path, play) == NEWS


def test_memory_stored_by_another_service_is_newer_whatever_its_clock_says(tmp_path: Path) -> None:
    async def play(keeper: StoreWriter, store: SharedStore, engine: Engine) -> float | None:
        order = contract.Snapshot(time_ns=NOW * SECOND)
        store.others = Memory(NOW - 240.0, {"a": RememberedUser(weight=3.0)})
        engine.restore(contract.Options(), order, await keeper.recall())
        return engine.memory().users["a"].weight

    assert with_keeper(tmp_path, play) == 3.0


def test_a_service_that_takes_over_saves_although_the_other_service_still_saves(
    tmp_path: Path,
) -> None:
    async def play(keeper: StoreWriter, store: SharedStore, _: Engine) -> bool:
        await keeper.recall()
        store.taken = True
        keeper.take_over()
        return await keeper.save_now()

    assert with_keeper(tmp_path, play)


def test_a_service_that_could_not_load_the_store_does_not_overwrite_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RECALL_PATIENCE", 0.0)

    async def play(keeper: StoreWriter, store: SharedStore, _: Engine) -> bool:
        store.down = store.taken = True
        await keeper.recall()
        keeper.take_over()
        return await keeper.save_now()

    assert not with_keeper(tmp_path, play)


@pytest.mark.parametrize("leads", [True, False])
def test_a_lost_store_is_taken_back_if_the_master_still_leads_later(
    *, leads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "TAKEN_PATIENCE", 0.0)

    async def play(keeper: StoreWriter, store: SharedStore, _: Engine) -> list[bool]:
        keeper._leads = lambda: leads
        await keeper.recall()
        store.taken = True
        return [await keeper.save_now() for _ in range(3)]

    assert with_keeper(tmp_path, play) == [False, False, leads]


class Node:
    """A stored node that two services write alternately."""

    def __init__(self) -> None:
        self.writers: list[Contended] = []

    @property
    def writer(self) -> "Contended | None":
        return self.writers[-1] if self.writers else None


class Contended(SharedStore):
    """Store of a service; after a write by another service, saving requires a take-over."""

    node: Node
    taking = False

    @override
    def recall(self) -> Memory | None:
        return None

    @override
    def take_over(self) -> None:
        self.taking = True

    @override
    def save(self, changes: MemoryChanges) -> None:
        if not self.taking and self.node.writer not in {None, self}:
            raise StoreTaken("another service has written it")
        self.taking = False
        self.node.writers.append(self)


def test_two_services_with_leaders_alternate_and_the_remaining_service_keeps_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, node = 0.0, Node()
    monkeypatch.setattr(
        writer_module, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    )

    async def play(folder: Path) -> list[str]:
        nonlocal now
        names: dict[Contended | None, str] = {}
        keepers: dict[str, StoreWriter] = {}
        for name in "ab":
            engine = Engine(EngineSettings(policy=policies.create("sdrf", {"delta": 0.99})))
            engine.restore(contract.Options(), contract.Snapshot(time_ns=NOW * SECOND))
            store = Contended(folder / f"{name}.sqlite")
            store.node = node
            names[store], keepers[name] = name, StoreWriter(engine, store, 1.0)
            await keepers[name].recall()
        owners = []
        for second in range(200):
            now = float(second)
            for name, keeper in keepers.items():
                if name == "a" or second < 130:  # then service b and its master end
                    await keeper.save_now()
            owners.append(names[node.writer])
        for opened in filter(None, names):
            opened.close()
        return owners

    owners = asyncio.run(play(tmp_path))
    turns = [(name, len(list(seconds))) for name, seconds in groupby(owners)]
    assert [name for name, _ in turns] == ["a", "b", "a", "b", "a"]
    assert all(seconds >= TAKEN_PATIENCE for _, seconds in turns[:-1])
    assert turns[-1][1] >= 200 - 130 - TAKEN_PATIENCE
