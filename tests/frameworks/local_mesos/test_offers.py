"""Offers: admitted, made, answered, taken back (docs/explanation/mesos-semantics.md §5)."""

import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.clock import SECOND
from frameworks.local_mesos.master import ANSWER_TIMEOUT_S
from tests.frameworks.local_mesos.peers import Cluster, amounts_of

Capability = mesos.FrameworkInfo.Capability


def test_the_offers_of_a_cycle_reach_a_framework_in_a_single_event() -> None:
    cluster = Cluster(agents=3)
    scheduler = cluster.subscribe()
    cluster.decide(cluster.book.offer_all())
    [event] = scheduler.of(v1.Event.OFFERS)
    assert [offer.agent_id.value for offer in event.offers.offers] == [a.id for a in cluster.agents]
    assert [offer.hostname for offer in event.offers.offers] == ["agent-0", "agent-1", "agent-2"]


def test_a_declined_offer_is_recovered_with_the_given_filters() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offer = cluster.offer(scheduler)
    decline = v1.Call.Decline(offer_ids=[offer.id], filters=mesos.Filters(refuse_seconds=30))
    cluster.call(scheduler, v1.Call.DECLINE, decline=decline)
    call = cluster.book.last("recover_resources").recover_resources
    assert mesos.Filters.FromString(call.filters).refuse_seconds == 30
    assert not cluster.master.offers


def test_only_unanswered_offers_are_rescinded_after_the_offer_timeout() -> None:
    cluster = Cluster(agents=2, offer_timeout=30.0)
    scheduler = cluster.subscribe()
    cluster.decide(cluster.book.offer_all())
    [event] = scheduler.of(v1.Event.OFFERS)
    kept, answered = event.offers.offers
    cluster.call(scheduler, v1.Call.DECLINE, decline=v1.Call.Decline(offer_ids=[answered.id]))
    cluster.clock.advance(30 * SECOND - 1)
    assert list(cluster.master.offers) == [kept.id.value]
    cluster.clock.advance(1)
    assert not cluster.master.offers
    [rescinded] = scheduler.of(v1.Event.RESCIND)
    assert rescinded.rescind.offer_id == kept.id
    call = cluster.book.last("recover_resources").recover_resources
    assert not call.HasField("filters")


def test_the_clock_waits_for_answers_except_of_frameworks_that_keep_offers() -> None:
    cluster = Cluster(agents=2)
    scheduler = cluster.subscribe()
    awaiting = [cluster.master.awaiting]
    cluster.decide(cluster.book.offer_all())
    [event] = scheduler.of(v1.Event.OFFERS)
    answered, kept = event.offers.offers
    cluster.call(scheduler, v1.Call.DECLINE, decline=v1.Call.Decline(offer_ids=[answered.id]))
    awaiting.append(cluster.master.awaiting)
    cluster.clock.advance(round(ANSWER_TIMEOUT_S * SECOND))
    assert list(cluster.master.offers) == [kept.id.value]
    awaiting.append(cluster.master.awaiting)
    assert awaiting == [False, True, False]


def test_the_clock_waits_without_limit_for_answers_of_expected_frameworks() -> None:
    cluster = Cluster(agents=2)
    cluster.master.expect("expected", 0.0)
    expected, another = (cluster.subscribe(name=name) for name in ("expected", "another"))
    answered = cluster.offer(expected, agent=0)
    cluster.offer(another, agent=1)
    cluster.advance(3600)
    owed = [cluster.master.answer_due]
    cluster.call(expected, v1.Call.DECLINE, decline=v1.Call.Decline(offer_ids=[answered.id]))
    owed.append(cluster.master.answer_due)
    assert owed == [True, False], "one keeps its offer, which nobody waits for"


