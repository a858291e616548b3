"""The form in which a memory is stored: a line that says what follows, then canonical JSON.

Numbers are written so that they are read back exactly. The first line names the format, its
version and the checksum of the rest, so that damage and files of others are told apart.
"""

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from allocator.cluster.memory import Boost, Memory, Remembered
from allocator.complaints import complaints
from allocator.service.store import StoreDamaged, StoreError

FORMAT = "longshare-memory"
VERSION = 2
BOOSTED = 3
"""Version of a memory with boosts, which releases before cannot read."""
PLACED = 4
"""Version of a memory that says which places frameworks have in the tree of roles, likewise."""
_KNOWN = (1, VERSION, BOOSTED, PLACED)
"""Version 1 does not say how commitments fade."""

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _User(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    commitments: dict[str, _Amount]
    overuse: dict[str, _Amount]
    others: _Amount
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    boost: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], _Amount] | None = None


class _Memory(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    time: _Amount
    tau: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    users: dict[str, _User]
    places: dict[str, Annotated[int, Field(gt=0)]] = Field(default_factory=dict)


def encode(memory: Memory) -> bytes:
    """Return a memory as bytes; the same memory always gives the same ones."""
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
    said = {"time": memory.time, "tau": memory.tau, "users": users}
    body = _canonical(said | ({"places": dict(memory.places)} if memory.places else {}))
    head = {"format": FORMAT, "version": version, "sha256": hashlib.sha256(body).hexdigest()}
    return _canonical(head) + b"\n" + body


def decode(data: bytes) -> Memory:
    """Return the memory that these bytes are.

    Raises:
        StoreError: they are not one, not whole, or of a version that is not known here.
    """
    first, _, body = data.partition(b"\n")
    head = plain(first)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise StoreDamaged("this is not a memory of Longshare's")
    if head.get("version") not in _KNOWN:
        raise StoreError(
            f"written in version {head.get('version')} of the format, this Longshare knows "
            f"versions up to {PLACED}; use the release that wrote it, or a newer one"
        )
    if head.get("sha256") != hashlib.sha256(body).hexdigest():
        raise StoreDamaged("damaged: the checksum does not fit what is there")
    try:
        read = _Memory.model_validate_json(body)
    except ValidationError as error:
        raise StoreDamaged(f"damaged: {complaints(error, _Memory)[0]}") from error
    return Memory(
        time=read.time,
        tau=read.tau,
        places=read.places,
        users={
            name: Remembered(
                commitments=user.commitments,
                overuse=user.overuse,
                others=user.others,
                weight=user.weight,
                boost=None if user.boost is None else Boost(*user.boost),
            )
            for name, user in read.users.items()
        },
    )


def plain(data: bytes) -> object:
    """Return what some JSON says; None: it is none, or nested so deep that nobody can mean it."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _canonical(value: Any) -> bytes:  # noqa: ANN401 - JSON's types
    text = json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii")
