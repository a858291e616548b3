"""What is wrong with what somebody wrote, in our words: a validator's findings, made readable."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
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
"""What a value should have been, by what the validator calls its finding."""
_ALTERNATIVE = re.compile(r"constrained-\w+|dict\[.*\]")
"""How the validator calls one of several kinds of value that would do."""
_LONGEST = 60
"""Characters of a value that are repeated."""
_ALIKE = 0.7
"""Of names, from nothing alike to the same, for one to be taken to be what was meant."""


def complaints(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return a line for each thing that is wrong: where, and what.

    Args:
        error: What validation of a `model` has found.
        model: Whose names are suggested where one is not known.
    """
    problems = error.errors()
    return [
        f"{place}: {_said(problem, model)}" if (place := _place(problem)) else _said(problem, model)
        for problem in problems
        if not _follows(problem, problems)
    ]


def _follows(problem: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a list lacks entries only because its entries are wrong, which is said."""
    place = problem["loc"]
    return problem["type"] == "too_short" and any(
        other_problem["loc"][: len(place)] == place and other_problem is not problem
        for other_problem in problems
    )


def _place(problem: Mapping[str, Any]) -> str:
    parts = (p for p in problem["loc"] if isinstance(p, int) or not _ALTERNATIVE.fullmatch(p))
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)
    return place.lstrip(".")


def _said(problem: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return "there is no such setting" + _meant(problem["loc"], model)
    if kind == "missing":
        return "it is missing"
    if kind == "too_short":
        least = context["min_length"]
        return f"it must have at least {least} {'entry' if least == 1 else 'entries'}"
    return words(problem)


def words(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with one value, as `ValidationError.errors` tells it."""
    if problem["type"] in _KINDS:
        value = repr(problem["input"])
        shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        return f"{shown} is not {_KINDS[problem['type']]}"
    said: str = problem["msg"].removeprefix("Value error, ")
    return said.replace("Input should be", "it must be").replace("Input should", "it must")


def _meant(place: Sequence[int | str], model: type[BaseModel]) -> str:
    """Suggest a setting of the same section, or else those of other sections, by full names."""
    wrong = str(place[-1])
    section = _section(model, place[:-1])
    for names in (list(_sections(section)), list(_names(model))):
        last = {name: name.rpartition(".")[2] for name in names}
        close = difflib.get_close_matches(wrong, sorted({*last.values()}), n=1, cutoff=_ALIKE)
        if close:
            meant = [name for name in names if last[name] == close[0]]
            return f"; did you mean {' or '.join(meant)}?"
    return ""


def _section(model: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel]:
    """Return the model of the section that a place leads to."""
    for part in place:
        model = _sections(model).get(str(part)) or model
    return model


def _names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Go through the full names of a model's settings, such as `store.kind`."""
    for name, section in _sections(model).items():
        yield f"{prefix}{name}"
        if section is not None:
            yield from _names(section, f"{prefix}{name}.")


def _sections(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return a model's settings, each with the model of its section if it is a section."""
    return {
        field.alias or name: next(_models(field.annotation), None)
        for name, field in model.model_fields.items()
    }


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Go through the models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
