"""Parameters of policies as commands take them: --set KEY=VALUE."""

from typing import Annotated

import typer

Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "--parameter", metavar="KEY=VALUE", help="A parameter of that policy; repeatable."
    ),
]


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
