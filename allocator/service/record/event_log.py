"""Event log: a file with all inputs and all decisions of an engine.

`longshare replay` recomputes the decisions bit for bit, because an engine reads no clock and draws
no unseeded random number.
"""

import io
import json
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import IO, Any

import structlog
from google.protobuf import proto
from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator import __version__, plugins
from allocator.cluster.agents.placement_constraints import Constraint, Hosts
from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import Cooperative, InParts, Part
from allocator.fairness.metering import Meter
from allocator.fairness.policies import Policy
from allocator.fairness.policies.policy import Origin
from allocator.fairness.quantities import Quantities
from allocator.files import open_for_writing
from allocator.service.store import codec
from allocator.users.memory import Memory
from allocator.users.orders import InvalidOrder
from allocator.users.settings import DeclaredUser

MAGIC = b"longshare event log 1\n"
"""First bytes of an event log."""
LARGEST = 2**31 - 1
"""Maximum size of an entry in bytes, because protobuf allows no larger message."""

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that decoding invalid settings can raise."""

_log = structlog.get_logger(__name__)


class EventLogError(Exception):
    """An event log cannot be read or replayed; the message states the reason."""


class EventLog:
    """Writer of a new event log. An existing file is renamed first.

    Args:
        path: Path of the log.
        apart: Other files of the service, which the log must never overwrite.

    Raises:
        OSError: the file cannot be written, or the existing file cannot be renamed.
    """

    def __init__(self, path: Path, apart: Collection[Path] = ()) -> None:
        self.failed = False
        """True if the log has ended early because of a write error."""
        self._path = path
        set_aside(path)
        opener = partial(open_for_writing, apart=apart)
        self._file: IO[bytes] = open(path, "wb", opener=opener)  # noqa: SIM115 - closed by `close`
        self._try(lambda: self._file.write(MAGIC))
        self.flush()

    def write(self, entry: log.LogEntry) -> None:
        """Append an entry to the log; a write error is logged, not raised, and stops logging."""
        framed = io.BytesIO()
        proto.serialize_length_prefixed(entry, framed)
        self._try(lambda: self._file.write(framed.getbuffer()))

    def flush(self) -> None:
        """Pass entries that are buffered in this process to the operating system."""
        self._try(self._file.flush)

    def close(self) -> None:
        """Close the file."""
        self.flush()
        with suppress(OSError):  # the file may have failed before
            self._file.close()

    def _try(self, operation: Callable[[], object]) -> None:
        """Run a write operation, unless an earlier error has stopped the logging.

        An error is logged, not raised, and stops the logging.
        """
        if self.failed:
            return
        try:
            operation()
        except OSError as error:
            self.failed = True
            _log.error(
                "event log stopped, because its file cannot be written",
                file=str(self._path),
                reason=error.strerror,
            )


class LoggedEngine(Engine):
    """An engine that writes all its inputs and decisions to an event log.

    Args:
        settings: The operator's settings.
        event_log: The log to write.
        memory: Stored commitments and operator settings to continue from; None if nothing is
            stored.
        before_change: Callback invoked before each change of the state, as for `Engine`.
        meter: Meter of the users' usage, as for `Engine`.
    """

    def __init__(
        self,
        settings: EngineSettings,
        event_log: EventLog,
        *,
        memory: Memory | None = None,
        before_change: Callable[[float], Cooperative[None] | None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(settings, memory=memory, before_change=before_change, meter=meter)
        self._event_log = event_log
        header = log.LogHeader(longshare_version=__version__, settings=encode_settings(settings))
        if memory is not None:
            header.memory = codec.encode(memory)
        event_log.write(log.LogEntry(header=header))

    @override
    def restore_in_steps(
        self,
        options: contract.Options,
        snapshot: contract.Snapshot,
        memory: Memory | None = None,
    ) -> Cooperative[contract.Decisions]:
        entry = log.LogEntry(restore=log.LogRestore(options=options, snapshot=snapshot))
        if memory is not None:
            entry.restore.memory = codec.encode(memory)
        steps = super().restore_in_steps(options, snapshot, memory)
        return (yield from self._logged(entry, entry.restore.outcome, steps))

    @override
    def apply_in_steps(
        self, events: contract.Events, slice_offers: int = 0
    ) -> InParts[contract.Decisions, contract.Decisions]:
        entry = log.LogEntry(apply=log.LogApply(events=events))
        steps = super().apply_in_steps(events, slice_offers)
        return (yield from self._logged(entry, entry.apply.outcome, steps))

    @override
    def note_skipped_events(self, events: Iterable[contract.Event]) -> None:
        ignored = contract.Events(events=events)
        self._event_log.write(log.LogEntry(unheard=log.LogUnheard(events=ignored)))
        super().note_skipped_events(ignored.events)

    @override
    def order(self, order: operator.Order) -> None:
        entry = log.LogEntry(order=log.LogOrder(order=order))
        try:
            super().order(order)
        except InvalidOrder as error:
            entry.order.outcome.refusal = str(error)
            raise
        finally:
            self._event_log.write(entry)

    def _logged(
        self,
        entry: log.LogEntry,
        outcome: log.Outcome,
        steps: Generator[Part, None, contract.Decisions],
    ) -> Generator[Part, None, contract.Decisions]:
        """Run an engine's steps, then log the entry with the resulting decisions or error.

        Args:
            entry: The entry to log, which contains the engine's input.
            outcome: Part of the entry that receives the decisions, or the text of the error.
            steps: The engine's steps.
        """
        try:
            decisions = yield from steps
            outcome.decisions = self.whole_answer().SerializeToString(deterministic=True)
        except InvalidEvent as error:
            outcome.refusal = str(error)
            raise
        finally:
            self._event_log.write(entry)
        return decisions


def set_aside(path: Path) -> Path | None:
    """Rename an existing log to PATH.N, with N above the highest number in use.

    No existing file is replaced.

    Args:
        path: Path of the log to be written. Devices, pipes and empty files are left in place.

    Returns:
        The new path of the old log; None if nothing was renamed.

    Raises:
        OSError: the file cannot be renamed.
    """
    if not path.is_file() or not path.stat().st_size:
        return None
    pattern = re.compile(re.escape(path.name) + r"\.([0-9]{1,9})")
    matches = (pattern.fullmatch(sibling.name) for sibling in path.parent.iterdir())
    number = max((int(match[1]) for match in matches if match), default=0) + 1
    while os.path.lexists(path.with_name(f"{path.name}.{number}")):
        number += 1
    new_path = path.with_name(f"{path.name}.{number}")
    path.rename(new_path)
    _log.info("former event log renamed", file=str(new_path))
    return new_path


def read(
    path: Path, cut_off: Callable[[int], None] = lambda _bytes: None
) -> Iterator[log.LogEntry]:
    """Yield the entries of an event log, the header first.

    Args:
        path: Path of the log; entries appended after the start are not read.
        cut_off: Called if the last entry is incomplete, as a killed service leaves it; receives the
            entry's number of bytes.

    Raises:
        EventLogError: the file is not an event log, or an entry is damaged.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise EventLogError(f"{path} is not an event log of this version of Longshare")
        expected = "header"
        while (offset := file.tell()) < size:
            try:
                entry = _read_entry(file, size)
            except (DecodeError, ValueError) as error:
                raise EventLogError(f"{path} is damaged at byte {offset}: {error}") from error
            if entry is None:
                cut_off(size - offset)
                return
            kind = entry.WhichOneof("entry")
            if kind is None or (kind == "header") != (expected == "header"):
                raise EventLogError(f"{path}: entry at byte {offset} is {kind}, not {expected}")
            expected = "restore, apply, unheard or order"
            yield entry


