"""Snapshots of the C++ module fit the service's limits, however long descriptions are."""

import random
import subprocess

import pytest

from allocator.cluster.input.limits import Limits
from allocator.cluster.resources import decoded, merge_reservations, shortened
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.service.config import LimitsSection, ListenSection
from allocator.service.masters import wire
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources
from tests.module.built import BUILDING, Programs, build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILDING)]

BYTES, PARTS = 2**21, 2**16
"""Limits of a snapshot in these tests: smaller than a master's, so that the tests are fast."""
QUOTAS = {"a"}
"""Top-level roles with quotas."""
UNKNOWN = b"\xfa\x07\xb8\x17" + b"u" * 3_000
"""A serialised field with the number 127, unknown to Mesos."""
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Encodings of a value in a serialised message, by their numbers in protobuf."""


@pytest.fixture(name="programs")
def _programs() -> Programs:
    programs = build()
    if not programs.bounds_driver.exists():
        pytest.skip("the C++ module is not built: no bounds_driver")
    return programs


def run(programs: Programs, message: bytes, *limits: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [programs.bounds_driver, *map(str, limits)],
        input=message,
        capture_output=True,
        check=True,
        env=programs.environment,
    )


def bounded(programs: Programs, snapshot: contract.Snapshot) -> tuple[contract.Snapshot, str]:
    """Return a snapshot as the module sends it, and the text for the master's log."""
    message = contract.FromMaster(snapshot=snapshot).SerializeToString()
    done = run(programs, message, BYTES, PARTS)
    assert len(done.stdout) <= BYTES
    read = contract.FromMaster.FromString(done.stdout)
    assert wire.parse(done.stdout, PARTS) == read, "the service accepts it, and cuts nothing"
    return read.snapshot, done.stderr.decode()


def described(name: str, principal: str, length: int) -> contract.AddFramework:
    info = framework_info(name, "a", principal=principal, webui_url="u" * length)
    return contract.AddFramework(framework_id=name, info=info, active=True)


def test_the_limits_of_the_module_are_within_the_default_limits_of_the_service(
    programs: Programs,
) -> None:
    most_bytes, most_parts, described_bytes, event_bytes = map(
        int, run(programs, b"").stdout.split()
    )
    service = ListenSection()
    assert event_bytes < most_bytes < service.largest_message
    assert most_parts < service.most_parts
    assert described_bytes >= Limits().subscription, "the service decides about smaller ones"


def test_large_descriptions_of_one_principal_shorten_no_description_of_another_principal(
    programs: Programs,
) -> None:
    snapshot = contract.Snapshot(
        agents=[agent_call("s1", "cpus:8;mem:8192")],
        frameworks=[
            described("honest", "honest", 200_000),
            *(described(f"f{number}", "crowd", 100_000) for number in range(40)),
        ],
    )
    sent, text = bounded(programs, snapshot)
    honest, *crowd = sent.frameworks
    assert honest == snapshot.frameworks[0]
    without = [framework for framework in crowd if framework.excluded_unlisted]
    assert 20 <= len(without) < 40
    assert text.startswith(f"{len(without)} frameworks (f")
    name = without[0].framework_id
    assert mesos.FrameworkInfo.FromString(without[0].info) == mesos.FrameworkInfo.FromString(
        framework_info(name, "a", principal="crowd")
    )
    master = MasterSide()
    assert {offer.framework for offer in master.restore(sent)}.isdisjoint(
        framework.framework_id for framework in without
    )
    assert {each.name for each in master.engine.rejected_inputs()} == {
        framework.framework_id for framework in without
    }


def test_suppressed_roles_of_one_principal_remove_no_exclusions_of_another_principal(
    programs: Programs,
) -> None:
    snapshot = contract.Snapshot(frameworks=[described("honest", "honest", 0)])
    snapshot.frameworks[0].excluded.add(role="a", agent_ids=[f"s{n}" for n in range(3_000)])
    for number in range(40):
        crowd = snapshot.frameworks.add()
        crowd.CopyFrom(described(f"f{number}", "crowd", 0))
        crowd.suppressed_roles.extend(str(role) for role in range(2_000))
    honest, *crowd_sent = bounded(programs, snapshot)[0].frameworks
    assert honest == snapshot.frameworks[0]
    assert any(framework.excluded_unlisted for framework in crowd_sent)


