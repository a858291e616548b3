"""Replay of event logs: recomputes each recorded decision, and compares the outcomes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
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
from allocator.users.memory import Memory
from allocator.users.orders import InvalidOrder


@dataclass(frozen=True, slots=True)
class Difference:
    """First entry of an event log whose recomputed outcome differs from the recorded outcome."""

    entry: int
    """Number of the entry, from 1; the header is 0."""
    sequence: int
    """Sequence number of the last event applied before the entry."""
    recorded: str
    """Recorded outcome, as text."""
    replayed: str
    """Replayed outcome, as text."""


@dataclass(slots=True)
class Replayed:
    """Result of replaying an event log: what was replayed, and the first difference."""

    entries: int = 0
    """Number of replayed entries."""
    events: int = 0
    offers: int = 0
    difference: Difference | None = None
    left_out: int = 0
    """Number of bytes of an incomplete entry at the end of the log."""
    other_policy: str = ""
    """Path of the recorded policy's file if the loaded policy has other content; else empty."""
    other_kinds: bool = False
    """Whether the log precedes `kinds_as_in_mesos`, so that resources with some labels can be of
    other kinds than in the recording."""


def new_engine(header: log.LogHeader, policy: Policy | None = None) -> Engine:
    """Return an engine in the initial state that a log's header records.

    Args:
        header: The log's header.
        policy: Policy to use in place of the recorded one; None for the recorded policy.

    Raises:
        EventLogError: the header cannot be read.
    """
    memory = _memory(header.memory, "the memory in the log's header")
    settings = decode_settings(header.settings, policy)
    try:
        return Engine(settings, memory=memory)
    except Exception as error:  # the file's content can cause any exception
        raise EventLogError(
            f"no engine can start from the log's header: {type(error).__name__} {error}"
        ) from error


def _memory(data: bytes, source: str) -> Memory | None:
    """Decode recorded commitments and operator settings; return None for empty data.

    Args:
        data: The encoded commitments and settings.
        source: Entry of the log that contains them, for the error.

    Raises:
        EventLogError: the data cannot be read.
    """
    try:
        return codec.decode(data) if data else None
    except StoreError as error:
        raise EventLogError(f"{source}: {error}") from error


def open_log(
    path: Path, cut_off: Callable[[int], None] = lambda _bytes: None
) -> tuple[log.LogHeader, Iterator[log.LogEntry]]:
    """Open an event log; return its header and an iterator over the other entries.

    Args:
        path: Path of the log.
        cut_off: Called if the last entry is incomplete; receives the entry's number of bytes.

    Raises:
        EventLogError: the file is not an event log, or ends before its header.
        OSError: the file cannot be read.
    """
    entries = read(path, cut_off)
    first = next(entries, None)
    if first is None:
        raise EventLogError(f"{path} ends before it has begun")
    return first.header, entries


def apply_entry(engine: Engine, entry: log.LogEntry) -> log.Outcome:
    """Apply the input of a log entry to an engine, and return the outcome.

    Returns:
        The decisions, or the error text of an input that the engine rejects.

    Raises:
        EventLogError: the entry contains commitments or operator settings that cannot be read.
    """
    outcome = log.Outcome()
    try:
        match entry.WhichOneof("entry"):
            case "restore":
                restored = entry.restore
                memory = _memory(restored.memory, "the memory with a snapshot")
                decisions = engine.restore(restored.options, restored.snapshot, memory)
                outcome.decisions = decisions.SerializeToString(deterministic=True)
            case "apply":
                decisions = engine.apply(entry.apply.events)
                outcome.decisions = decisions.SerializeToString(deterministic=True)
            case "unheard":
                engine.note_skipped_events(entry.unheard.events.events)
            case _:
                engine.order(entry.order.order)
    except (InvalidEvent, InvalidOrder) as error:
        outcome.refusal = str(error)
    return outcome


def recorded_outcome(entry: log.LogEntry) -> log.Outcome:
    """Return the recorded outcome of a log entry: the decisions, or the error's text."""
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
    path: Path,
    watch: Callable[[Engine, log.LogEntry], None] = lambda _engine, _entry: None,
    foresee: Callable[[Engine, log.LogEntry], None] | None = None,
) -> Replayed:
    """Recompute the decisions of an event log, up to the first difference from the recorded ones.

    Args:
        path: Path of the log.
        watch: Called with the engine and the entry after each entry without a difference; must not
            modify the engine.
        foresee: Called in the same way before each entry is applied.

    Raises:
        EventLogError: the file is not an event log, or is damaged.
        OSError: the file cannot be read.
    """
    replayed = Replayed()

    def note_cut_off(count: int) -> None:
        replayed.left_out = count

    header, entries = open_log(path, note_cut_off)
    engine = new_engine(header)
    replayed.other_kinds = not engine.settings.kinds_as_in_mesos
    recorded_origin, present_origin = recorded_code(header.settings), engine.settings.policy.origin
    if recorded_origin is not None and (
        present_origin is None or present_origin.sha256 != recorded_origin.sha256
    ):
        replayed.other_policy = recorded_origin.file
    for entry in entries:
        if foresee is not None:
            foresee(engine, entry)
        sequence = engine.sequence
        outcome, recorded = apply_entry(engine, entry), recorded_outcome(entry)
        replayed.entries += 1
        if outcome != recorded:
            replayed.difference = Difference(
                replayed.entries, sequence, _text(recorded), _text(outcome)
            )
            break
        replayed.events, replayed.offers = engine.statistics.events, engine.statistics.offers
        watch(engine, entry)
    return replayed


def _text(outcome: log.Outcome) -> str:
    """Return an outcome as text for people: the decisions, or why the engine rejected the input."""
    if outcome.refusal:
        return f"refused: {outcome.refusal}"
    try:
        decisions = contract.Decisions.FromString(outcome.decisions)
    except DecodeError:
        return f"{len(outcome.decisions)} bytes that are no decisions"
    return text_format.MessageToString(decisions) or "nothing"
