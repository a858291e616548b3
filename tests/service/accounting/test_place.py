"""A service without the accounting extra runs without accounts, unless accounts are required."""

from pathlib import Path

import pytest

from allocator.service.accounting import place
from allocator.service.config import Config, ConfigError


def config(database: str | None, kind: str = "sqlite") -> Config:
    store = {"kind": kind, **({"path": "/tmp/s/store.sqlite"} if kind == "sqlite" else {})}
    accounting = {} if database is None else {"database": database}
    return Config.model_validate({"store": store, "accounting": accounting})


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set of module names; modules in the set appear as not installed."""
    names: set[str] = set()
    monkeypatch.setattr(place, "find_spec", lambda name: None if name in names else object())
    return names


def test_accounts_are_kept_beside_the_store_by_default(lacking: set[str]) -> None:
    assert not lacking
    assert place.database_location(config(None)) == str(Path("/tmp/s/accounting.sqlite"))
    assert place.missing_reason(config(None)) is None


def test_without_the_extra_no_accounts_are_kept_and_the_reason_is_given(lacking: set[str]) -> None:
    lacking.add("sqlalchemy")
    assert place.database_location(config(None)) is None
    assert "pip install 'longshare[accounting]'" in str(place.missing_reason(config(None)))


@pytest.mark.parametrize("silent", [config("none"), config(None, kind="none")])
def test_no_reason_is_given_if_accounts_are_switched_off(lacking: set[str], silent: Config) -> None:
    lacking.add("sqlalchemy")
    assert place.database_location(silent) is None
    assert place.missing_reason(silent) is None


@pytest.mark.parametrize(
    ("missing", "database", "extra"),
    [
        ("sqlalchemy", "a.sqlite", "accounting"),
        ("sqlalchemy", "postgresql://host/name", "accounting"),
        ("psycopg", "postgresql://host/name", "postgresql"),
    ],
)
def test_required_accounts_without_the_extra_are_rejected_with_its_name(
    lacking: set[str], missing: str, database: str, extra: str
) -> None:
    lacking.add(missing)
    with pytest.raises(ConfigError, match=rf"database: .*{missing}.*longshare\[{extra}\]"):
        place.database_location(config(database))


def test_an_accounting_file_does_not_need_the_postgresql_driver(lacking: set[str]) -> None:
    lacking.add("psycopg")
    assert place.database_location(config("a.sqlite")) == "a.sqlite"
