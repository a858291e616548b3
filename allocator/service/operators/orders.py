"""Operator commands: set weights, set or reset commitments, forget users.

A command, an *order* in the contract, is carried out, answered with its effect, and logged for the
audit.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import grpc
import structlog
from google.protobuf.json_format import MessageToDict

from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.fairness.standing import Standing
from allocator.service.accounting.accountant import Accountant
from allocator.service.accounting.write_batch import OrderRecord
from allocator.service.loop.cooperative import SharedComputation, Work, run_in_slices
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.operators.accounts import parents
from allocator.service.operators.grpc_errors import abort, require_names
from allocator.service.operators.messages import message
from allocator.service.operators.refusals import Refusals
from allocator.service.rights import certificate, identified
from allocator.service.show.shares import UserShare
from allocator.service.store.writer import StoreWriter
from allocator.users.adapter import SchedulerAdapter
from allocator.users.orders import (
    InvalidOrder,
    concerns_all,
    concerns_users,
    named_users,
    require_few_names,
)

LONGEST = 2000
"""Maximum length, in characters, of a command's text and of its effect in the audit log."""
_MOST_HINTS = 3
"""Maximum number of unknown users for which an error message has a hint."""
_REST = 1.0
"""Pause after a command, as a multiple of the time that the command took."""
MOST_BOOSTS = 250
"""Maximum number of boosts (temporary weights) at the same time.

The end of a boost changes the entitlement of every user at that instant. So the first event after a
pause costs O(boosts that ended · users).
"""
MOST_BOOSTED = 100_000
"""Maximum product of the numbers of boosts and of users. One event takes about 20 µs for each boost
that has ended and each user. Ten boosts are always accepted.
"""

_Context: TypeAlias = "grpc.aio.ServicerContext[operator.Order, admin.OrderReply]"
_log = structlog.get_logger(__name__)


@dataclass
class _OrderEffect:
    """Standings of the users that a command concerns, before and after; or why it was refused.

    The standing of an unknown user is None before the command, and of a forgotten user after it.
    """

    before: dict[str, Standing[str] | None] = field(default_factory=dict)
    after: dict[str, Standing[str] | None] = field(default_factory=dict)
    refusal: str = ""
    """Why the command was refused; empty if it was carried out."""