def test_offers_from_before_the_removal_of_an_agent_are_void_after_its_return() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    (agent,) = cluster.agents
    on_its_way = cluster.book.offer_all()
    cluster.master.remove_agent(agent.id)
    cluster.decide(on_its_way)
    cluster.master.add_agent(agent.hostname, agent.total, agent_id=agent.id)
    decisions = cluster.book.offer_all()
    assert decisions.offers
    cluster.call(scheduler, v1.Call.TEARDOWN)
    cluster.decide(decisions)
    assert not scheduler.of(v1.Event.OFFERS)
    assert cluster.book.free(agent.id) == cluster.book.totals[agent.id]


def test_without_filters_mesos_s_default_is_given_which_is_five_seconds() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offer = cluster.offer(scheduler)
    cluster.call(scheduler, v1.Call.DECLINE, decline=v1.Call.Decline(offer_ids=[offer.id]))
    call = cluster.book.last("recover_resources").recover_resources
    assert call.HasField("filters")
    assert mesos.Filters.FromString(call.filters).refuse_seconds == 5


def test_the_unused_part_of_an_accept_is_recovered_between_pause_and_resume() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offer = cluster.offer(scheduler)
    before = cluster.book.sequence
    cluster.accept(scheduler, [offer], cluster.task(), refuse_seconds=7)
    assert cluster.book.kinds(since=before) == ["pause", "recover_resources", "resume"]
    call = cluster.book.last("recover_resources").recover_resources
    assert amounts_of(call.resources, "*") == {
        ("cpus", (), None): 3000,
        ("mem", (), None): 5120_000,
    }
    assert mesos.Filters.FromString(call.filters).refuse_seconds == 7


def test_offers_of_the_same_agent_can_be_accepted_together() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offers = [
        cluster.offer(scheduler, "cpus:1;mem:512"),
        cluster.offer(scheduler, "cpus:2;mem:512"),
    ]
    cluster.accept(scheduler, offers, cluster.task(resources="cpus:3;mem:1024"))
    assert scheduler.states == ["STARTING"]


@pytest.mark.parametrize(
    ("capabilities", "state"),
    [((), v1.TASK_LOST), ((Capability.PARTITION_AWARE,), v1.TASK_DROPPED)],
)
@pytest.mark.parametrize("mistake", ["stale", "twice", "none", "two agents", "another's"])
def test_an_accept_with_an_invalid_offer_launches_nothing_and_returns_its_valid_offers(
    mistake: str, capabilities: tuple[Capability.Type.ValueType, ...], state: v1.TaskState.ValueType
) -> None:
    cluster = Cluster(agents=2)
    scheduler = cluster.subscribe(capabilities=capabilities)
    rival = cluster.subscribe()
    second_offer = cluster.offer(rival, "cpus:1;mem:64")
    mine, second = cluster.offer(scheduler, agent=0), cluster.offer(scheduler, agent=1)
    offers = {
        "stale": [mine, v1.Offer(id=v1.OfferID(value="gone"))],
        "twice": [mine, mine],
        "none": [],
        "two agents": [mine, second],
        "another's": [mine, second_offer],
    }[mistake]
    before = cluster.book.sequence
    cluster.accept(scheduler, offers, cluster.task("t1"), cluster.task("t2"))
    assert [(u.task_id.value, u.state) for u in scheduler.updates] == [("t1", state), ("t2", state)]
    for status in scheduler.updates:
        assert status.reason == v1.TaskStatus.REASON_INVALID_OFFERS
        assert status.source == v1.TaskStatus.SOURCE_MASTER
        assert not status.HasField("uuid")
    assert not cluster.framework(scheduler).tasks
    returned = [e.recover_resources for e in cluster.book.log if e.sequence > before]
    assert len(returned) == len({o.id.value for o in offers} - {"gone", second_offer.id.value})
    assert not any(call.HasField("filters") for call in returned)
    assert not any(
        offer.id.value in cluster.master.offers for offer in (*offers,) if offer != second_offer
    )


