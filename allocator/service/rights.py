"""Who may do what on the gRPC ports, by the names in the certificate that a peer shows."""

import os
import pwd
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import grpc
import structlog

from allocator.cluster.input.text import shortened
from allocator.service.config import RightsSection

Right = Literal["masters", "operators", "readers"]
"""To feed the engine; to give orders, and read; to read."""
_Context = grpc.aio.ServicerContext[Any, Any]
_INCLUDED: dict[Right, tuple[Right, ...]] = {
    "masters": ("masters",),
    "operators": ("operators",),
    "readers": ("readers", "operators"),
}
"""Who has a right: those that it is given, and those who have more."""

_log = structlog.get_logger(__name__)


def names(context: _Context) -> Sequence[str] | None:
    """Return the names in a peer's certificate, which an authority of ours has signed.

    The common name is first. None: the connection is without TLS.
    """
    told = context.auth_context()
    if b"ssl" not in told.get("transport_security_type", ()):
        return None
    values = [
        *told.get("x509_common_name", ()),
        *told.get("x509_subject_alternative_name", ()),
    ]
    return [value.decode(errors="replace") for value in values if value]


def certificate(context: _Context) -> str | None:
    """Return who a peer's certificate is of, for the log; None: it has shown none."""
    found = names(context)
    return None if found is None else _described(found)


def identified(context: _Context) -> tuple[str, str]:
    """Return who a peer is, and how that is known: `certificate`, `socket` or `address`.

    A Unix socket of ours is open to its owner alone, and to root; which of the two it was, the
    system could say (SO_PEERCRED), but gRPC does not hand on its answer.
    """
    shown = certificate(context)
    if shown is not None:
        return shown, "certificate"
    if context.peer().startswith("unix:"):
        return _this_user(), "socket"
    return context.peer(), "address"


def _this_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a number without a name, as in a container
        return str(os.geteuid())


def _described(found: Sequence[str]) -> str:
    """Return the first name: a certificate may have thousands, and of any length."""
    return shortened(found[0]) if found else "a certificate without a name"


class Rights:
    """Decides who may do what.

    Args:
        section: Who has which right; None: whoever can connect may do everything.
    """

    def __init__(self, section: RightsSection | None) -> None:
        self.refused = Counter[Right]()
        """Calls and streams that were refused, by the right that the peer lacked."""
        self._granted: dict[Right, tuple[str, ...]] | None = None
        if section is not None:
            self._granted = {
                "masters": section.masters,
                "operators": section.operators,
                "readers": section.readers,
            }

    def has(self, found: Sequence[str] | None, right: Right) -> bool:
        """Whether whoever has these names has a right.

        Without TLS one can only come by the operators' own socket, once rights are given by name.
        """
        if self._granted is None:
            return True
        if found is None:
            return right != "masters"
        patterns = [pattern for group in _INCLUDED[right] for pattern in self._granted[group]]
        return any(fnmatchcase(name, pattern) for name in found for pattern in patterns)

    def refusal(self, context: _Context, right: Right) -> str | None:
        """Return why a peer may not do something; None: it has the right."""
        found = names(context)
        if self.has(found, right):
            return None
        several = "" if len(found or ()) < 2 else f" (and {len(found or ()) - 1} other names)"
        return f"{_described(found or ())}{several} is not among listen.rights.{right}"

    def permit(self, context: _Context, right: Right) -> str | None:
        """Check the right of a call's peer; None: the peer has it.

        Otherwise the call's status becomes PERMISSION_DENIED, and this returns the reason. The
        caller returns at once, before it reads any message of the call.
        """
        refusal = self.refusal(context, right)
        if refusal is not None:
            self.refused[right] += 1
            _log.warning("permission denied", reason=refusal, right=right, peer=context.peer())
            context.set_code(grpc.StatusCode.PERMISSION_DENIED)
            context.set_details(refusal)
        return refusal
