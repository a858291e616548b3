"""Transfer of meters between clusters after a snapshot, and the metering of offers."""

from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.metering.role_meter import RoleMeter
from allocator.cluster.users import Users
from allocator.fairness.metering import AccountCheckpoint, Meter
from allocator.fairness.quantities import Quantities


def passing_on(
    meter: Meter, roles: RoleMeter | None, before: Clients | None, after: Clients
) -> Cooperative[None]:
    """Meter the users and roles of another cluster from now on, as after a snapshot.

    Usage during the gap is counted as far as both clusters agree on it. Costs O(users · resources),
    and O(clients) if roles are metered. Generator for cooperative steps.

    Args:
        meter: Meters users.
        roles: Meters roles; None if users are roles.
        before: The clients metered until now; None at the start.
        after: The clients to meter from now on.
    """
    yield from _passing_on_users(meter, None if before is None else before.users, after.users)
    if roles is not None:
        now, held = after.users.now, dict[str, Quantities]()
        for client in after:
            allocation = after.held(client)
            for role in roles.above(client.role) if allocation else ():
                held[role] = held.get(role, Quantities()) + allocation
            yield
        until = now if before is None else before.users.now
        yield from roles.resuming(until, now, held, reset=before is None)
        after.roles = roles


def _passing_on_users(meter: Meter, before: Users | None, after: Users) -> Cooperative[None]:
    """Move the users' meter from one cluster to another. Generator for cooperative steps."""
    checkpoints: dict[str, AccountCheckpoint] = {}
    tau = meter.tau
    if before is not None:
        before.count_capacity()
        yield from counting(before, checkpoints)
    after.attach(meter)
    present: dict[str, AccountCheckpoint] = {}
    yield from counting(after, present)
    if before is None:
        meter.beginning = present
    else:
        meter.bridge(checkpoints, present, after.pool.capacity, tau)


def counting(users: Users, checkpoints: dict[str, AccountCheckpoint]) -> Cooperative[None]:
    """Accrue the usage of all users until now, and store their account checkpoints.

    Generator for cooperative steps, one for each user.

    Args:
        users: The users to accrue.
        checkpoints: Receives the checkpoint of each user and virtual leaf, by name.
    """
    for name in users.names():
        checkpoint = users.count(name)
        if checkpoint is not None:
            checkpoints[name] = checkpoint
        yield


def note_offer(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer made to a client."""
    meter.offered(clients.shown(client), now)
    if clients.roles is not None:
        clients.roles.note_offer(client.role, now, refused=False)


def note_refusal(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer that a client declined, as a whole or in part."""
    meter.refused(clients.shown(client), now)
    if clients.roles is not None:
        clients.roles.note_offer(client.role, now, refused=True)
