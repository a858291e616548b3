"""Encoding of commitments and operator settings in rows, so that a save writes only changed rows.

Each user has a row with its commitment trajectory, in canonical JSON whose numbers are read back
exactly. One further row, the head, contains format, version, time of the latest save, and a
checksum. The checksum is a sum of the digests of all rows, updated with each changed row. The
reader thus detects damaged, lost or outdated rows.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from allocator.complaints import complaints
from allocator.cooperative import Cooperative
from allocator.service.scheduler_commands import Scheduler
from allocator.service.store import StoreDamaged, StoreError
from allocator.service.store.codec import (
    FORMAT,
    VERSIONS,
    Accumulated,
    Amount,
    Places,
    Positive,
    are_owned,
    decode_places,
    encode_places,
    optional_fields,
    plain,
    version_of,
)
from allocator.service.store.schedulers import require_scheduler
from allocator.users.memory import (
    NO_USE,
    AccumulatedUse,
    Boost,
    Memory,
    MemoryChanges,
    OccupiedPlaces,
    RememberedUser,
    StoredTrajectory,
)

_WITH_SCHEDULER = 6
"""Version of rows whose head states the scheduler. `version_of` returns the other versions."""
_READABLE = range(VERSIONS.start, _WITH_SCHEDULER + 1)
"""Versions of rows that can be read."""
_MODULUS = 2**256
_ENCODER = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":"))


class _Row(BaseModel):
    """JSON form of one user's row (commitments, weight); pydantic validates stored rows with it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    commitments: dict[str, Amount]
    others: Amount
    """Commitment for each resource without an entry in `commitments`."""
    overuse: dict[str, Amount]
    since: Amount
    """Time of the commitments, in seconds since the Unix epoch."""
    tau: Positive | None
    """Time constant of the decay, in seconds; None without decay."""
    weight: Positive | None
    boost: tuple[Positive, Amount] | None = None
    accumulated: Accumulated = NO_USE


