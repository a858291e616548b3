"""Rights of gRPC peers, by the names in their certificates."""

import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from fnmatch import translate
from functools import partial
from itertools import islice
from typing import Any, Literal

import grpc
import structlog
from typing_extensions import override

from allocator.files import user_name
from allocator.formatting import shortened
from allocator.service.addresses import host_of
from allocator.service.config import RightsSection
from allocator.service.stream_traffic import StreamTraffic

Right = Literal["masters", "operators", "readers"]
"""Right of a gRPC peer. "masters": send events to the engine; "operators": give operator commands
and read; "readers": only read."""
_Context = grpc.aio.ServicerContext[Any, Any]
_INCLUDED: dict[Right, tuple[Right, ...]] = {
    "masters": ("masters",),
    "operators": ("operators",),
    "readers": ("readers", "operators"),
}
"""Right → the groups of `[listen.rights]` whose members have it."""

MOST_NAMES = 100
"""Names of a certificate that count for rights; a certificate may have thousands."""
REFUSAL_LASTS = 1.0
"""Seconds for which further calls of a refused connection are refused without a new check."""

_log = structlog.get_logger(__name__)


def names(context: _Context) -> Sequence[str] | None:
    """Return the names in a peer's verified certificate, at most the first `MOST_NAMES`.

    The common name comes first. The result is None if the connection does not use TLS.
    """
    return _names_and_number(context)[0]


def _names_and_number(context: _Context) -> tuple[Sequence[str] | None, int]:
    """Return what `names` returns, and how many names the certificate contains in all."""
    context_properties = context.auth_context()
    if b"ssl" not in context_properties.get("transport_security_type", ()):
        return None, 0
    values = [
        *context_properties.get("x509_common_name", ()),
        *context_properties.get("x509_subject_alternative_name", ()),
    ]
    first = islice(filter(None, values), MOST_NAMES)
    return [value.decode(errors="replace") for value in first], len(values)


def certificate(context: _Context) -> str | None:
    """Return the first name in a peer's certificate, shortened for the log; None without TLS."""
    certificate_names = names(context)
    return None if certificate_names is None else _short_name(certificate_names)


def peer_name(context: _Context) -> str:
    """Return the name under which a peer's calls are counted: its certificate name, or its host."""
    shown = certificate(context)
    return host_of(context.peer()) if shown is None else shown


def identified(context: _Context) -> tuple[str, str]:
    """Return the identity of a peer, for the log and the audit, and how the identity is known.

    Only root and the user that runs the service can open an operators' Unix socket. gRPC does not
    tell which of the two connected, so a socket's peer is named after the service's user.

    Returns:
        The peer's name or address, and its source: "certificate", "socket" or "address".
    """
    name = certificate(context)
    if name is not None:
        return name, "certificate"
    if context.peer().startswith("unix:"):
        return user_name(os.geteuid()), "socket"
    return context.peer(), "address"


def _short_name(certificate_names: Sequence[str]) -> str:
    """Return the first name of a certificate, shortened.

    A certificate may have thousands of names of any length.
    """
    return shortened(certificate_names[0]) if certificate_names else "a certificate without a name"


def _pattern(globs: Sequence[str]) -> re.Pattern[str]:
    """Return a regular expression that matches a name if any of the globs matches it."""
    return re.compile("|".join(map(translate, globs)) or r"(?!)")


def _ignore(_peer: str, _permitted: bool) -> None:  # noqa: FBT001 - an observer
    """Do nothing; initial value of `Rights.observe`, which is called for each checked call."""


def _ignore_request(_peer: str, _pending: int, _sent: int = 0) -> None:
    """Do nothing; initial value of `Rights.observe_request`."""


def _ignore_stream(_peer: str, _master: str, _traffic: StreamTraffic) -> Callable[[], None]:
    """Do nothing at the begin and end of a stream; initial value of `Rights.observe_stream`."""
    return lambda: None


