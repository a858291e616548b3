"""Resources of too long kinds count for their holder, but are not offered."""

from dataclasses import replace

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.resources import decoded, kinds, merge_reservations, shortened
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resource, resources
from tests.cluster.test_hopeless_clients import quota

LIMITS = Limits(resource_kind=1500)
LONG = {
    "many labels": [(f"k{n}", "x" * 200) for n in range(6)],
    "a long label": [("k", "x" * 1500)],
}


def reserved(
    labels: list[tuple[str, str]], *, role: str | None = "r", name: str = "cpus"
) -> mesos.Resource:
    """Return 4 CPUs with a reservation for `r` and labels, allocated to a role or free."""
    message = resource(name, "4", reserved=["r"], role=role)
    for key, value in labels:
        message.reservations[0].labels.labels.add(key=key, value=value)
    return message


def site(labels: list[tuple[str, str]], limits: Limits = LIMITS) -> MasterSide:
    """Return a cluster in which a framework has reserved all CPUs, with labels, and uses them."""
    master = MasterSide(limits=limits)
    master.add_framework("f", "r")
    [offer] = master.add_agent("s", "cpus:4;mem:64")
    call = contract.UpdateAllocation(framework_id="f", agent_id="s", offered=offer.messages)
    consumed = resources("cpus:4", "r")
    call.conversions.add(consumed=consumed, converted=[reserved(labels).SerializeToString()])
    master.send(call)
    return master


def give_back(master: MasterSide, labels: list[tuple[str, str]]) -> list[str]:
    """Return the offered resources after the framework has given back the CPUs."""
    offers = master.send(
        contract.RecoverResources(
            framework_id="f", agent_id="s", resources=[reserved(labels).SerializeToString()]
        )
    )
    return [offer.resources for offer in offers]


@pytest.mark.parametrize("labels", LONG.values(), ids=LONG)
def test_a_tenant_cannot_hide_its_holdings_behind_labels(labels: list[tuple[str, str]]) -> None:
    for long in ([("k", "v")], labels):
        master = site(long)
        assert master.engine.pool.capacity["cpus"] == 4000
        assert master.engine.pool.standing("r").share == 1.0
    former = site(LONG["a long label"], Limits(resource=1000, entries=500))
    assert former.engine.pool.capacity["cpus"] == 0, "logs without the limit replay as before"


@pytest.mark.parametrize("labels", LONG.values(), ids=LONG)
def test_resources_with_too_long_labels_are_not_offered_until_they_are_unreserved(
    labels: list[tuple[str, str]],
) -> None:
    master = site(labels)
    assert give_back(master, labels) == []
    assert master.tick() == []
    [rejected] = master.engine.rejected_input_of("framework", "f")
    assert "counts, but is not offered" in rejected.flaw.words
    operation = mesos.Operation(type=mesos.Operation.UNRESERVE)
    operation.unreserve.resources.add().CopyFrom(reserved(labels, role=None))
    offers = master.send(
        contract.UpdateAvailable(agent_id="s", operations=[operation.SerializeToString()])
    )
    assert [offer.resources for offer in offers or master.tick()] == ["cpus:4"]


def test_a_snapshot_counts_resources_with_too_long_labels_as_events_do() -> None:
    labels = LONG["a long label"]
    master = MasterSide(limits=LIMITS)
    agent = agent_call("s", "mem:64", {"f": [reserved(labels).SerializeToString()]})
    agent.total.append(reserved(labels, role=None).SerializeToString())
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent])
    snapshot.frameworks.add(framework_id="f", info=framework_info("f", "r"), active=True)
    master.restore(snapshot)
    assert master.engine.pool.capacity["cpus"] == 4000
    assert master.engine.pool.standing("r").share == 1.0


def test_equal_kinds_have_the_same_short_form_which_no_role_is_offered() -> None:
    x, y = ("k", "x" * 900), ("k", "y" * 900)
    xy, yx = (
        decoded(shortened(reserved(labels).SerializeToString(), 1500))[0]
        for labels in ([x, y], [y, x])
    )
    assert xy == yx
    assert not any(xy.offerable_to(role) for role in ("r", "r/s"))


@pytest.mark.parametrize("many", [62, 64])
def test_each_label_counts_as_128_bytes(many: int) -> None:
    data = reserved([("k", "")] * many).SerializeToString()
    assert 256 < len(data) < 1000
    assert (shortened(data, 8192) is data) == (many == 62)


