"""The C++ module sends every call of the contract."""

from pathlib import Path

from allocator.contract import allocator_pb2 as contract

ADAPTER = Path(__file__).parents[2] / "deploy" / "module" / "adapter" / "allocator.cc"
ANSWERED_BY_THE_MIRROR = {"get_inverse_offer_statuses"}


def test_the_module_sends_every_call_that_its_mirror_does_not_answer() -> None:
    source = ADAPTER.read_text(encoding="utf-8")
    calls = {field.name for field in contract.Event.DESCRIPTOR.oneofs_by_name["call"].fields}
    unsent = {call for call in calls if f"event.mutable_{call}()" not in source}
    assert unsent == ANSWERED_BY_THE_MIRROR
