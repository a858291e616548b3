"""Agents and frameworks that leave, return or change while they have offers or allocations."""

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
    """Start with one agent; the whole agent is offered to f1 in role `a`."""
    master = BatchMaster()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", WHOLE)
    return master, offer


def share(master: BatchMaster, user: str) -> float:
    return master.engine.pool.standing(user).share


# Agents that are removed, and recoveries that follow.


def test_removing_an_agent_frees_its_resources_and_a_late_recovery_changes_nothing() -> None:
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


def test_removing_a_framework_frees_its_allocation_and_a_late_recovery_changes_nothing() -> None:
    master, offer = one_offer()
    master.add_framework("f2", "a")
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert told(master.tick()) == {("f2", "s1", WHOLE)}
    before = master.held()
    master.recover(offer, refuse_seconds=DAY)
    assert master.held() == before, "the allocation of another framework is unchanged"
    assert master.engine.filters == 0


def test_an_agent_that_comes_back_under_its_id_is_a_new_agent() -> None:
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


def test_an_agent_removed_and_added_in_one_message_has_only_the_resources_it_reports() -> None:
    master, _ = one_offer()
    used = {"f1": resources("cpus:0.5;mem:256", "a")}
    offers = master.send(contract.RemoveAgent(agent_id="s1"), agent_call("s1", WHOLE, used))
    assert told(offers) == {("f1", "s1", "cpus:1.5;mem:768")}


def test_an_unreachable_agent_is_offered_in_the_next_batch_after_its_return() -> None:
    master, offer = one_offer()
    master.send(contract.DeactivateAgent(agent_id="s1"))
    master.send(freed(offer))
    assert master.tick() == []
    assert share(master, "a") == 0.0
    assert master.send(contract.ActivateAgent(agent_id="s1")) == []
    assert told(master.tick()) == {("f1", "s1", WHOLE)}


# Frameworks that change while they are inactive.


def returning(roles: list[str], suppressed: list[str] | None = None) -> contract.UpdateFramework:
    return contract.UpdateFramework(
        framework_id="f1", info=framework_info("f1", *roles), suppressed_roles=suppressed or []
    )


def test_a_framework_updated_while_inactive_gets_no_offer_before_activation() -> None:
    master, offer = one_offer()
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.send(freed(offer))
    assert master.send(returning(["b"])) == []
    assert master.tick() == []
    [next_offer] = master.send(contract.ActivateFramework(framework_id="f1"))
    assert (next_offer.role, next_offer.resources) == ("b", WHOLE)


def test_roles_that_an_inactive_framework_suppresses_stay_suppressed_after_activation() -> None:
    master, offer = one_offer()
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.send(freed(offer))
    master.send(returning(["a", "b"], suppressed=["a"]))
    [next_offer] = master.send(contract.ActivateFramework(framework_id="f1"))
    assert next_offer.role == "b"


def test_a_role_that_is_added_suppressed_gets_no_offers_until_it_is_revived() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a", suppressed=["a"])
    master.send(returning(["a", "b"], suppressed=["a", "b"]))
    assert master.add_agent("s1", WHOLE) == []
    [offer] = master.send(contract.ReviveOffers(framework_id="f1", roles=["b"]))
    assert offer.role == "b"


def test_a_role_that_an_active_framework_adds_gets_offers_in_the_next_batch() -> None:
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


# Roles that a framework leaves while it holds resources in them.


def left_with_leftovers() -> tuple[BatchMaster, Offered]:
    """Let f1 leave role `a` in which it holds half of s1; the other half is free."""
    master, offer = one_offer()
    master.send(returning(["b"], suppressed=["b"]))
    master.recover(offer, "cpus:1;mem:512")
    return master, offer


def test_a_left_role_is_counted_but_gets_no_offers() -> None:
    master, _ = left_with_leftovers()
    assert master.tick() == []
    assert share(master, "a") == 0.5
    master.add_framework("f2", "a")
    [offer] = master.add_agent("s2", WHOLE)
    assert (offer.framework, offer.role) == ("f2", "a")


def test_a_left_role_is_forgotten_when_its_last_resources_are_recovered() -> None:
    master, offer = left_with_leftovers()
    master.recover(offer, "cpus:1;mem:512")
    assert share(master, "a") == 0.0
    assert master.held() == {}
    master.send(returning(["a"]))
    [next_offer] = master.tick()
    assert (next_offer.role, next_offer.resources) == ("a", WHOLE)


def test_a_framework_that_returns_to_a_role_keeps_its_allocation_there() -> None:
    master, _ = left_with_leftovers()
    master.send(returning(["a"]))
    assert share(master, "a") == 0.5
    assert told(master.tick()) == {("f1", "s1", "cpus:1;mem:512")}
    assert share(master, "a") == 1.0


def test_resources_in_a_role_the_framework_never_had_are_counted() -> None:
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


def test_an_allocation_in_a_left_role_ends_with_the_framework() -> None:
    master, _ = left_with_leftovers()
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert master.held() == {}
    assert share(master, "a") == 0.0


# Inverse offers.


def asked_to_leave() -> tuple[BatchMaster, Offered]:
    """Start with an outstanding inverse offer: f1 is asked to leave s1."""
    master, offer = one_offer()
    master.send(
        contract.UpdateUnavailability(agent_id="s1", unavailability=unavailability(START_NS))
    )
    assert master.inverse_offers == [("f1", "s1")]
    master.tick()
    assert master.inverse_offers == [], "an inverse offer is not repeated"
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


