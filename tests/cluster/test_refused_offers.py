"""Offers that the master's side refuses are not made again at once, nor endlessly."""

from dataclasses import replace

import pytest

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import MasterSide, Offered, agent_call, framework_info

RESERVED = "cpus(a):1"


def site(*agents: str, waits: bool = True) -> MasterSide:
    """Return a cluster of agents with given totals, and a framework with the role `a`."""
    master = MasterSide()
    master.settings = replace(master.settings, refusals_wait=waits)
    master.engine = Engine(master.settings)
    assert start(master, *agents)
    return master


def start(master: MasterSide, *agents: str) -> list[Offered]:
    """Send a snapshot; all resources are free, so the framework is offered all of them."""
    snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence)
    snapshot.agents.extend(agent_call(f"s{number}", total) for number, total in enumerate(agents))
    snapshot.frameworks.add(framework_id="f", info=framework_info("f", "a"), active=True)
    return master.restore(snapshot)


def refuse(master: MasterSide, *offers: Offered) -> list[Offered]:
    """Refuse offers, as the module does if its record of the agent differs."""
    return master.send(
        *(
            contract.RejectOffer(
                framework_id=offer.framework, agent_id=offer.agent, resources=offer.messages
            )
            for offer in offers
        )
    )


def offered(master: MasterSide, seconds: int, refused: str) -> dict[int, str]:
    """Tick each second, and refuse offers with a resource.

    Returns:
        The second of each offer, with the offered resources; `-` for a refused offer.
    """
    offers_at = {}
    for second in range(1, seconds + 1):
        for offer in master.tick():
            offers_at[second] = "-" if refused in offer.resources else offer.resources
            if refused in offer.resources:
                assert not refuse(master, offer)
    return offers_at


def all_of(master: MasterSide, *totals: str) -> list[Offered]:
    """Return offers of whole agents, as the snapshot's decisions contain them."""
    other_master = MasterSide()
    other_master.now_ns = master.now_ns
    return start(other_master, *totals)


@pytest.mark.parametrize("waits", [True, False])
def test_a_refused_offer_is_made_again_at_the_next_tick(*, waits: bool) -> None:
    master = site("cpus:2;mem:64", waits=waits)
    offers = refuse(master, *all_of(master, "cpus:2;mem:64"))
    assert [offer.resources for offer in offers] == ([] if waits else ["cpus:2;mem:64"])
    if waits:
        assert [offer.resources for offer in master.tick()] == ["cpus:2;mem:64"]
    assert master.engine.statistics.rejected == 1


def test_an_offer_that_is_always_refused_is_made_ever_more_rarely() -> None:
    master = site(RESERVED)
    refuse(master, *all_of(master, RESERVED))
    assert list(offered(master, 200, RESERVED)) == [1, 2, 5, 12, 27, 58, 121, 184]


def test_unreserved_resources_are_offered_without_reservations_that_are_refused() -> None:
    master = site(f"{RESERVED};cpus:2;mem:64")
    refuse(master, *all_of(master, f"{RESERVED};cpus:2;mem:64"))
    assert offered(master, 4, RESERVED) == {1: "-", 2: "-", 3: "cpus:2;mem:64"}


def test_unreserved_resources_never_wait_longer_than_until_the_next_tick() -> None:
    master = site("cpus:2;mem:64")
    refuse(master, *all_of(master, "cpus:2;mem:64"))
    assert list(offered(master, 10, "cpus")) == [*range(1, 11)]


def test_a_snapshot_ends_all_waits() -> None:
    master = site(RESERVED)
    refuse(master, *all_of(master, RESERVED))
    assert offered(master, 8, RESERVED)
    [offer] = start(master, RESERVED)
    assert not refuse(master, offer)
    assert list(offered(master, 1, RESERVED)) == [1]


def test_seldom_refusals_of_a_reservation_never_lengthen_its_wait() -> None:
    master = site(RESERVED)
    [offer] = all_of(master, RESERVED)
    for _ in range(3):
        refuse(master, offer)
        [offer] = master.tick()
        master.wait(10)


@pytest.mark.parametrize("ignored", [True, False])
@pytest.mark.parametrize("way", ["leaves its role", "is inactive", "is not understood"])
def test_a_departed_framework_withholds_nothing_from_others_by_refusals(
    way: str, *, ignored: bool
) -> None:
    """Five times, a framework leaves after an offer, and an honest framework arrives."""
    master = site(RESERVED)
    master.settings = replace(master.settings, departed_refuse_nothing=ignored)
    master.engine = Engine(master.settings)
    [offer] = start(master, RESERVED)
    honest = []
    for _ in range(5):
        assert offer.framework == "f"
        if way == "is inactive":
            master.send(contract.DeactivateFramework(framework_id="f"))
        else:
            role = "elsewhere" if way == "leaves its role" else "not/../understood"
            info = framework_info("f", role)
            master.send(contract.UpdateFramework(framework_id="f", info=info))
        master.add_framework("honest", "a")
        honest += (offers := refuse(master, offer))
        master.send(contract.RemoveFramework(framework_id="honest"))
        for honest_offer in offers:
            master.recover(honest_offer)
        info = framework_info("f", "a")
        master.send(contract.UpdateFramework(framework_id="f", info=info))
        returned = master.send(contract.ActivateFramework(framework_id="f")) + master.tick()
        if not returned:
            break
        [offer] = returned
    assert [offer.framework for offer in honest] == (["honest"] * 5 if ignored else [])
    assert bool(returned) == ignored, "repeated refusals withhold the reservation from everybody"
