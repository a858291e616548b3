"""Recorded animation (*film*) of a cluster, made from an event log while the log is replayed."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from allocator import __version__
from allocator.cluster.engine import Engine
from allocator.cluster.engine.wording import BRIEFLY
from allocator.cluster.reasons import REASON_ORDER
from allocator.contract import log_pb2 as log
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.film.camera import MOST_USERS, AgentNow, Camera, UserNow
from allocator.film.pack import About, pack
from allocator.film.page import page
from allocator.formatting import called
from allocator.service.record.event_log import read
from allocator.service.show.shares import UserShare, user_shares

MOST_CLIENTS = 100
"""Maximum number of clients (a framework in one role) per frame whose waiting reasons are
determined."""
_NANOSECONDS = 1_000_000_000
_STATES = {"offered": "", "full": ""}
"""Captions for states of agents that need none; any other state is its own caption."""


def span(path: Path) -> tuple[float, int]:
    """Return how long and how large an event log is, to choose the time between a film's frames.

    Args:
        path: Path of the log.

    Returns:
        Seconds from the first event to the last, and roughly the number of agents and frameworks.

    Raises:
        EventLogError: the file is not an event log, or an entry is damaged.
        OSError: the file cannot be read.
    """
    first: int | None = None
    last = largest = added = 0
    for entry in read(path):
        time_ns = _time_ns(entry)
        if time_ns is None:
            continue
        if entry.HasField("restore"):
            snapshot, added = entry.restore.snapshot, 0
            largest = max(largest, len(snapshot.agents) + len(snapshot.frameworks))
        else:
            added += sum(
                event.HasField("add_agent") or event.HasField("add_framework")
                for event in entry.apply.events.events
            )
        first = time_ns if first is None else min(first, time_ns)
        last = max(last, time_ns)
        largest = max(largest, added)
    return 0.0 if first is None else (last - first) / _NANOSECONDS, largest


class Filming:
    """Records frames of a film (animation of a cluster) at regular intervals of a log's replay.

    Call `look_before` before each log entry, `look` after it, and `page` at the end. A frame costs
    O(users · resources + agents · users that hold a part of an agent). It also costs O(groups of
    equal agents) for each of at most `MOST_CLIENTS` clients.

    Args:
        every: Seconds of the master's clock between two frames.
    """

    def __init__(self, every: float) -> None:
        self._camera = Camera(every)
        self._engine: Engine | None = None
        self._begun = False

    def look_before(self, engine: Engine, entry: log.LogEntry) -> None:
        """Record a frame if an interval ends between the previous log entry and this one.

        Args:
            engine: The engine, before it applies the entry.
            entry: The log entry.
        """
        time_ns = _time_ns(entry)
        if not self._begun or time_ns is None:
            return
        if self._camera.due_between(engine.now, time_ns / _NANOSECONDS):
            self._take(engine)

    def look(self, engine: Engine, entry: log.LogEntry) -> None:
        """Record a caption for each snapshot and operator command.

        Args:
            engine: The engine, after it has applied the entry.
            entry: The log entry.
        """
        self._engine = engine
        now = engine.now
        if entry.HasField("restore") and not entry.restore.outcome.refusal:
            caption = "a master sent a snapshot" if self._begun else "the recording begins"
            self._begun = True
            self._camera.mark(now, caption)
        elif entry.HasField("order") and not entry.order.outcome.refusal:
            self._camera.mark(now, _in_words(entry.order.order))

    def page(self, source: str, *notes: str) -> bytes | None:
        """Return an HTML page that plays the film; None if `look` was never called.

        Args:
            source: Name of the event log, shown on the page.
            notes: Sentences shown to the viewer.
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


def _time_ns(entry: log.LogEntry) -> int | None:
    """Return the time of a log entry by the master's clock; None if the entry has none."""
    if entry.HasField("restore"):
        return entry.restore.snapshot.time_ns
    events = entry.apply.events.events
    return events[-1].time_ns if events else None


def _users(engine: Engine) -> Iterator[UserNow]:
    waits = _waits(engine)
    passed_over = run_to_completion(engine.unservable_users())
    rows = user_shares(engine)
    turns: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.rank):
        if row.standing.active and row.user not in passed_over:
            turns[row.parent] = turn = turns.get(row.parent, 0) + 1
        else:
            turn = 0
        yield _user(row, turn, waits.get(row.user, ""))


def _user(row: UserShare, turn: int, waiting: str) -> UserNow:
    standing = row.standing
    return UserNow(
        row.user,
        row.parent,
        standing.share,
        row.dominant_commitment,
        standing.entitlement,
        turn,
        waiting,
        standing.allocation,
    )


def _waits(engine: Engine) -> dict[str, str]:
    """Return in a few words why each waiting user gets no offer: user → reason.

    A user with several waiting clients gets the reason of the client that is closest to an offer.
    """
    clients = engine.clients()
    if len(clients) > MOST_CLIENTS:
        first = frozenset(islice(engine.pool, MOST_USERS))
        urgent = (client for client in clients if first.intersection(engine.users_of(client)))
        clients = list(islice(urgent, MOST_CLIENTS))
    survey = run_to_completion(engine.survey())
    closest: dict[str, int] = {}
    for client in clients:
        why = run_to_completion(survey.explain(client))
        if why is None:
            continue
        rank = REASON_ORDER.index(why.reason)
        for user in engine.users_of(client):
            closest[user] = min(closest.get(user, rank), rank)
    return {user: BRIEFLY[REASON_ORDER[rank]] for user, rank in closest.items()}


def _agents(engine: Engine) -> Iterator[AgentNow]:
    for agent in engine.machine_summaries():
        state = _STATES.get(agent.state, agent.state)
        name = agent.hostname or agent.machine
        yield AgentNow(name, state, agent.total, agent.held)


def _in_words(order: operator.Order) -> str:
    if order.WhichOneof("order") == "set_weight":
        setting = order.set_weight
        weight = f"{setting.weight:g}" if setting.HasField("weight") else "the settings' value"
        return f"an operator set the weight of {called(setting.user)} to {weight}"
    if order.WhichOneof("order") != "reset_commitments":
        return f"an operator ordered: {str(order.WhichOneof('order')).replace('_', ' ')}"
    users = order.reset_commitments.users
    names = ", ".join(called(user) for user in users) if users else "all users"
    return f"an operator set the commitments of {names} to zero"
