"""Operators see shares, ranks and the reasons for them, and operators' orders take effect."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminStub
from allocator.fairness import policies
from allocator.service.operators.orders import MOST_BOOSTS, require_few_boosts
from allocator.users.orders import InvalidOrder
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.served import Stream, hello, service, wait_for

SETTINGS = """
[policy]
name = "sdrf"
delta = 0.99
[offers.demands]
"fb of the tests" = "cpus:0.5;mem:256"
[[users.declared]]
name = "owing"
commitment = 0.5
[[users.declared]]
name = "small"
[[users.declared]]
name = "greedy"
"""
DOCS = Path(__file__).parents[3] / "docs"
HALVING = 68.9675639  # seconds; the half-life at delta 0.99 per second


class Operator:
    """An operator's client, and the stream of the master."""

    def __init__(self, address: str, stream: Stream) -> None:
        self.channel = grpc.insecure_channel(address)
        self.stub = AdminStub(self.channel)
        self.stream = stream

    def shares(self) -> dict[str, admin.UserShare]:
        return {row.user: row for row in self.stub.Shares(admin.SharesRequest()).users}

    def explain(self, user: str) -> admin.Explanation:
        return self.stub.Explain(admin.ExplainRequest(user=user))

    def set_weight(self, user: str, weight: float | None) -> admin.OrderReply:
        change = operator.SetWeight(user=user, weight=weight)
        return self.stub.Order(operator.Order(set_weight=change))

    def reset(self, *users: str) -> admin.OrderReply:
        change = operator.ResetCommitments(users=users)
        return self.stub.Order(operator.Order(reset_commitments=change))

    def wait(self, seconds: float) -> None:
        self.stream.now_ns += round(seconds * SECOND)
        self.stream.tell(tick=contract.Tick())


def cluster() -> dict[str, object]:
    """A full cluster: small holds a quarter, greedy the rest; gpus do not count in shares."""
    return {
        "agents": [
            agent_call(
                "s1",
                "cpus:4;mem:4096;gpus:2",
                {
                    "fb": resources("cpus:1;mem:1024;gpus:2", "small"),
                    "fc": resources("cpus:3;mem:3072", "greedy"),
                },
            )
        ],
        "frameworks": [
            contract.AddFramework(
                framework_id=framework, info=framework_info(framework, role), active=True
            )
            for framework, role in (("fa", "owing"), ("fb", "small"), ("fc", "greedy"))
        ],
    }


@contextmanager
def operated(
    folder: Path, settings: str = SETTINGS, *, reports_used: bool = False
) -> Iterator[Operator]:
    with service(folder, settings) as running:
        stream = Stream(running.address)
        greeting = hello()
        greeting.hello.options.tells_running = reports_used
        greeting.hello.options.fairness_excluded.append("gpus")
        stream.say(greeting)
        assert stream.hear().WhichOneof("message") == "welcome"
        stream.resynchronise(**cluster())
        at_work = Operator(running.address, stream)
        yield at_work
        at_work.channel.close()
        stream.close()


@pytest.fixture
def ops(tmp_path: Path) -> Iterator[Operator]:
    with operated(tmp_path) as at_work:
        yield at_work


def refusal(call: object, *arguments: object) -> tuple[grpc.StatusCode, str]:
    assert callable(call)
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments)
    error: Any = refused.value  # also a grpc.Call, which the type does not say
    return error.code(), error.details()


def test_shares_contain_allocation_commitment_and_shortfall_of_each_user(ops: Operator) -> None:
    ops.wait(50)
    reply = ops.stub.Shares(admin.SharesRequest())
    assert [row.user for row in reply.users] == ["small", "owing", "greedy"]
    assert [row.rank for row in reply.users] == [1, 2, 3]
    small, owing, greedy = reply.users
    assert dict(small.allocation) == {"cpus": 1.0, "mem": 1024.0, "gpus": 2.0}
    assert (small.dominant_share, small.dominant_commitment, small.active) == (0.25, 0.0, True)
    assert small.entitlement == pytest.approx(1 / 3)
    assert small.shortfall == pytest.approx(1 / 3 - 0.25)
    assert [dict(demand.amounts) for demand in small.demands] == [{"cpus": 0.5, "mem": 256.0}]
    assert owing.priority == owing.dominant_commitment == pytest.approx(0.5 * 0.99**50)
    assert owing.dominant_resource == ""
    assert owing.shortfall == pytest.approx(1 / 3)
    assert greedy.shortfall == 0.0
    assert greedy.commitments["cpus"] == pytest.approx((0.75 - 1 / 3) * (1 - 0.99**50))
    assert reply.cluster.time == ops.stream.now_ns / SECOND
    assert (reply.cluster.connected, reply.cluster.agents, reply.cluster.frameworks) == (True, 1, 3)
    assert dict(reply.cluster.capacity) == dict(reply.cluster.allocation)


