"""What is wrong with what somebody wrote, in our words: a validator's findings, made readable."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
    return [
        f"{place}: {_said(problem, model)}" if (place := _place(problem)) else _said(problem, model)
        for problem in error.errors()
    ]


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
    wrong = str(place[-1])
    known = {name for names in _names(model) for name in names}
    close = difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=_ALIKE)
    return f"; did you mean {close[0]}?" if close else ""


def _names(model: type[BaseModel]) -> Iterator[set[str]]:
    """Go through a model and those of its parts."""
    yield {field.alias or name for name, field in model.model_fields.items()}
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names(field.annotation)
