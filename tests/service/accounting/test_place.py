"""A service without what accounts take goes on without them, unless it has been asked for them."""

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
    """Have the modules in this set not be installed."""
    names: set[str] = set()
    monkeypatch.setattr(place, "find_spec", lambda name: None if name in names else object())
    return names


def test_accounts_lie_beside_the_store_where_nobody_says_otherwise(lacking: set[str]) -> None:
    assert not lacking
    assert place.kept_at(config(None)) == str(Path("/tmp/s/accounting.sqlite"))
    assert place.why_none(config(None)) is None


def test_without_the_extra_there_are_none_and_that_is_said(lacking: set[str]) -> None:
    lacking.add("sqlalchemy")
    assert place.kept_at(config(None)) is None
    assert "pip install 'longshare[accounting]'" in str(place.why_none(config(None)))


@pytest.mark.parametrize("silent", [config("none"), config(None, kind="none")])
def test_nothing_is_said_where_none_are_wanted(lacking: set[str], silent: Config) -> None:
    lacking.add("sqlalchemy")
    assert place.kept_at(silent) is None
    assert place.why_none(silent) is None


@pytest.mark.parametrize(
    ("missing", "database", "extra"),
    [
        ("sqlalchemy", "a.sqlite", "accounting"),
        ("sqlalchemy", "postgresql://host/name", "accounting"),
        ("psycopg", "postgresql://host/name", "postgresql"),
    ],
)
def test_who_asks_for_accounts_is_told_what_is_missing(
    lacking: set[str], missing: str, database: str, extra: str
) -> None:
    lacking.add(missing)
    with pytest.raises(ConfigError, match=rf"database: .*{missing}.*longshare\[{extra}\]"):
        place.kept_at(config(database))


def test_a_file_does_not_want_the_driver_of_postgresql(lacking: set[str]) -> None:
    lacking.add("psycopg")
    assert place.kept_at(config("a.sqlite")) == "a.sqlite"
