"""Ends an operator's call with a reason."""

from typing import Any, NoReturn

import grpc

LONGEST = 1000
"""Characters of a reason. It goes in a header: gRPC's clients read 8 KiB of these at the least."""


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str
) -> NoReturn:
    """End a call; who called gets the text, shortened in the middle if it is long."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    await context.abort(code, text)
    raise AssertionError("abort raises")
