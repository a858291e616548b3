"""A message with one event runs few functions of the service."""

import asyncio
import sys
from pathlib import Path
from types import FrameType

import allocator.service.masters
from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import SECOND, START_NS
from tests.service.masters.site import Site, snapshot

MESSAGES = 20
_FOLDERS = tuple(
    str(Path(allocator.service.masters.__file__).parents[1] / name) for name in ("masters", "loop")
)


def revive(number: int) -> contract.Events:
    call = contract.ReviveOffers(framework_id="f1", roles=["a"])
    event = contract.Event(
        sequence=number, time_ns=START_NS + number * SECOND // 1000, revive_offers=call
    )
    return contract.Events(events=[event])


def test_a_message_with_one_event_takes_at_most_25_calls_in_the_service(tmp_path: Path) -> None:
    calls = answers = 0

    def entered(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(_FOLDERS)

    async def serve() -> None:
        nonlocal answers
        messages: list[contract.Snapshot | contract.Events] = [snapshot(1)]
        messages += map(revive, range(1, MESSAGES + 1))
        site = Site(tmp_path / "log")
        async for _ in site.serve(*messages):
            answers += 1
            if answers == 1:
                sys.setprofile(entered)
        sys.setprofile(None)
        site.event_log.close()

    before = sys.getprofile()
    try:
        asyncio.run(serve())
    finally:
        sys.setprofile(before)
    assert answers == MESSAGES + 1
    assert calls / MESSAGES < 25, calls / MESSAGES
