"""Builds the offers of one allocation cycle, and limits outstanding offers."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.allocation.client_index import (
    LARGE_GROUP,
    ClientIndex,
    ClientMask,
    fewest_tasks,
    ones,
)
from allocator.cluster.allocation.client_order import CycleSorters
from allocator.cluster.allocation.progressive_filling import Needs
from allocator.cluster.frameworks.framework import Client, Framework, OfferRules
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.cluster.metering.metered import note_offer
from allocator.cluster.quota import Headroom, top_level
from allocator.cluster.resources import NOTHING, Kind, Resources
from allocator.cluster.resources.bag import KINDS_A_STEP
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative, InParts
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.users.tree import Repeats

if TYPE_CHECKING:
    from allocator.cluster.resources.amounts import Amount

_Key: TypeAlias = tuple[str, str]
"""Kind and name: "framework" and its ID, or "principal" and its name."""


class OutstandingSums:
    """The outstanding offers of each framework and of each principal, and their limits.

    An offer is outstanding until the framework answers it. The limits are fractions of the
    cluster's capacity, set by `limits.unanswered` and `limits.all_unanswered`. They need to know
    which resources are used. So they apply only if the master reports used resources, or if a
    setting makes the engine assume them. Frameworks without a principal have no common limit.

    The constructor costs O(frameworks with outstanding offers); without limits, it costs O(1).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._sums: dict[_Key, Quantities] = {}
        self._frameworks = cluster.ledger.frameworks
        self._limits: dict[str, dict[str, float]] = {}
        """Kind → limit by resource; without kinds that have no limit."""
        if cluster.ledger.used.outstanding is None:
            return
        limits, capacity = cluster.limits, cluster.ledger.clients.users.pool.capacity
        fractions = {"framework": limits.unanswered}
        if limits.all_unanswered < 1.0:
            fractions["principal"] = limits.all_unanswered
        for kind, fraction in fractions.items():
            self._limits[kind] = {name: fraction * amount for name, amount in capacity.items()}
        for framework, quantities in cluster.ledger.outstanding_offers().items():
            self.add(framework, quantities)

    def __bool__(self) -> bool:
        """Return whether a limit applies."""
        return bool(self._limits)

    def add(self, framework: str, quantities: Quantities) -> None:
        """Count the quantities of a further offer to a framework, given by its ID."""
        for key in self._keys(framework):
            self._sums[key] = self._sums.get(key, NO_QUANTITIES) + quantities

    def reached(self, framework: str | None = None) -> list[_Key]:
        """Return the kinds and names that have reached their limits.

        Args:
            framework: The framework that the limits concern, given by its ID; None: all.
        """
        keys = list(self._sums) if framework is None else self._keys(framework)
        return [
            key
            for key in keys
            if reaches_limit(self._sums.get(key, NO_QUANTITIES), self._limits[key[0]])
        ]

    def admits(self, allocations: Iterable[tuple[Client, Quantities]]) -> bool:
        """Return whether all would stay below their limits with these further offers.

        Args:
            allocations: Clients, each with the quantities to offer in addition.
        """
        sums = self._sums.copy()
        for client, quantities in allocations:
            for key in self._keys(client.framework):
                sums[key] = total = sums.get(key, NO_QUANTITIES) + quantities
                if reaches_limit(total, self._limits[key[0]]):
                    return False
        return True

    def _keys(self, framework: str) -> list[_Key]:
        """Return the kind and name of a framework and of its principal, if these have a limit."""
        keys = [("framework", framework)] if self._limits else []
        known = self._frameworks.get(framework)
        if "principal" in self._limits and known is not None and known.subscription.principal:
            keys.append(("principal", known.subscription.principal))
        return keys


