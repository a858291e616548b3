"""The cost of each event grows at most in proportion to the cluster, never with its square.

Cost is the number of calls of Python and C functions, which is the same on every machine. Each case
names the objects whose number grows: roles, frameworks or agents.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeAlias

import pytest

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.placement_constraints import Host, Hosts
from allocator.cluster.agents.shared_volumes import SharedVolumes, volumes
from allocator.cluster.allocation.client_index import ClientMask
from allocator.cluster.allocation.client_order import ClientOrder, MakeNode
from allocator.cluster.allocation.progressive_filling import Node
from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.offers.offer_filters import OfferFilters
from allocator.cluster.resources import Resources, parse_allocated, parse_total
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.fairness import policies
from allocator.fairness import pool as pool_module
from allocator.service.config import LimitsSection
from allocator.users.memory import Boost
from allocator.users.pools import LOOK
from allocator.users.settings import UserSettings
from allocator.users.weights import Weights
from tests.cluster.conformance.quota_side import allocated, disk
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resource,
    resources,
)
from tests.cluster.test_entitlements import running
from tests.cluster.test_hopeless_clients import lines, with_minimums
from tests.cluster.test_placements import info
from tests.counted import counted, counted_steps

pytestmark = pytest.mark.usefixtures("empty_caches")

POLICIES: dict[str, dict[str, object]] = {
    "drf": {},
    "sdrf": {"half_life": 60.0},
    "stsf": {"half_life": 60.0},
    "karma": {},
}
FOR_EACH_POLICY = pytest.mark.parametrize(
    "policy",
    [
        policy if policy in ("sdrf", "karma") else pytest.param(policy, marks=pytest.mark.release)
        for policy in POLICIES
    ],
)
AGENTS = 10
FEW = 25
MOST = 2.75
"""Largest permitted ratio of two cost increases: from 50 to 100 objects, and from 25 to 50.

