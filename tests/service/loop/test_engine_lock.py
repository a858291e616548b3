"""Other tasks run during a long message, but read the engine only after its end."""

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from allocator.cooperative import Cooperative
from allocator.service.loop import engine_lock
from allocator.service.loop.cooperative import SLICE, run_in_slices
from allocator.service.loop.engine_lock import ANSWERS, BUDGET, EngineLock


class Engine:
    """An engine that is inconsistent while a call is in progress."""

    def __init__(self) -> None:
        self.orderly = True
        self.done: list[str] = []

    def apply_in_steps(
        self, name: str, budgets: int = 4, *, fails: bool = False
    ) -> Cooperative[str]:
        self.orderly = False
        for _ in range(8 * budgets):
            begun = time.perf_counter()
            while time.perf_counter() - begun < BUDGET / 8:
                pass
            yield
        self.orderly = True
        if fails:
            raise ValueError(name)
        self.done.append(name)
        return name


def test_other_tasks_run_after_each_budget_of_a_long_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock counts the message's steps, so the gaps between turns are exact on any machine."""
    lock = EngineLock()
    budget, budgets = 8, 20
    steps = 0
    monkeypatch.setattr(engine_lock, "BUDGET", budget)
    monkeypatch.setattr(engine_lock, "time", SimpleNamespace(perf_counter=lambda: steps))
    turns = [steps]

    def long_message() -> Cooperative[None]:
        nonlocal steps
        for _ in range(budget * budgets):
            steps += 1
            yield

    async def watchdog() -> None:
        while steps < budget * budgets:
            turns.append(steps)
            await asyncio.sleep(0)
        turns.append(steps)

    async def main() -> None:
        await asyncio.gather(lock.run(long_message), watchdog())

    asyncio.run(main())
    assert turns[-1] == budget * budgets
    assert max(after - before for before, after in pairwise(turns)) == budget


def test_a_reader_of_the_engine_never_sees_half_a_message() -> None:
    engine, turn = Engine(), EngineLock()
    seen: list[bool] = []

    def looking() -> Cooperative[None]:
        for _ in range(50):
            seen.append(engine.orderly)
            yield

    async def main() -> None:
        await asyncio.gather(
            turn.run(lambda: engine.apply_in_steps("a")),
            run_in_slices(looking(), turn),
            turn.run(lambda: engine.apply_in_steps("b")),
            run_in_slices(looking(), turn),
        )

    asyncio.run(main())
    assert seen == [True] * 100
    assert engine.done == ["a", "b"], "messages are applied in order of arrival"


@pytest.mark.parametrize("fails", [False, True])
def test_work_that_has_begun_is_completed_although_its_caller_is_cancelled(fails: bool) -> None:  # noqa: FBT001
    engine, turn = Engine(), EngineLock()

    async def main() -> None:
        asking = asyncio.create_task(turn.run(lambda: engine.apply_in_steps("a", fails=fails)))
        while engine.orderly:  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0)
        asking.cancel()
        async with turn:
            assert engine.orderly

    asyncio.run(main())
    assert engine.done == ([] if fails else ["a"])


def test_a_failure_releases_the_engine_lock() -> None:
    engine, turn = Engine(), EngineLock()

    def too_late() -> Cooperative[str]:
        raise ValueError("superseded")

    async def main() -> None:
        with pytest.raises(ValueError, match="superseded"):
            await turn.run(too_late)
        for budgets in (0, 3):
            with pytest.raises(ValueError, match="x"):
                await turn.run(lambda n=budgets: engine.apply_in_steps("x", n, fails=True))  # type: ignore[misc]
        assert await turn.run(lambda: engine.apply_in_steps("after")) == "after"

    asyncio.run(main())


def test_answers_are_computed_two_at_a_time() -> None:
    lock = EngineLock()
    running = most = 0

    def answer(number: int) -> Cooperative[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            time.sleep(SLICE)  # so that the work takes several slices
            yield
        running -= 1
        return number

    async def crowd() -> list[int]:
        return await asyncio.gather(*(lock.answer(answer(number)) for number in range(20)))

    assert asyncio.run(crowd()) == list(range(20))
    assert most == ANSWERS


def test_short_work_is_left_out_while_another_task_uses_the_engine() -> None:
    engine, lock, done = Engine(), EngineLock(), list[bool]()

    async def main() -> None:
        long_message = asyncio.create_task(lock.run(lambda: engine.apply_in_steps("a")))
        while engine.orderly:  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0)
        lock.run_if_free(lambda: done.append(engine.orderly))
        assert not done
        await long_message
        lock.run_if_free(lambda: done.append(engine.orderly))

    asyncio.run(main())
    assert done == [True]


def test_short_work_does_not_overtake_tasks_that_wait_for_the_engine() -> None:
    engine, lock = Engine(), EngineLock()

    async def main() -> None:
        async with lock:
            waiting = asyncio.create_task(lock.run(lambda: engine.apply_in_steps("a", 0)))
            await asyncio.sleep(0)
        # The lock is free, but the waiting task has not run since.
        await lock.run(lambda: engine.apply_in_steps("b", 0))
        await waiting

    asyncio.run(main())
    assert engine.done == ["a", "b"]