class OutstandingOfferLimit:
    """The limits on outstanding offers (`OutstandingSums`), as applied in one allocation cycle.

    A framework gets no further offers in this cycle once its outstanding offers, or those of its
    principal, reach the limit. Without limits, each call costs O(1).
    """

    limited: ClientMask = 0
    """Clients of frameworks that get no further offers."""
    excluded_any = False
    """True if the limit has excluded a client that was eligible for an agent."""

    def __init__(self, cluster: Cluster, index: ClientIndex) -> None:
        self._sums = OutstandingSums(cluster)
        self._clients = {"framework": index.by_framework, "principal": index.by_principal}
        if self._sums:
            self._exclude(self._sums.reached())

    def without(self, eligible: ClientMask) -> ClientMask:
        """Return the given clients except those of frameworks that have reached the limit."""
        if eligible & self.limited:
            self.excluded_any = True
        return eligible & ~self.limited

    def admits(self, allocations: Iterable[tuple[Client, Quantities]]) -> bool:
        """Return whether all would stay below their limits with these further offers.

        Args:
            allocations: Clients, each with the quantities to offer in addition.
        """
        return not self._sums or self._sums.admits(allocations)

    def add(self, client: Client, quantities: Quantities) -> None:
        """Count the quantities of a new offer to the client against the limits."""
        if self._sums:
            self._sums.add(client.framework, quantities)
            self._exclude(self._sums.reached(client.framework))

    def _exclude(self, keys: Iterable[_Key]) -> None:
        for kind, name in keys:
            self.limited |= self._clients[kind].get(name, 0)


def reaches_limit(quantities: Quantities, limit: Mapping[str, float]) -> bool:
    """Return whether quantities reach the limit in at least one resource."""
    return any(amount >= limit.get(name, amount + 1) for name, amount in quantities.items())


_GROUPS_A_STEP = 100
"""Groups of clients in a cooperative step."""
_FILTERS_A_STEP = 500
"""Declined resources, or clients with their own reserved resources, in a cooperative step."""
_MANY_CLIENTS = 64
"""Minimum number of clients, in all small groups together, at which small groups are examined."""
_MANY_KINDS = 16
"""Agents with more kinds of free resources are seldom alike. The cache omits their remainders,
because each allocation leaves a remainder with all of the kinds, and would fill the memory."""
_NO_QUOTAS = Headroom({}, {}, Quantities())
"""Headroom of a cluster without quotas; all builders share this object and no builder changes
it."""
_UNLIMITED = 1 << 62
"""A number of offers that no cycle makes."""


