"""The commands of `longshare` as Markdown, according to the command line itself."""

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from allocator.cli import app


def text() -> str:
    """Return all commands under the headings of `longshare --help`."""
    main: Any = get_command(app)
    panels: dict[str, list[str]] = {}
    for name, command in main.commands.items():
        panels.setdefault(_panel(command), []).extend(_sections(f"longshare {name}", command))
    return "\n".join(f"## {panel}\n\n" + "\n".join(sections) for panel, sections in panels.items())


def _panel(command: Any) -> str:  # noqa: ANN401 - one of several classes of typer
    panel = getattr(command, "rich_help_panel", None)
    return panel if isinstance(panel, str) else "Commands"


def _sections(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - as in `_panel`
    """Yield the section of a command, or the sections of the commands in a group."""
    if hasattr(command, "commands"):
        for subcommand, content in command.commands.items():
            yield from _sections(f"{name} {subcommand}", content)
        return
    context = command.context_class(command, info_name=name)
    parameters = [option for option in command.get_params(context) if option.name != "help"]
    required = (_form(option, context) for option in parameters if option.required)
    usage = [name, *(form.partition(", ")[0] for form in required)]
    if any(not option.required for option in parameters):
        usage.append("[OPTIONS]")
    rows = [
        f"| {' | '.join(_row(option, context))} |" for option in parameters if not option.hidden
    ]
    head = ["| argument or option | default | meaning |", "|---|---|---|"]
    notes = re.sub(
        r"^Example: (longshare .*)$",
        r"Example: `\1`",
        "\n\n".join(filter(None, (command.help, command.epilog))),
        flags=re.MULTILINE,
    )
    yield "\n".join(
        [f"### `{name}`", "", "```text", " ".join(usage), "```", ""]
        + [notes, ""]
        + ([*head, *rows, ""] if rows else [])
    )


def _form(parameter: Any, context: Any) -> str:  # noqa: ANN401 - objects of typer
    """Return the typed form of a parameter."""
    if parameter.param_type_name == "argument":
        return f"{parameter.display_name_raw.upper()}{'...' if parameter.nargs != 1 else ''}"
    flag = parameter.is_flag or parameter.count
    value = "" if flag else f" {parameter.display_type_rich(ctx=context)}"
    return ", ".join(f"{name}{value}" for name in [*parameter.opts, *parameter.secondary_opts])


def _row(parameter: Any, context: Any) -> tuple[str, str, str]:  # noqa: ANN401 - objects of typer
    """Return the form of a parameter, its default and its meaning."""
    name = ", ".join(f"`{form}`" for form in _form(parameter, context).split(", "))
    meaning = " ".join((parameter.help or "").split())
    if parameter.envvar:
        meaning += f" Environment variable: `{parameter.envvar}`."
    limits = [
        f"{word} {limit:.12g}"
        for word, limit in (("from", parameter.min), ("to", parameter.max))
        if limit is not None
    ]
    if limits:
        meaning += f" {' '.join(limits).capitalize()}."
    return _cell(name), _cell(_default(parameter)), _cell(meaning)


def _default(parameter: Any) -> str:  # noqa: ANN401 - an object of typer
    if parameter.required:
        return "must be given"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.default is None or parameter.default is False or parameter.default == []:
        return ""
    value = getattr(parameter.default, "value", parameter.default)
    if isinstance(value, float):
        return f"`{value:.12g}`"
    return "yes" if value is True else f"`{value}`"


def _cell(content: str) -> str:
    return content.replace("|", r"\|")
