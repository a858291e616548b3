"""Random sequences of calls to the engine, checked after each call against a plain model."""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from tests.cluster.master_side import (
    SECOND,
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resources,
    text_of,
)
from tests.examples import examples

FRAMEWORKS = {"f1": ("a",), "f2": ("b",), "f3": ("a", "b"), "f4": ("eng/web",)}
OTHER_ROLES = [*FRAMEWORKS.values(), ("eng",), ("b", "eng/web"), ("a/x", "a")]
AGENTS = {
    "s1": "cpus:4;mem:6144",
    "s2": "cpus:2;mem:2048;ports:[1-4]",
    "s3": "cpus:1;mem:512;cpus(eng):2;mem(eng):1024",
}
SIZES = {
    "s1": ["cpus:4;mem:6144", "cpus:8;mem:6144", "cpus:1;mem:1024;cpus(a):1"],
    "s2": ["cpus:2;mem:2048;ports:[1-4]", "mem:2048;ports:[1-4]", "cpus:3;mem:4096;ports:[1-4]"],
    "s3": ["cpus:1;mem:512;cpus(eng):2;mem(eng):1024", "cpus:2;mem:1024"],
}
"""Possible resources of each agent."""
GUARANTEES = ["cpus:2;mem:1024", "cpus:5", "mem:3000;disk:10"]
DEMAND = "cpus:1;mem:512"
AVOIDED = "s2"
"""The agent that some frameworks exclude."""
BAD_CALLS: list[object] = [
    contract.RemoveAgent(agent_id="nobody"),
    contract.RecoverResources(agent_id="s1", framework_id="f1", resources=[b"rubbish"]),
    contract.RecoverResources(agent_id="s1", framework_id="f1", resources=resources("cpus:1")),
    contract.SetQuota(role="*"),
    contract.UpdateWeights(weights=[contract.Weight(role="a", weight=-1.0)]),
    contract.UpdateAllocation(
        agent_id="s1", framework_id="f1", offered=resources("cpus:9999", "a")
    ),
    contract.Recover(expected_agents=-1),
]
POLICIES = [
    ("drf", {}),
    ("sdrf", {"delta": 0.9}),
    ("sdrf", {"half_life": 30, "form": "thesis"}),
    ("sdrf", {"delta": 0.9, "ranking": "scan"}),
    ("tsf", {}),
    ("stsf", {"delta": 0.9}),
    ("cdrf", {}),
    ("drfh", {}),
    ("per-machine-drf", {}),
    ("cmmf", {"resource": "mem"}),
    ("fifo", {}),
    ("dynamic-drf", {"alpha": 0.5}),
    ("dynamic-mmf", {}),
    ("kueue-afs", {"half_life": 30}),
    ("htcondor", {"half_life": 30, "slots": 16}),
    ("volcano", {"half_life": 30, "ranking": "scan"}),
    ("karma", {}),
    ("yarn-fair", {"minimum": 0.5}),
]

Amounts = dict[tuple[str, str], int]
"""(name, reservation role) → thousandths; a port counts 1000."""


def messages_of(total: Amounts) -> list[bytes]:
    """Return amounts as serialised resources of an agent."""
    text = ";".join(
        f"{name}{f'({reserved})' if reserved else ''}:{amount / 1000}"
        for (name, reserved), amount in total.items()
        if amount and name != "ports"
    )
    return resources(text) + (resources("ports:[1-4]") if total.get(("ports", "")) else [])


def milli(text: str) -> dict[str, int]:
    return {name: amount for (name, _), amount in amounts(resources(text)).items()}


def amounts(messages: tuple[bytes, ...] | list[bytes]) -> Amounts:
    total: Amounts = defaultdict(int)
    for data in messages:
        message = mesos.Resource.FromString(data)
        reserved = message.reservations[-1].role if message.reservations else ""
        ports = sum(r.end - r.begin + 1 for r in message.ranges.range)
        total[message.name, reserved] += round(message.scalar.value * 1000) + 1000 * ports
    return total


