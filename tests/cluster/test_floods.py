"""Floods of calls of a framework cost little, and calls of a message have the same effect.

Under the rule `skips_void_calls`, the clients of a framework are refreshed after several of its
calls at once (`Cluster.refresh_pending`).
"""

from random import Random

from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.service.config import Config
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources
from tests.cluster.test_task_offers import with_settings
from tests.counted import counted

_ROLES = [f"r{number:03}" for number in range(50)]
_CAPABILITIES = (mesos.FrameworkInfo.Capability.MULTI_ROLE,)


def master_with(*, skips: bool = True, exact_ties: bool = True) -> MasterSide:
    return with_settings(
        MasterSide(),
        skips_void_calls=skips,
        examines_for_clients=True,
        limits_sharing=True,
        exact_ties=exact_ties,
    )


def subscription(framework: str, *roles: str, demand: str = "", name: str = "") -> bytes:
    data = framework_info(framework, *roles, capabilities=_CAPABILITIES, name=name or framework)
    info = mesos.FrameworkInfo.FromString(data)
    if demand:
        info.labels.labels.add(key="longshare.demand", value=demand)
    return info.SerializeToString()


def update(
    framework: str, *roles: str, demand: str = "", name: str = ""
) -> contract.UpdateFramework:
    info = subscription(framework, *roles, demand=demand, name=name)
    return contract.UpdateFramework(framework_id=framework, info=info)


def request(framework: str, demand: str) -> contract.RequestResources:
    message = mesos.Request()
    for data in resources(demand):
        message.resources.add().MergeFromString(data)
    return contract.RequestResources(framework_id=framework, requests=[message.SerializeToString()])


def random_call(lot: Random, number: int) -> object:
    framework, other = lot.choice("fg"), lot.choice("fh")
    roles = lot.choice([["a"], ["b"], ["a", "b"], ["a", "b", "c/d"]])
    return lot.choice(
        [
            contract.ActivateFramework(framework_id=framework),
            contract.DeactivateFramework(framework_id=framework),
            contract.SuppressOffers(framework_id=framework, roles=lot.choice([[], ["a"]])),
            contract.ReviveOffers(framework_id=framework, roles=lot.choice([[], ["a"]])),
            update(framework, *roles, demand=lot.choice(["", "cpus:1;mem:8"])),
            request(framework, f"cpus:{lot.randrange(1, 4)};mem:{lot.randrange(1, 4)}"),
            agent_call(f"s{number}", "cpus:1;mem:64"),
            contract.GetInverseOfferStatuses(),
            contract.RemoveFramework(framework_id=other),
            contract.AddFramework(
                framework_id=other, info=subscription(other, *roles), active=lot.random() < 0.5
            ),
        ]
    )


def state(master: MasterSide) -> object:
    """Return all facts about clients that decisions depend on, without the order of arrival.

    Offers are no such fact, because other agents are examined, in another random order.
    """
    ledger = master.engine._cluster.ledger
    clients = ledger.clients
    return (
        sorted(clients),
        sorted(clients.wanting_offers),
        {client: ledger.unit_demand(client) for client in clients},
        {
            name: (framework.active, framework.demand)
            for name, framework in ledger.frameworks.items()
        },
    )


def test_calls_of_a_message_leave_the_same_clients_as_if_each_were_carried_out_at_once() -> None:
    for seed in range(160):
        lot = Random(seed)
        masters = [master_with(skips=skips) for skips in (False, True)]
        calls, known = list[object](), {"f", "g"}
        for number in range(lot.randrange(1, 14)):
            call = random_call(lot, number)
            framework = getattr(call, "framework_id", "f")
            if isinstance(call, contract.AddFramework) == (framework in known):
                continue
            if isinstance(call, contract.RemoveFramework | contract.AddFramework):
                known ^= {framework}
            calls.append(call)
        results = []
        for master in masters:
            for framework in "fg":
                master.add_framework(framework, "a", "b", capabilities=_CAPABILITIES)
            for offer in master.add_agent("s", "cpus:2;mem:64"):
                master.recover(offer, refuse_seconds=60.0)
            master.send(*calls)
            assert not master.engine._cluster.pending
            results.append(state(master))
        assert results[0] == results[1], (seed, calls)


def master_with_waiting_framework(agent: str) -> MasterSide:
    """Return a master with a framework "f" whose task is too large for the only agent."""
    master = master_with()
    master.add_agent(agent, "cpus:2;mem:64")
    info = subscription("f", "a", demand="cpus:3;mem:8")
    master.send(contract.AddFramework(framework_id="f", info=info, active=True))
    for _ in range(2):
        assert not master.tick()
    return master


