"""Converts validation errors and unknown names to readable sentences."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_KINDS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "a table",
    "model_type": "a table",
    "path_type": "a path in quotes",
    "string_type": "text",
    "tuple_type": "a list",
}
"""Expected kind of value, by pydantic's error type."""
_ALTERNATIVE = re.compile(r"constrained-\w+|dict\[.*\]")
"""Pydantic's name for one of several permitted kinds of value."""
_LONGEST = 60
"""Characters of a rejected value that are repeated in the message."""
_ALIKE = 0.7
"""Least similarity of names for a suggestion, from 0 (nothing in common) to 1 (equal)."""


def unknown(kind: str, name: object, names: Iterable[str]) -> str:
    """Return the message for an unknown name, with a similar name if any, and all known names.

    Args:
        kind: Kind of the name, such as "policy".
        name: The unknown name.
        names: The known names.
    """
    return f"{kind} {name!r} is unknown{alternatives(name, names)}"


def alternatives(name: object, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a similar name if any, and all names.

    Args:
        name: The unknown name.
        names: The known names.
    """
    known = list(names)
    meant = did_you_mean(name, known)
    return f"{f'{meant} There' if meant else '; there'} are: {', '.join(known)}"


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return a text that suggests the most similar known name; empty if no name is similar."""
    known, wrong = list(names), str(name)
    longer = [candidate for candidate in known if wrong and candidate.startswith(wrong)]
    similar = longer[:1] or difflib.get_close_matches(wrong, known, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def require_one_spelling(names: Iterable[tuple[str, str]]) -> None:
    """Check that each resource has a single name.

    `other_spelling` finds spellings.

    Args:
        names: Pairs of a place, such as `users[0].needs[1]`, and a name.

    Raises:
        ValueError: two names look like the same resource; the message has both names and places.
    """
    places = dict[str, str]()
    for place, name in names:
        if name in places:
            continue
        known = other_spelling(name, places)
        if known is not None:
            raise ValueError(
                f"{place}: {name!r} is not the resource {known!r} of {places[known]}; did you "
                f"mean {known}? Write one name for one resource"
            )
        places[name] = place


def other_spelling(name: str, names: Iterable[str]) -> str | None:
    """Return another spelling of a resource's name, such as `cpus` for `cpu`; None for none.

    Spellings differ in upper and lower case, and in an "s" at the end.

    Args:
        name: The name.
        names: Names to compare.
    """
    singular = _singular(name)
    spellings = (known for known in names if known != name and _singular(known) == singular)
    return next(spellings, None)


def _singular(name: str) -> str:
    """Return a name in lower case without an "s" at the end; a single letter unchanged."""
    return name.casefold().removesuffix("s") if len(name) > 1 else name


def complaints(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return a line for each mistake that validation found: the setting's name, and the reason.

    Args:
        error: The error of validating `model`.
        model: The validated model. Its names are suggested in place of unknown ones.
    """
    problems = error.errors()
    return [
        f"{place}: {_describe(problem, model)}"
        if (place := _place(problem))
        else _describe(problem, model)
        for problem in problems
        if not _follows(problem, problems)
    ]


def listed(problems: Sequence[str]) -> str:
    """Return a single problem unchanged, and several problems on an indented line each."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} mistakes" + "".join(f"\n  {problem}" for problem in problems)


def _follows(problem: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an error "list too short" is only due to invalid entries of the list.

    Such an error need not be shown, because each invalid entry has an error of its own.

    Args:
        problem: One entry of `ValidationError.errors`.
        problems: All entries.
    """
    place = problem["loc"]
    return problem["type"] == "too_short" and any(
        other_problem["loc"][: len(place)] == place and other_problem is not problem
        for other_problem in problems
    )


def _place(problem: Mapping[str, Any]) -> str:
    parts = (
        part for part in problem["loc"] if isinstance(part, int) or not _ALTERNATIVE.fullmatch(part)
    )
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return place.lstrip(".")


def _describe(problem: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        is_section = isinstance(problem["input"], dict)
        return "there is no such setting" + _suggest(problem["loc"], model, is_section=is_section)
    if kind == "missing":
        return "it is missing; add it"
    if kind == "too_short":
        minimum = context["min_length"]
        return f"it must have at least {minimum} {'entry' if minimum == 1 else 'entries'}"
    return words(problem)


def words(problem: Mapping[str, Any]) -> str:
    """Return one entry of `ValidationError.errors` as a sentence without the setting's name."""
    if problem["type"] in _KINDS:
        value = repr(problem["input"])
        shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        return f"{shown} is not {_KINDS[problem['type']]}"
    text: str = problem["msg"].removeprefix("Value error, ")
    return text.replace("Input should be", "it must be").replace("Input should", "it must")


def _suggest(place: Sequence[int | str], model: type[BaseModel], *, is_section: bool) -> str:
    """Return a text that suggests known settings for an unknown name; empty if none is similar.

    Settings of the same section come first, before settings of other sections.

    Args:
        place: Path of the unknown setting: names of sections, then its own name.
        model: Model of all settings.
        is_section: Whether the unknown setting is a section. Only sections are then suggested.
    """
    wrong = str(place[-1])
    section = _section(model, place[:-1])
    for settings in (_sections(section), dict(_names(model))):
        last = {
            name: name.rpartition(".")[2]
            for name, content in settings.items()
            if content is not None or not is_section
        }
        close = difflib.get_close_matches(wrong, sorted({*last.values()}), n=1, cutoff=_ALIKE)
        if close:
            meant = [name for name, own in last.items() if own == close[0]]
            return f"; did you mean {' or '.join(meant)}?"
    return ""


def _section(model: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel]:
    """Return the model of the section in which a setting is.

    Args:
        model: Model of all settings.
        place: Path of the setting: names of sections, then its own name.
    """
    for part in place:
        model = _sections(model).get(str(part)) or model
    return model


def _names(
    model: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """Yield a model's settings with their full names, such as `store.kind`; see `_sections`."""
    for name, section in _sections(model).items():
        yield f"{prefix}{name}", section
        if section is not None:
            yield from _names(section, f"{prefix}{name}.")


def _sections(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return the settings of a model by name: a section's own model, or None for a plain value."""
    return {
        field.alias or name: next(_models(field.annotation), None)
        for name, field in model.model_fields.items()
    }


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the pydantic models inside a type annotation, such as a union or a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