class _Head(BaseModel):
    """JSON form of the head row (version, time, checksum); pydantic validates heads with it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: str
    version: int
    sum: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    time: Amount
    """Time of the latest save, in seconds since the Unix epoch."""
    places: Places | None = None
    scheduler: Scheduler | None = None


_Read = TypeVar("_Read", bound=BaseModel)


class StoreRows:
    """The encoded rows that a store should contain, one per user, and which are not written yet.

    A store calls `take` with the changes of commitments and settings. It then writes `unwritten`
    and `head`, and calls `mark_written`.

    Args:
        scheduler: The scheduler that the head states; None for none, as in former versions.
    """

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self._scheduler = scheduler
        self._time = 0.0
        self._places: Mapping[str, OccupiedPlaces] = {}
        self._rows: dict[str, tuple[bytes, int]] = {}
        """By user, the encoded row and the number that it adds to the checksum."""
        self._sum = 0
        self._boosted: set[str] = set()
        """Users with a boost, which is a temporary weight."""
        self._accumulating: set[str] = set()
        """Users with accumulated use."""
        self._needless: set[str] = set()
        """Users whose row no successor needs (`StoredTrajectory.needed`)."""
        self._unwritten: set[str] = set()
        """Users whose row has been changed or removed since the last write."""

    def take(self, changes: MemoryChanges) -> Cooperative[None]:
        """Encode changed commitments and settings into rows, in cooperative steps of one user each.

        Args:
            changes: The changes since the previous call.

        Raises:
            ValueError: a number is not finite; no change has been applied.
        """
        encoded = {}
        for user, trajectory in changes.courses.items():
            encoded[user] = _encode_trajectory(trajectory)
            yield
        gone = self._rows.keys() - encoded.keys() if changes.complete else changes.removed
        for user in gone:
            if user in self._rows:
                self._sum -= self._rows.pop(user)[1]
                self._unwritten.add(user)
                for subset in (self._boosted, self._accumulating, self._needless):
                    subset.discard(user)
        for user, row in encoded.items():
            trajectory = changes.courses[user]
            for subset, belongs in (
                (self._boosted, trajectory.remembered.boost is not None),
                (self._accumulating, any(trajectory.remembered.accumulated)),
                (self._needless, not trajectory.needed),
            ):
                (subset.add if belongs else subset.discard)(user)
            previous = self._rows.get(user)
            if previous is not None:
                if previous[0] == row:
                    continue
                self._sum -= previous[1]
            addend = _addend(user, row)
            self._rows[user] = row, addend
            self._sum += addend
            self._unwritten.add(user)
            yield
        self._time, self._places = changes.time, changes.places

    def unwritten(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield each user whose row has changed since the last write, with the row.

        A None in place of the row means that the row has to be deleted.
        """
        for user in self._unwritten:
            row = self._rows.get(user)
            yield user, None if row is None else row[0]

    def mark_written(self) -> None:
        """Record that all rows are in the store, so that `unwritten` yields nothing."""
        self._unwritten.clear()

    def all(self, left_out: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
        """Yield users with their encoded rows, for a store that writes all rows at once.

        Args:
            left_out: Users that are left out.
        """
        for user, (row, _) in self._rows.items():
            if user not in left_out:
                yield user, row

    def head(self, left_out: Collection[str] = ()) -> bytes:
        """Return the encoded head row: format, version, time, and a checksum of rows.

        Args:
            left_out: Users whose rows the store does not contain.
        """
        version = _WITH_SCHEDULER
        if self._scheduler is None:
            version = version_of(
                accumulated=bool(self._accumulating),
                owned=are_owned(self._places),
                placed=bool(self._places),
                boosted=bool(self._boosted),
            )
        claims = _head_fields(self._time, version, self._places, self._scheduler)
        present = self._sum - sum(self._rows[user][1] for user in left_out)
        return _canonical({**claims, "sum": _checksum(present, claims)})

    @property
    def needless(self) -> frozenset[str]:
        """Users whose rows may be left out, because no successor needs them."""
        return frozenset(self._needless)

    def least_first(self) -> Cooperative[list[str]]:
        """Return users with commitments, over-use or accumulated use, users with the least first.

        Generator for cooperative steps of one user each. The result lacks users whose rows no
        successor needs, users with a weight of an operator, and users without such amounts.
        """
        largest = dict[str, tuple[float, float]]()
        for user, (row, _) in self._rows.items():
            yield
            trajectory = _decode_trajectory(user, row)
            at_present = trajectory.at(self._time)
            amounts = (
                *at_present.commitments.values(),
                *at_present.overuse.values(),
                at_present.others,
            )
            is_ordered = at_present.weight is not None or at_present.boost is not None
            accumulated = at_present.accumulated.amount
            if any((*amounts, accumulated)) and not is_ordered:
                largest[user] = max(amounts), accumulated
        return sorted(largest, key=lambda user: (largest[user], user))


def decode_memory(
    head: bytes, rows: Iterable[tuple[str, bytes]], scheduler: Scheduler | None = None
) -> Memory:
    """Decode commitments and operator settings from rows; commitments are as of the latest save.

    Args:
        head: The encoded head, which contains format, version, time and checksum.
        rows: Each user with its encoded row, in any order.
        scheduler: The scheduler whose users are expected; None for any scheduler.

    Raises:
        StoreError: the data are invalid or inconsistent, have an unknown version, or belong to
            another scheduler.
    """
    content = plain(head)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreDamaged("this is not a store of Longshare")
    if content.get("version") not in _READABLE:
        raise StoreError(
            f"written in version {content.get('version')} of the format, this Longshare knows "
            f"versions {_READABLE[0]} to {_READABLE[-1]}; use the release that wrote it, or a "
            "newer one"
        )
    checked = _validated(_Head, head, "head")
    pairs = sorted(rows)
    places = decode_places(checked.places or {})
    claims = _head_fields(checked.time, checked.version, places, checked.scheduler)
    # JSON can write a number in several ways; only the canonical one is valid
    as_written = head == _canonical({**claims, "sum": checked.sum})
    if not as_written or _checksum(sum(_addend(*pair) for pair in pairs), claims) != checked.sum:
        raise StoreDamaged("damaged: the checksum does not match the content")
    courses = {user: _decode_trajectory(user, row) for user, row in pairs}
    tau = next(
        (trajectory.tau for trajectory in courses.values() if trajectory.tau is not None), None
    )
    users = {user: trajectory.at(checked.time) for user, trajectory in courses.items()}
    memory = Memory(checked.time, users, tau, places)
    require_scheduler(scheduler, checked.scheduler, memory)
    return memory


def _encode_trajectory(trajectory: StoredTrajectory) -> bytes:
    remembered = trajectory.remembered
    row: dict[str, object] = {
        "commitments": dict(remembered.commitments),
        "others": remembered.others,
        "overuse": dict(remembered.overuse),
        "since": trajectory.since,
        "tau": trajectory.tau,
        "weight": remembered.weight,
    }
    return _canonical(row | optional_fields(remembered))


def _decode_trajectory(user: str, row: bytes) -> StoredTrajectory:
    checked = _validated(_Row, row, user)
    boost = None if checked.boost is None else Boost(*checked.boost)
    remembered = RememberedUser(
        checked.commitments,
        checked.overuse,
        checked.others,
        checked.weight,
        boost,
        accumulated=AccumulatedUse(*checked.accumulated),
    )
    return StoredTrajectory(checked.since, checked.tau, remembered)


def _validated(model: type[_Read], data: bytes, subject: str) -> _Read:
    """Parse JSON as a pydantic model.

    Args:
        model: The expected form.
        data: The JSON text.
        subject: Name of the row or head, for the error.

    Raises:
        StoreDamaged: the data do not have the expected form.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise StoreDamaged(f"damaged: {subject}: {complaints(error, model)[0]}") from error


def _addend(user: str, row: bytes) -> int:
    """Return the number that a row contributes to the checksum, a digest of user and row."""
    digest = hashlib.sha256(user.encode() + b"\0" + row).digest()
    return int.from_bytes(digest, "big")


def _head_fields(
    time: float,
    version: int,
    places: Mapping[str, OccupiedPlaces],
    scheduler: Scheduler | None,
) -> dict[str, object]:
    """Return the fields of the head row, except its checksum.

    Args:
        time: Time of the save, in seconds since the epoch.
        version: Version of the encoding.
        places: Role-tree nodes that each framework occupies, by digest of its identifier.
        scheduler: The scheduler whose users the rows contain; None if the head does not state it.
    """
    claims: dict[str, object] = {"format": FORMAT, "time": time, "version": version}
    if places:
        claims["places"] = encode_places(places)
    if scheduler is not None:
        claims["scheduler"] = scheduler
    return claims


def _checksum(rows: int, claims: Mapping[str, object]) -> str:
    """Return the checksum over the rows of all users and the head, in hexadecimal digits.

    Args:
        rows: Sum of `_addend` over the rows of all users.
        claims: Fields of the head (format, version, time), except its checksum.
    """
    return f"{(rows + _addend('', _canonical(claims))) % _MODULUS:064x}"


def _canonical(value: Mapping[str, Any]) -> bytes:
    """Encode a mapping as JSON with sorted keys and without spaces."""
    return _ENCODER.encode(value).encode("ascii")
