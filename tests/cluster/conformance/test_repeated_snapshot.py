"""A repeated snapshot changes neither what the engine shows nor what it offers."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from allocator.users.settings import DeclaredUser
from tests.cluster.conformance.mirror import Bag, Mirror, bag, written
from tests.cluster.conformance.quota_side import BatchMaster, set_quota
from tests.cluster.conformance.test_resync import AGENTS, FRAMEWORKS, KINDS, Chance
from tests.cluster.master_side import Offered, read, resources

Place = tuple[str, str, str]
"""(agent, framework, role)"""

LABELS: list[dict[str, str]] = [
    {},
    {"longshare.demand": "cpus:1;mem:256"},
    {"longshare.demand": "cpus:1;mem:128", "longshare.blacklist": "s1.*"},
    {"longshare.demand": "cpus:0.5", "longshare.attributes": "rack:r1"},
    {"longshare.demand": "cpus:99"},
    {"longshare.demand": "nonsense", "longshare.whitelist": "nowhere"},
]
REFUSALS = (0.0, 0.5, 4.0, 1000.0)
WORLDS: dict[str, tuple[tuple[str, dict[str, object]], UserKey, bool]] = {
    "roles": (("drf", {}), "role", False),
    "roles that remember": (("sdrf", {"half_life": 60.0}), "role", False),
    "task shares": (("tsf", {}), "role", False),
    "task shares that remember": (("stsf", {"half_life": 60.0}), "role", True),
    "monopolies": (("cdrf", {}), "framework", False),
    "principals": (("sdrf", {"half_life": 60.0}), "principal", True),
    "names": (("drfh", {}), "framework_name", False),
    "what is learned": (("drf", {}), "role", True),
}
"""Policy with parameters, user key, and whether task demands are learned."""


class Teller(Mirror):
    """A mirror that also records exclusions, running tasks, labels, racks and limits."""

    def __init__(self, master: BatchMaster) -> None:
        super().__init__(master)
        self.labels: dict[str, dict[str, str]] = {}
        self.racks: dict[str, str] = {}
        self.running: dict[Place, Bag] = {}
        self.excluded: set[Place] = set()
        self.limited: dict[str, contract.UpdateQuota] = {}

    def snapshot(self) -> contract.Snapshot:
        snapshot = super().snapshot()
        snapshot.limited_quotas.extend(self.limited.values())
        return snapshot

    def agent_call(self, name: str) -> contract.AddAgent:
        call = super().agent_call(name)
        info = mesos.SlaveInfo.FromString(call.info)
        if name in self.racks:
            rack = mesos.Value.Text(value=self.racks[name])
            info.attributes.add(name="rack", type=mesos.Value.TEXT, text=rack)
        call.info = info.SerializeToString()
        for (agent, framework, role), part in sorted(self.running.items()):
            if agent == name and part:
                call.running.add(framework_id=framework, resources=written(part, role))
        call.excluded.CopyFrom(self.exclusions(name))
        return call

    def exclusions(self, name: str) -> contract.ExclusionList:
        exclusions = contract.ExclusionList()
        for agent, framework, role in sorted(self.excluded):
            if agent == name:
                exclusions.exclusions.add(framework_id=framework, role=role)
        return exclusions

    def framework_call(self, name: str) -> contract.AddFramework:
        call = super().framework_call(name)
        info = mesos.FrameworkInfo.FromString(call.info)
        for key, value in self.labels.get(name, {}).items():
            info.labels.labels.add(key=key, value=value)
        if name != "f1":
            info.principal = "team"
        call.info = info.SerializeToString()
        return call

    def add_agent(self, name: str, total: str, used: dict[tuple[str, str], str]) -> None:
        self.running |= {(name, *place): bag(text) for place, text in used.items()}
        super().add_agent(name, total, used)

    def remove_agent(self, name: str) -> None:
        self.forget(0, name)
        super().remove_agent(name)

    def remove_framework(self, name: str) -> None:
        self.forget(1, name)
        super().remove_framework(name)

    def forget(self, part: int, name: str) -> None:
        self.excluded = {place for place in self.excluded if place[part] != name}
        self.running = {p: held for p, held in self.running.items() if p[part] != name}

    def add_provider(self, name: str, total: str, used: dict[tuple[str, str], str]) -> None:
        for place, text in used.items():
            self.running[name, *place] = self.running.get((name, *place), Counter()) + bag(text)
        super().add_provider(name, total, used)

    def resize(self, name: str, total: str) -> None:
        self.agents[name].total = bag(total)
        resource_list = contract.ResourceList(resources=resources(total))
        info = self.agent_call(name).info
        self.send(contract.UpdateAgent(agent_id=name, info=info, total=resource_list))

    def move(self, name: str, rack: str) -> None:
        self.racks[name] = rack
        info = self.agent_call(name).info
        excluded = self.exclusions(name)
        self.send(contract.UpdateAgent(agent_id=name, info=info, excluded=excluded))

    def update_framework(self, name: str, roles: tuple[str, ...], suppressed: set[str]) -> None:
        framework = self.frameworks[name]
        framework.roles, framework.suppressed = roles, suppressed
        by_role: dict[str, list[str]] = {}
        for agent, _, role in sorted(place for place in self.excluded if place[1] == name):
            by_role.setdefault(role, []).append(agent)
        excluded_agents = [contract.ExcludedAgents(role=r, agent_ids=a) for r, a in by_role.items()]
        call = contract.UpdateFramework(
            framework_id=name, info=self.framework_call(name).info, excluded=excluded_agents
        )
        call.suppressed_roles.extend(sorted(suppressed))
        self.send(call)

    def give_back(self, offer: Offered, part: Bag, filters: bytes | None) -> None:
        place = (offer.agent, offer.framework, offer.role)
        used = bag(offer.resources) - part
        if used:
            self.running[place] = self.running.get(place, Counter()) + used
            self.send(
                contract.TransitionOfferedToAllocated(
                    agent_id=offer.agent,
                    framework_id=offer.framework,
                    resources=written(used, offer.role),
                )
            )
        super().give_back(offer, part, filters)
        self.follow(place)

    def follow(self, place: Place) -> None:
        """Limit the recorded running tasks of a place to its allocation."""
        held = self.agents[place[0]].held.get(place[1:], Counter())
        running = self.running.pop(place, Counter()) & held
        if running:
            self.running[place] = running

    def reserve_offered(self, offer: Offered) -> None:
        super().reserve_offered(offer)
        self.follow((offer.agent, offer.framework, offer.role))

    def end(self, place: Place, part: Bag) -> None:
        """Let a task with these resources end."""
        agent, framework, role = place
        self.running[place] = self.running.get(place, Counter()) - part
        self.follow(place)
        self.release(agent, framework, role, part, is_allocated=True)


class Talk(Chance):
    """Draws further calls that a master may make."""

    mirror: Teller

    def labels(self) -> None:
        for name in self.one(self.mirror.frameworks):
            self.mirror.labels[name] = self.random.choice(LABELS)
            framework = self.mirror.frameworks[name]
            self.mirror.update_framework(name, framework.roles, framework.suppressed)

    def rack(self) -> None:
        for name in self.one(self.mirror.agents):
            self.mirror.move(name, self.random.choice(["r1", "r2"]))

    def excludes(self) -> None:
        for framework in self.one(self.mirror.frameworks):
            for agent in self.one(self.mirror.agents):
                for role in self.mirror.frameworks[framework].roles[:1]:
                    self.mirror.excluded ^= {(agent, framework, role)}
                if self.either():
                    self.mirror.move(agent, self.mirror.racks.get(agent, "r1"))
                else:
                    state = self.mirror.frameworks[framework]
                    self.mirror.update_framework(framework, state.roles, state.suppressed)

    def request(self) -> None:
        for name in self.one(self.mirror.frameworks):
            request = mesos.Request()
            for data in resources(self.random.choice(["cpus:2;mem:64", "mem:300"])):
                request.resources.add().MergeFromString(data)
            call = contract.RequestResources(framework_id=name)
            call.requests.append(request.SerializeToString())
            self.mirror.send(call)

    def answer(self) -> None:
        for offer in self.mirror.offers[:1]:
            whole = bag(offer.resources)
            part: Bag = Counter(
                {name: self.random.choice([0, m // 2, m]) for name, m in whole.items()}
            )
            seconds = self.random.choice(REFUSALS)
            filters = mesos.Filters(refuse_seconds=seconds).SerializeToString()
            framework = self.mirror.frameworks[offer.framework]
            if not framework.active or offer.role not in framework.roles:
                self.mirror.give_back(offer, whole, None)  # The master rescinds the offer.
            elif self.random.random() < 0.2 and whole <= self.mirror.agents[offer.agent].total:
                self.mirror.reserve_offered(offer)
            else:
                self.mirror.give_back(offer, whole if self.either() else +part, filters)

    def task_ends(self) -> None:
        for place in list(self.mirror.running)[:1]:
            self.mirror.end(place, self.mirror.running[place])

    def limit(self) -> None:
        for role in self.one("ab" if self.quotas else ""):
            call = contract.UpdateQuota(role=role)
            call.limits.amounts["cpus"] = self.random.choice([1, 4])
            call.guarantees.amounts["mem"] = self.random.choice([100, 600])
            self.mirror.limited[role] = call
            self.mirror.send(call)

    def quota(self) -> None:
        for role in self.one("" if self.quotas else "ab"):
            if role in self.mirror.quotas:
                self.mirror.remove_quota(role)
            else:
                self.mirror.set_quota(set_quota(role, "cpus:2;mem:600"))

    def order(self) -> None:
        for user in self.one(user for user in self.mirror.master.engine.users() if "." not in user):
            weight = self.random.choice([None, 0.5, 3.0])
            seconds = 20.0 if weight and self.either() else None
            weight_order = operator.SetWeight(user=user, weight=weight, seconds=seconds)
            self.mirror.master.engine.order(operator.Order(set_weight=weight_order))

    def speak(self) -> None:
        for name in self.one(self.mirror.frameworks):
            framework = self.mirror.frameworks[name]
            for role in framework.roles[:1]:
                if self.either():
                    framework.suppressed |= {role}
                    self.mirror.send(contract.SuppressOffers(framework_id=name, roles=[role]))
                else:
                    framework.suppressed -= {role}
                    self.mirror.send(contract.ReviveOffers(framework_id=name, roles=[role]))


SAID = [
    *(kind for kind in KINDS if kind != "bracket"),
    *("labels", "rack", "excludes", "request", "limit", "order", "speak"),
    *("answer", "answer", "answer", "tick", "agent", "framework"),
]


def seen(engine: Engine) -> dict[str, Any]:
    """Return the visible state of all users that have an allocation or a framework."""
    clients = engine.clients()
    survey = run_to_completion(engine.survey())
    known_users = {user for client in clients for user in engine.users_of(client)}
    standings = [standing for standing in engine.standings() if standing.user in known_users]
    return {
        "places": list(engine.machine_summaries()),
        "holdings": engine.allocations(),
        "offered": engine.offered(),
        "clients": sorted(clients),
        "users": {client: engine.users_of(client) for client in clients},
        "below": {user: sorted(engine.clients(user)) for user in known_users},
        "why": {
            client: run_to_completion(survey.explain(client, closely=True)) for client in clients
        },
        "filters": engine.filters_by_role(),
        "quotas": engine.quotas(),
        "demands": engine.demands(),
        "constraints": engine.constraints(),
        "misfits": engine.misfits(),
        "fits": {user: run_to_completion(engine.task_fits(user)) for user in known_users},
        "set aside": sorted(map(str, engine.rejected_inputs())),
        "weights": {user: engine.weights.by(user) for user in known_users},
        "beside the gone": beside_the_gone(engine, known_users),
        "standings": {
            standing.user: {field.name: getattr(standing, field.name) for field in fields(standing)}
            for standing in standings
        },
    }


def beside_the_gone(engine: Engine, known_users: set[str]) -> set[str]:
    """Return sub-roles of removed roles with a commitment.

    Their standings differ after a snapshot, or once the commitment has decayed.
    """
    leaves = {user for user in engine.users() if user.endswith("/.")} - known_users
    return {user for user in known_users if any(user.startswith(leaf[:-1]) for leaf in leaves)}


def the_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for part, value in before.items():
        if part not in {"standings", "beside the gone"}:
            assert after[part] == value, part
    assert set(after["standings"]) == set(before["standings"])
    for user in set(before["standings"]) - before["beside the gone"]:
        for part, value in before["standings"][user].items():
            near = isinstance(value, float | dict)
            expected = pytest.approx(value, abs=1e-9) if near else value
            assert after["standings"][user][part] == expected, (user, part)


def noted(mirror: Teller) -> dict[str, Any]:
    """Return the state of agents and roles according to the mirror's own record."""
    running = mirror.running
    offered: dict[str, Bag] = {}
    holding: dict[str, set[Client]] = {}
    for name, agent in mirror.agents.items():
        for (framework, role), held in agent.held.items():
            if framework in mirror.frameworks:
                holding.setdefault(role, set()).add(Client(role, framework))
                idle = held - running.get((name, framework, role), Counter())
                offered[role] = offered.get(role, Counter()) + idle
    for framework, state in mirror.frameworks.items():
        for role in state.roles:
            holding.setdefault(role, set()).add(Client(role, framework))
    return {
        "clients": {
            top: sorted(c for role in holding if below(role, top) for c in holding[role])
            for top in holding
        },
        "offered": {
            top: by_name(sum((offered[r] for r in offered if below(r, top)), Counter()))
            for top in holding
        },
        "places": [place(mirror, name) for name in mirror.agents],
    }


