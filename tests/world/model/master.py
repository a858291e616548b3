"""A Mesos master as its allocator sees the master: agents, frameworks and offers."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.world.model.amounts import Amounts, fits, minus, operation, plus, read, total, written
from tests.world.model.books import Booked, Offer, Step, Subscriber, Subscription, UnderWay, applied
from tests.world.model.link import Link
from tests.world.model.site import Machine, Site, Task
from tests.world.simulated.clocks import Clock

CAPABILITIES = tuple(mesos.SlaveInfo.Capability.Type.values())
NANOSECONDS = 1_000_000_000
HOLD_OFF = 600.0
"""Seconds after an election in which the module waits for agents at most."""


class Master:
    """Makes the allocator's calls, and checks the allocator's decisions.

    Args:
        name: HOST:PORT.
        site: The true state of machines.
        clock: The host's clock.
        version: The version of Mesos. Quotas have limits since 1.9; used resources are reported
            since 1.10.
        interval: Seconds between ticks.
        offer_timeout: Seconds after which an unanswered offer is rescinded.
        delay: Returns the seconds until a scheduler receives offers.
    """

    def __init__(
        self,
        name: str,
        site: Site,
        clock: Clock,
        *,
        version: tuple[int, int],
        interval: float,
        offer_timeout: float,
        delay: Callable[[], float],
    ) -> None:
        self.name = name
        self.clock = clock
        self.agents: dict[str, Booked] = {}
        self.frameworks: dict[str, Subscription] = {}
        self.offers: dict[str, Offer] = {}
        self.weights: dict[str, float] = {}
        self.leading_since_ns = 0
        self.deposed = False
        """Whether another master has been elected, unknown to this master."""
        self.hold_off: contract.RecoveryHoldOff | None = None
        """As long as agents are awaited."""
        self.rejected = 0
        """Number of rejected offers."""
        self.refused: list[str] = []
        """Why operators' operations were not carried out."""
        self._under_way: dict[int, UnderWay] = {}
        """By number of the call."""
        self._version = version
        self.link: Link
        self._site = site
        self._interval = interval
        self._offer_timeout = offer_timeout
        self._delay = delay
        self._serial = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def offers_wait(self) -> bool:
        """Whether too few agents are back since the election."""
        self._end_hold_off()
        return self.hold_off is not None and self.hold_off.agents_needed > 0

    @property
    def tells_running(self) -> bool:
        """Whether the master reports used resources separately from offered resources."""
        return self._version >= (1, 10)

    @property
    def limits_quotas(self) -> bool:
        """Whether quotas have limits besides guarantees."""
        return self._version >= (1, 9)

    @property
    def has_quotas(self) -> bool:
        """Whether any role is guaranteed something, or limited."""
        return bool(self._site.quotas)

    @property
    def leads(self) -> bool:
        """Whether the master considers itself the leader."""
        return self.leading_since_ns > 0

    def start(self, link: Link) -> None:
        """Begin to talk to the allocator, and to tick."""
        self.link = link
        for running in (link.run(self), self._tick()):
            self._tasks.add(asyncio.create_task(running))

    def stop(self) -> None:
        """Die."""
        for task in self._tasks:
            task.cancel()

    def options(self) -> contract.Options:
        """Return the options that its flags imply."""
        return contract.Options(
            tells_running=self.tells_running,
            allocation_interval_ns=round(self._interval * NANOSECONDS),
            min_allocatable=[
                contract.Quantities(amounts={"cpus": 0.01}),
                contract.Quantities(amounts={"mem": 32.0}),
            ],
        )

    def call(self, **call: Any) -> int:  # noqa: ANN401 - one of the contract's calls
        """Make a call of the allocator; return the call's number."""
        return self.link.tell(contract.Event(time_ns=self.clock.now_ns(), **call))

    # Events.

    def elected(self, expected_agents: int) -> None:
        """Lead from now on."""
        self.leading_since_ns = max(self.clock.now_ns(), 1)
        if expected_agents:
            self.hold_off = contract.RecoveryHoldOff(
                agents_needed=expected_agents * 4 // 5,
                agents_expected=expected_agents,
                until_ns=self.clock.now_ns() + round(HOLD_OFF * NANOSECONDS),
            )
        recover = contract.Recover(expected_agents=expected_agents)
        recover.quotas.extend(self._old_quotas())
        recover.limited_quotas.extend(self._new_quotas())
        self.call(recover=recover)

    def depose(self) -> None:
        """Note the election of another master; continue unawares, but without effect."""
        self.deposed = True
        self._under_way.clear()

    def register(self, machine: Machine) -> None:
        """Register an agent with all its running tasks."""
        if machine.name in self.agents:
            return
        used: dict[tuple[str, str], Amounts] = {}
        for task in machine.tasks.values():
            place = (task.framework, task.role)
            used[place] = plus(used.get(place, {}), task.amounts)
        booked = Booked(machine, 0, used)
        self.agents[machine.name] = booked
        self._end_hold_off()
        booked.added_at = self.call(add_agent=self._agent(machine.name))

    def lose(self, name: str) -> None:
        """Remove an agent for good, with its tasks."""
        if self.agents.pop(name, None) is not None:
            self._forget_offers(lambda offer: offer.agent == name)
            self.call(remove_agent=contract.RemoveAgent(agent_id=name))

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """An agent's connection breaks, or is back."""
        booked = self.agents.get(name)
        if booked is None or booked.active == reachable:
            return
        booked.active = reachable
        if reachable:
            self.call(activate_agent=contract.ActivateAgent(agent_id=name))
            return
        for offer in [offer for offer in self.offers.values() if offer.agent == name]:
            self._take_back(offer)
        self.call(deactivate_agent=contract.DeactivateAgent(agent_id=name))

    def subscribe(self, scheduler: Subscriber, suppressed: Iterable[str] = ()) -> None:
        """Subscribe a framework, for the first time or again."""
        info, id_ = scheduler.info(), scheduler.id
        known = self.frameworks.get(id_)
        if known is None:
            self.frameworks[id_] = Subscription(
                scheduler, info, scheduler.roles, suppressed=set(suppressed)
            )
            self.call(add_framework=self._framework(id_))
            return
        known.scheduler, known.info, known.roles = scheduler, info, scheduler.roles
        known.suppressed = set(suppressed)
        for offer in [offer for offer in self.offers.values() if offer.framework == id_]:
            if offer.role not in known.roles:
                self._take_back(offer)
        update = contract.UpdateFramework(
            framework_id=id_, info=info, suppressed_roles=sorted(known.suppressed)
        )
        self.call(update_framework=update)
        if not known.active:
            known.active = True
            self.call(activate_framework=contract.ActivateFramework(framework_id=id_))

    def disconnect(self, framework: str) -> None:
        """A scheduler is gone, and may come back."""
        known = self.frameworks.get(framework)
        if known is None or not known.active:
            return
        known.active = False
        self.call(deactivate_framework=contract.DeactivateFramework(framework_id=framework))
        for offer in [offer for offer in self.offers.values() if offer.framework == framework]:
            self._take_back(offer)

    def teardown(self, framework: str) -> None:
        """A framework is gone for good, with all its tasks."""
        if self.frameworks.pop(framework, None) is None:
            return
        self._forget_offers(lambda offer: offer.framework == framework)
        for booked in self.agents.values():
            booked.used = {place: h for place, h in booked.used.items() if place[0] != framework}
        self.call(remove_framework=contract.RemoveFramework(framework_id=framework))

    def decline(self, offer: Offer, refuse: float | None) -> None:
        """An offer is declined, for the default time or another."""
        if self.offers.pop(offer.id, None) is not None:
            self._recover(offer.agent, offer.framework, offer.role, offer.amounts, _filters(refuse))

    def accept(self, offer: Offer, tasks: list[Amounts], refuse: float | None) -> list[Task]:
        """Launch tasks on an offer; recover the rest."""
        wanted = total(tasks)
        if offer.id not in self.offers or not fits(wanted, offer.amounts):
            return []
        del self.offers[offer.id]
        remaining = minus(offer.amounts, wanted)
        if remaining:
            self._recover(offer.agent, offer.framework, offer.role, remaining, _filters(refuse))
        if tasks and self.tells_running:
            started = contract.TransitionOfferedToAllocated(
                framework_id=offer.framework,
                agent_id=offer.agent,
                resources=written(wanted, offer.role),
            )
            self.call(transition_offered_to_allocated=started)
        return [self._site.run(offer.agent, offer.framework, offer.role, task) for task in tasks]

    def convert(self, offer: Offer, steps: list[Step]) -> None:
        """Carry out a framework's operations on an offer; recover the rest."""
        booked = self.agents.get(offer.agent)
        remaining = applied(steps, offer.amounts)
        if booked is None or remaining is None or offer.id not in self.offers:
            return
        del self.offers[offer.id]
        place, (machine, role) = (offer.framework, offer.role), (booked.machine, offer.role)
        booked.used[place] = plus(minus(booked.used[place], offer.amounts), remaining)
        machine.amounts = plus(minus(machine.amounts, offer.amounts), remaining)
        self.call(
            update_allocation=contract.UpdateAllocation(
                framework_id=offer.framework,
                agent_id=offer.agent,
                offered=written(offer.amounts, role),
                conversions=[
                    contract.Conversion(
                        consumed=written(step.consumed, role),
                        converted=written(step.converted, role),
                    )
                    for step in steps
                ],
            )
        )
        self._recover(offer.agent, *place, remaining, _filters(None))

    def operate(self, name: str, steps: list[Step]) -> None:
        """Carry out an operator's operations on free resources of an agent; rescind its offers."""
        booked = self.agents.get(name)
        if booked is None or not booked.active or not self.link.synchronised:
            return
        needed = total(step.consumed for step in steps[:1])
        for offer in [offer for offer in self.offers.values() if offer.agent == name]:
            if not fits(needed, booked.free):
                self._take_back(offer)
        if applied(steps, booked.free) is None:
            return
        call = contract.UpdateAvailable(
            agent_id=name, operations=[operation(step.kind, step.said) for step in steps]
        )
        self._under_way[self.call(update_available=call)] = UnderWay(booked, steps)

    def set_quota(self, role: str, guarantees: Amounts, limits: Amounts) -> None:
        """Set a role's quota guarantee and limit; empty amounts remove them."""
        known = self._site.quotas.pop(role, None)
        if guarantees or limits:
            self._site.quotas[role] = guarantees, limits
        if self.limits_quotas:
            self.call(update_quota=_quota(role, guarantees, limits))
            return
        if known is not None:
            self.call(remove_quota=contract.RemoveQuota(role=role))
        for quota in self._old_quotas():
            if quota.role == role:
                self.call(set_quota=quota)

    def ended(self, machine: str, task: Task) -> None:
        """A task has ended."""
        booked = self.agents.get(machine)
        held = booked.used.get((task.framework, task.role), {}) if booked is not None else {}
        if fits(task.amounts, held) and held:
            self._recover(
                machine, task.framework, task.role, task.amounts, None, running=self.tells_running
            )

    def suppress(self, framework: str, roles: Iterable[str] = ()) -> None:
        """A framework wants no offers."""
        known = self.frameworks.get(framework)
        if known is not None:
            known.suppressed |= set(roles or known.roles)
            call = contract.SuppressOffers(framework_id=framework, roles=roles)
            self.call(suppress_offers=call)

    def revive(self, framework: str, roles: Iterable[str] = ()) -> None:
        """A framework wants offers again."""
        known = self.frameworks.get(framework)
        if known is not None:
            known.suppressed -= set(roles or known.roles)
            self.call(revive_offers=contract.ReviveOffers(framework_id=framework, roles=roles))

    def weigh(self, role: str, weight: float) -> None:
        """An operator weighs a role by way of the master."""
        self.weights[role] = weight
        weights = [contract.Weight(role=role, weight=weight)]
        self.call(update_weights=contract.UpdateWeights(weights=weights))

    # Decisions of the allocator.

    def decide(self, decisions: contract.Decisions) -> None:
        """Make the valid offers; return the rest to the allocator."""
        for reply in decisions.replies:
            self._answered(reply)
        for offers in decisions.offers:
            made = []
            for part in offers.offers:
                booked = self.agents.get(part.agent_id)
                if booked is not None and decisions.applied_sequence < booked.added_at:
                    continue  # the offer is for an earlier registration of this agent
                amounts, _ = read(part.resources)
                reason = self._objection(offers.framework_id, part, amounts)
                if reason:
                    self.rejected += 1
                    self.call(
                        reject_offer=contract.RejectOffer(
                            framework_id=offers.framework_id,
                            agent_id=part.agent_id,
                            resources=part.resources,
                            reason=reason,
                        )
                    )
                    continue
                assert booked is not None
                place = (offers.framework_id, part.role)
                booked.used[place] = plus(booked.used.get(place, {}), amounts)
                offer = Offer(
                    f"{self.name}-{next(self._serial)}",
                    *place,
                    agent=part.agent_id,
                    amounts=amounts,
                )
                self.offers[offer.id] = offer
                made.append(offer)
            if made:
                self._send(offers.framework_id, made)

    def snapshot(self) -> contract.Snapshot:
        """Tell all."""
        self._end_hold_off()
        self._under_way.clear()  # pending requests get no answer
        return contract.Snapshot(
            quotas=self._old_quotas(),
            limited_quotas=self._new_quotas(),
            sequence=self.link.sequence,
            time_ns=self.clock.now_ns(),
            leading_since_ns=self.leading_since_ns,
            hold_off=self.hold_off,
            agents=[self._agent(name) for name in self.agents],
            inactive_agents=[name for name, agent in self.agents.items() if not agent.active],
            frameworks=[self._framework(name) for name in self.frameworks],
            weights=[contract.Weight(role=r, weight=w) for r, w in self.weights.items()],
        )

    def _objection(self, framework: str, part: contract.Offer, amounts: Amounts) -> str:
        known, booked = self.frameworks.get(framework), self.agents.get(part.agent_id)
        if known is None or not known.active or part.role not in known.roles:
            return "the framework is gone, or has left the role"
        if booked is None or not booked.active:
            return "the agent is gone"
        return "" if fits(amounts, booked.free) else "the agent has not that much free"

    def _send(self, framework: str, offers: list[Offer]) -> None:
        scheduler = self.frameworks[framework].scheduler
        loop = asyncio.get_running_loop()
        loop.call_later(self._delay(), lambda: scheduler.offered(self, offers))
        for offer in offers:
            loop.call_later(self._offer_timeout, self._rescind, offer)

    def _rescind(self, offer: Offer) -> None:
        if offer.id in self.offers:
            self._take_back(offer)

    def _take_back(self, offer: Offer) -> None:
        del self.offers[offer.id]
        self._recover(offer.agent, offer.framework, offer.role, offer.amounts, None)

    def _answered(self, reply: contract.Reply) -> None:
        """Carry out an operator's operation, or not."""
        under_way = self._under_way.pop(reply.sequence, None)
        if under_way is None:
            return
        machine = under_way.booked.machine
        after = applied(under_way.steps, machine.amounts)
        if reply.error or after is None or self.agents.get(machine.name) is not under_way.booked:
            self.refused.append(reply.error)
            return
        machine.amounts = after

    def _old_quotas(self) -> list[contract.SetQuota]:
        """Return quotas as Mesos 1.8 has them: a guarantee is a limit as well."""
        if self.limits_quotas:
            return []
        quotas = []
        for role, (guarantees, _limits) in self._site.quotas.items():
            info = mesos.QuotaInfo(role=role)
            info.guarantee.extend(mesos.Resource.FromString(data) for data in written(guarantees))
            quotas.append(contract.SetQuota(role=role, info=info.SerializeToString()))
        return quotas

    def _new_quotas(self) -> list[contract.UpdateQuota]:
        if not self.limits_quotas:
            return []
        return [_quota(role, *quota) for role, quota in self._site.quotas.items()]

    def _recover(
        self,
        agent: str,
        framework: str,
        role: str,
        amounts: Amounts,
        filters: bytes | None,
        *,
        running: bool = False,
    ) -> None:
        held = self.agents[agent].used
        held[framework, role] = minus(held[framework, role], amounts)
        if not held[framework, role]:
            del held[framework, role]
        self.call(
            recover_resources=contract.RecoverResources(
                framework_id=framework,
                agent_id=agent,
                resources=written(amounts, role),
                filters=filters,
                is_allocated=running,
            )
        )

    def _forget_offers(self, matches: Callable[[Offer], bool]) -> None:
        self.offers = {id_: offer for id_, offer in self.offers.items() if not matches(offer)}

    def _end_hold_off(self) -> None:
        hold_off = self.hold_off
        if hold_off is None:
            return
        over = self.clock.now_ns() >= hold_off.until_ns
        if len(self.agents) >= hold_off.agents_needed:
            hold_off.agents_needed = 0  # offers have begun
        if over or len(self.agents) >= hold_off.agents_expected:
            self.hold_off = None

    def _agent(self, name: str) -> contract.AddAgent:
        booked = self.agents[name]
        used: dict[str, list[bytes]] = {}
        for (framework, role), held in booked.used.items():
            used.setdefault(framework, []).extend(written(held, role))
        running: dict[str, list[bytes]] = {}
        for task in booked.machine.tasks.values() if self.tells_running else ():
            running.setdefault(task.framework, []).extend(written(task.amounts, task.role))
        return contract.AddAgent(
            running=[contract.Allocation(framework_id=f, resources=r) for f, r in running.items()],
            agent_id=name,
            info=booked.machine.info(),
            capabilities=CAPABILITIES,
            total=written(booked.machine.amounts),
            used=[contract.Allocation(framework_id=f, resources=r) for f, r in used.items()],
        )

    def _framework(self, name: str) -> contract.AddFramework:
        known = self.frameworks[name]
        return contract.AddFramework(
            framework_id=name,
            info=known.info,
            active=known.active,
            suppressed_roles=sorted(known.suppressed),
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._interval / self.clock.rate)
            self.call(tick=contract.Tick())


def _filters(refuse: float | None) -> bytes:
    filters = mesos.Filters() if refuse is None else mesos.Filters(refuse_seconds=refuse)
    return filters.SerializeToString(deterministic=True)


def _quota(role: str, guarantees: Amounts, limits: Amounts) -> contract.UpdateQuota:
    def amounts(quantities: Amounts) -> contract.Quantities:
        return contract.Quantities(
            amounts={name: milli / 1000 for name, milli in quantities.items()}
        )

    return contract.UpdateQuota(role=role, guarantees=amounts(guarantees), limits=amounts(limits))
