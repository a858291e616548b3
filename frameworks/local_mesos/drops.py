"""Log lines about calls of schedulers, and parts of them, that have no effect."""

import structlog

from frameworks.local_mesos.state import EmbeddedFramework

_log = structlog.get_logger(__name__)


def log_drop(framework: EmbeddedFramework, dropped: str, reason: str) -> None:
    """Log that something a scheduler asked for is not done, as a master does."""
    _log.warning(
        "dropped", framework=framework.id, name=framework.info.name, what=dropped, reason=reason
    )
