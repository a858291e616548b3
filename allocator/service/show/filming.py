"""Makes a film of an event log while it is replayed."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from allocator import __version__
from allocator.cluster.cooperative import run_to_completion
from allocator.cluster.engine import Engine
from allocator.cluster.reasons import ORDER
from allocator.contract import log_pb2 as log
from allocator.contract import operator_pb2 as operator
from allocator.film.camera import MOST_USERS, AgentNow, Camera, UserNow
from allocator.film.pack import About, pack
from allocator.film.page import page
from allocator.service.record.event_log import read
from allocator.service.show.explanations import BRIEFLY
from allocator.service.show.formatting import called
from allocator.service.show.shares import UserShare, user_shares

MOST_CLIENTS = 100
"""Frameworks that are asked in each frame what keeps them from more, each in each of its roles."""
_NANOSECONDS = 1_000_000_000
_STATES = {"offered": "", "full": ""}
"""What is said of agents that are not held back."""


def span(path: Path) -> tuple[float, int]:
    """Return how many seconds a log is about, and how many agents and frameworks, roughly.

    Raises:
        EventLogError: the file is no event log, or an entry is damaged.
        OSError: it cannot be read.
    """
    first: int | None = None
    last = largest = came = 0
    for entry in read(path):
        if entry.HasField("restore"):
            snapshot = entry.restore.snapshot
            when, came = snapshot.time_ns, 0
            largest = max(largest, len(snapshot.agents) + len(snapshot.frameworks))
        elif entry.apply.events.events:
            events = entry.apply.events.events
            when = events[-1].time_ns
            came += sum(
                each.HasField("add_agent") or each.HasField("add_framework") for each in events
            )
        else:
            continue
        first = when if first is None else min(first, when)
        last = max(last, when)
        largest = max(largest, came)
    return 0.0 if first is None else (last - first) / _NANOSECONDS, largest


class Filming:
    """Looks at a replay, and takes a picture whenever one is due.

    A picture costs O(users · resources + agents · holders), and O(different agents) for each of
    `MOST_CLIENTS` frameworks.

    Args:
        every: Seconds from one picture to the next.
    """

    def __init__(self, every: float) -> None:
        self._camera = Camera(every)
        self._engine: Engine | None = None
        self._begun = False

    def look(self, engine: Engine, entry: log.LogEntry) -> None:
        """Look at an engine after it has done what an entry says."""
        self._engine = engine
        now = engine.now
        if entry.HasField("restore") and not entry.restore.outcome.refusal:
            said = "a master sent a snapshot" if self._begun else "the recording begins"
            self._begun = True
            self._camera.mark(now, said)
        elif entry.HasField("order") and not entry.order.outcome.refusal:
            self._camera.mark(now, _in_words(entry.order.order))
        if self._camera.due(now):
            self._take(engine)

    def page(self, source: str, *notes: str) -> bytes | None:
        """Return the film as a file for a browser; None: nothing was there to be seen.

        Args:
            source: What it is of.
            notes: What a viewer must know, a sentence each.
        """
        engine = self._engine
        if engine is None:
            return None
        self._take(engine)
        policy = engine.pool.policy
        about = About(
            source=source,
            policy=policy.name,
            half_life=None if policy.tau is None else policy.tau * math.log(2.0),
            version=__version__,
            every=self._camera.every,
            notes=notes,
        )
        return page(pack(self._camera.reel, about))

    def _take(self, engine: Engine) -> None:
        self._camera.take(engine.now, _users(engine), _agents(engine))


def _users(engine: Engine) -> Iterator[UserNow]:
    waits = _waits(engine)
    passed_over = run_to_completion(engine.passed_over())
    rows = user_shares(engine)
    turns: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.rank):
        if row.standing.active and row.user not in passed_over:
            turns[row.parent] = turn = turns.get(row.parent, 0) + 1
        else:
            turn = 0
        yield _user(row, turn, waits.get(row.user, ""))


def _user(row: UserShare, turn: int, waits: str) -> UserNow:
    own = row.standing
    return UserNow(
        row.user,
        row.parent,
        own.share,
        row.owed,
        own.entitlement,
        turn,
        waits,
        own.allocation,
    )


def _waits(engine: Engine) -> dict[str, str]:
    """Return what keeps users from more: of their frameworks the one closest to an offer."""
    clients = engine.clients()
    if len(clients) > MOST_CLIENTS:
        first = frozenset(islice(engine.pool, MOST_USERS))
        urgent = (client for client in clients if first.intersection(engine.users_of(client)))
        clients = list(islice(urgent, MOST_CLIENTS))
    survey = run_to_completion(engine.survey())
    closest: dict[str, int] = {}
    for client in clients:
        why = run_to_completion(survey.look(client))
        if why is None:
            continue
        rank = ORDER.index(why.reason)
        for user in engine.users_of(client):
            closest[user] = min(closest.get(user, rank), rank)
    return {user: BRIEFLY[ORDER[rank]] for user, rank in closest.items()}


def _agents(engine: Engine) -> Iterator[AgentNow]:
    for place in engine.places():
        state = _STATES.get(place.state, place.state)
        name = place.hostname or place.agent
        yield AgentNow(name, state, place.total, place.held)


def _in_words(order: operator.Order) -> str:
    if order.WhichOneof("order") == "set_weight":
        change = order.set_weight
        weight = f"{change.weight:g}" if change.HasField("weight") else "what the settings say"
        return f"an operator set the weight of {called(change.user)} to {weight}"
    if order.WhichOneof("order") != "reset_commitments":
        return f"an operator ordered: {str(order.WhichOneof('order')).replace('_', ' ')}"
    users = order.reset_commitments.users
    whose = ", ".join(called(user) for user in users) if users else "everybody"
    return f"an operator forgave {whose} what was owed"
