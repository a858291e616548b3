"""Location of the accounting database, and whether the required packages are installed."""

from importlib.util import find_spec

from allocator.service.config import Config, ConfigError

_INSTALL = "pip install 'longshare[{}]'"
_NEEDED = {"sqlalchemy": "accounting", "psycopg": "postgresql"}
"""Module → the extra of Longshare that installs the module."""


def kept_at(config: Config) -> str | None:
    """Return the database's URL or path; None if no accounts are kept.

    A service without the extra keeps no accounts, unless the configuration names a database.

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
        f"accounting.database: this takes {missing}, which is not installed: "
        f'{_INSTALL.format(_NEEDED[missing])}; or say "none"'
    )


def why_none(config: Config) -> str | None:
    """Return why no accounts are kept; None if they are kept or were disabled on purpose."""
    location = config.accounting_database()
    if location is None or _missing(location) is None:
        return None
    return (
        f"no accounts are kept, for SQLAlchemy is not installed: {_INSTALL.format('accounting')}; "
        'or let accounting.database be "none"'
    )


def _missing(location: str) -> str | None:
    """Return a module that a database needs and that is not installed; None if there is none."""
    required = _NEEDED if "://" in location else ("sqlalchemy",)
    return next((module for module in required if find_spec(module) is None), None)
