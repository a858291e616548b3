"""Encoding of commitments and operator settings as text: a head line, then canonical JSON.

Numbers are read back exactly. The head line contains the format, its version and the checksum of
the rest. The reader can therefore tell a damaged file from a foreign file.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from allocator.complaints import complaints
from allocator.service.store import StoreDamaged, StoreError
from allocator.users.memory import (
    NO_USE,
    AccumulatedUse,
    Boost,
    Memory,
    OccupiedPlaces,
    RememberedUser,
)

FORMAT = "longshare-memory"
"""Name of the format, in the head of a text and of rows."""
VERSIONS = range(2, 6)
"""Versions that are written, by `version_of`."""
_READABLE = range(1, VERSIONS.stop)
"""Versions of a text that can be read. A memory of version 1 lacks the time constant of the
commitments' decay."""

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Accumulated = tuple[Amount, Amount]
"""A user's accumulated use, in share × seconds, and its increase per second."""
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
_Count = Annotated[int, Field(ge=0)]
Places = dict[_Digest, _Count | tuple[_Count, _Digest | None, Annotated[int, Field(ge=0)] | None]]
"""Role-tree nodes that frameworks occupy, by digest of the framework ID: their number; or their
number, digest of the principal, and end of the reservation. A framework with 0 nodes was admitted,
but its nodes do not count."""


def version_of(*, accumulated: bool, owned: bool, placed: bool, boosted: bool) -> int:
    """Return the lowest version that has room for a memory, so that older releases can read it.

    Args:
        accumulated: Whether a user has accumulated use.
        owned: Whether these nodes are stored with principals or ends of reservations.
        placed: Whether frameworks occupy counted nodes of the role tree.
        boosted: Whether a user has a boost (a temporary weight).
    """
    return 5 if accumulated or owned else 4 if placed else 3 if boosted else 2


class _User(BaseModel):
    """JSON form of one user's commitments and weight; pydantic validates stored data against it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    commitments: dict[str, Amount]
    overuse: dict[str, Amount]
    others: Amount
    weight: Positive | None
    boost: tuple[Positive, Amount] | None = None
    accumulated: Accumulated = NO_USE


class _Memory(BaseModel):
    """JSON form of commitments and operator settings, after the head line.

    Pydantic validates stored data against it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    time: Amount
    tau: Positive | None = None
    users: dict[str, _User]
    places: Places = Field(default_factory=dict)


def encode(memory: Memory) -> bytes:
    """Encode commitments and operator settings as bytes; equal input gives equal bytes."""
    users = {
        name: {
            "commitments": dict(user.commitments),
            "overuse": dict(user.overuse),
            "others": user.others,
            "weight": user.weight,
        }
        | optional_fields(user)
        for name, user in memory.users.items()
    }
    version = version_of(
        accumulated=any(any(user.accumulated) for user in memory.users.values()),
        owned=are_owned(memory.places),
        placed=bool(memory.places),
        boosted=any(user.boost is not None for user in memory.users.values()),
    )
    content = {"time": memory.time, "tau": memory.tau, "users": users}
    body = _canonical(content | ({"places": encode_places(memory.places)} if memory.places else {}))
    head = {"format": FORMAT, "version": version, "sha256": hashlib.sha256(body).hexdigest()}
    return _canonical(head) + b"\n" + body


def decode(data: bytes) -> Memory:
    """Decode commitments and operator settings from bytes that `encode` has returned.

    Raises:
        StoreError: the bytes have another format, are incomplete, or have an unknown version.
    """
    head_line, _, body = data.partition(b"\n")
    head = plain(head_line)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise StoreDamaged("this is not a store of Longshare")
    if head.get("version") not in _READABLE:
        raise StoreError(
            f"written in version {head.get('version')} of the format, this Longshare knows "
            f"versions up to {_READABLE[-1]}; use the release that wrote it, or a newer one"
        )
    if head.get("sha256") != hashlib.sha256(body).hexdigest():
        raise StoreDamaged("damaged: the checksum does not match the content")
    try:
        checked = _Memory.model_validate_json(body)
    except ValidationError as error:
        raise StoreDamaged(f"damaged: {complaints(error, _Memory)[0]}") from error
    return Memory(
        time=checked.time,
        tau=checked.tau,
        places=decode_places(checked.places),
        users={
            name: RememberedUser(
                commitments=user.commitments,
                overuse=user.overuse,
                others=user.others,
                weight=user.weight,
                boost=None if user.boost is None else Boost(*user.boost),
                accumulated=AccumulatedUse(*user.accumulated),
            )
            for name, user in checked.users.items()
        },
    )


def are_owned(places: Mapping[str, OccupiedPlaces]) -> bool:
    """Return whether any places have a principal or the end of a reservation."""
    return any(occupied != OccupiedPlaces(occupied.nodes) for occupied in places.values())


def encode_places(places: Mapping[str, OccupiedPlaces]) -> Places:
    """Return the JSON form of places: the number of nodes alone, if nothing else is known."""
    return {
        name: occupied if are_owned({name: occupied}) else occupied.nodes
        for name, occupied in places.items()
    }


def decode_places(places: Places) -> dict[str, OccupiedPlaces]:
    """Return places from their JSON form."""
    return {
        name: OccupiedPlaces(entry) if isinstance(entry, int) else OccupiedPlaces(*entry)
        for name, entry in places.items()
    }


def optional_fields(user: RememberedUser) -> dict[str, object]:
    """Return the fields of a user's JSON form that releases of earlier versions do not know."""
    fields = dict[str, object]()
    if user.boost is not None:
        fields["boost"] = user.boost
    if any(user.accumulated):
        fields["accumulated"] = user.accumulated
    return fields


def plain(data: bytes) -> object:
    """Return parsed JSON; None if the data are not valid JSON, or nested too deeply."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _canonical(value: Any) -> bytes:  # noqa: ANN401 - JSON's types
    """Encode a value as JSON with sorted keys and without spaces."""
    text = json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii")