def _read_entry(file: IO[bytes], size: int) -> log.LogEntry | None:
    """Read one entry of an event log; return None if the file ends within the entry.

    Args:
        file: The file, at the beginning of an entry.
        size: Size of the file in bytes.

    Raises:
        ValueError: the entry's length is invalid.
        DecodeError: the entry's content is invalid.
    """
    length = _read_length(file)
    if length is None:
        return None
    start = file.tell()
    # A damaged length must neither look like the end of the file nor allocate memory. An entry has
    # one field, whose own length must agree with the entry's.
    file.seek(1, io.SEEK_CUR)
    inner_length = _read_length(file)
    if inner_length is not None and file.tell() - start + inner_length != length:
        raise ValueError(f"a length of {length} bytes, of which {inner_length} are accounted for")
    if length > LARGEST:
        raise ValueError(f"a length of {length} bytes, more than a message can have")
    if start + length > size:
        return None
    file.seek(start)
    return log.LogEntry.FromString(file.read(length))


def _read_length(file: IO[bytes]) -> int | None:
    """Read an entry's length (a protobuf varint); return None if the file ends within it.

    Raises:
        ValueError: the length has more bytes than a message's length can have.
    """
    value = 0
    for shift in range(0, 35, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("a length of more bytes than a message can have")


def encode_settings(settings: EngineSettings) -> bytes:
    """Encode an engine's settings as JSON, for the header of an event log."""
    plain: dict[str, Any] = {}
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, Policy):
            parameters = value.model_dump(exclude_none=True)
            value = {"name": value.name, "parameters": parameters, **_origin_fields(value.origin)}
        elif setting.name == "limits":
            value = asdict(value)
        elif setting.name == "users":
            value = [asdict(user) for user in value]
        elif setting.name == "demands":
            value = {name: demand.to_doubles() for name, demand in value.items()}
        elif setting.name == "constraints":
            value = {
                name: {
                    "whitelist": constraint.whitelist.items,
                    "blacklist": constraint.blacklist.items,
                    "attributes": constraint.attributes,
                }
                for name, constraint in value.items()
            }
        plain[setting.name] = value
    return json.dumps(plain, sort_keys=True).encode()


