"""Carries out an operator's commands on the users: weights and commitments."""

from collections.abc import Iterable
from typing import Any

from allocator.contract import operator_pb2 as operator
from allocator.fairness.policies.policy import Policy
from allocator.users.tree import UserTree

LONGEST_BOOST = 366 * 86400.0
"""Maximum length of a boost, in seconds."""
MOST_NAMED = 1000
"""Maximum number of resources in a command, and of users beyond the number of known users."""


class InvalidOrder(ValueError):  # noqa: N818 - the name describes the order
    """An operator's command cannot be executed; nothing has changed."""


def named_users(order: operator.Order) -> list[str]:
    """Return the users that an operator's command names; empty if it names no users."""
    match order.WhichOneof("order"):
        case "set_weight":
            return [order.set_weight.user]
        case "set_commitments":
            return [order.set_commitments.user]
        case "reset_commitments":
            return list(order.reset_commitments.users)
        case "forget_users":
            return list(order.forget_users.users)
        case _:
            return []


def concerns_users(order: operator.Order) -> bool:
    """Return whether an operator's command concerns named users or all users.

    The names are not read, because they can be many.
    """
    kind = order.WhichOneof("order")
    return kind is not None and (kind != "forget_users" or bool(order.forget_users.users))


def require_few_names(order: operator.Order, known: int) -> None:
    """Refuse a command with too many names, without reading the names.

    A command that names each known user once is accepted.

    Args:
        order: The operator's command, as parsed.
        known: Number of known users.

    Raises:
        InvalidOrder: The command has too many names.
    """
    users = max(len(order.reset_commitments.users), len(order.forget_users.users))
    if users > known + MOST_NAMED:
        raise InvalidOrder(
            f"the command names {users:,} users, and the service knows {known:,}; name each user "
            "once"
        )
    resources = len(order.set_commitments.commitments)
    if resources > MOST_NAMED:
        raise InvalidOrder(
            f"the command names {resources:,} resources; at most {MOST_NAMED:,} are accepted"
        )


def concerns_all(order: operator.Order) -> bool:
    """Return whether an operator's command concerns all users, and names none of them."""
    return order.HasField("reset_commitments") and not order.reset_commitments.users


def carry_out(order: operator.Order, users: UserTree[Any], policy: Policy) -> None:
    """Carry out an operator's command on the users, at the users' current time.

    Args:
        order: The operator's command, as parsed.
        users: The users to change.
        policy: The policy, which decides whether users can have commitments.

    Raises:
        InvalidOrder: The command is malformed, or names unknown users or resources. No change was
            made.
    """
    match order.WhichOneof("order"):
        case "set_weight":
            _set_weight(order.set_weight, users)
        case "reset_commitments":
            named = dict.fromkeys(order.reset_commitments.users)
            _require_known(named, users)
            if not named:
                users.forgive_all()
            for user in named:
                users.reset_commitments(user)
        case "set_commitments":
            _set_commitments(order.set_commitments, users, policy)
        case "forget_users":
            _forget(dict.fromkeys(order.forget_users.users), users)
        case _:
            raise InvalidOrder("the service does not know this kind of order; upgrade the service")


def _set_weight(order: operator.SetWeight, users: UserTree[Any]) -> None:
    _require_known([order.user], users)
    weight = order.weight if order.HasField("weight") else None
    seconds = order.seconds if order.HasField("seconds") else None
    if seconds is not None and (weight is None or not 0.0 < seconds <= LONGEST_BOOST):
        raise InvalidOrder(
            f"user {order.user!r}: a boost needs a weight, and a duration above 0 and of at most "
            f"{LONGEST_BOOST / 86400:.0f} days; the order has {seconds:g} s"
        )
    try:
        users.order_weight(order.user, weight, seconds)
    except ValueError as error:
        raise InvalidOrder(str(error)) from error


def _set_commitments(order: operator.SetCommitments, users: UserTree[Any], policy: Policy) -> None:
    _require_known([order.user], users)
    if policy.tau is None:
        raise InvalidOrder(f"the policy {policy.name!r} keeps no commitments")
    capacity = users.pool.capacity
    remaining = "every other resource" if order.commitments else "every resource"
    for name, part in {**order.commitments, remaining: order.others}.items():
        if not 0.0 <= part <= 1.0:
            raise InvalidOrder(
                f"user {order.user!r}: a commitment of {part:g} of {name} is not a fraction of the "
                "cluster, from 0 to 1"
            )
    known = {*capacity, "tasks"} if order.keep_others and policy.counts_tasks else {*capacity}
    unknown = sorted(name for name in order.commitments if capacity and name not in known)
    if unknown:
        raise InvalidOrder(
            f"the cluster has no {', '.join(map(repr, unknown))}; it has {', '.join(capacity)}"
        )
    commitments, rest = dict.fromkeys(capacity, order.others), order.others
    standing = users.standing(order.user) if order.keep_others else None
    if standing is not None:
        commitments, rest = standing.commitments, standing.inherited
    users.set_commitments(order.user, commitments | dict(order.commitments), rest)


def _forget(named: Iterable[str], users: UserTree[Any]) -> None:
    named = list(named)
    if not named:
        raise InvalidOrder("no user is named; name the users to forget")
    _require_known(named, users)
    reasons = [reason for user in named if (reason := users.reason_to_keep(user)) is not None]
    if reasons:
        raise InvalidOrder("; ".join(reasons))
    for user in named:
        if user in users:  # unless forgotten together with a user above
            users.forget(user)


def _require_known(named: Iterable[str], users: UserTree[Any]) -> None:
    unknown = sorted({user for user in named if user not in users})
    if unknown:
        raise InvalidOrder(f"no such user: {', '.join(unknown)}")