def test_an_agent_with_too_long_attributes_is_set_aside_and_other_agents_are_not(
    programs: Programs,
) -> None:
    large = agent_call("large", "cpus:8;mem:8192", {"f": resources("cpus:1", "a")})
    info = mesos.SlaveInfo.FromString(large.info)
    info.attributes.add(name="x", type=mesos.Value.TEXT).text.value = "t" * (5 << 20)
    large.info = info.SerializeToString()
    small = agent_call("small", "cpus:8;mem:8192")
    events = [
        contract.Event(add_agent=large),
        contract.Event(update_agent=contract.UpdateAgent(agent_id="large", info=large.info)),
    ]
    snapshot, text = bounded(programs, contract.Snapshot(agents=[large, small]))
    added, updated = contract.FromMaster.FromString(
        run(
            programs,
            contract.FromMaster(events=contract.Events(events=events)).SerializeToString(),
            BYTES,
            PARTS,
        ).stdout
    ).events.events
    assert snapshot.agents[1] == small
    assert snapshot.agents[0] == added.add_agent
    assert mesos.SlaveInfo.FromString(updated.update_agent.info).hostname == info.hostname
    assert updated.update_agent.total.resources == added.add_agent.total
    assert text == "0 frameworks, 1 agents (large)"
    master = MasterSide()
    snapshot.frameworks.append(described("f", "p", 0))
    assert [offer.agent for offer in master.restore(snapshot)] == ["small"]
    [rejected] = master.engine.rejected_inputs()
    assert rejected.name == "large"
    assert "too long" in rejected.flaw.words


def reserved(label: int, **fields: object) -> mesos.Resource:
    """Return a tenant's CPU with a label of a length, and further fields."""
    resource = mesos.Resource(name="cpus", type=mesos.Value.SCALAR, **fields)  # type: ignore[arg-type]
    resource.scalar.value = 1.0
    labels = mesos.Labels(labels=[mesos.Label(key="k", value="v" * label)])
    resource.reservations.add(role="a", labels=labels, type=mesos.Resource.ReservationInfo.DYNAMIC)
    return resource


def with_reservations(attacked: list[bytes], number: int) -> contract.Snapshot:
    """Return plain agents, and as many agents with reserved resources, which a task uses."""
    snapshot = contract.Snapshot(frameworks=[described("honest", "honest", 1_000)])
    for agent_number in range(number):
        snapshot.agents.append(agent_call(f"p{agent_number}", "cpus:8;mem:8192"))
        agent = agent_call(f"r{agent_number}", "cpus:8;mem:8192", {"f": resources("cpus:1", "a")})
        agent.total.extend(attacked)
        snapshot.agents.append(agent)
    return snapshot


def names_of_changed(before: contract.Snapshot, after: contract.Snapshot) -> set[str]:
    return {
        agent.agent_id
        for agent, sent in zip(before.agents, after.agents, strict=True)
        if agent != sent
    }


def test_agents_with_the_most_resources_are_set_aside_first(programs: Programs) -> None:
    attacked = [reserved(600, disk=a_source()).SerializeToString()] * 75
    snapshot = with_reservations(attacked, 20)
    sent, text = bounded(programs, snapshot)
    changed = names_of_changed(snapshot, sent)
    assert changed
    assert all(name.startswith("r") for name in changed)
    assert sent.frameworks == snapshot.frameworks
    assert f"{len(changed)} agents" in text


def a_source() -> mesos.Resource.DiskInfo:
    """Return a source of a disk; reservations of such a disk are not added up."""
    source = mesos.Resource.DiskInfo.Source(type=mesos.Resource.DiskInfo.Source.MOUNT)
    return mesos.Resource.DiskInfo(source=source)


def test_no_agent_is_set_aside_for_many_reservations(programs: Programs) -> None:
    attacked = [reserved(n).SerializeToString() for n in range(200)]
    snapshot = with_reservations(attacked, 30)
    sent, text = bounded(programs, snapshot)
    assert text == "0 frameworks, 0 agents"
    changed = names_of_changed(snapshot, sent)
    assert 0 < len(changed) < 30, "no more agents than necessary"
    master = MasterSide()
    assert {offer.agent for offer in master.restore(sent)} == {
        agent.agent_id for agent in sent.agents
    }
    assert master.engine.pool.capacity["cpus"] == 1000 * (30 * 16 + 30 * 200)