def test_offers_follow_a_request_and_a_subscription_at_the_next_tick_and_not_before() -> None:
    """UPDATE_FRAMEWORK and REQUEST mark the agents for the framework's own clients only."""
    for call in (update("f", "a", demand="cpus:1;mem:8"), request("f", "cpus:1;mem:8")):
        master = master_with_waiting_framework("s1")
        assert not master.send(call)
        assert not master.add_agent("s2", "cpus:0.5;mem:64")  # a cycle for this agent only
        assert [offer.agent for offer in master.tick()] == ["s1"]


def test_a_new_subscription_that_has_offers_gets_them_when_the_scheduler_reconnects() -> None:
    master = master_with_waiting_framework("s")
    offers = master.send(
        contract.DeactivateFramework(framework_id="f"),
        update("f", "a", "b", demand="cpus:1;mem:8"),
        contract.ActivateFramework(framework_id="f"),
    )
    assert {offer.agent for offer in offers} == {"s"}


def flooded(calls: list[object], repetitions: int) -> int:
    """Return the number of function calls that a message of a framework with 50 roles costs."""
    master = master_with()
    for number in range(20):
        master.add_agent(f"s{number}", f"cpus:{1 + number / 100};mem:64")
    info = subscription("f", *_ROLES, demand="cpus:99;mem:1")
    master.send(contract.AddFramework(framework_id="f", info=info, active=True))
    master.tick()
    master.send(*calls)
    return counted(lambda: master.send(*calls * repetitions))


def test_a_flood_of_new_subscriptions_costs_one_refresh_for_each_message() -> None:
    calls: list[object] = [
        contract.DeactivateFramework(framework_id="f"),
        update("f", *_ROLES, demand="cpus:98;mem:1", name="g"),
        contract.ActivateFramework(framework_id="f"),
        update("f", *_ROLES, demand="cpus:99;mem:1"),
    ]
    single, several = flooded(calls, 1), flooded(calls, 11)
    assert several - single <= 10 * 50 * 28


def test_a_flood_of_requests_costs_one_refresh_for_each_message() -> None:
    calls: list[object] = [request("f", "cpus:98;mem:1"), request("f", "cpus:99;mem:1")]
    single, several = flooded(calls, 1), flooded(calls, 51)
    assert several - single <= 100 * 140


def test_a_request_that_repeats_the_known_demand_costs_no_refresh() -> None:
    assert flooded([request("f", "cpus:99;mem:1")], 1) <= 160


def test_a_flood_of_suppress_and_revive_calls_that_name_roles_costs_one_refresh() -> None:
    calls: list[object] = [
        contract.SuppressOffers(framework_id="f", roles=_ROLES[:49]),
        contract.ReviveOffers(framework_id="f", roles=_ROLES[:49]),
    ]
    single, several = flooded(calls, 1), flooded(calls, 11)
    assert several - single <= 10 * 50 * 8


def test_each_role_of_a_framework_costs_few_function_calls() -> None:
    """Each role cost 229 calls for SUPPRESS and REVIVE, 383 for TEARDOWN and SUBSCRIBE."""

    def pairs(roles: list[str]) -> dict[str, list[object]]:
        info = subscription("f", *roles, demand="cpus:99;mem:1")
        others = [f"o{role}" for role in roles]
        return {
            "suppress and revive": [
                contract.SuppressOffers(framework_id="f"),
                contract.ReviveOffers(framework_id="f"),
            ],
            "remove and add": [
                contract.RemoveFramework(framework_id="f"),
                contract.AddFramework(framework_id="f", info=info, active=True),
            ],
            "two updates": [
                update("f", *others, demand="cpus:99;mem:1"),
                update("f", *roles, demand="cpus:99;mem:1"),
            ],
        }

    def cost(name: str, roles: int) -> int:
        master = master_with(exact_ties=False)
        for number in range(20):
            master.add_agent(f"s{number}", f"cpus:{1 + number / 100};mem:64")
        info = subscription("f", *_ROLES[:roles], demand="cpus:99;mem:1")
        master.send(contract.AddFramework(framework_id="f", info=info, active=True))
        master.tick()
        calls = pairs(_ROLES[:roles])[name]
        for call in calls:
            master.send(call)
        list(master.engine._cluster.ledger.clients.users.pool)  # ranks all users
        return counted(lambda: [master.send(call) for call in calls])

    for name, most in {
        "suppress and revive": 60,
        "remove and add": 210,
        "two updates": 370,
    }.items():
        assert cost(name, 50) - cost(name, 10) <= 40 * most, name