Cost in proportion has a ratio of 2, quadratic cost a ratio of 4.
"""
Work: TypeAlias = Callable[[], object]
Case: TypeAlias = Callable[[str, int], Work]
CASES: dict[str, Case] = {}
CALLS_FOR_ONE = 25
"""Largest permitted number of calls for a filter, or for a quota, in an event."""


def case(make: Case) -> Case:
    CASES[make.__name__] = make
    return make


def said(name: str, roles: Sequence[str], demand: str = "cpus:1", hosts: str = "s*") -> bytes:
    return info(name, roles, {"demand": demand, "whitelist": hosts})


def agents(number: int, kind: str = "s") -> list[contract.AddAgent]:
    """Return agents that all differ."""
    return [agent_call(f"{kind}{n}", f"cpus:4;mem:{4096 + n}") for n in range(number)]


def snapshot(frameworks: Sequence[bytes], number: int = AGENTS) -> contract.Snapshot:
    come = [
        contract.AddFramework(framework_id=f"f{n}", info=info, active=True)
        for n, info in enumerate(frameworks)
    ]
    return contract.Snapshot(time_ns=START_NS, agents=agents(number), frameworks=come)


def flat(number: int, demand: str = "cpus:1") -> list[bytes]:
    return [said(f"f{n}", [f"r{n}"], demand) for n in range(number)]


def below(number: int, demand: str = "cpus:1") -> list[bytes]:
    return [said(f"f{n}", [f"a/r{n}"], demand) for n in range(number)]


def master(policy: str, frameworks: Sequence[bytes] = (), number: int = AGENTS) -> MasterSide:
    made = MasterSide(policy, POLICIES[policy])
    made.restore(snapshot(frameworks, number))
    made.tick()
    return made


def restored(policy: str, frameworks: Sequence[bytes]) -> Work:
    made, message = MasterSide(policy, POLICIES[policy]), snapshot(frameworks)
    return lambda: made.restore(message)


@case
def a_snapshot_of_roles(policy: str, number: int) -> Work:
    return restored(policy, flat(number))


@case
def a_snapshot_of_roles_below_one(policy: str, number: int) -> Work:
    return restored(policy, below(number))


@case
def a_snapshot_of_roles_with_sub_roles(policy: str, number: int) -> Work:
    return restored(policy, [said(f"f{n}", [f"r{n}", f"r{n}/b"]) for n in range(number)])


@case
def a_snapshot_of_frameworks_in_one_role_each_on_agents_of_its_own(
    policy: str, number: int
) -> Work:
    return restored(policy, [said(f"f{n}", ["r"], hosts=f"s{n % 10},x{n}") for n in range(number)])


@case
def a_snapshot_of_one_framework_with_many_roles(policy: str, number: int) -> Work:
    return restored(policy, [said("f", [f"a/{n}" for n in range(number)])])


@case
def another_snapshot(policy: str, number: int) -> Work:
    made, message = master(policy, flat(number)), snapshot(flat(number))
    return lambda: made.restore(message)


def gone(number: int) -> list[contract.RemoveFramework]:
    return [contract.RemoveFramework(framework_id=f"f{n}") for n in range(number)]


def updated(frameworks: Sequence[bytes]) -> list[contract.UpdateFramework]:
    return [
        contract.UpdateFramework(framework_id=f"f{n}", info=info)
        for n, info in enumerate(frameworks)
    ]


@case
def frameworks_that_go(policy: str, number: int) -> Work:
    made = master(policy, below(number))
    return lambda: made.send(*gone(number))


@case
def frameworks_whose_tasks_are_others(policy: str, number: int) -> Work:
    made, updates = master(policy, below(number)), updated(below(number, "cpus:2"))
    return lambda: made.send(*updates)


@case
def a_framework_that_takes_other_roles(policy: str, number: int) -> Work:
    made = master(policy, [said("f0", [f"a/{n}" for n in range(number)])])
    updates = updated([said("f0", [f"b/{n}" for n in range(number)], "cpus:2", "s1*")])
    return lambda: made.send(*updates)


@case
def users_that_are_forgotten(policy: str, number: int) -> Work:
    made = master(policy, [*flat(number), *below(number)])
    made.send(*gone(2 * number))
    for _ in range(12):
        made.tick(7000.0)
    assert made.engine.users()

    def work() -> None:
        made.tick(7000.0)
        assert not made.engine.users()

    return work


@case
def offers_of_which_each_is_refused_for_an_hour(policy: str, number: int) -> Work:
    made = MasterSide(policy, POLICIES[policy])
    made.add_framework("f", "r")
    refused = mesos.Filters(refuse_seconds=3600).SerializeToString()
    back = [
        contract.RecoverResources(
            framework_id="f", agent_id=offer.agent, resources=offer.messages, filters=refused
        )
        for offer in made.send(*agents(number))
    ]
    assert len(back) == number
    return lambda: made.send(*back)


@case
def offers_that_are_revived(policy: str, number: int) -> Work:
    made = master(policy, flat(number))
    return lambda: made.send(*(contract.ReviveOffers(framework_id=f"f{n}") for n in range(number)))


@case
def agents_that_come_one_by_one(policy: str, number: int) -> Work:
    made, come = master(policy, flat(10)), agents(number, "x")
    return lambda: [made.send(event) for event in come]


@case
def agents_that_go(policy: str, number: int) -> Work:
    made = master(policy, flat(10), number)
    return lambda: made.send(*(contract.RemoveAgent(agent_id=f"s{n}") for n in range(number)))


@case
def agents_that_are_going_to_be_maintained(policy: str, number: int) -> Work:
    made, when = master(policy, flat(10), number), mesos.Unavailability()
    when.start.nanoseconds = START_NS + 60 * SECOND
    data = when.SerializeToString()
    return lambda: made.send(
        *(
            contract.UpdateUnavailability(agent_id=f"s{n}", unavailability=data)
            for n in range(number)
        )
    )


@case
def quotas(policy: str, number: int) -> Work:
    made = master(policy, flat(number))
    guarantees = contract.Quantities(amounts={"cpus": 0.001})
    return lambda: made.send(
        *(contract.UpdateQuota(role=f"r{n}", guarantees=guarantees) for n in range(number))
    )


@case
def weights(policy: str, number: int) -> Work:
    made = master(policy, flat(number))
    weights_list = [contract.Weight(role=f"r{n}", weight=1.1 + n) for n in range(number)]
    return lambda: made.send(*(contract.UpdateWeights(weights=[weight]) for weight in weights_list))


@case
def orders(policy: str, number: int) -> Work:
    made = master(policy, flat(number))

    def work() -> None:
        for n in range(number):
            order = operator.SetWeight(user=f"r{n}", weight=2.5 + n)
            made.engine.order(operator.Order(set_weight=order))
        names = [f"r{n}" for n in range(number)]
        reset = operator.ResetCommitments(users=names)
        made.engine.order(operator.Order(reset_commitments=reset))

    return work


@case
def what_a_successor_must_know(policy: str, number: int) -> Work:
    made = master(policy, [*flat(number), *below(number)])
    return lambda: Engine(made.settings, memory=made.engine.memory())


@case
def what_people_are_shown(policy: str, number: int) -> Work:
    made = master(policy, [*flat(number), *below(number)])
    return lambda: (made.engine.standings(), made.engine.misfits(), made.engine.demands())


@FOR_EACH_POLICY
@pytest.mark.parametrize("name", CASES)
def test_cost_grows_at_most_in_proportion(name: str, policy: str) -> None:
    CASES[name](policy, 4 * FEW)()  # fills the caches
    few, many, doubled = (counted(CASES[name](policy, n * FEW)) for n in (1, 2, 4))
    assert doubled - many < MOST * (many - few) + 200


def test_boosts_that_end_singly_cost_in_proportion_to_their_number() -> None:
    def steps(number: int) -> int:
        weights = Weights(UserSettings(policies.create("drf", {})))
        for index in range(number):
            weights.order_boost(f"r{index}", Boost(2.0, 1.0 + index))

        def end_all() -> None:
            ended = [weights.ended(weights.next_end) for _ in range(number)]
            assert ended == [[f"r{index}"] for index in range(number)]

        return counted(end_all)

    assert steps(400) < 5 * steps(100)


def with_idle_roles(policy: str, number: int) -> MasterSide:
    """Return a cluster with idle frameworks in roles of four levels.

    Ten other frameworks use resources.
    """
    made = MasterSide(policy, POLICIES[policy])
    made.settings = replace(made.settings, counts_for=4.0, exact_ties=False)
    made.options.tells_running = True
    made.engine = Engine(made.settings)
    message = snapshot([*flat(10), *(said(f"f{10 + n}", [f"i{n}/b/c/d"]) for n in range(number))])
    for n, framework in enumerate(message.frameworks[10:]):
        framework.suppressed_roles.append(f"i{n}/b/c/d")
    held = {f"f{n}": resources("cpus:2", f"r{n}") for n in range(10)}
    message.agents.append(running("used", "cpus:40;mem:100", held))
    made.restore(message)
    assert len(made.engine.users()) == 10 + 4 * number
    for _ in range(3):
        made.tick(LOOK)
    return made


def an_event(made: MasterSide) -> Work:
    return lambda: made.send(contract.SuppressOffers(framework_id="f1"))


def a_new_role(made: MasterSide) -> Work:
    return lambda: made.add_framework("new", "x/y/z", suppressed=["x/y/z"])


def a_tick_with_a_sample(made: MasterSide) -> Work:
    return lambda: made.tick(LOOK)


@FOR_EACH_POLICY
@pytest.mark.parametrize(
    ("work", "calls"), [(an_event, 0), (a_new_role, 2), (a_tick_with_a_sample, 5)]
)
def test_idle_roles_of_several_levels_cost_other_events_almost_nothing(
    work: Callable[[MasterSide], Work], calls: int, policy: str
) -> None:
    """Each idle role costs at most this number of calls, and its inner levels cost none."""

    def cost(number: int) -> int:
        made = with_idle_roles(policy, number)
        made.wait(1.0)
        return counted(work(made))

    cost(4 * FEW)  # fills the caches
    few, many, most = (cost(n * FEW) for n in (1, 2, 4))
    assert many - few <= calls * FEW + 5
    assert most - many <= calls * 2 * FEW + 5


def bag_with_ports(ports: Iterable[int]) -> Resources:
    """Return a bag in which each of the ports is an interval of its own."""
    value = ",".join(f"{port}-{port}" for port in ports)
    return parse_total(resources(f"cpus:4;mem:64;ports:[{value}]"))


def cost_of_an_event(made: MasterSide, offer: Offered) -> int:
    """Return the cost of an event: an offer is recovered and made again."""
    back = contract.RecoverResources(
        framework_id=offer.framework, agent_id=offer.agent, resources=offer.messages
    )

    def work() -> None:
        assert {again.framework for again in made.send(back)} == {offer.framework}

    work()  # examines new clients
    return counted(work)


def beside(
    total: str, roles: Sequence[str], declined: Callable[[int], Resources], demand: str = ""
) -> tuple[MasterSide, Offered]:
    """Return a cluster with many roles declining an agent, and the offer of the agent to `f`.

    Args:
        total: The agent's resources.
        roles: The roles of another framework.
        declined: Returns the resources that a role, given by its place in the list, declines.
        demand: Demand of one task of these roles; empty: unknown.
    """
    made = MasterSide("drf", {})
    made.add_framework("f", "r")
    (offer,) = made.send(agent_call("s", total))
    filters = made.engine._cluster.filters
    for place, role in enumerate(roles):
        client = Client(role, "other")
        filters.add(client, "s", declined(place), made.now_ns + 3600 * SECOND)
    labels = {"demand": demand} if demand else {}
    data = info("other", roles, labels)
    made.send(contract.AddFramework(framework_id="other", info=data, active=True))
    return made, offer


def numbered(number: int, parent: str = "") -> list[str]:
    return [f"{parent}o{n}" for n in range(number)]


def without_port(missing: int) -> Resources:
    return bag_with_ports(
        port for port in (*range(1, 202, 2), *range(301, 400, 2)) if port != missing
    )


def test_filters_of_suppressed_roles_cost_other_events_nothing() -> None:
    def cost(roles: int) -> int:
        total = "cpus:4;mem:64;ports:[1-201]"
        made, offer = beside(total, numbered(roles), lambda place: without_port(3 + 2 * place))
        made.send(contract.SuppressOffers(framework_id="other"))
        return cost_of_an_event(made, offer)

    cost(4)  # fills the caches
    assert cost(80) <= cost(20) + 5


@pytest.mark.parametrize("call", [contract.SuppressOffers, contract.ReviveOffers])
def test_a_call_about_one_role_costs_no_calls_for_the_other_roles_of_the_framework(
    call: type[contract.SuppressOffers | contract.ReviveOffers],
) -> None:
    def cost(roles: int) -> int:
        made = MasterSide("drf")
        made.add_framework("f", *numbered(roles))
        made.send(contract.SuppressOffers(framework_id="f"))
        if call is contract.SuppressOffers:
            made.send(contract.ReviveOffers(framework_id="f"))
        named = call(framework_id="f", roles=numbered(1))
        return counted(lambda: made.send(named))

    cost(4)  # fills the caches
    assert cost(80) <= cost(20) + 20


def test_filters_of_roles_that_want_offers_cost_other_events_in_proportion() -> None:
    """Each role declines the resources of a task, but not all ports. No roles share a filter."""

    def cost(roles: int) -> int:
        total = f"cpus:4;mem:64;ports:[{','.join(f'{port}-{port}' for port in range(1, 202, 2))}]"
        made, offer = beside(
            total, numbered(roles), lambda place: without_port(201 - 2 * place), "cpus:1;mem:16"
        )
        return cost_of_an_event(made, offer)

    cost(4)  # fills the caches
    few, many, most = (cost(number) for number in (25, 50, 100))
    assert many - few <= 25 * CALLS_FOR_ONE
    assert most - many <= 50 * CALLS_FOR_ONE


@pytest.mark.parametrize("demand", ["", "cpus:1"])
@pytest.mark.parametrize(
    ("total", "declined", "parent"),
    [
        ("cpus:4;mem:64;disk(elsewhere):8", "cpus:4;mem:64", ""),
        ("cpus:4;mem:64;disk(elsewhere):8;disk(x):1", "cpus:4;mem:64;disk(x):1", "x/"),
    ],
)
def test_roles_that_declined_all_that_they_may_use_cost_other_events_nothing(
    total: str, declined: str, parent: str, demand: str
) -> None:
    """Others have reservations on the agent, or the roles have a reservation, too."""

    def cost(roles: int) -> int:
        bag = parse_total(resources(declined))
        return cost_of_an_event(*beside(total, numbered(roles, parent), lambda _: bag, demand))

    cost(4)  # fills the caches
    assert cost(80) <= cost(20) + 5


@pytest.mark.parametrize("demand", ["", "cpus:1"])
def test_roles_that_declined_their_own_reserved_resources_cost_other_events_little(
    demand: str,
) -> None:
    """Each role would take unreserved resources, too, but the first of them leaves none."""

    def cost(roles: int) -> int:
        names = numbered(roles)
        total = ";".join(["cpus:4;mem:64", *(f"cpus({role}):1" for role in names)])
        made, offer = beside(
            total, names, lambda place: parse_total(resources(f"cpus({names[place]}):1")), demand
        )

        def work() -> None:
            assert len(made.recover(offer, "cpus:1;mem:1")) == 1

        work()  # examines new clients
        return counted(work)

    cost(4)  # fills the caches
    assert cost(240) - cost(120) < 120 * FOR_ONE_RESERVATION


FOR_ONE_RESERVATION = 38
"""Calls that an event may cost for each role with a reservation on the agent."""


def test_roles_that_declined_their_largest_offer_cost_other_events_nothing() -> None:
    """A single task fits on the agent. The filters contain the task, but not all available cpus."""

    def cost(roles: int) -> int:
        bag = parse_total(resources("cpus:3;mem:64"))
        return cost_of_an_event(
            *beside("cpus:4;mem:128;ports:[1-9]", numbered(roles), lambda _: bag, "cpus:3;mem:64")
        )

    cost(4)  # fills the caches
    assert cost(80) <= cost(20) + 5


def test_roles_with_a_guarantee_that_declined_an_agent_cost_other_events_little() -> None:
    def cost(roles: int) -> int:
        bag = parse_total(resources("cpus:4;mem:64"))
        made, offer = beside("cpus:4;mem:64", numbered(roles), lambda _: bag)
        guarantees = contract.Quantities(amounts={"cpus": 1000.0})
        made.send(
            *(contract.UpdateQuota(role=r, guarantees=guarantees) for r in ["r", *numbered(roles)])
        )
        return cost_of_an_event(made, offer)

    cost(4)  # fills the caches
    assert cost(80) - cost(20) <= 60 * CALLS_FOR_ONE


def test_allocations_beside_a_shared_volume_cost_other_events_nothing() -> None:
    def cost(frameworks: int) -> int:
        made = MasterSide("drf", {})
        made.add_framework("f", "r")
        used = {f"o{n}": resources("cpus:0.001", "o") for n in range(frameworks)}
        call = agent_call("s", "cpus:4;mem:64", used)
        volume = resource("disk", "64", reserved=["a"])
        volume.disk.persistence.id = "v"
        volume.shared.SetInParent()
        call.total.append(volume.SerializeToString())
        (offer,) = made.send(call)
        return cost_of_an_event(made, offer)

    cost(4)  # fills the caches
    assert cost(80) <= cost(20) + 5


def test_holders_of_many_shared_volumes_cost_other_events_little() -> None:
    """Cost does not grow with the volumes of each holder, although sorters rank by agent."""

    def cost(frameworks: int) -> int:
        made = MasterSide("per-machine-drf", {})
        made.settings = replace(made.settings, shared_volumes_once=True)
        made.engine = Engine(made.settings)
        made.restore(contract.Snapshot(time_ns=made.now_ns))
        volumes = [resource("disk", "64", reserved=["a"]) for _ in range(20)]
        for number, volume in enumerate(volumes):
            volume.disk.persistence.id = f"v{number}"
            volume.shared.SetInParent()
        total = [volume.SerializeToString() for volume in volumes]
        for volume in volumes:
            volume.allocation_info.role = "a"
        held = [volume.SerializeToString() for volume in volumes]
        for number in range(frameworks):
            made.add_framework(f"a{number}", "a", suppressed=["a"])
        used = {f"a{n}": [*resources("cpus:0.01", "a"), *held] for n in range(frameworks)}
        made.add_framework("f", "r")
        made.add_framework("g", "q")
        call = agent_call("s", "cpus:4;mem:64", used)
        call.total.extend(total)
        (offer,) = made.send(call)
        returned: list[Offered] = []

        def work() -> None:
            returned[:] = made.send(
                contract.RecoverResources(
                    framework_id=offer.framework, agent_id="s", resources=offer.messages
                )
            )

        work()  # examines new clients
        (offer,) = returned
        return counted(work)

    cost(4)  # fills the caches
    assert cost(80) - cost(20) <= 60 * CALLS_FOR_ONE


def beside_deep_roles(number: int) -> tuple[MasterSide, contract.Events]:
    """Return a cluster with deep roles, and the event that makes an agent available to them."""
    made = MasterSide("sdrf", {"half_life": 60.0})
    roles = ["/".join([f"x{n}", *"abcdefg"[:depth]]) for n in range(number) for depth in range(8)]
    frameworks = [info(f"f{n}", roles[n::8], {"demand": "cpus:0.01"}) for n in range(8)]
    made.restore(snapshot(frameworks, 0))
    made.send(agent_call("s0", "cpus:0.3;mem:64"))  # examines new clients
    made.sequence += 1
    events = contract.Events()
    event = events.events.add(sequence=made.sequence, time_ns=made.now_ns)
    event.add_agent.CopyFrom(agent_call("s", "cpus:0.3;mem:64"))
    return made, events


def test_an_agent_that_deep_roles_share_takes_many_short_steps() -> None:
    made, events = beside_deep_roles(FEW)
    costs, decisions = counted_steps(made.engine.apply_in_steps(events))
    assert sum(len(offers.offers) for offers in decisions.offers) >= FEW
    assert max(costs) * 3 < sum(costs)


def test_deep_roles_that_get_one_task_each_are_sorted_into_few_trees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, events = beside_deep_roles(FEW)
    trees, plain = 0, ClientOrder.tree

    def tree(self: ClientOrder, agent: Agent, eligible: ClientMask, nodes: MakeNode) -> Node | None:
        nonlocal trees
        trees += 1
        return plain(self, agent, eligible, nodes)

    monkeypatch.setattr(ClientOrder, "tree", tree)
    decisions = made.engine.apply(events)
    assert sum(len(offers.offers) for offers in decisions.offers) >= FEW
    assert trees <= 5


def test_a_cycle_over_many_reservations_of_an_agent_costs_in_proportion() -> None:
    def cost(roles: int) -> int:
        made = MasterSide("drf", {})
        made.add_framework("f", *numbered(roles))
        total = "cpus:4;mem:64;" + ";".join(f"cpus({role}):0.01" for role in numbered(roles))

        def work() -> None:
            assert len(made.send(agent_call("s", total))) == roles

        return counted(work)

    cost(4)  # fills the caches
    few, many, most = (cost(number) for number in (50, 100, 200))
    assert most - many < MOST * (many - few) + 200


@pytest.mark.parametrize("declined", [range(5, 1000), [1, *range(5, 2000)]])
def test_ports_after_the_first_missing_port_are_not_compared(declined: Iterable[int]) -> None:
    """The filter has fewer ports than are available, or more ports but not port 3."""

    def cost(ports: int) -> int:
        filters, client = OfferFilters(), Client("r", "f")
        filters.add(client, "s", bag_with_ports(p for p in declined if p % 2), START_NS)
        available = bag_with_ports(range(1, 2 * ports, 2))
        filters.declining_clients("s", available)  # computes the sizes
        return counted(lambda: filters.declining_clients("s", available))

    assert cost(499) <= cost(50) + 5


def test_minimums_that_no_agent_reaches_cost_other_events_nothing() -> None:
    def cost(frameworks: int) -> int:
        made = MasterSide("drf", {})
        made.add_framework("f", "r")
        (offer,) = made.send(agent_call("s", "cpus:4;mem:64;disk:9"))
        for n in range(frameworks):
            minimums: list[dict[str, float]] = [
                {"cpus": 1.0, "disk": 10.0 + 8 * n + k} for k in range(8)
            ]
            data = with_minimums(f"o{n}", {f"o{n}": minimums})
            made.send(contract.AddFramework(framework_id=f"o{n}", info=data, active=True))
        made.tick()
        return cost_of_an_event(made, offer)

    cost(4)  # fills the caches
    assert cost(40) <= cost(10) + 5


HALF: dict[str, Callable[[int], str]] = {
    "no agent": lambda n: f"nowhere{n}",
    "all agents": lambda n: f"s*,nowhere{n}",
    "half of the agents": lambda n: f"s*{n % 10}.*,s*{(n + 3) % 10}.*,s*5.*,s1*,nowhere{n}",
}


def with_own_lists(hosts: Callable[[int], str], number: int) -> MasterSide:
    """Return a cluster with free resources for which no framework has a task that fits.

    Each framework has its own list of hosts.
    """
    frameworks = [said(f"f{n}", [f"r{n}"], "cpus:9", hosts(n)) for n in range(number)]
    made = master("drf", frameworks, 40)
    made.send(contract.ReviveOffers(framework_id="f0"))
    return made


@pytest.mark.interpreted
@pytest.mark.parametrize("name", HALF)
def test_a_revival_costs_no_evaluation_of_other_frameworks_constraints(name: str) -> None:
    """Cost is the number of executed lines, because a mask of clients is built without calls."""

    def cost(number: int) -> int:
        made = with_own_lists(HALF[name], number)
        return lines(lambda: made.send(contract.ReviveOffers(framework_id="f0")))

    few, many = cost(20), cost(80)
    assert many < few + 60 * 10


@pytest.mark.interpreted
def test_a_revival_costs_no_evaluation_of_other_frameworks_offer_constraints() -> None:
    def cost(number: int) -> int:
        made = master("drf", flat(number, "cpus:9"), 40)
        for n in range(1, number):
            roles = [contract.ExcludedAgents(role=f"r{n}", agent_ids=[f"s{k}" for k in range(39)])]
            data = said(f"f{n}", [f"r{n}"], "cpus:9")
            made.send(contract.UpdateFramework(framework_id=f"f{n}", info=data, excluded=roles))
        made.send(contract.ReviveOffers(framework_id="f0"))
        return lines(lambda: made.send(contract.ReviveOffers(framework_id="f0")))

    few, many = cost(20), cost(80)
    assert many < few + 60 * 10


@pytest.mark.parametrize("reported", [True, False])
def test_an_event_does_not_sum_its_clients_shared_volumes_on_other_agents(
    *, reported: bool
) -> None:
    def cost(number: int) -> int:
        made = MasterSide("drf", {})
        made.settings = replace(made.settings, counts_for=4.0, shared_volumes_once=True)
        made.options.tells_running = reported
        made.engine = Engine(made.settings)
        message = contract.Snapshot(time_ns=START_NS)
        volumes = [disk(1, reserved=["r"], volume=f"v{n}", shared=True) for n in range(10)]
        for n in range(number):
            used = [*resources("cpus:1", "r"), *allocated(volumes, "r")]
            agent = running(f"s{n}", "cpus:1;disk:10", {"f": used})
            agent.total.extend(volumes)
            message.agents.append(agent)
        used = resources("cpus:4", "r")
        message.agents.append(running("plain", "cpus:4", {"f": used}))
        made.restore(message)
        made.add_framework("f", "r", suppressed=["r"])
        made.tick(LOOK)
        end = contract.RecoverResources(
            framework_id="f",
            agent_id="plain",
            resources=resources("cpus:1", "r"),
            is_allocated=reported,
        )
        made.send(end)
        return counted(lambda: made.send(end))

    cost(2)  # fills the caches
    assert abs(cost(20) - cost(2)) < 20


def costs_of_steps(made: MasterSide, event: contract.Event) -> list[int]:
    """Return the calls that each cooperative step of an event costs."""
    made.sequence += 1
    event.sequence, event.time_ns = made.sequence, made.now_ns
    costs, _ = counted_steps(made.engine.apply_in_steps(contract.Events(events=[event])))
    return costs


def offered_agent() -> tuple[MasterSide, contract.UpdateAllocation]:
    """Return a cluster with an agent, and a call about the offer of the agent to a framework."""
    made = MasterSide("drf", {})
    made.add_framework("f", "r")
    made.add_agent("s", "cpus:4;mem:64")
    offered = resources("cpus:4;mem:64", "r")
    return made, contract.UpdateAllocation(framework_id="f", agent_id="s", offered=offered)


def reserved_part(number: int) -> list[bytes]:
    """Return a thousandth of a CPU with a reservation that only this number has."""
    reserved = resource("cpus", "0.001", reserved=["r"])
    reserved.reservations[0].labels.labels.add(key="k", value=f"{number}")
    return allocated([reserved.SerializeToString()], "r")


def test_many_operations_of_one_call_are_read_and_applied_in_many_short_steps() -> None:
    made, call = offered_agent()
    for number in range(2000):
        call.conversions.add(consumed=resources("cpus:0.001", "r"), converted=reserved_part(number))
    costs = costs_of_steps(made, contract.Event(update_allocation=call))
    assert max(costs) * 5 < sum(costs)


def test_one_operation_on_many_resources_is_read_and_applied_in_many_short_steps() -> None:
    """Since Mesos 1.10, RESERVE may have a source. The resources are then one conversion."""
    made, call = offered_agent()
    conversion = call.conversions.add(consumed=resources("cpus:2", "r"))
    for number in range(2000):
        conversion.converted.extend(reserved_part(number))
    costs = costs_of_steps(made, contract.Event(update_allocation=call))
    assert max(costs) * 3 < sum(costs)
    declined = contract.RecoverResources(
        framework_id="f", agent_id="s", resources=list(reversed(conversion.converted))
    )
    assert len(costs_of_steps(made, contract.Event(recover_resources=declined))) > 10


def test_an_offer_of_each_second_port_is_declined_without_reading_it_again() -> None:
    made = MasterSide("drf", {})
    made.add_framework("f", "r")
    ports = ",".join(f"{port}-{port}" for port in range(1025, 32000, 2))
    (offer,) = made.send(agent_call("s", f"cpus:4;mem:64;ports:[{ports}]"))
    assert sum(map(len, offer.messages)) > 100_000
    assert counted(lambda: parse_allocated(offer.messages)) < 500


def test_a_new_constraint_costs_less_than_a_call_for_each_agent() -> None:
    made = master("drf", flat(1), 1000)
    update = contract.UpdateFramework(framework_id="f0", info=said("f0", ["r0"], hosts="*9,s1*"))
    assert sum(costs_of_steps(made, contract.Event(update_framework=update))) < 1000


def test_many_agents_are_tested_against_many_globs_in_many_short_steps() -> None:
    made = master("drf", flat(1), 1000)
    hosts = ",".join(f"*{n}*[0-{n % 10}]*" for n in range(32))
    update = contract.UpdateFramework(framework_id="f0", info=said("f0", ["r0"], hosts=hosts))
    costs = costs_of_steps(made, contract.Event(update_framework=update))
    assert len(costs) > 4
    assert max(costs) * 3 < sum(costs)


def test_a_cycle_over_declined_agents_that_have_not_changed_costs_few_calls() -> None:
    """A REQUEST without effect marks all agents, and all clients still decline them."""

    def cost(number: int) -> int:
        made = MasterSide("drf", {})
        made.settings = replace(made.settings, whole_from=10)
        made.engine = Engine(made.settings)
        made.restore(contract.Snapshot(time_ns=made.now_ns))
        made.add_framework("f", "r")
        for agent in range(number):
            (offer,) = made.add_agent(f"s{agent}", "cpus:4;mem:64")
            assert not made.recover(offer, refuse_seconds=1e6)
        made.tick()
        for _ in range(2):
            made.send(contract.RequestResources(framework_id="f"))
            calls = counted(made.tick)
        assert made.engine.statistics.candidates > 3 * number
        return calls

    assert cost(200) - cost(100) < 100 * 25


def test_attributes_of_many_agents_are_read_in_many_short_steps() -> None:
    data = mesos.SlaveInfo(hostname="h")
    data.attributes.add(name="zone", type=mesos.Value.TEXT).text.value = "a"
    calls = agents(3000)
    for call in calls:
        call.info = data.SerializeToString()
    made = MasterSide("drf", {})
    made.send(*calls)
    made.add_framework("f", "r")
    update = contract.UpdateFramework(
        framework_id="f", info=info("f", ["r"], {"attributes": "zone:a"})
    )
    costs = costs_of_steps(made, contract.Event(update_framework=update))
    assert max(costs) * 3 < sum(costs)


@pytest.mark.parametrize("policy", ["drf", "sdrf"])
def test_a_framework_changes_many_roles_in_many_short_steps(policy: str) -> None:
    def described(number: int) -> bytes:
        return info("x", [f"r{number}-{role}" for role in range(250)], {})

    made = master(policy, flat(5))
    add = contract.AddFramework(framework_id="x", info=described(0), active=True)
    calls: list[contract.Event] = [contract.Event(add_framework=add)]
    for number in (1, 2):
        update = contract.UpdateFramework(framework_id="x", info=described(number))
        calls.append(contract.Event(update_framework=update))
    for event in calls:
        costs = costs_of_steps(made, event)
        assert max(costs) * 3 < sum(costs)


def test_an_agent_is_tested_against_many_constraints_in_many_short_steps() -> None:
    frameworks = [said(f"f{n}", [f"r{n}"], hosts=f"*{n},x*") for n in range(400)]
    made = master("drf", frameworks, 1)
    costs = costs_of_steps(made, contract.Event(add_agent=agent_call("a", "cpus:0.01")))
    assert len(costs) > 400 // 50


def test_a_changed_agent_is_tested_against_many_constraints_in_many_short_steps() -> None:
    frameworks = [said(f"f{n}", [f"r{n}"], hosts=f"*{n},x*") for n in range(400)]
    made = master("drf", frameworks, 1)
    data = mesos.SlaveInfo(hostname="renamed", id=mesos.SlaveID(value="s0")).SerializeToString()
    update = contract.UpdateAgent(agent_id="s0", info=data)
    costs = costs_of_steps(made, contract.Event(update_agent=update))
    assert len(costs) > 400 // 50
    assert max(costs) * 2 < sum(costs)


def test_the_description_of_a_new_agent_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, described = master("drf", flat(1)), list[str]()
    plain = Host.of

    def of(data: mesos.SlaveInfo) -> Host:
        described.append(data.hostname)
        return plain(data)

    monkeypatch.setattr(Host, "of", of)
    made.add_agent("new", "cpus:1")
    assert described == ["new.example"]


def test_offer_constraints_of_many_roles_are_recorded_and_forgotten_in_many_short_steps() -> None:
    roles, agent_ids = [f"x{n}" for n in range(20)], [f"s{n}" for n in range(3000)]
    made, data = MasterSide("drf"), info("x", roles, {})
    excluded = [
        contract.ExcludedAgents(role=role, agent_ids=agent_ids[number:])
        for number, role in enumerate(roles)
    ]
    add = contract.AddFramework(framework_id="x", info=data, excluded=excluded)
    none = contract.UpdateFramework(framework_id="x", info=data)
    again = contract.UpdateFramework(framework_id="x", info=data, excluded=excluded)
    for event in (
        contract.Event(add_framework=add),
        contract.Event(update_framework=none),
        contract.Event(update_framework=again),
        contract.Event(remove_framework=contract.RemoveFramework(framework_id="x")),
    ):
        costs = costs_of_steps(made, event)
        assert sum(costs) > 2 * 3000, "each agent costs calls"
        assert max(costs) * 3 < sum(costs)


def test_the_list_of_another_framework_is_forgotten_in_many_short_steps() -> None:
    """A second framework brings all lists beyond the limit, so the first loses its list."""
    made, agent_ids = MasterSide("drf"), [f"s{n}" for n in range(8_000)]
    made.settings = replace(made.settings, limits=Limits(all_exclusions=8_005))
    made.engine = Engine(made.settings)
    made.restore(snapshot([]))
    for name, excluded in (("large", agent_ids), ("small", agent_ids[:10])):
        call = contract.AddFramework(framework_id=name, info=said(name, ["r"]))
        call.excluded.add(role="r", agent_ids=excluded)
        costs = costs_of_steps(made, contract.Event(add_framework=call))
        assert sum(costs) > 8_000, "each pair of the large list costs a call"
        assert max(costs) * 4 < sum(costs)
    assert [rejected.name for rejected in made.engine.rejected_inputs()] == ["large"]


@pytest.mark.parametrize(("agents", "roles"), [(400, 1), (20, 50)])
def test_many_allocations_of_a_framework_are_counted_and_ended_in_many_short_steps(
    agents: int, roles: int
) -> None:
    made, names = MasterSide("drf", {}), numbered(roles)
    message = contract.Snapshot(time_ns=START_NS)
    for n in range(agents):
        held = [data for role in names for data in resources("cpus:1", role)]
        message.agents.append(running(f"s{n}", f"cpus:{roles}", {"f": held}))
    made.restore(message)
    for event in (
        contract.Event(
            add_framework=contract.AddFramework(framework_id="f", info=said("f", names))
        ),
        contract.Event(remove_framework=contract.RemoveFramework(framework_id="f")),
    ):
        costs = costs_of_steps(made, event)
        assert len(costs) >= 400 // 50
        assert max(costs) * 2 < sum(costs)


def test_roles_of_many_levels_are_sampled_in_many_short_steps() -> None:
    """Each level of a role has a pool of its own, with one member."""
    made, roles = with_counted_use("sdrf"), [f"{role}/b/c/d" for role in numbered(400)]
    message = contract.Snapshot(time_ns=START_NS)
    for n, role in enumerate(roles):
        call = contract.AddFramework(framework_id=f"f{n}", info=said(f"f{n}", [role]))
        message.frameworks.append(call)
    add = contract.AddFramework(framework_id="other", info=said("other", ["x"]))
    message.frameworks.append(add)
    held = {f"f{n}": resources("cpus:1", role) for n, role in enumerate(roles)}
    message.agents.append(running("s", "cpus:1000", held))
    made.restore(message)
    for number in range(3):
        sample = contract.Event(tick=contract.Tick())
        made.wait(LOOK)
        costs = costs_of_steps(made, sample)
        assert max(costs) < 25_000, "all 1,200 pools cost forty calls each or more"
        # Another user uses more, so the entitlements of all roles change.
        made.send(running(f"new{number}", "cpus:500", {"other": resources("cpus:200", "x")}))


def test_a_weight_beside_many_pools_takes_many_short_steps_and_counts_unused_pools_once() -> None:
    pools, made = 1500, with_counted_use("sdrf")
    message = snapshot([said(f"f{n}", [f"r{n}/b/c/d"]) for n in range(pools // 3)])
    made.restore(message)
    sums = list[int]()
    for weight in (2.0, 3.0):
        made.tick(LOOK)
        made.wait(1.0)
        update = contract.UpdateWeights(weights=[contract.Weight(role="r0", weight=weight)])
        costs = costs_of_steps(made, contract.Event(update_weights=update))
        assert max(costs) < 10 * pools, "all pools cost thirty calls each or more"
        sums.append(sum(costs))
    assert sums[1] < 80 * pools, "a count of its users costs each pool sixty calls"


def test_many_shared_volumes_of_a_role_of_many_levels_cost_a_sample_little() -> None:
    def cost(levels: int, held: int) -> int:
        made, role = with_counted_use("drf"), "/".join("a" * levels)
        made.restore(contract.Snapshot(time_ns=START_NS))
        made.add_framework("f", role, active=False)
        volumes = [resource("disk", "1", reserved=[role]) for _ in range(held)]
        for number, volume in enumerate(volumes):
            volume.disk.persistence.id = f"v{number}"
            volume.shared.SetInParent()
        call = agent_call("s", "cpus:4")
        call.total.extend(volume.SerializeToString() for volume in volumes)
        for volume in volumes:
            volume.allocation_info.role = role
        used = [volume.SerializeToString() for volume in volumes]
        call.used.add(framework_id="f", resources=used)
        call.running.extend(call.used)
        made.send(call)
        made.tick(LOOK)
        made.wait(LOOK)
        return counted(lambda: made.send(contract.Tick()))

    cost(2, 10)  # fills the caches
    deep = cost(22, 400) - cost(22, 200)
    assert deep < 2 * 200, "a level costs less than a call for each volume"


@pytest.mark.interpreted
def test_shared_volumes_of_a_role_of_many_levels_cost_each_level_no_lines() -> None:
    """Two clients of the role hold each volume. Each level repeats all volumes."""

    def cost(levels: int, held: int) -> int:
        data = [resource("disk", "1", reserved=["a"]) for _ in range(held)]
        for number, volume in enumerate(data):
            volume.disk.persistence.id = f"v{number}"
            volume.shared.SetInParent()
        bag = parse_total([volume.SerializeToString() for volume in data])
        held_volumes, names = [*volumes("s", bag)], [f"{level}" for level in range(levels)]
        shared = SharedVolumes()
        shared.change(Client("r", "f"), names, (), held_volumes)

        def work() -> None:
            shared.change(Client("r", "g"), names, (), held_volumes)
            shared.change(Client("r", "g"), names, held_volumes, ())

        return lines(work)

    deep = cost(22, 400) - cost(22, 200)
    assert deep < cost(2, 400) - cost(2, 200) + 200


def with_counted_use(policy: str) -> MasterSide:
    """Return an empty cluster whose users count by their use, which the master reports."""
    made = MasterSide(policy, POLICIES[policy])
    made.settings = replace(made.settings, counts_for=4.0, exact_ties=False)
    made.options.tells_running = True
    made.engine = Engine(made.settings)
    return made


@pytest.mark.parametrize("policy", ["drf", "sdrf"])
def test_changes_that_concern_all_users_take_many_short_steps(policy: str) -> None:
    users, made = 1000, with_counted_use(policy)
    message = contract.Snapshot(time_ns=START_NS)
    for n in range(users):
        used = {f"f{n}": resources("cpus:1;mem:1", f"r{n}")}
        message.agents.append(running(f"s{n}", "cpus:1;mem:1", used))
        call = contract.AddFramework(framework_id=f"f{n}", info=said(f"f{n}", [f"r{n}"]))
        message.frameworks.append(call)
        call.active = not n % 2
    made.restore(message)
    made.tick(LOOK)
    end = contract.RecoverResources(framework_id="f1", agent_id="s1", is_allocated=True)
    end.resources.extend(resources("cpus:1;mem:1", "r1"))
    for event in (
        contract.Event(tick=contract.Tick()),
        contract.Event(recover_resources=end),
        contract.Event(add_agent=running("full", "cpus:1", {"f0": resources("cpus:1", "r0")})),
        contract.Event(add_agent=agent_call("free", "cpus:1")),
        contract.Event(remove_agent=contract.RemoveAgent(agent_id="full")),
    ):
        made.wait(LOOK)
        costs = costs_of_steps(made, event)
        assert max(costs) < 20 * users, "a user costs more calls in all"
        assert sum(costs) < users or max(costs) * 3 < sum(costs)


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_do_not_depend_on_the_number_of_users_in_a_step(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few users in a step, users are ranked before a cycle, else at the first read."""
    offers = list[list[Offered]]()
    for a_step in (1, 3, 1000):
        monkeypatch.setattr(pool_module, "_USERS_A_STEP", a_step)
        lot, made = Random(policy), with_counted_use(policy)
        made.restore(snapshot([*flat(6), *below(6)], 0))
        made.sequence, received = 0, list[Offered]()
        for number in range(80):
            made.wait(lot.choice([0.0, 0.3, 7.0]))
            received += made.send(agent_call(f"s{number}", f"cpus:{lot.randrange(1, 4)};mem:64"))
            for offer in lot.sample(received, min(len(received), 3)):
                received.remove(offer)
                received += made.recover(offer)
            if lot.random() < 0.3:
                received += made.tick(lot.choice([1.0, LOOK]))
        offers.append(received)
    assert offers[0] == offers[1] == offers[2]
    assert len(offers[0]) > 50