def test_volumes_with_different_long_identifiers_stay_apart() -> None:
    kinds = set()
    for identifier in ("p" * 2000, "q" * 2000, "p" * 200):
        message = resource("disk", "4")
        message.disk.persistence.id = identifier
        message.disk.persistence.principal = "a" * 2000
        kinds.add(decoded(shortened(message.SerializeToString(), 1500))[0])
    assert len(kinds) == 3


DiskInfo = mesos.Resource.DiskInfo
DISKS = {
    "volume": DiskInfo(persistence=DiskInfo.Persistence(id="p" * 2000, principal="a")),
    "raw": DiskInfo(source=DiskInfo.Source(type=DiskInfo.Source.RAW, id="i" * 2000)),
    "path": DiskInfo(source=DiskInfo.Source(type=DiskInfo.Source.PATH, vendor="v" * 2000)),
}


@pytest.mark.parametrize("disk", DISKS.values(), ids=DISKS)
def test_a_short_form_is_as_indivisible_and_shared_as_its_disk(
    disk: DiskInfo,
) -> None:
    message = resource("disk", "4")
    message.disk.CopyFrom(disk)
    message.revocable.SetInParent()
    if disk.HasField("persistence"):
        message.shared.SetInParent()
    short = shortened(message.SerializePartialToString(), 1500)
    assert len(short) < 1500
    (kind, amount, _), (full, full_amount, _) = decoded(short), decoded(message.SerializeToString())
    assert amount == full_amount
    for field in ("name", "type", "whole", "revocable", "shared"):
        assert getattr(kind, field) == getattr(full, field)


def test_resources_of_ordinary_kinds_are_unchanged() -> None:
    ports = resource("ports", f"[{','.join(f'{2 * n}-{2 * n}' for n in range(1000))}]")
    for message in (reserved([("k", "v")] * 5), ports, resource("cpus", "4")):
        data = message.SerializeToString()
        assert shortened(data, 1500) is data
    assert shortened(b"\xff", 1500) == b"\xff"


def test_kinds_that_mesos_finds_equal_have_short_forms_or_none() -> None:
    """Mesos ignores a volume's path and principal. Lists of the same different labels are equal."""
    volume = resource("disk", "4", reserved=["r"])
    volume.disk.persistence.id = "v"
    mounted = mesos.Resource.FromString(volume.SerializeToString())
    mounted.disk.volume.container_path = "p" * 9000
    mounted.disk.volume.mode = mesos.Volume.RW
    mounted.disk.persistence.principal = "q" * 9000
    a, b = ("k", "a"), ("k", "b" * 700)
    equal = [(volume, mounted), (reserved([a, a, b]), reserved([a, b, b]))]
    for pair in equal:
        data = [resource.SerializePartialToString() for resource in pair]
        assert decoded(data[0])[0] == decoded(data[1])[0]
        assert shortened(data[0], 1500) is data[0]
        assert shortened(data[1], 1500) is data[1]


UNKNOWN = b"\xfa\x07\xbc\x05" + b"u" * 700
"""A serialised field with the number 127, unknown to Mesos."""
PARTS = {
    "resource": lambda message: message,
    "reservation": lambda message: message.reservations[0],
    "labels": lambda message: message.reservations[0].labels,
    "label": lambda message: message.reservations[0].labels.labels[0],
    "amount": lambda message: message.scalar,
}


@pytest.mark.parametrize("part", PARTS)
def test_unknown_fields_count_and_are_left_out_of_too_long_kinds(part: str) -> None:
    plain = reserved([("k", "x" * 600)]).SerializeToString(deterministic=True)
    for times, fits in [(1, True), (2, False), (50, False)]:
        message = mesos.Resource.FromString(plain)
        PARTS[part](message).MergeFromString(UNKNOWN * times)
        data = message.SerializeToString()
        assert (shortened(data, 1800) is data) == fits
        assert (shortened(data, 1800) == plain) == (not fits)
        assert decoded(data)[0] == decoded(plain)[0], "Mesos ignores unknown fields"


def test_a_required_field_may_be_missing_from_a_resource_with_unknown_fields() -> None:
    message = resource("disk", "4")
    message.disk.volume.container_path = "c" * 2000
    plain = message.SerializePartialToString(deterministic=True)
    message.MergeFromString(UNKNOWN * 5)
    assert shortened(message.SerializePartialToString(), 1800) == plain
    assert shortened(plain, 1800) is plain