class OfferBuilder:
    """Builds the offers of one allocation cycle.

    The builder checks which resources of an agent a client can use and accepts. The builder also
    records each allocation in three places: in the ledger, in the sorters' copy for this cycle
    (`sorters`), and in the offers. Tasks of a client with a known demand are recorded in one place
    after the other:

    - `allocate` records in all three places.
    - `charge` records in the ledger and in the sorters.
    - `book` records in the ledger.
    - `count` records in the sorters.
    - `add_offer` records in the offers.
    """

    def __init__(
        self, cluster: Cluster, outstanding: OutstandingOfferLimit, answer: Answer
    ) -> None:
        self._cluster = cluster
        self.outstanding = outstanding
        self._answer = answer
        self._ledger = cluster.ledger
        self.quotas = cluster.ledger.quotas
        self.sorters = CycleSorters(cluster.ledger.clients)
        self.headroom = self.quotas.headroom() if self.quotas else _NO_QUOTAS
        self._shared: dict[str, Resources] = {}
        """Shared volumes offered in this cycle, by agent."""
        self._refused: Collection[str] = cluster.refusals.by_agent if cluster.refusals else ()
        """IDs of agents with resources that the master's side has refused to offer."""
        self._offerable: dict[str, tuple[Resources, Resources]] = {}
        """By agent, available resources, and the part of them that is not withheld."""
        self._offers: dict[str, dict[tuple[str, str], Resources]] = {}
        """Offers that are not written yet: framework → (agent, role) → resources."""
        self.slice_offers = _UNLIMITED
        """Number of offers that are enough for a slice of the answer."""
        self.unwritten = 0
        """Number of offers that are not written yet."""
        self.written = 0
        """Number of offers that `write_offers` has written."""
        self._parts: dict[tuple[int, int, int], tuple[Resources, Needs, Resources]] = {}
        self._reached: dict[tuple[int, int], tuple[Resources, object, bool]] = {}
        self._remainders: dict[tuple[int, int], tuple[Resources, Resources, Resources]] = {}

    def framework(self, client: Client) -> Framework:
        """Return the framework whose ID the client has."""
        return self._ledger.frameworks[client.framework]

    def usable(self, agent: Agent, client: Client) -> Resources | None:
        """Return the available resources of an agent that a client can use now.

        The result is None if the client can use none of them.
        """
        framework = self.framework(client)
        if not framework.can_use(agent, client.role, self._cluster.rules):
            return None
        shared = self._shared.get(agent.id)  # offer a shared volume once in a cycle (§3.8)
        available = agent.available if shared is None else agent.available - shared
        if agent.id in self._refused and not available.ordinary:
            available = self._without_refused(agent, available)
        return framework.usable_part(available, client.role) or None

    def _without_refused(self, agent: Agent, available: Resources) -> Resources:
        """Return available resources of an agent without the kinds that refusals withhold."""
        known = self._offerable.get(agent.id)
        if known is None or known[0] is not available:
            refusals, now_ns = self._cluster.refusals, self._cluster.now_ns
            assert refusals is not None
            known = available, refusals.without(agent.id, available, now_ns)
            self._offerable[agent.id] = known
        return known[1]

    def wanted(self, agent: Agent, client: Client, share: Resources) -> bool:
        """Return whether a client accepts a share of an agent as an offer.

        The share must reach the client's minimum offer, and must not be filtered by the client.
        """
        return (
            bool(share)
            and self.reaches(client, share)
            and not self._cluster.filters.refuses(client, agent.id, share)
        )

    def reaches(self, client: Client, share: Resources) -> bool:
        """Return whether a share reaches the client's minimum offer; true without a minimum."""
        alternatives = self._alternatives(client)
        key = id(share), id(alternatives)
        known = self._reached.get(key)
        if known is None:
            known = self._reached[key] = share, alternatives, reaches(share, alternatives)
        return known[2]

    def declining(
        self, agent: Agent, clients: ClientMask, index: ClientIndex, *, tasks: bool = True
    ) -> Cooperative[ClientMask]:
        """Return clients that decline all of an agent that they can be allocated.

        Their filters need not contain all available resources, because a client is only allocated
        what its tasks need, and what is reserved for its role. The result omits clients of small
        groups if there are few, because `wanted` examines clients singly. Generator for
        cooperative steps.

        Args:
            agent: The agent that would be offered.
            clients: The clients to examine. Clients that decline all available resources are
                known already.
            index: All clients that want offers.
            tasks: Whether clients with a known demand are allocated only what their tasks need.
        """
        free, filters, declining = agent.available, self._cluster.filters, 0
        differ = index.by_demand or not free.ordinary
        if not differ or clients.bit_count() < LARGE_GROUP:
            return 0
        clients &= filters.clients_on(agent.id)
        if clients.bit_count() < LARGE_GROUP:
            return 0
        offers = _largest_offers(free, clients, index, tasks=tasks)
        for number, (group, part) in enumerate(offers, 1):
            if not number % _GROUPS_A_STEP:
                yield
            examined = group & ~declining
            if examined and part is not free:
                few = examined.bit_count() < LARGE_GROUP
                decline = filters.few_declining_clients if few else filters.declining_clients
                declining |= decline(agent.id, part, examined)
        return declining

    def declining_own(
        self, agent: Agent, clients: ClientMask, index: ClientIndex
    ) -> Cooperative[ClientMask]:
        """Return clients with a filter that contains each possible offer of an agent.

        `declining` examines large groups only. This method examines each client with the resources
        reserved for the client's role. If the client's next task fits, or its demand is unknown,
        the filter must also contain the unreserved resources. Costs O(filters on the agent).
        Generator for cooperative steps.

        Args:
            agent: The agent that would be offered.
            clients: The clients to examine.
            index: All clients that want offers.
        """
        free, declining, examined, remaining = agent.available, 0, 0, clients
        without_task = ~index.unknown_demand & ~index.fitting(free.divisible)
        unreserved = free.unreserved
        special = unreserved.where(lambda kind: not kind.plain)
        for number, (mask, declined) in enumerate(self._cluster.filters.declined_on(agent.id), 1):
            if not number % _FILTERS_A_STEP:
                yield
            candidates = mask & remaining
            if not candidates:
                continue
            if unreserved and unreserved not in declined:
                candidates &= without_task if special in declined else 0
            for bit in ones(candidates):
                examined += 1
                if not examined % _FILTERS_A_STEP:
                    yield
                if declined.covers_reserved(free, index.client[bit].role):
                    declining |= bit
            remaining = clients & ~declining
        return declining

    def hopeless(
        self, agent: Agent, index: ClientIndex, client: Client | None = None
    ) -> tuple[ClientMask, ClientMask]:
        """Return the clients that can get nothing of an agent now, and the clients examined.

        A client can get nothing if it lacks a capability for the agent. A client also gets nothing
        if the agent's free resources, within its quota, do not reach its minimum offer.

        Args:
            agent: The agent that would be offered.
            index: All clients that want offers.
            client: Examine only clients for which the same checks hold as for this one, because
                quota, capabilities and reservations are alike. None: examine all clients.

        Returns:
            Two client masks: clients that can get nothing, and clients that were examined.
        """
        free, rules = agent.available, self._cluster.rules
        if client is None or (free.ordinary and not self.quotas):
            alike, room = index.wanting, free.quantities
        else:
            alike, room = self._alike(free, index, client)
        unreached = alike & index.unreached(room, rules.min_allocatable)
        return unreached | index.incapable(agent, rules), alike

    def _alike(
        self, free: Resources, index: ClientIndex, client: Client
    ) -> tuple[ClientMask, Quantities]:
        """Return the clients for which the same resources are available as for a given client.

        These clients have the same quota and capabilities, and the same reserved resources may be
        offered to them. `hopeless` uses this method.

        Args:
            free: The available resources of an agent.
            index: All clients that want offers.
            client: The given client.

        Returns:
            The clients, and an upper bound of an offer to each of them.
        """
        top = top_level(client.role)
        limited = top if top in self.quotas else None
        alike = index.in_quota(limited, [role for role, _ in self.quotas.items()])
        if not free.ordinary:
            framework, reserved = self.framework(client), index.reserved_for(free.reservations)
            alike &= index.alike(client)
            if index.bit[client] & reserved:
                alike &= reserved
            else:
                alike &= ~reserved
                free = free.unreserved
            if free.restricted:
                free = free.where(lambda kind: framework.lacking_for(kind) is None)
        plain = free.plain.where(lambda kind: kind.scalar)
        special = free.quantities - plain.quantities
        return alike, special + self.headroom.most(client.role, plain.scalars)

    def surely_wanted(self, agent: Agent, client: Client, needs: Needs) -> bool:
        """Return whether a client is certain to accept an offer of one task on an agent.

        This is so if the client has no filter on the agent, and one task reaches the client's
        minimum offer. If the result is False, the client may still accept.

        Args:
            agent: The agent that would be offered.
            client: The client that would get the offer.
            needs: Demand of one task in thousandths, by resource.
        """
        return not self._cluster.filters.has_filter(client, agent.id) and self.reaches(
            client, self.part_for(agent, needs, 1)
        )

    def fewest(self, client: Client, needs: Needs) -> int:
        """Return the least number of tasks that reaches a client's minimum offer.

        Args:
            client: The client that would get the offer.
            needs: Demand of one task in thousandths, by resource.

        Returns:
            The number of tasks; 0 if no number of tasks reaches the minimum.
        """
        return fewest_tasks(needs, self._alternatives(client))

    def part_for(self, agent: Agent, needs: Needs, number: int) -> Resources:
        """Return the part of an agent's available resources that several tasks would use.

        The agent is not changed. Agents and tasks are often identical, so the result is cached for
        the rest of the cycle.

        Args:
            agent: An agent with enough available resources.
            needs: Demand of one task in thousandths, by resource.
            number: The number of tasks.
        """
        available = agent.available
        key = id(available), id(needs), number
        known = self._parts.get(key)
        if known is None:
            wanted = Quantities(
                {name: number * amount for name, amount in needs.items() if isinstance(name, str)}
            )
            part = available.plain.take_demand(wanted)
            assert part is not None
            known = self._parts[key] = available, needs, part  # keeps both ids unique
        return known[2]

    def allocate(self, agent: Agent, client: Client, share: Resources) -> None:
        """Record an allocation of an agent's resources to a client, and offer the resources."""
        self.charge(agent, client, share)
        self.add_offer(agent, client, share)

    def charge(self, agent: Agent, client: Client, share: Resources) -> None:
        """Record an allocation in the ledger and in the sorters, without making an offer."""
        counted, repeats = self.book(agent, client, share)
        self.sorters.allocate(client, counted, 1 if counted else 0, repeats)

    def book(self, agent: Agent, client: Client, share: Resources) -> tuple[Quantities, Repeats]:
        """Record an allocation in the ledger, but neither in the sorters nor in an offer.

        Returns:
            The increase of the client's scalar quantities. Also, by user, the quantities of shared
            volumes that other clients of the user hold already, because a user may be charged once
            for them.
        """
        booked = self._ledger.allocate(agent, client, share, self._remaining(agent, share))
        if share.has_shared:
            self._shared[agent.id] = self._shared.get(agent.id, NOTHING) + share.where(
                lambda kind: kind.shared
            )
        return booked

    def count(self, client: Client, quantities: Quantities, count: int) -> None:
        """Record an allocation in the sorters, for the client's user and all users above.

        Args:
            client: The client that is allocated resources.
            quantities: The increase of the client's allocation. If empty, the sorter's allocation
                count does not change.
            count: The number of allocations.
        """
        self.sorters.allocate(client, quantities, count if quantities else 0)

    def add_offer(self, agent: Agent, client: Client, share: Resources) -> None:
        """Add resources to the client's offer of an agent; the ledger must contain them already."""
        offers = self._offers.setdefault(client.framework, {})
        key = (agent.id, client.role)
        before = offers.get(key)
        if before is None:
            self.unwritten += 1
        offers[key] = share if before is None else before + share
        self.outstanding.add(client, share.scalars)
        self._cluster.demands.note_offer(client, agent.id, offers[key])
        if self._ledger.assumed_usage is not None:
            self._ledger.assumed_usage.offered(agent.id, client, self._cluster.now_ns)
        holds = self._cluster.holds
        if holds.enabled:
            holds.runtime_estimates.record_offer(
                client, agent.id, share.scalars, self._cluster.now_ns
            )
            self._cluster.mark_hold_ended(holds.end_served(client, agent.id))

    def cut_answer(self) -> InParts[contract.Decisions, None]:
        """Write all offers since the last call, and yield them as a slice of the answer."""
        yield from self.write_offers()
        yield self._answer.cut()

    def write_offers(self) -> InParts[contract.Decisions, None]:
        """Write all offers since the last call into the answer, and yield each full slice.

        Each framework gets at most one `Offers` message in a slice, which contains all its offers.
        Messages are created in place, because copying a message costs more than creating it.
        """
        meter, now = self._cluster.meter, self._cluster.now_ns / 1e9
        by_framework, self._offers = self._offers, {}
        self.written += self.unwritten
        self.unwritten = 0
        written = 0
        for framework, by_agent in by_framework.items():
            begun: contract.Offers | None = None
            for (agent, role), share in by_agent.items():
                if len(share) > KINDS_A_STEP:
                    yield from share.messages_in_steps(role)
                messages = share.messages(role)
                size = sum(map(len, messages))
                if self._answer.is_full(size):
                    yield self._answer.cut()
                    begun = None
                if begun is None:
                    begun = self._answer.last.offers.add(framework_id=framework)
                begun.offers.add(role=role, agent_id=agent, resources=messages)
                self._answer.add_size(size)
                written += len(messages)
                if written > KINDS_A_STEP:
                    written = 0
                    yield None
                if meter is not None:
                    note_offer(meter, self._ledger.clients, Client(role, framework), now)
            yield None

    def _remaining(self, agent: Agent, share: Resources) -> Resources | None:
        """Return the available resources that an agent has after a share of them is taken.

        `Ledger.allocate` uses the result. The result is None if the share has shared volumes, which
        stay available while they are used. The ledger then computes the available resources itself.

        Args:
            agent: The agent before the share is taken.
            share: The resources to take.
        """
        if share.has_shared:
            return None
        available = agent.available
        if available is share:
            return NOTHING
        if len(available) > _MANY_KINDS:
            return available - share
        key = id(available), id(share)
        known = self._remainders.get(key)
        if known is None:
            known = self._remainders[key] = available, share, available - share
        return known[2]

    def _alternatives(self, client: Client) -> Alternatives:
        """Return the alternative minimums for offers to a client (`min_allocatable`).

        An offer must reach at least one of these alternatives.
        """
        return minimum_offer(self.framework(client), client.role, self._cluster.rules)