def below(role: str, top: str) -> bool:
    return role == top or role.startswith(f"{top}/")


def place(mirror: Teller, name: str) -> tuple[str, str, str, dict[str, str]]:
    agent, allowed = mirror.agents[name], mirror.whitelist
    state = "offered" if agent.free() else "full"
    if allowed is not None and f"{name}.example" not in allowed.hostnames:
        state = "not on the whitelist"
    if not agent.active:
        state = "deactivated"
    held: dict[str, Bag] = {}
    for (_, role), amounts in agent.held.items():
        held[role] = held.get(role, Counter()) + amounts
    return (
        name,
        state,
        by_name(agent.free()),
        {role: by_name(amounts) for role, amounts in held.items()},
    )


def by_name(amounts: Bag) -> str:
    sums: Bag = Counter()
    for name, milli in amounts.items():
        sums[name.partition("(")[0]] += milli
    return ";".join(f"{name}:{milli / 1000:g}" for name, milli in sorted(sums.items()) if milli)


def in_order(quantities: Quantities) -> str:
    return ";".join(sorted(filter(None, str(quantities).split(";"))))


def people_see(engine: Engine, users: Iterable[str]) -> dict[str, Any]:
    """Return the same state according to the engine."""
    offered = engine.offered() or {}
    return {
        "clients": {user: sorted(engine.clients(user)) for user in users},
        "offered": {user: in_order(offered.get(user, Quantities())) for user in users},
        "places": [
            (
                agent_summary.machine,
                agent_summary.state,
                in_order(agent_summary.free),
                {user: in_order(held) for user, held in agent_summary.held.items()},
            )
            for agent_summary in engine.machine_summaries()
        ],
    }