def test_an_excluded_resource_is_shown_but_never_dominant(ops: Operator) -> None:
    small = ops.shares()["small"]
    assert (small.shares["gpus"], sorted(small.counted)) == (1.0, ["cpus", "mem"])
    assert (small.dominant_resource in small.counted, small.dominant_share) == (True, 0.25)


def test_the_parts_of_an_explanation_add_up_to_the_priority(ops: Operator) -> None:
    ops.set_weight("greedy", 2.0)
    ops.wait(20)
    for user, row in ops.shares().items():
        explanation = ops.explain(user)
        parts = explanation.priority
        assert (parts.held + parts.owed) / parts.weight == pytest.approx(row.priority)
        assert explanation.priority_without_debt == pytest.approx(parts.held / parts.weight)
        assert explanation.user == row
        assert user in explanation.words[0]


def test_an_explanation_names_the_neighbours_by_rank(ops: Operator) -> None:
    explanation = ops.explain("owing")
    assert (explanation.turn, explanation.ahead.user, explanation.behind.user) == (
        2,
        "small",
        "greedy",
    )
    assert explanation.ahead.distance == pytest.approx(0.25)
    assert explanation.rank_without_debt == 1
    assert any("Without its commitment" in words for words in explanation.words)
    assert not any("Without its commitment" in words for words in ops.explain("greedy").words)
    first, last = ops.explain("small"), ops.explain("greedy")
    assert (first.turn, first.HasField("ahead")) == (1, False)
    assert (last.turn, last.HasField("behind")) == (3, False)


def test_users_change_ranks_at_the_predicted_time(ops: Operator) -> None:
    ops.wait(10)
    (foretold,) = ops.explain("owing").passings
    assert (foretold.passing, foretold.passed) == ("owing", "small")
    assert foretold.after == pytest.approx(HALVING - 10, rel=1e-6)
    assert list(ops.explain("small").passings) == [foretold]
    assert ops.stub.Shares(admin.SharesRequest()).cluster.next_passing == foretold
    assert any(
        "may overtake small in 59.0 s" in sentence for sentence in ops.explain("owing").words
    )
    ops.wait(foretold.after - 0.01)
    assert ops.shares()["small"].rank == 1
    ops.wait(0.02)
    assert ops.shares()["owing"].rank == 1


def test_a_commitment_halves_at_the_predicted_time(ops: Operator) -> None:
    ops.wait(10)
    before = ops.shares()["owing"].dominant_commitment
    explanation = ops.explain("owing")
    assert explanation.halved_after == pytest.approx(HALVING)
    ops.wait(explanation.halved_after)
    assert ops.shares()["owing"].dominant_commitment == pytest.approx(before / 2)
    greedy = ops.explain("greedy")
    assert not greedy.HasField("halved_after"), "the commitment of greedy keeps growing"
    assert "will not fall to half" in " ".join(greedy.words)


def test_an_explanation_says_why_a_user_gets_no_offers(ops: Operator) -> None:
    assert not ops.explain("small").no_offers
    ops.stream.tell(suppress_offers=contract.SuppressOffers(framework_id="fb"))
    explanation = ops.explain("small")
    assert "suppressed" in explanation.no_offers
    assert (explanation.turn, ops.shares()["small"].shortfall) == (0, 0.0)
    ops.stream.tell(remove_framework=contract.RemoveFramework(framework_id="fb"))
    assert "no framework is registered in the role small now" in ops.explain("small").no_offers


def test_an_explanation_tells_unanswered_offers_from_used_resources(tmp_path: Path) -> None:
    with operated(tmp_path, reports_used=True) as ops:
        words = " ".join(ops.explain("small").words)
        named = "greedy holds 75.0% of cpus in offers that it has not answered, more than any other"
        assert named in words
        assert "It has not answered offers of 25.0% of cpus, which count for its share." in words
        for framework, role in (("fb", "small"), ("fc", "greedy")):
            held = "cpus:1;mem:1024" if role == "small" else "cpus:3;mem:3072"
            started = contract.TransitionOfferedToAllocated(
                framework_id=framework, agent_id="s1", resources=resources(held, role)
            )
            ops.stream.tell(transition_offered_to_allocated=started)
        assert "not answered" not in " ".join(ops.explain("small").words)


