"""What masters send is parsed within bounds, and text that is not UTF-8 ends no message."""

from unittest import mock

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from allocator.contract import allocator_pb2 as contract
from allocator.service.masters import wire
from allocator.service.masters.wire import SHORT, WireError, parse, reading
from bench.played.cluster import PlayedCluster
from tests.service.hostile import calls

MANY = 10**6


def message(*events: contract.Event) -> contract.FromMaster:
    return contract.FromMaster(events=contract.Events(events=events))


def test_what_is_well_formed_is_read_as_it_is() -> None:
    said = message(*calls())
    assert parse(said.SerializeToString(), MANY) == said
    assert parse(said.SerializeToString() * 300, MANY) == message(*calls() * 300)
    assert len(said.SerializeToString()) * 300 > SHORT


def test_a_long_message_is_read_in_many_steps_and_is_the_same_also_with_text_that_is_none() -> None:
    said = snapshot_of(500)
    data = said.SerializeToString()
    assert len(list(reading(data, MANY))) >= len(data) // SHORT, "a stretch of it in each"
    assert parse(data, MANY) == said
    read = parse(data.replace(b"ROLE", b"R\xff\xfeE"), MANY)
    assert read == with_escaped_names(said)


def test_a_snapshot_that_is_parsed_in_milliseconds_is_not_walked_through_unless_it_has_to_be() -> (
    None
):
    said = snapshot_of(200)
    data, walked = said.SerializeToString(), len(said.SerializeToString()) // SHORT
    assert walked > 1
    assert not list(reading(data, 12 * len(data)))
    assert parse(data, 12 * len(data)) == said
    assert len(list(reading(data, 12 * len(data) - 1))) >= walked, "it could weigh too much"
    torn = data.replace(b"ROLE", b"R\xff\xfeE")
    assert len(list(reading(torn, 12 * len(data)))) >= walked, "its names are no text"
    assert parse(torn, 12 * len(data)) == with_escaped_names(said)


def snapshot_of(agents: int) -> contract.FromMaster:
    """Return a kilobyte of each agent."""
    said = [contract.AddAgent(agent_id=f"ROLE{n}", info=b"x" * 1000) for n in range(agents)]
    return contract.FromMaster(snapshot=contract.Snapshot(agents=said, sequence=7, paused=True))


def with_escaped_names(said: contract.FromMaster) -> contract.FromMaster:
    for agent in said.snapshot.agents:
        agent.agent_id = agent.agent_id.replace("ROLE", r"R\xff\xfeE")
    return said


@pytest.mark.parametrize(
    ("parts", "weight"),
    [
        ({"agents": [contract.AddAgent(agent_id="s")]}, 21),
        ({"frameworks": [contract.AddFramework(framework_id="f", info=b"x" * 1600)]}, 37),
        ({"agents": [contract.AddAgent(total=[b"x" * 160])]}, 42),
        ({"weights": [contract.Weight(role="a")]}, 2),
    ],
)
def test_what_is_kept_at_length_weighs_more(parts: dict[str, list[Message]], weight: int) -> None:
    several = {name: made * 1000 for name, made in parts.items()}
    beside = ["x" * 100] * 1000
    snapshot = contract.Snapshot(inactive_agents=beside, **several)  # type: ignore[arg-type]
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    parse(data, 1 + 1000 * (weight + 1))
    with pytest.raises(WireError, match="parts"):
        parse(data, 1000 * (weight + 1))


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
    assert parse(data, 40_030) == said
    with pytest.raises(WireError, match="more than 39999 parts"):
        parse(data, 39_999)


def test_a_message_whose_parts_begin_in_a_roundabout_way_is_weighed_as_any() -> None:
    agents = b"\x9a\x00\x00" * 40_000  # as 1a 00: an empty agent
    data = b"\x12" + varint(len(agents)) + agents
    assert len(parse(data, 1 + 20 * 40_000).snapshot.agents) == 40_000
    with pytest.raises(WireError, match="parts"):
        parse(data, 20 * 40_000)


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def test_of_a_snapshot_that_cannot_weigh_too_much_no_part_is_weighed() -> None:
    data = contract.FromMaster(snapshot=PlayedCluster(3000, 50).snapshot()).SerializeToString()
    with mock.patch.object(wire, "_after_field", side_effect=AssertionError):
        parse(data, 8 * 2**18)
        with pytest.raises(AssertionError):
            parse(data, 2**20)