@pytest.mark.parametrize("seed", range(20))
def test_the_module_adds_reservations_up_as_the_service_does(programs: Programs, seed: int) -> None:
    draw = random.Random(seed)
    reservations = [some_reserved(draw, "many") for _ in range(400)]
    honest = [some_reserved(draw, "few") for _ in range(20)]
    used_resources = draw.sample(reservations, 50) + honest
    snapshot = contract.Snapshot(quotas=[contract.SetQuota(role=role) for role in QUOTAS])
    agent = snapshot.agents.add(agent_id="s", total=reservations + honest)
    agent.used.add(framework_id="f", resources=used_resources)
    agent.running.add(framework_id="f", resources=used_resources)
    message = contract.FromMaster(snapshot=snapshot).SerializeToString()
    sent = contract.FromMaster.FromString(run(programs, message, BYTES, 6_000).stdout)
    [after] = sent.snapshot.agents
    total = run_to_completion(merge_reservations(agent.total, b"many", QUOTAS, used=False))
    assert len(total) < len(agent.total)
    assert sorted(after.total) == sorted(total)
    held = run_to_completion(merge_reservations(used_resources, b"many", QUOTAS, used=True))
    for allocations in (after.used, after.running):
        assert sorted(allocations[0].resources) == sorted(held)


def some_reserved(draw: random.Random, principal: str) -> bytes:
    """Return a serialised resource that a principal reserved."""
    types = (mesos.Value.SCALAR, mesos.Value.RANGES, mesos.Value.SET)
    message = mesos.Resource(name=draw.choice(["disk", "cpus"]), type=draw.choice(types))
    if message.type == mesos.Value.SCALAR:
        message.scalar.value = draw.choice([0.1, 0.001, 7.0004, draw.random(), 1e18])
    elif message.type == mesos.Value.RANGES:
        message.ranges.range.add(begin=draw.randrange(1000), end=1000)
    else:
        message.set.item.append(str(draw.randrange(1000)))
    message.reservations.add(role="a", type=mesos.Resource.ReservationInfo.STATIC)
    labels = mesos.Labels(labels=[mesos.Label(key=str(draw.randrange(1000)))])
    kind = mesos.Resource.ReservationInfo.DYNAMIC
    role = draw.choice(["a", "a/b", "ab", "c/a"])
    message.reservations.add(role=role, type=kind, principal=principal, labels=labels)
    if draw.random() < 0.3:
        message.allocation_info.role = draw.choice(["a", "b"])
    if draw.random() < 0.2:
        message.revocable.SetInParent()
    if draw.random() < 0.3:
        message.disk.persistence.id = str(draw.randrange(1000))
        if draw.random() < 0.5:
            message.shared.SetInParent()
    if draw.random() < 0.3:
        source = mesos.Resource.DiskInfo.Source
        message.disk.source.type = draw.choice([source.PATH, source.MOUNT, source.RAW])
        if draw.random() < 0.5:
            message.disk.source.id = str(draw.randrange(10))
    return message.SerializeToString()


@pytest.mark.parametrize(("length", "number"), [(200_000, 1), (7_500, 10)])
def test_no_agent_is_set_aside_for_long_labels(
    programs: Programs, length: int, number: int
) -> None:
    attacked = [reserved(length).SerializeToString()] * number
    snapshot = with_reservations(attacked, 20)
    sent, text = bounded(programs, snapshot)
    assert text == "0 frameworks, 0 agents"
    changed = names_of_changed(snapshot, sent)
    assert changed
    assert all(name.startswith("r") for name in changed)
    for agent in sent.agents:
        if agent.agent_id in changed:
            short = [shortened(data, 1_000) for data in attacked]
            assert list(agent.total) == list(agent_call("s", "cpus:8;mem:8192").total) + short
    master = MasterSide()
    assert {offer.agent for offer in master.restore(sent)} == {
        agent.agent_id for agent in sent.agents
    }
    assert master.engine.pool.capacity["cpus"] == 1000 * (20 * 16 + 20 * number)


def test_the_module_shortens_the_same_resources_as_the_service_in_the_same_way(
    programs: Programs,
) -> None:
    changes, snapshot = 0, contract.Snapshot()
    lists = [
        [some_resource(random.Random(seed + n)) for n in range(20)] for seed in range(0, 300, 20)
    ]
    for resources_of_agent in lists:
        agent = snapshot.agents.add(agent_id="s", total=resources_of_agent)
        agent.used.add(framework_id="f", resources=resources_of_agent)
        agent.running.add(framework_id="f", resources=resources_of_agent)
    message = contract.FromMaster(snapshot=snapshot)
    done = run(programs, message.SerializeToString(), 2**30, 2**30)
    agents = contract.FromMaster.FromString(done.stdout).snapshot.agents
    for sent, former in zip(agents, lists, strict=True):
        expected = [shortened(data, LimitsSection().resource_kind) for data in former]
        changes += sum(short != full for short, full in zip(expected, former, strict=True))
        for part in (sent.total, sent.used[0].resources, sent.running[0].resources):
            assert list(part) == expected
    assert 30 < changes < 200


