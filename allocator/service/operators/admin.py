"""Answers operators: how users stand, why, and what their orders have changed."""

from dataclasses import asdict

import grpc

from allocator.cluster.engine import Engine
from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminServicer
from allocator.service.accounting.accountant import Accountant
from allocator.service.loop.cooperative import Once, Work, spread
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.operators import accounts
from allocator.service.operators.forecast import InvalidQuestionError, UnknownUserError, foretell
from allocator.service.operators.grpc_errors import abort
from allocator.service.operators.messages import message
from allocator.service.operators.orders import Orders
from allocator.service.show.explain import explain, upcoming
from allocator.service.show.explanations import ExplanationCache, look_into
from allocator.service.show.shadows import Follower, Shadows
from allocator.service.show.shares import reading
from allocator.service.show.wait_reasons import Waits
from allocator.service.store.writer import StoreWriter


class Admin(AdminServicer):
    """Looks at the engine between two messages of the master: all run in one event loop.

    Users are looked at in slices, once for all who ask meanwhile. An order is carried out at a
    stretch, and what it has changed is told as it was directly before and after.

    Args:
        engine: Whom the orders are for.
        waits: Knows what has kept users from more.
        keeper: Stores what is ordered at once; None: it is kept in memory alone.
        bookkeeper: Keeps accounts, and what is ordered; None: nobody does.
        turn: Waited for before the engine is touched.
        shadows: Policies that follow.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that operators ask
        self,
        engine: Engine,
        waits: Waits,
        keeper: StoreWriter | None,
        bookkeeper: Accountant | None,
        turn: EngineLock | None = None,
        shadows: Shadows | None = None,
    ) -> None:
        self._waits = waits
        self._turn = EngineLock() if turn is None else turn
        self._engine = engine
        self._statistics = waits.statistics
        self._bookkeeper = bookkeeper
        self._shadows = Shadows({}) if shadows is None else shadows
        self._rows = Once(lambda: spread(reading(engine, engine.users()), self._turn))
        self._shares = Once(lambda: spread(self._make_shares(), self._turn))
        self.orders = Orders(engine, self._rows, keeper, bookkeeper, self._turn)

    async def Shares(  # noqa: N802 - the name is the contract's
        self,
        request: admin.SharesRequest,  # noqa: ARG002 - asks for nothing in particular
        context: grpc.aio.ServicerContext[admin.SharesRequest, admin.SharesReply],  # noqa: ARG002
    ) -> admin.SharesReply:
        """Say how all users stand."""
        return await self._shares.get()

    async def Shadows(  # noqa: N802
        self,
        request: admin.ShadowsRequest,  # noqa: ARG002 - asks for nothing in particular
        context: grpc.aio.ServicerContext[admin.ShadowsRequest, admin.ShadowsReply],  # noqa: ARG002
    ) -> admin.ShadowsReply:
        """Say what other policies would make of the users."""
        reply = admin.ShadowsReply()
        for follower in self._shadows.followers:
            await spread(self._add_shadow(reply, follower), self._turn)
        return reply

    async def Explain(  # noqa: N802
        self,
        request: admin.ExplainRequest,
        context: grpc.aio.ServicerContext[admin.ExplainRequest, admin.Explanation],
    ) -> admin.Explanation:
        """Say why a user is where it is."""
        before = self._engine.statistics.messages
        rows = await self._rows.get()
        row = next((row for row in rows if row.user == request.user), None)
        if row is None:
            words = "".join(
                f"; framework {each.name} is set aside: {each.flaw.words}"
                for each in self._engine.set_aside()
                if request.user in {each.name, self._engine.framework_name(each.name)}
            )
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no such user: {request.user}{words}")
        found = await spread(look_into(self._engine, row.user), self._turn)
        passed_over = await spread(self._engine.passed_over(), self._turn)
        async with self._turn:
            waited, alone = self._waits.seconds(row.user), self._statistics.alone
            kept = ExplanationCache(found, waited, alone, passed_over)
            explanation = explain(self._engine, row, rows, kept)
            explanation.user.CopyFrom(message(row, self._engine))
            explanation.user.passed_over = explanation.passed_over
            explanation.cluster.CopyFrom(self._cluster())
            explanation.meanwhile = explanation.cluster.messages - before
        return explanation

    async def Order(  # noqa: N802
        self,
        request: operator.Order,
        context: grpc.aio.ServicerContext[operator.Order, admin.OrderReply],
    ) -> admin.OrderReply:
        """Carry out an order."""
        return await self.orders.carry_out(request, context)

    async def Forecast(  # noqa: N802
        self,
        request: admin.ForecastRequest,
        context: grpc.aio.ServicerContext[admin.ForecastRequest, admin.ForecastReply],
    ) -> admin.ForecastReply:
        """Say what will come if nothing changes."""
        try:
            reply = await foretell(self._engine, request, self._turn)
        except UnknownUserError as error:
            await abort(context, grpc.StatusCode.NOT_FOUND, str(error))
        except InvalidQuestionError as error:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        async with self._turn:
            reply.cluster.CopyFrom(self._cluster())
        return reply

    async def Usage(  # noqa: N802
        self,
        request: admin.UsageRequest,
        context: grpc.aio.ServicerContext[admin.UsageRequest, admin.UsageReply],
    ) -> admin.UsageReply:
        """Say who has had what."""
        return await accounts.usage(self._bookkeeper, request, context)

    async def Audit(  # noqa: N802
        self,
        request: admin.AuditRequest,
        context: grpc.aio.ServicerContext[admin.AuditRequest, admin.AuditReply],
    ) -> admin.AuditReply:
        """Say what operators have ordered."""
        self.orders.refusals.tell()
        return await accounts.audit(self._bookkeeper, request, context)

    def _make_shares(self) -> Work[admin.SharesReply]:
        engine, reply = self._engine, admin.SharesReply()
        before = engine.statistics.messages
        for row in (yield from reading(engine, engine.users())):
            share = message(row, engine)
            share.passed_over = row.user in self._waits.passed_over
            reply.users.append(share)
            yield
        reply.cluster.CopyFrom(self._cluster())
        reply.meanwhile = reply.cluster.messages - before
        return reply

    def _add_shadow(self, reply: admin.ShadowsReply, follower: Follower) -> Work[None]:
        apart = yield from self._shadows.comparing(self._engine, follower)
        told = reply.shadows.add(
            name=follower.name, failure=follower.failure, seconds=follower.seconds
        )
        for each in apart:
            told.users.add(**asdict(each))
            yield

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
            next_passing=next(upcoming(engine, self._waits.passed_over), None),
            alone=self._statistics.alone,
            messages=engine.statistics.messages,
        )