def lines_of_labels(labels: dict[str, str]) -> int:
    """Return the lines that a framework with placement labels costs on agents with a number."""
    made = master("drf", flat(1))
    for n in range(40):
        call = agent_call(f"n{n}", "cpus:4;mem:64")
        described = mesos.SlaveInfo.FromString(call.info)
        generation = described.attributes.add(name="gen", type=mesos.Value.SCALAR)
        generation.scalar.value = 1
        call.info = described.SerializeToString()
        made.send(call)
    data = info("x", "x", labels)
    return lines(lambda: made.send(contract.AddFramework(framework_id="x", info=data)))


@pytest.mark.interpreted
def test_attributes_that_require_one_number_cost_each_agent_one_comparison() -> None:
    def cost(spellings: int) -> int:
        return lines_of_labels(
            {"attributes": ";".join(f"gen:1.{'0' * n}" for n in range(spellings))}
        )

    cost(1)  # fills the caches
    assert cost(32) < cost(1) + 32 * 20


@pytest.mark.interpreted
def test_globs_longer_than_the_name_of_an_agent_cost_the_agent_nothing() -> None:
    host = Host.of(mesos.SlaveInfo(hostname="node-1.cluster.example.org"))
    hosts = Hosts(f"*{n:0245}*" for n in range(32))
    assert host not in hosts
    assert lines(lambda: host in hosts) < len(host.name)
    assert host in Hosts((*hosts.items, "*node*", "x?", "*.org"))


