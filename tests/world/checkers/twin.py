"""An exact twin of users' allocations and commitments: fractions computed from an engine's inputs.

The twin follows the paper (Eq. 6, 7, 12) and the documentation, user by user, without the engine's
optimisations. It supports users that are roles without sub-roles and count whole in n, and no
exclusions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from tests.world.model.amounts import Amounts, minus, plus, read, scalars, total

HOLD_OFF = 600 * 10**9
"""Nanoseconds for which agents are awaited after an election."""
FADED = Fraction(1, 1000)
"""A snapshot forgets users with smaller commitments and without frameworks."""
_WEIGHTS = Fraction(1, 10**6), Fraction(10**6)
"""The range of weights; values beyond are clamped."""
_GRAIN = 2**160
_DIGITS = Context(prec=50)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass
class Owed:
    """The commitments of a user, at the twin's time."""

    commitments: dict[str, Fraction] = field(default_factory=dict)
    others: Fraction = Fraction(0)
    """The commitment in resources without an entry in `commitments`."""
    overuse: dict[str, Fraction] = field(default_factory=dict)
    """Over-use per resource, towards which commitments move."""
    ordered: Fraction | None = None
    """The weight that an operator has ordered."""


@dataclass(frozen=True)
class Failover:
    """Agents that are expected to return after an election."""

    needed: int
    expected: int
    until: int
    before: Amounts
    """The capacity before the election, if known."""


@dataclass
class _Framework:
    roles: frozenset[str]
    said: contract.AddFramework
    active: bool
    suppressed: set[str]


