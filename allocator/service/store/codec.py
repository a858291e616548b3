"""Encoding of commitments and operator settings as text: a head line, then canonical JSON.

Numbers are read back exactly. The head line contains the format, its version and the checksum of
the rest. The reader can therefore tell a damaged file from a foreign file.
"""

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from allocator.complaints import complaints
from allocator.service.store import StoreDamaged, StoreError
from allocator.users.memory import Boost, Memory, RememberedUser

FORMAT = "longshare-memory"
VERSION = 2
BOOSTED = 3
"""Version of a memory with boosts (temporary weights); older releases reject this version."""
PLACED = 4
"""Version of a memory with the number of role-tree nodes that each framework's roles occupy.

Older releases reject this version.
"""
_KNOWN = (1, VERSION, BOOSTED, PLACED)
"""Versions that can be read. A memory of version 1 lacks the time constant of the commitments'
decay."""

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _User(BaseModel):
    """JSON form of one user's commitments and weight; pydantic validates stored data against it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    commitments: dict[str, _Amount]
    overuse: dict[str, _Amount]
    others: _Amount
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    boost: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], _Amount] | None = None


class _Memory(BaseModel):
    """JSON form of commitments and operator settings, after the head line.

    Pydantic validates stored data against it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    time: _Amount
    tau: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    users: dict[str, _User]
    places: dict[str, Annotated[int, Field(gt=0)]] = Field(default_factory=dict)


def encode(memory: Memory) -> bytes:
    """Encode commitments and operator settings as bytes; equal input gives equal bytes."""
    users = {
        name: {
            "commitments": dict(user.commitments),
            "overuse": dict(user.overuse),
            "others": user.others,
            "weight": user.weight,
        }
        | ({"boost": user.boost} if user.boost is not None else {})
        for name, user in memory.users.items()
    }
    boosted = any(user.boost is not None for user in memory.users.values())
    version = PLACED if memory.places else BOOSTED if boosted else VERSION
    content = {"time": memory.time, "tau": memory.tau, "users": users}
    body = _canonical(content | ({"places": dict(memory.places)} if memory.places else {}))
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
    if head.get("version") not in _KNOWN:
        raise StoreError(
            f"written in version {head.get('version')} of the format, this Longshare knows "
            f"versions up to {PLACED}; use the release that wrote it, or a newer one"
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
        places=checked.places,
        users={
            name: RememberedUser(
                commitments=user.commitments,
                overuse=user.overuse,
                others=user.others,
                weight=user.weight,
                boost=None if user.boost is None else Boost(*user.boost),
            )
            for name, user in checked.users.items()
        },
    )


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
