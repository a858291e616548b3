"""Messages of masters are parsed within limits; text that is not UTF-8 is escaped."""

from collections.abc import Iterator
from unittest import mock

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.frameworks.subscription import read_request
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.resources import kinds, merge_reservations, shortened
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.service.config import ListenSection
from allocator.service.masters import wire
from allocator.service.masters.sessions import serialised
from allocator.service.masters.wire import (
    MAX_STEP_BYTES,
    HeavyEventsError,
    WireError,
    parse,
    parse_in_steps,
)
from bench.played.cluster import PlayedCluster
from tests.cluster.master_side import framework_info, resources
from tests.counted import counted
from tests.service.hostile import calls

MANY = 10**6


def message(*events: contract.Event) -> contract.FromMaster:
    return contract.FromMaster(events=contract.Events(events=events))


def test_well_formed_messages_are_parsed_unchanged() -> None:
    original = message(*calls())
    assert parse(original.SerializeToString(), MANY) == original
    assert parse(original.SerializeToString() * 300, MANY) == message(*calls() * 300)
    assert len(original.SerializeToString()) * 300 > MAX_STEP_BYTES


def test_long_messages_are_parsed_in_steps_with_the_same_result() -> None:
    original = snapshot_of(500)
    data = original.SerializeToString()
    assert len(list(parse_in_steps(data, MANY))) >= len(data) // MAX_STEP_BYTES, (
        "each step parses at most SHORT bytes"
    )
    assert parse(data, MANY) == original
    read = parse(data.replace(b"ROLE", b"R\xff\xfeE"), MANY)
    assert read == with_escaped_names(original)


def test_a_snapshot_is_walked_through_only_if_it_is_large_or_not_utf8() -> None:
    original = snapshot_of(200)
    data, walked = original.SerializeToString(), len(original.SerializeToString()) // MAX_STEP_BYTES
    assert walked > 1
    assert not list(parse_in_steps(data, 12 * len(data)))
    assert parse(data, 12 * len(data)) == original
    assert len(list(parse_in_steps(data, 12 * len(data) - 1))) >= walked, (
        "the snapshot could exceed the weight limit"
    )
    torn = data.replace(b"ROLE", b"R\xff\xfeE")
    assert len(list(parse_in_steps(torn, 12 * len(data)))) >= walked, "the names are not UTF-8"
    assert parse(torn, 12 * len(data)) == with_escaped_names(original)


def snapshot_of(agents: int) -> contract.FromMaster:
    """Return a snapshot with about a kilobyte for each agent."""
    added = [contract.AddAgent(agent_id=f"ROLE{n}", info=b"x" * 1000) for n in range(agents)]
    return contract.FromMaster(snapshot=contract.Snapshot(agents=added, sequence=7, paused=True))


def with_escaped_names(original: contract.FromMaster) -> contract.FromMaster:
    for agent in original.snapshot.agents:
        agent.agent_id = agent.agent_id.replace("ROLE", r"R\xff\xfeE")
    return original


@pytest.mark.parametrize(
    ("parts", "weight"),
    [
        ({"agents": [contract.AddAgent(agent_id="s")]}, 21),
        ({"frameworks": [contract.AddFramework(framework_id="f", info=b"x" * 1600)]}, 37),
        ({"quotas": [contract.SetQuota(info=b"x" * 160)]}, 23),
        ({"weights": [contract.Weight(role="a")]}, 2),
    ],
)
def test_parts_that_take_more_memory_weigh_more(
    parts: dict[str, list[Message]], weight: int
) -> None:
    several = {name: made * 1000 for name, made in parts.items()}
    beside = ["x" * 100] * 1000
    snapshot = contract.Snapshot(inactive_agents=beside, **several)  # type: ignore[arg-type]
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    parse(data, 1 + 1000 * (weight + 1))
    with pytest.raises(WireError, match="parts"):
        parse(data, 1000 * (weight + 1))


