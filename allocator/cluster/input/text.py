"""Text of Mesos's messages, which need not be UTF-8: proto2 does not check it."""

from collections.abc import Iterable

from typing_extensions import TypeIs

_LONGEST = 300
"""Characters."""


def is_text(value: str | bytes) -> TypeIs[str]:
    """Whether a field that should be text is; what is not UTF-8 comes as bytes."""
    return isinstance(value, str)


def shortened(words: str) -> str:
    """Cut off what somebody has said at length; it is going to be logged and shown."""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def readable(value: str | bytes) -> str:
    r"""Return a field as text, with what is not UTF-8 escaped: `\xff`."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def is_path(role: str) -> bool:
    """Whether a role can have a place in the tree: each of its levels has a name.

    `a/.` is that of the virtual leaf of `a`.
    """
    return {"", ".", ".."}.isdisjoint(role.split("/"))


def levels(roles: Iterable[str]) -> int:
    """Return how many places in the tree roles take, with all that are above them."""
    places = set[str]()
    for role in roles:
        place = role
        while place and place not in places:
            places.add(place)
            place = place.rpartition("/")[0]
    return len(places)
