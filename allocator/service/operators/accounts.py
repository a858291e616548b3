"""Answers from the accounting database: usage by user, role or day, and operators' commands."""

import heapq
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc

from allocator.contract import admin_pb2 as admin
from allocator.service.accounting import TooMuch
from allocator.service.accounting.accountant import Accountant
from allocator.service.loop.cooperative import Work, run_in_slices
from allocator.service.operators.grpc_errors import abort
from allocator.service.operators.refusals import Refusals

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from allocator.service.accounting.queries import By, Usage

T = TypeVar("T")
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_UNITS = {"cpus": "core", "gpus": "GPU", "mem": "MiB", "disk": "MiB", "tasks": "share"}
"""Unit in which Mesos counts each resource; usage is in this unit × seconds."""
_BY: "dict[str, By]" = {"user": "user", "role": "role", "day": "day", "": "user"}


async def usage(
    accountant: Accountant | None, request: admin.UsageRequest, context: _Context
) -> admin.UsageReply:
    """Return the usage of users, roles or days in the requested time, up to now.

    Pending usage is written to the database first. An invalid request, a missing database or a too
    long answer ends the call with an error status.

    Args:
        accountant: The accountant; None if the service keeps no accounts.
        request: The grouping, the interval in seconds since the epoch, and the users (none for
            all).
        context: The gRPC call.
    """
    accountant_required = await _required(accountant, context)
    from allocator.service.accounting.queries import UsageQuery  # noqa: PLC0415 - loads SQLAlchemy

    if request.by not in _BY:
        await abort(
            context,
            grpc.StatusCode.INVALID_ARGUMENT,
            f"usage by {request.by!r}; group it by user, role or day",
        )
    since, until, by = request.since, request.until, _BY[request.by]
    nested = by == "role" or accountant_required.is_tree
    if by == "role" and accountant_required.is_tree:
        by = "user"
    await accountant_required.write()
    users = frozenset(request.users)
    query = UsageQuery(since, until, by, users)
    while not await _read(accountant_required, query.advance, context):
        pass  # other callers take their turns between two parts
    reply = admin.UsageReply()
    await run_in_slices(_adding(map(_usage, query.rows()), reply.rows))
    await run_in_slices(_totalling(reply, nested=nested))
    return reply


async def audit(
    accountant: Accountant | None,
    refusals: Refusals,
    request: admin.AuditRequest,
    context: _Context,
) -> admin.AuditReply:
    """Return the operator commands given in the requested time, refused commands included.

    Args:
        accountant: The accountant; None if the service keeps no accounts.
        refusals: Counts of refused commands in the present window.
        request: The interval, in seconds since the epoch.
        context: The gRPC call, which a missing or slow database ends with an error status.
    """
    accountant_required = await _required(accountant, context)
    from allocator.service.accounting.queries import ordered  # noqa: PLC0415 - loads SQLAlchemy

    await accountant_required.write()
    (orders, earlier), (refused, earlier_refusals) = await _read(
        accountant_required,
        lambda connection: [
            ordered(connection, request.since, request.until, refused=is_refused)
            for is_refused in (False, True)
        ],
        context,
    )
    refused += [
        record for record in refusals.counts() if request.since <= record.at < request.until
    ]
    refused.sort(key=lambda order: order.at)
    fields = admin.Ordered.DESCRIPTOR.fields_by_name
    reply = admin.AuditReply(earlier=earlier, earlier_refusals=earlier_refusals)
    all_orders = heapq.merge(orders, refused, key=lambda order: order.at)
    messages = (
        admin.Ordered(**{name: getattr(order, name) for name in fields}) for order in all_orders
    )
    await run_in_slices(_adding(messages, reply.orders))
    return reply


def _adding(messages: Iterable[T], reply: "MutableSequence[T]") -> Work[None]:
    """Append messages to a reply, one per cooperative step, so that the event loop can run."""
    for message in messages:
        reply.append(message)
        yield


def _totalling(reply: admin.UsageReply, *, nested: bool) -> Work[None]:
    """Fill in the total of a usage reply, in cooperative steps.

    Usage of a role is part of the usage of its parents. If the reply has a row for a parent too,
    the total leaves out the role's row, and the row's field `within` names the parent.

    Args:
        reply: The reply, whose rows are complete.
        nested: Whether the rows are about roles, some of which may be parents of others.
    """
    total, names = reply.total, {row.user for row in reply.rows}
    for row in reply.rows:
        yield
        if nested:
            row.within = next((role for role in parents(row.user) if role in names), "")
        if row.within:
            continue
        for name, used in row.resources.items():
            _add(total.resources[name], used)
            total.resources[name].unit = used.unit
        _add(total, row)


def parents(role: str) -> Iterator[str]:
    """Yield the parents of a role, the nearest first: `a/b/c` has `a/b` and `a`."""
    while role := role.rpartition("/")[0]:
        yield role


def _add(total: "admin.Usage | admin.Used", part: "admin.Usage | admin.Used") -> None:
    """Add the numbers of a message to the same fields of a total; unset fields stay unset."""
    for field, value in part.ListFields():
        if isinstance(value, float | int) and field.name != "day":
            setattr(total, field.name, getattr(total, field.name) + value)


async def _read(accountant: Accountant, query: "Callable[[Connection], T]", context: _Context) -> T:
    try:
        result = await accountant.read(query)
    except TooMuch as error:
        await abort(
            context, grpc.StatusCode.FAILED_PRECONDITION, f"the question asks for too much: {error}"
        )
    if result is None:
        await abort(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            "the accounting database does not answer now; ask again, or see the log of the service",
        )
    return result


def _usage(row: "Usage") -> admin.Usage:
    return admin.Usage(
        user=row.user,
        day=row.start,
        resources={
            used.resource: admin.Used(
                held=used.held,
                overused=used.overused,
                owed=used.owed,
                entitled=used.entitled,
                unit=f"{_UNITS.get(used.resource, used.resource)}-seconds",
            )
            for used in row.used
        },
        offers=row.offers,
        refused=row.refused,
        wanted=row.wanted,
        waited=row.waited,
    )


async def _required(accountant: Accountant | None, context: _Context) -> Accountant:
    if accountant is None:
        await abort(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            "this service keeps no accounts: accounting.database is none, there is no store, or "
            "longshare[accounting] is not installed",
        )
    return accountant