@dataclass
class Model:
    """The record of a careful master: all state that follows from calls and decisions."""

    agents: set[str] = field(default_factory=set)
    inactive_agents: set[str] = field(default_factory=set)
    frameworks: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    roles: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(FRAMEWORKS))
    suppressed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    held: dict[tuple[str, str, str], list[tuple[bytes, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """(agent, framework, role) → offered or used resources"""
    refusals: list[tuple[str, str, str, Amounts, int]] = field(default_factory=list)
    """framework, role, agent, declined resources, end of the filter in ns"""
    paused: bool = False
    totals: dict[str, Amounts] = field(default_factory=dict)
    whitelist: set[str] | None = None
    quotas: dict[str, dict[str, int]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    schedules: dict[str, bytes] = field(default_factory=dict)
    asked: set[tuple[str, str]] = field(default_factory=set)
    """(agent, framework) pairs with an inverse offer that has no answer"""

    def forget_agent(self, agent: str) -> None:
        self.totals.pop(agent, None)
        self.schedules.pop(agent, None)
        self.asked = {pair for pair in self.asked if pair[0] != agent}

    def plain_held(self, top: str | None = None) -> dict[str, int]:
        """Return unreserved allocated resources, of all roles or of one subtree."""
        held: dict[str, int] = defaultdict(int)
        for (_, _, role), entries in self.held.items():
            if top is None or role == top or role.startswith(top + "/"):
                for entry in entries:
                    for (name, reserved), amount in amounts(entry).items():
                        held[name] += 0 if reserved else amount
        return held

    def required(self) -> dict[str, int]:
        """Return the required headroom."""
        required: dict[str, int] = defaultdict(int)
        for role, guarantee in self.quotas.items():
            consumed = self.plain_held(role)
            for total in self.totals.values():
                for (name, reserved), amount in total.items():
                    if reserved == role or reserved.startswith(role + "/"):
                        consumed[name] += amount
            for name, amount in guarantee.items():
                required[name] += max(amount - consumed[name], 0)
        return required

    def idle(self) -> dict[str, int]:
        """Return the free unreserved resources of the cluster."""
        idle: dict[str, int] = defaultdict(int)
        for total in self.totals.values():
            for (name, reserved), amount in total.items():
                idle[name] += 0 if reserved else amount
        for name, amount in self.plain_held().items():
            idle[name] -= amount
        return idle

    def free(self, agent: str) -> Amounts:
        remaining = defaultdict(int, self.totals[agent])
        for (place, _, _), entries in self.held.items():
            for entry in entries if place == agent else ():
                for key, amount in amounts(entry).items():
                    remaining[key] -= amount
        return remaining


class EngineMachine(RuleBasedStateMachine):
    """Calls in any order; each decision must be valid in the model."""

    offers = Bundle("offers")

    @initialize(
        target=offers,
        choice=st.sampled_from(POLICIES),
        allocation=st.sampled_from(["event", "batch"]),
        demanding=st.sets(st.sampled_from(sorted(FRAMEWORKS)), max_size=2),
        picky=st.sets(st.sampled_from(sorted(FRAMEWORKS)), max_size=2),
        limits=st.sampled_from([Limits(), Limits(unanswered=0.3, answered_after=3.0)]),
    )
    def start(
        self,
        choice: tuple[str, dict[str, object]],
        allocation: Literal["event", "batch"],
        demanding: set[str],
        picky: set[str],
        limits: Limits,
    ) -> object:
        """Begin with a busy cluster: all agents and frameworks are registered."""
        self.master = MasterSide(*choice, limits=limits)
        self.master.settings = replace(self.master.settings, allocation=allocation)
        self.master.engine = Engine(self.master.settings)
        self.master.restore(contract.Snapshot(time_ns=self.master.now_ns))
        self.demanding, self.picky = demanding, picky
        self.model = Model()
        made: list[Offered] = []
        for name in FRAMEWORKS:
            self.model.frameworks.add(name)
            self.model.active.add(name)
            made += self.add_framework(name, active=True)
        for name, total in AGENTS.items():
            self.model.agents.add(name)
            self.model.totals[name] = amounts(resources(total))
            made += self.master.add_agent(name, total)
        return self.check(made)

    def info_of(self, name: str) -> bytes:
        info = mesos.FrameworkInfo.FromString(framework_info(name, *self.model.roles[name]))
        if name in self.demanding:
            info.labels.labels.add(key="longshare.demand", value=DEMAND)
        if name in self.picky:
            info.labels.labels.add(key="longshare.blacklist", value=f"{AVOIDED}.*")
        return info.SerializeToString()

    def add_framework(self, name: str, *, active: bool) -> list[Offered]:
        call = contract.AddFramework(framework_id=name, info=self.info_of(name), active=active)
        return self.master.send(call)

    def check(self, made: list[Offered]) -> object:
        model, now = self.model, self.master.now_ns
        assert not (model.paused and made), "a paused allocator makes no offers"
        if not self.master.log:
            decisions = contract.Decisions()  # A snapshot has just been restored during a pause.
        else:
            decisions = contract.Decisions.FromString(self.master.log[-1][1])
        for offer in made:
            assert offer.agent in model.agents - model.inactive_agents
            assert model.whitelist is None or offer.agent in model.whitelist
            assert offer.framework in model.active
            assert not (offer.framework in self.picky and offer.agent == AVOIDED)
            assert offer.role in model.roles[offer.framework]
            assert offer.role not in model.suppressed[offer.framework]
            size = amounts(offer.messages)
            free = model.free(offer.agent)
            for (name, reserved), amount in size.items():
                assert 0 < amount <= free[name, reserved], "no resource is offered twice"
                assert (
                    not reserved or reserved == offer.role or offer.role.startswith(reserved + "/")
                ), "a reservation is offered to its role and its descendants only"
            for framework, role, agent, refused, until in model.refusals:
                if (framework, role, agent) == (offer.framework, offer.role, offer.agent):
                    assert until < now or any(size[k] > refused[k] for k in size), (
                        "declined resources are not offered before their filter expires"
                    )
            model.held[offer.agent, offer.framework, offer.role].append(offer.messages)
        self.check_headroom(made)
        for asked in decisions.inverse_offers:
            for inverse in asked.inverse_offers:
                pair = (inverse.agent_id, asked.framework_id)
                assert model.schedules[inverse.agent_id] == inverse.unavailability
                assert asked.framework_id in model.active
                assert pair not in model.asked, "an inverse offer is not repeated"
                assert any(entries for place, entries in model.held.items() if place[:2] == pair), (
                    "only a framework with an allocation gets an inverse offer"
                )
                model.asked.add(pair)
        return multiple(*made)

    def check_headroom(self, made: list[Offered]) -> None:
        """Check that offers to roles without quota leave the required headroom."""
        model = self.model
        over = any(amount < 0 for agent in model.agents for amount in model.free(agent).values())
        if over or not model.quotas:
            return
        idle, required = model.idle(), model.required()
        for offer in made:
            plain = {
                name for (name, reserved), _ in amounts(offer.messages).items() if not reserved
            }
            if offer.role not in model.quotas and plain & {"cpus", "mem"}:
                for name, amount in required.items():
                    assert idle[name] >= amount, "offers by fair share leave the headroom"

    @rule(target=offers, name=st.sampled_from(sorted(AGENTS)), busy=st.booleans())
    def agent_comes(self, name: str, busy: bool) -> object:  # noqa: FBT001 - hypothesis draws it
        if name in self.model.agents:
            return multiple()
        used = tuple(resources("cpus:0.5;mem:64", "a")) if busy else ()
        self.model.agents.add(name)
        self.model.totals[name] = amounts(resources(AGENTS[name]))
        if used:
            self.model.held[name, "f1", "a"].append(used)
        return self.check(
            self.master.add_agent(name, AGENTS[name], {"f1": list(used)} if used else {})
        )

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data())
    def agent_goes(self, data: st.DataObject) -> object:
        name = data.draw(st.sampled_from(sorted(self.model.agents)))
        model = self.model
        model.agents.discard(name)
        model.inactive_agents.discard(name)
        model.forget_agent(name)
        for key in [key for key in model.held if key[0] == name]:
            del model.held[key]
        model.refusals = [r for r in model.refusals if r[2] != name]
        return self.check(self.master.remove_agent(name))

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data(), active=st.booleans())
    def agent_turns(self, data: st.DataObject, active: bool) -> object:  # noqa: FBT001
        name = data.draw(st.sampled_from(sorted(self.model.agents)))
        (self.model.inactive_agents.discard if active else self.model.inactive_agents.add)(name)
        if not active:
            self.model.asked = {pair for pair in self.model.asked if pair[0] != name}
        call = contract.ActivateAgent if active else contract.DeactivateAgent
        return self.check(self.master.send(call(agent_id=name)))

    @rule(target=offers, name=st.sampled_from(sorted(FRAMEWORKS)), active=st.booleans())
    def framework_comes(self, name: str, active: bool) -> object:  # noqa: FBT001
        model = self.model
        if name in model.frameworks:
            return multiple()
        model.frameworks.add(name)
        model.suppressed[name].clear()
        if active:
            model.active.add(name)
        return self.check(self.add_framework(name, active=active))

    @precondition(lambda self: self.model.frameworks)
    @rule(target=offers, data=st.data())
    def framework_goes(self, data: st.DataObject) -> object:
        name = data.draw(st.sampled_from(sorted(self.model.frameworks)))
        model = self.model
        model.frameworks.discard(name)
        model.active.discard(name)
        model.asked = {pair for pair in model.asked if pair[1] != name}
        model.refusals = [r for r in model.refusals if r[0] != name]
        for key in [key for key in model.held if key[1] == name]:
            del model.held[key]
        return self.check(self.master.send(contract.RemoveFramework(framework_id=name)))

    @precondition(lambda self: self.model.frameworks)
    @rule(target=offers, data=st.data(), active=st.booleans())
    def framework_turns(self, data: st.DataObject, active: bool) -> object:  # noqa: FBT001
        name = data.draw(st.sampled_from(sorted(self.model.frameworks)))
        model = self.model
        if active:
            model.active.add(name)
            return self.check(self.master.send(contract.ActivateFramework(framework_id=name)))
        model.active.discard(name)
        model.asked = {pair for pair in model.asked if pair[1] != name}
        model.refusals = [r for r in model.refusals if r[0] != name]
        return self.check(self.master.send(contract.DeactivateFramework(framework_id=name)))

    @precondition(lambda self: self.model.frameworks)
    @rule(target=offers, data=st.data(), roles=st.sampled_from(OTHER_ROLES))
    def framework_takes_other_roles(self, data: st.DataObject, roles: tuple[str, ...]) -> object:
        """Change a framework's roles; it keeps offers in a left role until their recovery."""
        name = data.draw(st.sampled_from(sorted(self.model.frameworks)))
        suppressed = data.draw(st.sets(st.sampled_from(roles)))
        model = self.model
        model.roles[name], model.suppressed[name] = roles, suppressed
        model.refusals = [r for r in model.refusals if r[0] != name or r[1] in roles]
        call = contract.UpdateFramework(
            framework_id=name, info=self.info_of(name), suppressed_roles=sorted(suppressed)
        )
        return self.check(self.master.send(call))

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data())
    def agent_changes(self, data: st.DataObject) -> object:
        """Let an agent report more or fewer resources, possibly fewer than its allocations."""
        name = data.draw(st.sampled_from(sorted(self.model.agents)))
        total = data.draw(st.sampled_from(SIZES[name]))
        self.model.totals[name] = amounts(resources(total))
        return self.check(
            self.master.send(
                contract.UpdateAgent(
                    agent_id=name,
                    info=agent_call(name, total).info,
                    total=contract.ResourceList(resources=resources(total)),
                )
            )
        )

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data())
    def provider_comes(self, data: st.DataObject) -> object:
        name = data.draw(st.sampled_from(sorted(self.model.agents)))
        self.model.totals[name]["disk", ""] += 100_000
        call = contract.AddResourceProvider(agent_id=name, total=resources("disk:100"))
        return self.check(self.master.send(call))

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data(), role=st.sampled_from("ab"))
    def operator_reserves(self, data: st.DataObject, role: str) -> object:
        """Reserve a free CPU; without a free CPU the operator gets an error."""
        name = data.draw(st.sampled_from(sorted(self.model.agents)))
        operation = mesos.Operation(type=mesos.Operation.RESERVE)
        reserved = mesos.Resource.FromString(resources(f"cpus({role}):1")[0])
        operation.reserve.resources.append(reserved)
        possible = self.model.free(name)["cpus", ""] >= 1000
        call = contract.UpdateAvailable(agent_id=name, operations=[operation.SerializeToString()])
        if possible:
            self.model.totals[name]["cpus", ""] -= 1000
            self.model.totals[name]["cpus", role] += 1000
        made = self.master.send(call)
        [reply] = contract.Decisions.FromString(self.master.log[-1][1]).replies
        assert (reply.error == "") == possible, reply.error
        assert reply.sequence == self.master.sequence
        return self.check(made)

    @rule(target=offers, offer=consumes(offers))
    def framework_reserves(self, offer: Offered) -> object:
        """Let a framework reserve a CPU of its offer for the offer's role."""
        model = self.model
        entries = model.held[offer.agent, offer.framework, offer.role]
        plain = amounts(offer.messages)["cpus", ""]
        total = model.totals.get(offer.agent, {})
        if offer.messages not in entries or min(plain, total.get(("cpus", ""), 0)) < 1000:
            return multiple(offer)
        consumed = resources("cpus:1", offer.role)
        made_of_it = resources(f"cpus({offer.role}):1", offer.role)
        total["cpus", ""] -= 1000
        total["cpus", offer.role] += 1000
        changed = self.check(
            self.master.send(
                contract.UpdateAllocation(
                    framework_id=offer.framework,
                    agent_id=offer.agent,
                    offered=offer.messages,
                    conversions=[contract.Conversion(consumed=consumed, converted=made_of_it)],
                )
            )
        )
        assert changed == multiple(), "the operation frees no resources"
        rest = [data for data in offer.messages if not data.startswith(b"\n\x04cpus")]
        rest += [
            data
            for data in offer.messages
            if data.startswith(b"\n\x04cpus") and mesos.Resource.FromString(data).reservations
        ]
        after = defaultdict(int, amounts(rest))
        after["cpus", offer.role] += 1000
        text = f"cpus:{(plain - 1000) / 1000}" if plain > 1000 else ""
        messages = (*rest, *made_of_it, *resources(text, offer.role))
        entries[entries.index(offer.messages)] = messages
        return replace(offer, messages=messages, resources=text_of(messages))

    @rule(target=offers, role=st.sampled_from("ab"), guarantee=st.sampled_from([None, *GUARANTEES]))
    def quota_changes(self, role: str, guarantee: str | None) -> object:
        if guarantee is None:
            self.model.quotas.pop(role, None)
            return self.check(self.master.send(contract.RemoveQuota(role=role)))
        if role in self.model.quotas:
            return multiple()
        self.model.quotas[role] = milli(guarantee)
        return self.check(self.master.send(self.quota_call(role)))

    def quota_call(self, role: str) -> contract.SetQuota:
        info = mesos.QuotaInfo(role=role)
        for name, amount in self.model.quotas[role].items():
            [data] = resources(f"{name}:{amount / 1000}")
            info.guarantee.append(mesos.Resource.FromString(data))
        return contract.SetQuota(role=role, info=info.SerializeToString())

    @rule(
        target=offers, role=st.sampled_from(["a", "b", "eng"]), weight=st.sampled_from([0.5, 2.0])
    )
    def weight_changes(self, role: str, weight: float) -> object:
        self.model.weights[role] = weight
        call = contract.UpdateWeights(weights=[contract.Weight(role=role, weight=weight)])
        return self.check(self.master.send(call))

    @rule(target=offers, allowed=st.none() | st.sets(st.sampled_from(sorted(AGENTS)), max_size=3))
    def whitelist_changes(self, allowed: set[str] | None) -> object:
        self.model.whitelist = allowed
        call = contract.UpdateWhitelist()
        if allowed is not None:
            call.whitelist.hostnames.extend(f"{agent}.example" for agent in sorted(allowed))
            call.whitelist.SetInParent()
        return self.check(self.master.send(call))

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data(), start=st.none() | st.integers(1, 9))
    def maintenance_changes(self, data: st.DataObject, start: int | None) -> object:
        model = self.model
        name = data.draw(st.sampled_from(sorted(model.agents)))
        model.asked = {pair for pair in model.asked if pair[0] != name}
        model.schedules.pop(name, None)
        call = contract.UpdateUnavailability(agent_id=name)
        if start is not None:
            when = mesos.Unavailability(start=mesos.TimeInfo(nanoseconds=start))
            model.schedules[name] = call.unavailability = when.SerializeToString()
        return self.check(self.master.send(call))

    @precondition(lambda self: self.model.asked)
    @rule(target=offers, data=st.data())
    def inverse_offer_is_withdrawn(self, data: st.DataObject) -> object:
        agent, framework = pair = data.draw(st.sampled_from(sorted(self.model.asked)))
        self.model.asked.discard(pair)
        call = contract.UpdateInverseOffer(agent_id=agent, framework_id=framework)
        return self.check(self.master.send(call))

    @rule(call=st.sampled_from(BAD_CALLS))
    def nonsense_comes(self, call: object) -> None:
        engine = self.master.engine
        before = (engine.memory(), engine.allocations(), engine.available(), engine.now)
        with suppress(InvalidEvent):  # raised by the first bad call of each minute only
            self.master.send(call)
        assert (engine.memory(), engine.allocations(), engine.available(), engine.now) == before

    @precondition(lambda self: self.model.frameworks)
    @rule(target=offers, data=st.data(), revive=st.booleans(), all_roles=st.booleans())
    def framework_speaks(
        self,
        data: st.DataObject,
        revive: bool,  # noqa: FBT001
        all_roles: bool,  # noqa: FBT001
    ) -> object:
        name = data.draw(st.sampled_from(sorted(self.model.frameworks)))
        model = self.model
        roles = () if all_roles else (data.draw(st.sampled_from(model.roles[name])),)
        meant = set(roles or model.roles[name])
        if revive:
            model.suppressed[name] -= meant
            model.refusals = [r for r in model.refusals if r[0] != name or r[1] not in meant]
            call: object = contract.ReviveOffers(framework_id=name, roles=roles)
        else:
            model.suppressed[name] |= meant
            call = contract.SuppressOffers(framework_id=name, roles=roles)
        return self.check(self.master.send(call))

    @rule(
        target=offers,
        offer=consumes(offers),
        refuse=st.sampled_from([None, 0.0, 0.5, 3.0, 1e9]),
    )
    def offer_comes_back(self, offer: Offered, refuse: float | None) -> object:
        model = self.model
        entries = model.held[offer.agent, offer.framework, offer.role]
        known = offer.messages in entries
        if not known and entries:
            # The agent or framework was replaced and holds other resources under this key:
            # a real master never recovers across incarnations.
            return multiple()
        if known:
            entries.remove(offer.messages)
        if (
            refuse is not None
            and offer.agent in model.agents
            and offer.framework in model.frameworks
            and offer.role in model.roles[offer.framework]
        ):
            lasts = max(round(min(refuse, 365 * 86400) * SECOND), SECOND if refuse else 0)
            until = self.master.now_ns + lasts - (lasts > SECOND)
            if refuse:
                model.refusals.append(
                    (offer.framework, offer.role, offer.agent, amounts(offer.messages), until)
                )
        return self.check(self.master.recover(offer, refuse_seconds=refuse))

    @rule(target=offers, offer=consumes(offers))
    def offer_is_not_let_through(self, offer: Offered) -> object:
        entries = self.model.held[offer.agent, offer.framework, offer.role]
        if offer.messages not in entries:
            return multiple(offer)
        entries.remove(offer.messages)
        call = contract.RejectOffer(
            framework_id=offer.framework, agent_id=offer.agent, resources=offer.messages
        )
        return self.check(self.master.send(call))

    @rule(offer=consumes(offers))
    def offer_is_used(self, offer: Offered) -> None:
        """Let a task use a whole offer: the allocator gets no call."""

    @rule(target=offers, seconds=st.sampled_from([0.0, 0.3, 1.0, 7.0, 7000.0]))
    def time_passes(self, seconds: float) -> object:
        return self.check(self.master.tick(seconds))

    @rule(target=offers, data=st.data(), first=consumes(offers), second=consumes(offers))
    def bracket(self, data: st.DataObject, first: Offered, second: Offered) -> object:
        """Decline two offers in one message, like a master with the rests of an accepted offer."""
        self.model.paused = True
        self.check(self.master.send(contract.Pause()))
        for offer in (first, second):
            self.offer_comes_back(offer, data.draw(st.sampled_from([None, 3.0])))
        self.model.paused = False
        return self.check(self.master.send(contract.Resume()))

    @rule(target=offers)
    def stream_breaks(self) -> object:
        """Restore a snapshot; filters may be kept."""
        model = self.model
        used: dict[str, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        for (agent, framework, _), entries in model.held.items():
            for entry in entries:
                used[agent][framework].extend(entry)
        model.refusals.clear()
        before = {s.user: s.allocation for s in self.master.engine.pool.standings()}
        made = self.master.restore(
            contract.Snapshot(
                sequence=self.master.sequence,
                time_ns=self.master.now_ns,
                agents=[self.agent_now(a, used[a]) for a in sorted(model.agents)],
                inactive_agents=sorted(model.inactive_agents),
                frameworks=[
                    contract.AddFramework(
                        framework_id=f,
                        info=self.info_of(f),
                        active=f in model.active,
                        suppressed_roles=sorted(model.suppressed[f]),
                    )
                    for f in sorted(model.frameworks)
                ],
                paused=True,
                quotas=[self.quota_call(role) for role in sorted(model.quotas)],
                weights=[
                    contract.Weight(role=role, weight=weight)
                    for role, weight in model.weights.items()
                ],
                whitelist=None
                if model.whitelist is None
                else contract.Whitelist(
                    hostnames=[f"{agent}.example" for agent in sorted(model.whitelist)]
                ),
                inverse_offers=[
                    contract.InverseOfferState(
                        agent_id=agent, framework_id=framework, outstanding=True
                    )
                    for agent, framework in sorted(model.asked)
                ],
            )
        )
        assert made == []
        after = {s.user: s.allocation for s in self.master.engine.pool.standings()}
        assert {u: q for u, q in after.items() if q} == {u: q for u, q in before.items() if q}
        return self.check(self.master.send(contract.Resume()))

    def agent_now(self, name: str, used: dict[str, list[bytes]]) -> contract.AddAgent:
        call = agent_call(name, "", used)
        call.total.extend(messages_of(self.model.totals[name]))
        if name in self.model.schedules:
            call.unavailability = self.model.schedules[name]
        return call

    @invariant()
    def nothing_has_gone_wrong_in_the_allocator_itself(self) -> None:
        assert self.master.engine.statistics.faults == 0, list(self.master.engine.rejected_inputs())

    @invariant()
    def every_quantity_is_held_by_exactly_one_client(self) -> None:
        if not hasattr(self, "model"):
            return
        cpus: dict[str, int] = defaultdict(int)
        for (_, framework, role), entries in self.model.held.items():
            if framework in self.model.frameworks:
                for entry in entries:
                    held = amounts(entry)
                    cpus[role.split("/")[0]] += sum(
                        v for (name, _), v in held.items() if name == "cpus"
                    )
        standings = {s.user: s.allocation["cpus"] for s in self.master.engine.pool.standings()}
        assert {u: v for u, v in standings.items() if v} == {u: v for u, v in cpus.items() if v}

    @invariant()
    def capacity_is_that_of_the_agents(self) -> None:
        if not hasattr(self, "model"):
            return
        total = sum(
            v
            for agent in self.model.agents
            for (name, _), v in self.model.totals[agent].items()
            if name == "mem"
        )
        assert self.master.engine.pool.capacity["mem"] == total


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = examples(150, stateful_step_count=50)


def test_the_same_messages_give_the_same_decisions_bit_for_bit() -> None:
    master = MasterSide("sdrf", {"delta": 0.9})
    offers: list[Offered] = []
    for name, roles in FRAMEWORKS.items():
        offers += master.add_framework(name, *roles)
    for name, total in AGENTS.items():
        offers += master.add_agent(name, total)
    for step in range(200):
        if offers:
            offer = offers.pop(step * 7 % len(offers))
            offers += master.recover(offer, refuse_seconds=[None, 0.0, 2.0][step % 3])
        offers += master.tick(0.37)
    assert master.replayed() == [decisions for _, decisions in master.log]
    assert any(b"cpus" in decisions for _, decisions in master.log[20:])


def test_reading_free_resources_does_not_change_offers() -> None:
    used = resources("cpus:4", "a")
    changes = []
    for looks in (False, True):
        master = MasterSide()
        master.add_framework("f1", "a")
        master.send(contract.Pause())
        master.add_agent("s1", "cpus:4;mem:512", {"f1": used})
        if looks:
            run_to_completion(master.engine.survey())
            assert list(master.engine.machine_summaries())
            assert master.engine.available()
        back = contract.RecoverResources(framework_id="f1", agent_id="s1", resources=used)
        assert master.send(back, contract.Resume())
        changes.append(master.log[-1])
    assert changes[0] == changes[1]


def test_text_of_and_resources_are_inverse() -> None:
    text = "cpus(eng):2;cpus:1.5;mem:512;ports:[1-4,9-9]"
    assert text_of(resources(text)) == text
