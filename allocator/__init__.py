"""Longshare: long-term fair sharing for Apache Mesos."""

from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import Any


def build() -> str:
    """Return "compiled" if the engine's modules are compiled, or "pure" if Python interprets them.

    The function imports no module of the engine.
    """
    folders = [f"{folder}/fairness" for folder in __path__]
    spec = PathFinder.find_spec("allocator.fairness.pool", folders)
    return "compiled" if spec and isinstance(spec.loader, ExtensionFileLoader) else "pure"


def provenance() -> dict[str, str | None]:
    """Return the version, and the Git commit of a checkout or None, for files of results."""
    import subprocess  # noqa: PLC0415 - a slow import
    from pathlib import Path  # noqa: PLC0415 - a slow import

    checkout = Path(__file__).parent.parent
    commit = None
    if (checkout / ".git").exists():
        command = ("git", "-C", str(checkout), "rev-parse", "HEAD")
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - a fixed command
            commit = answer.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            commit = None  # without Git, or in a checkout of another user
    return {"version": __getattr__("__version__"), "commit": commit}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - only `__version__`, on first use
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - a slow import

    try:
        return version("longshare")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
