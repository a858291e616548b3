"""Logs calls of schedulers, or parts of calls, that the master ignores."""

import structlog

from frameworks.local_mesos.state import EmbeddedFramework

_log = structlog.get_logger(__name__)


def log_dropped_call(framework: EmbeddedFramework, dropped: str, reason: str) -> None:
    """Log that the master ignores a scheduler's call, or a part of it. Mesos ignores it as well.

    Args:
        framework: The scheduler's framework.
        dropped: The ignored call or part, in words.
        reason: Why it is ignored.
    """
    _log.warning(
        "dropped", framework=framework.id, name=framework.info.name, what=dropped, reason=reason
    )
