"""Second stage of an allocation cycle: fair shares (Mesos semantics, §3.4)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex, ClientMask
from allocator.cluster.allocation.client_order import ClientOrder
from allocator.cluster.allocation.offer_builder import OfferBuilder
from allocator.cluster.allocation.progressive_filling import (
    CapacityBudget,
    ClientNode,
    ClientTask,
    Name,
    Needs,
    TaskBatch,
)
from allocator.cluster.allocation.sharing_limit import AgentSharing, SharingLimit
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.quota import top_level
from allocator.cluster.resources import NOTHING, Resources
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import Quantities

_ROUNDS_A_STEP = 4
"""Rounds of an agent's allocation in one cooperative step. A round is a filling or a share."""
_CLIENTS_A_STEP = 50
"""Clients in a cooperative step, if clients are examined singly."""
_VISITS = 16
"""Number of clients visited without a share, after which filters are read for all clients."""
_OFFERS_A_STEP = 100
"""Number of offers of an agent in one cooperative step."""
_LARGE_PART = 8
"""If more than 1/n of the visited clients were marked as exhausted, for this n, the visit starts
again without them."""

PlacedTasks: TypeAlias = tuple[Client, ClientTask, int]
"""A client, its task, and the number of these tasks placed on one agent by bulk allocation.

The sorters have counted these tasks already."""


@dataclass(slots=True)
class _AgentAllocation:
    """Work in progress on one agent in one cycle: remaining capacity and tasks allocated so far."""

    agent: Agent
    allowed: ClientMask
    """Clients that may use the agent and do not decline all its resources."""
    capacity: dict[str, int]
    """Thousandths still available for tasks, by resource."""
    sharing: AgentSharing
    """Limits how many clients of a principal get an offer of the agent."""
    exhausted: ClientMask = 0
    """Clients that can be allocated no more of this agent."""
    unbooked: dict[Client, tuple[ClientTask, int]] = field(default_factory=dict)
    """Tasks that are allocated, but not yet subtracted from the agent's available resources."""
    tasks: dict[Client, Resources] = field(default_factory=dict)
    """Other allocations to clients with a known demand, in the order of their first allocation.

    A client with an entry here or in `unbooked` has reached the minimum for an offer."""
    judged: ClientMask = 0
    """Clients that `_skip_hopeless` need not consider until the available resources change."""
    judged_at: Resources | None = None
    """The agent's available resources for which `judged` is valid."""

    def count(self, client: Client, task: ClientTask, number: int) -> None:
        """Add tasks to `unbooked`, the allocated tasks that the ledger has not yet recorded.

        Args:
            client: The client that is allocated the tasks.
            task: The client's task.
            number: The number of tasks to add.
        """
        before = self.unbooked.get(client)
        self.unbooked[client] = task, number + (before[1] if before is not None else 0)