def test_sentences_about_the_frameworks_of_a_user_take_many_short_steps() -> None:
    """Each framework has its own unknown resource, for which a correction is computed."""
    frameworks = [said(f"f{n}", ["r"], f"cpus:1;mem{n}:1") for n in range(FEW)]
    made = master("drf", frameworks)
    costs, words = counted_steps(made.engine.wording.about_clients("r"))
    assert sum("did you mean mem?" in sentence for sentence in words) == FEW
    assert max(costs) * 3 < sum(costs)


def beside_refused_tasks(
    frameworks: int, roles: int, more: Iterable[bytes] = ()
) -> tuple[MasterSide, Offered]:
    """Return a cluster with frameworks that decline a task in each role, and an offer for `f`.

    Each framework has its own demand. One task fits on the only agent.

    Args:
        frameworks: The number of these frameworks.
        roles: The number of roles of each.
        more: Further resources of the agent.
    """
    made = MasterSide("drf", {})
    made.add_framework("f", "r")
    agent = agent_call("s", "cpus:8;mem:8000")
    agent.total.extend(more)
    (offer,) = made.send(agent)
    filters, declined = made.engine._cluster.filters, parse_total(resources("cpus:2;mem:7000"))
    for n in range(frameworks):
        names = [f"o{n}-{k}" for k in range(roles)]
        data = info(f"o{n}", names, {"demand": f"cpus:1;mem:{5000 + n}"})
        made.send(contract.AddFramework(framework_id=f"o{n}", info=data, active=True))
        for name in names:
            filters.add(Client(name, f"o{n}"), "s", declined, 2**62)
    return made, offer


