"""Operator commands: set weights, set or reset commitments, forget users.

A command, an *order* in the contract, is carried out, answered with its effect, and logged for the
audit.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import grpc
import structlog
from google.protobuf.json_format import MessageToDict

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidOrder
from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.fairness.standing import Standing
from allocator.service.accounting.accountant import Accountant
from allocator.service.accounting.write_batch import OrderRecord
from allocator.service.loop.cooperative import SharedComputation
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.operators.grpc_errors import abort
from allocator.service.operators.messages import message
from allocator.service.operators.refusals import Refusals
from allocator.service.rights import certificate, identified
from allocator.service.show.shares import UserShare
from allocator.service.store.writer import StoreWriter

LONGEST = 2000
"""Maximum length, in characters, of a command's text and of its effect in the audit log."""
MOST_BOOSTS = 250
"""Maximum number of boosts (temporary weights) at the same time.

The end of a boost changes the entitlement of every user at that instant. So the first event after a
pause costs O(boosts that ended · users).
"""

_Context: TypeAlias = "grpc.aio.ServicerContext[operator.Order, admin.OrderReply]"
_log = structlog.get_logger(__name__)


class Orders:
    """Carries out operator commands, one at a time, between two messages of the master.

    Args:
        engine: The engine that carries out the commands.
        rows: Shared computation of all users' shares, which describe users before and after a
            command.
        store_writer: Stores the effect of a command at once; None: the effect is lost when the
            service ends.
        accountant: Keeps the audit log of commands; None: commands are only written to the
            service's log.
        engine_lock: Lock that is acquired before the engine is changed.
    """

    def __init__(
        self,
        engine: Engine,
        rows: SharedComputation[list[UserShare]],
        store_writer: StoreWriter | None,
        accountant: Accountant | None,
        engine_lock: EngineLock,
    ) -> None:
        self._engine = engine
        self._rows = rows
        self._store_writer = store_writer
        self._accountant = accountant
        self.refusals = Refusals(accountant)
        self._engine_lock = engine_lock

    async def carry_out(self, order: operator.Order, context: _Context) -> admin.OrderReply:
        """Carry out an operator command, and return each changed user before and after.

        A command that the engine rejects changes nothing, is logged for the audit, and ends the
        call with an error status.
        """
        engine = self._engine
        before = {row.user: row for row in await self._rows.get()}
        concerned = concerned_users(order, before.values())
        standings_before: dict[str, Standing[str] | None] = {}
        try:
            async with self._engine_lock:
                standings_before = {user: engine.standing(user) for user in concerned}
                require_few_boosts(order, engine)
                engine.order(order)
                standings_after = {user: engine.standing(user) for user in concerned}
        except InvalidOrder as error:
            self._keep(order, context, standings_before, {}, str(error))
            known = {user for user, row in before.items() if row.accepts_orders}
            unknown = _named(order) - known
            code = grpc.StatusCode.NOT_FOUND if unknown else grpc.StatusCode.INVALID_ARGUMENT
            await abort(context, code, str(error))
        self._keep(order, context, standings_before, standings_after, "")
        after = {row.user: row for row in await self._rows.get()}
        changes = [
            admin.Change(
                before=message(replace(before[user], standing=former), engine),
                after=message(replace(after[user], standing=present), engine),
            )
            if (present := standings_after[user]) is not None
            else admin.Change(before=message(replace(before[user], standing=former), engine))
            for user, former in standings_before.items()
            if former is not None
            and (standings_after[user] is None or user in after)
            and not _alike(former, standings_after[user])
        ]
        _log.info(
            "order carried out",
            order=order.WhichOneof("order"),
            users=sorted(_named(order)) or "all",
            changed=len(changes),
            peer=context.peer(),
            certificate=certificate(context),
        )
        stored, audited = await asyncio.gather(
            _nothing() if self._store_writer is None else self._store_writer.save_with_time_limit(),
            _nothing() if self._accountant is None else self._accountant.keep(),
        )
        return admin.OrderReply(
            changes=changes, stored=stored, volatile=self._store_writer is None, audited=audited
        )

    def log_refusal(self, context: _Context, reason: str) -> None:
        """Log for the audit that a peer without the right tried to give an operator command.

        The command itself has not been read.
        """
        self._keep(operator.Order(), context, {}, {}, reason)

    def _keep(
        self,
        order: operator.Order,
        context: _Context,
        before: Mapping[str, Standing[str] | None],
        after: Mapping[str, Standing[str] | None],
        refusal: str,
    ) -> None:
        """Log an operator command for the audit, with its origin and effect.

        Args:
            order: The command.
            context: The gRPC call, which identifies the operator.
            before: Standings of the concerned users before the command; None for an unknown user.
            after: Standings after the command; None for a forgotten user.
            refusal: Why the command was refused; empty if it was carried out.
        """
        if self._accountant is None:
            return
        operator_name, identified_by = identified(context)
        kind = order.WhichOneof("order") or ""
        plain = MessageToDict(order, preserving_proto_field_name=True).get(kind, {})
        named_users = _named(order)
        differ = [
            user
            for user in before
            if refusal or not _alike(before.get(user), after.get(user)) or user in named_users
        ]
        entry = OrderRecord(
            id=uuid.uuid4().hex,
            at=time.time(),
            who=operator_name,
            how=identified_by,
            peer=context.peer(),
            kind=kind,
            order=_json(plain),
            before=_json({user: _to_plain(before.get(user)) for user in differ}),
            after=_json({user: _to_plain(after.get(user)) for user in differ}),
            refusal=refusal[:LONGEST],
        )
        if refusal:
            self.refusals.note(entry)
        else:
            self._accountant.note(entry)