def test_a_reservation_with_too_long_unknown_fields_is_offered_without_them() -> None:
    message = reserved([("k", "v")], role=None)
    message.reservations[0].MergeFromString(UNKNOWN * 10)
    master = MasterSide(limits=LIMITS)
    master.add_framework("f", "r")
    agent = agent_call("s", "mem:64")
    agent.total.append(message.SerializeToString())
    [offer] = master.send(agent)
    assert offer.resources == "cpus(r):4;mem:64"
    assert sum(map(len, offer.messages)) < 200
    assert not list(master.engine.rejected_inputs())
    assert [offer.resources] == [second.resources for second in master.recover(offer)]


def test_an_offer_that_is_declined_twice_stays_within_the_limit_that_it_is_checked_against() -> (
    None
):
    """The cache of long messages remembers the limit of the last check."""
    data = reserved([("k", "x" * 900)]).SerializeToString()
    kind, amount, role = decoded(data)
    assert role is not None
    sent = kinds.encoded(kind, amount, role)
    assert sent == data
    for longest in (1500, 1500, 800, 1500, 800):
        short = shortened(bytes(bytearray(sent)), longest)
        assert (short == data) == (longest == 1500)


def tenants(name: str, **fields: object) -> mesos.Resource:
    """Return 0.5 of a resource that a tenant reserved, with further fields."""
    resource = mesos.Resource(name=name, type=mesos.Value.SCALAR, **fields)  # type: ignore[arg-type]
    resource.scalar.value = 0.5
    kind = mesos.Resource.ReservationInfo.DYNAMIC
    resource.reservations.add(role="a", principal="tenant", type=kind)
    return resource


def merged(
    *messages: mesos.Resource, used: bool = False, quotas: tuple[str, ...] = ()
) -> list[mesos.Resource]:
    data = [message.SerializeToString() for message in messages]
    sums = run_to_completion(merge_reservations(data, b"tenant", quotas, used=used))
    return [mesos.Resource.FromString(total) for total in sums]


def test_reserved_resources_are_added_up_by_name_and_allocation() -> None:
    allocated = mesos.Resource.AllocationInfo(role="a")
    messages = [tenants("cpus"), tenants("cpus"), tenants("mem")]
    messages += [tenants("cpus", allocation_info=allocated)] * 3
    for number, message in enumerate(messages):
        message.reservations[0].labels.labels.add(key=str(number))
    sums = merged(*messages, used=True)
    assert [(total.name, total.scalar.value, total.allocation_info.role) for total in sums] == [
        ("cpus", 1.0, ""),
        ("mem", 0.5, ""),
        ("cpus", 1.5, "a"),
    ]
    for total in sums:
        kind, _amount, _role = decoded(total.SerializeToString())
        assert kind.reservation is not None
        assert not kind.offerable_to("a")
        assert merged(total) == [total], "a sum is not added up again"


def test_only_what_a_tenant_can_create_without_end_is_added_up() -> None:
    static = tenants("cpus")
    static.reservations[0].type = mesos.Resource.ReservationInfo.STATIC
    foreign = tenants("cpus")
    foreign.reservations[0].principal = "other"
    plain = mesos.Resource(name="cpus", type=mesos.Value.SCALAR)
    disk = tenants("disk")
    disk.disk.source.type = mesos.Resource.DiskInfo.Source.MOUNT
    part = tenants("disk")
    part.disk.source.type = mesos.Resource.DiskInfo.Source.PATH
    [total] = merged(part, part)
    assert total.scalar.value == 1.0
    assert not total.HasField("disk")
    messages = [static, foreign, plain, disk]
    assert merged(*messages) == messages


def test_volumes_are_added_up_and_shared_volumes_count_for_their_agent_only() -> None:
    volumes = [tenants("disk") for _ in range(4)]
    for number, volume in enumerate(volumes):
        volume.disk.persistence.id = str(number)
    volumes[0].shared.SetInParent()
    [total], [held] = merged(*volumes), merged(*volumes, used=True)
    assert total.scalar.value == 2.0
    assert held.scalar.value == 1.5
    assert not total.HasField("disk")


