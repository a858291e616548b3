"""Frameworks of six habits on a real master: each continues to work, whatever the others do."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, ClassVar

import aiohttp
from typing_extensions import override

from tests.frameworks.local_mesos.shell import HttpScheduler

BEAT = 0.2
"""Seconds between checks for new events."""
RECONCILE = 10.0
"""Seconds between questions after one's tasks."""
ANSWER = 20.0
"""Seconds to wait for a master that does not answer."""
NEEDS = {"cpus": 1.0, "mem": 32.0}
ENDED = {"TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_ERROR", "TASK_DROPPED"}
LOST = {"TASK_LOST", "TASK_GONE", "TASK_UNKNOWN", "TASK_GONE_BY_OPERATOR"}
"""Task states that no fault of this test explains once the task has run."""


class Framework:
    """Accepts every offer, with as many tasks as fit.

    Args:
        address: HOST:PORT of the master, the same during the whole run.
        random: The source of task durations and of random choices of the habit.
        run_time: Mean seconds that a task runs.
        offered: Called whenever offers have arrived.
    """

    habit: ClassVar[str] = "greedy"
    labels: ClassVar[dict[str, str]] = {"longshare.demand": "cpus:1;mem:32"}
    refuse: ClassVar[float] = 0.1
    """Seconds of the offer filter for unused resources."""

    def __init__(
        self, address: str, random: Random, run_time: float, offered: Callable[[str], None]
    ) -> None:
        self.framework_id: str | None = None
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        """Violations found so far."""
        self.suppressed = False
        self.over = False
        """Whether to leave."""
        self.random = random
        self.running: dict[str, tuple[str, str]] = {}
        """Task → its agent and its latest state."""
        self.offers: dict[str, dict[str, Any]] = {}
        """Unanswered offers, by id."""
        self._address = address
        self._run_time = run_time
        self._offered = offered
        self._scheduler: HttpScheduler
        self._connected = False
        self._sated_until = 0.0
        self._asked = 0.0

    @property
    def wants(self) -> bool:
        """Whether the framework is waiting for an offer at present."""
        sated = time.monotonic() < self._sated_until
        return self._connected and not (self.suppressed or self.offers or sated or self.over)

    def may_run_on(self, host: str) -> bool:  # noqa: ARG002 - it runs anywhere
        """Whether the framework may run tasks on a host."""
        return True

    # Habits.

    async def consider(self, offer: dict[str, Any]) -> None:
        """Answer an offer."""
        await self.take(offer, 100)

    async def go_about(self) -> None:
        """Act as the habit demands while no offer has arrived."""

    # Life.

    async def live(self) -> None:
        """Subscribe, and again whenever the stream ends."""
        async with aiohttp.ClientSession() as session:
            while not self.over:
                try:
                    await self._serve(session)
                except (aiohttp.ClientError, OSError, AssertionError):
                    # The master is down, or has just been elected and knows no framework.
                    self.counts["streams lost"] += 1
                    await asyncio.sleep(BEAT)
                finally:
                    self._connected = False
                    self.offers.clear()

    async def take(self, offer: dict[str, Any], most: int) -> None:
        """Launch as many tasks as fit, up to a maximum."""
        room = min(int(_amount(offer, name) // needed + 1e-9) for name, needed in NEEDS.items())
        tasks = [self._task(offer) for _ in range(min(room, most))]
        if not tasks:
            await self.decline(offer, self.refuse)
            return
        self.counts["tasks"] += len(tasks)
        for task in tasks:
            self.running[task["name"]] = (offer["agent_id"]["value"], "launched")
        launch = {"type": "LAUNCH", "launch": {"task_infos": tasks}}
        await self._answer(offer, "ACCEPT", self.refuse, operations=[launch])

    async def decline(self, offer: dict[str, Any], seconds: float) -> None:
        """Decline an offer for some seconds."""
        self.counts["declined"] += 1
        await self._answer(offer, "DECLINE", seconds)

    async def suppress(self) -> None:
        """Want no offers."""
        self.suppressed = True
        await self._scheduler.call("SUPPRESS")

    async def revive(self) -> None:
        """Want offers again."""
        await self._scheduler.call("REVIVE")
        self.suppressed = False

    async def leave(self) -> None:
        """Be gone, with all tasks."""
        await self._scheduler.call("TEARDOWN")
        self.framework_id = None
        self.running.clear()
        self._scheduler.ended.set()

    async def _serve(self, session: aiohttp.ClientSession) -> None:
        self._scheduler = HttpScheduler(session, self._address)
        async with asyncio.timeout(ANSWER):
            reply = await self._scheduler.subscribe(
                self.framework_id,
                user="root",
                name=self.habit,
                roles=[self.habit],
                capabilities=[{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}],
                labels={"labels": [{"key": k, "value": v} for k, v in self.labels.items()]},
                failover_timeout=600.0,
                principal="chaos",
                checkpoint=True,
            )
        assert "framework_id" in reply, reply
        self.framework_id = self._scheduler.framework_id
        self.suppressed, self._connected = False, True
        try:
            while not self.over and not self._scheduler.ended.is_set():
                await self._hear()
                await self.go_about()
                await self._reconcile()
                await asyncio.sleep(BEAT)
            if self.over and self.framework_id is not None:
                await self.leave()
        finally:
            self._scheduler.break_off()

    async def _hear(self) -> None:
        for event in _waiting(self._scheduler, "RESCIND"):
            self.offers.pop(event["offer_id"]["value"], None)
        for event in _waiting(self._scheduler, "UPDATE"):
            await self._updated(event["status"])
        for event in _waiting(self._scheduler, "OFFERS"):
            self._offered(self.habit)
            for offer in event["offers"]:
                self.counts["offers"] += 1
                self.offers[offer["id"]["value"]] = offer
        for offer in list(self.offers.values()):
            await self.consider(offer)

    async def _updated(self, status: dict[str, Any]) -> None:
        if "uuid" in status:
            await self._scheduler.acknowledge(status)
        name, state = status["task_id"]["value"], status["state"]
        agent, before = self.running.get(name, ("", ""))
        if not before:
            return
        if state in LOST | ENDED:
            del self.running[name]
            self.counts[state] += 1
            if state in LOST and before == "TASK_RUNNING":
                self.wrong.append(f"{name} had run on {agent}, and is {state}: {status['message']}")
        elif state == "TASK_RUNNING" or before != "TASK_RUNNING":
            self.running[name] = (agent, state)

    async def _reconcile(self) -> None:
        if time.monotonic() < self._asked + RECONCILE or not self.running:
            return
        self._asked = time.monotonic()
        tasks = [
            {"task_id": {"value": name}, "agent_id": {"value": agent}}
            for name, (agent, _) in self.running.items()
        ]
        await self._scheduler.call("RECONCILE", reconcile={"tasks": tasks})

    async def _answer(
        self, offer: dict[str, Any], kind: str, seconds: float, **content: object
    ) -> None:
        del self.offers[offer["id"]["value"]]
        self._sated_until = time.monotonic() + seconds + 1.0
        content = {
            "offer_ids": [offer["id"]],
            "filters": {"refuse_seconds": seconds},
            **content,
        }
        await self._scheduler.call(kind, **{kind.lower(): content})

    def _task(self, offer: dict[str, Any]) -> dict[str, Any]:
        self.counts["named"] += 1
        name = f"{self.habit}-{self.counts['named']}"
        seconds = self._run_time * self.random.uniform(0.5, 1.5)
        return {
            "name": name,
            "task_id": {"value": name},
            "agent_id": offer["agent_id"],
            "command": {"value": f"sleep {seconds:.1f}"},
            "resources": [
                {"name": key, "type": "SCALAR", "scalar": {"value": value}}
                for key, value in NEEDS.items()
            ],
        }


class Counting(Framework):
    """Launches a fixed number of tasks, then changes state."""

    wanted: ClassVar[int]

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(*given)
        self._left = self.wanted

    @override
    async def consider(self, offer: dict[str, Any]) -> None:
        before = self.counts["tasks"]
        await self.take(offer, self._left)
        self._left -= self.counts["tasks"] - before


class Bursty(Counting):
    """Wants a score of tasks at once, then nothing for a while."""

    habit = "bursty"
    wanted = 20

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(*given)
        self._again = 0.0

    @override
    async def go_about(self) -> None:
        if self._left <= 0 and not self.suppressed:
            await self.suppress()
            self._again = time.monotonic() + self.random.uniform(5.0, 15.0)
        if self.suppressed and not self.running and time.monotonic() > self._again:
            self._left = self.wanted
            await self.revive()


class Refusing(Framework):
    """Refuses four offers of five, for three seconds each."""

    habit = "refusing"

    @override
    async def consider(self, offer: dict[str, Any]) -> None:
        if self.random.random() < 0.2:
            await self.take(offer, 1)
        else:
            await self.decline(offer, 3.0)


class Constrained(Framework):
    """Runs on the first of the agents only."""

    habit = "constrained"
    hosts: ClassVar[tuple[str, ...]] = tuple(f"agent-{number}" for number in range(8))
    labels: ClassVar[dict[str, str]] = {
        "longshare.demand": "cpus:1;mem:32",
        "longshare.whitelist": ",".join(hosts),
    }

    @override
    def may_run_on(self, host: str) -> bool:
        return host in self.hosts

    @override
    async def consider(self, offer: dict[str, Any]) -> None:
        if offer["hostname"] not in self.hosts:
            self.wrong.append(f"{self.habit} was offered {offer['hostname']}")
        await self.take(offer, 100)


class Holding(Framework):
    """Keeps each offer for five seconds, then launches a single task with it."""

    habit = "holding"
    labels: ClassVar[dict[str, str]] = {}

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(*given)
        self._since: dict[str, float] = {}

    @override
    async def consider(self, offer: dict[str, Any]) -> None:
        since = self._since.setdefault(offer["id"]["value"], time.monotonic())
        if time.monotonic() > since + 5.0:
            del self._since[offer["id"]["value"]]
            await self.take(offer, 1)


class Leaving(Counting):
    """Runs five tasks, leaves when they have ended, and subscribes again under a new id."""

    habit = "leaving"
    labels: ClassVar[dict[str, str]] = {}
    wanted = 5

    @override
    async def go_about(self) -> None:
        if self._left <= 0 and not self.running:
            await self.leave()
            self.counts["left"] += 1
            self._left = self.wanted


ALL = (Framework, Bursty, Refusing, Constrained, Holding, Leaving)
HABITS = tuple(framework.habit for framework in ALL)


def _amount(offer: dict[str, Any], name: str) -> float:
    return float(
        sum(
            resource["scalar"]["value"]
            for resource in offer["resources"]
            if resource["name"] == name
        )
    )


def _waiting(scheduler: HttpScheduler, kind: str) -> Iterable[dict[str, Any]]:
    """Yield the events that have arrived."""
    while not scheduler.events[kind].empty():
        yield scheduler.events[kind].get_nowait()
