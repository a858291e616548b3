"""Long work runs in cooperative steps, and callers that wait together share one answer."""

import asyncio
import time
from itertools import pairwise

import pytest

from allocator.cooperative import run_to_completion
from allocator.service.loop.cooperative import (
    SLICE,
    SharedComputation,
    Work,
    run_in_slices,
    run_in_thread,
)
from allocator.service.loop.engine_lock import EngineLock
from tests.service.served import PATIENCE


def work(steps: int, seen: list[int]) -> Work[int]:
    for step in range(steps):
        begun = time.perf_counter()
        while time.perf_counter() - begun < SLICE / 4:
            pass
        seen.append(step)
        yield
    return steps


def test_cooperative_work_has_the_result_of_uninterrupted_work() -> None:
    assert run_to_completion(work(3, [])) == asyncio.run(run_in_slices(work(3, []))) == 3


def test_other_tasks_run_between_time_slices() -> None:
    steps: list[int] = []
    heard: list[int] = []

    async def other() -> None:
        while len(steps) < 40:
            heard.append(len(steps))
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(run_in_slices(work(40, steps)), other())

    asyncio.run(main())
    gaps = [after - before for before, after in pairwise(heard)]
    assert len(set(heard)) > 5
    assert max(gaps) <= 4, "at most one time slice of steps runs without a pause"


def test_long_work_takes_at_most_a_fifth_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await slept(0)

    now = 0.0

    def quarters() -> Work[None]:
        nonlocal now
        for _ in range(40):
            now += SLICE / 4
            yield

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("allocator.service.loop.cooperative.time.perf_counter", lambda: now)
    asyncio.run(run_in_slices(quarters()))
    assert rests == [pytest.approx(4 * SLICE)] * 10, "a pause comes after each four steps"


def test_work_in_another_thread_pauses_before_the_interpreter_forces_a_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaths: list[float] = []
    monkeypatch.setattr(time, "sleep", breaths.append)
    assert run_in_thread(work(40, [])) == 40
    assert len(breaths) >= 40, "a pause follows each step, as each step is longer than a burst"
    assert min(breaths) > 0


def test_callers_during_a_computation_share_the_next_answer() -> None:
    made: list[int] = []
    begun = asyncio.Event()

    async def make() -> int:
        made.append(0)
        begun.set()
        await asyncio.sleep(0.01)
        return len(made)

    async def main() -> None:
        once = SharedComputation(make)
        first = asyncio.create_task(once.get())
        await begun.wait()
        waiters = [asyncio.create_task(once.get()) for _ in range(50)]
        assert await first == 1
        assert await asyncio.gather(*waiters) == [2] * 50, "started after the calls, run once"
        assert await once.get() == 3

    asyncio.run(main())


def test_the_pause_after_a_computation_leaves_out_waits_for_other_work() -> None:
    waited = 0.0

    async def make() -> None:
        nonlocal waited
        await asyncio.sleep(0.01)
        waited += 3600.0

    async def main() -> None:
        once = SharedComputation(make, lambda: waited)
        await once.get()
        assert once._pause_end < asyncio.get_running_loop().time()

    asyncio.run(main())


def test_a_cancelled_caller_leaves_the_answer_to_other_callers() -> None:
    async def make() -> int:
        await asyncio.sleep(0.01)
        return 7

    async def main() -> None:
        once = SharedComputation(make)
        gone, stays = asyncio.create_task(once.get()), asyncio.create_task(once.get())
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 7

    asyncio.run(main())


def test_a_failed_computation_fails_its_callers_and_no_later_caller() -> None:
    outcomes: list[Exception | int] = [ValueError("no"), 5]

    async def make() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def main() -> None:
        once = SharedComputation(make)
        with pytest.raises(ValueError, match="no"):
            await once.get()
        assert await once.get() == 5

    asyncio.run(main())


def test_work_progresses_although_other_tasks_hold_the_lock_back_to_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other tasks hold the lock for a second per turn; the work takes 300 steps of 1 ms."""
    now, turns, heard = 0.0, 0, 0
    monkeypatch.setattr("allocator.service.loop.cooperative.time.perf_counter", lambda: now)

    def steps() -> Work[str]:
        nonlocal now
        for _ in range(300):
            now += 0.001
            yield
        return "done"

    async def side_by_side() -> str:
        turn = EngineLock()

        async def others() -> None:
            nonlocal now, turns
            while True:
                async with turn:
                    turns += 1
                    await asyncio.sleep(0)
                    now += 1.0

        async def listener() -> None:
            nonlocal heard
            while True:
                await asyncio.sleep(0)
                heard += 1

        at_work = [asyncio.create_task(job()) for job in (others, listener)]
        await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(run_in_slices(steps(), turn, rest=0.0), PATIENCE)
        finally:
            for task in at_work:
                task.cancel()

    assert asyncio.run(side_by_side()) == "done"
    assert turns <= 5
    assert heard >= 100, "other tasks run while the lock is held"
