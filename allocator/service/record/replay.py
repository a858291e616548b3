"""Replays an event log: does an engine decide today what was decided then?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent, InvalidOrder
from allocator.cluster.memory import Memory
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.fairness.policies import Policy
from allocator.service.record.event_log import (
    EventLogError,
    decode_settings,
    read,
    recorded_code,
)
from allocator.service.store import StoreError, codec


@dataclass(frozen=True, slots=True)
class Difference:
    """The first entry for which another outcome came out."""

    entry: int
    """Number of the entry, from 1; the header is 0."""
    sequence: int
    """Of the last event that had been applied before."""
    recorded: str
    replayed: str


@dataclass(slots=True)
class Replayed:
    """What came of a replay."""

    entries: int = 0
    events: int = 0
    offers: int = 0
    difference: Difference | None = None
    left_out: int = 0
    """Bytes at the end of the log, of an entry that was cut off."""
    other_policy: str = ""
    """The file of the recorded policy, if that had another content than today's."""


def new_engine(header: log.LogHeader, policy: Policy | None = None) -> Engine:
    """Return an engine that begins as the recorded one did, perhaps with another policy.

    Raises:
        EventLogError: the header cannot be read.
    """
    memory = _memory(header.memory, "the memory in the log's header")
    settings = decode_settings(header.settings, policy)
    try:
        return Engine(settings, memory=memory)
    except Exception as error:  # whatever it is, it comes of what the file says
        raise EventLogError(
            f"no engine begins as the log's header says: {type(error).__name__} {error}"
        ) from error


def _memory(data: bytes, which: str) -> Memory | None:
    try:
        return codec.decode(data) if data else None
    except StoreError as error:
        raise EventLogError(f"{which}: {error}") from error


def header_and_rest(
    path: Path, cut_off: Callable[[int], None] = lambda _bytes: None
) -> tuple[log.LogHeader, Iterator[log.LogEntry]]:
    """Open a log.

    Args:
        path: The log.
        cut_off: Told how many bytes at the end are left out.

    Raises:
        EventLogError: it is none, or holds not even a header.
        OSError: it cannot be read.
    """
    entries = read(path, cut_off)
    first = next(entries, None)
    if first is None:
        raise EventLogError(f"{path} ends before it has begun")
    return first.header, entries


def perform(engine: Engine, entry: log.LogEntry) -> log.Outcome:
    """Do to an engine what an entry says, and return what came of it.

    Raises:
        EventLogError: the entry holds a memory that cannot be read.
    """
    outcome = log.Outcome()
    try:
        match entry.WhichOneof("entry"):
            case "restore":
                restored = entry.restore
                memory = _memory(restored.memory, "the memory beside a snapshot")
                decisions = engine.restore(restored.options, restored.snapshot, memory)
                outcome.decisions = decisions.SerializeToString(deterministic=True)
            case "apply":
                decisions = engine.apply(entry.apply.events)
                outcome.decisions = decisions.SerializeToString(deterministic=True)
            case "unheard":
                engine.unheard(entry.unheard.events.events)
            case _:
                engine.order(entry.order.order)
    except (InvalidEvent, InvalidOrder) as error:
        outcome.refusal = str(error)
    return outcome


def recorded_outcome(entry: log.LogEntry) -> log.Outcome:
    """Return what came of it when it was recorded."""
    match entry.WhichOneof("entry"):
        case "restore":
            return entry.restore.outcome
        case "apply":
            return entry.apply.outcome
        case "unheard":
            return log.Outcome()
        case _:
            return entry.order.outcome


def replay(
    path: Path, watch: Callable[[Engine, log.LogEntry], None] = lambda _engine, _entry: None
) -> Replayed:
    """Recompute every decision of a log, up to the first difference.

    Args:
        path: The log.
        watch: Shown the engine after each entry that gave what it gave then; may not touch it.

    Raises:
        EventLogError: it is no log, or damaged.
        OSError: it cannot be read.
    """
    replayed = Replayed()

    def leave_out(count: int) -> None:
        replayed.left_out = count

    header, entries = header_and_rest(path, leave_out)
    engine = new_engine(header)
    recorded_with, today = recorded_code(header.settings), engine.settings.policy.origin
    if recorded_with is not None and (today is None or today.sha256 != recorded_with.sha256):
        replayed.other_policy = recorded_with.file
    for entry in entries:
        before = engine.sequence
        outcome, recorded = perform(engine, entry), recorded_outcome(entry)
        replayed.entries += 1
        if outcome != recorded:
            replayed.difference = Difference(
                replayed.entries, before, _text(recorded), _text(outcome)
            )
            break
        replayed.events, replayed.offers = engine.statistics.events, engine.statistics.offers
        watch(engine, entry)
    return replayed


def _text(outcome: log.Outcome) -> str:
    if outcome.refusal:
        return f"refused: {outcome.refusal}"
    try:
        decisions = contract.Decisions.FromString(outcome.decisions)
    except DecodeError:
        return f"{len(outcome.decisions)} bytes that are no decisions"
    return text_format.MessageToString(decisions) or "nothing"
