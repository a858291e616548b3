"""Hostile frameworks: each sends a message that once cost other frameworks their offers."""

from collections.abc import Callable
from random import Random

from typing_extensions import override

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.world.model.books import Offer
from tests.world.model.master import Master
from tests.world.traffic.scheduler import Places, Scheduler

DEMAND = "longshare.demand"
WHITELIST = "longshare.whitelist"


def _said(info: mesos.FrameworkInfo, key: str, value: str) -> None:
    info.labels.labels.add(key=key, value=value)


def _minimum(info: mesos.FrameworkInfo, amount: float) -> None:
    for role in info.roles:
        minimum = info.offer_filters[role].min_allocatable_resources.quantities.add()
        minimum.quantities["cpus"].value = amount


def _roles(info: mesos.FrameworkInfo, roles: list[str]) -> None:
    del info.roles[:]
    info.roles.extend(roles)


POISONS: dict[str, Callable[[mesos.FrameworkInfo], None]] = {
    "a tiny demand": lambda info: _said(info, DEMAND, "cpus:0.001"),
    "a tiny demand of memory": lambda info: _said(info, DEMAND, "mem:0.001"),
    "a demand of everything": lambda info: _said(info, DEMAND, "cpus:1e300;mem:inf"),
    "brackets": lambda info: _said(info, WHITELIST, "[" * 10_000),
    "globs": lambda info: _said(info, WHITELIST, ",".join(f"*{i}*x*" for i in range(20_000))),
    "a deep role": lambda info: _roles(info, ["/".join("d" * 1100)]),
    "many roles": lambda info: _roles(info, [f"r{i}" for i in range(5000)]),
    "no role": lambda info: _roles(info, ["", ".", "a//b"]),
    "a negative minimum": lambda info: _minimum(info, -1.0),
    "an endless minimum": lambda info: _minimum(info, 1e300),
    "another id": lambda info: setattr(info.id, "value", "worker-0"),
}
NOT_TEXT = "text that is not UTF-8"
REQUESTS = "requests for less than nothing"
STORM = "a new subscription each time"
CHURN = "another role each time"
ALL = (*POISONS, NOT_TEXT, REQUESTS, STORM, CHURN)
_CHURNED = 12
"""Number of roles that a churning framework cycles through."""


class Hostile(Scheduler):
    """Sends a hostile message, over and over."""

    harmless = False

    def __init__(self, name: str, roles: tuple[str, ...], places: Places, chance: Random) -> None:
        super().__init__(name, roles, places, chance)
        self.poison = chance.choice(ALL)
        self._left = 0
        """Roles."""

    @override
    def info(self) -> bytes:
        info = mesos.FrameworkInfo.FromString(super().info())
        if self.poison in POISONS:
            POISONS[self.poison](info)
        data = info.SerializeToString(deterministic=True)
        if self.poison == NOT_TEXT:
            data = data.replace(b"of the world", b"\xff\xfe the world", 1)
            data += (
                mesos.FrameworkInfo(roles=["q"]).SerializePartialToString().replace(b"q", b"\xff")
            )
        return data

    @override
    def act(self) -> None:
        master = self.master
        if master is None or self.id not in master.frameworks:
            return
        if self.poison == REQUESTS:
            wish = mesos.Request()
            wish.resources.add(name="cpus", type=mesos.Value.SCALAR).scalar.value = -1.0
            request = contract.RequestResources(
                framework_id=self.id, requests=[wish.SerializeToString()]
            )
            master.call(request_resources=request)
        if self.poison == CHURN:
            self._left += 1
            self.roles = self.roles[0], f"churn-{self._left % _CHURNED}"
        if self.poison in {STORM, CHURN} or self.chance.random() < 0.1:
            master.subscribe(self)
        if self.chance.random() < 0.1:
            master.revive(self.id)

    @override
    def answer(self, master: Master, offer: Offer) -> None:
        master.decline(offer, self.chance.choice([0.0, 1e-9, -1.0, None]))
