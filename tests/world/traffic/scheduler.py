"""Base class of all frameworks: they find the leading master, subscribe, and run tasks."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from allocator.contract import mesos_pb2 as mesos
from tests.world.model.amounts import Amounts
from tests.world.model.books import Offer
from tests.world.model.master import Master
from tests.world.model.site import Site, Task


class Places(Protocol):
    """The part of the world that a framework knows."""

    site: Site

    def leader(self) -> Master | None:
        """Return the master that a framework would find."""


class Scheduler:
    """A framework.

    Args:
        name: The name, which is also the id.
        roles: The roles.
        places: Access to masters and machines.
        chance: The random source.
    """

    capabilities: tuple[int, ...] = (mesos.FrameworkInfo.Capability.MULTI_ROLE,)
    harmless = True
    """Whether the world guarantees offers when the framework wants them, fits and is permitted."""

    def __init__(self, name: str, roles: tuple[str, ...], places: Places, chance: Random) -> None:
        self.id = name
        self.roles = roles
        self.chance = chance
        self.running: dict[str, tuple[str, Task]] = {}
        """Its tasks, and where they run."""
        self.labels: dict[str, str] = {}
        self.connected = False
        self.gone = False
        self.pace = 1.0
        """How many times as long everything takes as usual."""
        self._places = places

    def info(self) -> bytes:
        """Return the serialised framework info."""
        info = mesos.FrameworkInfo(
            user="nobody", name=f"{self.id} of the world", id=mesos.FrameworkID(value=self.id)
        )
        info.roles.extend(self.roles)
        for kind in self.capabilities:
            info.capabilities.add(type=kind)
        for key, value in self.labels.items():
            info.labels.labels.add(key=key, value=value)
        return info.SerializeToString(deterministic=True)

    async def live(self) -> None:
        """Act until cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 3.0) * self.pace)
            self.stay_subscribed()
            self.act()

    def stay_subscribed(self) -> None:
        """Subscribe where the leading master does not know this framework."""
        master = self.master
        if master is None or not self.connected:
            return
        known = master.frameworks.get(self.id)
        if known is None or not known.active:
            master.subscribe(self, self.suppressed_roles())

    def suppressed_roles(self) -> tuple[str, ...]:
        """Return the roles that are suppressed in a subscription."""
        return ()

    def act(self) -> None:
        """Do something of one's own accord."""

    def offered(self, master: Master, offers: list[Offer]) -> None:
        """Hear of offers."""
        if master is self.master and self.connected:
            for offer in offers:
                self.answer(master, offer)

    def answer(self, master: Master, offer: Offer) -> None:
        """Do something about an offer."""
        master.decline(offer, None)

    @property
    def master(self) -> Master | None:
        """The leading master."""
        return self._places.leader()

    def launch(
        self, master: Master, offer: Offer, tasks: list[Amounts], last: Callable[[], float]
    ) -> None:
        """Run tasks on an offer, each for some seconds, and give back the rest."""
        loop = asyncio.get_running_loop()
        for task in master.accept(offer, tasks, None):
            self.running[task.id] = (offer.agent, task)
            loop.call_later(last() * self.pace, self._finish, offer.agent, task)

    def end_all(self) -> None:
        """Let all tasks end."""
        for machine, task in list(self.running.values()):
            self._finish(machine, task)

    def leave(self) -> None:
        """Go for good."""
        self.gone, self.connected = True, False
        master = self.master
        for machine, task in self.running.values():
            if machine in self._places.site.machines:
                self._places.site.end(machine, task)
        self.running.clear()
        if master is not None:
            master.teardown(self.id)

    def _finish(self, machine: str, task: Task) -> None:
        self.running.pop(task.id, None)
        if machine not in self._places.site.machines:
            return
        if self._places.site.end(machine, task):
            master = self.master
            if master is not None:
                master.ended(machine, task)
