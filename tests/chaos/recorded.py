"""Checks the records of services with the world's checkers, which share no code with the engine."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.service.record.replay import open_log, replay
from tests.world.checkers.checker import Violated
from tests.world.checkers.conservation import Conservation
from tests.world.checkers.debts import Debts


@dataclass(frozen=True, slots=True)
class _Place:
    """The key by which the checkers identify services and streams."""

    master: str = "the master"


@dataclass(frozen=True, eq=False)
class _Link:
    hello: _Place = _Place()


@dataclass(eq=False)
class Life:
    """One service from its start to its end."""

    number: int
    record: Path
    shares: list[admin.SharesReply] = field(default_factory=list)
    """The service's replies about users, in order."""
    host: _Place = _Place()


@dataclass
class Followed:
    """The result of a check of records."""

    entries: int = 0
    offers: int = 0
    compared: int = 0
    """Number of replies to operators compared with an exact twin."""
    wrong: list[str] = field(default_factory=list)


def follow(lives: Iterable[Life]) -> Followed:
    """Replay each record, and compare decisions and replies to operators with reference models."""
    followed, debts, conservation = Followed(), Debts(), Conservation()
    for life in lives:
        replayed = replay(life.record)
        followed.entries += replayed.entries
        followed.offers += replayed.offers
        if replayed.difference is not None:
            followed.wrong.append(f"{life.record.name} decides otherwise: {replayed.difference}")
        try:
            followed.compared += _follow(life, debts, conservation)
        except Violated as wrong:
            followed.wrong.append(f"{life.record.name}: {wrong}")
    return followed


def _follow(life: Life, debts: Debts, conservation: Conservation) -> int:
    known: Any = life
    link: Any = _Link()
    conservation.opened(link)
    header, entries = open_log(life.record)
    debts.logged(known, log.LogEntry(header=header))
    compared = messages = 0
    asked = defaultdict[int, list[admin.SharesReply]](list)
    for reply in life.shares:
        if not reply.meanwhile:
            asked[reply.cluster.messages].append(reply)
    for entry in entries:
        debts.logged(known, entry)
        for message, heard in _exchanged(entry):
            conservation.said(link, message)
            conservation.heard(link, heard)
        messages += not entry.HasField("unheard")
        for reply in asked.pop(messages, []):
            debts.shown(known, reply)
            compared += not debts.twin(known).unsure
    return compared


def _exchanged(entry: log.LogEntry) -> Iterator[tuple[contract.FromMaster, contract.ToMaster]]:
    """Yield the messages that master and service exchanged for a log entry."""
    match entry.WhichOneof("entry"):
        case "restore":
            message = contract.FromMaster(snapshot=entry.restore.snapshot)
            outcome = entry.restore.outcome
        case "apply":
            message = contract.FromMaster(events=entry.apply.events)
            outcome = entry.apply.outcome
        case _:
            return
    if outcome.refusal:
        heard = contract.ToMaster(snapshot_request=contract.SnapshotRequest(reason=outcome.refusal))
    else:
        decisions = contract.Decisions.FromString(outcome.decisions)
        heard = contract.ToMaster(decisions=decisions)
    yield message, heard
