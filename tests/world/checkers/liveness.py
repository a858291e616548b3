"""No wanted, usable and permitted resource stays free, and the leader is served."""

import asyncio
import math
from collections.abc import Callable

from typing_extensions import override

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.world.checkers.checker import Checker, Violated
from tests.world.model.amounts import Amounts, amounts, fits, read
from tests.world.model.books import Booked
from tests.world.model.link import Link
from tests.world.model.master import Master
from tests.world.traffic.scheduler import Scheduler

IDLE = 30.0
"""Seconds (plus ten ticks) for which usable and wanted resources may be free."""
SERVED = 90.0
"""Seconds until a leading master without faults is served."""
DEFAULT_REFUSAL = 5.0


class Liveness(Checker):
    """Checks the leading master's state each second.

    Args:
        leader: Returns the leading master, if there is a leader.
        troubled: Returns whether a fault explains the lack of service.
        interval: Seconds between ticks, at which filters end.
    """

    def __init__(
        self,
        leader: Callable[[], Master | None],
        troubled: Callable[[], bool],
        interval: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._leader = leader
        self._troubled = troubled
        self._patience = IDLE + 10.0 * interval
        self._refused: dict[tuple[str, str, str], float] = {}
        """(framework, role, agent) → until when"""
        self._idle: dict[tuple[str, str, str], float] = {}
        """Likewise → since when"""
        self._offered: dict[str, float] = {}
        """agent → time of its latest offer"""
        self._waiting: float | None = None
        """The time since when the leading master has not been served without a fault, or None."""
        self.longest = 0.0
        """The longest time for which usable and wanted resources have been free, in seconds."""

    @override
    def said(self, link: Link, message: contract.FromMaster) -> None:
        for event in message.events.events:
            if event.HasField("recover_resources") and event.recover_resources.HasField("filters"):
                call = event.recover_resources
                _, [role] = read(call.resources)
                place = (call.framework_id, role, call.agent_id)
                until = self._loop.time() + _seconds(call.filters)
                self._refused[place] = max(until, self._refused.get(place, 0.0))
            if event.HasField("revive_offers"):
                roles, name = set(event.revive_offers.roles), event.revive_offers.framework_id
                for place in list(self._refused):
                    if place[0] == name and (not roles or place[1] in roles):
                        del self._refused[place]

    @override
    def heard(self, link: Link, message: contract.ToMaster) -> None:
        for offers in message.decisions.offers:
            self._offered.update((offer.agent_id, self._loop.time()) for offer in offers.offers)

    @override
    def second(self) -> None:
        now, master = self._loop.time(), self._leader()
        served = master is not None and master.link.synchronised
        if served or master is None or self._troubled():
            self._waiting = None
        elif self._waiting is None:
            self._waiting = now
        elif now - self._waiting > SERVED:
            raise Violated(
                f"{master.name} leads and has not been served for {SERVED:g} s; its stream ended: "
                f"{master.link.refusal}"
            )
        idle: dict[tuple[str, str, str], float] = {}
        if served and master is not None and not master.offers_wait:
            for place in self._usable(master):
                idle[place] = max(self._idle.get(place, now), self._offered.get(place[2], 0.0))
        self._idle = idle
        for place, since in idle.items():
            self.longest = max(self.longest, now - since)
            if now - since > self._patience and not self._troubled():
                framework, role, agent = place
                raise Violated(
                    f"{framework} in {role!r} has not been offered {agent} for {now - since:g} s, "
                    f"though "
                    f"{master.agents[agent].free if master else {}} is free there"
                )

    def _usable(self, master: Master) -> list[tuple[str, str, str]]:
        now = self._loop.time()
        starved: list[tuple[str, str, str]] = []
        if master.has_quotas:  # the conservation checker checks the effects of quotas
            return starved
        for name, known in master.frameworks.items():
            scheduler = known.scheduler
            if not isinstance(scheduler, Scheduler) or not scheduler.harmless or not known.active:
                continue
            needs = amounts(scheduler.labels.get("longshare.demand", ""))
            for role in known.roles:
                if role in known.suppressed:
                    continue
                starved += [
                    (name, role, agent)
                    for agent, booked in master.agents.items()
                    if _offerable(booked, needs)
                    and self._refused.get((name, role, agent), 0.0) < now - 2.0
                ]
        return starved


def _offerable(booked: Booked, needs: Amounts) -> bool:
    free = booked.free
    enough = free.get("cpus", 0) >= 10 or free.get("mem", 0) >= 32_000
    return booked.active and enough and fits(needs, free)


def _seconds(filters: bytes) -> float:
    seconds = mesos.Filters.FromString(filters).refuse_seconds
    return seconds if seconds >= 0 and not math.isnan(seconds) else DEFAULT_REFUSAL