@pytest.mark.parametrize("roles", [1, 3])
def test_many_clients_that_decline_their_task_are_not_examined_one_by_one(roles: int) -> None:
    def cost(frameworks: int) -> int:
        return cost_of_an_event(*beside_refused_tasks(frameworks, roles))

    cost(80)  # fills the caches
    assert cost(160) < cost(80) + 80 * (45 + 10 * roles)


def test_clients_that_decline_their_task_one_by_one_take_many_short_steps() -> None:
    """Memory of a second kind hides that each possible offer is declined."""
    second_kind = resource("mem", "100")
    second_kind.provider_id.value = "other"
    made, offer = beside_refused_tasks(300, 1, [second_kind.SerializeToString()])
    back = contract.RecoverResources(
        framework_id=offer.framework, agent_id=offer.agent, resources=offer.messages
    )
    assert len(made.send(back)) == 1  # examines new clients
    costs = costs_of_steps(made, contract.Event(recover_resources=back))
    assert sum(costs) > 300 * 20, "each client is examined"
    assert max(costs) * 4 < sum(costs)


def test_a_reservation_costs_no_calls_for_other_roles_with_sub_roles() -> None:
    def cost(roles: int) -> int:
        made = MasterSide("sdrf", {"half_life": 60.0})
        for n in range(roles):
            made.add_framework(f"o{n}", f"o{n}/a", active=False)
        made.add_framework("f", "a")
        [offer] = made.add_agent("s", "cpus:4;mem:4096")
        conversion = contract.Conversion(
            consumed=resources("cpus:1", "a"), converted=resources("cpus(a):1", "a")
        )
        reserve = contract.UpdateAllocation(
            framework_id="f", agent_id="s", offered=offer.messages, conversions=[conversion]
        )
        return counted(lambda: made.send(reserve))

    cost(5)  # fills the caches
    assert cost(105) < cost(5) + 50