def alone(mirror: Teller, client: Client) -> list[Offered]:
    """Return the offers for a client if no other client wanted offers."""
    snapshot = mirror.snapshot()
    for framework in snapshot.frameworks:
        framework.active = framework.active and framework.framework_id == client.framework
        framework.suppressed_roles.extend(
            role for role in ("a", "b", "c", "a/b") if role != client.role
        )
    engine = Engine(mirror.master.settings)
    return read(engine.restore(mirror.master.options, snapshot))


@pytest.mark.parametrize("world", ["roles", "task shares"])
def test_a_client_that_waits_for_its_turn_would_get_an_offer_alone(world: str) -> None:
    (policy, parameters), key, _ = WORLDS[world]
    master = BatchMaster()
    master.settings = EngineSettings(
        policies.create(policy, parameters), key, allocation="batch", demands_must_agree=True
    )
    master.options.tells_running = True
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    mirror = Teller(master)
    talk = Talk(mirror, 7, filters=False, quotas=world == "roles")
    for name in AGENTS:
        mirror.add_agent(name, AGENTS[name], {})
    for name, roles in FRAMEWORKS.items():
        mirror.add_framework(name, roles, set(), active=True)
    seen_reasons = set[str]()
    for _ in range(50):
        for _ in range(3):
            talk.call(talk.random.choice([kind for kind in SAID if kind != "request"]))
        expected = noted(mirror)
        assert people_see(master.engine, expected["clients"]) == expected
        survey = run_to_completion(master.engine.survey())
        for client in master.engine.clients():
            why = run_to_completion(survey.explain(client))
            assert why is not None
            guaranteed = client.role in master.engine.quotas()  # for tasks of any demand
            declined_rest = why.task is None and why.lacking_resources  # of an agent without them
            if "refused" not in why.agents and not declined_rest and not (guaranteed and why.task):
                seen_reasons.add(why.reason)
                served = {offer.agent for offer in alone(mirror, client)}
                assert bool(served) == (why.reason == "turn"), (why, served)
        if talk.either():
            mirror.tick(1)
    assert {"turn", "quota", "nothing_free", "inactive"} <= seen_reasons, seen_reasons


