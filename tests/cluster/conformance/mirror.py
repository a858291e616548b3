"""A record of the calls of a careful master, complete enough to build a snapshot (§6.2).

The record uses its own arithmetic, so tests can compare it with the engine. All resources are
scalars.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import BatchMaster, agent_info
from tests.cluster.master_side import (
    ALL_AGENT_CAPABILITIES,
    SECOND,
    Offered,
    framework_info,
    resources,
)

Bag = Counter[str]
"""`cpus` or `cpus(role)` → thousandths"""

HOLD_OFF_NS = 600 * SECOND


def bag(text: str) -> Bag:
    """Parse text like `cpus:4;mem(a):64`."""
    quantities: Bag = Counter()
    for entry in filter(None, text.split(";")):
        match = re.fullmatch(r"(\w+(?:\([\w/]+\))?):([\d.]+)", entry)
        assert match, entry
        quantities[match[1]] += round(float(match[2]) * 1000)
    return quantities


def written(amounts: Bag, role: str | None = None) -> list[bytes]:
    """Return a bag as serialised resources, allocated to a role unless the role is None."""
    text = ";".join(f"{name}:{milli / 1000}" for name, milli in sorted(amounts.items()) if milli)
    return resources(text, role)


def plain(amounts: Bag) -> Bag:
    """Return the unreserved resources of a bag."""
    return Counter({name: milli for name, milli in amounts.items() if "(" not in name})


@dataclass
class AgentEntry:
    """State of one agent."""

    total: Bag
    held: dict[tuple[str, str], Bag] = field(default_factory=dict)
    """(framework, role) → offered and used resources"""
    active: bool = True
    unavailability: bytes | None = None
    inverse: dict[str, contract.InverseOfferState] = field(default_factory=dict)

    def free(self) -> Bag:
        remaining = Counter(self.total)
        for held in self.held.values():
            remaining -= held  # drops negative amounts
        return remaining


@dataclass
class FrameworkEntry:
    """State of one framework."""

    roles: tuple[str, ...]
    active: bool
    suppressed: set[str]


class Mirror:
    """Makes the calls of one master, and records the effects of calls and decisions."""

    def __init__(self, master: BatchMaster) -> None:
        self.master = master
        self.agents: dict[str, AgentEntry] = {}
        self.frameworks: dict[str, FrameworkEntry] = {}
        self.offers: list[Offered] = []
        """Offers without an answer."""
        self.quotas: dict[str, contract.SetQuota] = {}
        self.weights: dict[str, float] = {}
        self.whitelist: contract.Whitelist | None = None
        self.paused = False
        self.hold_off: contract.RecoveryHoldOff | None = None

    def send(self, *calls: object) -> None:
        """Make calls, and record the engine's decisions."""
        offers = self.master.send(*calls)
        decisions = self.master.decisions
        self._end_hold_off()
        for offer in offers:
            held = self.agents[offer.agent].held
            place = (offer.framework, offer.role)
            held[place] = held.get(place, Counter()) + bag(offer.resources)
            self.offers.append(offer)
        for inverse in decisions.inverse_offers:
            for asked in inverse.inverse_offers:
                states = self.agents[asked.agent_id].inverse
                state = states.setdefault(inverse.framework_id, contract.InverseOfferState())
                state.outstanding = True

    def snapshot(self) -> contract.Snapshot:
        """Return a snapshot of the recorded state."""
        snapshot = contract.Snapshot(
            sequence=self.master.sequence,
            time_ns=self.master.now_ns,
            agents=[self.agent_call(name) for name in self.agents],
            inactive_agents=[name for name, agent in self.agents.items() if not agent.active],
            frameworks=[self.framework_call(name) for name in self.frameworks],
            paused=self.paused,
            hold_off=self.hold_off,
            quotas=self.quotas.values(),
            weights=[contract.Weight(role=r, weight=w) for r, w in self.weights.items()],
            whitelist=self.whitelist,
        )
        for name, agent in self.agents.items():
            for framework, state in agent.inverse.items():
                inverse_offer = snapshot.inverse_offers.add(agent_id=name, framework_id=framework)
                inverse_offer.outstanding = state.outstanding
                if state.HasField("status"):
                    inverse_offer.status = state.status
        return snapshot

    def agent_call(self, name: str) -> contract.AddAgent:
        agent = self.agents[name]
        used: dict[str, list[bytes]] = {}
        for (framework, role), held in agent.held.items():
            used.setdefault(framework, []).extend(written(held, role))
        return contract.AddAgent(
            agent_id=name,
            info=agent_info(name),
            capabilities=ALL_AGENT_CAPABILITIES,
            total=written(agent.total),
            used=[contract.Allocation(framework_id=f, resources=r) for f, r in used.items()],
            unavailability=agent.unavailability,
        )

    def framework_call(self, name: str) -> contract.AddFramework:
        framework = self.frameworks[name]
        return contract.AddFramework(
            framework_id=name,
            info=framework_info(name, *framework.roles),
            active=framework.active,
            suppressed_roles=sorted(framework.suppressed),
        )

    # The calls, each with the state that it changes.

    def tick(self, seconds: float) -> None:
        self.master.wait(seconds)
        self.send(contract.Tick())

    def recover_leadership(self, expected: int) -> None:
        if expected:
            self.hold_off = contract.RecoveryHoldOff(
                agents_needed=expected * 4 // 5,
                agents_expected=expected,
                until_ns=self.master.now_ns + HOLD_OFF_NS,
            )
        self.send(contract.Recover(expected_agents=expected))

    def set_paused(self, *, paused: bool) -> None:
        self.paused = paused
        self.send(contract.Pause() if paused else contract.Resume())

    def add_agent(self, name: str, total: str, used: dict[tuple[str, str], str]) -> None:
        self.agents[name] = AgentEntry(bag(total), {k: bag(text) for k, text in used.items()})
        self.send(self.agent_call(name))

    def remove_agent(self, name: str) -> None:
        del self.agents[name]
        self.offers = [offer for offer in self.offers if offer.agent != name]
        self.send(contract.RemoveAgent(agent_id=name))

    def set_agent_active(self, name: str, *, active: bool) -> None:
        self.agents[name].active = active
        if active:
            self.send(contract.ActivateAgent(agent_id=name))
        else:
            self._withdraw(agent=name)
            self.send(contract.DeactivateAgent(agent_id=name))

    def resize(self, name: str, total: str) -> None:
        self.agents[name].total = bag(total)
        self.send(
            contract.UpdateAgent(
                agent_id=name,
                info=agent_info(name),
                total=contract.ResourceList(resources=resources(total)),
            )
        )

    def add_provider(self, name: str, total: str, used: dict[tuple[str, str], str]) -> None:
        agent = self.agents[name]
        agent.total += bag(total)
        for place, text in used.items():
            agent.held[place] = agent.held.get(place, Counter()) + bag(text)
        self.send(
            contract.AddResourceProvider(
                agent_id=name,
                total=resources(total),
                used=[
                    contract.Allocation(framework_id=f, resources=resources(text, role))
                    for (f, role), text in used.items()
                ],
            )
        )

    def schedule(self, name: str, unavailability: bytes | None) -> None:
        agent = self.agents[name]
        agent.unavailability = unavailability
        agent.inverse = {}
        self.send(contract.UpdateUnavailability(agent_id=name, unavailability=unavailability))

    def answer_inverse_offer(self, name: str, framework: str) -> None:
        state = self.agents[name].inverse[framework]
        state.outstanding = False
        state.status = mesos.InverseOfferStatus(
            status=mesos.InverseOfferStatus.ACCEPT,
            framework_id=mesos.FrameworkID(value=framework),
            timestamp=mesos.TimeInfo(nanoseconds=self.master.now_ns),
        ).SerializeToString()
        self.send(
            contract.UpdateInverseOffer(agent_id=name, framework_id=framework, status=state.status)
        )

    def add_framework(
        self, name: str, roles: tuple[str, ...], suppressed: set[str], *, active: bool
    ) -> None:
        self.frameworks[name] = FrameworkEntry(roles, active, suppressed)
        self.send(self.framework_call(name))

    def update_framework(self, name: str, roles: tuple[str, ...], suppressed: set[str]) -> None:
        framework = self.frameworks[name]
        framework.roles, framework.suppressed = roles, suppressed
        self.send(
            contract.UpdateFramework(
                framework_id=name,
                info=framework_info(name, *roles),
                suppressed_roles=sorted(suppressed),
            )
        )

    def remove_framework(self, name: str) -> None:
        del self.frameworks[name]
        self.offers = [offer for offer in self.offers if offer.framework != name]
        for agent in self.agents.values():
            agent.held = {place: held for place, held in agent.held.items() if place[0] != name}
            agent.inverse.pop(name, None)
        self.send(contract.RemoveFramework(framework_id=name))

    def set_framework_active(self, name: str, *, active: bool) -> None:
        self.frameworks[name].active = active
        if active:
            self.send(contract.ActivateFramework(framework_id=name))
        else:
            self._withdraw(framework=name)
            self.send(contract.DeactivateFramework(framework_id=name))

    def suppress(self, name: str) -> None:
        self.frameworks[name].suppressed = set(self.frameworks[name].roles)
        self.send(contract.SuppressOffers(framework_id=name))

    def revive(self, name: str) -> None:
        self.frameworks[name].suppressed = set()
        self.send(contract.ReviveOffers(framework_id=name))

    def give_back(self, offer: Offered, part: Bag, filters: bytes | None) -> None:
        """Answer an offer: decline a part of the offer, and use the remaining resources."""
        self.offers.remove(offer)
        self.release(offer.agent, offer.framework, offer.role, part, filters)

    def release(
        self,
        agent: str,
        framework: str,
        role: str,
        part: Bag,
        filters: bytes | None = None,
        *,
        is_allocated: bool = False,
    ) -> None:
        held = self.agents[agent].held
        held[framework, role] = held[framework, role] - part
        if not held[framework, role]:
            del held[framework, role]
        self.send(
            contract.RecoverResources(
                framework_id=framework,
                agent_id=agent,
                resources=written(part, role),
                filters=filters,
                is_allocated=is_allocated,
            )
        )

    def reserve_offered(self, offer: Offered) -> None:
        """Let a framework reserve the unreserved resources of an offer, and use the whole offer."""
        self.offers.remove(offer)
        agent, place = self.agents[offer.agent], (offer.framework, offer.role)
        before = plain(bag(offer.resources))
        after: Bag = Counter({f"{name}({offer.role})": milli for name, milli in before.items()})
        agent.held[place] = agent.held[place] - before + after
        agent.total = agent.total - before + after
        step = contract.Conversion(
            consumed=written(before, offer.role), converted=written(after, offer.role)
        )
        self.send(
            contract.UpdateAllocation(
                framework_id=offer.framework,
                agent_id=offer.agent,
                offered=offer.messages,
                conversions=[step] if before else [],
            )
        )

    def reserve_free(self, name: str, role: str) -> None:
        """Let an operator reserve one CPU, if a CPU is free."""
        operation = mesos.Operation(type=mesos.Operation.RESERVE)
        for data in resources(f"cpus({role}):1"):
            operation.reserve.resources.add().MergeFromString(data)
        agent = self.agents[name]
        possible = agent.free()["cpus"] >= 1000
        if possible:
            agent.total = agent.total - bag("cpus:1") + bag(f"cpus({role}):1")
        self.send(
            contract.UpdateAvailable(agent_id=name, operations=[operation.SerializeToString()])
        )
        assert (self.master.reply.error == "") is possible

    def set_quota(self, call: contract.SetQuota) -> None:
        self.quotas[call.role] = call
        self.send(call)

    def remove_quota(self, role: str) -> None:
        self.quotas.pop(role, None)
        self.send(contract.RemoveQuota(role=role))

    def weigh(self, role: str, weight: float) -> None:
        self.weights[role] = weight
        self.send(contract.UpdateWeights(weights=[contract.Weight(role=role, weight=weight)]))

    def allow(self, agents: list[str] | None) -> None:
        self.whitelist = None
        if agents is not None:
            self.whitelist = contract.Whitelist(hostnames=[f"{name}.example" for name in agents])
        self.send(contract.UpdateWhitelist(whitelist=self.whitelist))

    def _withdraw(self, *, agent: str | None = None, framework: str | None = None) -> None:
        for name, entry in self.agents.items():
            for asked, state in entry.inverse.items():
                if name == agent or asked == framework:
                    state.outstanding = False

    def _end_hold_off(self) -> None:
        hold_off = self.hold_off
        if hold_off is None:
            return
        if len(self.agents) >= hold_off.agents_needed:
            hold_off.agents_needed = 0
        if len(self.agents) >= hold_off.agents_expected or self.master.now_ns >= hold_off.until_ns:
            self.hold_off = None
