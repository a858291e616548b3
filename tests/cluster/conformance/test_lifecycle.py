"""Agents and frameworks that go, come back or change while something of theirs is under way."""

import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import (
    DAY,
    BatchMaster,
    agent_info,
    freed,
    reserve,
    told,
    unavailability,
)
from tests.cluster.master_side import (
    START_NS,
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resources,
)

WHOLE = "cpus:2;mem:1024"


def one_offer() -> tuple[BatchMaster, Offered]:
    """Start with one agent, all of which is offered to f1 in role `a`."""
    master = BatchMaster()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", WHOLE)
    return master, offer


def share(master: BatchMaster, user: str) -> float:
    return master.engine.pool.standing(user).share


# Agents that are removed, and recoveries that follow.


def test_an_agent_that_goes_frees_all_on_it_and_what_is_recovered_late_changes_nothing() -> None:
    master, offer = one_offer()
    master.add_agent("s2", WHOLE, {"f1": resources("cpus:1;mem:512", "a")})
    master.remove_agent("s1")
    before = master.held()
    assert {agent for agent, _, _ in before} == {"s2"}
    master.recover(offer, "cpus:1;mem:512")
    master.recover(offer, "cpus:1;mem:512", refuse_seconds=DAY)
    assert master.held() == before
    assert master.engine.filters == 0
    assert master.engine.statistics.ignored == 2
    assert master.tick() == []


def test_a_framework_that_goes_frees_all_it_held_and_what_is_recovered_late_changes_nothing() -> (
    None
):
    master, offer = one_offer()
    master.add_framework("f2", "a")
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert told(master.tick()) == {("f2", "s1", WHOLE)}
    before = master.held()
    master.recover(offer, refuse_seconds=DAY)
    assert master.held() == before, "what somebody else holds by now is not touched"
    assert master.engine.filters == 0


def test_an_agent_that_comes_back_under_its_id_is_a_new_one() -> None:
    master, offer = one_offer()
    master.recover(offer, refuse_seconds=DAY)
    master.send(contract.DeactivateAgent(agent_id="s1"))
    master.send(
        contract.UpdateUnavailability(agent_id="s1", unavailability=unavailability(START_NS))
    )
    master.remove_agent("s1")
    master.wait(5)
    assert told(master.add_agent("s1", "cpus:4;mem:512")) == {("f1", "s1", "cpus:4;mem:512")}
    assert master.inverse_offers == []
    assert master.engine.pool.capacity.to_doubles() == {"cpus": 4.0, "mem": 512.0}
    assert share(master, "a") == 1.0


def test_an_agent_that_goes_and_comes_back_in_one_message_is_a_new_one_with_what_it_reports() -> (
    None
):
    master, _ = one_offer()
    used = {"f1": resources("cpus:0.5;mem:256", "a")}
    offers = master.send(contract.RemoveAgent(agent_id="s1"), agent_call("s1", WHOLE, used))
    assert told(offers) == {("f1", "s1", "cpus:1.5;mem:768")}


def test_an_agent_out_of_contact_is_not_offered_before_it_is_back_and_then_in_the_next_batch() -> (
    None
):
    master, offer = one_offer()
    master.send(contract.DeactivateAgent(agent_id="s1"))
    master.send(freed(offer))
    assert master.tick() == []
    assert share(master, "a") == 0.0
    assert master.send(contract.ActivateAgent(agent_id="s1")) == []
    assert told(master.tick()) == {("f1", "s1", WHOLE)}


# Frameworks that change while they are away.


def returning(roles: list[str], suppressed: list[str] | None = None) -> contract.UpdateFramework:
    return contract.UpdateFramework(
        framework_id="f1", info=framework_info("f1", *roles), suppressed_roles=suppressed or []
    )


def test_a_framework_that_is_updated_while_inactive_gets_no_offer_before_it_is_activated() -> None:
    master, offer = one_offer()
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.send(freed(offer))
    assert master.send(returning(["b"])) == []
    assert master.tick() == []
    [again] = master.send(contract.ActivateFramework(framework_id="f1"))
    assert (again.role, again.resources) == ("b", WHOLE)


def test_roles_that_an_inactive_framework_suppresses_stay_so_when_it_is_activated() -> None:
    master, offer = one_offer()
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.send(freed(offer))
    master.send(returning(["a", "b"], suppressed=["a"]))
    [again] = master.send(contract.ActivateFramework(framework_id="f1"))
    assert again.role == "b"


