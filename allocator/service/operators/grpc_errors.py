"""Error statuses of operators' gRPC calls."""

from typing import Any, NoReturn

import grpc

LONGEST = 1000
"""Characters of an error text. The text is sent in a header, of which gRPC clients read 8 KiB."""


class CallRefused(Exception):  # noqa: N818 - the call is refused; the service has no error
    """The call's status is set; the handler returns without an answer."""


def refuse(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str) -> None:
    """Set the status of a call; a long text is shortened in the middle."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    context.set_code(code)
    context.set_details(text)


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str
) -> NoReturn:
    """End a call with a status.

    gRPC's own `abort` keeps its exception in the call, and the exception keeps every frame with the
    request. This reference cycle stays in memory until Python's collector runs. The exception of
    this function is dropped when the call ends.

    Raises:
        CallRefused: always.
    """
    refuse(context, code, text)
    raise CallRefused
