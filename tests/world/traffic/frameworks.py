"""Frameworks by character: working, greedy, silent, lying, coming and going."""

import math
from itertools import count
from random import Random

from typing_extensions import override

from allocator.contract import mesos_pb2 as mesos
from tests.world.model.amounts import Amounts, amounts, copies, fits, minus, times
from tests.world.model.books import Offer, Step
from tests.world.model.master import Master
from tests.world.traffic.hostile import Hostile
from tests.world.traffic.scheduler import Places, Scheduler


class Worker(Scheduler):
    """Has jobs of some tasks, now and then; wants nothing in between."""

    def __init__(self, name: str, roles: tuple[str, ...], places: Places, chance: Random) -> None:
        super().__init__(name, roles, places, chance)
        self.task: Amounts = amounts(f"cpus:{chance.choice([0.5, 1, 2])};mem:512")
        self.queue = chance.randrange(1, 30)
        """Number of waiting tasks."""
        if chance.random() < 0.5:
            self.labels["longshare.demand"] = _text(self.task)

    @override
    def suppressed_roles(self) -> tuple[str, ...]:
        return () if self.queue else self.roles

    @override
    def act(self) -> None:
        if self.queue == 0 and self.chance.random() < 0.1:
            self.queue = self.chance.randrange(1, 40)
            if self.master is not None:
                self.master.revive(self.id)

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        number = min(self.queue, copies(self.task, offer.amounts))
        if not number:
            master.decline(offer, None if self.queue else 60.0)
            return
        self.queue -= number
        self.launch(master, offer, [self.task] * number, lambda: self.chance.expovariate(1 / 20))
        if not self.queue:
            master.suppress(self.id)


class Greedy(Scheduler):
    """Accepts all offers, and keeps the resources for long."""

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        self.launch(master, offer, [offer.amounts], lambda: self.chance.uniform(30, 300))


class Mute(Scheduler):
    """Never answers; the master takes its offers back."""

    harmless = False

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        pass


class Waiter(Scheduler):
    """Waits for an impossible offer, with the filters of Mesos's defaults."""


class Refuser(Scheduler):
    """Declines offers, with sensible and absurd filter durations."""

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        master.decline(offer, self.chance.choice([None, 0.0, -1.0, 1.0, 3600.0, 1e300, math.nan]))

    @override
    def act(self) -> None:
        if self.master is not None and self.chance.random() < 0.05:
            self.master.revive(self.id)


class Liar(Worker):
    """States a task demand that differs from the real demand."""

    def __init__(self, name: str, roles: tuple[str, ...], places: Places, chance: Random) -> None:
        super().__init__(name, roles, places, chance)
        lie = chance.choice(["cpus:0.3", "cpus:64;mem:1e6", "gpus:1", "cpus:1;mem:1", "x", ""])
        self.labels["longshare.demand"] = lie
        self.harmless = False


class Flapper(Worker):
    """Loses its connection, changes its roles, leaves, and is back."""

    @override
    def act(self) -> None:
        master, draw = self.master, self.chance.random()
        if master is None:
            return
        if draw < 0.1:
            self.connected = False
            master.disconnect(self.id)
        elif draw < 0.2:
            self.connected = True
            master.subscribe(self, self.suppressed_roles())
        elif draw < 0.25:
            every = tuple(sorted({*self.roles, self.chance.choice(["a", "b", "flapping"])}))
            self.roles = every if len(every) < 3 else (self.chance.choice(every),)
            master.subscribe(self, self.suppressed_roles())
        elif draw < 0.27:
            self.connected = True
            self.end_all()
            master.teardown(self.id)
        else:
            super().act()


class Picky(Worker):
    """May use only some agents."""

    def __init__(self, name: str, roles: tuple[str, ...], places: Places, chance: Random) -> None:
        super().__init__(name, roles, places, chance)
        rack = chance.choice(["0", "1"])
        self.labels["longshare.attributes"] = f"rack:{rack}"
        self.harmless = False

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        remaining = minus(offer.amounts, times(1, self.task))
        if remaining == offer.amounts:
            master.decline(offer, None)
        else:
            super().answer(master, offer)


class Stateful(Scheduler):
    """Reserves, keeps volumes, runs tasks on them, and gives them up again."""

    capabilities = (
        *Scheduler.capabilities,
        mesos.FrameworkInfo.Capability.RESERVATION_REFINEMENT,
    )

    def __init__(self, name: str, roles: tuple[str, ...], places: Places, chance: Random) -> None:
        super().__init__(name, roles, places, chance)
        self._volumes = count(1)

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        own = {name: milli for name, milli in offer.amounts.items() if "(" in name}
        volumes = {name: milli for name, milli in own.items() if "#" in name}
        bare = minus(own, volumes)
        draw = self.chance.random()
        if volumes and draw < 0.3:
            steps = [Step("DESTROY", {n: m}, {n.partition("#")[0]: m}) for n, m in volumes.items()]
            master.convert(offer, steps)
        elif own and draw < 0.6:
            self.launch(master, offer, [own], lambda: self.chance.uniform(1.0, 30.0))
        elif bare and not volumes and draw < 0.8:
            plain = {name.partition("(")[0]: milli for name, milli in bare.items()}
            master.convert(offer, [Step("UNRESERVE", bare, plain)])
        elif not own and fits(_STATE, offer.amounts):
            kept = {f"{name}({offer.role})": milli for name, milli in _STATE.items()}
            disk = {f"disk({offer.role})": _STATE["disk"]}
            volume = {f"disk({offer.role})#{self.id}-{next(self._volumes)}": _STATE["disk"]}
            steps = [Step("RESERVE", _STATE, kept), Step("CREATE", disk, volume)]
            master.convert(offer, steps)
        else:
            master.decline(offer, None)


_STATE = amounts("cpus:0.5;disk:100;mem:256")
"""Resources of a task with a volume."""


def _text(quantities: Amounts) -> str:
    return ";".join(f"{name}:{milli / 1000:g}" for name, milli in quantities.items())


CHARACTERS: dict[str, type[Scheduler]] = {
    "worker": Worker,
    "greedy": Greedy,
    "mute": Mute,
    "waiter": Waiter,
    "refuser": Refuser,
    "liar": Liar,
    "flapper": Flapper,
    "picky": Picky,
    "stateful": Stateful,
    "hostile": Hostile,
}
