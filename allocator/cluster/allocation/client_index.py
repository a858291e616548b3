"""Client masks: sets of clients as integers with one bit a client, for fast filtering."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import attrgetter, or_
from typing import Any, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.agents.placement_constraints import Host
from allocator.cluster.agents.placements import ConstraintGroup
from allocator.cluster.allocation.progressive_filling import Needs
from allocator.cluster.frameworks.framework import Client, OfferRules
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.cluster.offers.offer_constraints import ChangedExclusions
from allocator.cluster.offers.offer_filters import OfferFilters
from allocator.cluster.quota import top_level
from allocator.cluster.resources import Resources
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.quantities import Quantities

_CLIENTS_A_STEP = 200
"""Clients examined in one step of an update."""
LARGE_GROUP = 16
"""Number of clients from which a group is examined by masks, instead of client by client."""
_CHANGES = 64
"""Number of changed conditions, in addition to all conditions, at which masks are recomputed."""
_RESERVATIONS = 64
"""Sets of roles with reservations on an agent, for which an index keeps the clients."""
_AMOUNTS = 64
"""Different amounts of a resource in a new interval of amounts; twice this number is the most."""
_LOWEST = -(1 << 62)
"""An amount that is less than each need and each capacity, in thousandths."""
_INTERVALS_A_STEP = 16
"""Intervals of amounts that one step of an update renews."""

ClientMask: TypeAlias = int
"""A set of clients: an integer in which each client of `ClientIndex` has one bit.

The type is an alias of int, so set operations are plain integer operations without a call. A name
of this type is a set of clients; a plain int in this package is a number or an amount."""


@dataclass(frozen=True, slots=True)
class _SharedFacts:
    """Facts that clients of a framework share; they determine most masks of these clients."""

    framework: str
    """The framework's ID."""
    principal: str
    """The principal of the framework; empty without a principal."""
    capabilities: tuple[bool, frozenset[int]]
    """Clients with equal capabilities can use the same agents and kinds of resources."""
    constraint: ConstraintGroup | None
    """The frameworks with the same placement constraint; None without a constraint."""
    is_choosy: bool
    """Whether the framework states minimum offers for any of its roles."""
    own_minimums: Alternatives | None
    """The clients' own minimum offers; None: the master's minimum offers apply."""
    minimums: Alternatives
    """The clients' own minimum offers, if agents have had all resources of the minimum."""
    stated: Quantities | None
    """Resource needs of one task; None if they are unknown."""
    task: Quantities | None
    """Resource needs of one unit (`Ledger.unit_demand`); None if they are unknown."""
    demand: Quantities | None
    """Resource needs of one unit; None if they are unknown, or if no agent can meet them."""
    first: Quantities | None
    """Least needs of the tasks in a first share that reaches a minimum offer. Empty if no number of
    tasks reaches one; None if one task does, or if `demand` is None."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about one client at the last update; they determine the masks that have its bit."""

    bit: ClientMask
    users: tuple[str, ...]
    """Names of the users above the client, and of its virtual leaf."""
    shared: _SharedFacts


@dataclass(slots=True)
class _ReadFacts:
    """Facts from the present update, which further clients may share."""

    shared: dict[tuple[str, bool], _SharedFacts] = field(default_factory=dict)
    """Facts by framework and kind of role: whether the role is a sub-role."""
    demands: dict[Quantities, Quantities] = field(default_factory=dict)
    """Demands that an agent may meet; equal demands are one object."""


@dataclass(frozen=True, slots=True)
class _ChangedConditions:
    """Clients whose placement or offer constraints differ since an update, and the constraints."""

    clients: ClientMask
    """Clients whose constraints have changed, or that have stopped wanting offers."""
    constraints: list[tuple[ConstraintGroup, ClientMask]]
    """Placement constraints of these clients, and the clients with each constraint."""
    frameworks: list[str]
    """Frameworks of these clients, if a client excludes any agent by offer constraints."""
    total: int
    """Number of conditions in this change and in all earlier changes."""


@dataclass(frozen=True, slots=True)
class _Excluded:
    """The clients that must not be offered one agent, as of a number of changes."""

    clients: ClientMask
    host: Host | None
    """The agent's description; placement constraints are evaluated again once it is replaced."""
    changes: int
    """Number of changes that the mask contains."""