def test_an_explanation_names_at_most_three_holders_of_the_lacking_resource(
    ops: Operator,
) -> None:
    held = "Users hold 4 of the cluster's 4 cpus: greedy 3, small 1."
    assert held in ops.explain("owing").words, "without a demand, the fullest resource counts"
    assert held in ops.explain("small").words, "small is full, and the demand names cpus"
    given = dict(zip("vwxyz", (7, 6, 3, 2, 1), strict=True))
    holdings = {f"f{user}": resources(f"cpus:{n};mem:64", user) for user, n in given.items()}
    ops.stream.resynchronise(
        agents=[agent_call("s1", "cpus:19;mem:4096", holdings)],
        frameworks=[
            contract.AddFramework(
                framework_id=name, info=framework_info(name, name[1:]), active=True
            )
            for name in holdings
        ],
    )
    held = "Users hold 19 of the cluster's 19 cpus: v 7, w 6, x 3, 2 other users 3."
    assert held in ops.explain("z").words
    for idle in ("fw", "fy"):
        ops.stream.tell(deactivate_framework=contract.DeactivateFramework(framework_id=idle))
    held = "Users hold 19 of the cluster's 19 cpus: v 7, w 6 (wants no offers), x 3, 2 other"
    assert held in " ".join(ops.explain("z").words)
    ops.stream.tell(suppress_offers=contract.SuppressOffers(framework_id="fz"))
    assert "Users hold" not in " ".join(ops.explain("z").words), "z does not wait for resources"


def test_an_explanation_names_the_holders_of_the_scarcest_resource_that_a_task_lacks(
    ops: Operator,
) -> None:
    agents = [
        agent_call(
            "gpu",
            "cpus:16;mem:1024;gpus:4",
            {"fvision": resources("cpus:16;mem:512;gpus:4", "vision")},
        ),
        agent_call("cpu", "cpus:16;mem:1024", {"fweb": resources("cpus:16;mem:1024", "web")}),
    ]
    gpu = (mesos.FrameworkInfo.Capability.GPU_RESOURCES,)
    needs = mesos.FrameworkInfo.FromString(framework_info("fnet", "small", capabilities=gpu))
    needs.labels.labels.add(key="longshare.demand", value="cpus:1;mem:256;gpus:1")
    infos = {
        "fvision": framework_info("fvision", "vision", capabilities=gpu),
        "fweb": framework_info("fweb", "web"),
        "fnet": needs.SerializeToString(),
    }
    ops.stream.resynchronise(
        agents=agents,
        frameworks=[
            contract.AddFramework(framework_id=name, info=info, active=True)
            for name, info in infos.items()
        ],
    )
    words = ops.explain("small").words
    assert "Users hold 4 of the cluster's 4 gpus: vision 4." in words
    (remedy,) = (sentence for sentence in words if "Longshare does not preempt" in sentence)
    assert "wait for resources of vision, or stop tasks; for a lasting change" in remedy
    page, _, section = remedy.partition("(docs/")[2].removesuffix(").").partition("#")
    assert f"## {section.replace('-', ' ')}\n" in (DOCS / page).read_text().lower()


def test_an_explanation_names_ports_that_a_task_lacks(ops: Operator) -> None:
    """Ports are no scalar, so no user's holdings contain them."""
    info = mesos.FrameworkInfo.FromString(framework_info("fweb", "web"))
    info.labels.labels.add(key="longshare.demand", value="cpus:1;ports:2")
    held = resources("cpus:1;ports:[31000-31001]", "web")
    ops.stream.resynchronise(
        agents=[agent_call("s1", "cpus:16;mem:64;ports:[31000-31002]", {"fweb": held})],
        frameworks=[
            contract.AddFramework(framework_id="fweb", info=info.SerializeToString(), active=True)
        ],
    )
    words = " ".join(ops.explain("web").words)
    assert "For its next task, agents have too little free: ports." in words