def test_a_role_that_is_added_suppressed_gets_nothing_until_it_is_revived() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a", suppressed=["a"])
    master.send(returning(["a", "b"], suppressed=["a", "b"]))
    assert master.add_agent("s1", WHOLE) == []
    [offer] = master.send(contract.ReviveOffers(framework_id="f1", roles=["b"]))
    assert offer.role == "b"


def test_what_an_active_framework_adds_is_served_in_the_next_batch() -> None:
    master = BatchMaster()
    master.add_framework("f1")
    assert master.add_agent("s1", WHOLE) == []
    assert master.send(returning(["a"])) == []
    assert len(master.tick()) == 1


def test_deactivation_ends_filters_and_an_update_of_a_framework_does_not() -> None:
    master, offer = one_offer()
    master.recover(offer, refuse_seconds=DAY)
    master.send(returning(["a"]))
    assert master.tick() == []
    master.send(contract.DeactivateFramework(framework_id="f1"))
    assert told(master.send(contract.ActivateFramework(framework_id="f1"))) == {("f1", "s1", WHOLE)}


def test_suppression_outlives_deactivation() -> None:
    master, offer = one_offer()
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.send(freed(offer))
    master.send(contract.DeactivateFramework(framework_id="f1"))
    assert master.send(contract.ActivateFramework(framework_id="f1")) == []
    assert master.tick() == []


# Roles that a framework leaves while it holds something for them.


def left_with_leftovers() -> tuple[BatchMaster, Offered]:
    """Let f1 leave role `a`, for which it holds half of s1; the other half is free."""
    master, offer = one_offer()
    master.send(returning(["b"], suppressed=["b"]))
    master.recover(offer, "cpus:1;mem:512")
    return master, offer


def test_a_role_that_was_left_is_counted_but_not_offered_to() -> None:
    master, _ = left_with_leftovers()
    assert master.tick() == []
    assert share(master, "a") == 0.5
    master.add_framework("f2", "a")
    [offer] = master.add_agent("s2", WHOLE)
    assert (offer.framework, offer.role) == ("f2", "a")


def test_a_role_that_was_left_is_let_go_with_the_last_that_was_held_for_it() -> None:
    master, offer = left_with_leftovers()
    master.recover(offer, "cpus:1;mem:512")
    assert share(master, "a") == 0.0
    assert master.held() == {}
    master.send(returning(["a"]))
    [again] = master.tick()
    assert (again.role, again.resources) == ("a", WHOLE)


def test_a_framework_that_returns_to_a_role_finds_what_it_holds_there() -> None:
    master, _ = left_with_leftovers()
    master.send(returning(["a"]))
    assert share(master, "a") == 0.5
    assert told(master.tick()) == {("f1", "s1", "cpus:1;mem:512")}
    assert share(master, "a") == 1.0


def test_a_role_a_framework_never_had_is_counted_when_its_tasks_turn_up_there() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a", suppressed=["a"])
    master.add_agent("s1", WHOLE, {"f1": resources("cpus:1;mem:512", "old")})
    assert share(master, "old") == 0.5
    assert master.tick() == []
    master.send(
        contract.RecoverResources(
            framework_id="f1", agent_id="s1", resources=resources("cpus:1;mem:512", "old")
        )
    )
    assert share(master, "old") == 0.0


def test_what_a_framework_left_behind_ends_with_it() -> None:
    master, _ = left_with_leftovers()
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert master.held() == {}
    assert share(master, "a") == 0.0


# Inverse offers.


def asked_to_leave() -> tuple[BatchMaster, Offered]:
    """Start with an inverse offer that is outstanding: f1 is to leave s1."""
    master, offer = one_offer()
    master.send(
        contract.UpdateUnavailability(agent_id="s1", unavailability=unavailability(START_NS))
    )
    assert master.inverse_offers == [("f1", "s1")]
    master.tick()
    assert master.inverse_offers == [], "nobody is asked twice"
    return master, offer


def answer(status: "mesos.InverseOfferStatus.Status.ValueType") -> contract.UpdateInverseOffer:
    message = mesos.InverseOfferStatus(
        status=status,
        framework_id=mesos.FrameworkID(value="f1"),
        timestamp=mesos.TimeInfo(nanoseconds=START_NS),
    )
    return contract.UpdateInverseOffer(
        agent_id="s1", framework_id="f1", status=message.SerializeToString(), filters=b""
    )


def test_a_framework_that_was_deactivated_while_asked_is_asked_again_when_it_is_back() -> None:
    master, _ = asked_to_leave()
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.tick()
    assert master.inverse_offers == [], "the master would drop it without a word"
    master.send(contract.ActivateFramework(framework_id="f1"))
    assert master.inverse_offers == [("f1", "s1")]


