"""Clients that can get nothing of an agent are passed over together, and nobody else is."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.allocation.offer_builder import OfferBuilder
from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.cluster.resources.bag import parse_allocated
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import MasterSide, Offered, agent_call, framework_info, resources

if TYPE_CHECKING:
    from _typeshed import TraceFunction

GPUS = mesos.FrameworkInfo.Capability.GPU_RESOURCES
ROLES = 40
"""Roles of a hostile framework."""


def with_minimums(
    framework: str,
    minimums: dict[str, list[dict[str, float]]],
    demand: str = "",
    capabilities: Iterable[int] = (),
) -> bytes:
    """Return a FrameworkInfo with alternative minimums by role."""
    data = framework_info(framework, *minimums, capabilities=capabilities)
    info = mesos.FrameworkInfo.FromString(data)
    for role, alternatives in minimums.items():
        quantities = info.offer_filters[role].min_allocatable_resources.quantities
        for alternative in alternatives:
            entry = quantities.add()
            for name, amount in alternative.items():
                entry.quantities[name].value = amount
    if demand:
        info.labels.labels.add(key="longshare.demand", value=demand)
    return info.SerializeToString()


def add(master: MasterSide, framework: str, info: bytes) -> list[Offered]:
    return master.send(contract.AddFramework(framework_id=framework, info=info, active=True))


def quota(role: str, *, limit: str = "", guarantee: str = "") -> contract.UpdateQuota:
    call = contract.UpdateQuota(role=role)
    for text, amounts in ((limit, call.limits), (guarantee, call.guarantees)):
        for entry in filter(None, text.split(";")):
            name, _, amount = entry.partition(":")
            amounts.amounts[name] = float(amount)
    return call


def quantities(offer: Offered) -> Quantities:
    """Return the quantities of an offer; a port counts as one."""
    return parse_allocated(offer.messages)[1].quantities


def lines(action: Callable[[], object]) -> int:
    """Return how many lines an action runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> "TraceFunction":
        nonlocal count
        count += event == "line"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(former)
    return count