class Rights:
    """Checks by certificate name whether a peer may act as a master, operator or reader.

    Args:
        section: Patterns of certificate names for each right; None if every peer has all rights.
    """

    def __init__(self, section: RightsSection | None) -> None:
        self.refused = Counter[Right]()
        """Number of refused calls and streams, by the missing right."""
        self.observe: Callable[[str, bool], None] = _ignore
        """Called for each checked call with the peer, and whether the peer has the right."""
        self.observe_stream: Callable[[str, str, StreamTraffic], Callable[[], None]] = (
            _ignore_stream
        )
        """Called at the begin of a master's permitted stream.

        The arguments are the peer, the result of `peer_name`, and the counted bytes of the stream's
        messages. The result is called at the end of the stream.
        """
        self.observe_request: Callable[..., None] = _ignore_request
        """Called before and after the request of a permitted call is read.

        The arguments are the peer, the bytes that the peer may send from now on, and the bytes of
        the request. The second argument is negative after the request.
        """
        self._lately: dict[tuple[str, Right], str] = {}
        """Peer and missing right → reason of the latest refusal."""
        self._identities: dict[str, tuple[str, str]] = {}
        """Peer → result of `identified`."""
        self._forget_at = 0.0
        self._granted: dict[Right, re.Pattern[str]] | None = None
        """Right → pattern of certificate names; None if all peers have all rights."""
        if section is not None:
            groups = {
                "masters": section.masters,
                "operators": section.operators,
                "readers": section.readers,
            }
            self._granted = {
                right: _pattern([glob for group in included for glob in groups[group]])
                for right, included in _INCLUDED.items()
            }

    def has(self, certificate_names: Sequence[str] | None, right: Right) -> bool:
        """Return whether a peer with these certificate names has a right.

        If rights are configured, a peer without TLS can only be connected to the operators' Unix
        socket. Such a peer has all rights but "masters".

        Args:
            certificate_names: Names in the peer's certificate; None without TLS.
            right: The right to check.
        """
        if self._granted is None:
            return True
        if certificate_names is None:
            return right != "masters"
        return any(map(self._granted[right].match, certificate_names))

    def refusal(self, context: _Context, right: Right) -> str | None:
        """Return why a peer lacks a right; None if it has the right."""
        certificate_names, number = _names_and_number(context)
        if self.has(certificate_names, right):
            return None
        suffix = "" if number < 2 else f" (and {number - 1} other names)"
        return f"{_short_name(certificate_names or ())}{suffix} is not among listen.rights.{right}"

    def _refused_lately(self, peer: str, right: Right) -> str | None:
        """Return why a peer was refused within about the last second; None if it was not.

        The reason is cached because gRPC copies all names of a certificate at each check: 2 ms for
        3,500 names.

        Args:
            peer: The peer's address and port.
            right: The right that the peer lacked.
        """
        now = time.monotonic()
        if now >= self._forget_at:
            self._forget_at = now + REFUSAL_LASTS
            self._lately.clear()
            self._identities.clear()
        return self._lately.get((peer, right))

    def identified(self, context: _Context) -> tuple[str, str]:
        """Return what the function `identified` returns, cached like reasons of refusals."""
        peer = context.peer()
        identity = self._identities.get(peer) or identified(context)
        if peer.startswith("ip"):
            self._identities[peer] = identity
        return identity

    def permit(self, context: _Context, right: Right, *, served: bool = True) -> str | None:
        """Check whether a call's peer has a right; return None if so, otherwise the reason.

        If the peer lacks the right, the call's status is set to PERMISSION_DENIED. The caller
        should then return at once, before it reads any message of the call.

        Args:
            context: The gRPC call.
            right: The right that the call needs.
            served: Whether this port serves the call. An unserved call counts as refused.
        """
        peer = context.peer()
        refusal = self._refused_lately(peer, right) or self.refusal(context, right)
        self.observe(peer, served and refusal is None)
        if refusal is not None:
            if peer.startswith("ip"):  # all peers of a Unix socket have one name
                self._lately[peer, right] = refusal
            self.refused[right] += 1
            _log.warning("permission denied", reason=refusal, right=right, peer=peer)
            context.set_code(grpc.StatusCode.PERMISSION_DENIED)
            context.set_details(refusal)
        return refusal


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers calls of unknown methods with UNIMPLEMENTED, and reports them as refused calls.

    gRPC's own answer to such calls names no peer, so floods of them would count nowhere. Register
    this handler after all others.

    Calls of the operators' methods on a port of masters are first checked for the peer's right. A
    missing right is answered with PERMISSION_DENIED.

    Args:
        rights: The rights of peers, whose `observe` receives each call.
        elsewhere: Methods of the operators' port, with the right to call each method.
        hint: Text that names the operators' port, for peers with the right.
    """

    def __init__(
        self, rights: Rights, elsewhere: Mapping[str, Right] | None = None, hint: str = ""
    ) -> None:
        self._rights = rights
        self._elsewhere = elsewhere or {}
        self._hint = hint

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler for any method."""
        right = self._elsewhere.get(handler_call_details.method)
        return grpc.stream_stream_rpc_method_handler(partial(self._refuse, right))

    async def _refuse(
        self, right: Right | None, _requests: object, context: _Context
    ) -> AsyncIterator[None]:
        words = self._hint
        if right is None:
            self._rights.observe(context.peer(), False)
            words = "this port has no such method; check the port and the client's version"
        if right is None or self._rights.permit(context, right, served=False) is None:
            context.set_code(grpc.StatusCode.UNIMPLEMENTED)
            context.set_details(words)
        replies: tuple[None, ...] = ()
        for reply in replies:
            yield reply
