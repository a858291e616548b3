"""Offers go only where constraints allow; constraints follow agents, frameworks and labels."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.agents.placement_constraints import Constraint, Host, Hosts
from allocator.cluster.agents.placements import Placements
from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Framework
from allocator.cluster.frameworks.subscription import read_subscription
from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from tests.cluster.master_side import MasterSide, Offered, agent_call, framework_info, resource
from tests.counted import counted


def info(framework: str, roles: str | Sequence[str], labels: dict[str, str]) -> bytes:
    named = [roles] if isinstance(roles, str) else roles
    described = mesos.FrameworkInfo.FromString(framework_info(framework, *named))
    for key, value in labels.items():
        described.labels.labels.add(key=f"longshare.{key}", value=value)
    return described.SerializeToString()


def add(master: MasterSide, framework: str, role: str, **labels: str) -> list[Offered]:
    return master.send(
        contract.AddFramework(
            framework_id=framework, info=info(framework, role, labels), active=True
        )
    )


def update(master: MasterSide, framework: str, role: str, **labels: str) -> list[Offered]:
    call = contract.UpdateFramework(framework_id=framework, info=info(framework, role, labels))
    return master.send(call) + master.tick()


def where(offers: list[Offered]) -> set[tuple[str, str]]:
    return {(offer.framework, offer.agent) for offer in offers}


def test_offers_go_where_labels_allow_with_and_without_a_known_demand() -> None:
    for demand in ({}, {"demand": "cpus:1;mem:512"}):
        master = MasterSide()
        add(master, "f1", "a", whitelist="s1.example s3.example", **demand)
        add(master, "f2", "b", blacklist="s3.*", **demand)
        offers = [o for n in "1234" for o in master.add_agent(f"s{n}", "cpus:1;mem:512")]
        assert where(offers) == {("f1", "s1"), ("f2", "s2"), ("f1", "s3"), ("f2", "s4")}


def test_the_operators_constraint_and_the_frameworks_own_must_both_be_met() -> None:
    master = MasterSide()
    given = {"f1 of the tests": Constraint(blacklist=Hosts(("s1.example",)))}
    master.settings = replace(master.settings, constraints=given)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    add(master, "f1", "a", whitelist="s1.example s2.example")
    offers = [o for n in "123" for o in master.add_agent(f"s{n}", "cpus:1;mem:512")]
    assert where(offers) == {("f1", "s2")}


def test_a_new_subscription_changes_the_constraint() -> None:
    master = MasterSide()
    add(master, "f1", "a", whitelist="s1.example")
    assert where(master.add_agent("s1", "cpus:1;mem:512")) == {("f1", "s1")}
    assert master.add_agent("s2", "cpus:1;mem:512") == []
    assert where(update(master, "f1", "a", whitelist="s2.example")) == {("f1", "s2")}
    [back] = master.add_agent("s3", "cpus:1;mem:512") or update(master, "f1", "a")
    assert back.agent == "s3"


def test_an_agent_that_changes_its_attributes_meets_other_constraints() -> None:
    master = MasterSide("tsf")
    add(master, "f1", "a", attributes="rack:1", demand="cpus:1")
    assert master.add_agent("s1", "cpus:1;mem:512") == []
    described = mesos.SlaveInfo.FromString(agent_call("s1", "cpus:1").info)
    text = mesos.Value.Scalar(value=1.0)
    described.attributes.add(name="rack", type=mesos.Value.SCALAR, scalar=text)
    moved = contract.UpdateAgent(agent_id="s1", info=described.SerializeToString())
    assert where(master.send(moved)) == {("f1", "s1")}


def test_quota_is_met_only_where_constraints_allow() -> None:
    master = MasterSide()
    quota = mesos.QuotaInfo(role="a", guarantee=[resource("cpus", "2")])
    master.send(contract.SetQuota(role="a", info=quota.SerializeToString()))
    add(master, "f1", "a", whitelist="s2.example")
    assert master.add_agent("s1", "cpus:1;mem:512") == []
    assert where(master.add_agent("s2", "cpus:1;mem:512")) == {("f1", "s2")}


def test_under_cdrf_a_user_is_measured_by_the_agents_it_may_use() -> None:
    master = MasterSide("cdrf")
    add(master, "f1", "a", whitelist="s1.example", demand="cpus:1")
    add(master, "f2", "b", demand="cpus:1")
    master.add_agent("s1", "cpus:2")
    master.add_agent("s2", "cpus:6")
    shares = {s.user: s.priority for s in master.engine.standings()}
    held = {role: held["cpus"] for (_, _, role), held in master.engine.allocations().items()}
    assert shares["a"] == pytest.approx(held.get("a", 0) / 2000)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({"attributes": "gpu:h100"}, "Agents have gpu:4, gpu:[7-9], gpu:a100, gpu:v100."),
        ({"attributes": "rack:1;gpu:a100,v100"}, "Agents have rack:2."),
        (
            {"attributes": "gpu:a100;gpu:v100", "whitelist": "s9"},
            "Agents have gpu:4, gpu:[7-9], gp",
        ),
        ({"attributes": "gpus:a100"}, "No agent has the attribute gpus; did you mean gpu?"),
        ({"attributes": "zone:x"}, "No agent has the attribute zone; agents have gpu, rack."),
        (
            {"whitelist": "gpu-*"},
            "Agents have host names such as s1.example, s2.example, s3.example",
        ),
        ({"attributes": "gpu:a100", "blacklist": "s1.*"}, ""),
        ({"attributes": "gpu=a100"}, ""),
        ({"attributes": "gpu:8"}, ""),
        ({}, ""),
    ],
)
def test_attributes_and_names_of_agents_are_suggested_if_no_agent_meets_a_constraint(
    labels: dict[str, str], sentence: str
) -> None:
    master = MasterSide()
    for agent in ("s1", "s2", "s3"):
        master.add_agent(agent, "cpus:1")
    add(master, "f1", "a", **labels)
    text, number = mesos.Value.TEXT, mesos.Value.SCALAR
    ranges = mesos.Value.Ranges(range=[mesos.Value.Range(begin=7, end=9)])
    attributes = {
        "s1": [mesos.Attribute(name="gpu", type=text, text=mesos.Value.Text(value="a100"))],
        "s2": [
            mesos.Attribute(name="gpu", type=text, text=mesos.Value.Text(value="v100")),
            mesos.Attribute(name="rack", type=number, scalar=mesos.Value.Scalar(value=2)),
        ],
        "s3": [
            mesos.Attribute(name="gpu", type=number, scalar=mesos.Value.Scalar(value=4)),
            mesos.Attribute(name="gpu", type=mesos.Value.RANGES, ranges=ranges),
        ],
    }
    for agent, described in attributes.items():
        slave = mesos.SlaveInfo.FromString(agent_call(agent, "cpus:1").info)
        slave.attributes.extend(described)
        master.send(contract.UpdateAgent(agent_id=agent, info=slave.SerializeToString()))
    suggestion = run_to_completion(master.engine.suggest_placement("f1"))
    assert suggestion.startswith(sentence)
    assert bool(suggestion) == bool(sentence)


def test_a_suggestion_is_short_however_many_attributes_agents_have() -> None:
    master = MasterSide()
    slave = mesos.SlaveInfo.FromString(agent_call("s1", "cpus:1").info)
    for number in range(1000):
        value = mesos.Value.Text(value="x" * 1000 + str(number))
        slave.attributes.add(name=f"{'gpu' * 100}{number}", type=mesos.Value.TEXT, text=value)
        slave.attributes.add(name="rack", type=mesos.Value.TEXT, text=value)
    master.add_agent("s1", "cpus:1")
    master.send(contract.UpdateAgent(agent_id="s1", info=slave.SerializeToString()))
    add(master, "f1", "a", attributes=f"{'gpu' * 100}:a")
    assert len(run_to_completion(master.engine.suggest_placement("f1"))) < 1000
    update(master, "f1", "a", attributes="rack:a")
    assert len(run_to_completion(master.engine.suggest_placement("f1"))) < 1000


def test_a_constraint_that_no_agent_meets_is_reported_until_one_does() -> None:
    master = MasterSide()
    add(master, "f1", "a", whitelist="s9.*")
    assert master.engine.misfits() == {}  # the cluster has no agents
    master.add_agent("s1", "cpus:1")
    assert master.engine.misfits() == {"f1": "no agent meets its constraint: whitelist s9.*"}
    assert where(master.add_agent("s9", "cpus:1")) == {("f1", "s9")}
    assert master.engine.misfits() == {}
    master.remove_agent("s9")
    assert "f1" in master.engine.misfits()
    update(master, "f1", "a", whitelist="10.0.0.1/8")
    assert "has host bits set" in master.engine.misfits()["f1"]
    update(master, "f1", "a")
    assert master.engine.misfits() == {}


def test_agents_that_are_missing_after_a_failover_cause_no_misfit_report() -> None:
    master = MasterSide()
    master.send(contract.Recover(expected_agents=10))
    add(master, "f1", "a", whitelist="s9.*")
    master.add_agent("s1", "cpus:1")
    assert master.engine.misfits() == {}
    master.tick(3600.0)
    assert "f1" in master.engine.misfits()


_LABELS = st.fixed_dictionaries(
    {},
    optional={
        "whitelist": st.sampled_from(
            [
                "h1 h2",
                "h* 10.*",
                "h[2-4]",
                "h? *.2",
                "10.0.0.0/24",
                "10.0.0.1-10.0.0.2",
            ]
        ),
        "blacklist": st.sampled_from(["h2", "10.0.0.2", "h?", "*[!2]", "*1 h2"]),
        "attributes": st.sampled_from(["rack:1", "rack:2", "rack:1;zone:a"]),
    },
)
_AGENT = st.tuples(
    st.sampled_from(["h1", "h2", "h3", "10.0.0.1", "10.0.0.2", "10.0.1.1"]), st.integers(1, 2)
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("framework"), st.integers(0, 3), st.one_of(st.none(), _LABELS)),
        st.tuples(st.just("agent"), st.integers(0, 3), st.one_of(st.none(), _AGENT)),
    ),
    max_size=30,
)


@given(steps=_STEPS)
def test_incremental_matching_equals_complete_matching(
    steps: list[tuple[str, int, object]],
) -> None:
    placements = Placements({"f0 of the tests": Constraint(blacklist=Hosts(("h1",)))})
    frameworks: dict[str, Framework] = {}
    hosts: dict[str, Host] = {}
    for kind, number, content in steps:
        name = f"{kind[0]}{number}"
        if kind == "framework":
            if isinstance(content, dict):
                described = read_subscription(name, info(name, "r", content), Limits())
                frameworks[name] = Framework(name, described, active=True, suppressed=set())
                placements.put_framework(frameworks[name])
            else:
                frameworks.pop(name, None)
                placements.discard_framework(name)
        elif isinstance(content, tuple):
            hostname, rack = content
            slave = mesos.SlaveInfo(hostname=hostname)
            scalar = mesos.Value.Scalar(value=rack)
            slave.attributes.add(name="rack", type=mesos.Value.SCALAR, scalar=scalar)
            hosts[name] = Host.of(slave)
            run_to_completion(placements.put_agent(name, hosts[name]))
        elif hosts.pop(name, None) is not None:
            placements.discard_agent(name)
    for name, framework in frameworks.items():
        for agent, host in hosts.items():
            allowed = framework.constraint.admits(host) and not (name == "f0" and host.name == "h1")
            assert placements.admits(name, agent) == allowed
            may_use = placements.may_use(name)
            assert (may_use is None or may_use(agent)) == allowed
        assert placements.number(name) == sum(placements.admits(name, agent) for agent in hosts)
        eligible = placements.eligible_agents(name)
        assert eligible is None or {*eligible} == {
            agent for agent in hosts if placements.admits(name, agent)
        }


def test_matching_costs_nothing_for_a_known_constraint_and_a_known_agent() -> None:
    looked_at: list[str] = []

    class Counted(Host):
        """A host that records each use of its name by a constraint."""

        __slots__ = ()

        def __getattribute__(self, attribute: str) -> object:
            if attribute == "name":
                looked_at.append("look")
            return super().__getattribute__(attribute)

    placements = Placements({})
    for number in range(10):
        run_to_completion(placements.put_agent(f"a{number}", Counted(f"h{number}", (), ())))
    looked_at.clear()
    for number in range(20):
        description = info(f"f{number}", "r", {"whitelist": "h1 h2" if number % 2 else "h3"})
        described = read_subscription(f"f{number}", description, Limits())
        placements.put_framework(Framework(f"f{number}", described, active=True, suppressed=set()))
        if number == 1:
            looks = len(looked_at)
    assert looks >= 2 * 10, "two constraints, ten agents"
    assert len(looked_at) == looks, "the other frameworks cost nothing"
    new = Counted("h10", (), ())
    looked_at.clear()
    run_to_completion(placements.put_agent("a10", new))
    assert len(looked_at) == 2, "a new agent meets each constraint once"


def test_the_hosts_of_many_agents_are_tested_as_single_hosts_are() -> None:
    def host(number: int) -> Host:
        slave = mesos.SlaveInfo(hostname=f"node-{number % 977:04d}.r{number % 40}")
        for name, value in (("rack", number % 40), ("zone", number % 3)):
            scalar = mesos.Value.Scalar(value=value)
            slave.attributes.add(name=name, type=mesos.Value.SCALAR, scalar=scalar)
        return Host.of(slave)

    placements, hosts = Placements({}), {f"a{number}": host(number) for number in range(9000)}
    for name, agent in hosts.items():
        run_to_completion(placements.put_agent(name, agent))
    labels = {
        "whitelist": ",".join([*(f"*{digit}*r{digit}" for digit in range(5)), "node-0006.r6"]),
        "blacklist": "node-000?.* *[5-8]?.*",
        "attributes": "zone:1",
    }
    constraint = read_subscription("f", info("f", "r", labels), Limits()).constraint
    for step in range(3):
        for number in range(4000 * step, 4000 * step + 300, 3):
            placements.discard_agent(f"a{number}")
            del hosts[f"a{number}"]
        for number in range(4000 * step, 4000 * step + 300, 6):
            hosts[f"a{number}"] = host(number + step)
            run_to_completion(placements.put_agent(f"a{number}", hosts[f"a{number}"]))
        described = read_subscription("f", info("f", "r", labels), Limits())
        framework = Framework(f"f{step}", described, active=True, suppressed=set())
        run_to_completion(placements.prepare_framework("f", described.constraint))
        placements.put_framework(framework)
        expected = [name for name, agent in hosts.items() if constraint.admits(agent)]
        assert len(expected) > 50
        eligible = placements.eligible_agents(framework.id)
        assert eligible is not None
        assert sorted(eligible) == sorted(expected)
        placements.discard_framework(framework.id)


def test_attributes_of_many_agents_are_tested_like_attributes_of_single_agents() -> None:
    lot = Random(1)

    def attribute(name: str) -> mesos.Attribute:
        made = mesos.Attribute(name=name, type=lot.choice(mesos.Value.Type.values()))
        made.text.value = lot.choice("123")
        made.scalar.value = lot.choice([1, 2, 3])
        made.ranges.range.add(begin=lot.choice([1, 2]), end=lot.choice([2, 3]))
        made.set.item.extend(lot.sample("123", 2))
        return made

    placements, hosts = Placements({}), dict[str, Host]()
    for number in range(300):
        names = lot.choices("abc", k=lot.randrange(5))
        hosts[f"s{number}"] = Host(f"h{number}", (), tuple(map(attribute, names)))
        run_to_completion(placements.put_agent(f"s{number}", hosts[f"s{number}"]))
    for text in ("a:1", "a:2;a:3", "b:2;c:1", "a:1;b:1.0;b:3", "d:1", "a:1;d:1"):
        described = read_subscription("f", info("f", "r", {"attributes": text}), Limits())
        placements.put_framework(Framework("f", described, active=True, suppressed=set()))
        eligible = placements.eligible_agents("f")
        assert eligible is not None
        expected = [name for name, host in hosts.items() if described.constraint.admits(host)]
        assert [*eligible] == expected
        assert bool(expected) == ("d" not in text)


def test_many_attributes_of_many_agents_cost_few_calls_and_objects() -> None:
    def costs(attributes: int) -> tuple[int, int]:
        slave, placements = mesos.SlaveInfo(hostname="h"), Placements({})
        for number in range(attributes):
            slave.attributes.add(name=f"n{number}", type=mesos.Value.TEXT).text.value = "x"
        for number in range(2000):
            run_to_completion(placements.put_agent(f"s{number}", Host.of(slave)))
        label = ";".join(f"n{number}:x" for number in range(attributes))
        described = read_subscription("f", info("f", "r", {"attributes": label}), Limits())
        framework = Framework("f", described, active=True, suppressed=set())
        gc.collect()
        before = len(gc.get_objects())
        calls = counted(lambda: placements.put_framework(framework))
        gc.collect()
        assert placements.number("f") == 2000
        return calls, len(gc.get_objects()) - before

    few, many = costs(2), costs(12)
    assert many[0] - few[0] < 10 * 2000 * 5, "an attribute costs an agent fewer than 5 calls"
    assert many[1] < 500, "no attribute of an agent leaves an object to garbage collection"


def test_many_globs_cost_no_more_for_more_agents() -> None:
    def cost(agents: int) -> int:
        placements = Placements({})
        for number in range(agents):
            host = Host(f"node-{number:05d}.example.org", (), ())
            run_to_completion(placements.put_agent(f"a{number}", host))
        labels = {
            "whitelist": ",".join(f"*d*{number % 10}*e*e*" for number in range(32)),
            "blacklist": ",".join(f"*d*{number}7*e*e*" for number in range(32)),
        }
        described = read_subscription("f", info("f", "r", labels), Limits())
        framework = Framework("f", described, active=True, suppressed=set())
        placements.put_framework(framework)
        assert 0 < placements.number("f") < agents
        placements.discard_framework("f")
        return counted(lambda: placements.put_framework(framework))

    few, many = cost(1000), cost(4000)
    assert many - few < 2 * 3000


def test_the_constraint_of_a_removed_framework_leaves_no_memory_behind() -> None:
    master = MasterSide()
    add(master, "f1", "a", whitelist="s1.example")
    placements = master.engine._cluster.ledger.placements
    assert len(placements._by_key) == 1
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert not placements._by_key


def test_adding_an_agent_returns_whether_the_agent_is_new_or_has_changed() -> None:
    placements = Placements({})
    assert run_to_completion(placements.put_agent("s1", Host("h1", (), ())))
    assert not run_to_completion(placements.put_agent("s1", Host("h1", (), ())))
    assert run_to_completion(placements.put_agent("s1", Host("h2", (), ())))


def test_a_constraint_takes_about_one_byte_for_each_agent() -> None:
    placements = Placements({})
    for number in range(2000):
        run_to_completion(placements.put_agent(f"a{number}", Host(f"h{number}", (), ())))
    description = read_subscription("f", info("f", "r", {"blacklist": "nowhere"}), Limits())
    placements.put_framework(Framework("f", description, active=True, suppressed=set()))
    eligible = placements.eligible_agents("f")
    assert eligible is not None
    assert len(eligible) == 2000
    assert getsizeof(eligible._flags) < 2 * 2000
    for number in range(1000):
        placements.discard_agent(f"a{number}")
        run_to_completion(
            placements.put_agent(f"b{number}", Host("nowhere" if number % 2 else "h", (), ()))
        )
    assert len(eligible) == 1500
    assert "a1" not in eligible
    assert "b0" in eligible
    assert getsizeof(eligible._flags) < 2 * 2000
