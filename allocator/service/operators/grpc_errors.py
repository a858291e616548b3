"""Ends an operator's call with a reason."""

from typing import Any, NoReturn

import grpc

LONGEST = 1000
"""Characters of a reason. It goes in a header: gRPC's clients read 8 KiB of these at the least."""


class CallRefused(Exception):  # noqa: N818 - the call is refused; the service has no error
    """The call's status is set; the handler returns without an answer."""


def refuse(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str) -> None:
    """Set the status of a call; who called gets the text, shortened in the middle if it is long."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    context.set_code(code)
    context.set_details(text)


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str
) -> NoReturn:
    """End a call with a status.

    gRPC's own `abort` keeps its exception in the call, and the exception keeps every frame with the
    request: a cycle that stays in memory until Python's collector runs. This exception is dropped
    where the call ends.
    """
    refuse(context, code, text)
    raise CallRefused