class Orders:
    """Carries out operator commands, one at a time, between two messages of the scheduler.

    Args:
        adapter: The adapter that carries out the commands.
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
        adapter: SchedulerAdapter,
        rows: SharedComputation[dict[str, UserShare]],
        store_writer: StoreWriter | None,
        accountant: Accountant | None,
        engine_lock: EngineLock,
    ) -> None:
        self._adapter = adapter
        self._rows = rows
        self._store_writer = store_writer
        self._accountant = accountant
        self.refusals = Refusals(accountant)
        self._engine_lock = engine_lock
        self._turn = asyncio.Lock()
        """Held by the call whose command is next."""
        self._rest_until = 0.0
        """End of the pause after the latest command, in seconds by the loop's clock."""

    async def carry_out(self, order: operator.Order, context: _Context) -> admin.OrderReply:
        """Carry out an operator command, and return each changed user before and after.

        A command may change the entitlement of every user, which costs O(users). After a command,
        the next command therefore waits, so that the scheduler's messages are answered in between.
        A command that the adapter rejects changes nothing, is logged for the audit, and ends the
        call with an error status.
        """
        before = await self._rows.get() if concerns_users(order) else {}
        try:
            require_few_names(order, len(before))
        except InvalidOrder as error:
            self.log_refusal(context.peer(), identified(context), str(error))
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        named = set(named_users(order))
        await require_names(context, named, self._adapter.longest_name)
        async with self._turn:
            now = asyncio.get_running_loop().time
            await asyncio.sleep(self._rest_until - now())
            async with self._engine_lock:
                started = now()
                change = self._apply(order, before)
                self._rest_until = now() + _REST * (now() - started)
        self._keep(order, context.peer(), identified(context), change)
        if change.refusal:
            unknown = any(user not in before or not before[user].accepts_orders for user in named)
            code = grpc.StatusCode.NOT_FOUND if unknown else grpc.StatusCode.INVALID_ARGUMENT
            hints = ""
            for user in sorted(named - before.keys())[:_MOST_HINTS]:
                hint = self._adapter.wording.about_unknown_user(user)
                hints += await self._engine_lock.answer(hint)
            await abort(context, code, f"{change.refusal}{hints}")
        after = await self._rows.get()
        changes = await run_in_slices(self._describe(change, before, after), self._engine_lock)
        _log.info(
            "order carried out",
            order=order.WhichOneof("order"),
            users=sorted(named) or "all",
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

    def log_refusal(self, peer: str, identity: tuple[str, str], reason: str) -> None:
        """Log for the audit that a command was refused before its content was read.

        Either the peer has no right to give commands, or the command has too many names.

        Args:
            peer: The peer's address.
            identity: The peer's identity and its source, as `identified` returns them.
            reason: The reason of the refusal.
        """
        self._keep(operator.Order(), peer, identity, _OrderEffect(refusal=reason))

    def _apply(self, order: operator.Order, rows: Mapping[str, UserShare]) -> "_OrderEffect":
        """Let the adapter carry out a command; return its effect on the users that it concerns."""
        adapter, effect = self._adapter, _OrderEffect()
        concerned = concerned_users(order, rows.values())
        effect.before = {user: adapter.standing(user) for user in concerned}
        try:
            require_few_boosts(order, adapter)
            adapter.order(order)
        except InvalidOrder as error:
            effect.refusal = str(error)
        else:
            effect.after = {user: adapter.standing(user) for user in concerned}
        return effect

    def _describe(
        self,
        effect: "_OrderEffect",
        rows_before: Mapping[str, UserShare],
        rows_after: Mapping[str, UserShare],
    ) -> Work[list[admin.Change]]:
        """Return the changed users before and after a command, one in each cooperative step.

        Args:
            effect: The effect of the command.
            rows_before: Shares of all users before the command.
            rows_after: Shares of all users after the command.
        """
        adapter, changes = self._adapter, list[admin.Change]()
        for user, former in effect.before.items():
            yield
            present = effect.after[user]
            if former is None or _alike(former, present):
                continue
            change = admin.Change(
                before=message(replace(rows_before[user], standing=former), adapter)
            )
            if present is not None:
                if user not in rows_after:
                    continue
                row = replace(rows_after[user], standing=present)
                change.after.CopyFrom(message(row, adapter))
            changes.append(change)
        return changes

    def _keep(
        self,
        order: operator.Order,
        peer: str,
        identity: tuple[str, str],
        effect: "_OrderEffect",
    ) -> None:
        """Log an operator command for the audit, with its origin and effect.

        Args:
            order: The command.
            peer: The operator's address.
            identity: The operator's identity and its source, as `identified` returns them.
            effect: The effect of the command, or the reason of its refusal.
        """
        if self._accountant is None:
            return
        before, after, refusal = effect.before, effect.after, effect.refusal
        operator_name, identified_by = identity
        kind = order.WhichOneof("order") or ""
        plain = MessageToDict(order, preserving_proto_field_name=True).get(kind, {})
        named = set(named_users(order))
        differ = [
            user
            for user in before
            if refusal or not _alike(before.get(user), after.get(user)) or user in named
        ]
        entry = OrderRecord(
            id=uuid.uuid4().hex,
            at=time.time(),
            who=operator_name,
            how=identified_by,
            peer=peer,
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


def require_few_boosts(order: operator.Order, adapter: SchedulerAdapter) -> None:
    """Refuse a new boost (temporary weight) if there are too many for the number of users already.

    A boost that replaces another boost of the same user is accepted.

    Raises:
        InvalidOrder: there are too many boosts already.
    """
    change, weights = order.set_weight, adapter.weights
    if not change.HasField("seconds") or weights.boost(change.user) is not None:
        return
    if weights.boosts >= min(MOST_BOOSTS, max(10, MOST_BOOSTED // max(len(adapter.users()), 1))):
        raise InvalidOrder(
            f"user {change.user!r}: {weights.boosts} users have a boost, which is the most at a "
            "time for this number of users; end one (`longshare weight unset USER`), or set a "
            "weight that lasts"
        )


def concerned_users(order: operator.Order, rows: Iterable[UserShare]) -> list[str]:
    """Return the users that a command may change: named users with their sub-roles, or all users.

    Args:
        order: The operator command.
        rows: The shares of all users.
    """
    if concerns_all(order):
        return [row.user for row in rows]
    named = set(named_users(order))
    return [
        row.user
        for row in rows
        if row.user in named or any(role in named for role in parents(row.user))
    ]


def _alike(former: Standing[str] | None, present: Standing[str] | None) -> bool:
    if former is None or present is None:
        return former is present
    return _subject_to_orders(former) == _subject_to_orders(present)


def _subject_to_orders(standing: Standing[str]) -> tuple[float, Mapping[str, float], float]:
    commitments = {
        name: commitment for name, commitment in standing.commitments.items() if commitment
    }
    return standing.weight, commitments, standing.inherited