@dataclass(slots=True)
class _Interval:
    """An interval of amounts of one resource, with the clients that need such an amount."""

    clients: dict[int, ClientMask] = field(default_factory=dict)
    """Clients by the amount that each needs."""
    amounts: list[int] = field(default_factory=list)
    """The keys of `clients` in ascending order, at the last renewal."""
    beyond: list[ClientMask] = field(default_factory=list)
    """Mask i holds the clients of the interval that need more than the first i amounts."""
    later: ClientMask = 0
    """Clients of all later intervals."""

    def renew(self) -> None:
        """Build `amounts` and `beyond` from `clients`."""
        self.amounts = sorted(self.clients)
        beyond: list[ClientMask] = [0]
        for amount in reversed(self.amounts):
            clients = self.clients[amount]
            beyond.append(beyond[-1] | clients if beyond[-1] else clients)
        self.beyond = beyond[::-1]


class _Amounts:
    """Clients by the amount of one resource that each needs.

    The amounts are divided into intervals. For n different amounts, a renewal after the change of a
    client costs O(`_AMOUNTS` + n / `_AMOUNTS`) operations on masks, and a query costs three.
    """

    def __init__(self) -> None:
        self._lows = [_LOWEST]
        """The lower end of each interval, in ascending order."""
        self._intervals = [_Interval()]
        self._outdated: set[int] = set()
        """The lower ends of the intervals that must be renewed."""

    def change(self, amount: int) -> dict[int, ClientMask]:
        """Return the clients of an interval by amount, to be changed before the next renewal.

        Args:
            amount: An amount in the interval.
        """
        index = bisect_right(self._lows, amount) - 1
        self._outdated.add(self._lows[index])
        return self._intervals[index].clients

    def renew(self) -> Cooperative[None]:
        """Renew the changed intervals, in cooperative steps.

        The method divides intervals that have become too large. It joins two neighbours if both
        together have at most `_AMOUNTS` amounts. The index has at most 1 + 2 n / `_AMOUNTS`
        intervals.
        """
        for number, low in enumerate(self._outdated):
            if number and not number % _INTERVALS_A_STEP:
                yield
            index = bisect_right(self._lows, low) - 1
            if self._lows[index] != low:
                continue  # merged with an interval that has been renewed since
            if len(self._lows) > 1:
                index = self._merge(index)
            if len(self._intervals[index].clients) > 2 * _AMOUNTS:
                yield from self._divide(index)
            else:
                self._intervals[index].renew()
        self._outdated.clear()
        later = 0
        for interval in reversed(self._intervals):
            interval.later = later
            later |= interval.beyond[0]

    def _merge(self, index: int) -> int:
        """Merge an interval with its neighbours if they are small; return the index of the result.

        The result must be renewed.
        """
        for first in (index, index - 1):
            pair = self._intervals[first : first + 2] if first >= 0 else []
            if len(pair) == 2 and sum(len(part.clients) for part in pair) <= _AMOUNTS:
                pair[0].clients.update(pair[1].clients)
                del self._lows[first + 1], self._intervals[first + 1]
                index = first
        return index

    def _divide(self, index: int) -> Cooperative[None]:
        """Divide an interval into intervals of `_AMOUNTS` amounts, in cooperative steps."""
        clients = self._intervals[index].clients
        amounts = sorted(clients)
        lows: list[int] = []
        intervals: list[_Interval] = []
        for first in range(0, len(amounts), _AMOUNTS):
            if first and not len(lows) % _INTERVALS_A_STEP:
                yield
            part = amounts[first : first + _AMOUNTS]
            interval = _Interval({amount: clients[amount] for amount in part})
            interval.renew()
            lows.append(part[0] if first else self._lows[index])
            intervals.append(interval)
        self._lows[index : index + 1] = lows
        self._intervals[index : index + 1] = intervals

    @property
    def clients(self) -> ClientMask:
        """All clients that need the resource, at the last renewal."""
        return self._intervals[0].beyond[0] | self._intervals[0].later

    @property
    def least(self) -> int:
        """The smallest amount that a client needs; there must be a client."""
        return next(interval.amounts[0] for interval in self._intervals if interval.amounts)

    def beyond(self, amount: int) -> ClientMask:
        """Return the clients that need more than an amount, at the last renewal."""
        interval = self._intervals[bisect_right(self._lows, amount) - 1]
        return interval.later | interval.beyond[bisect_right(interval.amounts, amount)]


