"""The form in which courses are stored: a row for each user, and a head that vouches for all.

A row is canonical JSON, and numbers are read back exactly. The head names format and version, the
instant of the latest save, and a sum over all rows, which each change of a row moves on: so damage
is noticed, also a row that is lost or was there before, though only what changed is written.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from allocator.cluster.cooperative import Cooperative
from allocator.cluster.memory import Boost, Memory, MemoryChanges, Remembered, StoredTrajectory
from allocator.complaints import complaints
from allocator.service.store import StoreDamaged, StoreError
from allocator.service.store.codec import plain

FORMAT = "longshare-memory"
VERSION = 2
BOOSTED = 3
"""Version of a head that has rows with boosts below it, which releases before cannot read."""
PLACED = 4
"""Version of a head that says which places frameworks have in the tree of roles, likewise."""
_MODULUS = 2**256
_ENCODER = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":"))

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Places = dict[Annotated[str, Field(pattern="^[0-9a-f]{16}$")], Annotated[int, Field(gt=0)]]
"""Counted places of frameworks, by digest."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    commitments: dict[str, _Amount]
    others: _Amount
    overuse: dict[str, _Amount]
    since: _Amount
    tau: _Positive | None
    weight: _Positive | None
    boost: tuple[_Positive, _Amount] | None = None


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: str
    version: int
    sum: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    time: _Amount
    places: Places | None = None


_Read = TypeVar("_Read", bound=BaseModel)


class StoreRows:
    """What a store is to hold, encoded once, and which of it has not been written yet."""

    def __init__(self) -> None:
        self._time = 0.0
        self._places: Mapping[str, int] = {}
        self._rows: dict[str, tuple[bytes, int]] = {}
        """By user, with what it adds to the sum."""
        self._sum = 0
        self._boosted: set[str] = set()
        """Users with a boost."""
        self._unwritten: set[str] = set()
        """Users who have another row than was written, or none any more."""

    def take(self, changes: MemoryChanges) -> Cooperative[None]:
        """Follow changes, a user a step.

        Raises:
            ValueError: a number is none; nothing is followed then.
        """
        encoded = {}
        for user, course in changes.courses.items():
            encoded[user] = _encoded(course)
            yield
        if changes.complete:
            for user in self._rows.keys() - encoded.keys():
                self._sum -= self._rows.pop(user)[1]
                self._unwritten.add(user)
                self._boosted.discard(user)
        for user, row in encoded.items():
            boosted = changes.courses[user].remembered.boost is not None
            (self._boosted.add if boosted else self._boosted.discard)(user)
            before = self._rows.get(user)
            if before is not None:
                if before[0] == row:
                    continue
                self._sum -= before[1]
            addend = _addend(user, row)
            self._rows[user] = row, addend
            self._sum += addend
            self._unwritten.add(user)
            yield
        self._time, self._places = changes.time, changes.places

    def unwritten(self) -> Iterator[tuple[str, bytes | None]]:
        """Go through what has to be written: users and rows; None: the user is gone."""
        for user in self._unwritten:
            row = self._rows.get(user)
            yield user, None if row is None else row[0]

    def written(self) -> None:
        """Note that everything has been."""
        self._unwritten.clear()

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Go through everything."""
        for user, (row, _) in self._rows.items():
            yield user, row

    def head(self) -> bytes:
        """Return what vouches for all rows."""
        version = PLACED if self._places else BOOSTED if self._boosted else VERSION
        claims = _claims(self._time, version, self._places)
        return _canonical({**claims, "sum": _total(self._sum, claims)})


def assembled(head: bytes, rows: Iterable[tuple[str, bytes]]) -> Memory:
    """Return the memory that a head and its rows are, as of the latest save.

    Raises:
        StoreError: they are none, do not belong together, or are of a version not known here.
    """
    said = plain(head)
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise StoreDamaged("this is not a memory of Longshare's")
    if said.get("version") not in (VERSION, BOOSTED, PLACED):
        raise StoreError(
            f"written in version {said.get('version')} of the format, this Longshare knows "
            f"versions {VERSION} to {PLACED}; use the release that wrote it, or a newer one"
        )
    read = _validated(_Head, head, "head")
    pairs = sorted(rows)
    places = read.places or {}
    claims = _claims(read.time, read.version, places)
    # a number can be written in two ways, of which only one is ours
    as_written = head == _canonical({**claims, "sum": read.sum})
    if not as_written or _total(sum(_addend(*pair) for pair in pairs), claims) != read.sum:
        raise StoreDamaged("damaged: the checksum does not fit what is there")
    courses = {user: _course(user, row) for user, row in pairs}
    tau = next((course.tau for course in courses.values() if course.tau is not None), None)
    users = {user: course.at(read.time) for user, course in courses.items()}
    return Memory(read.time, users, tau, places)


def _encoded(course: StoredTrajectory) -> bytes:
    then = course.remembered
    row: dict[str, object] = {
        "commitments": dict(then.commitments),
        "others": then.others,
        "overuse": dict(then.overuse),
        "since": course.since,
        "tau": course.tau,
        "weight": then.weight,
    }
    if then.boost is not None:
        row["boost"] = then.boost
    return _canonical(row)


def _course(user: str, row: bytes) -> StoredTrajectory:
    read = _validated(_Row, row, user)
    boost = None if read.boost is None else Boost(*read.boost)
    remembered = Remembered(read.commitments, read.overuse, read.others, read.weight, boost)
    return StoredTrajectory(read.since, read.tau, remembered)


def _validated(model: type[_Read], data: bytes, where: str) -> _Read:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise StoreDamaged(f"damaged: {where}: {complaints(error, model)[0]}") from error


def _addend(user: str, row: bytes) -> int:
    digest = hashlib.sha256(user.encode() + b"\0" + row).digest()
    return int.from_bytes(digest, "big")


def _claims(time: float, version: int, places: Mapping[str, int]) -> dict[str, object]:
    claims: dict[str, object] = {"format": FORMAT, "time": time, "version": version}
    return {**claims, "places": dict(places)} if places else claims


def _total(rows: int, claims: Mapping[str, object]) -> str:
    """Return the sum over rows and head, from that over rows."""
    return f"{(rows + _addend('', _canonical(claims))) % _MODULUS:064x}"


def _canonical(value: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(value).encode("ascii")
