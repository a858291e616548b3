"""Ways to end an operator's gRPC call with an error status."""

from typing import Any, NoReturn

import grpc

LONGEST = 1000
"""Maximum length of an error text, in characters. gRPC sends it in a header, of which clients read
8 KiB."""


class CallRefused(Exception):  # noqa: N818 - the call is refused; the service has no error
    """Raised by `abort`, after it has set the error status, to leave a handler without a reply."""


def refuse(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str) -> None:
    """Set the error status of a call; a text longer than `LONGEST` is shortened in the middle."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
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
