"""Who is counted for what: users of the cluster at hand, offers they get, offers they give back."""

from allocator.cluster.clients import Clients
from allocator.cluster.frameworks import Client
from allocator.cluster.steps import Steps
from allocator.cluster.users import Users
from allocator.fairness.metering import Former, Meter


def passing_on(meter: Meter, before: Users | None, after: Users) -> Steps[None]:
    """Count users of another cluster from now on, as after a snapshot.

    What both knew is counted in between as far as it is certain. O(users · resources).

    Args:
        meter: Counts.
        before: Who was counted until now; None: nobody.
        after: Who is to be.
    """
    formers: dict[str, Former] = {}
    tau = meter.tau
    if before is not None:
        before.count_capacity()
        yield from counting(before, formers)
    after.attach(meter)
    present: dict[str, Former] = {}
    yield from counting(after, present)
    if before is None:
        meter.beginning = present
    else:
        meter.bridge(formers, present, after.pool.capacity, tau)


def counting(users: Users, formers: dict[str, Former]) -> Steps[None]:
    """Have counted what all users have had until now, one by one, and note how each stood then."""
    for name in users.names():
        former = users.count(name)
        if former is not None:
            formers[name] = former
        yield


def note_offer(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer that a run has made."""
    meter.offered(clients.shown(client), now)


def note_refusal(meter: Meter, clients: Clients, client: Client, now: float) -> None:
    """Count an offer that a client has given back, as a whole or in part."""
    meter.refused(clients.shown(client), now)
