"""Ways to end an operator's gRPC call with an error status."""

from collections.abc import Iterable
from typing import Any, NoReturn

import grpc

LONGEST = 1000
"""Maximum length of an error text, in ASCII characters.

gRPC sends the text in a header, of which clients read 8 KiB. Each byte of another character takes
three bytes there, so a text with other characters has at most a quarter of this length.
"""


class CallRefused(Exception):  # noqa: N818 - the call is refused; the service has no error
    """Raised by `abort`, after it has set the error status, to leave a handler without a reply."""


def refuse(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str) -> None:
    """Set the error status of a call; a text longer than `LONGEST` is shortened in the middle."""
    most = LONGEST if text.isascii() else LONGEST // 4
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-most // 2 :]}"
    context.set_code(code)
    context.set_details(text)


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str
) -> NoReturn:
    """End a call with an error status: set the status, and raise CallRefused.

    gRPC's own `abort` stores its exception in the call. The exception refers to the stack frames,
    and these refer to the request and the call. Such a reference cycle stays in memory until
    Python's garbage collector runs. The exception of this function is dropped when the call ends.

    Raises:
        CallRefused: always.
    """
    refuse(context, code, text)
    raise CallRefused


async def require_names(
    context: grpc.aio.ServicerContext[Any, Any], names: Iterable[str], most: int
) -> None:
    """End a call with INVALID_ARGUMENT if a name in its request is too long to be a user's name.

    Args:
        context: The gRPC call.
        names: Names in the request.
        most: Maximum length of a role in bytes of UTF-8. A virtual leaf (`ROLE/.`) has two more.

    Raises:
        CallRefused: a name is too long.
    """
    longest = max((len(name.encode()) for name in names), default=0)
    if longest > most + len("/."):
        await abort(
            context,
            grpc.StatusCode.INVALID_ARGUMENT,
            f"a user's name of {longest:,} bytes; at most {most:,} are accepted (limits.name)",
        )
