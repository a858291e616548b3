"""Whatever one framework says costs that one alone, until it says something acceptable."""

import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources


def told(**fields: object) -> bytes:
    """Return a FrameworkInfo of `bad`, which is acceptable but for these fields."""
    info = mesos.FrameworkInfo(user="u", name="bad", role="b")
    info.id.value = "bad"
    info.MergeFrom(mesos.FrameworkInfo(user="u", name="bad", **fields))  # type: ignore[arg-type]
    return info.SerializeToString()


def minimum(amount: float, role: str = "b") -> bytes:
    """Return the FrameworkInfo of a framework that will not be offered less than this."""
    info = mesos.FrameworkInfo.FromString(told())
    alternatives = info.offer_filters[role].min_allocatable_resources.quantities
    alternatives.add().quantities["cpus"].value = amount
    return info.SerializeToString()


def with_bytes(field: int, data: bytes) -> bytes:
    """Return a FrameworkInfo with bytes where text of less than 128 should be."""
    return told() + bytes([field << 3 | 2, len(data)]) + data


NOT_TEXT = b"\xff\xfe"
MULTI_ROLE = [mesos.FrameworkInfo.Capability(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)]
UNACCEPTABLE = {
    "a minimum below nothing": (minimum(-1.0), "malformed", "cpus"),
    "a minimum beyond measure": (minimum(1e300), "malformed", "cpus"),
    "a minimum that is no number": (
        minimum(float("nan")),
        "malformed",
        "cpus: nan is not a finite",
    ),
    "rubbish": (b"\xff", "malformed", "not a serialised"),
    "another's id": (framework_info("f3", "a"), "contradiction", "another id, 'f3'"),
    "a role that is not text": (with_bytes(6, NOT_TEXT), "text", r"\xff\xfe"),
    "a principal that is not text": (with_bytes(8, NOT_TEXT), "text", r"\xff\xfe"),
    "an endless role": (told(role="x" * 2000), "limit", "limits.name"),
    "a role too deep": (told(role="/".join("r" * 40)), "limit", "limits.role_depth"),
    "a role like a virtual leaf": (told(role="a/."), "malformed", "'a/.' is no role"),
    "too many roles": (
        told(roles=map(str, range(100_000)), capabilities=MULTI_ROLE),
        "limit",
        "limits.roles",
    ),
    "too much": (told(hostname="x" * 2**20), "limit", "limits.subscription"),
}
every_unacceptable_subscription = pytest.mark.parametrize(
    ("info", "reason", "words"), UNACCEPTABLE.values(), ids=UNACCEPTABLE
)


def add_bad(info: bytes) -> contract.AddFramework:
    return contract.AddFramework(framework_id="bad", info=info, active=True)


@every_unacceptable_subscription
def test_a_framework_that_cannot_be_accepted_is_set_aside_alone_and_says_why(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide()
    master.send(add_bad(info))
    master.add_framework("good", "a")
    offers = master.add_agent("s1", "cpus:2;mem:1024")
    assert [offer.framework for offer in offers] == ["good"]
    [kept] = master.engine.set_aside()
    assert (kept.kind, kept.name, kept.flaw.reason) == ("framework", "bad", reason)
    assert words in kept.flaw.words
    assert len(kept.flaw.words) <= 301
    assert words in master.engine.misfits()["bad"]
    assert [standing.user for standing in master.engine.standings() if standing.active] == ["a"]


@every_unacceptable_subscription
def test_one_that_is_set_aside_for_an_update_keeps_its_debts_and_is_back_when_it_says_better(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.add_framework("good", "a")
    master.add_framework("bad", "b")
    used = {"bad": resources("cpus:3;mem:768", "b")}
    master.add_agent("s1", "cpus:3;mem:768", used)
    update = contract.UpdateFramework(framework_id="bad", info=info)
    assert master.send(update) == []
    master.tick(60.0)
    owes = master.engine.pool.standing("b")
    assert owes.share == 1.0, f"{reason}: {words}"
    assert owes.commitment > 0.2
    [offer] = master.add_agent("s2", "cpus:1;mem:512")
    assert offer.framework == "good"
    master.recover(offer)
    master.send(contract.SuppressOffers(framework_id="good"))
    master.recover(offer)
    master.send(contract.UpdateFramework(framework_id="bad", info=told()))
    assert not list(master.engine.set_aside())
    assert {offer.framework for offer in master.tick()} == {"bad"}


@every_unacceptable_subscription
def test_one_that_is_set_aside_may_come_and_go_like_any_other(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide()
    master.add_framework("good", "a")
    master.add_agent("s1", "cpus:2;mem:1024")
    known = {"framework_id": "bad"}
    master.send(
        add_bad(info),
        contract.ReviveOffers(**known),
        contract.SuppressOffers(**known, roles=["b"]),
        contract.DeactivateFramework(**known),
        contract.ActivateFramework(**known),
        contract.RequestResources(framework_id="bad"),
        contract.RemoveFramework(**known),
    )
    assert not list(master.engine.set_aside()), f"{reason}: {words}"
    assert master.engine.frameworks == 1


@every_unacceptable_subscription
def test_a_snapshot_with_such_a_framework_is_as_good_as_any(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide()
    good = contract.AddFramework(framework_id="good", info=framework_info("good", "a"), active=True)
    held = resources("cpus:1;mem:512", "/".join("r" * 1100))
    agent = agent_call("s1", "cpus:2;mem:1024", {"bad": held})
    offers = master.restore(contract.Snapshot(agents=[agent], frameworks=[add_bad(info), good]))
    assert [offer.framework for offer in offers] == ["good"], f"{reason}: {words}"
    assert master.engine.pool.held()["cpus"] == 2000, "what it holds is counted"
