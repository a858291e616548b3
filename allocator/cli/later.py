"""Makes commands start fast: imports only the command that runs, and converts few values.

Importing all other commands, and pydantic, with which typer converts values, would take longer than
an operator's command itself. So a value is converted only if it has the wrong type.
"""

import inspect
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

_PLAIN = (bool, float, int, str)
"""Types whose values need no conversion if the parameter has that type."""
_NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan).*")
_PYTHON_TYPE = re.compile(r"<(list\[)?(?P<type>\w+)\]?( range)?>")
"""A type in the help of typer, such as `<float range>` or `<list[Path]>`."""
_NOT_A_CHOICE = re.compile(r"'(?P<given>.*)' is not one of (?P<names>.*)\.", re.DOTALL)
"""Message of typer about a value that is not among the choices."""
_TYPES = {"float": "number", "int": "integer", "str": "text"}
"""Words for types of Python."""


class CommandLocation(NamedTuple):
    """Location of a command's definition, so that its module is imported only if the command runs.

    Args:
        module: The module that defines the command.
        name: Name in the module: a function, or a group of commands.
        panel: Heading of the commands among which the help lists this one.
        epilog: Last paragraph of the command's help.
    """

    module: str
    name: str
    panel: str | None = None
    epilog: str | None = None


class _LazyConversion:
    """Base of commands and groups whose options convert a value only if its type is wrong.

    Commands thus start without importing pydantic. The help shows no type for flags.
    """

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's context
        """Return the command's parameters, each changed to keep a value that has the right type."""
        command: Any = self
        annotations = (
            inspect.get_annotations(inspect.unwrap(command.callback)) if command.callback else {}
        )
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the other base class
        for parameter in parameters:
            single = parameter.nargs == 1 and not getattr(parameter, "multiple", False)
            if not isinstance(parameter.process_value, partial):
                plain = _plain(annotations.get(parameter.name)) if single else None
                parameter.process_value = partial(
                    _process, parameter, plain, parameter.process_value
                )
                _name_type(parameter)
        return parameters


class _Command(_LazyConversion, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's context
        """Parse options and arguments; a negative number is a value and not an option."""
        return super().parse_args(ctx, _values_last(self.get_params(ctx), args))


class _Group(_LazyConversion, TyperGroup):
    pass


class Commands(_Group):
    """A group of commands, each of which is imported on first use."""

    places: ClassVar[Mapping[str, CommandLocation]] = {}
    """Location of each command, in the order of the help."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's arguments
        super().__init__(**attributes)
        self.commands = _Imported(self.places)  # type: ignore[assignment] # commands are not added


class _Imported(Mapping[str, Any]):
    """Mapping from name to command; a command's module is imported on first access."""

    def __init__(self, places: Mapping[str, CommandLocation]) -> None:
        self._places = places
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - one of several classes of typer
        if name not in self._made:
            self._made[name] = _make(name, self._places[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _make(name: str, place: CommandLocation) -> Any:  # noqa: ANN401 - one of several classes of typer
    command = getattr(import_module(place.module), place.name)
    wrapper = typer.Typer(add_completion=False)
    if isinstance(command, typer.Typer):
        wrapper.add_typer(command, name=name, cls=_Group, rich_help_panel=place.panel)
        _prepare(command)
    else:
        wrapper.command(name, epilog=place.epilog, rich_help_panel=place.panel)(command)
        _prepare(wrapper)
    root = get_command(wrapper)
    return root.commands[name] if isinstance(root, TyperGroup) else root


def _prepare(commands: typer.Typer) -> None:
    """Set each command's help from its docstring, with the lines of a paragraph joined.

    The terminal's width then determines line breaks.
    """
    for command in commands.registered_commands:
        paragraphs = inspect.cleandoc((command.callback and command.callback.__doc__) or "")
        command.help = "\n\n".join(
            paragraph.replace("\n", " ") for paragraph in paragraphs.split("\n\n")
        )
        command.cls = _Command


def _values_last(parameters: Sequence[Any], arguments: Sequence[str]) -> list[str]:
    """Move negative numbers that are values of arguments to the end, behind `--`.

    Otherwise the parser would take such a number for an option: `weight set USER -1`.

    Args:
        parameters: Parameters of the command.
        arguments: Options and arguments as typed.
    """
    valued = {
        name
        for parameter in parameters
        if parameter.param_type_name == "option" and not parameter.is_flag
        for name in parameter.opts
    }
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = list[str]()
    moved = list[str]()
    for before, argument in pairwise(["", *arguments[:end]]):
        is_value = _NEGATIVE.fullmatch(argument) and before not in valued
        (moved if is_value else kept).append(argument)
    return [*kept, "--", *moved, *arguments[end + 1 :]] if moved else list(arguments)


def _name_type(parameter: Any) -> None:  # noqa: ANN401 - an object of typer
    """Let the help name a parameter's type in words; a flag has none."""
    is_flag, display = getattr(parameter, "is_flag", False), parameter.display_type_rich

    def in_words(ctx: Any) -> str | None:  # noqa: ANN401 - typer's context
        shown: str | None = display(ctx=ctx)
        return None if is_flag or shown is None else _PYTHON_TYPE.sub(_type_in_words, shown)

    parameter.display_type_rich = in_words


def _type_in_words(shown: re.Match[str]) -> str:
    return f"<{_TYPES.get(shown['type'], shown['type'].lower())}>"


def _plain(annotation: Any) -> tuple[type, ...]:  # noqa: ANN401 - any annotation
    """Return the types of an annotated option that are in `_PLAIN`, such as `int` and `str`.

    A value that already has one of these types needs no conversion.
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    united = get_origin(annotation) in {Union, types.UnionType}
    return tuple(
        member for member in (get_args(annotation) if united else (annotation,)) if member in _PLAIN
    )


def _process(
    parameter: Any,  # noqa: ANN401 - an object of typer
    plain: tuple[type, ...] | None,
    convert: Callable[[Any, Any], Any],
    ctx: Any,  # noqa: ANN401 - an object of typer
    value: Any,  # noqa: ANN401 - a value of any type
) -> Any:  # noqa: ANN401 - a value of the parameter's type
    given = value is not None or parameter.required
    if plain is not None and (type(value) in plain or not given):
        _require_finite(parameter, ctx, value)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)
    try:
        converted = convert(ctx, value)
    except typer.BadParameter as error:
        if value in ("nan", "inf", "-inf"):  # a range would be named in place of the reason
            _require_finite(parameter, ctx, float(value))
        errors = getattr(error.__cause__, "errors", None)  # of pydantic, which is not imported here
        if errors is not None:
            from allocator.complaints import words

            error.message = words(errors()[0])
        if (choices := _NOT_A_CHOICE.fullmatch(error.message)) is not None:
            from allocator.complaints import did_you_mean

            names = re.findall("'([^']+)'", choices["names"])
            error.message = error.message.removesuffix(".") + did_you_mean(choices["given"], names)
        raise
    for element in converted if isinstance(converted, list | tuple) else (converted,):
        _require_finite(parameter, ctx, element)
    return converted


def _require_finite(parameter: Any, ctx: Any, value: Any) -> None:  # noqa: ANN401 - an object of typer
    """Option callback: check that a value is not infinite or nan.

    Options with a range need this check, because the range does not exclude such values.

    Raises:
        typer.BadParameter: the value is infinite or nan.
    """
    option = parameter.param_type_name == "option"
    if option and isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number", ctx, parameter)