class Twin:
    """Allocations and commitments of an engine.

    Args:
        header: The first entry of the engine's log.
    """

    def __init__(self, header: log.LogHeader) -> None:
        settings = json.loads(header.settings)
        self.policy: str = settings["policy"]["name"]
        self._parameters: dict[str, Any] = settings["policy"]["parameters"]
        self.rate = _rate(self._parameters)
        """Decay rate 1/τ of commitments per nanosecond; None without decay."""
        self._remembers = self.rate is not None
        self._failover: Failover | None = None
        self._offering = True
        self._told = False
        """Whether a snapshot has come."""
        self._declared = {
            user["name"]: Fraction(user["weight"]) for user in settings.get("users", [])
        }
        self._keeps_weighted_users = bool(settings.get("keeps_weighted_users"))
        self.unsure = (
            settings["user_key"] != "role"
            or self.policy not in {"sdrf", "drf"}
            or settings.get("counts_for") is not None
        )
        """Whether an unsupported event has happened."""
        self.interval = 0
        """Nanoseconds between two ticks."""
        self.now = 0
        self.agents: dict[str, Amounts] = {}
        self.frameworks: dict[str, _Framework] = {}
        self.held: dict[tuple[str, str, str], Amounts] = {}
        """(framework, role, agent) → allocated amounts"""
        self.users: dict[str, Owed] = {}
        self.bounded = settings["limits"].get("unanswered", 1.0) < 1.0
        """Whether some are passed over because they do not answer."""
        self.quotas: set[str] = set()
        """Roles with a quota; with quotas, the order does not depend on priorities alone."""
        self._weights: dict[str, Fraction] = {}
        self._made_with: Decimal | None = None
        """Decay rate of commitments that another policy left, until a master connects."""
        for name in self._declared:
            self._know(name)
        if header.memory:
            self.now, remembered, made_with = read_memory(header.memory)
            self._inherit(self.now, remembered, made_with)
            self._made_with = made_with
            for name, owed in remembered.items():
                if name in self.users:
                    self.users[name].overuse = owed.overuse

    # Inputs of the engine.

    def restore(self, entry: log.LogRestore) -> None:
        """Replace everything but commitments by a snapshot."""
        snapshot, self.interval = entry.snapshot, entry.options.allocation_interval_ns
        known_at, known, made_with = self.now, self.users, self._made_with or self.rate
        if entry.memory:
            saved_at, saved, saved_with = read_memory(entry.memory)
            if saved_at > known_at:
                known_at, known, made_with = saved_at, saved, saved_with
        self._told, self._made_with, before = True, None, self.capacity
        self._failover, self._offering = None, True
        self.users, self.agents, self.frameworks, self.held = {}, {}, {}, {}
        self.quotas = {q.role for q in snapshot.quotas}
        self.quotas |= {q.role for q in snapshot.limited_quotas}
        self._weights = {}
        self._update_weights(contract.UpdateWeights(weights=snapshot.weights))
        self.now = snapshot.time_ns
        for name in self._declared:
            self._know(name)
        for agent in snapshot.agents:
            self._add_agent(agent)
        for framework in snapshot.frameworks:
            self._add_framework(framework)
        if snapshot.HasField("hold_off"):
            recovery = snapshot.hold_off
            until = min(recovery.until_ns, self.now + HOLD_OFF)
            expected = max(recovery.agents_expected, recovery.agents_needed)
            self._failover = Failover(recovery.agents_needed, expected, until, before)
            self._offering = False
        self._follow_failover()
        self._rate()
        self._inherit(known_at, known, made_with)
        self._rate()

    def event(self, event: contract.Event) -> None:
        """A call was carried out."""
        self.advance(max(event.time_ns, self.now))
        call = event.WhichOneof("call")
        assert call is not None
        follow = getattr(self, f"_{call}", None)
        if follow is not None:
            follow(getattr(event, call))
        if self._follow_failover() or follow is not None:
            self._rate()

    def decide(self, decisions: contract.Decisions) -> None:
        """Offers were booked."""
        for offers in decisions.offers:
            for offer in offers.offers:
                amounts, _ = read(offer.resources)
                self._hold(offers.framework_id, offer.role, offer.agent_id, amounts)
        self._rate()

    def order(self, order: operator.Order) -> None:
        """An order was carried out."""
        if order.HasField("set_weight"):
            change = order.set_weight
            weight = Fraction(change.weight) if change.HasField("weight") else None
            self.users[change.user].ordered = weight
        else:
            for name in order.reset_commitments.users or self.users:
                self.users[name].commitments, self.users[name].others = {}, Fraction(0)
        self._rate()

    def advance(self, now: int) -> None:
        """Let time pass."""
        if now > self.now:
            for owed in self.users.values():
                _fade(owed, owed.overuse, now - self.now, self.rate)
            self.now = now

    # Derived state.

    def kept(self, elapsed: int) -> Fraction:
        """Return the fraction of a commitment that remains after some nanoseconds."""
        return kept(elapsed, self.rate)

    @property
    def capacity(self) -> Amounts:
        """The total of all agents, or of the agents before the election while some are missing."""
        known, failover = scalars(total(self.agents.values())), self._failover
        if failover is None:
            return known
        before, back = failover.before, len(self.agents)
        if not before and 0 < back < failover.expected:
            before = {name: milli * failover.expected // back for name, milli in known.items()}
        return {n: max(known.get(n, 0), before.get(n, 0)) for n in {**known, **before}}

    def weight(self, user: str) -> Fraction:
        """Return a user's weight: an operator's word, the master's, the configuration's, or 1."""
        ordered = self.users[user].ordered
        if ordered is not None:
            return ordered
        return self._weights.get(user, self._declared.get(user, Fraction(1)))

    def allocation(self, user: str) -> Amounts:
        """Return the allocation of a user's frameworks."""
        return scalars(
            total(
                amounts
                for (framework, role, _agent), amounts in self.held.items()
                if role == user and framework in self.frameworks
            )
        )

    def shares(self, user: str) -> dict[str, Fraction]:
        """Return fractions of the capacity by resource."""
        held = self.allocation(user)
        return {name: Fraction(held.get(name, 0), milli) for name, milli in self.capacity.items()}

    def priority(self, user: str) -> Fraction:
        """Return a user's priority; the lowest priority is first."""
        shares, owed = self.shares(user), self.users[user].commitments
        if self.policy == "drf":
            value = max(shares.values(), default=Fraction(0))
        elif self._parameters.get("form", "journal") == "thesis":
            value = max((o + owed[name] for name, o in shares.items()), default=Fraction(0))
        else:
            most = max(shares.values(), default=Fraction(0))
            value = most + max((owed[name] for name in shares), default=Fraction(0))
        return value / self.weight(user)

    def _rate(self) -> None:
        """Recompute the values towards which commitments move (Eq. 7)."""
        if not self._remembers or not self._told:
            return  # before the first snapshot, only allocations before the restart are known
        weights = {user: self.weight(user) for user in self.users}
        everybody, capacity = sum(weights.values(), start=Fraction(0)), self.capacity
        held: dict[str, Amounts] = {}
        for (framework, role, _agent), amounts in self.held.items():
            if framework in self.frameworks:
                held[role] = plus(held.get(role, {}), amounts)
        for user, owed in self.users.items():
            entitled, has = weights[user] / everybody, scalars(held.get(user, {}))
            owed.overuse = {
                name: max(Fraction(has.get(name, 0), milli) - entitled, Fraction(0))
                for name, milli in capacity.items()
                if self._offering
            }
            for name in capacity:
                owed.commitments.setdefault(name, owed.others)

    def _inherit(
        self, since: int, remembered: Mapping[str, Owed], made_with: Decimal | None
    ) -> None:
        if not self._remembers:
            self.rate = made_with
        present = {name: dict(owed.overuse) for name, owed in self.users.items()}
        elapsed = max(self.now - since, 0) if since else 0
        for name, before in remembered.items():
            after = Owed(dict(before.commitments), before.others, {}, before.ordered)
            meanwhile = {
                resource: min(over, present.get(name, {}).get(resource, Fraction(0)))
                for resource, over in before.overuse.items()
            }
            _fade(after, meanwhile, elapsed, made_with or self.rate)
            owes = max(after.commitments.values(), default=after.others) >= FADED
            if name in self.users or owes or after.ordered is not None:
                self._know(name)
                self.users[name] = after

    def _follow_failover(self) -> bool:
        """Process returned agents; return whether the state changes."""
        failover = self._failover
        if failover is None:
            return False
        before = self._offering, self._failover
        late = self.now < failover.until
        self._offering = self._offering or len(self.agents) >= failover.needed or not late
        if self._offering and (len(self.agents) >= failover.expected or not late):
            self._failover = None
        return before != (self._offering, self._failover)

    def _know(self, user: str) -> None:
        if "/" in user:
            self.unsure = True
        self.users.setdefault(user, Owed())

    def _hold(self, framework: str, role: str, agent: str, amounts: Amounts) -> None:
        place = (framework, role, agent)
        self.held[place] = plus(self.held.get(place, {}), amounts)
        if framework in self.frameworks:
            self._know(role)

    # The calls.

    def _recover(self, call: contract.Recover) -> None:
        self.quotas |= {quota.role for quota in call.quotas}
        self.quotas |= {quota.role for quota in call.limited_quotas}
        if call.expected_agents:
            needed = int(0.8 * call.expected_agents)
            self._failover = Failover(needed, call.expected_agents, self.now + HOLD_OFF, {})
            self._offering = False

    def _add_agent(self, call: contract.AddAgent) -> None:
        self.agents[call.agent_id] = read(call.total)[0]
        for allocation in call.used:
            for data in allocation.resources:
                amounts, [role] = read([data])
                self._hold(allocation.framework_id, role, call.agent_id, amounts)

    def _remove_agent(self, call: contract.RemoveAgent) -> None:
        del self.agents[call.agent_id]
        self.held = {place: h for place, h in self.held.items() if place[2] != call.agent_id}

    def _update_agent(self, call: contract.UpdateAgent) -> None:
        if call.HasField("total"):
            self.agents[call.agent_id] = read(call.total.resources)[0]

    def _add_framework(self, call: contract.AddFramework) -> None:
        roles = readable_roles(call.framework_id, call.info) or frozenset()
        suppressed = set(call.suppressed_roles)
        self.frameworks[call.framework_id] = _Framework(roles, call, call.active, suppressed)
        held = {role for framework, role, _agent in self.held if framework == call.framework_id}
        for role in sorted(roles | held):
            self._know(role)

    def _update_framework(self, call: contract.UpdateFramework) -> None:
        known = self.frameworks[call.framework_id]
        if acceptable(call.framework_id, call.info):
            known.roles = readable_roles(call.framework_id, call.info) or frozenset()
        known.said = contract.AddFramework(framework_id=call.framework_id, info=call.info)
        known.suppressed = set(call.suppressed_roles)
        for role in sorted(known.roles):
            self._know(role)

    def _remove_framework(self, call: contract.RemoveFramework) -> None:
        del self.frameworks[call.framework_id]
        self.held = {place: h for place, h in self.held.items() if place[0] != call.framework_id}

    def _activate_framework(self, call: contract.ActivateFramework) -> None:
        self.frameworks[call.framework_id].active = True

    def _deactivate_framework(self, call: contract.DeactivateFramework) -> None:
        self.frameworks[call.framework_id].active = False

    def _suppress_offers(self, call: contract.SuppressOffers) -> None:
        known = self.frameworks[call.framework_id]
        known.suppressed |= set(call.roles) or known.roles

    def _revive_offers(self, call: contract.ReviveOffers) -> None:
        known = self.frameworks[call.framework_id]
        known.suppressed -= set(call.roles) or known.roles

    def _update_allocation(self, call: contract.UpdateAllocation) -> None:
        for step in call.conversions:
            before, [role] = read(step.consumed)
            place = (call.framework_id, role, call.agent_id)
            self.held[place] = plus(minus(self.held[place], before), read(step.converted)[0])

    def _recover_resources(self, call: contract.RecoverResources | contract.RejectOffer) -> None:
        amounts, roles = read(call.resources)
        for role in roles:
            place = (call.framework_id, role, call.agent_id)
            remaining = minus(self.held.get(place, {}), amounts)
            self.held.pop(place, None)
            if remaining:
                self.held[place] = remaining

    _reject_offer = _recover_resources

    def _set_quota(self, call: contract.SetQuota) -> None:
        self.quotas.add(call.role)

    def _remove_quota(self, call: contract.RemoveQuota) -> None:
        self.quotas.discard(call.role)

    def _update_quota(self, call: contract.UpdateQuota) -> None:
        self.quotas.add(call.role)
        if not any(call.guarantees.amounts.values()) and not call.limits.amounts:
            self.quotas.discard(call.role)

    def _update_weights(self, call: contract.UpdateWeights) -> None:
        least, most = _WEIGHTS
        weights = {
            entry.role: min(max(Fraction(entry.weight), least), most) for entry in call.weights
        }
        self._weights.update(weights)
        for role, weight in weights.items():
            if self._keeps_weighted_users and weight != 1:
                self._know(role)


def readable_roles(framework: str, info: bytes) -> frozenset[str] | None:
    """Return a framework's roles; None: they, or its names, cannot be accepted."""
    framework_info = mesos.FrameworkInfo.FromString(info)
    texts: list[str | bytes] = [
        *framework_info.roles,
        framework_info.principal,
    ]  # invalid UTF-8 is read as bytes
    if any(isinstance(text, bytes) or len(text.encode()) > 1024 for text in texts):
        return None
    if (
        len(framework_info.roles) > 256
        or len(framework_info.name) > 1024
        or framework_info.id.value not in {"", framework}
    ):
        return None
    levels = [role.split("/") for role in framework_info.roles]
    if any(len(parts) > 32 or not {"", ".", ".."}.isdisjoint(parts) for parts in levels):
        return None
    return frozenset(framework_info.roles)


def acceptable(framework: str, info: bytes) -> bool:
    """Return whether a framework's info is accepted, not rejected by itself."""
    amounts: Iterator[float] = (
        scalar.value
        for filters in mesos.FrameworkInfo.FromString(info).offer_filters.values()
        for quantities in filters.min_allocatable_resources.quantities
        for scalar in quantities.quantities.values()
    )
    sane = all(0 <= amount < 2**63 / 1000 for amount in amounts)
    return sane and readable_roles(framework, info) is not None


def _fade(owed: Owed, overuse: Mapping[str, Fraction], elapsed: int, rate: Decimal | None) -> None:
    """Let commitments follow Eq. 12: c = (1 − δ)·ō + δ·c₀."""
    factor = kept(elapsed, rate)
    if factor == 1:
        return
    for name, before in owed.commitments.items():
        towards = overuse.get(name, Fraction(0))
        after = towards + (before - towards) * factor
        owed.commitments[name] = Fraction(int(after * _GRAIN), _GRAIN)
    owed.others = Fraction(int(owed.others * factor * _GRAIN), _GRAIN)


def kept(elapsed: int, rate: Decimal | None) -> Fraction:
    """Return δ = e^(−t/τ) after some nanoseconds."""
    if rate is None or elapsed <= 0:
        return Fraction(1)
    exponent = _DIGITS.multiply(rate, Decimal(-elapsed))
    return Fraction(int(_DIGITS.multiply(exponent.exp(_DIGITS), Decimal(_GRAIN))), _GRAIN)


def _rate(parameters: Mapping[str, Any]) -> Decimal | None:
    """Return 1/τ per nanosecond."""
    if "delta" in parameters:
        per_second = -Decimal(parameters["delta"]).ln(_DIGITS)
    elif "half_life" in parameters:
        half_life = parameters["half_life"]
        if isinstance(half_life, str):
            half_life = float(half_life[:-1]) * _UNITS[half_life[-1]]
        per_second = _DIGITS.divide(Decimal(2).ln(_DIGITS), Decimal(half_life))
    else:
        return None
    return _DIGITS.divide(per_second, Decimal(10**9))


def read_memory(data: bytes) -> tuple[int, dict[str, Owed], Decimal | None]:
    """Read a store's memory: time of saving, commitments, and the decay rate 1/τ."""
    read = json.loads(data.partition(b"\n")[2])
    users = {}
    for name, user in read["users"].items():
        weight = user["weight"]
        users[name] = Owed(
            {resource: Fraction(amount) for resource, amount in user["commitments"].items()},
            Fraction(user["others"]),
            {resource: Fraction(amount) for resource, amount in user["overuse"].items()},
            Fraction(weight) if weight is not None else None,
        )
    tau = read.get("tau")
    fading = _DIGITS.divide(1, Decimal(tau) * 10**9) if tau is not None else None
    return round(read["time"] * 1e9), users, fading
