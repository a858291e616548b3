"""Pauses of the service between failed readings of a Slurm."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from allocator.service.shared_parts import opening
from allocator.service.slurm.config import SlurmConfig
from allocator.service.slurm.follower import SlurmFollower
from allocator.slurm.client import CommandError
from allocator.slurm.rows import UnreadableRowsError

EVERY = 5.0


def pauses_after(error: Exception, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses in seconds after readings with an error."""
    settings = {"slurm": {"every": EVERY}, "store": {"kind": "none"}}
    config = SlurmConfig.model_validate(settings | {"accounting": {"database": "none"}})
    pauses: list[float] = []

    async def follow() -> None:
        stop = asyncio.Event()

        async def wait_for(waiting: Coroutine[Any, Any, bool], seconds: float) -> None:
            waiting.close()
            pauses.append(seconds)
            if len(pauses) == 3:
                stop.set()
            raise TimeoutError

        def fail() -> None:
            raise error

        async with opening(config) as parts:
            follower = SlurmFollower(config, parts, dry_run=True)
            monkeypatch.setattr(follower.bridge, "poll", fail)
            with monkeypatch.context() as patched:
                patched.setattr(asyncio, "wait_for", wait_for)
                await follower.run(stop)

    asyncio.run(follow())
    return pauses


def test_readings_become_rare_while_slurm_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = pauses_after(CommandError("squeue failed"), monkeypatch)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * EVERY


def test_unreadable_rows_of_users_delay_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = pauses_after(UnreadableRowsError("squeue, job 1: tres-alloc"), monkeypatch)
    assert len(pauses) == 3
    assert max(pauses) <= EVERY