def test_an_explanation_says_that_only_a_change_of_the_labels_can_bring_gpus(ops: Operator) -> None:
    gpu = (mesos.FrameworkInfo.Capability.GPU_RESOURCES,)
    info = mesos.FrameworkInfo.FromString(framework_info("fnet", "net", capabilities=gpu))
    info.labels.labels.add(key="longshare.demand", value="cpus:1;gpus:0.5")
    info.labels.labels.add(key="longshare.whitelist", value="cpu*")
    framework = contract.AddFramework(
        framework_id="fnet", info=info.SerializeToString(), active=True
    )
    ops.stream.resynchronise(
        agents=[agent_call("gpu", "cpus:16;gpus:4"), agent_call("cpu", "cpus:16")],
        frameworks=[framework],
    )
    words = " ".join(ops.explain("net").words)
    assert "(fnet) cannot get offers in role net: 1 agent has none of a resource" in words
    assert "(fnet) has a demand of gpus:0.5, but Mesos refuses tasks with a part of a GPU" in words


def test_an_explanation_calls_a_role_a_role(ops: Operator) -> None:
    frameworks = [
        contract.AddFramework(framework_id="f", info=framework_info("f", "*"), active=True)
    ]
    ops.stream.resynchronise(
        agents=[agent_call("s1", "cpus:1", {"f": resources("cpus:1")})], frameworks=frameworks
    )
    words = " ".join(ops.explain("*").words)
    assert "gets no more offers in role '*' now" in words


def test_before_mesos_1_10_only_a_user_that_holds_too_little_is_referred_to_the_master_s_state(
    ops: Operator,
) -> None:
    ops.wait(1)
    assert "compare offers and tasks in the master's /state" in " ".join(ops.explain("owing").words)
    small = " ".join(ops.explain("small").words)
    assert "not answered" not in small
    assert "/state" not in small, "it holds three quarters of its entitlement"
    ops.set_weight("small", 8)
    assert "compare offers and tasks in the master's /state" in " ".join(
        ops.explain("small").words
    ), "it holds a quarter of the cluster, and is entitled to four fifths"


def test_an_explanation_says_that_tasks_of_a_disconnected_framework_keep_their_resources(
    ops: Operator,
) -> None:
    keeps = "its tasks keep their resources until they end, or until its failover_timeout is over"
    assert keeps not in " ".join(ops.explain("small").words)
    for framework in ("fa", "fb"):
        ops.stream.tell(deactivate_framework=contract.DeactivateFramework(framework_id=framework))
    assert keeps in " ".join(ops.explain("small").words)
    assert keeps not in " ".join(ops.explain("owing").words), "it has no tasks"


def test_since_mesos_1_10_no_user_is_referred_to_the_master_s_state(tmp_path: Path) -> None:
    with operated(tmp_path, reports_used=True) as ops:
        assert "/state" not in " ".join(ops.explain("owing").words)


def test_an_explanation_names_the_constraints_of_a_framework(tmp_path: Path) -> None:
    constraint = '[constraints."fa of the tests"]\nwhitelist = ["s1.*"]\n'
    with operated(tmp_path, SETTINGS + constraint) as ops:
        words = " ".join(ops.explain("owing").words)
        assert "fa of the tests (fa) may run on 1 of 1 agents: whitelist s1.*." in words
        info = mesos.FrameworkInfo.FromString(framework_info("fa", "owing"))
        info.labels.labels.add(key="longshare.attributes", value="rack:7")
        changed = contract.UpdateFramework(framework_id="fa", info=info.SerializeToString())
        ops.stream.tell(update_framework=changed)
        reason = "no agent meets its constraint: whitelist s1.* and attributes rack:7"
        words = " ".join(ops.explain("owing").words)
        assert f"cannot get offers: {reason}. No agent has attributes." in words
        assert "gets no more offers" not in " ".join(ops.explain("owing").words), "said once"
        assert [why.reason for why in ops.explain("owing").reasons] == ["constraint"]
        assert "cannot get offers" not in " ".join(ops.explain("small").words)
        ops.wait(1)
        ops.wait(1)
    output = (tmp_path / "log").read_text()
    assert output.count(reason) == 1, "the reason is logged once, not with every tick"


def test_a_weight_order_returns_its_changes_and_survives_a_snapshot(
    ops: Operator,
) -> None:
    (change,) = ops.set_weight("small", 2.0).changes
    assert (change.before.weight, change.after.weight) == (1.0, 2.0)
    assert (change.before.user, change.after.entitlement) == ("small", 0.5)
    ops.stream.resynchronise(**cluster())
    small = ops.shares()["small"]
    assert (small.weight, small.entitlement) == (2.0, 0.5)
    (change,) = ops.set_weight("small", None).changes
    assert change.after.weight == ops.shares()["small"].weight == 1.0
    assert not ops.set_weight("small", None).changes