def test_frameworks_that_a_message_adds_and_removes_again_are_skipped() -> None:
    def session(number: int) -> list[object]:
        name = f"x{number}"
        info = subscription(name, *_ROLES, demand="cpus:99;mem:1")
        return [
            contract.AddFramework(framework_id=name, info=info, active=True),
            request(name, "cpus:98;mem:1"),
            contract.DeactivateFramework(framework_id=name),
            contract.RemoveFramework(framework_id=name),
        ]

    def cost(sessions: int) -> int:
        master = master_with()
        calls = [call for number in range(sessions) for call in session(number)]
        events = counted(lambda: master.send(*calls[:-2]))
        assert [*master.engine._cluster.ledger.frameworks] == [f"x{sessions - 1}"]
        return events

    cost(2)
    assert cost(20) - cost(2) <= 18 * 4 * 40


def test_other_frameworks_and_questions_do_not_multiply_the_cost_of_a_flood() -> None:
    """Each teardown or question between two calls of the flood caused one more refresh."""
    updates: list[object] = [
        update("f", *_ROLES, demand="cpus:98;mem:1", name="g"),
        update("f", *_ROLES, demand="cpus:99;mem:1"),
    ]
    suppressed: list[object] = [
        contract.SuppressOffers(framework_id="f"),
        contract.ReviveOffers(framework_id="f"),
    ]
    short_lived: list[object] = [
        contract.AddFramework(framework_id="y", info=subscription("y", *_ROLES), active=True),
        contract.RemoveFramework(framework_id="y"),
    ]
    small = [
        contract.AddFramework(framework_id=f"x{number}", info=subscription(f"x{number}", "x"))
        for number in range(20)
    ]
    others: list[object] = [
        *small,
        *[contract.RemoveFramework(framework_id=call.framework_id) for call in small],
    ]
    questions: list[object] = [contract.GetInverseOfferStatuses()] * 40

    def cost(calls: list[object]) -> int:
        master = master_with()
        info = subscription("f", *_ROLES, demand="cpus:99;mem:1")
        master.send(contract.AddFramework(framework_id="f", info=info, active=True))
        master.send(*calls[: len(small)])
        return counted(lambda: master.send(*calls[len(small) :]))

    def mixed(calls: list[object], between: list[object]) -> list[object]:
        repeated = calls * (len(between) // len(calls))
        return [call for pair in zip(repeated, between, strict=True) for call in pair]

    # The first message adds the frameworks that the second one removes.
    for calls, between, most in (
        (updates, others[len(small) :], 20 * 50 * 28),
        (suppressed, questions, 40 * 50),
        (short_lived, questions, 40 * 50),
    ):
        separate = cost([*small, *between])
        together = cost([*small, *mixed(calls, between)])
        assert together - separate <= most, (calls[0], together - separate)


def test_a_framework_with_resources_is_removed_in_the_message_that_adds_it() -> None:
    agent = agent_call("s", "cpus:1;mem:64", {"x": resources("cpus:1", "a")})
    added = contract.AddFramework(framework_id="x", info=subscription("x", "a"), active=False)
    for before, calls in (
        ([agent], [added]),
        ([], [added, agent]),
        ([], [agent, added]),
    ):
        master = master_with()
        master.send(*before)
        master.send(*calls, contract.RemoveFramework(framework_id="x"))
        assert not [*master.engine._cluster.ledger.agents["s"].allocations()]


def test_a_new_subscription_examines_agents_for_its_own_framework_only() -> None:
    """Each re-subscription examined all agents for all frameworks, and cost 30 to 40 ms."""
    examined = []
    for skips in (False, True):
        master = master_with(skips=skips)
        for number in range(20):
            master.add_agent(f"s{number}", f"cpus:{1 + number / 100};mem:64")
        info = subscription("f", "a", demand="cpus:99;mem:1")
        master.send(contract.AddFramework(framework_id="f", info=info, active=True))
        master.tick()
        before = master.engine.statistics.candidates
        for _ in range(5):
            master.send(
                contract.DeactivateFramework(framework_id="f"),
                update("f", "a", demand="cpus:99;mem:1"),
                contract.ActivateFramework(framework_id="f"),
            )
        examined.append(master.engine.statistics.candidates - before)
    assert examined == [100, 20]


def test_the_present_rules_contain_this_one() -> None:
    assert not EngineSettings(policy=Config().policy.create()).skips_void_calls
    assert Config().engine_settings().skips_void_calls
