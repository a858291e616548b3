"""Moves meters from one cluster to the next after a snapshot, and counts offers in meters."""

from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.metering.role_meter import RoleMeter
from allocator.cooperative import Cooperative
from allocator.fairness.metering import Meter
from allocator.fairness.quantities import Quantities
from allocator.users.metering import hand_over_meter


def hand_over_metering(
    meter: Meter, roles: RoleMeter | None, before: Clients | None, after: Clients
) -> Cooperative[None]:
    """Connect the meters to a new cluster, which a snapshot or a start has created.

    For the time between the two clusters, the smaller allocation of the two is counted.
    Costs O(users · resources), and O(clients) if roles are metered. Generator for cooperative
    steps.

    Args:
        meter: Meters users.
        roles: Meters roles; None if users are roles.
        before: The clients of the previous cluster; None at the start.
        after: The clients of the new cluster, metered from now on.
    """
    yield from hand_over_meter(meter, None if before is None else before.users, after.users)
    if roles is not None:
        now, held = after.users.now, dict[str, Quantities]()
        for client in after:
            allocation = after.held(client)
            for role in roles.with_ancestors(client.role) if allocation else ():
                held[role] = held.get(role, Quantities()) + allocation
            yield
        until = now if before is None else before.users.now
        yield from roles.resume_in_steps(until, now, held, reset=before is None)
        after.roles = roles


def note_offer(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer made to a client, for its users and, if metered, its roles.

    Args:
        meter: Meters users.
        clients: All clients, with the meter of roles, if any.
        client: The client that gets the offer.
        now: The time of the offer in seconds.
    """
    meter.offered(clients.display_names(client), now)
    if clients.roles is not None:
        clients.roles.note_offer(client.role, now, refused=False)


def note_refusal(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer that a client declined, as a whole or in part.

    Args:
        meter: Meters users.
        clients: All clients, with the meter of roles, if any.
        client: The client that declined.
        now: The time of the answer in seconds.
    """
    meter.refused(clients.display_names(client), now)
    if clients.roles is not None:
        clients.roles.note_offer(client.role, now, refused=True)