def test_resetting_a_commitment_leaves_other_commitments_unchanged(ops: Operator) -> None:
    ops.wait(50)
    before = ops.shares()
    (change,) = ops.reset("owing").changes
    assert change.before == before["owing"]
    assert (change.after.dominant_commitment, change.after.priority) == (0.0, 0.0)
    assert ops.shares()["greedy"].commitments == before["greedy"].commitments
    assert [change.after.user for change in ops.reset().changes] == ["greedy"]
    assert not any(row.dominant_commitment for row in ops.shares().values())


def test_an_explanation_gives_the_wait_reason_and_the_user_ahead(
    ops: Operator,
) -> None:
    ops.wait(10)
    explanation = ops.explain("owing")
    [why] = explanation.reasons
    assert (why.framework, why.role, why.reason) == ("fa", "owing", "nothing_free")
    assert dict(why.agents) == {"nothing_free": 1}
    after = explanation.passings[0].after
    assert f"small is served first, for {after:.1f} s if nothing changes." in " ".join(
        explanation.words
    )


def test_without_a_master_no_user_is_said_to_be_next(ops: Operator) -> None:
    assert "it is next" in ops.explain("small").words[0]
    assert not ops.explain("small").cluster.HasField("alone")
    ops.stream.close()
    wait_for(lambda: not ops.stub.Shares(admin.SharesRequest()).cluster.connected)
    explanation = ops.explain("small")
    assert "but gets no offers: no master has been connected for " in explanation.words[0]
    assert explanation.cluster.alone >= 0.0
    assert not explanation.reasons


def test_the_default_role_is_shown_as_a_quoted_star(tmp_path: Path) -> None:
    with service(tmp_path, SETTINGS) as running:
        stream = Stream(running.address)
        info = framework_info("f1", "*")
        stream.open(frameworks=[contract.AddFramework(framework_id="f1", info=info, active=True)])
        ops = Operator(running.address, stream)
        assert ops.explain("*").words[0].startswith("user '*' has rank ")
        ops.channel.close()
        stream.close()


def test_a_framework_s_name_in_place_of_a_user_is_answered_with_its_user(ops: Operator) -> None:
    named = "no such user: fa; fa is a framework of the user owing"
    forecast = admin.ForecastRequest(user="fa", below=0.5)
    for ask in (ops.explain, ops.reset):
        assert refusal(ask, "fa") == (grpc.StatusCode.NOT_FOUND, named)
    assert refusal(ops.set_weight, "fa", 2.0) == (grpc.StatusCode.NOT_FOUND, named)
    assert refusal(ops.stub.Forecast, forecast)[1].endswith("; fa is a framework of the user owing")
    for number in range(4):
        info = framework_info(f"f{number}", f"role-{number}", name="spark")
        added = contract.AddFramework(framework_id=f"f{number}", info=info, active=True)
        ops.stream.tell(add_framework=added)
    assert refusal(ops.explain, "f2")[1].endswith("; f2 is a framework of the user role-2")
    assert refusal(ops.explain, "spark")[1] == (
        "no such user: spark; spark is the name of frameworks of the users role-0, role-1, role-2 "
        "and 1 more"
    )


def test_a_refused_order_changes_nothing(ops: Operator) -> None:
    before = ops.shares()
    not_found, invalid = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT
    assert refusal(ops.set_weight, "nobody", 2.0) == (not_found, "no such user: nobody")
    assert refusal(ops.reset, "owing", "nobody") == (not_found, "no such user: nobody")
    assert refusal(ops.explain, "nobody") == (not_found, "no such user: nobody")
    for weight in (0.0, -1.0, float("nan"), float("inf")):
        code, text = refusal(ops.set_weight, "small", weight)
        assert (code, "'small'" in text) == (invalid, True)
    assert refusal(ops.stub.Order, operator.Order())[0] is invalid
    assert ops.shares() == before


