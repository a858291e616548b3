"""The states of all peers agree after calls of schedulers, agents and the allocator in any order.

The allocator's book (`peers.Book`) checks each call against all earlier calls: no resource is
offered twice, only allocated resources are recovered, and a snapshot equals the effect of the
calls. The schedulers check their streams: updates of a task arrive in order, and one at a time.
"""

from collections import defaultdict
from itertools import pairwise
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.notation import parse_flag
from frameworks.local_mesos.state import TERMINAL
from tests.examples import examples
from tests.frameworks.local_mesos.peers import Amounts, Book, Cluster, Scheduler

Capability = mesos.FrameworkInfo.Capability
RESOURCES = "cpus:4;mem:1024;cpus(a):2;ports:[1-12];disks:{x,y}"
DEMANDS = ["cpus:1", "cpus:0.5;mem:128", "cpus(a):1", "ports:[2-5]", "cpus:9", "disks:{x}"]
indices = st.integers(0, 10**6)


class EmbeddedMesos(RuleBasedStateMachine):
    """A master, and up to four frameworks and agents."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(agents=2, resources=RESOURCES, task_seconds=7)
        self.master, self.book = self.cluster.master, self.cluster.book
        self.schedulers: list[Scheduler] = []
        """Connected ones."""
        self.away: list[str] = []
        """Ids of frameworks that may resubscribe."""
        self.late: list[contract.Decisions] = []
        """Decisions on their way to the master."""
        self.gone: list[str] = []
        """Ids of removed agents."""
        self.serial = 0

    def _connect(self, framework_id: str | None, kind: int) -> None:
        roles = (["a", "b"], ["b"], ["a/c"])[kind % 3]
        capabilities = [Capability.PARTITION_AWARE] if kind % 2 else []
        self.schedulers.append(
            self.cluster.subscribe(
                framework_id,
                roles=roles,
                capabilities=capabilities,
                failover_timeout=20 * (kind % 4),
            )
        )

    def _pick(self, index: int) -> Scheduler:
        return self.schedulers[index % len(self.schedulers)]

    @precondition(lambda self: len(self.schedulers) + len(self.away) < 4)
    @rule(kind=indices)
    def subscribe(self, kind: int) -> None:
        self._connect(None, kind)

    @precondition(lambda self: self.schedulers)
    @rule(index=indices, kind=indices)
    def fail_over(self, index: int, kind: int) -> None:
        old = self._pick(index)
        self.schedulers.remove(old)
        self._connect(old.framework_id, kind)
        assert old.closed

    @precondition(lambda self: self.schedulers)
    @rule(index=indices)
    def disconnect(self, index: int) -> None:
        scheduler = self._pick(index)
        self.schedulers.remove(scheduler)
        self.away.append(scheduler.framework_id)
        self.master.disconnected(scheduler.framework_id, scheduler)

    @precondition(lambda self: self.away)
    @rule(index=indices, kind=indices)
    def come_back(self, index: int, kind: int) -> None:
        framework_id = self.away.pop(index % len(self.away))
        known = framework_id in self.master.frameworks
        self._connect(framework_id, kind)
        if not known:  # its time was up
            assert self.schedulers.pop().closed

    @precondition(lambda self: self.schedulers)
    @rule(index=indices)
    def tear_down(self, index: int) -> None:
        scheduler = self._pick(index)
        self.schedulers.remove(scheduler)
        self.cluster.call(scheduler, v1.Call.TEARDOWN)

    @precondition(lambda self: self.book.frameworks and self.book.totals)
    @rule(seed=indices)
    def decide(self, seed: int) -> None:
        """Decide on an offer of free resources; the decision is under way."""
        random = Random(seed)
        framework_id = random.choice(list(self.book.frameworks))
        roles = self.book.roles(framework_id)
        parts = []
        for agent_id in self.book.totals:
            chosen = Amounts(
                {
                    atom: random.randint(0, amount) if atom[2] is None else 1
                    for atom, amount in self.book.free(agent_id).items()
                    if random.random() < 0.8
                }
            )
            if +chosen and random.random() < 0.7:
                parts.append((agent_id, +chosen))
        if roles and parts and framework_id in self.book.active:
            self.late.append(self.book.offer(framework_id, random.choice(roles), parts))

    @precondition(lambda self: self.late)
    @rule()
    def deliver(self) -> None:
        self.cluster.decide(self.late.pop(0))

    @precondition(lambda self: any(s.offers for s in self.schedulers))
    @rule(seed=indices)
    def accept(self, seed: int) -> None:
        random = Random(seed)
        scheduler = random.choice([s for s in self.schedulers if s.offers])
        first = random.choice(list(scheduler.offers.values()))
        offers = [first]
        if random.random() < 0.5:  # all offers that can be accepted together
            offers = [
                offer
                for offer in scheduler.offers.values()
                if (offer.agent_id, offer.allocation_info)
                == (first.agent_id, first.allocation_info)
            ]
        tasks = []
        for _ in range(random.randint(0, 3)):
            self.serial += random.random() < 0.9
            task = v1.TaskInfo(
                name="n",
                task_id=v1.TaskID(value=f"t{self.serial}"),
                agent_id=offers[0].agent_id,
                resources=parse_flag(random.choice(DEMANDS)),
            )
            if random.random() < 0.5:
                task.command.value = f"sleep {random.randint(0, 30)}"
            else:
                task.executor.executor_id.value = random.choice("ef")
                task.executor.command.value = "./run"
                task.executor.resources.extend(parse_flag(random.choice(DEMANDS)))
            tasks.append(task)
        self.cluster.accept(scheduler, offers, *tasks)

    @precondition(lambda self: any(s.offers for s in self.schedulers))
    @rule(seed=indices)
    def decline(self, seed: int) -> None:
        random = Random(seed)
        scheduler = random.choice([s for s in self.schedulers if s.offers])
        offer = scheduler.offers.pop(random.choice(list(scheduler.offers)))
        decline = v1.Call.Decline(offer_ids=[offer.id, offer.id])
        self.cluster.call(scheduler, v1.Call.DECLINE, decline=decline)

    @precondition(lambda self: any(s.updates for s in self.schedulers))
    @rule(seed=indices)
    def acknowledge(self, seed: int) -> None:
        """Acknowledge an update, usually the latest one."""
        random = Random(seed)
        scheduler = random.choice([s for s in self.schedulers if s.updates])
        status = scheduler.updates[-1 - min(random.randint(0, 3), len(scheduler.updates) - 1)]
        if status.HasField("uuid"):
            self.cluster.acknowledge(scheduler, status)

    @precondition(lambda self: self.schedulers)
    @rule(
        index=indices, kind=st.sampled_from(["kill", "shutdown", "reconcile", "revive", "suppress"])
    )
    def call(self, index: int, kind: str) -> None:
        scheduler = self._pick(index)
        tasks = list(self.cluster.framework(scheduler).tasks.values())
        if kind == "kill" and tasks:
            task = tasks[index % len(tasks)].info.task_id
            self.cluster.call(scheduler, v1.Call.KILL, kill=v1.Call.Kill(task_id=task))
        elif kind == "shutdown" and tasks:
            shutdown = v1.Call.Shutdown(
                agent_id=tasks[index % len(tasks)].info.agent_id,
                executor_id=v1.ExecutorID(value="e"),
            )
            self.cluster.call(scheduler, v1.Call.SHUTDOWN, shutdown=shutdown)
        elif kind == "reconcile":
            self.cluster.call(scheduler, v1.Call.RECONCILE, reconcile=v1.Call.Reconcile())
        elif kind == "revive":
            self.cluster.call(scheduler, v1.Call.REVIVE)
        elif kind == "suppress":
            self.cluster.call(scheduler, v1.Call.SUPPRESS, suppress=v1.Call.Roles(roles=["b"]))

    @rule(seconds=st.floats(0, 40))
    def advance(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    @precondition(lambda self: self.master.agents)
    @rule(index=indices, kind=st.sampled_from(["remove", "toggle", "toggle"]))
    def disturb_agent(self, index: int, kind: str) -> None:
        agent = list(self.master.agents.values())[index % len(self.master.agents)]
        if kind == "remove":
            self.gone.append(agent.id)
            self.master.remove_agent(agent.id)
        elif agent.active:
            self.master.disconnect_agent(agent.id)
        else:
            self.master.reconnect_agent(agent.id)

    @precondition(lambda self: len(self.master.agents) < 4)
    @rule(again=st.booleans())
    def add_agent(self, again: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        agent_id = self.gone.pop() if again and self.gone else None
        self.master.add_agent("h", parse_flag(RESOURCES), agent_id=agent_id)

    @invariant()
    def a_snapshot_says_what_the_calls_said(self) -> None:
        if not self.late:  # offers under way are allocated on one side only
            restored = Book()
            restored.restore(self.master.snapshot())
            assert restored.summary() == self.book.summary()

    @invariant()
    def no_more_is_held_than_there_is(self) -> None:
        for agent_id, agent in self.master.agents.items():
            held = Amounts()
            for (place, _), amounts in self.book.held.items():
                if place == agent_id:
                    held.update(amounts)
            assert held <= self.book.totals[agent_id]
            assert all(
                amount > 0 for amount in agent.free.amounts.values() if isinstance(amount, int)
            )

    @invariant()
    def schedulers_hold_the_offers_that_the_master_believes_them_to_hold(self) -> None:
        for scheduler in self.schedulers:
            assert scheduler.offers.keys() == self.cluster.framework(scheduler).offers.keys()

    @invariant()
    def updates_of_a_task_are_in_order_and_one_at_a_time(self) -> None:
        for scheduler in self.schedulers:
            streams: dict[tuple[str, str], list[v1.TaskStatus]] = defaultdict(list)
            for status in scheduler.updates:
                if status.HasField("uuid"):
                    streams[status.task_id.value, status.agent_id.value].append(status)
            for stream in streams.values():
                distinct = [
                    status
                    for status, before in zip(stream, [None, *stream], strict=False)
                    if before is None or status.uuid != before.uuid
                ]
                assert len({status.uuid for status in distinct}) == len(distinct)
                order = [v1.TASK_STARTING, v1.TASK_RUNNING]
                for earlier, later in pairwise(distinct):
                    if earlier.state not in TERMINAL:  # else: its id was used again
                        assert later.state in TERMINAL or order.index(later.state) == 1

    def teardown(self) -> None:
        """In the end all can be taken back."""
        for decisions in self.late:
            self.cluster.decide(decisions)
        for scheduler in self.schedulers:
            self.cluster.call(scheduler, v1.Call.TEARDOWN)
        self.cluster.advance(3600)
        assert not self.master.frameworks
        assert not any(+amounts for amounts in self.book.held.values())
        for agent in self.master.agents.values():
            assert agent.free.contains(type(agent.free)(agent.total))


TestEmbeddedMesos = EmbeddedMesos.TestCase
TestEmbeddedMesos.settings = examples(100, stateful_step_count=50)
