"""Longshare: long-term fair sharing for Apache Mesos."""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - only `__version__`, on first use
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - a slow import

    try:
        return version("longshare")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
