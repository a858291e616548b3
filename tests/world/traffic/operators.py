"""Operators: they look, they order, and by way of the master they weigh, reserve and set quotas."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from tests.world.model.amounts import Amounts, amounts, fits
from tests.world.model.books import Step
from tests.world.model.master import Master
from tests.world.service import Host
from tests.world.simulated.wire import Broken, Network, Peer

SERVICE = "/longshare.v1.Admin"
ROLES = ("a", "b", "c")
PATIENCE = 30.0
"""Seconds for which an operator waits."""


class Desk(Protocol):
    """The part of the world that operators know."""

    network: Network

    @property
    def host(self) -> Host:
        """The host of the service in use."""

    def leader(self) -> Master | None:
        """Return the leading master."""


class Operator:
    """Sends queries and orders.

    Args:
        desk: Access to services.
        chance: The random source.
        pace: The factor by which everything takes longer than usual.
        ways: The probabilities of "quota" and "reserve" at each action.
    """

    def __init__(self, desk: Desk, chance: Random, pace: float, ways: Mapping[str, float]) -> None:
        self.answered = 0
        self._desk = desk
        self._chance = chance
        self._pace = pace
        self._ways = ways

    async def live(self) -> None:
        """Query and give orders until cancelled."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 6.0) * self._pace)
            await self.ask("Shares", admin.SharesRequest(), admin.SharesReply)
            if self._chance.random() < 0.15:
                await self._order()
            if self._chance.random() < 0.05 and (master := self._desk.leader()) is not None:
                weight = self._chance.choice([0.5, 1.0, 2.0, 10.0])
                master.weigh(self._chance.choice(ROLES), weight)
            if self._chance.random() < self._ways.get("quota", 0.0):
                self._set_quota()
            if self._chance.random() < self._ways.get("reserve", 0.0):
                self._reserve()

    async def ask(self, method: str, request: Any, reply: Any) -> Any:  # noqa: ANN401 - protobuf's
        """Make a call; return None if the call was refused or not answered."""
        try:
            call = self._desk.network.call(
                self._desk.host.address, f"{SERVICE}/{method}", Peer("ipv4:operator")
            )
            await call.write(request.SerializeToString())
            answer = await asyncio.wait_for(call.read(), PATIENCE)
        except (Broken, TimeoutError):
            return None
        if isinstance(answer, tuple):
            return None
        self.answered += 1
        return reply.FromString(answer)

    async def _order(self) -> None:
        order = operator.Order()
        role = self._chance.choice(ROLES)
        if self._chance.random() < 0.5:
            order.set_weight.user = role
            weight = self._chance.choice([None, 0.25, 1.0, 3.0])
            if weight is not None:
                order.set_weight.weight = weight
        else:
            order.reset_commitments.users.extend([role] if self._chance.random() < 0.7 else [])
        await self.order(order)

    async def order(self, order: operator.Order) -> None:
        """Give an order."""
        await self.ask("Order", order, admin.OrderReply)

    def _set_quota(self) -> None:
        master = self._desk.leader()
        if master is None:
            return
        guarantees, limits = {}, {}
        if self._chance.random() < 0.6:
            guarantees = amounts(self._chance.choice(["cpus:1;mem:512", "cpus:4", "mem:4096"]))
        if self._chance.random() < 0.4:
            limits = amounts(self._chance.choice(["cpus:6", "cpus:2;mem:8192"]))
        master.set_quota(self._chance.choice(ROLES), guarantees, limits)

    def _reserve(self) -> None:
        """Reserve resources of an agent, or unreserve free reserved resources."""
        master = self._desk.leader()
        if master is None or not master.agents:
            return
        name = self._chance.choice(list(master.agents))
        free = master.agents[name].free
        reserved = {name: milli for name, milli in free.items() if "(" in name and "#" not in name}
        if reserved and self._chance.random() < 0.5:
            bare = {name.partition("(")[0]: milli for name, milli in reserved.items()}
            if len(bare) == len(reserved):
                master.operate(name, [Step("UNRESERVE", reserved, bare)])
            return
        wanted: Amounts = amounts(self._chance.choice(["cpus:1;mem:512", "cpus:2", "mem:1024"]))
        role = self._chance.choice(ROLES)
        if fits(wanted, master.agents[name].machine.amounts):
            kept = {f"{name}({role})": milli for name, milli in wanted.items()}
            master.operate(name, [Step("RESERVE", wanted, kept)])
