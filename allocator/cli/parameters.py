"""Parsing of parameters: policy files, and NAME=VALUE for parameters, weights and commitments."""

from collections.abc import Sequence
from pathlib import Path

import typer

from allocator.cli.connection import USAGE, fail


def by_user(given: list[str] | None, option: str) -> dict[str, float]:
    """Return numbers by user; a name may contain '='.

    Raises:
        typer.BadParameter: an entry is not USER=NUMBER.
    """
    numbers: dict[str, float] = {}
    for entry in given or []:
        user, _equals, number = entry.rpartition("=")
        try:
            numbers[user] = float(number)
        except ValueError:
            user = ""
        if not user:
            raise typer.BadParameter(f"{entry!r} is not USER=NUMBER", param_hint=option)
    if len(numbers) < len(given or []):
        raise typer.BadParameter("give each user once", param_hint=option)
    return numbers


def bring(files: Sequence[Path] | None) -> list[str]:
    """Load the policies of files, and return their names; an invalid file ends the command.

    The option `--policy` then accepts these names, too.
    """
    if not files:
        return []
    from allocator import plugins

    try:
        return [name for file in files for name in plugins.load(file.absolute())]
    except plugins.PolicyError as error:
        fail(USAGE, error)


def parse(parameters: list[str] | None) -> dict[str, float | str]:
    """Return parameters by name; numeric values become numbers.

    Raises:
        typer.BadParameter: an entry is not KEY=VALUE.
    """
    given: dict[str, float | str] = {}
    for parameter in parameters or []:
        key, equals, value = parameter.partition("=")
        if not equals:
            raise typer.BadParameter(f"{parameter!r} is not KEY=VALUE", param_hint="--set")
        try:
            given[key] = float(value)
        except ValueError:
            given[key] = value
    if len(given) < len(parameters or []):
        raise typer.BadParameter("give each parameter once", param_hint="--set")
    return given
