"""The operators' gRPC service: shares, explanations, forecasts, usage and operator commands."""

from dataclasses import asdict

import grpc

from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminServicer
from allocator.service.accounting.accountant import Accountant
from allocator.service.loop.cooperative import SharedComputation, Work, run_in_slices
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.operators import accounts
from allocator.service.operators.forecast import (
    Forecasts,
    InvalidQuestionError,
    TooManyForecastsError,
    UnknownUserError,
)
from allocator.service.operators.grpc_errors import abort, require_names
from allocator.service.operators.messages import message
from allocator.service.operators.orders import Orders
from allocator.service.rights import peer_name
from allocator.service.show.explain import explain, upcoming
from allocator.service.show.explanations import collect_facts
from allocator.service.show.shadows import Shadows, ShadowState
from allocator.service.show.shares import UserShare, read_shares
from allocator.service.show.wait_reasons import Waits
from allocator.service.store.writer import StoreWriter
from allocator.users.adapter import SchedulerAdapter


class Admin(AdminServicer):
    """gRPC service that answers operators' questions and carries out their commands.

    The service reads the adapter between two messages of the scheduler, in the same event loop.
    Shares are read in steps, once for all callers that ask at the same time. An operator command
    (an *order* in the contract) is carried out without interruption. Its reply describes the users
    directly before and after the command.

    Args:
        adapter: The adapter that answers questions and carries out commands.
        waits: Waiting times of users, and reasons why they get nothing more.
        store_writer: Stores the effect of a command at once; None: the effect is lost when the
            service ends.
        accountant: Keeps accounts and the log of commands; None: the service keeps neither.
        engine_lock: Lock that is acquired before the engine is read or changed; None for a new
            lock.
        shadows: Shadow policies; None for no shadow policies.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - every source of the replies
        self,
        adapter: SchedulerAdapter,
        waits: Waits,
        store_writer: StoreWriter | None,
        accountant: Accountant | None,
        engine_lock: EngineLock | None = None,
        shadows: Shadows | None = None,
    ) -> None:
        self._waits = waits
        self._engine_lock = EngineLock() if engine_lock is None else engine_lock
        self._adapter = adapter
        self._statistics = waits.statistics
        self._accountant = accountant
        self._shadows = Shadows({}) if shadows is None else shadows
        self._forecasts = Forecasts(adapter, self._engine_lock)
        self._longest_name = adapter.longest_name
        self._rows = SharedComputation(lambda: run_in_slices(self._read_rows(), self._engine_lock))
        self._shares = SharedComputation(
            lambda: run_in_slices(self._make_shares(), self._engine_lock)
        )
        self.orders = Orders(adapter, self._rows, store_writer, accountant, self._engine_lock)

    async def Shares(  # noqa: N802 - the contract defines the name
        self,
        request: admin.SharesRequest,  # noqa: ARG002 - the request has no fields
        context: grpc.aio.ServicerContext[admin.SharesRequest, admin.SharesReply],  # noqa: ARG002
    ) -> admin.SharesReply:
        """Return the shares of all users, and the cluster's capacity, allocation and policy."""
        return await self._shares.get()

    async def Shadows(  # noqa: N802
        self,
        request: admin.ShadowsRequest,  # noqa: ARG002 - the request has no fields
        context: grpc.aio.ServicerContext[admin.ShadowsRequest, admin.ShadowsReply],  # noqa: ARG002
    ) -> admin.ShadowsReply:
        """Return users' ranks and gains under each shadow policy, or the error that stopped it."""
        reply = admin.ShadowsReply()
        for follower in self._shadows.followers:
            await self._engine_lock.answer(self._add_shadow(reply, follower))
        return reply

    async def Explain(  # noqa: N802
        self,
        request: admin.ExplainRequest,
        context: grpc.aio.ServicerContext[admin.ExplainRequest, admin.Explanation],
    ) -> admin.Explanation:
        """Explain a user's rank, and why the user gets no further resources.

        An unknown user ends the call with NOT_FOUND.
        """
        user = request.user  # each access to the field decodes the name again
        await require_names(context, [user], self._longest_name)
        before = self._adapter.messages
        rows = await self._rows.get()
        row = rows.get(user)
        if row is None:
            hint = await self._engine_lock.answer(self._adapter.wording.about_unknown_user(user))
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no such user: {user}{hint}")
        facts = await self._engine_lock.answer(collect_facts(self._adapter, row.user))
        async with self._engine_lock:
            cache = self._waits.add_record(facts, row.user)
            explanation = explain(self._adapter, row, list(rows.values()), cache)
            explanation.user.CopyFrom(message(row, self._adapter))
            explanation.user.passed_over = explanation.passed_over
            explanation.cluster.CopyFrom(self._cluster())
            explanation.meanwhile = explanation.cluster.messages - before
        return explanation

    async def Order(  # noqa: N802
        self,
        request: operator.Order,
        context: grpc.aio.ServicerContext[operator.Order, admin.OrderReply],
    ) -> admin.OrderReply:
        """Carry out an operator command (*order*); return each changed user before and after."""
        return await self.orders.carry_out(request, context)

    async def Forecast(  # noqa: N802
        self,
        request: admin.ForecastRequest,
        context: grpc.aio.ServicerContext[admin.ForecastRequest, admin.ForecastReply],
    ) -> admin.ForecastReply:
        """Forecast changes in the order of users, for the case that allocations do not change.

        Examples are users that will overtake each other, and the cost of a burst.
        """
        await require_names(context, [request.user], self._longest_name)
        try:
            reply = await self._forecasts.answer(request, peer_name(context))
        except TooManyForecastsError as error:
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except UnknownUserError as error:
            hint = self._adapter.wording.about_unknown_user(request.user)
            words = await self._engine_lock.answer(hint)
            await abort(context, grpc.StatusCode.NOT_FOUND, f"{error}{words}")
        except InvalidQuestionError as error:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        async with self._engine_lock:
            reply.cluster.CopyFrom(self._cluster())
        return reply

    async def Usage(  # noqa: N802
        self,
        request: admin.UsageRequest,
        context: grpc.aio.ServicerContext[admin.UsageRequest, admin.UsageReply],
    ) -> admin.UsageReply:
        """Return the usage of users, roles or days from the accounting database."""
        await require_names(context, request.users, self._longest_name)
        return await accounts.usage(self._accountant, request, context)

    async def Audit(  # noqa: N802
        self,
        request: admin.AuditRequest,
        context: grpc.aio.ServicerContext[admin.AuditRequest, admin.AuditReply],
    ) -> admin.AuditReply:
        """Return the operator commands given in a time interval, with their origin and effect."""
        return await accounts.audit(self._accountant, self.orders.refusals, request, context)

    def _read_rows(self) -> Work[dict[str, UserShare]]:
        """Return the shares of all users by name, in the order of `read_shares`."""
        rows = {}
        for row in (yield from read_shares(self._adapter, self._adapter.users())):
            rows[row.user] = row
            yield
        return rows

    def _make_shares(self) -> Work[admin.SharesReply]:
        adapter, reply = self._adapter, admin.SharesReply()
        before = adapter.messages
        for row in (yield from read_shares(adapter, adapter.users())):
            share = message(row, adapter)
            share.passed_over = row.user in self._waits.passed_over
            share.waits = self._waits.brief_reason(row.user)
            reply.users.append(share)
            yield
        reply.cluster.CopyFrom(self._cluster())
        reply.meanwhile = reply.cluster.messages - before
        return reply

    def _add_shadow(self, reply: admin.ShadowsReply, follower: ShadowState) -> Work[None]:
        differences = yield from self._shadows.compare(self._adapter, follower)
        shadow = reply.shadows.add(
            name=follower.name, failure=follower.failure, seconds=follower.seconds
        )
        for difference in differences:
            shadow.users.add(**asdict(difference))
            yield

    def _cluster(self) -> admin.Cluster:
        adapter = self._adapter
        counts = adapter.counts()
        return admin.Cluster(
            time=adapter.now,
            connected=self._statistics.connected,
            policy=adapter.pool.policy.name,
            agents=counts.machines,
            frameworks=counts.applications,
            wanting=adapter.pool.active,
            capacity=adapter.pool.capacity.to_doubles(),
            allocation=adapter.pool.held().to_doubles(),
            next_passing=next(upcoming(adapter, self._waits.passed_over), None),
            alone=self._statistics.alone,
            messages=adapter.messages,
        )