def some_resource(choose: random.Random) -> bytes:
    """Return a serialised resource, whose kind is often too long."""
    length = choose.choice([0, 100, 1_200, 4_000, 7_900, 9_000])
    types = (mesos.Value.SCALAR, mesos.Value.RANGES, mesos.Value.SET)
    message = mesos.Resource(name=choose.choice(["disk", "cpus"]), type=choose.choice(types))
    set_amount(choose, message)
    for depth in range(choose.randrange(3)):
        labels = [
            mesos.Label(key="k", value="v" * choose.choice([0, length]))
            for _ in range(choose.choice([1, 1, 70]))
        ]
        message.reservations.add(
            role="a/b"[: 2 * depth + 1], principal="p", labels=mesos.Labels(labels=labels)
        )
    if choose.random() < 0.3:
        message.allocation_info.role = "a"
    if choose.random() < 0.3:
        message.provider_id.value = "p" * length
    if choose.random() < 0.2:
        message.revocable.SetInParent()
    if choose.random() < 0.5:
        set_disk(choose, message, length)
    return with_unknown_fields(choose, message)


def mistaken(number: int, encoding: int, value: bytes) -> bytes:
    """Return a serialised field; Mesos's field of this number has a different encoding.

    Protobuf keeps such a field as unknown. The value is 8 bytes, 4 bytes, or the bytes of a number.
    """
    return bytes([number << 3 | encoding]) + value


MISTAKEN = {
    "name": mistaken(1, FIXED32, b"mems"),
    "type": mistaken(2, VARINT, b"\x63"),
    "scalar": mistaken(3, VARINT, b"\x01"),
    "disk": mistaken(7, FIXED32, b"\x0a\x02\x0a\x00"),
    "revocable": mistaken(9, VARINT, b"\x01"),
    "shared": mistaken(10, VARINT, b"\x01"),
    "allocation_info": mistaken(11, FIXED64, b"\x0a\x06honest"),
    "reservations": mistaken(13, FIXED64, b"\x1a\x06honest"),
}
"""Unknown fields by the field of a Resource that has the same number."""


@pytest.mark.parametrize("field", MISTAKEN)
def test_fields_that_protobuf_does_not_know_change_no_resource_in_its_short_form(
    programs: Programs, field: str
) -> None:
    resource = reserved(10_000)
    resource.allocation_info.role = "a"
    data = resource.SerializeToString() + MISTAKEN[field]
    assert mesos.Resource.FromString(data).name == "cpus"
    snapshot = contract.Snapshot(agents=[contract.AddAgent(agent_id="s", total=[data])])
    [sent] = bounded(programs, snapshot)[0].agents[0].total
    assert sent == shortened(data, LimitsSection().resource_kind)
    assert decoded(sent) == decoded(shortened(resource.SerializeToString(), 1_000))


def test_unknown_fields_of_amounts_and_disks_are_not_in_short_forms(programs: Programs) -> None:
    resource = reserved(10_000)
    resource.name = "disk"
    long = bytes([1 << 3 | DELIMITED, 0xE8, 0x07]) + b"u" * 1_000
    resource.scalar.MergeFromString(long)
    resource.disk.persistence.id = "v1"
    resource.disk.persistence.MergeFromString(mistaken(1, VARINT, b"\x01"))
    resource.disk.source.type = mesos.Resource.DiskInfo.Source.PATH
    resource.disk.source.MergeFromString(mistaken(1, FIXED32, b"long"))
    data = resource.SerializeToString()
    snapshot = contract.Snapshot(agents=[contract.AddAgent(agent_id="s", total=[data])])
    [sent] = bounded(programs, snapshot)[0].agents[0].total
    assert sent == shortened(data, LimitsSection().resource_kind)


def test_an_unknown_field_gives_a_framework_no_principal_of_its_own(programs: Programs) -> None:
    snapshot = contract.Snapshot(
        frameworks=[described(f"h{number}", "honest", 1_000) for number in range(50)]
    )
    honest = list(snapshot.frameworks)
    for number in range(60):
        info = mesos.FrameworkInfo(user="root", name="n" * 40_000)
        described_as = info.SerializeToString() + mistaken(8, VARINT, bytes([number]))
        snapshot.frameworks.add(framework_id=f"f{number}", info=described_as)
    sent = bounded(programs, snapshot)[0]
    assert list(sent.frameworks[: len(honest)]) == honest