@pytest.mark.parametrize(
    ("order", "refused"),
    [
        (operator.Order(forget_users=operator.ForgetUsers(users=1004 * ["small"])), "1,004 users"),
        (
            operator.Order(reset_commitments=operator.ResetCommitments(users=1004 * [""])),
            "1,004 users",
        ),
        (
            operator.Order(
                set_commitments=operator.SetCommitments(
                    user="small", commitments={str(number): 0.1 for number in range(1001)}
                )
            ),
            "1,001 resources",
        ),
    ],
)
def test_an_order_with_too_many_names_is_refused_before_its_names_are_read(
    ops: Operator, order: operator.Order, refused: str
) -> None:
    """As few names as known users and 1,000 more are read."""
    code, text = refusal(ops.stub.Order, order)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith(f"the command names {refused}")
    assert [change.before.user for change in ops.reset(*(1003 * ["owing"])).changes] == ["owing"]


def test_queries_do_not_change_decisions(tmp_path: Path) -> None:
    def decided(folder: Path, *, looking: bool) -> list[bytes]:
        folder.mkdir()
        answers = []
        with operated(folder) as at_work:
            for second in range(1, 40):
                at_work.stream.now_ns += SECOND
                if looking:
                    at_work.explain("owing")
                call: dict[str, object] = {"tick": contract.Tick()}
                if second % 7 == 0:
                    freed = resources("cpus:0.5;mem:512", "greedy")
                    call = {
                        "recover_resources": contract.RecoverResources(
                            framework_id="fc", agent_id="s1", resources=freed
                        )
                    }
                answer = at_work.stream.tell(**call)
                answer.decisions.ClearField("statistics")  # measured values, not decisions
                answers.append(answer.SerializeToString(deterministic=True))
        return answers

    assert decided(tmp_path / "a", looking=True) == decided(tmp_path / "b", looking=False)


def test_sub_roles_are_ranked_among_their_siblings(tmp_path: Path) -> None:
    with service(tmp_path, SETTINGS) as running:
        stream = Stream(running.address)
        used = {"f1": resources("cpus:3;mem:1024", "eng/dev")}
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", used)],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "eng/dev", "eng/ops")
                )
            ],
        )
        ops = Operator(running.address, stream)
        rows = ops.shares()
        assert [(rows[u].parent, rows[u].rank) for u in ("eng/ops", "eng/dev")] == [
            ("eng", 1),
            ("eng", 2),
        ]
        assert rows["eng"].parent == ""
        assert rows["eng"].allocation == rows["eng/dev"].allocation
        assert "among the users below eng" in ops.explain("eng/dev").words[0]
        ops.channel.close()
        stream.close()


@pytest.mark.parametrize(("known", "most"), [(MOST_BOOSTS + 1, MOST_BOOSTS), (2500, 40)])
def test_a_boost_beyond_the_limit_is_refused_until_another_boost_ends(
    known: int, most: int
) -> None:
    users = [f"u{number}" for number in range(known)]
    declared = tuple(DeclaredUser(user) for user in users)
    engine = Engine(EngineSettings(policies.create("drf", {}), users=declared))

    def boost(user: str) -> operator.Order:
        change = operator.SetWeight(user=user, weight=2.0, seconds=60.0)
        return operator.Order(set_weight=change)

    for user in [*users[:most], users[0]]:  # the last boost replaces the boost of the same user
        require_few_boosts(boost(user), engine)
        engine.order(boost(user))
    with pytest.raises(
        InvalidOrder, match=f"{most} users have a boost, which is the most at a time"
    ):
        require_few_boosts(boost(users[-1]), engine)
    engine.order(operator.Order(set_weight=operator.SetWeight(user=users[0])))
    require_few_boosts(boost(users[-1]), engine)


def test_forgetting_a_user_returns_its_last_commitment(
    ops: Operator,
) -> None:
    held = {"fd": resources("cpus:4;mem:1024", "gone")}
    ops.stream.tell(add_agent=agent_call("s2", "cpus:4;mem:4096", held))
    info = framework_info("fd", "gone")
    ops.stream.tell(add_framework=contract.AddFramework(framework_id="fd", info=info))
    ops.wait(HALVING)
    order = operator.Order(forget_users=operator.ForgetUsers(users=["gone"]))
    code, words = refusal(ops.stub.Order, order)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "user 'gone' has frameworks" in words
    ops.stream.tell(remove_framework=contract.RemoveFramework(framework_id="fd"))
    owed = ops.shares()["gone"].dominant_commitment
    assert owed > 0.0
    [change] = ops.stub.Order(order).changes
    assert change.before.user == "gone"
    assert change.before.dominant_commitment == pytest.approx(owed)
    assert not change.HasField("after")
    assert set(ops.shares()) == {"owing", "small", "greedy"}
