"""What masters send is parsed within bounds, and text that is not UTF-8 ends no message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.contract import allocator_pb2 as contract
from allocator.service.masters.wire import WireError, parse
from tests.service.hostile import calls

MANY = 10**6


def message(*events: contract.Event) -> contract.FromMaster:
    return contract.FromMaster(events=contract.Events(events=events))


def test_what_is_well_formed_is_read_as_it_is() -> None:
    said = message(*calls())
    assert parse(said.SerializeToString(), MANY) == said
    assert parse(said.SerializeToString() * 300, MANY).ByteSize() > 2**16


def test_text_that_is_not_utf8_is_escaped_and_the_rest_is_as_it_was() -> None:
    revive = contract.ReviveOffers(framework_id="f1", roles=["ROLE", "b"])
    said = message(
        contract.Event(sequence=1, revive_offers=revive),
        contract.Event(
            sequence=2, activate_framework=contract.ActivateFramework(framework_id="f2")
        ),
    ).SerializeToString()
    read = parse(said.replace(b"ROLE", b"R\xff\xfeE"), MANY)
    revive.roles[0] = r"R\xff\xfeE"
    assert list(read.events.events) == [
        contract.Event(sequence=1, revive_offers=revive),
        contract.Event(
            sequence=2, activate_framework=contract.ActivateFramework(framework_id="f2")
        ),
    ]


@given(data=st.binary(max_size=200))
def test_rubbish_is_a_message_or_is_refused(data: bytes) -> None:
    try:
        read = parse(data, MANY)
    except WireError:
        return
    assert isinstance(read, contract.FromMaster)


@pytest.mark.parametrize(
    "said",
    [
        message(*[contract.Event()] * 40_000),
        contract.FromMaster(
            snapshot=contract.Snapshot(
                agents=[contract.AddAgent(used=[contract.Allocation()] * 40_000)]
            )
        ),
        contract.FromMaster(
            snapshot=contract.Snapshot(whitelist=contract.Whitelist(hostnames=[""] * 40_000))
        ),
    ],
    ids=["events", "allocations", "names"],
)
def test_a_message_of_more_parts_than_may_be_is_refused_unparsed(said: contract.FromMaster) -> None:
    data = said.SerializeToString()
    assert parse(data, 40_010) == said
    with pytest.raises(WireError, match="more than 39999 parts"):
        parse(data, 39_999)