async def _nothing() -> None:
    """Do nothing; used in place of a store writer or accountant that the service does not have."""


def _json(plain: object) -> str:
    """Return a value as JSON for the audit; a note replaces a text longer than `LONGEST`."""
    text = json.dumps(plain, sort_keys=True)
    return text if len(text) <= LONGEST else json.dumps({"too long to be kept": len(text)})


def _to_plain(standing: Standing[str] | None) -> dict[str, object] | None:
    if standing is None:
        return None
    commitments = {
        name: round(commitment, 9)
        for name, commitment in standing.commitments.items()
        if commitment
    }
    return {"weight": standing.weight, "commitments": commitments}


def require_few_boosts(order: operator.Order, engine: Engine) -> None:
    """Refuse a new boost (temporary weight) if there are `MOST_BOOSTS` already.

    A boost that replaces another boost of the same user is accepted.

    Raises:
        InvalidOrder: there are `MOST_BOOSTS` boosts already.
    """
    change, weights = order.set_weight, engine.weights
    is_new = change.HasField("seconds") and weights.boost(change.user) is None
    if is_new and weights.boosts >= MOST_BOOSTS:
        raise InvalidOrder(
            f"user {change.user!r}: {weights.boosts} users have a boost, which is the most at a "
            "time; end one (`longshare weight unset USER`), or set a weight that lasts"
        )


def _named(order: operator.Order) -> set[str]:
    match order.WhichOneof("order"):
        case "set_weight":
            return {order.set_weight.user}
        case "reset_commitments":
            return set(order.reset_commitments.users)
        case "set_commitments":
            return {order.set_commitments.user}
        case "forget_users":
            return set(order.forget_users.users)
        case _:
            return set()


def concerned_users(order: operator.Order, rows: Iterable[UserShare]) -> list[str]:
    """Return the users that a command may change: named users with their sub-roles, or all users.

    Args:
        order: The operator command.
        rows: The shares of all users.
    """
    named = _named(order)
    return [
        row.user
        for row in rows
        if not named or row.user in named or any(role in named for role in _above(row.user))
    ]


def _above(user: str) -> Iterator[str]:
    return (user[:end] for end, sign in enumerate(user) if sign == "/")


def _alike(former: Standing[str] | None, present: Standing[str] | None) -> bool:
    if former is None or present is None:
        return former is present
    return _subject_to_orders(former) == _subject_to_orders(present)


def _subject_to_orders(standing: Standing[str]) -> tuple[float, Mapping[str, float], float]:
    commitments = {
        name: commitment for name, commitment in standing.commitments.items() if commitment
    }
    return standing.weight, commitments, standing.inherited