def minimum_offer(framework: Framework, role: str, rules: OfferRules) -> Alternatives:
    """Return the alternative minimums for offers to a framework in a role (`min_allocatable`)."""
    return framework.min_allocatable.get(role, rules.min_allocatable)


def reaches(share: Resources, minimum: Alternatives) -> bool:
    """Return whether a share reaches at least one alternative; true without alternatives."""
    quantities = share.quantities
    for alternative in minimum:  # any() is slow, and each offer needs this check
        if quantities.contains(alternative):
            return True
    return not minimum


def _largest_offers(
    free: Resources, clients: ClientMask, index: ClientIndex, *, tasks: bool
) -> Iterator[tuple[ClientMask, Resources]]:
    """Yield large groups of clients, with resources that contain each possible offer to them.

    Small groups follow if they have many clients together.

    Args:
        free: The available resources of an agent.
        clients: The clients to group.
        index: All clients that want offers.
        tasks: Whether clients with a known demand are offered only what their tasks need.
    """
    reserving = clients & index.reserved_for(free.reservations)
    groups = [(clients & ~reserving, "")]
    if reserving:
        groups += [
            (clients & index.in_role(top), top)
            for top in index.large_roles
            if free.has_reserved_below(top)
        ]
    for group, top in groups:
        if group.bit_count() < LARGE_GROUP:
            continue
        part = free.offerable_below(top)
        if tasks:
            yield from _largest_task_offers(part, group, index)
        yield group, part


