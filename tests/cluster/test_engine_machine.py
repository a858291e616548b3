"""Random sequences of calls against the engine, checked after each against a plain model."""

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import settings
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

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import (
    SECOND,
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resources,
    text_of,
)

FRAMEWORKS = {"f1": ("a",), "f2": ("b",), "f3": ("a", "b"), "f4": ("eng/web",)}
AGENTS = {
    "s1": "cpus:4;mem:6144",
    "s2": "cpus:2;mem:2048;ports:[1-4]",
    "s3": "cpus:1;mem:512;cpus(eng):2;mem(eng):1024",
}
POLICIES = [
    ("drf", {}),
    ("sdrf", {"delta": 0.9}),
    ("sdrf", {"half_life": 30, "form": "thesis"}),
    ("sdrf", {"delta": 0.9, "ranking": "scan"}),
]

Amounts = dict[tuple[str, str], int]
"""(name, reservation role) → thousandths, ports counting 1000 each."""


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
    """What a careful bookkeeper on the master's side would write down."""

    agents: set[str] = field(default_factory=set)
    inactive_agents: set[str] = field(default_factory=set)
    frameworks: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    suppressed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    held: dict[tuple[str, str, str], list[tuple[bytes, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """(agent, framework, role) → what is offered or used"""
    refusals: list[tuple[str, str, str, Amounts, int]] = field(default_factory=list)
    """framework, role, agent, what was refused, until (ns)"""
    paused: bool = False

    def free(self, agent: str) -> Amounts:
        left = defaultdict(int, amounts(resources(AGENTS[agent])))
        for (place, _, _), entries in self.held.items():
            for entry in entries if place == agent else ():
                for key, amount in amounts(entry).items():
                    left[key] -= amount
        return left


class EngineMachine(RuleBasedStateMachine):
    """Calls in any order; every decision must be one that the model can defend."""

    offers = Bundle("offers")

    @initialize(target=offers, choice=st.sampled_from(POLICIES))
    def start(self, choice: tuple[str, dict[str, object]]) -> object:
        """Begin with a cluster at work: all agents and frameworks are there."""
        self.master = MasterSide(*choice)
        self.model = Model()
        made: list[Offered] = []
        for name, roles in FRAMEWORKS.items():
            self.model.frameworks.add(name)
            self.model.active.add(name)
            made += self.master.add_framework(name, *roles)
        for name, total in AGENTS.items():
            self.model.agents.add(name)
            made += self.master.add_agent(name, total)
        return self.check(made)

    def check(self, made: list[Offered]) -> object:
        model, now = self.model, self.master.now_ns
        assert not (model.paused and made), "nothing is offered while the master is paused"
        for offer in made:
            assert offer.agent in model.agents - model.inactive_agents
            assert offer.framework in model.active
            assert offer.role in FRAMEWORKS[offer.framework]
            assert offer.role not in model.suppressed[offer.framework]
            size = amounts(offer.messages)
            free = model.free(offer.agent)
            for (name, reserved), amount in size.items():
                assert 0 < amount <= free[name, reserved], "nothing is offered twice"
                assert (
                    not reserved or reserved == offer.role or offer.role.startswith(reserved + "/")
                ), "a reservation is for its role and descendants"
            for framework, role, agent, refused, until in model.refusals:
                if (framework, role, agent) == (offer.framework, offer.role, offer.agent):
                    assert until < now or any(size[k] > refused[k] for k in size), (
                        "what was refused is not offered again before its time"
                    )
            model.held[offer.agent, offer.framework, offer.role].append(offer.messages)
        return multiple(*made)

    @rule(target=offers, name=st.sampled_from(sorted(AGENTS)), busy=st.booleans())
    def agent_comes(self, name: str, busy: bool) -> object:  # noqa: FBT001 - hypothesis draws it
        if name in self.model.agents:
            return multiple()
        used = tuple(resources("cpus:0.5;mem:64", "a")) if busy else ()
        self.model.agents.add(name)
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
        for key in [key for key in model.held if key[0] == name]:
            del model.held[key]
        model.refusals = [r for r in model.refusals if r[2] != name]
        return self.check(self.master.remove_agent(name))

    @precondition(lambda self: self.model.agents)
    @rule(target=offers, data=st.data(), active=st.booleans())
    def agent_turns(self, data: st.DataObject, active: bool) -> object:  # noqa: FBT001
        name = data.draw(st.sampled_from(sorted(self.model.agents)))
        (self.model.inactive_agents.discard if active else self.model.inactive_agents.add)(name)
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
        return self.check(self.master.add_framework(name, *FRAMEWORKS[name], active=active))

    @precondition(lambda self: self.model.frameworks)
    @rule(target=offers, data=st.data())
    def framework_goes(self, data: st.DataObject) -> object:
        name = data.draw(st.sampled_from(sorted(self.model.frameworks)))
        model = self.model
        model.frameworks.discard(name)
        model.active.discard(name)
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
        model.refusals = [r for r in model.refusals if r[0] != name]
        return self.check(self.master.send(contract.DeactivateFramework(framework_id=name)))

    @precondition(lambda self: self.model.frameworks)
    @rule(target=offers, data=st.data(), revive=st.booleans(), all_roles=st.booleans())
    def framework_speaks(
        self,
        data: st.DataObject,
        revive: bool,  # noqa: FBT001
        all_roles: bool,  # noqa: FBT001
    ) -> object:
        name = data.draw(st.sampled_from(sorted(self.model.frameworks)))
        roles = () if all_roles else (data.draw(st.sampled_from(FRAMEWORKS[name])),)
        meant = set(roles or FRAMEWORKS[name])
        model = self.model
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
        if known:
            entries.remove(offer.messages)
        if (
            refuse is not None
            and offer.agent in model.agents
            and offer.framework in model.frameworks
        ):
            lasts = max(round(min(refuse, 365 * 86400) * SECOND), SECOND if refuse else 0)
            until = self.master.now_ns + lasts - (lasts > SECOND)
            if refuse:
                model.refusals.append(
                    (offer.framework, offer.role, offer.agent, amounts(offer.messages), until)
                )
        if not known and model.held[offer.agent, offer.framework, offer.role]:
            # The agent or framework came back meanwhile and holds other things under this key:
            # a real master never recovers across incarnations.
            return multiple()
        return self.check(self.master.recover(offer, refuse_seconds=refuse))

    @rule(offer=consumes(offers))
    def offer_is_used(self, offer: Offered) -> None:
        """A task takes all of it: the allocator hears nothing."""

    @rule(target=offers, seconds=st.sampled_from([0.0, 0.3, 1.0, 7.0, 7000.0]))
    def time_passes(self, seconds: float) -> object:
        return self.check(self.master.tick(seconds))

    @rule(target=offers, data=st.data(), first=consumes(offers), second=consumes(offers))
    def bracket(self, data: st.DataObject, first: Offered, second: Offered) -> object:
        """Two offers come back as one, as the rests of an accepted offer do."""
        self.model.paused = True
        self.check(self.master.send(contract.Pause()))
        for offer in (first, second):
            self.offer_comes_back(offer, data.draw(st.sampled_from([None, 3.0])))
        self.model.paused = False
        return self.check(self.master.send(contract.Resume()))

    @rule(target=offers)
    def stream_breaks(self) -> object:
        """The service is rebuilt from a snapshot; only filters are lost."""
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
                agents=[agent_call(a, AGENTS[a], used[a]) for a in sorted(model.agents)],
                inactive_agents=sorted(model.inactive_agents),
                frameworks=[
                    contract.AddFramework(
                        framework_id=f,
                        info=framework_info(f, *FRAMEWORKS[f]),
                        active=f in model.active,
                        suppressed_roles=sorted(model.suppressed[f]),
                    )
                    for f in sorted(model.frameworks)
                ],
                paused=True,
            )
        )
        assert made == []
        after = {s.user: s.allocation for s in self.master.engine.pool.standings()}
        assert {u: q for u, q in after.items() if q} == {u: q for u, q in before.items() if q}
        return self.check(self.master.send(contract.Resume()))

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
            for (name, _), v in amounts(resources(AGENTS[agent])).items()
            if name == "mem"
        )
        assert self.master.engine.pool.capacity["mem"] == total


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


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


def test_text_of_and_resources_are_inverse() -> None:
    text = "cpus(eng):2;cpus:1.5;mem:512;ports:[1-4,9-9]"
    assert text_of(resources(text)) == text