def test_an_agent_that_was_deactivated_while_its_frameworks_were_asked_has_them_asked_again() -> (
    None
):
    master, _ = asked_to_leave()
    master.send(contract.DeactivateAgent(agent_id="s1"))
    master.send(contract.ActivateAgent(agent_id="s1"))
    master.tick()
    assert master.inverse_offers == [("f1", "s1")]


def test_a_withdrawn_inverse_offer_is_made_again() -> None:
    master, _ = asked_to_leave()
    master.send(contract.UpdateInverseOffer(agent_id="s1", framework_id="f1"))
    master.tick()
    assert master.inverse_offers == [("f1", "s1")]


def test_an_answer_is_told_and_spares_the_framework_for_its_filters_time() -> None:
    master, _ = asked_to_leave()
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.send(contract.GetInverseOfferStatuses())
    [state] = master.reply.statuses
    assert (state.agent_id, state.framework_id, state.outstanding) == ("s1", "f1", False)
    assert mesos.InverseOfferStatus.FromString(state.status).status == (
        mesos.InverseOfferStatus.DECLINE
    )
    master.tick(4.9)
    assert master.inverse_offers == []
    master.tick(0.2)
    assert master.inverse_offers == [("f1", "s1")]


@pytest.mark.parametrize(
    "call",
    [
        contract.ReviveOffers(framework_id="f1"),
        contract.UpdateUnavailability(agent_id="s1", unavailability=unavailability(START_NS + 1)),
        contract.UpdateAgent(agent_id="s1", info=agent_info("s1", rack="2")),
    ],
    ids=["revive", "another schedule", "other attributes"],
)
def test_what_ends_a_refusal_to_leave_has_the_framework_asked_at_once(call: object) -> None:
    master, _ = asked_to_leave()
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.send(call)
    assert master.inverse_offers == [("f1", "s1")]


def test_a_refusal_to_leave_outlives_a_snapshot_that_tells_the_same_schedule() -> None:
    for start, kept in ((START_NS, True), (START_NS + 1, False)):
        master, _ = asked_to_leave()
        master.send(answer(mesos.InverseOfferStatus.DECLINE))
        agent = agent_call("s1", WHOLE, {"f1": resources(WHOLE, "a")})
        agent.unavailability = unavailability(start)
        framework = contract.AddFramework(
            framework_id="f1", info=framework_info("f1", "a"), active=True
        )
        decisions = master.engine.restore(
            master.options,
            contract.Snapshot(
                sequence=master.sequence,
                time_ns=master.now_ns,
                agents=[agent],
                frameworks=[framework],
            ),
        )
        assert bool(decisions.inverse_offers) != kept


def test_who_was_away_or_is_gone_has_not_refused_to_leave() -> None:
    master, _ = asked_to_leave()
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.send(contract.ActivateFramework(framework_id="f1"))
    assert master.inverse_offers == [("f1", "s1")]
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.send(contract.RemoveFramework(framework_id="f1"))
    master.send(contract.GetInverseOfferStatuses())
    [state] = master.reply.statuses
    assert (state.agent_id, state.framework_id) == ("s1", "")


def test_nobody_is_asked_to_leave_an_agent_whose_schedule_is_gone() -> None:
    master, _ = asked_to_leave()
    master.send(contract.UpdateUnavailability(agent_id="s1"))
    master.send(answer(mesos.InverseOfferStatus.ACCEPT))
    master.send(contract.GetInverseOfferStatuses())
    assert master.inverse_offers == []
    assert list(master.reply.statuses) == []


# More given back than was held.


@pytest.mark.parametrize(
    ("framework", "text", "role", "left"),
    [
        ("f1", "cpus:9;mem:512", "a", "cpus:0"),
        ("f1", "cpus:1;mem:512;disk:7", "a", "cpus:0"),
        ("f1", "cpus:1;mem:512", "b", "cpus:1;mem:512"),
        ("f2", "cpus:1;mem:512", "a", "cpus:1;mem:512"),
        ("f1", "cpus(a):1;mem:512", "a", "cpus:1"),
    ],
    ids=["too much", "a name not held", "another role", "another framework", "another kind"],
)
def test_giving_back_more_than_is_held_frees_what_is_held_and_touches_nothing_else(
    framework: str, text: str, role: str, left: str
) -> None:
    master = BatchMaster()
    used = {
        "f1": resources("cpus:1;mem:512", "a"),
        "f3": resources("cpus:1;mem:256", "c"),
    }
    for name, own in (("f1", "a"), ("f2", "a"), ("f3", "c")):
        master.add_framework(name, own, suppressed=[own])
    master.add_agent("s1", "cpus:4;mem:2048", used)
    master.send(
        contract.RecoverResources(
            framework_id=framework, agent_id="s1", resources=resources(text, role)
        )
    )
    assert master.engine.statistics.clamped == 1
    free = master.engine.available()["s1"]
    held = sum(master.engine.holdings().values(), start=Quantities())
    assert (free + held).to_doubles() == {"cpus": 4.0, "mem": 2048.0}
    assert master.held().pop(("s1", "f3", "c")) == "cpus:1;mem:256"
    assert master.held().get(("s1", "f1", "a"), "cpus:0") == left


