"""Accounts of users in a meter: written up to now, and handed over from one tree to the next."""

from typing import Any

from allocator.cooperative import Cooperative
from allocator.fairness.metering import AccountCheckpoint, Meter
from allocator.users.tree import UserTree


def hand_over_meter(
    meter: Meter, before: UserTree[Any] | None, after: UserTree[Any]
) -> Cooperative[None]:
    """Let a meter record the users of a new tree, in place of the users of the previous tree.

    For the time between the two trees, the smaller allocation of the two is counted. Costs O(users
    · resources). Generator for cooperative steps.

    Args:
        meter: The meter.
        before: The users that the meter has recorded; None at the start.
        after: The users that the meter records from now on.
    """
    checkpoints: dict[str, AccountCheckpoint] = {}
    tau = meter.tau
    if before is not None:
        before.count_capacity()
        yield from write_checkpoints(before, checkpoints)
    after.attach(meter)
    yield from after.clock.rank_in_steps()
    present: dict[str, AccountCheckpoint] = {}
    yield from write_checkpoints(after, present)
    if before is None:
        meter.first_checkpoints = present
    else:
        meter.bridge(checkpoints, present, after.pool.capacity, tau)


def write_checkpoints(
    users: UserTree[Any], checkpoints: dict[str, AccountCheckpoint]
) -> Cooperative[None]:
    """Add all users' usage up to now to their accounts, and collect the accounts' checkpoints.

    Generator for cooperative steps, with one step for each user.

    Args:
        users: The users.
        checkpoints: Receives the checkpoint of each user and virtual leaf, by name.
    """
    for name in users.names():
        checkpoint = users.count(name)
        if checkpoint is not None:
            checkpoints[name] = checkpoint
        yield
