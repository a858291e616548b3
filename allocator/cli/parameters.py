"""What commands take as NAME=VALUE: parameters of policies, weights and debts of users."""

from typing import Annotated

import typer

Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "--parameter", metavar="KEY=VALUE", help="A parameter of that policy; repeatable."
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="USER=W", help="Another weight than the trace's; repeatable."),
]
Debts = Annotated[
    list[str] | None,
    typer.Option(
        "--owes",
        metavar="USER=C",
        help="A commitment at the start, as a fraction of the capacity; repeatable.",
    ),
]


def by_user(given: list[str] | None, option: str) -> dict[str, float]:
    """Return numbers by user; a name may contain '='.

    Raises:
        typer.BadParameter: one is not USER=NUMBER.
    """
    numbers: dict[str, float] = {}
    for each in given or []:
        user, _equals, number = each.rpartition("=")
        try:
            numbers[user] = float(number)
        except ValueError:
            user = ""
        if not user:
            raise typer.BadParameter(f"{each!r} is not USER=NUMBER", param_hint=option)
    return numbers


def parse(parameters: list[str] | None) -> dict[str, float | str]:
    """Return parameters by name; numbers as such.

    Raises:
        typer.BadParameter: one is not KEY=VALUE.
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
    return given
