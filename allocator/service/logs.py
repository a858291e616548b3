"""Structured logs on standard error: for people, or one JSON object a line."""

import logging
import sys

import structlog

from allocator.service.config import LogSection


def configure(section: LogSection) -> None:
    """Set up logging for this process."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if section.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[section.level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
