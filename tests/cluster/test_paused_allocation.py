"""A cycle that waits for `resume` allocates the same as a cycle without a pause."""

from random import Random

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.users.memory import Memory, RememberedUser
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info, resources

POLICIES: dict[str, dict[str, object]] = {
    "sdrf": {"half_life": 20.0},
    "dynamic-drf": {"alpha": 1.0},
    "dynamic-mmf": {"resource": "cpus", "alpha": 1.0},
}
ROLES = ["a/b", "a/c", "a", "a/b/x", "a/b/y"]
GONE = ["z", "a/z", "a/b/z", "x/y"]


def world(seed: int) -> tuple[Engine, contract.Snapshot, contract.Event]:
    """Return an engine, a snapshot without some users with commitments, and a changed weight."""
    chance = Random(seed)
    policy = chance.choice(list(POLICIES))
    owing = [role for role in [*ROLES, *GONE] if chance.random() < 0.7]
    users = {role: RememberedUser({"cpus": chance.random() / 2}) for role in owing}
    memory = Memory(START_NS / 1e9, users, 30.0)
    snapshot = contract.Snapshot(time_ns=START_NS)
    for number, role in enumerate(ROLES):
        info = framework_info(f"f{number}", role)
        snapshot.frameworks.add(framework_id=f"f{number}", info=info, active=True)
    for number in range(8):
        holder = chance.randrange(len(ROLES))
        held = resources(f"cpus:{chance.choice([1, 2, 4])};mem:100", ROLES[holder])
        snapshot.agents.append(agent_call(f"s{number}", "cpus:4;mem:4096", {f"f{holder}": held}))
    late = contract.Event()
    late.update_weights.weights.add(role="a", weight=chance.choice([0.01, 0.1, 100.0]))
    engine = Engine(EngineSettings(policies.create(policy, POLICIES[policy])), memory=memory)
    return engine, snapshot, late


def said(engine: Engine, *calls: str | contract.Event) -> list[contract.Offers]:
    """Return the offers that follow the given calls in one message."""
    events = contract.Events()
    for number, call in enumerate(calls, start=engine.sequence + 1):
        event = events.events.add(sequence=number, time_ns=START_NS)
        if isinstance(call, str):
            getattr(event, call).SetInParent()
        else:
            event.MergeFrom(call)
    return list(engine.apply(events).offers)


def test_the_order_of_clients_does_not_depend_on_the_delay_of_a_cycle() -> None:
    options = contract.Options(allocation_interval_ns=SECOND)
    for seed in (*range(10), 51, 72, 139, 143):  # the last seeds distinguish the two
        engine, snapshot, late = world(seed)
        first, then = list(engine.restore(options, snapshot).offers), more_agents()
        second = said(engine, *then, late)
        engine, snapshot, late = world(seed)
        snapshot.paused = True
        assert not engine.restore(options, snapshot).offers
        assert said(engine, "resume", "tick") == first
        assert not said(engine, "pause", *then, late)
        assert said(engine, "resume", "tick") == second


def more_agents() -> list[contract.Event]:
    calls = [agent_call(f"more{number}", "cpus:1;mem:1024") for number in range(8)]
    return [contract.Event(add_agent=call) for call in calls]