def _origin_fields(origin: Origin | None) -> dict[str, Any]:
    """Return the JSON field that records which file an external policy came from.

    The result is empty for a built-in policy.
    """
    return {} if origin is None else {"code": asdict(origin)}


def recorded_code(data: bytes) -> Origin | None:
    """Return the origin (file) of an external policy in recorded settings.

    The result is None for a built-in policy.

    Args:
        data: Settings, as encoded by `encode_settings`.

    Raises:
        EventLogError: the data are not settings.
    """
    try:
        code = json.loads(data)["policy"].get("code")
        return None if code is None else Origin(**{name: str(code[name]) for name in _ORIGIN})
    except _UNREADABLE as error:
        raise EventLogError(
            f"settings in the log's header cannot be read: {type(error).__name__} {error}"
        ) from error


_ORIGIN = [each.name for each in fields(Origin)]


def _policy(plain: Mapping[str, Any], code: Origin | None) -> Policy:
    """Create the policy of an event log.

    Args:
        plain: The policy's recorded name and parameters.
        code: The recorded origin of an external policy; None for a built-in policy.

    Raises:
        EventLogError: the external policy's file is not loaded.
    """
    try:
        return plugins.create(plain["name"], plain["parameters"])
    except ValueError as error:
        if code is None:
            raise
        raise EventLogError(
            f"the log was recorded with a policy of {code.file}: {error}; give that file with "
            "--policy-file (longshare replay LOG --save-policy FILE writes it)"
        ) from error


def decode_settings(data: bytes, policy: Policy | None = None) -> EngineSettings:
    """Decode settings that `encode_settings` has encoded.

    Args:
        data: The encoded settings.
        policy: Policy to use in place of the recorded one; None for the recorded policy.

    Raises:
        EventLogError: the data are not settings, or of a version with other settings.
    """
    try:
        plain: Mapping[str, Any] = json.loads(data)
        recorded = _policy(plain["policy"], recorded_code(data))
        return EngineSettings(
            **{
                **plain,
                "policy": policy or recorded,
                "limits": Limits(**plain.get("limits", {})),
                "users": tuple(DeclaredUser(**user) for user in plain["users"]),
                "demands": {
                    name: Quantities.from_doubles(demand)
                    for name, demand in plain["demands"].items()
                },
                "constraints": {
                    name: Constraint(
                        Hosts(tuple(constraint["whitelist"])),
                        Hosts(tuple(constraint["blacklist"])),
                        tuple((attribute, value) for attribute, value in constraint["attributes"]),
                    )
                    for name, constraint in plain.get("constraints", {}).items()
                },
            }
        )
    except _UNREADABLE as error:
        raise EventLogError(
            f"settings in the log's header cannot be read: {type(error).__name__} {error}"
        ) from error