def test_text_that_is_not_utf8_is_escaped_and_other_fields_are_unchanged() -> None:
    revive = contract.ReviveOffers(framework_id="f1", roles=["ROLE", "b"])
    original = message(
        contract.Event(sequence=1, revive_offers=revive),
        contract.Event(
            sequence=2, activate_framework=contract.ActivateFramework(framework_id="f2")
        ),
    ).SerializeToString()
    read = parse(original.replace(b"ROLE", b"R\xff\xfeE"), MANY)
    revive.roles[0] = r"R\xff\xfeE"
    assert list(read.events.events) == [
        contract.Event(sequence=1, revive_offers=revive),
        contract.Event(
            sequence=2, activate_framework=contract.ActivateFramework(framework_id="f2")
        ),
    ]


@given(data=st.binary(max_size=200))
def test_random_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        read = parse(data, MANY)
    except WireError:
        return
    assert isinstance(read, contract.FromMaster)


@pytest.mark.parametrize(
    "said",
    [
        message(*[contract.Event()] * 40_000),
        contract.FromMaster(snapshot=contract.Snapshot(quotas=[contract.SetQuota()] * 40_000)),
        contract.FromMaster(
            snapshot=contract.Snapshot(whitelist=contract.Whitelist(hostnames=[""] * 40_000))
        ),
    ],
    ids=["events", "quotas", "names"],
)
def test_a_message_with_too_many_parts_is_refused_unparsed(said: contract.FromMaster) -> None:
    data = said.SerializeToString()
    assert parse(data, 40_030) == said
    with pytest.raises(WireError, match="more than 39999 parts"):
        parse(data, 39_999)


def test_a_message_with_overlong_tags_is_weighed_correctly() -> None:
    agents = b"\x9a\x00\x00" * 40_000  # an overlong encoding of 1a 00: an empty agent
    data = b"\x12" + varint(len(agents)) + agents
    assert len(parse(data, 1 + 20 * 40_000).snapshot.agents) == 40_000
    with pytest.raises(WireError, match="parts"):
        parse(data, 20 * 40_000)


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def test_parts_of_a_snapshot_below_the_weight_limit_are_not_weighed() -> None:
    data = contract.FromMaster(snapshot=PlayedCluster(3000, 50).snapshot()).SerializeToString()
    with mock.patch.object(wire, "_after_field", side_effect=AssertionError):
        parse(data, 8 * 2**18)
        with pytest.raises(AssertionError):
            parse(data, 2**20)


EVIL = "picky"


def cluster_said(agents: int, roles: int, *, per_agent: bool, length: int = 4) -> contract.Snapshot:
    """A snapshot in which one framework excludes all agents in all roles, another excludes one."""
    names = [f"s{number}" for number in range(agents)]
    excluded = [f"r{number}".ljust(length, "x") for number in range(roles)]
    picky = contract.AddFramework(framework_id=EVIL, info=b"picky's", active=True)
    modest = contract.AddFramework(
        framework_id="modest",
        info=b"modest's",
        excluded=[contract.ExcludedAgents(role="m", agent_ids=["s0"])],
    )
    exclusions = contract.ExclusionList()
    if per_agent:
        exclusions.exclusions.add(framework_id="modest", role="m")
        for role in excluded:
            exclusions.exclusions.add(framework_id=EVIL, role=role)
    else:
        for role in excluded:
            picky.excluded.add(role=role, agent_ids=names)
    return contract.Snapshot(
        agents=[contract.AddAgent(agent_id=name, info=b"i", excluded=exclusions) for name in names],
        frameworks=[picky, modest],
        sequence=7,
    )


@pytest.mark.parametrize("per_agent", [True, False])
def test_exclusions_of_one_framework_cost_it_its_offers_and_not_the_master_its_message(
    *, per_agent: bool
) -> None:
    snapshot = cluster_said(50, 400, per_agent=per_agent)
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    read = parse(data, 15_000).snapshot
    assert [agent.agent_id for agent in read.agents] == [
        agent.agent_id for agent in snapshot.agents
    ]
    picky, modest = read.frameworks
    assert modest == snapshot.frameworks[1]
    kept = [
        exclusion.framework_id for agent in read.agents for exclusion in agent.excluded.exclusions
    ]
    assert kept == ["modest"] * 50 * per_agent
    unlisted = [name for agent in read.agents for name in agent.excluded.unlisted]
    assert unlisted == [EVIL] * per_agent, "the engine needs one mark"
    assert picky.excluded_unlisted
    assert picky.info == b"picky's"
    assert not picky.excluded
    assert parse(data, 10**7).snapshot == snapshot, "without need nothing is cut"


