"""Who is counted for what: users and roles of the cluster at hand, and their offers."""

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
    """Count users, and roles, of another cluster from now on, as after a snapshot.

    What both knew is counted in between as far as it is certain. O(users · resources), and
    likewise clients where roles are counted.

    Args:
        meter: Counts users.
        roles: Counts roles; None: these are the users.
        before: Who was counted until now; None: nobody.
        after: Who is to be.
    """
    yield from _passing_on_users(meter, None if before is None else before.users, after.users)
    if roles is not None:
        now, held = after.users.now, dict[str, Quantities]()
        for client in after:
            holds = after.held(client)
            for role in roles.above(client.role) if holds else ():
                held[role] = held.get(role, Quantities()) + holds
            yield
        until = now if before is None else before.users.now
        yield from roles.resuming(until, now, held, anew=before is None)
        after.roles = roles


def _passing_on_users(meter: Meter, before: Users | None, after: Users) -> Cooperative[None]:
    formers: dict[str, AccountCheckpoint] = {}
    tau = meter.tau
    if before is not None:
        before.count_capacity()
        yield from counting(before, formers)
    after.attach(meter)
    present: dict[str, AccountCheckpoint] = {}
    yield from counting(after, present)
    if before is None:
        meter.beginning = present
    else:
        meter.bridge(formers, present, after.pool.capacity, tau)


def counting(users: Users, formers: dict[str, AccountCheckpoint]) -> Cooperative[None]:
    """Have counted what all users have had until now, one by one, and note how each stood then."""
    for name in users.names():
        former = users.count(name)
        if former is not None:
            formers[name] = former
        yield


def note_offer(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer that a run has made."""
    meter.offered(clients.shown(client), now)
    if clients.roles is not None:
        clients.roles.note_offer(client.role, now, refused=False)


def note_refusal(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer that a client has given back, as a whole or in part."""
    meter.refused(clients.shown(client), now)
    if clients.roles is not None:
        clients.roles.note_offer(client.role, now, refused=True)
