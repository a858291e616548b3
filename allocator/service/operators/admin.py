"""Answers operators: how users stand, why, and what their orders have changed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NoReturn

import grpc
import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.errors import InvalidOrder
from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminServicer
from allocator.fairness.standing import Standing
from allocator.service.loop.slices import Once, Work, spread
from allocator.service.loop.turn import Turn
from allocator.service.rights import Rights, certificate
from allocator.service.show.explain import explain, upcoming
from allocator.service.show.shares import UserShare, reading
from allocator.service.show.waits import Waits
from allocator.service.show.why import Kept, look_into
from allocator.service.store.keeper import Keeper

_log = structlog.get_logger(__name__)


class Admin(AdminServicer):
    """Looks at the engine between two messages of the master: all run in one event loop.

    Users are looked at in slices, once for all who ask meanwhile. An order is carried out at a
    stretch, and what it has changed is told as it was directly before and after.

    Args:
        engine: Whom the orders are for.
        waits: Knows what has kept users from more.
        keeper: Stores what is ordered at once; None: it is kept in memory alone.
        rights: Who may ask, and who may order.
        turn: Waited for before the engine is touched.
    """

    def __init__(
        self,
        engine: Engine,
        waits: Waits,
        keeper: Keeper | None,
        rights: Rights,
        turn: Turn | None = None,
    ) -> None:
        self._waits = waits
        self._turn = Turn() if turn is None else turn
        self._rights = rights
        self._engine = engine
        self._statistics = waits.statistics
        self._keeper = keeper
        self._rows = Once(lambda: spread(reading(engine, engine.users()), self._turn))

    async def Shares(  # noqa: N802 - the name is the contract's
        self,
        request: admin.SharesRequest,  # noqa: ARG002 - asks for nothing in particular
        context: grpc.aio.ServicerContext[admin.SharesRequest, admin.SharesReply],
    ) -> admin.SharesReply:
        """Say how all users stand."""
        await self._rights.require(context, "readers")
        async with self._turn:
            reply = admin.SharesReply(cluster=self._cluster())
        await spread(_add_messages(reply, await self._rows.get()))
        return reply

    async def Explain(  # noqa: N802
        self,
        request: admin.ExplainRequest,
        context: grpc.aio.ServicerContext[admin.ExplainRequest, admin.Explanation],
    ) -> admin.Explanation:
        """Say why a user is where it is."""
        await self._rights.require(context, "readers")
        rows = await self._rows.get()
        row = next((row for row in rows if row.user == request.user), None)
        if row is None:
            words = "".join(
                f"; framework {each.name} is set aside: {each.flaw.words}"
                for each in self._engine.set_aside()
                if request.user in {each.name, self._engine.framework_name(each.name)}
            )
            await _abort(context, grpc.StatusCode.NOT_FOUND, f"no such user: {request.user}{words}")
        found = await spread(look_into(self._engine, row.user), self._turn)
        async with self._turn:
            kept = Kept(found, self._waits.seconds(row.user), self._statistics.alone)
            explanation = explain(self._engine, row, rows, kept)
            explanation.user.CopyFrom(_message(row))
            explanation.cluster.CopyFrom(self._cluster())
        return explanation

    async def Order(  # noqa: N802
        self,
        request: operator.Order,
        context: grpc.aio.ServicerContext[operator.Order, admin.OrderReply],
    ) -> admin.OrderReply:
        """Carry out an order."""
        await self._rights.require(context, "operators")
        engine = self._engine
        before = {row.user: row for row in await self._rows.get()}
        concerned = _concerned(request, before.values())
        try:
            async with self._turn:
                stood = {user: engine.standing(user) for user in concerned}
                engine.order(request)
                stands = {user: engine.standing(user) for user in concerned}
        except InvalidOrder as error:
            known = {user for user, row in before.items() if row.can_be_ordered}
            unknown = _named(request) - known
            code = grpc.StatusCode.NOT_FOUND if unknown else grpc.StatusCode.INVALID_ARGUMENT
            await _abort(context, code, str(error))
        after = {row.user: row for row in await self._rows.get()}
        changes = [
            admin.Change(
                before=_message(replace(before[user], standing=was)),
                after=_message(replace(after[user], standing=now)),
            )
            for user, was in stood.items()
            if was is not None
            and (now := stands[user]) is not None
            and user in after
            and _subject_to_orders(was) != _subject_to_orders(now)
        ]
        _log.info(
            "order carried out",
            order=request.WhichOneof("order"),
            users=sorted(_named(request)) or "all",
            changed=len(changes),
            peer=context.peer(),
            certificate=certificate(context),
        )
        stored = None if self._keeper is None else await self._keeper.remember_soon()
        return admin.OrderReply(changes=changes, stored=stored)

    def _cluster(self) -> admin.Cluster:
        engine = self._engine
        return admin.Cluster(
            time=engine.now,
            connected=self._statistics.connected,
            policy=engine.pool.policy.name,
            agents=engine.agents,
            frameworks=engine.frameworks,
            wanting=engine.pool.active,
            capacity=engine.pool.capacity.to_doubles(),
            allocation=engine.pool.held().to_doubles(),
            next_passing=upcoming(engine),
            alone=self._statistics.alone,
        )


def _message(row: UserShare) -> admin.UserShare:
    own = row.standing
    return admin.UserShare(
        user=row.user,
        parent=row.parent,
        rank=row.rank,
        weight=own.weight,
        entitlement=own.entitlement,
        allocation={name: holding.allocation for name, holding in row.holdings.items()},
        shares={name: holding.share for name, holding in row.holdings.items()},
        counted=list(own.shares),
        dominant_resource=row.dominant_resource,
        dominant_share=own.share,
        commitments=own.commitments,
        dominant_commitment=row.owed,
        priority=own.priority,
        active=own.active,
        shortfall=row.shortfall,
        task_share=own.task_share,
        offered={
            name: holding.offered
            for name, holding in row.holdings.items()
            if holding.offered is not None
        },
        offered_share=row.offered_share,
        demands=[admin.Demand(amounts=demand.to_doubles()) for demand in row.demands],
    )


def _named(order: operator.Order) -> set[str]:
    match order.WhichOneof("order"):
        case "set_weight":
            return {order.set_weight.user}
        case "reset_commitments":
            return set(order.reset_commitments.users)
        case _:
            return set()


def _concerned(order: operator.Order, rows: Iterable[UserShare]) -> list[str]:
    """Return whom an order may change: those that it names, all that are below, or all."""
    named = _named(order)
    return [
        row.user
        for row in rows
        if not named or row.user in named or any(row.user.startswith(f"{name}/") for name in named)
    ]


def _add_messages(reply: admin.SharesReply, rows: list[UserShare]) -> Work[None]:
    for row in rows:
        reply.users.append(_message(row))
        yield


def _subject_to_orders(own: Standing[str]) -> tuple[float, Mapping[str, float], float]:
    owed = {name: commitment for name, commitment in own.commitments.items() if commitment}
    return own.weight, owed, own.inherited


async def _abort(
    context: "grpc.aio.ServicerContext[operator.Order, admin.OrderReply]"
    " | grpc.aio.ServicerContext[admin.ExplainRequest, admin.Explanation]",
    code: grpc.StatusCode,
    text: str,
) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("abort raises")
