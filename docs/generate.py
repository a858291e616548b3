"""Write generated parts into pages: settings from their schema, modules from their docstrings.

The programs in `tables` write the others: commands, metrics, and the contract.
"""

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from allocator.fairness import policies
from allocator.service import config
from allocator.service.slurm.config import SlurmConfig

DOCS = Path(__file__).parent
PAGES = [
    DOCS / name
    for name in (
        "contributing/modules.md",
        "reference/command-line.md",
        "reference/configuration.md",
        "reference/contract.md",
        "reference/metrics.md",
        "reference/slurm-configuration.md",
    )
]
_TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD = "| setting | values | default | meaning |\n|---|---|---|---|\n"
_HEAD_OF_POLICIES = "| setting | of | values | default | meaning |\n|---|---|---|---|---|\n"
_TYPES = {
    "boolean": "`true`, `false`",
    "integer": "whole number",
    "number": "number",
    "object": "table",
    "string": "text",
}


def text(page: Path) -> str:
    """Return the text of a page with up-to-date tables."""
    return _TABLE.sub(lambda mark: mark[1] + _table(mark[2]), page.read_text(encoding="utf-8"))


def _table(name: str) -> str:
    """Return the table for a mark of the page.

    Args:
        name: `policy.name`, `policy.*`, or a section with its parents (`listen.tls`). Sections of
            the service for Slurm have the prefix `slurm`. A package of `allocator` has the prefix
            `modules`. A program in `tables` and its arguments have the prefix `program`.
    """
    if name.startswith("program "):
        _, program, *arguments = name.split()
        content: str = _program(program)["text"](*arguments)
        return f"\n{content}\n"
    if name.startswith("modules "):
        return "| module | content |\n|---|---|\n" + "".join(_modules(name.split()[1]))
    if name == "policy.name":
        return f"{', '.join(f'`{policy}`' for policy in policies.ours())}\n"
    if name == "policy.*":
        return _HEAD_OF_POLICIES + "".join(_of_policies())
    section: type[BaseModel] = config.Config
    if name.startswith("slurm "):
        section, name = SlurmConfig, name.split()[1]
    for part in name.split("."):
        section = next(_sections(section.model_fields[part].annotation))
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(section))


@cache
def _program(name: str) -> dict[str, Any]:
    """Return the definitions of a program in `tables`."""
    return runpy.run_path(str(DOCS / "tables" / f"{name}.py"))


def _modules(package: str) -> Iterator[str]:
    """Yield a row for each module of a package: its path, and the first line of its docstring."""
    root = DOCS.parent / "allocator" / package
    for path in sorted(root.rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        summary = docstring.split("\n\n")[0].replace("\n", " ").replace("|", r"\|")
        if path.name != "__init__.py":
            yield f"| `{path.relative_to(root)}` | {summary} |\n"


def _rows(section: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Go through a section's settings: name, values, default and meaning."""
    properties = section.model_json_schema()["properties"]
    for name, field in section.model_fields.items():
        if not any(_sections(field.annotation)):
            assert field.description, f"{section.__name__}.{name} has no docstring"
            meaning = " ".join(field.description.split()).replace("|", r"\|")
            yield f"`{name}`", _values(properties[name]), _default(field), meaning


def _of_policies() -> Iterator[str]:
    """Yield the parameters of all policies, the default policy's first, each parameter once."""
    owners: dict[tuple[str, str, str, str], list[str]] = {}
    for policy in sorted(
        policies.ours(), key=lambda policy: policy != config.DEFAULT_POLICY["name"]
    ):
        for row in _rows(policies.find(policy)):
            owners.setdefault(row, []).append(f"`{policy}`")
    for (name, *rest), of in owners.items():
        yield f"| {' | '.join([name, ', '.join(of), *rest])} |\n"


def _sections(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the sections of a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _sections(argument)


def _values(schema: dict[str, Any]) -> str:
    """Return the allowed values of a setting."""
    if "anyOf" in schema:
        kinds = [_values(kind) for kind in schema["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if schema.get("format") == "duration":
        return "duration"
    if "enum" in schema:
        return ", ".join(f'`"{value}"`' for value in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_values(schema['items'])}"
    if schema["type"] == "object":
        return f"table of {_values(schema['additionalProperties'])}"
    kind = "path" if schema.get("format") == "path" else _TYPES[schema["type"]]
    limits = [
        f"{words} {schema[limit]:.12g}"
        for limit, words in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("exclusiveMaximum", "below"),
        )
        if limit in schema
    ]
    return " ".join([kind, *limits])


def _default(field: FieldInfo) -> str:
    """Return the default of a setting."""
    if field.is_required():
        return "must be given"
    if field.default_factory is not None:
        return "see there"
    if field.default is None or field.default in ((), {}):
        return "none"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, str):
        return f'`"{field.default}"`'
    return f"`{field.default:.12g}`"


def main() -> None:
    """Write the pages that change, and print their names."""
    for page in PAGES:
        generated = text(page)
        if generated != page.read_text(encoding="utf-8"):
            page.write_text(generated, encoding="utf-8")
            print(f"changed: docs/{page.relative_to(DOCS)}")


if __name__ == "__main__":
    main()
