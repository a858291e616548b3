"""A push parser for one HTTP response, asked step by step how far it has come."""

import logging
from dataclasses import dataclass, field

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict, CIMultiDictProxy

__all__ = ["HttpParser"]

_log = logging.getLogger(__name__)


class HttpParser:
    """Parses one response that arrives in pieces of any size.

    Feed it with `execute`, then ask: each answer holds for all bytes fed so far. The names and
    their meaning are http-parser's, for whose class of the same name this one stands in.
    """

    def __init__(self) -> None:
        self._response = _Response()
        self._parser = HttpResponseParser(self._response)
        self._failed = False

    def execute(self, data: bytes, length: int) -> int:
        """Parse the first `length` bytes of `data`.

        Returns:
            The number of bytes parsed: `length`, or 0 when they, or bytes before them, are not
            part of one valid response. The reason is logged once, and `get_errno` tells.
        """
        if not self._failed:
            try:
                self._parser.feed_data(data[:length])
            except HttpParserError as error:
                self._fail(str(error.__context__ or error))
            except HttpParserUpgrade:
                self._fail("the server switches to another protocol, which nobody asked for")
        return 0 if self._failed else length

    def get_errno(self) -> int:
        """Return 0 while every byte fed could be parsed, 1 from the first that could not."""
        return int(self._failed)

    def is_headers_complete(self) -> bool:
        """Tell whether the blank line that ends the headers has been read."""
        return self._response.headers_complete

    def get_status_code(self) -> int:
        """Return the status code; whole as soon as the headers are complete."""
        return self._parser.get_status_code()

    def get_headers(self) -> CIMultiDictProxy[str]:
        """Return the headers, spelt as sent and found in any case; whole as soon as complete."""
        return CIMultiDictProxy(self._response.headers)

    def is_chunked(self) -> bool:
        """Tell whether the body comes in chunks, and in no transfer coding besides."""
        return self._response.headers.get("Transfer-Encoding", "").lower() == "chunked"

    def is_partial_body(self) -> bool:
        """Tell whether `recv_body` has something to return."""
        return bool(self._response.body)

    def recv_body(self) -> bytes:
        """Return the body that was read since the last call, without the framing of chunks."""
        body = bytes(self._response.body)
        self._response.body.clear()
        return body

    def is_message_complete(self) -> bool:
        """Tell whether the response has ended, by its declared length or its last chunk."""
        return self._response.message_complete

    def _fail(self, reason: str) -> None:
        self._failed = True
        _log.error("What the server sent is not one valid HTTP response: %s", reason)


@dataclass(slots=True)
class _Response:
    """What has been read of a response; httptools calls the methods as it finds the parts."""

    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    headers_complete: bool = False
    body: bytearray = field(default_factory=bytearray)
    """The part of the body that nobody has received yet."""
    message_complete: bool = False

    def on_message_begin(self) -> None:
        if self.message_complete:
            raise ValueError("another response follows on the one that was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.headers_complete:  # a trailer, which must not pass for a header
            return
        self.headers.add(name.decode("latin-1"), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        self.headers_complete = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.message_complete = True
