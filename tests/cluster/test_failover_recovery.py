"""After a failover, no user is charged for agents that are only late."""

import pytest

from allocator.cluster.agents import failover_recovery as failover
from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info, resources

USERS = ("a", "b", "c")
HALF_LIFE = 60.0
POLICIES = [("sdrf", {"half_life": HALF_LIFE}), ("stsf", {"half_life": HALF_LIFE})]


class Failover:
    """Three agents, each fully used by one user; a newly elected master, and an engine."""

    def __init__(self, policy: str, parameters: dict[str, object], engine: Engine | None) -> None:
        self.settings = EngineSettings(
            policy=policies.create(policy, parameters),
            users=tuple(DeclaredUser(user) for user in USERS),
        )
        self.engine = engine or Engine(self.settings)
        self.options = contract.Options(allocation_interval_ns=SECOND)
        self.now_ns = START_NS
        self.sequence = 0

    def agent(self, user: str, holder: str | None = None) -> contract.AddAgent:
        held = resources("cpus:4;mem:4096", holder or user)
        return agent_call(f"s-{user}", "cpus:4;mem:4096", {f"f-{holder or user}": held})

    def restore(self, snapshot: contract.Snapshot) -> None:
        snapshot.time_ns, snapshot.sequence = self.now_ns, self.sequence
        self.engine.restore(self.options, snapshot)

    def whole(self) -> None:
        """Start with a master that has been active for a long time."""
        agents, frameworks = [self.agent(user) for user in USERS], self.frameworks()
        self.restore(contract.Snapshot(agents=agents, frameworks=frameworks))

    def frameworks(self) -> list[contract.AddFramework]:
        return [
            contract.AddFramework(
                framework_id=f"f-{user}", info=framework_info(f"f-{user}", user), active=True
            )
            for user in USERS
        ]

    def elected(self, expected: int = 3) -> None:
        """Let another master be elected; no agent has registered with it yet."""
        snapshot = contract.Snapshot(frameworks=self.frameworks())
        snapshot.hold_off.agents_needed = expected * 4 // 5
        snapshot.hold_off.agents_expected = expected
        snapshot.hold_off.until_ns = self.now_ns + 600 * SECOND
        self.restore(snapshot)

    def send(self, **call: object) -> None:
        self.sequence += 1
        event = contract.Event(sequence=self.sequence, time_ns=self.now_ns, **call)  # type: ignore[arg-type]
        self.engine.apply(contract.Events(events=[event]))

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_ns += SECOND
            self.send(tick=contract.Tick())

    def owed(self) -> dict[str, float]:
        return {s.user: max(s.commitments.values(), default=0.0) for s in self.engine.standings()}


@pytest.mark.parametrize("knows", [True, False], ids=["the service lived", "it was restarted, too"])
@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_users_at_exactly_their_share_have_no_commitment_while_agents_are_late(
    policy: str, parameters: dict[str, object], *, knows: bool
) -> None:
    failover = Failover(policy, parameters, None)
    if knows:
        failover.whole()
    failover.elected()
    failover.send(add_agent=failover.agent("a"))
    failover.wait(25)
    failover.send(add_agent=failover.agent("b"))
    failover.wait(50)  # Failover recovery has ended; one agent is still late.
    failover.send(add_agent=failover.agent("c"))
    failover.wait(10)
    assert failover.owed() == dict.fromkeys(USERS, 0.0)
    assert failover.engine.pool.capacity.to_doubles()["cpus"] == 12.0


def test_users_above_their_share_are_charged_from_the_end_of_recovery() -> None:
    failover = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    failover.whole()
    failover.elected()
    failover.send(add_agent=failover.agent("a"))
    failover.wait(30)
    assert failover.owed() == dict.fromkeys(USERS, 0.0)
    failover.send(add_agent=failover.agent("b", holder="a"))
    failover.wait(round(HALF_LIFE))
    owed = failover.owed()
    assert owed["a"] == pytest.approx((2 / 3 - 1 / 3) / 2), "two thirds of the whole cluster"
    assert owed["b"] == owed["c"] == 0.0