def test_inverse_offers_to_many_frameworks_take_many_short_steps() -> None:
    """All frameworks hold a part of each of 2 agents, for which maintenance is scheduled."""
    made = MasterSide("drf", {})
    names = [f"f{number}" for number in range(1000)]
    held = {name: resources("cpus:0.01", "r") for name in names}
    made.restore(
        contract.Snapshot(
            time_ns=made.now_ns,
            agents=[agent_call(f"s{number}", "cpus:10", held) for number in range(2)],
            frameworks=[
                contract.AddFramework(
                    framework_id=name, info=framework_info(name, "r"), active=True
                )
                for name in names
            ],
        )
    )
    schedule = mesos.Unavailability(start=mesos.TimeInfo(nanoseconds=1)).SerializeToString()
    for number in range(2):
        call = contract.UpdateUnavailability(agent_id=f"s{number}", unavailability=schedule)
        made.sequence += 1
        event = contract.Event(sequence=made.sequence, time_ns=made.now_ns)
        event.update_unavailability.CopyFrom(call)
        costs, decisions = counted_steps(
            made.engine.apply_in_steps(contract.Events(events=[event]))
        )
        assert sum(len(offers.inverse_offers) for offers in decisions.inverse_offers) == len(names)
        assert max(costs) * 3 < sum(costs)


