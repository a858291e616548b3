"""Bulk allocation: a group of agents is allocated as one bin, then tasks are packed on agents.

Allocating agent by agent is slow if many agents are free at once. Bulk allocation computes fair
shares of a whole group of agents by progressive filling. Then the tasks are placed on agents, with
few agents for each client. The result equals an allocation task by task if all tasks have one shape
and all clients may use all agents. A *shape* is a task's resource needs together with the agents
that may run the task.

With several task shapes, the allocator works in stages. Each stage allocates almost all remaining
capacity: first for scarce shapes, then for shapes that fill the gaps. A stage is kept only if all
its tasks can be packed, and is otherwise repeated with half of the capacity. Agents with capacity
for few tasks of a shape leave the group, and are allocated one by one at the end.

A group costs O(stages · (agents + clients · log tasks)). If k shapes may use different agents, the
search for usable agents costs another O(k · agents).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Self, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask, ones
from allocator.cluster.allocation.client_order import ClientOrder
from allocator.cluster.allocation.fair_share_stage import PlacedTasks, task_of
from allocator.cluster.allocation.offer_builder import OfferBuilder, OutstandingOfferLimit
from allocator.cluster.allocation.progressive_filling import (
    CapacityBudget,
    ClientNode,
    ClientTask,
    Needs,
)
from allocator.cluster.allocation.sharing_limit import SharingLimit
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.offers.offer_filters import OfferFilters
from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.resources import Resources

_NOTHING = ""
"""Name of a resource that no agent has."""
_UNLIMITED = 1 << 62
_PROBES = 8
"""Maximum number of rows that a count or a packing examines, for each agent of the group."""
_MIN_PROBES = 64
"""Minimum number of rows without capacity for one shape that the next shape examines again."""
_AGENTS_A_STEP = 50
"""Agents examined in one step."""
_TESTS_A_STEP = 5000
"""Maximum number of placement constraints in a step, summed over new agents."""
_CLIENTS_A_STEP = 500
"""Clients in a step."""
_ROWS_A_STEP = 100
"""Client masks compared in one step."""


IndexedNeeds: TypeAlias = Sequence[tuple[int, int]]
"""Needs of a task as pairs: column of the resource in the table, and thousandths."""


@dataclass(frozen=True, slots=True)
class IdenticalAgents:
    """Agents with equal capacity and the same eligible clients: one row of a `PackingTable`.

    Rows make packing fast, because identical agents are examined once.
    """

    free: tuple[int, ...]
    """Remaining thousandths on each agent, in the order of the table's names."""
    able: ClientMask
    """Clients that may be allocated tasks on these agents."""
    agents: Sequence[int]
    """Indices of the agents in their group."""
    fitting: ClientMask
    """Clients of which a task fits. Without `exact`, tasks of some of these clients may not fit."""
    exact: bool = False
    """Whether a task of each client in `fitting` fits."""

    def max_tasks(self, wants: IndexedNeeds) -> int:
        """Return how many tasks with these needs fit on each of these agents."""
        maximum, free = _UNLIMITED, self.free
        for column, amount in wants:
            number = free[column] // amount
            maximum = min(number, maximum)
        return maximum

    def with_tasks(
        self, wants: IndexedNeeds, number: int, agents: Sequence[int]
    ) -> "IdenticalAgents":
        """Return a row with some of these agents, after tasks have been placed on each of them.

        Args:
            wants: The needs of a task.
            number: The number of tasks to place on each agent.
            agents: The agents of the new row, as indices within the agent group.
        """
        free = list(self.free)
        for column, amount in wants:
            free[column] -= number * amount
        return IdenticalAgents(tuple(free), self.able, agents, self.fitting)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class PackingTable:
    """Remaining capacity of a group's agents, and the tasks placed on them.

    Each row contains agents with equal capacity and the same eligible clients.

    Args:
        free: For each agent of the group, its available thousandths by resource.
        eligible: For each agent, the clients that may be allocated tasks.
        fitting: Returns the clients whose next task fits into a given capacity.
    """

    def __init__(
        self,
        free: Sequence[Mapping[str, int]],
        eligible: Iterable[ClientMask],
        fitting: Callable[[Mapping[str, int]], ClientMask],
    ) -> None:
        self._names = sorted({name for amounts in free for name in amounts})
        self._columns = {name: column for column, name in enumerate([*self._names, _NOTHING])}
        self._fitting = fitting
        agents = [
            (tuple([amounts.get(name, 0) for name in self._columns]), mask)
            for amounts, mask in zip(free, eligible, strict=True)
        ]
        self._rows = [
            IdenticalAgents(*agents[number], [number, *more], agents[number][1])
            for _, (number, *more) in groupby(range(len(agents)), agents.__getitem__)
        ]
        self._skipped: list[IdenticalAgents] = []
        """Agents that no shape examines before the next `regroup`."""
        self.placements: list[tuple[int, Client, int]] = []
        """Placed tasks: agent number, client, number of tasks."""

    def copy(self) -> Self:
        """Return a copy in which tasks can be placed without changing this table."""
        table = copy(self)
        table._rows = self._rows.copy()  # noqa: SLF001 - same class
        table._skipped = self._skipped.copy()  # noqa: SLF001 - same class
        table.placements = self.placements.copy()
        return table

    def regroup(self, clients: ClientMask, useful: Callable[[ClientMask], object]) -> int:
        """Merge rows of identical agents, drop useless rows, and return the number of agents kept.

        Rows are sorted: agents with the fewest eligible clients come first. Among these, agents
        with the most remaining capacity come first.

        Args:
            clients: Clients that may still be allocated tasks.
            useful: A predicate, called for each row with the clients whose next task fits on an
                agent of the row. If it returns a false value, the row is dropped.
        """

        def key(row: IdenticalAgents) -> tuple[int, ClientMask, tuple[int, ...]]:
            able = row.able & clients
            return -able.bit_count(), able, row.free

        rows = sorted([*self._skipped, *self._rows], key=key, reverse=True)
        self._rows, self._skipped = [], []
        for (_, able, _), identical in groupby(rows, key):
            first, *more = identical
            agents = [*first.agents, *(number for row in more for number in row.agents)]
            fitting = first.fitting & able
            if not first.exact:
                fitting &= self._fitting(dict(zip(self._names, first.free, strict=False)))
            if useful(fitting):
                self._rows.append(IdenticalAgents(first.free, able, agents, fitting, exact=True))
        return sum(len(row.agents) for row in self._rows)

    def capacities(
        self, shapes: Sequence[tuple[Needs, ClientMask]], exact: int
    ) -> Cooperative[list[int]]:
        """Return, for each task shape, how many tasks would fit if all agents ran this shape only.

        With many shapes and many distinct agents, the result is extrapolated from a sample of the
        agents. An agent on which no task of a shape fits costs the shape nothing beyond the sample.

        Args:
            shapes: For each shape, the needs of a task, and the bit of one client with such tasks.
            exact: Results below this number are exact, because all agents are examined then.
        """
        agents = sum(len(row.agents) for row in self._rows)
        sample = self._rows[:: 1 + len(self._rows) * (len(shapes) - 1) // (_PROBES * agents + 1)]
        in_sample = sum(len(row.agents) for row in sample)
        capacities: list[int] = []
        inexact: dict[ClientMask, int] = {}
        """Shapes whose capacity all agents determine: the client's bit, and place in `shapes`."""
        for place, (needs, bit) in enumerate(shapes):
            capacity = _capacity(sample, self._wants(needs), bit) * agents // max(in_sample, 1)
            if capacity < exact and in_sample < agents:
                capacity, inexact[bit] = 0, place
            capacities.append(capacity)
            yield
        clients = sum(inexact)
        for number, row in enumerate(self._rows if inexact else ()):
            if not number % _AGENTS_A_STEP:
                yield
            for bit in ones(row.fitting & clients):
                place = inexact[bit]
                tasks = row.max_tasks(self._wants(shapes[place][0]))
                capacities[place] += len(row.agents) * tasks
        return capacities

    def probe_limit(self, shapes: int) -> int:
        """Return the argument `probe_limit` for `pack`, to bound the cost of packing many shapes.

        The limit is a number of rows, each with identical agents. If more rows than this are too
        full for one shape, `pack` hides the surplus rows from the next shapes. `regroup` makes the
        rows visible again.

        Args:
            shapes: The number of shapes to pack.
        """
        return max(_MIN_PROBES, _PROBES * len(self._rows) // shapes)

    def pack(
        self,
        needs: Needs,
        bit: ClientMask,
        tasks: Iterable[tuple[Client, int]],
        multiplier: int,
        probe_limit: int,
    ) -> bool:
        """Place tasks of one shape on agents: each task on the first agent with capacity.

        A shape is a task's resource needs together with the agents that may run the task.

        Args:
            needs: Demand of one unit in thousandths, by resource. A unit is the least number of
                tasks accepted by a client.
            bit: The bit of one client of the shape, as in `ClientIndex`.
            tasks: Clients and their numbers of units, in the order to place.
            multiplier: The number of tasks in a unit; `placements` records tasks.
            probe_limit: How many groups of agents that are too full for this shape are examined for
                the next shape, too.

        Returns:
            True if all tasks fit. Otherwise, the table has been changed in part, and must be
            discarded.
        """
        wants = self._wants(needs)
        queue = self._rows[::-1]
        skipped: list[IdenticalAgents] = []
        ineligible: list[IdenticalAgents] = []
        for client, number in tasks:
            wanted = number
            while wanted:
                if not queue:
                    return False
                row = queue.pop()
                if not row.able & bit:
                    ineligible.append(row)
                    continue
                maximum = row.max_tasks(wants) if row.fitting & bit else 0
                if not maximum:
                    skipped.append(row)
                    continue
                full = min(wanted // maximum, len(row.agents))
                rest = row.agents
                if full:
                    filled, rest = rest[:full], rest[full:]
                    self.placements += [(agent, client, maximum * multiplier) for agent in filled]
                    skipped.append(row.with_tasks(wants, maximum, filled))
                    wanted -= full * maximum
                partial = None
                if wanted and rest:
                    self.placements.append((rest[0], client, wanted * multiplier))
                    partial, rest, wanted = row.with_tasks(wants, wanted, rest[:1]), rest[1:], 0
                if rest:
                    queue.append(IdenticalAgents(row.free, row.able, rest, row.fitting, row.exact))
                if partial:
                    queue.append(partial)
        self._skipped += skipped[:-probe_limit]
        self._rows = skipped[-probe_limit:] + ineligible + queue[::-1]
        return True

    def _wants(self, needs: Needs) -> IndexedNeeds:
        """Return a task's needs by column number of this table instead of by resource name."""
        nothing = self._columns[_NOTHING]
        return [(self._columns.get(str(name), nothing), amount) for name, amount in needs.items()]


def max_tasks(capacity: Mapping[str, int], needs: Needs) -> int:
    """Return how many tasks with the given needs fit into a capacity.

    Args:
        capacity: Thousandths by resource; a missing resource counts as 0.
        needs: Demand of one task in thousandths, by resource.
    """
    return min([capacity.get(str(name), 0) // amount for name, amount in needs.items()])


def _capacity(rows: Iterable[IdenticalAgents], wants: IndexedNeeds, bit: ClientMask) -> int:
    """Return how many tasks of one shape fit in total on the agents of several rows.

    Args:
        rows: Rows of a packing table, each with identical agents.
        wants: The needs of one task.
        bit: The bit of one client of the shape; agents that this client cannot use are skipped.
    """
    return sum([len(row.agents) * row.max_tasks(wants) for row in rows if row.fitting & bit])


class Eligibility:
    """Determines which clients may be allocated tasks on which agents, given the offer filters.

    A client that declined part of an agent is offered this agent only with strictly more resources
    than it declined. The client therefore needs a minimum number of tasks on the agent. Bulk
    allocation uses one minimum for each client, large enough for at least half of the client's
    agents. On agents that need a larger number, the client is not eligible.
    """

    def __init__(self, filters: OfferFilters, builder: OfferBuilder, index: ClientIndex) -> None:
        self._filters = filters
        self._builder = builder
        self._index = index
        self._able: dict[tuple[object, ...], ClientMask] = {}
        """Results of `_able_to_use`, by all facts of an agent on which they depend."""
        self._minimums: dict[tuple[int, int], tuple[int, Resources, ClientTask]] = {}
        """Least number of tasks that exceeds declined resources, by the ids of the resources and
        the task.

        The values keep both objects, so that the ids stay unique."""

    def find_eligible(
        self,
        agents: Sequence[Agent],
        allowed: Iterable[ClientMask],
        fewest: dict[Client, tuple[ClientTask, int]],
    ) -> Cooperative[list[ClientMask]]:
        """Return, for each agent, the clients that may be allocated tasks on this agent.

        Args:
            agents: The agents of one group.
            allowed: For each agent, the clients that may use the agent and do not decline all its
                resources.
            fewest: By client: its task, and the least number of tasks to allocate at once. The
                method increases this number for clients that declined parts of agents.
        """
        clients = sum(self._index.bit[client] for client in fewest)
        eligible: list[ClientMask] = []
        minimums: dict[Client, dict[int, int]] = {}
        for place, (agent, mask) in enumerate(zip(agents, allowed, strict=True)):
            if not place % _AGENTS_A_STEP:
                yield
            key = agent.has_gpus, agent.region, agent.multi_role, agent.hierarchical_role
            if key not in self._able:
                self._able[key] = yield from self._able_to_use(agent)
            able = mask & clients & self._able[key]
            for client, number in self._declined(agent, able, fewest):
                if not number:
                    able &= ~self._index.bit[client]
                elif number > fewest[client][1]:
                    numbers = minimums.setdefault(client, {})
                    numbers[place] = max(number, numbers.get(place, 0))
            eligible.append(able)
        yield from self._raise_fewest(fewest, minimums, eligible)
        return eligible

    def _raise_fewest(
        self,
        fewest: dict[Client, tuple[ClientTask, int]],
        minimums: Mapping[Client, Mapping[int, int]],
        eligible: list[ClientMask],
    ) -> Cooperative[None]:
        """Raise the least numbers of tasks of clients that declined parts of agents.

        The client is not eligible on agents with a larger minimum.

        Args:
            fewest: By client: its task, and the number to raise.
            minimums: The minimum of each agent, by client and the agent's place.
            eligible: For each agent, the eligible clients; changed by this method.
        """
        for client, by_agent in minimums.items():
            yield
            bit, (task, number) = self._index.bit[client], fewest[client]
            numbers = {place: least for place, least in by_agent.items() if eligible[place] & bit}
            unrestricted = sum([1 for mask in eligible if mask & bit]) - len(numbers)
            if unrestricted < len(numbers):
                number = sorted(numbers.values())[(len(numbers) - unrestricted - 1) // 2]
                fewest[client] = task, number
            for place, least in numbers.items():
                if least > number:
                    eligible[place] &= ~bit

    def _declined(
        self, agent: Agent, able: ClientMask, fewest: Mapping[Client, tuple[ClientTask, int]]
    ) -> Iterator[tuple[Client, int]]:
        """Yield each client that declined part of an agent, and the least number of tasks to offer.

        This number of tasks needs strictly more resources than the declined part. The number is 0
        if the agent cannot hold that many tasks.

        Args:
            agent: The agent whose offer filters are examined.
            able: The clients to consider.
            fewest: By client: its task, and a number that is ignored here.
        """
        free, capacities = agent.available.divisible, dict[ClientTask, int]()
        able &= ~self._index.unknown_demand
        for mask, refused in self._filters.declined_on(agent.id):
            for bit in ones(mask & able):
                client = self._index.client[bit]
                task, _ = fewest[client]
                known = self._minimums.get((id(refused), id(task)))
                if known is None:
                    number = 1 + max_tasks(refused.plain.divisible, task.needs)
                    known = self._minimums[id(refused), id(task)] = number, refused, task
                number = known[0]
                capacity = capacities.get(task)
                if capacity is None:
                    capacity = capacities[task] = max_tasks(free, task.needs)
                yield client, number if number <= capacity else 0

    def _able_to_use(self, agent: Agent) -> Cooperative[ClientMask]:
        """Return the clients whose framework's capabilities allow them to use an agent.

        See Mesos semantics, §3.6. Generator for cooperative steps.
        """
        able: ClientMask = 0
        for place, (client, bit) in enumerate(self._index.bit.items(), 1):
            if not place % _CLIENTS_A_STEP:
                yield
            if self._builder.usable(agent, client) is not None:
                able |= bit
        return able


def partition(eligible: Iterable[ClientMask]) -> Cooperative[dict[ClientMask, int]]:
    """Partition clients into classes; the clients of a class are eligible on the same agents.

    The masks are the rows of a matrix of bits, in which a client is a column. Clients with equal
    columns form a class. The columns are compared as bytes, a number of rows at a time. So the
    number of classes, which tenants can choose by placement constraints, hardly affects the cost.

    Args:
        eligible: For each agent, the clients that are eligible on the agent.

    Returns:
        The number of the class of each client that is eligible on any agent, by the client's bit.
    """
    distinct = list(dict.fromkeys(eligible))
    clients = 0
    for mask in distinct:
        clients |= mask
    bits = list(ones(clients))
    width = clients.bit_length()
    places = [width - bit.bit_length() for bit in bits]
    classes = [0] * len(bits)
    for first in range(0, len(distinct), _ROWS_A_STEP):
        yield
        rows = "".join([f"{mask:0{width}b}" for mask in distinct[first : first + _ROWS_A_STEP]])
        columns = [rows[place::width] for place in places]
        yield
        known: dict[tuple[int, str], int] = {}
        classes = [known.setdefault(key, len(known)) for key in zip(classes, columns, strict=True)]
    return dict(zip(bits, classes, strict=True))


_GroupKey: TypeAlias = tuple[object, ...]

_ALL = 1 << 128
"""The whole remaining capacity, in parts. Parts are so small that rounding never changes a
number of tasks."""
_FEW = 4
"""A shape is scarce if fewer tasks than this fit: one task would be a large part of a stage."""
_SPARE = 8
"""Capacity that a stage keeps free for fragmentation: one agent for each shape, but at most 1/8."""
_STAGES = 24
_TRIES = 3


@dataclass(eq=False)
class AgentGroup:
    """Agents that bulk allocation treats as one large agent, or one agent to allocate alone."""

    agents: list[Agent]
    may_use: list[ClientMask]
    """For each agent, the clients that may use it and do not decline all its resources."""


@dataclass(eq=False)
class TaskShape:
    """Clients with equal tasks and the same eligible agents, which bulk allocation treats alike.

    The clients accept an offer only if it has at least `number` tasks. Tasks are therefore
    allocated in multiples of `number`.
    """

    task: ClientTask
    number: int
    """The least number of tasks that the clients accept as an offer."""
    clients: list[Client] = field(default_factory=list)
    fits: int = 0
    """How often this number of tasks fits on all agents without other shapes."""

    @property
    def needs(self) -> Needs:
        """Thousandths that `number` tasks need of an agent, by resource."""
        return self.task.multiple(self.number)[0]

    @property
    def scalars(self) -> Quantities:
        """The quantities by which `number` tasks increase the client's allocation."""
        return self.task.multiple(self.number)[1]


@dataclass
class BulkPlan:
    """The state of one agent group's bulk allocation: task shapes to allocate, and packed tasks."""

    group: AgentGroup
    shapes: list[TaskShape]
    """Shapes for which the group may still have capacity."""
    table: PackingTable
    allocations: list[tuple[Client, Quantities]] = field(default_factory=list)
    """Clients, and the quantities already counted for them in the sorters."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BulkAllocator:
    """Allocates many agents at once, in groups of agents that the same clients may use.

    Clients get few large offers. With a single task shape, each client gets as many tasks as from
    `FairShareStage`; with several shapes, the numbers differ slightly. The class cannot be used in
    a cycle with quotas or backfill holds, or under a policy whose sorter order differs between
    agents.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the objects of one cycle
        self,
        filters: OfferFilters,
        builder: OfferBuilder,
        index: ClientIndex,
        order: ClientOrder,
        limit: OutstandingOfferLimit,
        sharing: SharingLimit,
    ) -> None:
        self._eligibility = Eligibility(filters, builder, index)
        self._builder = builder
        self._index = index
        self._order = order
        self._limit = limit
        self._sharing = sharing

    def group_agents(
        self, agents: Sequence[Agent], may_use: Callable[[Agent], ClientMask], threshold: int
    ) -> Cooperative[list[AgentGroup]]:
        """Group agents for bulk allocation; return groups in the order of their first agents.

        Agents that no client may use are in no group: a cycle offers nothing of them.

        Args:
            agents: The agents to group, in the order in which the cycle visits them.
            may_use: Returns the clients that may use an agent and do not decline all its resources.
            threshold: A group with fewer agents is split into groups of one agent each.
        """
        by_key: dict[_GroupKey, AgentGroup] = {}
        visited: list[tuple[AgentGroup, Agent, ClientMask]] = []
        tests = self._index.constraints + 1
        agents_a_step = max(min(_TESTS_A_STEP // tests, _AGENTS_A_STEP), 1)
        for number, agent in enumerate(agents):
            if number and not number % agents_a_step:
                yield
            clients = may_use(agent)
            if not clients:
                continue
            key = self._group_key(agent, clients)
            group = (
                AgentGroup([], []) if key is None else by_key.setdefault(key, AgentGroup([], []))
            )
            group.agents.append(agent)
            group.may_use.append(clients)
            visited.append((group, agent, clients))
        groups: dict[AgentGroup, None] = {}
        for shared, agent, clients in visited:
            group = shared if len(shared.agents) >= threshold else AgentGroup([agent], [clients])
            groups[group] = None
        return list(groups)

    def allocate_group(self, group: AgentGroup) -> Cooperative[dict[str, list[PlacedTasks]]]:
        """Allocate a group of agents in the sorters; return the placed tasks by agent ID.

        The returned tasks are not yet in the ledger; `FairShareStage.serve` records and offers
        them. If a principal has too many clients for several task shapes, no tasks are placed.
        """
        fewest = yield from self._fewest(group.agents[0])
        allowed = [self._limit.without(clients) for clients in group.may_use]
        eligible = yield from self._eligibility.find_eligible(group.agents, allowed, fewest)
        shapes = yield from self._shapes(fewest, (yield from partition(eligible)))
        if not shapes:
            return {}
        if len(shapes) > 1 and not self._sharing.allows_bulk(self._clients_of(shapes)):
            return {}
        free = [agent.available.divisible for agent in group.agents]
        whole = free[0]  # the task of clients with unknown demand

        def fitting(capacity: Mapping[str, int]) -> ClientMask:
            unknown = self._index.unknown_demand if capacity == whole else 0
            return self._index.fitting(capacity) | unknown

        plan = BulkPlan(group, shapes, PackingTable(free, eligible, fitting))
        yield
        for _ in range(_STAGES):
            if not (yield from self._stage(plan)):
                break
        tasks: dict[str, list[PlacedTasks]] = {}
        for number, client, count in plan.table.placements:
            tasks.setdefault(group.agents[number].id, []).append((client, fewest[client][0], count))
        return tasks

    def _stage(self, plan: BulkPlan) -> Cooperative[bool]:
        """Run one stage: allocate part of the group's capacity, or remove scarce task shapes.

        A task shape is scarce if only few of its tasks still fit. Agents with capacity for them
        leave the plan, and are allocated one by one later.

        Returns:
            True if another stage may allocate more.
        """
        mixed = len(plan.shapes) > 1
        part = _ALL
        if mixed:
            agents = self._regroup(plan, plan.shapes)
            part -= _ALL * min(_SPARE * len(plan.shapes), agents) // max(_SPARE * agents, 1)
        minimum = _FEW if mixed else 1
        capacities = yield from plan.table.capacities(
            [(shape.needs, self._index.bit[shape.clients[0]]) for shape in plan.shapes], minimum
        )
        for shape, capacity in zip(plan.shapes, capacities, strict=True):
            shape.fits = capacity
        scarce = [shape for shape in plan.shapes if shape.fits < minimum]
        if scarce:
            plan.shapes = [shape for shape in plan.shapes if shape.fits >= minimum]
            self._regroup(plan, scarce, out=True)
            return bool(plan.shapes)
        plan.shapes.sort(key=lambda shape: shape.fits)
        return bool(plan.shapes) and (yield from self.allocate(plan, part, _TRIES if mixed else 1))

    def allocate(self, plan: BulkPlan, part: int, tries: int) -> Cooperative[bool]:
        """Allocate a fraction of a group's remaining capacity, and add the tasks to the plan.

        If the tasks cannot be packed on the agents, or exceed the limit on outstanding offers, the
        method tries again with half of the fraction.

        Args:
            plan: The plan of the group, which is extended.
            part: The fraction of the remaining capacity, in units of 1 / `_ALL`; `_ALL` means the
                whole capacity.
            tries: The maximum number of attempts.

        Returns:
            True if tasks were allocated.
        """
        shapes = {client: shape for shape in plan.shapes for client in shape.clients}
        task = {shape: ClientTask({"": _ALL // shape.fits}, shape.scalars) for shape in plan.shapes}
        tree = self._order.tree(
            plan.group.agents[0],
            self._clients_of(plan.shapes),
            lambda client, _below: ClientNode(client, task[shapes[client]]),
        )
        assert tree is not None
        for _ in range(tries):
            budget = CapacityBudget([("", part)], lambda _name: 0)
            if isinstance(tree, ClientNode):
                batch = tree.fill(budget)
            else:  # with one shape there is nothing to predict
                batch = yield from tree.fill_in_steps(budget, 0 if len(plan.shapes) > 1 else 1)
            given = {node.client: count for node, count in batch.counts.items()}
            yield
            new = [
                (client, task[shapes[client]].multiple(count)[1]) for client, count in given.items()
            ]
            table = yield from self._packed(plan, shapes, given)
            if table is not None and self._limit.admits([*plan.allocations, *new]):
                for client, scalars in new:
                    self._builder.count(client, scalars, given[client])
                plan.table = table
                plan.allocations += new
                return bool(new)
            part //= 2
        return False

    def _packed(
        self, plan: BulkPlan, shapes: Mapping[Client, TaskShape], given: Mapping[Client, int]
    ) -> Cooperative[PackingTable | None]:
        """Return a copy of the plan's table with tasks placed; None if some tasks do not fit.

        Args:
            plan: The plan whose table is copied; the plan is not changed.
            shapes: The task shape of each client.
            given: By client, the number of units to place. A unit is the least number of tasks that
                the client accepts (`TaskShape.number`).
        """
        by_shape: dict[TaskShape, list[tuple[Client, int]]] = {shape: [] for shape in plan.shapes}
        for client, number in given.items():
            by_shape[shapes[client]].append((client, number))
        table = plan.table.copy()
        probe_limit = table.probe_limit(len(by_shape))
        for shape, tasks in by_shape.items():
            bit = self._index.bit[shape.clients[0]]
            if tasks and not table.pack(shape.needs, bit, tasks, shape.number, probe_limit):
                return None
            yield
        return table

    def _regroup(self, plan: BulkPlan, shapes: list[TaskShape], *, out: bool = False) -> int:
        """Remove agents from the plan's table; return the number of agents that remain.

        Args:
            plan: The plan whose table is changed.
            shapes: The task shapes to look for on each agent.
            out: If false, agents without capacity for any of the shapes are removed. If true,
                agents with capacity for one of the shapes are removed.
        """
        clients = self._clients_of(shapes)

        def useful(fitting: ClientMask) -> bool:
            return bool(fitting & clients) is not out

        return plan.table.regroup(clients | self._clients_of(plan.shapes), useful)

    def _fewest(self, agent: Agent) -> Cooperative[dict[Client, tuple[ClientTask, int]]]:
        """Return each client's task and the least number of tasks in an acceptable offer.

        If a client's demand is unknown, its task is a whole agent. Clients that accept no number of
        tasks are left out. Generator for cooperative steps.

        Args:
            agent: An agent that represents the group.
        """
        free, tasks, fewest = (
            agent.available,
            dict[int, ClientTask](),
            dict[Client, tuple[ClientTask, int]](),
        )
        whole = Quantities(free.divisible)
        for place, client in enumerate(self._index.clients(), 1):
            if not place % _CLIENTS_A_STEP:
                yield
            demand = self._index.tasks.get(client, whole)
            task = tasks.get(id(demand))
            if task is None:
                task = tasks[id(demand)] = task_of(demand, free.counted)
            number = self._builder.fewest(client, task.needs)
            if number:
                fewest[client] = task, number
        return fewest

    def _shapes(
        self, fewest: Mapping[Client, tuple[ClientTask, int]], classes: Mapping[ClientMask, int]
    ) -> Cooperative[list[TaskShape]]:
        """Group clients into task shapes.

        Clients with equal tasks, equal least numbers of tasks, and the same class form one shape.
        Generator for cooperative steps.

        Args:
            fewest: By client: its task, and the least number of tasks to allocate at once.
            classes: The number of each client's class by the client's bit, from `partition`.
        """
        shapes: dict[tuple[ClientTask, int, int], TaskShape] = {}
        for place, (client, (task, number)) in enumerate(fewest.items(), 1):
            if not place % _CLIENTS_A_STEP:
                yield
            eligible_on = classes.get(self._index.bit[client])
            if eligible_on is not None:
                shape = shapes.setdefault((task, number, eligible_on), TaskShape(task, number))
                shape.clients.append(client)
        return list(shapes.values())

    def _clients_of(self, shapes: Iterable[TaskShape]) -> ClientMask:
        """Return the mask of all clients of several shapes."""
        return sum(self._index.bit[client] for shape in shapes for client in shape.clients)

    def _group_key(self, agent: Agent, may_use: ClientMask) -> _GroupKey | None:
        """Return a key that is equal for agents of the same group.

        If the task demand of a client is unknown, agents of a group have equal free resources.

        Args:
            agent: The agent to group.
            may_use: The clients that may use the agent and do not decline all its resources.

        Returns:
            The key; None for an agent to allocate alone. This is an agent that no client with known
            demand may use, or that has resources for only some clients or indivisible resources.
        """
        free = agent.available
        if not may_use & ~self._index.unknown_demand or not (free.ordinary and free.all_divisible):
            return None
        free_amounts = tuple(sorted(free.divisible.items())) if self._index.unknown_demand else ()
        return free.counted, free_amounts