def test_no_user_is_charged_before_the_end_of_recovery() -> None:
    failover = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    failover.whole()
    failover.elected(expected=10)
    for user in USERS:
        failover.send(add_agent=failover.agent(user, holder="a"))
    failover.wait(30)
    assert failover.owed() == dict.fromkeys(USERS, 0.0)


def test_missing_agents_count_in_the_capacity_for_ten_minutes() -> None:
    failover = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    failover.whole()
    failover.elected()
    for user in "ab":
        failover.send(add_agent=failover.agent(user))
    failover.wait(599)
    assert failover.owed()["a"] == 0.0
    failover.wait(1 + round(HALF_LIFE))
    assert failover.owed()["a"] == pytest.approx((1 / 2 - 1 / 3) / 2, rel=0.02)
    assert failover.engine.pool.capacity.to_doubles()["cpus"] == 8.0


def test_commitments_decay_while_agents_are_late() -> None:
    failover = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    failover.restore(
        contract.Snapshot(
            agents=[failover.agent(user, holder="a") for user in USERS],
            frameworks=failover.frameworks(),
        )
    )
    failover.wait(60)
    before = failover.owed()["a"]
    failover.elected()
    failover.send(add_agent=failover.agent("a"))
    failover.wait(round(HALF_LIFE))
    assert failover.owed()["a"] == pytest.approx(before / 2)


@pytest.mark.parametrize("until", [0, 2**63 - 1, -(2**63)])
def test_no_recovery_lasts_longer_than_ten_minutes(until: int) -> None:
    failover = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    snapshot = contract.Snapshot(agents=[agent_call("s1", "cpus:4;mem:4096")])
    snapshot.frameworks.extend(failover.frameworks())
    snapshot.hold_off.agents_needed = 2**62
    snapshot.hold_off.until_ns = until
    failover.restore(snapshot)
    failover.wait(600)
    assert failover.engine.statistics.offers > 0


@pytest.mark.parametrize("between", ["tsf", "drf", "fifo"])
def test_commitments_decay_with_their_own_half_life_under_a_policy_without_memory(
    between: str,
) -> None:
    made = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    made.restore(
        contract.Snapshot(
            agents=[made.agent(user, holder="a") for user in USERS], frameworks=made.frameworks()
        )
    )
    made.wait(120)
    owed = made.owed()["a"]
    assert owed > 0.3
    without = successor(made, between, {})
    without.wait(60)
    assert without.owed()["a"] == pytest.approx(owed / 2)
    resumed = successor(without, "sdrf", {"half_life": 7200.0}, held=False)
    assert resumed.owed()["a"] == pytest.approx(owed / 2)
    resumed.wait(60)
    assert resumed.owed()["a"] == pytest.approx(owed / 2 * 0.5 ** (60 / 7200))


def test_commitments_decay_with_their_own_half_life_between_two_services() -> None:
    made = Failover("sdrf", {"half_life": HALF_LIFE}, None)
    made.restore(
        contract.Snapshot(
            agents=[made.agent(user, holder="a") for user in USERS], frameworks=made.frameworks()
        )
    )
    made.wait(120)
    owed = made.owed()["a"]
    made.now_ns += 60 * SECOND
    assert successor(made, "sdrf", {"half_life": 7200.0}, held=False).owed()["a"] == pytest.approx(
        owed / 2
    )


def successor(
    former: Failover, policy: str, parameters: dict[str, object], *, held: bool = True
) -> Failover:
    """Start a service with another policy and the former service's memory."""
    memory = former.engine.memory()
    settings = EngineSettings(
        policy=policies.create(policy, parameters),
        users=tuple(DeclaredUser(user) for user in USERS),
    )
    later = Failover(policy, parameters, Engine(settings, memory=memory))
    later.now_ns = former.now_ns
    agents = [later.agent(user, holder="a") for user in USERS] if held else []
    later.restore(contract.Snapshot(agents=agents, frameworks=later.frameworks()))
    return later


def test_no_agent_is_awaited_after_the_end_of_recovery() -> None:
    awaited = failover.FailoverRecovery(needed=1, expected=2, until_ns=10)
    assert awaited.holds_back_offers(0, 9)
    assert not awaited.is_complete(1, 9)
    assert not awaited.holds_back_offers(0, 10)
    assert awaited.is_complete(1, 10)
