"""Ends an operator's call with a reason."""

from typing import Any, NoReturn

import grpc


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str
) -> NoReturn:
    """End a call; who called gets the text."""
    await context.abort(code, text)
    raise AssertionError("abort raises")
