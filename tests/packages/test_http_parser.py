"""The replacement for http-parser reads valid and invalid responses, in pieces of any size."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse

import pytest
from http_parser.http import HttpParser
from hypothesis import given
from hypothesis import strategies as st

STATUSES = st.sampled_from([200, 202, 307, 400, 403, 404, 406, 500, 503])
NAMES = st.from_regex(r"X-[A-Za-z0-9]{1,12}", fullmatch=True)
VALUES = st.from_regex(r"([!-~]([ -~]{0,20}[!-~])?)?", fullmatch=True)


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cut `data` anywhere, up to 20 times."""
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=20)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


def chunked(body: list[bytes]) -> bytes:
    """Frame each part of `body` as a chunk, and append the end of chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*body, b""])


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Make a valid response with a body of declared length, or in chunks."""
    fields = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    body = draw(st.binary(max_size=200))
    if draw(st.booleans()):
        fields.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked"]))))
        payload = chunked(draw(pieces(body)))
    else:
        fields.append(("Content-Length", str(len(body))))
        payload = body
    head = "".join(
        f"{name}:{draw(st.sampled_from(['', ' ', '  ']))}{value}\r\n" for name, value in fields
    )
    return f"HTTP/1.1 {draw(STATUSES)} Whatever\r\n{head}\r\n".encode() + payload


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Make a response with a replaced byte, or with arbitrary bytes appended."""
    response = bytearray(draw(responses()))
    at = draw(st.integers(0, len(response)))
    response[at : at + 1] = draw(st.binary(min_size=1, max_size=3))
    return bytes(response)


def answers(parts: list[bytes]) -> tuple[object, ...]:
    """Feed `parts`; return the results of all valid queries."""
    parser = HttpParser()
    accepted = [parser.execute(part, len(part)) == len(part) for part in parts]
    assert accepted == sorted(accepted, reverse=True)
    assert all(accepted) == (parser.get_errno() == 0)
    head: tuple[object, ...] = ()
    if parser.is_headers_complete():
        headers = list(parser.get_headers().items())
        head = (parser.get_status_code(), headers, parser.is_chunked())
    return (
        *head,
        parser.get_errno(),
        parser.is_partial_body(),
        parser.recv_body(),
        parser.is_message_complete(),
    )


@contextmanager
def read_by_the_standard_library(response: bytes) -> Iterator[HTTPResponse]:
    """Yield `response` as parsed by `http.client`."""
    server, client = socket.socketpair()
    with server, client:
        server.sendall(response)
        with closing(HTTPResponse(client)) as reference:
            reference.begin()
            yield reference


@given(st.data())
def test_responses_are_read_as_by_the_standard_library(data: st.DataObject) -> None:
    sent = data.draw(responses())
    parser = HttpParser()
    body = b""
    for part in data.draw(pieces(sent)):
        assert parser.execute(part, len(part)) == len(part)
        assert not parser.is_partial_body() or parser.is_headers_complete()
        body += parser.recv_body()
        assert not parser.is_partial_body()

    assert parser.is_headers_complete()
    assert parser.is_message_complete()
    assert parser.get_errno() == 0
    headers = parser.get_headers()
    with read_by_the_standard_library(sent) as reference:
        assert parser.get_status_code() == reference.status
        assert parser.is_chunked() == bool(reference.chunked)
        assert body == reference.read()
        assert {name.lower() for name in headers} == {
            name.lower() for name, _ in reference.getheaders()
        }
        for name in headers:
            assert ", ".join(headers.getall(name.swapcase())) == reference.getheader(name)


@given(st.data())
def test_results_do_not_depend_on_how_the_bytes_are_split(data: st.DataObject) -> None:
    sent = data.draw(responses() | damaged())
    assert answers(data.draw(pieces(sent))) == answers([sent])


@given(st.data())
def test_a_response_cut_short_is_neither_an_error_nor_complete(data: st.DataObject) -> None:
    sent = data.draw(responses())
    received = sent[: data.draw(st.integers(0, len(sent) - 1))]
    parser = HttpParser()
    assert parser.execute(received, len(received)) == len(received)
    assert not parser.is_message_complete()


@given(
    st.binary(min_size=1).filter(lambda data: not b"HTTP/RTSP/ICE/\r\n".count(data[:1])),
    responses(),
)
def test_bytes_other_than_http_are_refused_permanently(junk: bytes, later: bytes) -> None:
    parser = HttpParser()
    assert parser.execute(junk, len(junk)) == 0
    assert parser.execute(later, len(later)) == 0
    assert parser.get_errno() != 0
    assert not parser.is_headers_complete()


@given(responses(), responses())
def test_a_second_response_is_refused_and_the_first_response_is_unchanged(
    first: bytes, second: bytes
) -> None:
    both = first + second
    parser = HttpParser()
    parser.execute(both, len(both))
    alone = HttpParser()
    alone.execute(first, len(first))
    assert parser.get_errno() != 0
    assert parser.get_headers() == alone.get_headers()
    assert parser.get_status_code() == alone.get_status_code()
    assert parser.recv_body() == alone.recv_body()


def test_at_most_the_requested_number_of_bytes_is_read() -> None:
    parser = HttpParser()
    buffer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokrubbish"
    length = buffer.index(b"rubbish")
    assert parser.execute(buffer, length) == length
    assert parser.is_message_complete()


def test_a_trailer_does_not_pass_for_a_header() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head + b"2\r\nok\r\n0\r\nMesos-Stream-Id: 7\r\n\r\n"
    parser = HttpParser()
    assert parser.execute(sent, len(sent)) == len(sent)
    assert parser.is_message_complete()
    assert list(parser.get_headers()) == ["Transfer-Encoding"]


def test_blanks_around_a_header_value_are_stripped() -> None:
    sent = b"HTTP/1.1 200 OK\r\nLocation: \t//10.0.0.2:5050 \t\r\n\r\n"
    parser = HttpParser()
    assert parser.execute(sent, len(sent)) == len(sent)
    assert parser.get_headers()["location"] == "//10.0.0.2:5050"


def test_a_switch_to_another_protocol_is_refused() -> None:
    sent = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    parser = HttpParser()
    assert parser.execute(sent, len(sent)) == 0
    assert parser.get_errno() != 0


def test_the_reason_of_a_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    parser = HttpParser()
    for junk in (b"junk", b"more junk"):
        assert parser.execute(junk, len(junk)) == 0
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "Expected HTTP/" in caplog.text