def test_offers_of_two_roles_cannot_be_accepted_together() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(roles=["a", "b"])
    first = cluster.offer(scheduler, "cpus:1;mem:512")
    cluster.call(scheduler, v1.Call.SUPPRESS, suppress=v1.Call.Roles(roles=["a"]))
    second = cluster.offer(scheduler, "cpus:1;mem:512")
    assert (first.allocation_info.role, second.allocation_info.role) == ("a", "b")
    cluster.accept(scheduler, [first, second], cluster.task())
    assert scheduler.states == ["LOST"]


def test_old_schedulers_see_no_allocation_and_the_old_form_of_reservations() -> None:
    cluster = Cluster(resources="cpus(eng):1;cpus:3;mem:6144")
    scheduler = cluster.subscribe(role="eng")
    offer = cluster.offer(scheduler)
    assert not offer.HasField("allocation_info")
    assert not any(r.HasField("allocation_info") or r.reservations for r in offer.resources)
    assert {(r.name, r.role, r.scalar.value) for r in offer.resources} == {
        ("cpus", "eng", 1),
        ("cpus", "*", 3),
        ("mem", "*", 6144),
    }


def test_new_schedulers_see_the_allocation_and_the_stack_of_reservations() -> None:
    cluster = Cluster(resources="cpus(eng):1;mem:6144")
    scheduler = cluster.subscribe(roles=["eng"], capabilities=[Capability.RESERVATION_REFINEMENT])
    offer = cluster.offer(scheduler)
    assert offer.allocation_info.role == "eng"
    assert {r.allocation_info.role for r in offer.resources} == {"eng"}
    assert not any(r.HasField("role") for r in offer.resources)
    assert {(r.name, tuple(s.role for s in r.reservations)) for r in offer.resources} == {
        ("cpus", ("eng",)),
        ("mem", ()),
    }


def _rejected(cluster: Cluster, decisions: contract.Decisions) -> str:
    """Return why an offer was rejected; frameworks are not notified."""
    before = cluster.book.sequence
    offers = dict(cluster.master.offers)
    cluster.decide(decisions)
    assert cluster.book.kinds(since=before) == ["reject_offer"]
    assert cluster.master.offers == offers
    return cluster.book.last("reject_offer").reject_offer.reason


def test_an_offer_to_a_framework_that_is_not_connected_is_rejected() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(failover_timeout=60)
    decisions = cluster.book.offer_all()
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    assert "not connected" in _rejected(cluster, decisions)


def test_an_offer_for_a_role_that_its_framework_has_left_is_rejected() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(roles=["a", "b"])
    decisions = cluster.book.offer_all()
    cluster.subscribe(scheduler.framework_id, roles=["b"])
    assert "role 'a'" in _rejected(cluster, decisions)


def test_an_offer_on_an_agent_that_is_not_connected_is_rejected() -> None:
    cluster = Cluster()
    cluster.subscribe()
    decisions = cluster.book.offer_all()
    cluster.master.disconnect_agent(cluster.agents[0].id)
    assert "agent" in _rejected(cluster, decisions)


def test_an_offer_of_more_than_an_agent_has_free_is_rejected() -> None:
    cluster = Cluster()
    cluster.subscribe()
    decisions = cluster.book.offer_all()
    cluster.decide(decisions)
    [offers] = decisions.offers
    cluster.book.offer(
        offers.framework_id,
        "*",
        [(cluster.agents[0].id, cluster.book.totals[cluster.agents[0].id])],
    )
    assert "free" in _rejected(cluster, decisions)