class FairShareStage:
    """Allocates agents one after the other, each to clients in sorter order.

    The result is the same as if one task at a time went to the first client in order.
    """

    def __init__(
        self, builder: OfferBuilder, index: ClientIndex, order: ClientOrder, sharing: SharingLimit
    ) -> None:
        self._builder = builder
        self._index = index
        self._order = order
        self.sharing = sharing
        """The limits on the number of clients that share an agent."""
        self._quotas = bool(builder.quotas)
        self._known_demand = index.wanting & ~index.unknown_demand
        """Clients that are allocated tasks instead of whole agents."""
        self._stride = 1
        """One task less than the first client got of the last agent.

        Agents are often identical, so the search for the next number of tasks begins there. A start
        that is too high costs repeated halving; the result is the same."""
        self._tasks: dict[tuple[int, frozenset[str], str], ClientTask] = {}

    def offer_whole(self, agent: Agent, allowed: ClientMask) -> bool:
        """Offer all available resources of an agent to the first client in sorter order.

        `serve` would do the same in more steps. The method does so only if all allowed clients have
        an unknown demand, and if every client may use all of the agent.

        Args:
            agent: The agent to allocate.
            allowed: Clients that may use the agent and do not decline all its resources.

        Returns:
            True if the agent is offered. False: nothing has changed, and `serve` must decide.
        """
        free, builder = agent.available, self._builder
        if allowed & self._known_demand or self._quotas or not free.ordinary:
            return False
        client = self._order.first(agent, allowed)
        if client is None or not any(free.divisible.values()):
            return False
        if builder.usable(agent, client) is not free or not builder.reaches(client, free):
            return False
        builder.allocate(agent, client, free)
        return True

    def serve(
        self, agent: Agent, allowed: ClientMask, placed: Iterable[PlacedTasks] = ()
    ) -> Cooperative[None]:
        """Allocate an agent to allowed clients in sorter order, and make the offers.

        The allocation ends when no allowed client can use more of the agent. An agent that many
        clients share takes several cooperative steps.

        Args:
            agent: The agent to allocate.
            allowed: Clients that may use the agent and do not decline all its resources.
            placed: Tasks that bulk allocation placed on this agent; they are included in the
                offers.
        """
        allowed &= ~(yield from self._builder.declining(agent, allowed, self._index))
        sharing = self.sharing.on(agent, allowed)
        state = _AgentAllocation(agent, allowed, _divisible(agent), sharing)
        for client, task, number in placed:
            sharing.served |= self._index.bit[client]
            state.count(client, task, number)
            for name, amount in task.needs.items():
                state.capacity[str(name)] -= number * amount
        yield from self._fill(state)
        for number, (client, tasks) in enumerate(state.tasks.items()):
            if not number % _OFFERS_A_STEP and number:
                yield
            self._builder.add_offer(agent, client, tasks)

    def _fill(self, state: _AgentAllocation) -> Cooperative[None]:
        """Allocate an agent's resources in sorter order until no client can use more of them."""
        rounds = 0
        single = False  # whether the last filling allocated nothing, so the next may not, either
        while free := state.agent.available:
            rounds += 1
            if not rounds % _ROUNDS_A_STEP:
                yield
            capacity = self._capacity(state)
            eligible = self._eligible(state, free, capacity)
            if not eligible:
                break
            if eligible & ~self._index.unknown_demand and self._index.room_for_two(capacity):
                if single and (yield from self._step_without_filling(state, eligible)):
                    continue
                tree = self._order.tree(
                    state.agent,
                    state.sharing.simultaneous(eligible, partial(self._usable_in_order, state)),
                    lambda client, deep: self._node(state, client, deep=deep),
                )
                if tree is None:
                    continue  # clients that cannot use the agent are exhausted now
                budget = CapacityBudget(capacity.items(), self._limit)
                if isinstance(tree, ClientNode):
                    batch = tree.fill(budget)
                else:
                    batch = yield from tree.fill_in_steps(budget, self._stride)
                single = not batch.number
                if batch.number:
                    self._stride = max(next(iter(batch.counts.values())) - 1, 1)
                    self._count(state, batch)
                    continue
            clients = self._order.clients(state.agent, eligible)
            yield from self._step(state, clients, eligible)
        if state.unbooked:
            self._book_tasks(state)

    def _admitted(self, state: _AgentAllocation, eligible: ClientMask) -> ClientMask:
        """Return the eligible clients without those that wait because too many share the agent.

        If only such clients are left, the agent is examined again in the next cycle.

        Args:
            state: The allocation of the agent.
            eligible: Clients that may be allocated resources of the agent.
        """
        admitted = state.sharing.admitted(eligible)
        if eligible and not admitted:
            self.sharing.waiting.append(state.agent.id)
        return admitted

    def _usable_in_order(
        self, state: _AgentAllocation, clients: ClientMask
    ) -> Iterator[ClientMask]:
        """Yield the given clients that can use an agent, in sorter order, each as a mask.

        All other clients that are visited are marked as exhausted.
        """
        for client in self._order.clients(state.agent, clients):
            bit = self._index.bit[client]
            if self._builder.usable(state.agent, client) is not None:
                yield bit
            else:
                state.exhausted |= bit

    def _capacity(self, state: _AgentAllocation) -> dict[str, int]:
        """Return the agent's thousandths, by resource, that may be allocated to tasks now.

        Resources needed for unmet quota guarantees are subtracted. The result is empty if quotas
        permit no further task.
        """
        capacity = dict(state.capacity)
        if self._quotas:
            slack = self._builder.headroom.slack(capacity)
            if slack is None:
                return {}
            for name, amount in slack.items():
                capacity[name] = min(capacity[name], amount)
        return capacity

    def _limit(self, name: Name) -> int:
        """Return the remaining amount for a name that is missing in the agent's capacity.

        `CapacityBudget` calls this function for such names.

        Args:
            name: For a (role, resource) pair, the result is the role's remaining quota limit. For a
                plain resource name, the agent lacks the resource, and the result is 0.
        """
        if isinstance(name, str):
            return 0
        return self._builder.headroom.remaining_limit(*name) or 0

    def _eligible(
        self, state: _AgentAllocation, free: Resources, capacity: dict[str, int]
    ) -> ClientMask:
        """Return a superset of the clients that may be allocated resources of an agent now.

        Clients that wait because too many clients share the agent are left out.

        The method is fast, because masks exclude many clients at once. A client in the result may
        still be unable to use the agent.

        Args:
            state: The allocation of the agent.
            free: The agent's available resources.
            capacity: Thousandths that may be allocated to tasks, by resource, as from `_capacity`.
        """
        allowed = state.allowed & ~state.exhausted
        eligible = allowed & self._index.fitting(capacity)
        if allowed & self._index.beyond_a_task or not free.counted <= self._index.counted:
            eligible &= ~self._short_of_first_share(state, free)
        if any(state.capacity.values()) or not free.all_divisible:
            eligible |= allowed & self._index.unknown_demand
        if not free.ordinary:  # restricted resources come with the first task
            fresh = allowed & ~self._index.unknown_demand & ~eligible
            fresh &= ~self._holders(state)
            if self._index.skips_refusing_clients:
                fresh &= self._index.admitted_to_restricted(free)
            eligible |= fresh
        if eligible & self._index.choosy:
            self._skip_hopeless(state, eligible)
            eligible &= ~state.exhausted
        return self._admitted(state, eligible) if state.sharing.limits else eligible

    def _short_of_first_share(self, state: _AgentAllocation, free: Resources) -> ClientMask:
        """Return clients that would refuse each number of tasks that an agent has room for.

        Clients that were allocated tasks of the agent are left out, because their offer already
        reaches their minimum. Others in the result can only be allocated restricted resources.

        Args:
            state: The allocation of the agent.
            free: The agent's available resources.
        """
        room = state.capacity if free.ordinary else free.plain.quantities
        short = self._index.short_of_first_share(room, free.counted)
        return short & ~self._holders(state) if short else 0

    def _holders(self, state: _AgentAllocation) -> ClientMask:
        """Return the clients that were allocated tasks of an agent, booked or not."""
        holders = 0
        for client in (*state.tasks, *state.unbooked):
            holders |= self._index.bit[client]
        return holders

    def _skip_hopeless(
        self, state: _AgentAllocation, eligible: ClientMask, client: Client | None = None
    ) -> bool:
        """Mark clients that can get nothing more of an agent as exhausted, to be skipped.

        Clients that were allocated tasks of the agent are not marked. Their offer already reaches
        their minimum, so they may get more.

        Args:
            state: The allocation of the agent.
            eligible: The clients that are visited.
            client: A client that got nothing. Only clients with the same capabilities and quota are
                considered; None: all clients are.

        Returns:
            True if so many clients were marked that the caller should start the visit again without
            them.
        """
        free = state.agent.available
        if state.judged_at is not free:
            state.judged_at, state.judged = free, 0
        if client is not None and self._index.bit[client] & state.judged:
            return False
        passed, considered = self._builder.hopeless(state.agent, self._index, client)
        if client is not None:
            state.judged |= considered
        for holder in (*state.tasks, *state.unbooked):
            passed &= ~self._index.bit[holder]
        passed &= eligible & ~state.exhausted
        state.exhausted |= passed
        return passed.bit_count() * _LARGE_PART > eligible.bit_count()

    def _node(self, state: _AgentAllocation, client: Client, *, deep: bool) -> ClientNode | None:
        """Return a client's node for progressive filling; None if the client cannot use the agent.

        The node has no task if the next task must be allocated outside of the filling. This is so
        if its needs are unknown, or if the client may refuse an offer of one task.

        Args:
            state: The allocation of the agent.
            client: The client that gets the node.
            deep: Whether the client's user competes below another member of the role tree.
        """
        agent = state.agent
        if self._builder.usable(agent, client) is None:
            state.exhausted |= self._index.bit[client]
            return None
        demand = self._index.tasks.get(client)
        if demand is None:
            return ClientNode(client, None)
        task = self._task_of(client, demand, agent.available.counted)
        fresh = client not in state.tasks and client not in state.unbooked
        if fresh and (
            deep
            or not agent.available.ordinary
            or not self._builder.surely_wanted(agent, client, task.needs)
        ):
            return ClientNode(client, None)
        return ClientNode(client, task)

    def _task_of(self, client: Client, demand: Quantities, counted: frozenset[str]) -> ClientTask:
        """Return a client's task, which also counts against the quota limits of the client's role.

        Args:
            client: The client that would run the task.
            demand: Demand of one task in thousandths, by resource.
            counted: Names of the agent's resources that exist in whole units only, such as ports.
        """
        top = top_level(client.role)
        limited = frozenset[str]()
        if self._quotas and top in self._builder.quotas:
            remaining = self._builder.headroom.remaining_limit
            limited = frozenset(name for name in demand if remaining(top, name) is not None)
        key = id(demand), counted, top if limited else ""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = task_of(demand, counted, top, limited)
        return task

    def _count(self, state: _AgentAllocation, batch: TaskBatch) -> None:
        """Count a batch of tasks in the sorters and quotas, before the ledger records it.

        `_book_tasks` later records the tasks in the ledger, once for all batches of the agent.
        """
        for name in state.capacity:
            state.capacity[name] -= batch.needs.get(name, 0)
        for node, number in batch.counts.items():
            assert node.task is not None
            client, (_needs, scalars, _count) = node.client, node.task.multiple(number)
            state.sharing.served |= self._index.bit[client]
            self._builder.count(client, scalars, number)
            if self._quotas:
                self._builder.headroom.allocate(client.role, scalars)
            state.count(client, node.task, number)
        if self._order.per_machine:
            self._book_tasks(state)

    def _book_tasks(self, state: _AgentAllocation) -> None:
        """Record all tasks of `unbooked` in the ledger, which takes them from available resources.

        `unbooked` has the tasks that have been allocated, but only in the sorters and quotas.
        """
        for client, (task, number) in state.unbooked.items():
            tasks = self._builder.part_for(state.agent, task.needs, number)
            self._builder.book(state.agent, client, tasks)
            before = state.tasks.get(client)
            state.tasks[client] = tasks if before is None else before + tasks
        state.unbooked.clear()

    def _step_without_filling(
        self, state: _AgentAllocation, eligible: ClientMask
    ) -> Cooperative[bool]:
        """Allocate one share by `_step` if a filling would allocate nothing.

        This is so if the next task of the first client in order must be allocated outside of the
        filling. The result is the same as after a filling, but no tree of nodes is built. All tasks
        of the agent must be booked.

        Returns:
            False if a filling must decide. Nothing is allocated in this case.
        """
        clients = self._order.clients_with_depth(state.agent, eligible)
        first = next(clients, None)
        node = self._node(state, first[0], deep=first[1]) if first is not None else None
        if first is None or node is None or node.task is not None:
            return False
        remaining = (client for client, _deep in clients)
        yield from self._step(state, chain([first[0]], remaining), eligible)
        return True

    def _step(
        self, state: _AgentAllocation, clients: Iterable[Client], eligible: ClientMask
    ) -> Cooperative[None]:
        """Allocate one share to the first eligible client in sorter order that can use a share.

        A client with known demand gets one task, or the least number of tasks that it accepts as an
        offer. A client with unknown demand gets all that it can use of the agent. If no client
        accepts a share, all eligible clients are marked as exhausted. Generator for cooperative
        steps.

        Args:
            state: The allocation of the agent.
            clients: The eligible clients in sorter order, read after all tasks are booked.
            eligible: The same clients as a mask.
        """
        if state.unbooked:
            self._book_tasks(state)
        visits, number = iter(clients), 0
        while (client := next(visits, None)) is not None:
            number += 1
            if not number % _CLIENTS_A_STEP:
                yield
            if self._index.bit[client] & state.exhausted:
                continue
            if self._allocate_share(state, client) or self._skip_hopeless(state, eligible, client):
                return
            if number == _VISITS and not state.agent.available.ordinary:
                remaining = yield from self._not_declining(state, eligible)
                visits = iter(self._order.clients(state.agent, remaining))
        state.exhausted |= eligible

    def _not_declining(
        self, state: _AgentAllocation, eligible: ClientMask
    ) -> Cooperative[ClientMask]:
        """Return the eligible clients that do not decline all their possible offers of an agent.

        All other eligible clients are marked as exhausted. Many roles may have declined their own
        reserved resources, which remain after the unreserved resources are allocated. Clients with
        tasks of the agent are not marked, because no filter applies to further tasks.
        """
        examined = eligible & ~state.exhausted & ~self._holders(state)
        declining = yield from self._builder.declining_own(state.agent, examined, self._index)
        state.exhausted |= declining
        return eligible & ~state.exhausted

    def _allocate_share(self, state: _AgentAllocation, client: Client) -> bool:
        """Allocate a share to a client; return False if the client can use no share.

        Without a share, or with unknown demand, the client is marked as exhausted.
        """
        agent, builder = state.agent, self._builder
        usable, demand = builder.usable(agent, client), self._index.tasks.get(client)
        if usable is not None and demand is not None:
            share = self._next(state, client, usable, demand)
            if share:
                state.sharing.served |= self._index.bit[client]
                before = state.tasks.get(client, NOTHING)
                state.tasks[client] = before + share
                builder.charge(agent, client, share)
                state.capacity = _divisible(agent)
                return True
        state.exhausted |= self._index.bit[client]
        if usable is not None and demand is None:
            share = usable
            if self._quotas:
                share = builder.headroom.fair_share(client.role, usable)
            if share and builder.wanted(agent, client, share):
                state.sharing.served |= self._index.bit[client]
                builder.allocate(agent, client, share)
                if self._quotas:
                    builder.headroom.allocate(client.role, share.plain.scalars)
                state.capacity = _divisible(agent)
                return True
        return False

    def _next(
        self, state: _AgentAllocation, client: Client, usable: Resources, demand: Quantities
    ) -> Resources:
        """Return the share for a client's next task; empty if the agent cannot serve the client.

        A client's first share on an agent has the least number of tasks that the client accepts as
        an offer. The first share also has all resources that only some clients may use, such as
        reserved resources. The share is subtracted from the headroom of quotas.

        Args:
            state: The allocation of the agent.
            client: The client to allocate to.
            usable: Available resources that the client can use.
            demand: Demand of one task in thousandths, by resource.
        """
        builder = self._builder
        share = usable.plain.take_demand(demand)
        if share is None or not self._admits(client.role, share):
            share = NOTHING
        if client not in state.tasks:
            special = NOTHING if usable.ordinary else usable.where(lambda kind: not kind.plain)
            several, share = bool(share), special + share
            if not builder.wanted(state.agent, client, share):
                share = self._least(state, client, special, demand) if several else NOTHING
        if self._quotas:
            builder.headroom.allocate(client.role, share.plain.scalars)
        return share

    def _admits(self, role: str, share: Resources) -> bool:
        """Return whether quotas permit the allocation of a share to a role."""
        return not self._quotas or self._builder.headroom.admits(role, share.scalars)

    def _least(
        self, state: _AgentAllocation, client: Client, special: Resources, demand: Quantities
    ) -> Resources:
        """Return the smallest share of two or more tasks that a client accepts as an offer.

        The share is empty if the client accepts no number of tasks that fits on the agent.

        Args:
            state: The allocation of the agent.
            client: The client to allocate to.
            special: Resources that the share includes in any case.
            demand: Demand of one task in thousandths, by resource.
        """
        agent, builder = state.agent, self._builder
        task = self._task_of(client, demand, agent.available.counted)
        limit = (
            ClientNode(client, task)
            .fill(CapacityBudget(self._capacity(state).items(), self._limit))
            .number
        )

        def tasks(number: int) -> Resources:
            return special + builder.part_for(agent, task.needs, number)

        if limit < 2 or not builder.wanted(agent, client, tasks(limit)):
            return NOTHING
        number = 2 + bisect_left(
            range(2, limit), True, key=lambda count: builder.wanted(agent, client, tasks(count))
        )
        return tasks(number)


def _divisible(agent: Agent) -> dict[str, int]:
    """Return the available thousandths of an agent's divisible resources, by name."""
    return dict(agent.available.divisible.items())


def task_of(
    demand: Quantities,
    counted: frozenset[str],
    top: str = "",
    limited: frozenset[str] = frozenset(),
) -> ClientTask:
    """Return the task with a given demand, which also counts against the limits of a role.

    Args:
        demand: Demand of one task in thousandths, by resource.
        counted: Names of the agent's resources that exist in whole units only, such as ports.
        top: The top-level role of the client.
        limited: Names of the resources that have a quota limit for this role.
    """
    needs: Needs = {
        name: -(-amount // 1000) * 1000 if name in counted else amount
        for name, amount in demand.items()
    }
    scalars = Quantities({name: amount for name, amount in demand.items() if name not in counted})
    needs |= {(top, name): amount for name, amount in scalars.items() if name in limited}
    return ClientTask(needs, scalars)