def test_offers_of_many_reservations_take_many_short_steps() -> None:
    made = MasterSide("drf", {})
    made.add_framework("f", "r")
    agent = agent_call("s", "mem:64")
    for number in range(2000):
        part = resource("cpus", "0.01", reserved=["r"])
        part.reservations[0].labels.labels.add(key="k", value=f"{number}")
        agent.total.append(part.SerializeToString())
    made.sequence += 1
    event = contract.Event(sequence=made.sequence, time_ns=made.now_ns, add_agent=agent)
    costs, decisions = counted_steps(made.engine.apply_in_steps(contract.Events(events=[event])))
    assert [len(offer.resources) for offers in decisions.offers for offer in offers.offers] == [
        2001
    ]
    assert max(costs[1:]) * 3 < sum(costs[1:]), "after the agent is read, in the first step"


def test_a_decline_of_many_resources_takes_many_short_steps() -> None:
    made = MasterSide("drf", {})
    made.add_framework("f", "r")
    [offer] = made.add_agent("s", ";".join(["mem:64", *(f"x{number}:1" for number in range(2000))]))
    call = contract.RecoverResources(framework_id="f", agent_id="s", resources=offer.messages)
    made.sequence += 1
    event = contract.Event(sequence=made.sequence, time_ns=made.now_ns, recover_resources=call)
    monitored = made.engine.apply_in_steps(contract.Events(events=[event]))
    assert len(counted_steps(monitored)[0]) > 2000 // 20


def test_reservations_with_long_labels_are_read_and_written_once() -> None:
    """The bytes of 2,000 reservations overflow a cache that counts 12 bytes for each byte."""
    made = MasterSide("drf", {}, limits=LimitsSection().limits())
    made.add_framework("f", "r")
    number, offers = 0, list[Offered]()
    for name in range(20):
        agent = agent_call(f"s{name}", "mem:64")
        for _ in range(100):
            number += 1
            part = resource("cpus", "0.01", reserved=["r"])
            part.reservations[0].labels.labels.add(key="k", value=f"{number:07800}")
            agent.total.append(part.SerializeToString())
        offers += made.send(agent)

    def play() -> None:
        for offer in offers:
            made.recover(offer, refuse_seconds=0.0)
        offers[:] = made.tick()

    play()
    play()
    resources_each_round = sum(len(offer.messages) for offer in offers)
    assert resources_each_round == 2020
    assert counted(play) < 45 * resources_each_round