@pytest.mark.parametrize("used", [False, True])
def test_tasks_end_on_resources_that_a_snapshot_has_added_up(used: bool) -> None:  # noqa: FBT001
    allocated = mesos.Resource.AllocationInfo(role="a")
    tasks = [tenants("cpus", allocation_info=allocated) for _ in range(4)]
    for number, message in enumerate(tasks):
        message.reservations[0].labels.labels.add(key=str(number))
    [free] = merged(*[tenants("cpus")] * 8)
    [held] = merged(*tasks, used=True)
    plain = resource("cpus", "8")
    agent = agent_call("s", "cpus:1", {"f": [held.SerializeToString()]})
    agent.total[:] = [plain.SerializeToString(), free.SerializeToString()]
    if used:
        agent.running.add(framework_id="f", resources=[held.SerializeToString()])
    info = framework_info("f", "a", principal="tenant")
    master = MasterSide()
    added = contract.AddFramework(framework_id="f", info=info, suppressed_roles=["a"])
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent], frameworks=[added])
    master.restore(snapshot)
    for number, task in enumerate(tasks, 1):
        ended = task.SerializeToString()
        master.send(
            contract.RecoverResources(
                framework_id="f", agent_id="s", resources=[ended], is_allocated=used
            )
        )
        assert master.engine.pool.standing("a").share == (2 - number / 2) / 12
        assert master.engine.divergence() is None


def test_an_operator_can_unreserve_resources_that_a_snapshot_has_added_up() -> None:
    reserved_cpus = tenants("cpus")
    reserved_cpus.reservations[0].labels.labels.add(key="k")
    [free] = merged(*[tenants("cpus")] * 2)
    agent = agent_call("s", "cpus:1")
    agent.total.append(free.SerializeToString())
    master = MasterSide()
    master.restore(contract.Snapshot(time_ns=master.now_ns, agents=[agent]))
    operation = mesos.Operation(type=mesos.Operation.UNRESERVE)
    operation.unreserve.resources.append(reserved_cpus)
    call = contract.UpdateAvailable(agent_id="s", operations=[operation.SerializeToString()])
    for unreserved in (1.5, 2.0):
        master.send(call)
        available = master.engine.agent("s")
        assert available is not None
        assert available.total.unreserved.scalars["cpus"] == 1000 * unreserved
    assert master.engine.pool.capacity["cpus"] == 2000


@pytest.mark.parametrize("used", [False, True])
def test_reservations_that_are_added_up_count_against_the_quota_of_their_role(used: bool) -> None:  # noqa: FBT001
    reserved_cpus = [tenants("cpus") for _ in range(8)]
    for number, message in enumerate(reserved_cpus):
        message.reservations[0].role = f"a/{number % 3}" if number % 2 else "a"
        message.reservations[0].labels.labels.add(key=str(number))
    [total] = merged(*reserved_cpus, quotas=("a",))
    assert merged(total, quotas=("a",)) == [total], "a sum is not added up again"
    agent = agent_call("s", "cpus:1")
    agent.total[:] = [resource("cpus", "8").SerializeToString(), total.SerializeToString()]
    task = reserved_cpus[0]
    task.allocation_info.role = "a"
    if used:
        [held] = merged(task, quotas=("a",))
        agent.used.add(framework_id="f", resources=[held.SerializeToString()])
    info = framework_info("f", "a", principal="tenant")
    master = MasterSide()
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent])
    snapshot.frameworks.add(framework_id="f", info=info, active=True)
    quota = snapshot.limited_quotas.add(role="a")
    quota.limits.amounts["cpus"] = 6.0
    [offer] = master.restore(snapshot)
    assert offer.resources == "cpus:2"
    assert master.engine._cluster.ledger.quotas.consumed()["a"]["cpus"] == 6000
    if used:
        master.send(
            contract.RecoverResources(
                framework_id="f", agent_id="s", resources=[task.SerializeToString()]
            )
        )
        assert master.engine.divergence() is None
        agent_after = master.engine.agent("s")
        assert agent_after is not None
        assert agent_after.held("f", "a").scalars["cpus"] == 2000


def test_a_first_quota_asks_for_a_snapshot_if_sums_contain_reservations_of_its_role() -> None:
    reserved_cpus = [tenants("cpus") for _ in range(8)]
    agent = agent_call("s", "cpus:8")
    agent.total.extend(total.SerializeToString() for total in merged(*reserved_cpus))
    master = MasterSide()
    master.restore(contract.Snapshot(time_ns=master.now_ns, agents=[agent]))
    limit = contract.Quantities(amounts={"cpus": 6.0})
    master.send(contract.UpdateQuota(role="a"))
    assert master.engine.divergence() is None, "nothing changes"
    master.send(contract.UpdateQuota(role="a", limits=limit))
    divergence = master.engine.divergence()
    assert divergence is not None
    assert "the new quota of role a counts reservations" in divergence
    assert not master.engine._cluster.ledger.quotas.consumed()["a"], "until the snapshot"
    del agent.total[1:]
    sums = merged(*reserved_cpus, quotas=("a",))
    agent.total.extend(total.SerializeToString() for total in sums)
    snapshot = contract.Snapshot(sequence=master.sequence, time_ns=master.now_ns, agents=[agent])
    snapshot.limited_quotas.add(role="a").limits.CopyFrom(limit)
    master.restore(snapshot)
    assert master.engine._cluster.ledger.quotas.consumed()["a"]["cpus"] == 4000
    master.wait(100.0)
    master.send(contract.UpdateQuota(role="a", limits=limit), contract.Tick())
    assert master.engine.divergence() is None, "its sum is separate already"