@pytest.mark.parametrize("world", WORLDS)
def test_a_repeated_snapshot_changes_nothing_that_is_shown_and_causes_no_offers(world: str) -> None:
    (policy, parameters), key, learns = WORLDS[world]
    master = BatchMaster()
    master.settings = EngineSettings(
        policy=policies.create(policy, parameters),
        user_key=key,
        users=(DeclaredUser("a", 2.0),),
        allocation="batch",
        learn_demands=learns,
        demands_must_agree=True,
        forget_after=0.0,
    )
    master.options.tells_running = True
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    mirror = Teller(master)
    talk = Talk(mirror, len(world), filters=True, quotas=learns)
    for name in AGENTS:
        mirror.add_agent(name, AGENTS[name], {})
    for name, roles in FRAMEWORKS.items():
        mirror.add_framework(name, roles, set(), active=True)
    for _ in range(40):
        for _ in range(4):
            talk.call(talk.random.choice(SAID))
        for seconds in (talk.random.choice([0.4, 1, 3]), 0, 0, 0):
            mirror.tick(seconds)  # Removed users are forgotten level by level.
        before = seen(master.engine)
        decisions = master.engine.restore(master.options, mirror.snapshot())
        assert not decisions.offers, "everything that could be offered is offered already"
        assert not decisions.inverse_offers, "all inverse offers had been made already"
        the_same(before, seen(master.engine))