@pytest.mark.parametrize(
    ("tamper", "complaint"),
    [
        (lambda r: r.ClearField("allocation_info"), "allocated"),
        (lambda r: setattr(r.allocation_info, "role", "other"), "allocated"),
        (lambda r: setattr(r, "role", "*"), "deprecated"),
        (lambda r: setattr(r.scalar, "value", -1.0), "invalid"),
        (lambda r: setattr(r.scalar, "value", float("nan")), "invalid"),
        (lambda r: r.ClearField("scalar"), "invalid"),
        (lambda r: setattr(r, "type", mesos.Value.TEXT), "invalid"),
    ],
)
def test_an_offer_of_resources_that_would_harm_a_master_is_rejected(
    tamper: object, complaint: str
) -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    resource = mesos.Resource(name="cpus", type=mesos.Value.SCALAR)
    resource.scalar.value = 1
    resource.allocation_info.role = "*"
    assert callable(tamper)
    tamper(resource)
    offers = contract.Offers(framework_id=scheduler.framework_id)
    offers.offers.add(
        role="*", agent_id=cluster.agents[0].id, resources=[resource.SerializePartialToString()]
    )
    before = cluster.book.sequence
    events: list[contract.Event] = []
    cluster.book.apply = events.append  # type: ignore[assignment,method-assign]  # not booked by the book
    cluster.master.decide(contract.Decisions(applied_sequence=before, offers=[offers]))
    assert [event.WhichOneof("call") for event in events] == ["reject_offer"]
    assert complaint in events[0].reject_offer.reason
    assert not scheduler.offers


def test_an_offer_that_is_not_even_a_resource_is_rejected() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offers = contract.Offers(framework_id=scheduler.framework_id)
    offers.offers.add(role="*", agent_id=cluster.agents[0].id, resources=[b"\xff"])
    events: list[contract.Event] = []
    cluster.book.apply = events.append  # type: ignore[assignment,method-assign]  # not booked by the book
    cluster.master.decide(
        contract.Decisions(offers=[offers], applied_sequence=cluster.book.sequence)
    )
    assert [event.WhichOneof("call") for event in events] == ["reject_offer"]


def test_an_offer_of_an_earlier_registration_of_the_agent_is_dropped_silently() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    late = cluster.book.offer_all()
    [agent] = cluster.agents
    cluster.master.remove_agent(agent.id)
    cluster.master.add_agent(agent.hostname, agent.total, agent_id=agent.id)
    before = cluster.book.sequence
    cluster.decide(late)
    assert cluster.book.kinds(since=before) == []
    assert not scheduler.offers
    cluster.decide(cluster.book.offer_all())
    assert len(scheduler.offers) == 1


def test_a_rescinded_offer_is_taken_back_from_the_scheduler() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offer = cluster.offer(scheduler)
    cluster.master.disconnect_agent(cluster.agents[0].id)
    [event] = scheduler.of(v1.Event.RESCIND)
    assert event.rescind.offer_id == offer.id
    assert cluster.book.kinds()[-2:] == ["deactivate_agent", "recover_resources"]
    assert not cluster.book.last("recover_resources").recover_resources.HasField("filters")


def test_revive_and_suppress_name_roles_and_a_wrong_role_invalidates_the_call() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(roles=["a", "b"])
    framework_id = scheduler.framework_id
    cluster.call(scheduler, v1.Call.SUPPRESS, suppress=v1.Call.Roles(roles=["a"]))
    assert cluster.book.suppressed[framework_id] == {"a"}
    cluster.call(scheduler, v1.Call.SUPPRESS)
    assert cluster.book.suppressed[framework_id] == {"a", "b"}
    cluster.call(scheduler, v1.Call.REVIVE, revive=v1.Call.Roles(roles=["a", "c"]))
    assert cluster.book.suppressed[framework_id] == {"a", "b"}
    cluster.call(scheduler, v1.Call.REVIVE, revive=v1.Call.Roles(roles=["b"]))
    assert cluster.book.suppressed[framework_id] == {"a"}
    cluster.call(scheduler, v1.Call.SUPPRESS, suppress=v1.Call.Roles(roles=["b", "nowhere"]))
    assert cluster.book.suppressed[framework_id] == {"a"}


def test_a_resource_request_reaches_the_allocator_unchanged() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    request = v1.Request(agent_id=v1.AgentID(value="S1"), resources=cluster.task().resources)
    cluster.call(scheduler, v1.Call.REQUEST, request=v1.Call.Requests(requests=[request]))
    [data] = cluster.book.last("request_resources").request_resources.requests
    heard = mesos.Request.FromString(data)
    assert heard.slave_id.value == "S1"
    assert list(heard.resources) == list(request.resources)
