"""Where a service keeps its accounts, and whether what that takes is installed with it."""

from importlib.util import find_spec

from allocator.service.config import Config, ConfigError

_INSTALL = "pip install 'longshare[{}]'"
_NEEDED = {"sqlalchemy": "accounting", "psycopg": "postgresql"}
"""Module → the extra that brings it."""


def kept_at(config: Config) -> str | None:
    """Return where accounts are kept, a URL or a path; None: nowhere.

    Where the configuration does not ask for accounts, a service without the extra goes on without.

    Raises:
        ConfigError: it asks for them, and what they take is not installed.
    """
    where = config.accounting_database()
    missing = None if where is None else _missing(where)
    if missing is None:
        return where
    if config.accounting.database is None:
        return None
    raise ConfigError(
        f"accounting.database: this takes {missing}, which is not installed: "
        f'{_INSTALL.format(_NEEDED[missing])}; or say "none"'
    )


def why_none(config: Config) -> str | None:
    """Say why no accounts are kept though nobody has said so; None: they are, or somebody has."""
    where = config.accounting_database()
    if where is None or _missing(where) is None:
        return None
    return (
        f"no accounts are kept, for SQLAlchemy is not installed: {_INSTALL.format('accounting')}; "
        'or let accounting.database be "none"'
    )


def _missing(where: str) -> str | None:
    """Return what a database takes that is not installed."""
    takes = _NEEDED if "://" in where else ("sqlalchemy",)
    return next((each for each in takes if find_spec(each) is None), None)