def _largest_task_offers(
    free: Resources, clients: ClientMask, index: ClientIndex
) -> Iterator[tuple[ClientMask, Resources]]:
    """Yield groups of clients with equal needs, with resources that contain each possible offer.

    Args:
        free: The available resources that reservations allow to offer to the clients.
        clients: The clients to group.
        index: All clients that want offers.
    """
    small, number, largest = list[tuple[Quantities, ClientMask]](), 0, _LargestOffer(free)
    for demand, alike in index.by_demand.items():
        group = clients & alike
        size = group.bit_count()
        if size >= LARGE_GROUP:
            yield group, largest.of_tasks(demand)
        elif size:
            small.append((demand, group))
            number += size
    for names, alike in index.by_names.items():
        group = clients & alike
        if group.bit_count() >= LARGE_GROUP:
            yield group, largest.of_names(names)
    for demand, group in small if number >= _MANY_CLIENTS else ():
        yield group, largest.of_tasks(demand)


class _LargestOffer:
    """Computes resources that contain each possible offer to clients with equal needs.

    A scalar resource of a single kind is limited to a whole number of tasks. Otherwise, an
    allocation to another client could change the parts of a resource that tasks get.

    Args:
        free: The available resources that reservations allow to offer.
    """

    def __init__(self, free: Resources) -> None:
        self._divisible = free.plain.divisible
        kinds = Counter([kind.name for kind in free.plain])
        self._special: dict[Kind, Amount] = {}
        """Amounts that each client may be offered, whatever its needs."""
        self._single: dict[str, tuple[Kind, int]] = {}
        """Kind and amount of scalar resources of a single kind, by name."""
        self._several: dict[str, dict[Kind, Amount]] = {}
        """Amounts of other divisible resources, by name and kind."""
        for kind, amount in free.items():
            if not kind.plain:
                self._special[kind] = amount
            elif kind.whole is not None:
                continue
            elif isinstance(amount, int) and kinds[kind.name] == 1:
                self._single[kind.name] = kind, amount
            else:
                self._several.setdefault(kind.name, {})[kind] = amount

    def of_tasks(self, demand: Quantities) -> Resources:
        """Return resources that contain each possible offer to clients with the same demand.

        Args:
            demand: Demand of one task in thousandths, by resource.
        """
        needs, part = list(demand.items()), dict(self._special)
        number = max(min([self._divisible.get(name, 0) // need for name, need in needs]), 1)
        for name, need in needs:
            if name in self._single:
                kind, amount = self._single[name]
                part[kind] = min(amount, number * need)
            elif name in self._several:
                part |= self._several[name]
        return Resources(part)

    def of_names(self, names: Collection[str]) -> Resources:
        """Return resources that contain each possible offer to demands with these names."""
        part = dict(self._special)
        for name in names:
            if name in self._single:
                kind, amount = self._single[name]
                part[kind] = amount
            elif name in self._several:
                part |= self._several[name]
        return Resources(part)