def test_a_framework_deactivated_with_an_inverse_offer_gets_the_inverse_offer_again_later() -> None:
    master, _ = asked_to_leave()
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.tick()
    assert master.inverse_offers == [], "the master would drop the inverse offer silently"
    master.send(contract.ActivateFramework(framework_id="f1"))
    assert master.inverse_offers == [("f1", "s1")]


def test_frameworks_of_a_deactivated_agent_get_their_inverse_offers_again() -> None:
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


def test_an_inverse_offer_answer_is_shown_and_filters_further_inverse_offers() -> None:
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
def test_a_call_that_ends_an_inverse_offer_filter_causes_an_inverse_offer_at_once(
    call: object,
) -> None:
    master, _ = asked_to_leave()
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.send(call)
    assert master.inverse_offers == [("f1", "s1")]


def test_a_declined_inverse_offer_stays_declined_over_a_snapshot_with_the_same_schedule() -> None:
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


def test_a_framework_that_was_inactive_or_removed_has_no_inverse_offer_filter() -> None:
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


def test_no_inverse_offers_are_made_for_an_agent_without_a_schedule() -> None:
    master, _ = asked_to_leave()
    master.send(contract.UpdateUnavailability(agent_id="s1"))
    master.send(answer(mesos.InverseOfferStatus.ACCEPT))
    master.send(contract.GetInverseOfferStatuses())
    assert master.inverse_offers == []
    assert list(master.reply.statuses) == []


# Recovery of more than the allocation.


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
def test_recovering_more_than_the_allocation_frees_only_the_allocation(
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
    held = sum(master.engine.allocations().values(), start=Quantities())
    assert (free + held).to_doubles() == {"cpus": 4.0, "mem": 2048.0}
    assert master.held().pop(("s1", "f3", "c")) == "cpus:1;mem:256"
    assert master.held().get(("s1", "f1", "a"), "cpus:0") == left


@pytest.mark.parametrize("back", [[b"rubbish"], resources("cpus:1", "a")], ids=["rubbish", "late"])
def test_a_recovery_that_frees_nothing_makes_no_agent_a_candidate(back: list[bytes]) -> None:
    """A newly active agent is offered only at the next tick, whatever the recovery names."""
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


# An operator's operation conflicts with an outstanding offer.


def operation() -> contract.UpdateAvailable:
    return contract.UpdateAvailable(
        agent_id="s1", operations=[reserve(resources("cpus(ops):2;mem(ops):1024"))]
    )


def test_an_operation_fails_if_its_resources_were_offered_meanwhile() -> None:
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


def test_resources_rescinded_for_an_operation_are_not_offered_before_that_operation() -> None:
    master, offer = one_offer()
    master.add_framework("f2", "ops")
    assert master.send(freed(offer), operation(), contract.Tick()) != []
    assert master.reply.error == ""
    [made] = [o for offers in master.decisions.offers for o in offers.offers]
    reservations = [
        mesos.Resource.FromString(data).reservations[-1].role for data in made.resources
    ]
    assert (made.role, reservations) == ("ops", ["ops", "ops"])


def test_an_operation_is_answered_with_the_number_of_its_call() -> None:
    master, offer = one_offer()
    master.send(freed(offer), operation(), operation())
    first, second = master.decisions.replies
    assert (first.sequence, first.error) == (master.sequence - 1, "")
    assert second.sequence == master.sequence
    assert "s1" in second.error, "the resources are reserved already"


def test_an_operation_on_a_partly_free_agent_can_use_free_resources_only() -> None:
    master, offer = one_offer()
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.recover(offer, "cpus:1")
    for text, works in (("cpus(ops):2", False), ("cpus(ops):1", True)):
        master.send(contract.UpdateAvailable(agent_id="s1", operations=[reserve(resources(text))]))
        assert (master.reply.error == "") is works
    assert master.held() == {("s1", "f1", "a"): "cpus:1;mem:1024"}


def test_an_inverse_offer_filter_lasts_to_the_end_of_its_last_instant() -> None:
    master, _ = asked_to_leave()
    master.send(answer(mesos.InverseOfferStatus.DECLINE))
    master.tick(5)
    assert master.inverse_offers == []
    master.now_ns += 1
    master.send(contract.Tick())
    assert master.inverse_offers == [("f1", "s1")]


def test_a_framework_that_answers_without_a_filter_gets_an_inverse_offer_at_once() -> None:
    master, _ = asked_to_leave()
    call = answer(mesos.InverseOfferStatus.DECLINE)
    call.ClearField("filters")
    master.send(call)
    master.send(contract.Tick())
    assert master.inverse_offers == [("f1", "s1")]


def test_an_unreadable_schedule_stays_reported_until_a_readable_one_replaces_it() -> None:
    master, _ = asked_to_leave()
    for data, topics in ((b"\xff", ["maintenance"]), (unavailability(START_NS), [])):
        master.send(contract.UpdateUnavailability(agent_id="s1", unavailability=data))
        assert [
            rejected_input.topic for rejected_input in master.engine.rejected_inputs()
        ] == topics
