"""Text of Mesos messages, which need not be UTF-8, because proto2 does not check it."""

from collections.abc import Iterable

from google.protobuf.message import Message
from typing_extensions import TypeIs

_LONGEST = 300
"""Maximum length of displayed text in characters."""


def is_text(value: str | bytes) -> TypeIs[str]:
    """Return whether a text field is valid UTF-8; protobuf returns an invalid field as bytes."""
    return isinstance(value, str)


def text_of(message: Message, field: str) -> str | bytes:
    """Return a text field of a Mesos message, or its bytes if it is not UTF-8."""
    value: str | bytes = getattr(message, field)
    return value


def readable(value: str | bytes) -> str:
    r"""Return a text field as `str`; bytes that are not UTF-8 are escaped: `\xff`."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def excerpt(value: str | bytes, most: int = _LONGEST) -> str:
    """Return the beginning of a field as text; a long field is cut before it is escaped.

    Args:
        value: The field's text, or its bytes if it is not UTF-8.
        most: Maximum number of characters, or of bytes if the field is not UTF-8.
    """
    return readable(value[:most])


def is_valid_role(role: str) -> bool:
    """Return whether a role can be a node of the role tree.

    Each level must have a name other than `.` and `..`, because `a/.` is reserved for the virtual
    leaf of `a`.
    """
    return {"", ".", ".."}.isdisjoint(role.split("/"))


def count_role_nodes(roles: Iterable[str]) -> int:
    """Return how many role-tree nodes the roles and their ancestors occupy in total."""
    paths = set[str]()
    for role in roles:
        path = role
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition("/")[0]
    return len(paths)
