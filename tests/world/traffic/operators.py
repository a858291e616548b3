"""Operators: they look, they order, and they weigh roles by way of the master."""

import asyncio
from random import Random
from typing import Any, Protocol

from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from tests.world.model.master import Master
from tests.world.service import Host
from tests.world.simulated.wire import Broken, Network, Peer

SERVICE = "/longshare.v1.Admin"
ROLES = ("a", "b", "c")
PATIENCE = 30.0
"""Seconds for which an operator waits."""


class Desk(Protocol):
    """What operators know of the world."""

    network: Network
    host: Host

    def leader(self) -> Master | None:
        """Return the leading master."""


class Operator:
    """Asks and orders.

    Args:
        desk: Where services are.
        chance: Draws what it does.
        pace: How many times as long everything takes as usual.
    """

    def __init__(self, desk: Desk, chance: Random, pace: float) -> None:
        self.answered = 0
        self._desk = desk
        self._chance = chance
        self._pace = pace

    async def live(self) -> None:
        """Do what operators do, until cancelled."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 6.0) * self._pace)
            await self.ask("Shares", admin.SharesRequest(), admin.SharesReply)
            if self._chance.random() < 0.15:
                await self._order()
            if self._chance.random() < 0.05 and (master := self._desk.leader()) is not None:
                weight = self._chance.choice([0.5, 1.0, 2.0, 10.0])
                master.weigh(self._chance.choice(ROLES), weight)

    async def ask(self, method: str, request: Any, reply: Any) -> Any:  # noqa: ANN401 - protobuf's
        """Make a call; None: it was refused, or nobody answered."""
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