def minimum_out_of_reach(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        never = [{"cpus": 7.99, "mem": 1e9}, {f"foo{number}": 1.0}]
        add(master, f"x{number}", with_minimums(f"x{number}", dict.fromkeys(roles, never)))


def minimum_out_of_reach_of_known_tasks(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        never = [{"cpus": 7.99, "mem": 1e9}]
        info = with_minimums(f"x{number}", dict.fromkeys(roles, never), "cpus:1")
        add(master, f"x{number}", info)


def minimum_without_a_resource_of_the_tasks(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        never = [{"mem": 100.0}]
        info = with_minimums(f"x{number}", dict.fromkeys(roles, never), "cpus:1")
        add(master, f"x{number}", info)


def minimum_of_more_tasks_than_fit(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        never = [{"cpus": 7.0, "mem": 8000.0}, {"mem": 8000.0 - number}]
        demand = f"cpus:0.{100 + number};mem:64"
        add(master, f"x{number}", with_minimums(f"x{number}", dict.fromkeys(roles, never), demand))


def tasks_without_the_masters_minimum(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        info = mesos.FrameworkInfo.FromString(framework_info(f"x{number}", *roles))
        info.labels.labels.add(key="longshare.demand", value="disk:1")
        add(master, f"x{number}", info.SerializeToString())


def tasks_larger_than_the_agent(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        info = mesos.FrameworkInfo.FromString(framework_info(f"x{number}", *roles))
        info.labels.labels.add(key="longshare.demand", value=f"cpus:{1000 + number}")
        add(master, f"x{number}", info.SerializeToString())


def limit_reached(master: MasterSide, frameworks: int) -> None:
    master.send(quota("q", limit="cpus:0;mem:0"))
    for number in range(frameworks):
        roles = [f"q/x{number}-{role}" for role in range(ROLES)]
        add(master, f"x{number}", framework_info(f"x{number}", *roles))


def guarantee_of_everything(master: MasterSide, frameworks: int) -> None:
    master.send(quota("z", guarantee="cpus:1000;mem:1000000"))
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        add(master, f"x{number}", framework_info(f"x{number}", *roles))


def without_gpu_capability(master: MasterSide, frameworks: int) -> None:
    for number in range(frameworks):
        roles = [f"x{number}-{role}" for role in range(ROLES)]
        add(master, f"x{number}", framework_info(f"x{number}", *roles))


@pytest.mark.parametrize(
    "hostile",
    [
        without_gpu_capability,
        minimum_out_of_reach,
        minimum_out_of_reach_of_known_tasks,
        minimum_without_a_resource_of_the_tasks,
        minimum_of_more_tasks_than_fit,
        tasks_without_the_masters_minimum,
        limit_reached,
        guarantee_of_everything,
    ],
)
def test_a_freed_agent_costs_the_same_however_many_clients_can_get_nothing_of_it(
    hostile: Callable[[MasterSide, int], None],
) -> None:
    total = "cpus:8;mem:8192" + (";gpus:1" if hostile is without_gpu_capability else "")
    if hostile is tasks_without_the_masters_minimum:
        total += ";disk:100"
    assert_same_cost(hostile, total)


@pytest.mark.parametrize(
    "hostile",
    [
        minimum_without_a_resource_of_the_tasks,
        minimum_of_more_tasks_than_fit,
        tasks_larger_than_the_agent,
    ],
)
def test_an_agent_with_a_reservation_costs_the_same_however_many_clients_have_others(
    hostile: Callable[[MasterSide, int], None],
) -> None:
    assert_same_cost(hostile, "cpus:8;mem:8192;cpus(h):1;ports:[1-9]")


@pytest.mark.parametrize("total", ["cpus(h):8;mem(h):8192", "cpus(h):8;mem(h):8192;ports:[1-9]"])
def test_an_agent_reserved_for_a_role_costs_the_same_however_many_clients_have_others(
    total: str,
) -> None:
    assert_same_cost(without_gpu_capability, total)


def assert_same_cost(hostile: Callable[[MasterSide, int], None], total: str) -> None:
    """Free an agent beside few and many clients that can get nothing of it."""

    def cost(frameworks: int) -> int:
        master = MasterSide()
        master.settings = replace(master.settings, skips_refusing_clients=True)
        master.options.filter_gpu_resources = True
        master.engine = Engine(master.settings)
        master.restore(contract.Snapshot(time_ns=master.now_ns))
        master.add_framework("h", "h", capabilities=[GPUS])
        first, second, *_ = [
            offer for number in range(4) for offer in master.send(agent_call(f"a{number}", total))
        ]
        hostile(master, frameworks)
        master.tick()
        master.recover(first)
        return lines(lambda: master.recover(second))

    few, many = cost(2), cost(8)
    assert many - few < 4 * 6 * ROLES, "less than four lines for each client more"


amounts = st.sampled_from([0.0, 1.0, 3.0, 4.0, 9.0])
alternatives = st.lists(
    st.dictionaries(st.sampled_from(["cpus", "mem", "gpus", "ports"]), amounts, max_size=2),
    max_size=3,
)
frameworks = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["a", "q", "q/b", "q/c", "z"]), alternatives, min_size=1),
        st.sampled_from(["", "cpus:1", "cpus:2;mem:1", "cpus:0.6;ports:0.5", "gpus:1", "cpus:9"]),
        st.sets(st.sampled_from([GPUS, mesos.FrameworkInfo.Capability.REVOCABLE_RESOURCES])),
    ),
    min_size=1,
    max_size=5,
)
steps = st.lists(st.tuples(st.integers(0, 20), st.sampled_from([0.0, 30.0])), max_size=12)
quotas = st.sampled_from(["", "cpus:0", "cpus:4", "cpus:0;mem:0", "cpus:3;mem:4", "gpus:0"])


@pytest.mark.interpreted
@given(
    frameworks,
    steps,
    st.tuples(quotas, quotas, st.booleans()),
    st.sampled_from([(), ({"cpus": 3.0},), ({"cpus": 0.01}, {"mem": 32.0})]),
)
def test_offers_are_those_of_visiting_each_client(
    drawn: list[tuple[dict[str, list[dict[str, float]]], str, set[int]]],
    recovered: list[tuple[int, float]],
    quota_of_roles: tuple[str, str, bool],
    default: tuple[dict[str, float], ...],
) -> None:
    limit, guarantee, capped = quota_of_roles

    def play(*, skips: bool) -> list[tuple[str, str, str, Quantities]]:
        master = MasterSide("sdrf", {"half_life": 3600.0}, min_allocatable=default)
        master.settings = replace(master.settings, skips_refusing_clients=skips)
        master.options.filter_gpu_resources = True
        master.engine = Engine(master.settings)
        master.restore(contract.Snapshot(time_ns=master.now_ns))
        if limit:
            master.send(quota("q", limit=limit))
        if guarantee and capped:
            capping = mesos.QuotaInfo(
                guarantee=map(mesos.Resource.FromString, resources(guarantee))
            )
            master.send(contract.SetQuota(role="z", info=capping.SerializeToString()))
        elif guarantee:
            master.send(quota("z", guarantee=guarantee))
        offers = []
        for number, (minimums, demand, capabilities) in enumerate(drawn):
            info = with_minimums(f"f{number}", minimums, demand, capabilities)
            offers += add(master, f"f{number}", info)
        offers += master.send(agent_call("s1", "cpus:4;mem:4;gpus:1;ports:[1-9]"))
        second = agent_call("s2", "cpus:9;mem:3;cpus(q):1;cpus(q/b):3;mem(z):2")
        revocable = mesos.Resource.FromString(resources("cpus:4")[0])
        revocable.revocable.SetInParent()
        second.total.append(revocable.SerializeToString())
        offers += master.send(second)
        offers += master.send(agent_call("s3", "cpus(q):4;mem(q/c):4"))
        open_offers, all_offers = list(offers), list(offers)
        for index, seconds in recovered:
            if open_offers:
                offer = open_offers.pop(index % len(open_offers))
                made = master.recover(offer, refuse_seconds=seconds)
                made += master.tick(5)
                open_offers += made
                all_offers += made
        return [  # port numbers depend on the order in which tasks are booked
            (offer.framework, offer.role, offer.agent, quantities(offer)) for offer in all_offers
        ]

    now = play(skips=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OfferBuilder, "hopeless", lambda *_: (0, 0))
        assert now == play(skips=False)


def test_ports_rounded_up_reach_a_minimum_at_once() -> None:
    master = MasterSide("sdrf", {"half_life": 3600.0}, min_allocatable=())
    master.settings = replace(master.settings, skips_refusing_clients=True)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    add(master, "f", with_minimums("f", {"a": [], "b": [{"ports": 3.0}]}, "cpus:0.6;ports:0.5"))
    offers = master.send(agent_call("s1", "cpus:4;ports:[1-9]"))
    assert [offer.role for offer in offers] == ["a", "b"]


def test_a_minimum_that_an_update_lowers_is_reached_at_once() -> None:
    master = MasterSide()
    add(master, "f", with_minimums("f", {"a": [{"cpus": 9.0}]}))
    assert not master.send(agent_call("s1", "cpus:8"))
    info = with_minimums("f", {"a": [{"cpus": 7.0}]})
    master.send(contract.UpdateFramework(framework_id="f", info=info))
    assert [offer.agent for offer in master.tick()] == ["s1"]


def test_a_framework_with_too_many_different_minimums_is_set_aside() -> None:
    master = MasterSide()
    master.settings = replace(master.settings, limits=Limits(minimums=8))
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    roles = {f"r{number}": [{"cpus": 1.0}, {"mem": 1.0 + number % 7}] for number in range(50)}
    add(master, "within", with_minimums("within", roles))
    roles["r50"] = [{"cpus": 1.0}, {"mem": 99.0}]
    add(master, "beyond", with_minimums("beyond", roles))
    [aside] = master.engine.rejected_inputs()
    assert (aside.flaw.reason, "limits.minimums" in str(aside.flaw)) == ("limit", True)
    assert [offer.framework for offer in master.send(agent_call("s1", "cpus:8;mem:8"))] == [
        "within"
    ]
