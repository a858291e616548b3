"""Commands that are imported when they are named, and values that are converted if need be.

An operator's command is over in a moment. Importing all others, and what typer converts values
with (pydantic), would take longer than that.
"""

import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar, NamedTuple, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

_PLAIN = (bool, float, int, str)
"""Types whose values need no conversion where they are what is asked for."""


class Place(NamedTuple):
    """Where a command is defined.

    Args:
        module: Its module.
        name: What it is called there: a function, or a group of commands.
        epilog: What its help ends with.
    """

    module: str
    name: str
    epilog: str | None = None


class _Sparing:
    """A command that converts no value which already is what is asked for."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's context
        """Return the command's parameters, and the one that asks for help."""
        command: Any = self
        asked = (
            inspect.get_annotations(inspect.unwrap(command.callback)) if command.callback else {}
        )
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the class beside
        for each in parameters:
            single = each.nargs == 1 and not getattr(each, "multiple", False)
            if not isinstance(each.process_value, partial):
                plain = _plain(asked.get(each.name)) if single else None
                each.process_value = partial(_process, each, plain, each.process_value)
        return parameters


class _Command(_Sparing, TyperCommand):
    pass


class _Group(_Sparing, TyperGroup):
    pass


class Commands(_Group):
    """A group whose commands are imported when somebody looks at them."""

    places: ClassVar[Mapping[str, Place]] = {}
    """Command → where it is, in the order in which help shows them."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**attributes)
        self.commands = _Imported(self.places)  # type: ignore[assignment] # nobody adds to it


class _Imported(Mapping[str, Any]):
    """Commands by name, each made when it is asked for."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - one class of typer's or another
        if name not in self._made:
            self._made[name] = _make(name, self._places[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _make(name: str, place: Place) -> Any:  # noqa: ANN401 - one class of typer's or another
    found = getattr(import_module(place.module), place.name)
    around = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name, cls=_Group)
        _prepare(found)
    else:
        around.command(name, epilog=place.epilog)(found)
        _prepare(around)
    made = get_command(around)
    return made.commands[name] if isinstance(made, TyperGroup) else made


def _prepare(commands: typer.Typer) -> None:
    """Have paragraphs of help broken where the terminal ends, not where our sources do."""
    for command in commands.registered_commands:
        paragraphs = inspect.cleandoc((command.callback and command.callback.__doc__) or "")
        command.help = "\n\n".join(
            paragraph.replace("\n", " ") for paragraph in paragraphs.split("\n\n")
        )
        command.cls = _Command


def _plain(annotation: Any) -> tuple[type, ...]:  # noqa: ANN401 - whatever a signature says
    """Return the types in an annotation whose values need no conversion."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    united = get_origin(annotation) in {Union, types.UnionType}
    return tuple(
        each for each in (get_args(annotation) if united else (annotation,)) if each in _PLAIN
    )


def _process(
    parameter: Any,  # noqa: ANN401 - of typer's
    plain: tuple[type, ...] | None,
    convert: Callable[[Any, Any], Any],
    ctx: Any,  # noqa: ANN401 - of typer's
    value: Any,  # noqa: ANN401 - whatever was said
) -> Any:  # noqa: ANN401 - what is asked for
    given = value is not None or parameter.required
    if plain is not None and (type(value) in plain or not given):
        _require_finite(parameter, ctx, value)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)
    try:
        converted = convert(ctx, value)
    except typer.BadParameter as error:
        found = getattr(error.__cause__, "errors", None)  # of pydantic, which is not imported here
        if found is not None:
            from allocator.complaints import words

            error.message = words(found()[0])
        raise
    for element in converted if isinstance(converted, list | tuple) else (converted,):
        _require_finite(parameter, ctx, element)
    return converted


def _require_finite(parameter: Any, ctx: Any, value: Any) -> None:  # noqa: ANN401 - of typer's
    """Refuse infinite values and nan of an option, which a range of numbers lets through.

    Raises:
        typer.BadParameter: The value is one of these.
    """
    option = parameter.param_type_name == "option"
    if option and isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number", ctx, parameter)