@pytest.mark.parametrize("back", [[b"rubbish"], resources("cpus:1", "a")], ids=["rubbish", "late"])
def test_what_frees_nothing_has_nobody_look_at_an_agent(back: list[bytes]) -> None:
    """An agent that turns active is offered at the next tick, whatever is said to come back."""
    master = MasterSide()
    master.add_framework("f2", "a")
    master.send(
        agent_call("s1", WHOLE),
        contract.DeactivateAgent(agent_id="s1"),
    )
    master.send(contract.ActivateAgent(agent_id="s1"))
    call = contract.RecoverResources(framework_id="f1", agent_id="s1", resources=back)
    assert master.send(call) == []
    assert told(master.tick()) == {("f2", "s1", WHOLE)}


# An operator's operation meets an offer that is on its way.


def operation() -> contract.UpdateAvailable:
    return contract.UpdateAvailable(
        agent_id="s1", operations=[reserve(resources("cpus(ops):2;mem(ops):1024"))]
    )


def test_an_operation_fails_when_its_resources_went_out_in_an_offer_meanwhile() -> None:
    master, offer = one_offer()
    master.add_framework("f2", "b")
    master.recover(offer, default_filter=True)
    [meanwhile] = master.tick()
    assert meanwhile.framework == "f2"
    before = master.held(), master.engine.available()
    master.send(operation())
    assert "s1" in master.reply.error
    assert (master.held(), master.engine.available()) == before
    master.recover(meanwhile, default_filter=True)
    master.send(operation())
    assert master.reply.error == "", "the operator may try again"


def test_what_is_taken_back_for_an_operation_in_the_same_message_cannot_be_offered_before_it() -> (
    None
):
    master, offer = one_offer()
    master.add_framework("f2", "ops")
    assert master.send(freed(offer), operation(), contract.Tick()) != []
    assert master.reply.error == ""
    [made] = [o for offers in master.decisions.offers for o in offers.offers]
    reservations = [
        mesos.Resource.FromString(data).reservations[-1].role for data in made.resources
    ]
    assert (made.role, reservations) == ("ops", ["ops", "ops"])


def test_an_operation_is_answered_under_the_number_of_its_call() -> None:
    master, offer = one_offer()
    master.send(freed(offer), operation(), operation())
    first, second = master.decisions.replies
    assert (first.sequence, first.error) == (master.sequence - 1, "")
    assert second.sequence == master.sequence
    assert "s1" in second.error, "the resources are reserved already"


def test_a_partly_free_agent_serves_an_operation_on_what_is_free_only() -> None:
    master, offer = one_offer()
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.recover(offer, "cpus:1")
    for text, works in (("cpus(ops):2", False), ("cpus(ops):1", True)):
        master.send(contract.UpdateAvailable(agent_id="s1", operations=[reserve(resources(text))]))
        assert (master.reply.error == "") is works
    assert master.held() == {("s1", "f1", "a"): "cpus:1;mem:1024"}


def test_a_refusal_to_leave_holds_to_the_end_of_its_last_instant() -> None:
    master, _ = asked_to_leave()
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.tick(5)
    assert master.inverse_offers == []
    master.now_ns += 1
    master.send(contract.Tick())
    assert master.inverse_offers == [("f1", "s1")]


def test_who_has_answered_without_a_filter_is_asked_again_at_once() -> None:
    master, _ = asked_to_leave()
    call = answer(mesos.InverseOfferStatus.DECLINE)
    call.ClearField("filters")
    master.send(call)
    master.send(contract.Tick())
    assert master.inverse_offers == [("f1", "s1")]


def test_a_schedule_that_cannot_be_read_is_told_until_one_can() -> None:
    master, _ = asked_to_leave()
    for said, topics in ((b"\xff", ["maintenance"]), (unavailability(START_NS), [])):
        master.send(contract.UpdateUnavailability(agent_id="s1", unavailability=said))
        assert [each.topic for each in master.engine.set_aside()] == topics