@dataclass(slots=True)
class _Thresholds:
    """Clients by the amounts that each needs, to find those whose needs a capacity contains."""

    clients: ClientMask = 0
    needing: dict[str, _Amounts] = field(default_factory=dict)
    """Clients by the amount of each resource that each needs."""
    outdated: set[str] = field(default_factory=set)
    """Resources whose amounts must be renewed."""

    def groups(self, needs: Quantities) -> Iterator[tuple[dict[int, ClientMask], int]]:
        """Yield the groups of clients with equal amounts of a resource, to be changed.

        Args:
            needs: The amounts, by resource.
        """
        for name, amount in needs.items():
            amounts = self.needing.get(name)
            if amounts is None:
                amounts = self.needing[name] = _Amounts()
            self.outdated.add(name)
            yield amounts.change(amount), amount

    def renew(self) -> Cooperative[None]:
        """Renew the amounts of outdated resources; delete those that no client needs.

        Generator for cooperative steps.
        """
        for name in self.outdated:
            amounts = self.needing[name]
            yield from amounts.renew()
            if not amounts.clients:
                del self.needing[name]
        self.outdated.clear()

    def within(self, capacity: Mapping[str, int]) -> ClientMask:
        """Return the clients whose needs a capacity contains.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        within = self.clients
        for name, amounts in self.needing.items():
            within &= ~amounts.beyond(capacity.get(name, 0))
        return within


class ClientIndex:
    """The clients that want offers, as client masks, indexed by role, constraint and task size.

    A client mask is a set of clients: an integer with one bit for each client.

    The index holds all facts about clients that do not depend on an agent. After events, `update`
    examines the clients for which one of these facts has changed. Methods with an agent among their
    arguments also read the ledger, as the ledger is at this moment. Each of them costs a few
    operations on masks, and each resource that they need costs O(different amounts). For m
    resources, a query costs O(m + constraints) operations on masks, whatever the number of clients.

    A mask has as many bits as there are clients. A group with a single client, such as a role,
    therefore shares the mask object of this client. Demands that no agent can meet, because they
    name a resource that no agent has ever had, are in no table.
    """

    def __init__(
        self, ledger: Ledger, filters: OfferFilters, default: Alternatives | None = None
    ) -> None:
        """Create an index without clients; `update` adds them.

        Args:
            ledger: The clients, their demands and the agents.
            filters: The offer filters, which also number the clients.
            default: The master's minimum offers, for clients without a minimum of their own. None:
                `short_of_first_share` is not used and returns no clients.
        """
        self._ledger, self._filters, self._default = ledger, filters, default
        self._versions = -1, -1, 0
        self._facts: dict[Client, _Facts] = {}
        self.wanting: ClientMask = 0
        """All clients that want offers."""
        self.unknown_demand: ClientMask = 0
        """Clients that want offers, and whose resource needs per task are unknown."""
        self.choosy: ClientMask = 0
        """Clients of frameworks that state minimum allocatable resources."""
        self.by_user: dict[str, ClientMask] = {}
        """Clients that want offers, by the name of each user above them, and of virtual leaves."""
        self.by_role: dict[str, ClientMask] = {}
        self.by_framework, self.by_principal = dict[str, ClientMask](), dict[str, ClientMask]()
        # Clients by the ID of their framework, and by its principal. The latter dictionary has only
        # principals with several clients.
        self.of_shared_principals = dict[str, ClientMask]()
        self.by_demand: dict[Quantities, ClientMask] = {}
        """Clients with a demand that an agent may meet, by this demand."""
        self.by_names: dict[frozenset[str], ClientMask] = {}
        """The same clients, by the names of the resources in their demands."""
        self.client, self.bit = dict[ClientMask, Client](), dict[Client, ClientMask]()
        """The client that each bit represents, and the bit of each client."""
        self.tasks = dict[Client, Quantities]()
        """Resource needs of one unit (`Ledger.unit_demand`), for clients with a known demand.

        Equal demands that an agent may meet are one object."""
        self._own_minimum: ClientMask = 0
        """Clients whose own minimum offer replaces the master's minimum."""
        self._without_minimum: ClientMask = 0
        """Clients whose own minimum offer is empty: every offer reaches this minimum."""
        # Clients of a role and its sub-roles; top-level roles with `LARGE_GROUP` clients or more.
        self._in_role, self.large_roles = dict[str, ClientMask](), dict[str, None]()
        # Results of `reserved_for` since the last change of a client.
        self._reserved_for: dict[frozenset[str], ClientMask] = {}
        self._alike: dict[tuple[bool, frozenset[int]], ClientMask] = {}
        """Clients by capabilities, to check each group once instead of each client."""
        self._minimums: list[_Thresholds] = []
        """Clients by their own minimum offer, with a table for each position among a client's
        alternatives. Minimums are left out if no agent has ever had one of their resources."""
        self._demands = _Thresholds()
        """Clients with a known demand, if some agent has ever had each resource of the demand."""
        self._first_shares = _Thresholds()
        """Clients whose first share needs several tasks to reach a minimum offer, by its needs."""
        self.beyond_a_task: ClientMask = 0
        """The clients of `_first_shares`, and clients with minimum offers that no number of tasks
        reaches."""
        self.counted: frozenset[str] = frozenset()
        """Names of resources that agents have had in whole units; tasks get such units rounded
        up."""
        self._least: list[tuple[str, int]] = []
        """Smallest need of any task, for each resource that every attainable task needs."""
        self._by_constraint: dict[ConstraintGroup, ClientMask] = {}
        self._excluded: dict[str, _Excluded] = {}
        """The last result of `excluded_from`, by agent."""
        self._by_row: dict[str, tuple[tuple[str, ...], list[dict[int, ClientMask]]]] = {}
        """Roles of a framework, and their clients by each byte of a row (`Exclusions.row`)."""
        self._changes: list[_ChangedConditions] = []
        """Changes since the oldest entry of `_excluded`."""

    def update(self) -> None:
        """Examine the clients that have changed since the last update."""
        run_to_completion(self.update_in_steps())

    def update_in_steps(self) -> Cooperative[None]:
        """Generator form of `update`.

        The index must not be read until the generator is exhausted.
        """
        ledger, moved = self._ledger, self._filters.moved
        clients = ledger.clients
        versions = clients.version, ledger.floor.version, len(self.counted)
        same = not (clients.changed or moved or ledger.exclusions.changed)
        if same and versions == self._versions:
            return
        exclusions = ledger.exclusions.take_changes()
        changed = {**clients.changed, **moved}
        if versions != self._versions:
            changed = dict.fromkeys((*self._facts, *clients.wanting_offers))
        clients.changed.clear()
        moved.clear()
        self._versions = versions
        for framework in {client.framework for client in changed}:
            self._by_row.pop(framework, None)
        joining, read = dict[Client, _Facts](), _ReadFacts()
        for number, client in enumerate(clients.wanting_among(changed)):
            if number and not number % _CLIENTS_A_STEP:
                yield
            facts = self._read_facts(client, read)
            if facts == self._facts.get(client):
                del changed[client]
            else:
                joining[client] = facts
        former = [(client, self._conditions(client)) for client in (*changed, *exclusions.clients)]
        if changed:
            self._reserved_for.clear()
            yield from self._remove([client for client in changed if client in self._facts])
            yield from self._add(joining)
        self._record_changes(former, exclusions)
        for table in (self._demands, self._first_shares, *self._minimums):
            yield from table.renew()
        while self._minimums and not self._minimums[-1].clients:
            self._minimums.pop()
        self._least = [
            (name, amounts.least)
            for name, amounts in self._demands.needing.items()
            if amounts.clients == self._demands.clients
        ]

    def _read_facts(self, client: Client, read: _ReadFacts) -> _Facts:
        """Return the present facts about a client that wants offers.

        Args:
            client: The client.
            read: Facts about earlier clients of this update.
        """
        ledger, is_sub_role = self._ledger, "/" in client.role
        framework = ledger.frameworks[client.framework]
        stated, minimums = ledger.demand_of(client), framework.min_allocatable.get(client.role)
        shared = read.shared.get((client.framework, is_sub_role))
        if shared is None or shared.stated != stated or shared.own_minimums != minimums:
            shared = self._read_shared_facts(client, stated, minimums, read)
            before = self._facts.get(client)
            if before is not None and before.shared == shared:
                shared = before.shared  # comparing one object with itself is fast
            read.shared[client.framework, is_sub_role] = shared
        user = ledger.clients.node(client)
        return _Facts(1 << self._filters.slot(client), (user.leaf, *user.ancestry), shared)

    def _read_shared_facts(
        self,
        client: Client,
        stated: Quantities | None,
        minimums: Alternatives | None,
        read: _ReadFacts,
    ) -> _SharedFacts:
        """Return the facts that a client shares with clients of its framework.

        Args:
            client: A client that wants offers.
            stated: Resource needs of one task of the client; None if they are unknown.
            minimums: The client's own minimum offers; None: the master's apply.
            read: Facts about earlier clients of this update.
        """
        ledger, framework = self._ledger, self._ledger.frameworks[client.framework]
        task, demand, first = ledger.unit_demand(client), None, None
        if task is not None and ledger.floor.knows(task):
            demand = read.demands.get(task)
            if demand is None:
                equal = self.by_demand.get(task)
                demand = self.tasks[self.client[equal & -equal]] if equal else task
                read.demands[task] = demand
            task = demand
            first = self._first_share(demand, self._default if minimums is None else minimums)
        return _SharedFacts(
            framework.id,
            framework.subscription.principal,
            ("/" in client.role, framework.placing_capabilities),
            ledger.placements.group_of(client.framework),
            bool(framework.min_allocatable),
            minimums,
            tuple(filter(ledger.floor.knows, minimums or ())),
            stated,
            task,
            demand,
            first,
        )

    def _remove(self, clients: Iterable[Client]) -> Cooperative[None]:
        """Remove clients from all masks, by their facts of the last update.

        Generator for cooperative steps.

        Args:
            clients: Clients in the index.
        """
        removed, roles = list[_Facts](), dict[str, None]()
        for number, client in enumerate(clients):
            if number and not number % _CLIENTS_A_STEP:
                yield
            facts = self._facts.pop(client)
            removed.append(facts)
            roles[client.role] = None
            del self.client[facts.bit], self.bit[client]
            self.tasks.pop(client, None)
            for group, key in self._own_groups(client, facts):
                _remove_from(group, key, facts.bit)
        self._note_sizes(roles)
        for number, (shared, bits) in enumerate(_by_shared_facts(removed)):
            if number and not number % _CLIENTS_A_STEP:
                yield
            self._remove_all(shared, bits)

    def _remove_all(self, shared: _SharedFacts, bits: ClientMask) -> None:
        """Remove clients from the masks that these facts determine.

        Args:
            shared: Facts that the clients share.
            bits: The clients.
        """
        for group, key in self._shared_groups(shared):
            _remove_from(group, key, bits)
        self._note_principal(shared.principal)
        others = ~bits
        for table, _ in self._needs(shared):
            table.clients &= others
        self.wanting &= others
        self.unknown_demand &= others
        self.choosy &= others
        self._own_minimum &= others
        self._without_minimum &= others
        self.beyond_a_task &= others

    def _add(self, clients: Mapping[Client, _Facts]) -> Cooperative[None]:
        """Add clients that want offers to all masks. Generator for cooperative steps.

        Args:
            clients: Clients that are not in the index, with their present facts.
        """
        for number, (client, facts) in enumerate(clients.items()):
            if number and not number % _CLIENTS_A_STEP:
                yield
            self._facts[client] = facts
            self.client[facts.bit], self.bit[client] = client, facts.bit
            if facts.shared.task is not None:
                self.tasks[client] = facts.shared.task
            for group, key in self._own_groups(client, facts):
                _add_to(group, key, facts.bit)
        self._note_sizes([client.role for client in clients])
        for number, (shared, bits) in enumerate(_by_shared_facts(clients.values())):
            if number and not number % _CLIENTS_A_STEP:
                yield
            self._add_all(shared, bits)

    def _add_all(self, shared: _SharedFacts, bits: ClientMask) -> None:
        """Add clients to the masks that these facts determine.

        Args:
            shared: Facts that the clients share.
            bits: The clients.
        """
        while len(self._minimums) < len(shared.minimums):
            self._minimums.append(_Thresholds())
        for group, key in self._shared_groups(shared):
            _add_to(group, key, bits)
        self._note_principal(shared.principal)
        for table, _ in self._needs(shared):
            table.clients |= bits
        self.wanting |= bits
        if shared.task is None:
            self.unknown_demand |= bits
        if shared.is_choosy:
            self.choosy |= bits
        if shared.own_minimums is not None:
            self._own_minimum |= bits
            if not shared.own_minimums:
                self._without_minimum |= bits
        if shared.first is not None:
            self.beyond_a_task |= bits

    def _note_sizes(self, roles: Iterable[str]) -> None:
        """Update which of the top-level roles of some roles have many clients."""
        for role in {top_level(role): None for role in roles}:
            if self.in_role(role).bit_count() >= LARGE_GROUP:
                self.large_roles[role] = None
            else:
                self.large_roles.pop(role, None)

    def _note_principal(self, principal: str) -> None:
        """Update whether a principal has several clients, and which."""
        clients = self.by_principal.get(principal, 0)
        if clients & (clients - 1):
            self.of_shared_principals[principal] = clients
        else:
            self.of_shared_principals.pop(principal, None)

    def _first_share(self, demand: Quantities, minimums: Alternatives | None) -> Quantities | None:
        """Return `_Facts.first` for a demand and the alternative minimums of its client."""
        if self._default is None or not minimums or any(map(demand.contains, minimums)):
            return None
        most: Needs = {
            name: -(-amount // 1000) * 1000 if name in self.counted else amount
            for name, amount in demand.items()
        }
        return demand.times(fewest_tasks(most, minimums))

    def _own_groups(self, client: Client, facts: _Facts) -> list[tuple[dict[str, ClientMask], str]]:
        """Return the groups that a client's role and users determine: dictionaries and keys."""
        groups = [(self.by_user, user) for user in facts.users]
        groups.append((self.by_role, client.role))
        role = client.role
        while role:
            groups.append((self._in_role, role))
            role = role.rpartition("/")[0]
        return groups

    def _shared_groups(
        self, shared: _SharedFacts
    ) -> Iterator[tuple[dict[Any, ClientMask], object]]:
        """Yield the groups that shared facts determine: dictionaries and keys."""
        yield self.by_framework, shared.framework
        yield self.by_principal, shared.principal
        yield self._alike, shared.capabilities
        if shared.constraint is not None:
            yield self._by_constraint, shared.constraint
        if shared.demand is not None:
            yield self.by_demand, shared.demand
            yield self.by_names, frozenset(shared.demand)
        for table, needs in self._needs(shared):
            yield from table.groups(needs)

    def _needs(self, shared: _SharedFacts) -> Iterator[tuple[_Thresholds, Quantities]]:
        """Yield each table that contains clients with these facts, with the amounts they need."""
        if shared.demand is not None:
            yield self._demands, shared.demand
        if shared.first:
            yield self._first_shares, shared.first
        yield from zip(self._minimums, shared.minimums, strict=False)

    @property
    def skips_refusing_clients(self) -> bool:
        """Whether clients that would refuse each share of an agent are skipped together."""
        return self._default is not None

    @property
    def constraints(self) -> int:
        """Number of different placement constraints; `excluded_from` reads all for a new agent."""
        return len(self._by_constraint)

    def clients(self) -> Iterator[Client]:
        """Return an iterator over the clients, in the order in which they began to want offers.

        The order of `bit` depends on when clients changed.
        """
        return self._ledger.clients.wanting_offers

    def without_roles(self, roles: Iterable[str]) -> ClientMask:
        """Return the clients that want offers, except the clients of some roles.

        Clients of sub-roles of these roles are in the result.
        """
        clients = self.wanting
        for role in roles:
            clients &= ~self.by_role.get(role, 0)
        return clients

    def excluded_from(self, agent: str) -> ClientMask:
        """Return the clients that must not be offered an agent, although they want offers.

        Either the agent does not meet the client's placement constraint, or the client's offer
        constraints exclude the agent. Costs O(constraints that changed since the last call for
        the agent).

        Args:
            agent: The agent's ID.
        """
        ledger, known = self._ledger, self._excluded.get(agent)
        host = ledger.placements.host(agent)
        if known is None or known.host is not host:
            clients = self._excluding(agent, self._by_constraint.items())
            for framework in ledger.exclusions.frameworks(agent):
                clients |= self._excluding_in(framework, agent)
        elif known.changes == len(self._changes):
            return known.clients
        else:
            clients = known.clients
            for change in self._changes[known.changes :]:
                clients = clients & ~change.clients | self._excluding(agent, change.constraints)
                for framework in change.frameworks:
                    clients |= self._excluding_in(framework, agent) & change.clients
        self._excluded[agent] = _Excluded(clients, host, len(self._changes))
        return clients

    def _excluding(
        self, agent: str, constraints: Iterable[tuple[ConstraintGroup, ClientMask]]
    ) -> ClientMask:
        """Return the clients whose placement constraint an agent does not meet.

        Args:
            agent: The agent's ID.
            constraints: Placement constraints, and the clients with each constraint.
        """
        excluding = 0
        for constraint, clients in constraints:
            if agent not in constraint.agents:
                excluding |= clients
        return excluding

    def _excluding_in(self, framework: str, agent: str) -> ClientMask:
        """Return the clients of a framework whose offer constraints exclude an agent.

        Costs an operation on masks for eight roles.

        Args:
            framework: The framework's ID.
            agent: The agent's ID.
        """
        if framework not in self.by_framework:
            return 0
        roles, row = self._ledger.exclusions.row(framework, agent)
        known = self._by_row.get(framework)
        if known is None or known[0] is not roles:
            known = self._by_row[framework] = roles, [{} for _ in range(0, len(roles), 8)]
        excluding = 0
        for place, byte in enumerate(row):
            if byte:
                clients = known[1][place].get(byte)
                if clients is None:
                    clients = 0
                    for number, role in enumerate(roles[8 * place : 8 * place + 8]):
                        if byte >> number & 1:
                            clients |= self.bit.get(Client(role, framework), 0)
                    known[1][place][byte] = clients
                excluding |= clients
        return excluding

    def _conditions(self, client: Client) -> tuple[ClientMask, ConstraintGroup | None]:
        """Return a client's bit and placement constraint; the bit is 0 if it is not in the index.

        Args:
            client: Any client.
        """
        facts = self._facts.get(client)
        return (0, None) if facts is None else (facts.bit, facts.shared.constraint)

    def _record_changes(
        self,
        former: Iterable[tuple[Client, tuple[ClientMask, ConstraintGroup | None]]],
        exclusions: ChangedExclusions,
    ) -> None:
        """Record which constraints an update has changed, for `excluded_from`.

        Args:
            former: Clients that may have changed, and their `_conditions` before the update.
            exclusions: Clients and agents whose offer constraints have changed.
        """
        conditions, changed = self._ledger.exclusions, 0
        constraints: dict[ConstraintGroup, ClientMask] = {}
        frameworks: dict[str, None] = {}
        for client, before in former:
            bit, constraint = after = self._conditions(client)
            if before == after and client not in exclusions.clients:
                continue
            changed |= before[0] | bit
            if constraint is not None:
                constraints[constraint] = constraints.get(constraint, 0) | bit
            if bit and conditions.number(client):
                frameworks[client.framework] = None
        for agent in exclusions.agents:
            self._excluded.pop(agent, None)
        number = self._changes[-1].total if self._changes else 0
        number += bool(changed) + len(constraints) + len(frameworks)
        if not exclusions.known or number > _CHANGES + len(self._by_constraint) + len(conditions):
            self._excluded.clear()
        if not self._excluded:
            self._changes.clear()
        elif changed:
            change = _ChangedConditions(changed, [*constraints.items()], [*frameworks], number)
            self._changes.append(change)

    def fitting(self, capacity: Mapping[str, int]) -> ClientMask:
        """Return the clients that want offers and whose next task fits into a capacity.

        Clients with unknown demand are not included.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        return self._demands.within(capacity)

    def short_of_first_share(
        self, capacity: Mapping[str, int], counted: frozenset[str]
    ) -> ClientMask:
        """Return clients of which no number of tasks within a capacity reaches a minimum offer.

        Their next task may fit, but its offer would be refused. If the agent is the first with
        a counted resource, the result is empty until the next update, which examines all clients.

        Args:
            capacity: Thousandths of each resource, by name.
            counted: Names of the agent's resources that exist in whole units only, such as ports.
        """
        if self._default is None:
            return 0
        if not counted <= self.counted:
            self.counted |= counted
        if not self.beyond_a_task or len(self.counted) != self._versions[2]:
            return 0
        return self.beyond_a_task & ~self._first_shares.within(capacity)

    def unreached(self, capacity: Quantities, default: Alternatives) -> ClientMask:
        """Return the clients whose minimum offer (`min_allocatable`) exceeds the given quantities.

        No part of the quantities could be offered to these clients. Costs O(resources)
        operations on masks for each alternative of a client, whatever the number of clients.

        Args:
            capacity: An upper bound of the contents of one offer.
            default: The master's minimum, for clients without a minimum of their own.
        """
        if not capacity:
            return self.wanting
        contains = capacity.contains
        reached = self._without_minimum
        if not default or any(map(contains, default)):
            reached |= self.wanting & ~self._own_minimum
        for table in self._minimums:
            reached |= table.within(capacity)
        return self.wanting & ~reached

    def incapable(self, agent: Agent, rules: OfferRules) -> ClientMask:
        """Return the clients whose frameworks lack a capability that an agent requires.

        Costs O(different combinations of capabilities).

        Args:
            agent: An agent to offer.
            rules: The master's flags that restrict offers (Mesos semantics, §3.6).
        """
        mask = 0
        for clients in self._alike.values():
            client = self.client[clients & -clients]  # any of them
            if not self._ledger.frameworks[client.framework].can_use(agent, client.role, rules):
                mask |= clients
        return mask

    def alike(self, client: Client) -> ClientMask:
        """Return the clients with the same relevant capabilities as a client.

        These clients can use the same agents and kinds of resources.
        """
        return self._alike[self._facts[client].shared.capabilities]

    def reserved_for(self, roles: frozenset[str]) -> ClientMask:
        """Return the clients of these roles and of their sub-roles.

        These clients can be offered resources that are reserved for the roles.

        Args:
            roles: The roles that an agent's resources are reserved for.
        """
        mask = self._reserved_for.get(roles)
        if mask is None:
            mask = 0
            for role in roles:
                mask |= self._in_role.get(role, 0)
            if len(self._reserved_for) >= _RESERVATIONS:
                self._reserved_for.clear()
            self._reserved_for[roles] = mask
        return mask

    def in_role(self, role: str) -> ClientMask:
        """Return the clients of a role and of its sub-roles."""
        return self._in_role.get(role, 0)

    def admitted_to_restricted(self, free: Resources) -> ClientMask:
        """Return the clients that can be offered reserved or revocable resources of an agent.

        Args:
            free: The agent's available resources.
        """
        mask = self.reserved_for(free.reservations)
        kind = next((kind for kind in free.unreserved if kind.revocable), None)
        if kind is None:
            return mask
        for clients in self._alike.values():
            framework = self._ledger.frameworks[self.client[clients & -clients].framework]
            if framework.lacking_for(kind) is None:
                mask |= clients
        return mask

    def in_quota(self, top: str | None, quotas: Iterable[str]) -> ClientMask:
        """Return the clients of one top-level role, or of all roles without a quota.

        Args:
            top: A top-level role; None: all roles without a quota.
            quotas: The roles that have a quota; used only if `top` is None.
        """
        if top is not None:
            return self._in_role.get(top, 0)
        mask = self.wanting
        for role in quotas:
            mask &= ~self._in_role.get(role, 0)
        return mask

    def room_for_two(self, capacity: Mapping[str, int]) -> bool:
        """Return whether a capacity may suffice for two tasks, of any clients that want offers.

        If the result is False, two tasks surely do not fit. If the result is True, they may still
        not fit, because the method compares only the smallest needs of all tasks.

        Args:
            capacity: Thousandths of each resource, by name.
        """
        return all(capacity.get(name, 0) >= 2 * least for name, least in self._least)


def fewest_tasks(needs: Needs, minimums: Alternatives) -> int:
    """Return the least number of tasks that reaches one of several minimum offers.

    Args:
        needs: Demand of one task in thousandths, by resource.
        minimums: Alternative minimums; without any, one task suffices.

    Returns:
        The number of tasks; 0 if no number of tasks reaches a minimum.
    """
    numbers = [_fewest(needs, minimum) for minimum in minimums]
    return min(filter(None, numbers), default=0) if numbers else 1


def _fewest(needs: Needs, minimum: Quantities) -> int:
    """Return the least number of tasks that reaches a minimum offer; 0 if no number does.

    Args:
        needs: Demand of one task in thousandths, by resource.
        minimum: Thousandths that an offer must have at least, by resource.
    """
    if any(name not in needs for name in minimum):
        return 0
    return max((-(-amount // needs[name]) for name, amount in minimum.items()), default=1)


def ones(bits: ClientMask) -> Iterator[ClientMask]:
    """Yield each set bit of a client mask as a mask of its own, lowest bit first."""
    while bits:
        lowest = bits & -bits
        yield lowest
        bits ^= lowest


def _by_shared_facts(clients: Iterable[_Facts]) -> Iterator[tuple[_SharedFacts, ClientMask]]:
    """Yield shared facts, each time with the successive clients that share them."""
    for shared, members in groupby(clients, attrgetter("shared")):
        yield shared, reduce(or_, [facts.bit for facts in members])


def _add_to(group: dict[Any, ClientMask], key: object, bits: ClientMask) -> None:
    """Add clients to the group that a dictionary has under a key."""
    clients = group.get(key)
    group[key] = bits if clients is None else clients | bits


def _remove_from(group: dict[Any, ClientMask], key: object, bits: ClientMask) -> None:
    """Remove clients from the group that a dictionary has under a key; delete an empty group."""
    remaining = group[key] & ~bits
    if remaining:
        group[key] = remaining
    else:
        del group[key]