def test_as_few_frameworks_as_possible_lose_their_exclusions() -> None:
    snapshot = cluster_said(1, 1, per_agent=False)
    del snapshot.frameworks[:]
    for number in range(6):
        agents = [f"s{k}" for k in range(1000 * (number + 1))]
        snapshot.frameworks.add(
            framework_id=f"f{number}",
            excluded=[contract.ExcludedAgents(role="a", agent_ids=agents)],
        )
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    read = parse(data, 20_000).snapshot
    unlisted = [framework.excluded_unlisted for framework in read.frameworks]
    assert unlisted == [False] * 5 + [True], "the longest is cut, and that is enough"


def crowd_said(frameworks: int, suppressed: int, excluded: int) -> contract.Snapshot:
    """A snapshot with an honest framework, and many frameworks of another principal."""
    snapshot = contract.Snapshot(sequence=7)
    names = [str(number) for number in range(max(suppressed, excluded))]
    honest = snapshot.frameworks.add(
        framework_id="honest", info=framework_info("honest", "gpu", principal="honest")
    )
    honest.excluded.add(role="gpu", agent_ids=[str(number) for number in range(300)])
    for number in range(frameworks):
        of_crowd = snapshot.frameworks.add(
            framework_id=f"e{number}",
            info=framework_info(f"e{number}", "evil", principal="crowd"),
            suppressed_roles=names[:suppressed],
        )
        of_crowd.excluded.add(role="evil", agent_ids=names[:excluded])
    return snapshot


@pytest.mark.parametrize(("suppressed", "excluded"), [(290, 0), (250, 40), (0, 290)])
def test_many_frameworks_of_one_principal_displace_no_list_of_another_principal(
    suppressed: int, excluded: int
) -> None:
    snapshot = crowd_said(300, suppressed, excluded)
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    honest, *crowd = parse(data, 40_000).snapshot.frameworks
    assert honest == snapshot.frameworks[0]
    assert any(framework.excluded_unlisted for framework in crowd)
    assert [framework.info for framework in crowd] == [
        framework.info for framework in snapshot.frameworks[1:]
    ]
    assert parse(data, 10**6).snapshot == snapshot, "without need nothing is cut"


def test_lists_beyond_the_limits_of_one_framework_are_cut_before_shorter_lists() -> None:
    """A principal with more weight in total keeps lists that are within the limits."""
    snapshot = crowd_said(10, 3_000, 0)
    for number in range(300):
        snapshot.frameworks.add(
            framework_id=f"m{number}",
            info=framework_info(f"m{number}", "many", principal="many"),
            suppressed_roles=[f"r{role}" for role in range(200)],
        )
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    frameworks = parse(data, 100_000).snapshot.frameworks
    cut = {framework.framework_id for framework in frameworks if framework.excluded_unlisted}
    assert cut == {f"e{number}" for number in range(10)}


