"""Parses option values: NAME=VALUE for parameters, weights and commitments, and policy files."""

from collections.abc import Sequence
from pathlib import Path

import typer

from allocator.cli.connection import USAGE, fail
from allocator.contract.printable import printable


def by_user(given: list[str] | None, option: str) -> dict[str, float]:
    """Parse options of the form USER=NUMBER; a user's name may contain '='.

    Args:
        given: The values of a repeatable option, or None.
        option: The option's name, for error messages.

    Returns:
        Numbers by user.

    Raises:
        typer.BadParameter: an entry is not USER=NUMBER, or a user is given twice.
    """
    numbers: dict[str, float] = {}
    for entry in given or []:
        user, _equals, number = entry.rpartition("=")
        try:
            numbers[user] = float(number)
        except ValueError:
            user = ""
        if not user:
            raise typer.BadParameter(
                f"{entry!r} is not USER=NUMBER, such as alice=2", param_hint=option
            )
    if len(numbers) < len(given or []):
        raise typer.BadParameter("give each user once", param_hint=option)
    return numbers


def initial_commitments(given: list[str] | None) -> dict[str, float]:
    """Parse the option --owes; say on standard error which commitments exceed the whole cluster.

    Raises:
        typer.BadParameter: an entry is not USER=NUMBER, or a user is given twice.
    """
    numbers = by_user(given, "--owes")
    for user, number in numbers.items():
        if number > 1.0:
            typer.echo(
                f"longshare: --owes {printable(user)}={number:g} is more than 1, which is all of a "
                "resource; write 50% as 0.5",
                err=True,
            )
    return numbers


def number_or_text(value: str | None) -> float | str | None:
    """Return a text that looks like a number as a float, and other values unchanged."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return value


def load_policy_files(files: Sequence[Path] | None) -> list[str]:
    """Load policy files, so that the option `--policy` accepts their policies.

    An invalid file ends the command.

    Returns:
        The names of the policies.
    """
    if not files:
        return []
    from allocator import plugins

    try:
        return [name for file in files for name in plugins.load(file.absolute())]
    except plugins.PolicyError as error:
        fail(USAGE, error)


def parse(parameters: list[str] | None) -> dict[str, float | str]:
    """Parse options of the form KEY=VALUE. Values that look like numbers become floats.

    Returns:
        Values by key.

    Raises:
        typer.BadParameter: an entry is not KEY=VALUE.
    """
    given: dict[str, float | str] = {}
    for parameter in parameters or []:
        key, equals, value = parameter.partition("=")
        if not equals:
            raise typer.BadParameter(
                f"{parameter!r} is not KEY=VALUE, such as half_life=1d", param_hint="--set"
            )
        number = number_or_text(value)
        given[key] = value if number is None else number
    if len(given) < len(parameters or []):
        raise typer.BadParameter("give each parameter once", param_hint="--set")
    return given