def test_a_quota_without_sums_asks_for_no_snapshot() -> None:
    master = MasterSide()
    master.add_agent("s", "cpus:8;cpus(a):2")
    master.send(quota("a", limit="cpus:6"))
    assert master.engine.divergence() is None


def test_a_long_role_has_a_short_form_that_counts_against_the_quota_of_its_top_level() -> None:
    message = tenants("cpus")
    message.reservations[0].role = "a/" + "b" * 1_000
    short = mesos.Resource.FromString(shortened(message.SerializeToString(), 1_000))
    assert short.reservations[0].role == "a/.."
    message.reservations[0].role = "b" * 1_001
    short = mesos.Resource.FromString(shortened(message.SerializeToString(), 1_000))
    assert short.reservations[0].role == ".."


def test_tasks_begin_on_resources_that_a_snapshot_has_added_up() -> None:
    tasks = [tenants("cpus", allocation_info=mesos.Resource.AllocationInfo(role="a"))] * 4
    [free], [held] = merged(*[tenants("cpus")] * 8), merged(*tasks, used=True)
    agent = agent_call("s", "cpus:1", {"f": [held.SerializeToString()]})
    agent.total[:] = [free.SerializeToString()]
    master = MasterSide()
    added = contract.AddFramework(framework_id="f", info=framework_info("f", "a"))
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent], frameworks=[added])
    master.restore(snapshot)
    for _ in range(2):
        begun = tasks[0].SerializeToString()
        master.send(
            contract.TransitionOfferedToAllocated(framework_id="f", agent_id="s", resources=[begun])
        )
    used = master.engine._cluster.ledger.used.on("s", Client("a", "f"))
    assert used.scalars["cpus"] == 1000


@pytest.mark.parametrize("more", [0, 1])
def test_a_new_total_offers_no_used_resources_that_a_snapshot_has_added_up(more: int) -> None:
    allocated = mesos.Resource.AllocationInfo(role="a")
    free = [tenants("cpus") for _ in range(8 + more)]
    for number, message in enumerate(free):
        message.reservations[0].labels.labels.add(key=str(number))
    tasks = [mesos.Resource.FromString(message.SerializeToString()) for message in free[:8]]
    for message in tasks:
        message.allocation_info.CopyFrom(allocated)
    [total], [held] = merged(*free[:8]), merged(*tasks, used=True)
    agent = agent_call("s", "cpus:1", {"f": [held.SerializeToString()]})
    plain = resource("cpus", "8").SerializeToString()
    agent.total[:] = [plain, total.SerializeToString()]
    master = MasterSide()
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent])
    info = framework_info("f", "a", principal="tenant")
    snapshot.frameworks.add(framework_id="f", info=info, active=True)
    [offer] = master.restore(snapshot)
    assert offer.resources == "cpus:8"
    call = contract.UpdateAgent(agent_id="s", info=agent.info)
    more_cpus = resource("cpus", "9").SerializeToString()
    call.total.resources[:] = [more_cpus, *(each.SerializeToString() for each in free)]
    [offer] = master.send(call)
    assert offer.resources == "cpus:1"
    assert (master.engine.divergence() is not None) == bool(more)


def test_an_agent_whose_resources_were_left_out_waits_for_a_snapshot() -> None:
    name = "(left out: too many parts for the master's message, listen.most_parts)"
    left_out = mesos.Resource(name=name, type=mesos.Value.SCALAR).SerializePartialToString()
    agent = agent_call("s", "")
    agent.total[:] = [left_out]
    for waits in (True, False):
        master = MasterSide()
        master.settings = replace(master.settings, left_out_agents_wait=waits)
        master.engine = Engine(master.settings)
        snapshot = contract.Snapshot(time_ns=master.now_ns, agents=[agent])
        snapshot.frameworks.add(framework_id="f", info=framework_info("f", "a"), active=True)
        assert not master.restore(snapshot)
        call = contract.UpdateAgent(agent_id="s", info=agent.info)
        call.total.resources[:] = resources("cpus:8;mem:64")
        assert bool(master.send(call)) != waits, "a task may use these resources"