def test_the_work_for_a_heavy_snapshot_does_not_grow_with_the_lists_of_frameworks() -> None:
    def fields_read(suppressed: int) -> int:
        snapshot = crowd_said(50, suppressed, 0)
        data = contract.FromMaster(snapshot=snapshot).SerializeToString()
        number, original = 0, wire._fields

        def counted(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
            nonlocal number
            for each in original(data, begin, end):
                number += 1
                yield each

        with mock.patch.object(wire, "_fields", counted):
            read = parse(data, 50_000).snapshot
        assert [framework.excluded_unlisted for framework in read.frameworks] == [False] + 50 * [
            True
        ]
        return number

    assert fields_read(8_000) < fields_read(2_000) + 100


def test_events_that_only_lists_within_the_limits_make_too_heavy_can_be_replaced() -> None:
    """Only the snapshot that follows names the principals."""
    suppressed = [f"r{number}" for number in range(200)]
    events = [
        contract.Event(
            suppress_offers=contract.SuppressOffers(framework_id=f"f{number}", roles=suppressed)
        )
        for number in range(300)
    ]
    with pytest.raises(HeavyEventsError):
        parse(message(*events).SerializeToString(), 40_000)


def test_a_call_with_lists_of_one_framework_that_are_too_long_is_cut_alone() -> None:
    names = [f"s{number}" for number in range(20_000)]
    excluded = [contract.ExcludedAgents(role="a", agent_ids=names)]
    original = message(
        contract.Event(
            sequence=1,
            add_framework=contract.AddFramework(framework_id="f", info=b"i", excluded=excluded),
        ),
        contract.Event(
            sequence=2,
            update_framework=contract.UpdateFramework(
                framework_id="f", info=b"i", suppressed_roles=names
            ),
        ),
        contract.Event(
            sequence=3,
            request_resources=contract.RequestResources(
                framework_id="f", requests=[name.encode() for name in names]
            ),
        ),
        contract.Event(
            sequence=4, revive_offers=contract.ReviveOffers(framework_id="f", roles=names)
        ),
        contract.Event(
            sequence=5,
            add_agent=contract.AddAgent(
                agent_id="s",
                excluded=contract.ExclusionList(
                    exclusions=[contract.Exclusion(framework_id="f", role=role) for role in names]
                ),
            ),
        ),
        contract.Event(sequence=6, tick=contract.Tick()),
    )
    added, updated, asked, revived, agent, tick = parse(
        original.SerializeToString(), wire._SHARE * 15_000
    ).events.events
    assert added == contract.Event(
        sequence=1,
        add_framework=contract.AddFramework(framework_id="f", info=b"i", excluded_unlisted=True),
    )
    assert updated.update_framework == contract.UpdateFramework(
        framework_id="f", info=b"i", excluded_unlisted=True
    )
    [request] = asked.request_resources.requests
    _, flaw = read_request(request, Limits(), otherwise=None)
    assert flaw is not None
    assert "listen.most_parts" in flaw.words
    assert not revived.revive_offers.roles, "all of its roles"
    assert agent.add_agent.excluded == contract.ExclusionList(unlisted=["f"])
    assert tick == original.events.events[-1]


def quoted_roles(framework: str, roles: int = 200) -> contract.AddFramework:
    """A framework of one principal whose role names consist of the first byte of a list entry."""
    names = [f"{framework}{number}".ljust(150, '"') for number in range(roles)]
    return contract.AddFramework(
        framework_id=framework,
        info=framework_info(framework, *names, principal="mallory"),
        suppressed_roles=names,
    )


def test_the_bytes_of_a_name_weigh_nothing() -> None:
    frameworks = [quoted_roles(f"f{number}") for number in range(50)]
    snapshot = contract.Snapshot(frameworks=frameworks, quotas=[contract.SetQuota()] * 10)
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    assert len(data) > 10**6
    assert parse(data, 50 * 250).snapshot == snapshot


def test_the_bytes_of_a_role_that_excludes_agents_weigh_nothing() -> None:
    for role in ("\x12" * 1000, "\n" * 1000):
        framework = contract.AddFramework(framework_id="f", info=b"i")
        for number in range(100):
            framework.excluded.add(role=f"{number}{role}", agent_ids=["s1", "s2"])
        snapshot = contract.Snapshot(frameworks=[framework])
        data = contract.FromMaster(snapshot=snapshot).SerializeToString()
        assert parse(data, wire._SHARE * 450).snapshot == snapshot
        [read] = parse(
            data.replace(role[:9].encode(), b"\xff" * 9), wire._SHARE * 450
        ).snapshot.frameworks
        assert len(read.excluded) == 100, "text that is not UTF-8 is escaped"


def test_no_framework_id_makes_the_service_leave_out_the_resources_of_an_agent() -> None:
    agents = [
        contract.AddAgent(agent_id=f"s{number}", total=[b"x" * 100] * 4) for number in range(40)
    ]
    frameworks = [quoted_roles(f"agent s{number}") for number in range(40)]
    snapshot = contract.Snapshot(agents=agents, frameworks=frameworks)
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    read = parse(data, 8_000).snapshot
    assert list(read.agents) == agents
    assert any(framework.excluded_unlisted for framework in read.frameworks)


def test_frameworks_with_ids_like_agents_form_one_group_with_their_principal() -> None:
    snapshot = crowd_said(300, 250, 40)
    for framework in snapshot.frameworks[1:]:
        framework.framework_id = f"agent {framework.framework_id}"
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    honest, *crowd = parse(data, 40_000).snapshot.frameworks
    assert honest == snapshot.frameworks[0]
    assert any(framework.excluded_unlisted for framework in crowd)


def asked(framework: str, *requests: bytes) -> contract.Event:
    call = contract.RequestResources(framework_id=framework, requests=requests)
    return contract.Event(request_resources=call)


def test_the_bytes_of_a_request_weigh_a_sixteenth_part_each() -> None:
    for byte in (b"\x12", b"\x92"):
        events = message(*[asked(f"f{number}", byte * 19_000) for number in range(40)])
        data = events.SerializeToString()
        assert parse(data, 50_000) == events
        long = message(asked("f", byte * 750_000))
        assert parse(long.SerializeToString(), wire._SHARE * 47_000) == long


def test_the_heaviest_requests_are_left_out_of_events_that_are_too_heavy() -> None:
    """A snapshot instead would cost each framework its offer filters."""
    suppress = contract.Event(
        suppress_offers=contract.SuppressOffers(framework_id="f0", roles=["a", "b"])
    )
    crowd = [asked(f"f{number}", *[b""] * 200) for number in range(300)]
    events = message(suppress, asked("honest", b"x" * 160), *crowd)
    suppressed, honest, *others = parse(events.SerializeToString(), 60_000).events.events
    assert suppressed == suppress
    assert honest == events.events.events[1]
    cut = [event for event in others if event not in crowd]
    assert 0 < len(cut) < len(crowd)
    for event in cut:
        [request] = event.request_resources.requests
        _, flaw = read_request(request, Limits(), otherwise=None)
        assert flaw is not None
        assert "listen.most_parts" in flaw.words


def test_lists_that_are_too_long_are_cut_in_steps() -> None:
    snapshot = cluster_said(2_000, 40, per_agent=False)
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    steps = 0
    for _ in parse_in_steps(data, 70_000):
        steps += 1
    assert steps > len(data) / 2**15


def test_identical_lists_of_agents_are_weighed_once() -> None:
    snapshot = cluster_said(100, 300, per_agent=True)
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    with mock.patch.object(wire, "_exclusion_shares", wraps=wire._exclusion_shares) as shares:
        parse(data, 20_000)
    assert shares.call_count == 1


def test_events_that_are_too_heavy_without_lists_of_frameworks_can_be_replaced() -> None:
    data = message(*[contract.Event()] * 40_000).SerializeToString()
    with pytest.raises(HeavyEventsError):
        parse(data, 39_999)


def test_an_agent_in_too_many_parts_costs_its_resources_and_not_the_master_its_snapshot() -> None:
    """A framework with the right to reserve can divide an agent's resources into thousands."""
    pieces = [b"x" * 100] * 3_000
    held = [contract.Allocation(framework_id="f", resources=pieces)]
    agents = [
        contract.AddAgent(agent_id=name, info=b"i" * 100, total=[b"x" * 100] * 4)
        for name in ("s1", "s2", "s3")
    ]
    agents.append(contract.AddAgent(agent_id="s4", total=pieces, used=held, running=held))
    data = contract.FromMaster(snapshot=contract.Snapshot(agents=agents)).SerializeToString()
    read = parse(data, 100_000).snapshot
    assert list(read.agents[:3]) == agents[:3]
    assert (read.agents[3].agent_id, len(read.agents[3].total)) == ("s4", 1)
    assert not read.agents[3].used
    parser = ResourceParser(Limits())
    assert not parser.total(read.agents[3].total).scalars
    assert parser.flaw is not None
    assert "listen.most_parts" in parser.flaw.words
    assert parse(data, 200_000).snapshot.agents == agents, "without need nothing is cut"


def reserved(label: int) -> bytes:
    """Return a CPU that a tenant reserved with a label of a length."""
    resource = mesos.Resource(name="cpus", type=mesos.Value.SCALAR)
    resource.scalar.value = 1.0
    resource.reservations.add(role="a", type=mesos.Resource.ReservationInfo.DYNAMIC)
    resource.reservations[0].labels.labels.add(key="k", value="v" * label)
    return resource.SerializeToString()


def agents_with(label: int) -> list[contract.AddAgent]:
    """Return agents with a plain resource and a reserved one, which a framework uses."""
    total = [b"x" * 100, reserved(label)]
    held = [contract.Allocation(framework_id="f", resources=total)]
    return [
        contract.AddAgent(agent_id=f"s{n}", info=b"i" * 100, total=total, used=held, running=held)
        for n in range(20)
    ]


LIGHT, MEDIUM, HEAVY = 600, 4_000, 100_000
"""Lengths of labels: below every limit, below `limits.resource_kind` only, above this limit."""


@pytest.mark.parametrize(("label", "most_parts"), [(HEAVY, 50_000), (MEDIUM, 20_000)])
def test_long_labels_are_shortened_before_an_agent_loses_its_resources(
    label: int, most_parts: int
) -> None:
    agents = [*agents_with(label), *agents_with(LIGHT), *agents_with(MEDIUM)]
    data = contract.FromMaster(snapshot=contract.Snapshot(agents=agents)).SerializeToString()
    limits = Limits(resource_kind=8192)
    read = parse(data, most_parts, limits).snapshot.agents
    assert [agent.agent_id for agent in read] == [agent.agent_id for agent in agents]
    longest = 8192 if label == HEAVY else 1000
    short = [b"x" * 100, shortened(reserved(label), longest)]
    for agent in read[:20]:
        assert list(agent.total) == list(agent.used[0].resources) == short
        assert list(agent.running[0].resources) == short
    assert list(read[20:40]) == agents[20:40]
    assert (list(read[40:]) == agents[40:]) == (label == HEAVY), "no more than is necessary"
    assert parse(data, 10**6, limits).snapshot.agents == agents, "without need nothing is cut"


def test_long_labels_are_shortened_in_steps() -> None:
    snapshot = contract.Snapshot(agents=agents_with(HEAVY))
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    calls = 0

    def counted(resource: bytes, longest: int) -> bytes:
        nonlocal calls
        calls += 1
        return shortened(resource, longest)

    with mock.patch.object(wire, "shortened", counted):
        steps = parse_in_steps(data, 50_000, Limits(resource_kind=8192))
        most = before = 0
        for _ in steps:
            most, before = max(most, calls - before), calls
    assert calls == 3 * len(snapshot.agents)
    assert most == 1


def reserved_by(principal: str, number: int) -> list[bytes]:
    """Return CPUs that a principal reserved with short labels, each of another kind."""
    resources = list[bytes]()
    for label in range(number):
        resource = mesos.Resource(name="cpus", type=mesos.Value.SCALAR)
        resource.scalar.value = 0.001
        reservation = resource.reservations.add(role="a", principal=principal)
        reservation.type = mesos.Resource.ReservationInfo.DYNAMIC
        reservation.labels.labels.add(key=str(label))
        resources.append(resource.SerializeToString())
    return resources


def test_many_reservations_are_added_up_before_an_agent_loses_its_resources() -> None:
    plain, honest = mesos.Resource(name="cpus", type=mesos.Value.SCALAR), reserved_by("honest", 5)
    plain.scalar.value = 8.0
    tenant = reserved_by("tenant", 300)
    total = [plain.SerializeToString(), *tenant, *honest]
    held = [contract.Allocation(framework_id="f", resources=[*honest, *tenant[:10]])]
    agents = [
        contract.AddAgent(agent_id=f"s{n}", info=b"i" * 100, total=total, used=held, running=held)
        for n in range(40)
    ]
    for number in range(150, 300):
        reserved_for_b = mesos.Resource.FromString(total[1 + number])
        reserved_for_b.reservations[0].role = "b/c"
        for agent in agents:
            agent.total[1 + number] = reserved_for_b.SerializeToString()
    total = list(agents[0].total)
    snapshot = contract.Snapshot(agents=agents, limited_quotas=[contract.UpdateQuota(role="b")])
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    read = parse(data, 100_000).snapshot.agents
    sums = run_to_completion(merge_reservations(total, b"tenant", {"b"}, used=False))
    held_sums = run_to_completion(
        merge_reservations(held[0].resources, b"tenant", {"b"}, used=True)
    )
    assert len(sums) == 8
    assert len(held_sums) == 6
    changed = [agent for agent, before in zip(read, agents, strict=True) if agent != before]
    assert 20 < len(changed) < 40, "no more agents than necessary"
    for agent in changed:
        assert list(agent.total) == sums
        assert list(agent.used[0].resources) == list(agent.running[0].resources) == held_sums
    assert parse(data, 10**6).snapshot.agents == agents, "without need nothing is added up"


def test_agents_whose_reservations_cannot_be_added_up_lose_their_resources() -> None:
    agents = [
        contract.AddAgent(
            agent_id=f"s{n}", total=reserved_by("tenant", 1) * 10 + [b"x" * 200] * 200
        )
        for n in range(20)
    ]
    data = contract.FromMaster(snapshot=contract.Snapshot(agents=agents)).SerializeToString()
    read = parse(data, 70_000).snapshot.agents
    emptied = [agent for agent in read if len(agent.total) == 1]
    assert 0 < len(emptied) < len(agents)


def test_a_principal_with_few_reservations_keeps_them_on_a_heavy_agent() -> None:
    heavy = [resource.replace(b"tenant", b"hermit") for resource in reserved_by("tenant", 300)]
    few = reserved_by("honest", 20)
    held = contract.Allocation(framework_id="f", resources=[b"x" * 200] * 100)
    agents = [
        contract.AddAgent(agent_id=f"s{n}", total=[*few, *heavy], used=[held]) for n in range(40)
    ]
    data = contract.FromMaster(snapshot=contract.Snapshot(agents=agents)).SerializeToString()
    read = parse(data, 80_000).snapshot.agents
    kept = [agent for agent in read if len(agent.total) == 21]
    emptied = [agent for agent in read if len(agent.total) == 1]
    assert len(kept) + len(emptied) == len(agents)
    assert kept
    assert emptied
    assert all(list(agent.total[:20]) == few for agent in kept)


def test_reservations_are_added_up_in_steps() -> None:
    agents = [contract.AddAgent(agent_id="s", total=reserved_by("tenant", 3_000))]
    data = contract.FromMaster(snapshot=contract.Snapshot(agents=agents)).SerializeToString()
    calls = 0

    def counted(resource: bytes) -> tuple[bytes, mesos.Resource] | None:
        nonlocal calls
        calls += 1
        return parsed_reservation(resource)

    parsed_reservation = kinds._parsed_reservation
    with mock.patch.object(kinds, "_parsed_reservation", counted):
        steps = parse_in_steps(data, 40_000)
        most = before = 0
        for _ in steps:
            most, before = max(most, calls - before), calls
    assert calls == 2 * 3_000
    assert most <= 101


def test_lists_of_frameworks_shorten_no_labels() -> None:
    agents = agents_with(MEDIUM)
    heavy = contract.AddFramework(framework_id="f", suppressed_roles=["r"] * 200_000)
    snapshot = contract.Snapshot(agents=agents, frameworks=[heavy])
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    read = parse(data, 100_000, Limits(resource_kind=8192, roles=10**6)).snapshot
    assert read.agents == agents
    assert not read.frameworks[0].suppressed_roles


def test_too_heavy_events_leave_their_effects_on_offer_filters() -> None:
    heavy = contract.UpdateAllocation(framework_id="f", conversions=[contract.Conversion()] * 9_000)
    filtering = [
        contract.Event(
            sequence=number,
            time_ns=number,
            recover_resources=contract.RecoverResources(
                framework_id="g", agent_id="s", resources=[b"cpus"], filters=b""
            ),
        )
        for number in range(1, 5)
    ]
    revive = contract.ReviveOffers(framework_id="g", roles=["a"])
    agent = contract.AddAgent(agent_id="s", info=b"x" * 1_000, total=[b"x" * 100] * 400)
    framework = contract.AddFramework(framework_id="g", info=b"x" * 10_000, suppressed_roles=["r"])
    events = [
        *filtering,
        contract.Event(sequence=5, time_ns=5, revive_offers=revive),
        contract.Event(sequence=6, time_ns=6, update_allocation=heavy),
        contract.Event(sequence=7, time_ns=7, add_agent=agent),
        contract.Event(sequence=8, time_ns=8, add_framework=framework),
        contract.Event(sequence=9, time_ns=9, tick=contract.Tick()),
    ]
    with pytest.raises(HeavyEventsError) as caught:
        parse(message(*events).SerializeToString() * 4, 5_000)
    skipped = caught.value.skipped.events
    assert len(skipped) == 4 * len(events)
    assert list(skipped[: len(events)]) == [
        *events[:5],
        contract.Event(sequence=6, time_ns=6),
        contract.Event(sequence=7, time_ns=7, add_agent=contract.AddAgent(agent_id="s")),
        contract.Event(
            sequence=8, time_ns=8, add_framework=contract.AddFramework(framework_id="g")
        ),
        contract.Event(sequence=9, time_ns=9),
    ]


def declines(number: int, label: int) -> bytes:
    """Return a serialised message with declined reservations, ten in each call."""
    events = contract.Events()
    reserved = mesos.Resource(name="cpus", type=mesos.Value.SCALAR)
    reserved.reservations.add(role="r").labels.labels.add(key="k", value="\n" * label)
    for _ in range(number // 10):
        call = events.events.add().recover_resources
        call.resources.extend([reserved.SerializePartialToString()] * 10)
    return contract.FromMaster(events=events).SerializeToString()


def test_the_bytes_of_a_message_with_few_fields_are_not_counted() -> None:
    """The bytes of these labels can begin fields, so a count of them exceeds the limit."""
    data = declines(1000, 7000)
    with mock.patch.object(wire, "_first_bytes", side_effect=AssertionError):
        read = parse(data, len(data) // 10)
    assert read == contract.FromMaster.FromString(data)
    short = declines(1000, 100)
    with mock.patch.object(wire, "_first_bytes", return_value=[]) as first_bytes:
        parse(short, len(short) // 10)
    assert first_bytes.called, "the message has many fields for its length"


@pytest.mark.parametrize("label", [100, 1000, 7000])
def test_messages_with_few_fields_are_refused_at_the_same_weight(label: int) -> None:
    data = declines(1000, label)
    weight = int(wire._weight(data, contract.FromMaster.DESCRIPTOR))
    for most in range(weight - 4, weight + 4):
        light = run_to_completion(wire._has_few_light_fields(data, most))
        assert light == (label > 100 and most >= weight)
        with mock.patch.object(wire, "_BYTES_A_FIELD", 2**40):
            counted = is_parsed(data, most)
        assert is_parsed(data, most) == counted
    assert is_parsed(data, weight)
    assert not is_parsed(data, weight - 4)


def is_parsed(data: bytes, most_parts: int) -> bool:
    """Return whether a message is not too heavy."""
    try:
        parse(data, most_parts)
    except HeavyEventsError:
        return False
    return True


@pytest.mark.parametrize("length", [0, 100, 300, 100_000])
def test_decisions_are_serialised_as_a_message_with_them_in_few_calls(length: int) -> None:
    decisions = contract.Decisions(applied_sequence=1, waiting_for="x" * length)
    message = contract.ToMaster.FromString(serialised(decisions))
    assert message == contract.ToMaster(decisions=decisions)
    assert counted(lambda: serialised(decisions)) <= 12


def weight_of_busy_agents(agents: int, frameworks: int, roles: int) -> float:
    """Return the weight of a snapshot in which each framework uses two resources on each agent."""
    used = [
        contract.Allocation(
            framework_id=f"f{n}",
            resources=[
                part
                for place in range(roles)
                for part in resources(f"cpus:0.{n + 1};mem:{n + 64}", f"role{n}/{place}")
            ],
        )
        for n in range(frameworks)
    ]
    total = resources("cpus:512;mem:2097152;disk:2097152")
    agent = contract.AddAgent(info=b"i" * 100, total=total, used=used, running=used)
    few = contract.FromMaster(snapshot=contract.Snapshot(agents=[agent] * 10))
    data = few.SerializeToString()
    return agents / 10 * wire._weight(data, contract.FromMaster.DESCRIPTOR)


@pytest.mark.parametrize(
    ("agents", "frameworks", "roles"),
    [(5_000, 50, 1), (5_000, 50, 2), (10_000, 50, 1), (5_000, 1, 100)],
)
def test_tasks_of_honest_frameworks_on_all_agents_are_within_the_limit(
    agents: int, frameworks: int, roles: int
) -> None:
    """The module keeps an eighth of the limit free."""
    weight = weight_of_busy_agents(agents, frameworks, roles)
    assert weight < ListenSection().most_parts * 7 / 8
