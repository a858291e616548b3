"""Finds where accounts are kept, and whether the packages for the database are installed."""

from importlib.util import find_spec

from allocator.service.config import ConfigError, SharedConfig

_INSTALL = "pip install 'longshare[{}]'"
_NEEDED = {"sqlalchemy": "accounting", "psycopg": "postgresql"}
"""Module that a database needs → Longshare's extra that installs the module."""


def database_location(config: SharedConfig) -> str | None:
    """Return the URL or path of the accounting database; None if no accounts are kept.

    No accounts are kept if they are switched off. Nor are they kept if SQLAlchemy is not installed
    and the configuration does not ask for a database.

    Raises:
        ConfigError: the configuration names a database whose packages are not installed.
    """
    location = config.accounting_database()
    missing = None if location is None else _missing(location)
    if missing is None:
        return location
    if config.accounting.database is None:
        return None
    raise ConfigError(
        f"accounting.database: it needs {missing}, which is not installed; "
        f'{_INSTALL.format(_NEEDED[missing])}, or set it to "none"'
    )


def missing_reason(config: SharedConfig) -> str | None:
    """Return a warning to log if only a missing package prevents accounting; None otherwise."""
    location = config.accounting_database()
    if location is None or _missing(location) is None:
        return None
    return (
        "usage is not recorded, because SQLAlchemy is not installed; "
        f'{_INSTALL.format("accounting")}, or set accounting.database to "none"'
    )


def _missing(location: str) -> str | None:
    """Return the name of a missing module that a database needs; None if all are installed."""
    required = _NEEDED if "://" in location else ("sqlalchemy",)
    return next((module for module in required if find_spec(module) is None), None)