def set_amount(choose: random.Random, message: mesos.Resource) -> None:
    amount = choose.randrange(3)
    if amount == 0:
        message.scalar.value = choose.random()
    elif amount == 1:
        starts = range(0, choose.choice([3, 3_000]), 2)
        message.ranges.range.extend(mesos.Value.Range(begin=n << 40, end=n << 40) for n in starts)
    else:
        message.set.item.extend("x" * choose.randrange(100) for _ in range(choose.randrange(100)))


def set_disk(choose: random.Random, message: mesos.Resource, length: int) -> None:
    if choose.random() < 0.5:
        message.disk.persistence.id = "i" * choose.randrange(255)
        message.disk.volume.container_path = "c" * length
    if choose.random() < 0.5:
        message.disk.source.type = mesos.Resource.DiskInfo.Source.RAW
        message.disk.source.vendor = "v" * length
        if choose.random() < 0.5:
            message.disk.source.id = "i" * choose.randrange(255)
    if choose.random() < 0.5:
        message.shared.SetInParent()


def with_unknown_fields(choose: random.Random, message: mesos.Resource) -> bytes:
    """Return a serialised resource; sometimes one part has fields that Mesos does not know."""
    parts = ["scalar", "allocation_info", "ranges", "set", "shared", "disk", "reservations"]
    holder = choose.choice(["", *parts])
    unknown = UNKNOWN * choose.choice([0, 1, 3])
    if holder == "reservations":
        for reservation in message.reservations:
            choose.choice([reservation, reservation.labels.labels[0]]).MergeFromString(unknown)
    elif holder and message.HasField(holder):  # type: ignore[arg-type]
        part = getattr(message, holder)
        (part.range[0] if holder == "ranges" else part).MergeFromString(unknown)
        unknown = b""
    return message.SerializePartialToString() + unknown


def test_calls_of_frameworks_with_too_long_descriptions_are_shortened(programs: Programs) -> None:
    large = described("f", "p", 5 << 20)
    updated = contract.UpdateFramework(framework_id="f", info=large.info, suppressed_roles=["a"])
    events = [contract.Event(add_framework=large), contract.Event(update_framework=updated)]
    message = contract.FromMaster(events=contract.Events(events=events)).SerializeToString()
    first, second = contract.FromMaster.FromString(
        run(programs, message, BYTES, PARTS).stdout
    ).events.events
    essential = framework_info("f", "a", principal="p")
    kept = mesos.FrameworkInfo.FromString(first.add_framework.info)
    assert kept == mesos.FrameworkInfo.FromString(essential)
    assert second.update_framework == contract.UpdateFramework(
        framework_id="f", info=first.add_framework.info, excluded_unlisted=True
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_service_accepts_each_bounded_snapshot(programs: Programs, seed: int) -> None:
    draw = random.Random(seed)
    snapshot = contract.Snapshot()
    for number in range(draw.randrange(1, 300)):
        name, length = f"f{number}", int(10 ** draw.uniform(0, 5))
        framework = described(name, draw.choice("abcd"), length)
        framework.suppressed_roles.extend(
            "r" * draw.randrange(9) for _ in range(draw.randrange(400))
        )
        for role in range(draw.randrange(3)):
            ids = [str(agent) for agent in range(draw.randrange(400))]
            framework.excluded.add(role=str(role), agent_ids=ids)
        snapshot.frameworks.append(framework)
    for number in range(draw.randrange(1, 300)):
        agent = agent_call(f"s{number}", "cpus:8;mem:8192")
        agent.total.extend([b"r" * int(10 ** draw.uniform(0, 4))] * draw.randrange(20))
        held = contract.Allocation(framework_id="f0", resources=[b"h"] * draw.randrange(100))
        agent.used.append(held)
        agent.running.append(held)
        snapshot.agents.append(agent)
        snapshot.inverse_offers.add(agent_id=agent.agent_id, framework_id="f0", status=b"x" * 60)
        snapshot.weights.add(role=f"r{number}", weight=1.0)
    sent, _ = bounded(programs, snapshot)
    assert [agent.agent_id for agent in sent.agents] == [a.agent_id for a in snapshot.agents]
    assert len(sent.frameworks) == len(snapshot.frameworks)
