"""The record of the public API, api.txt, according to the source.

`python docs/reference.py` renews the record, and prints the new lines of CHANGELOG.md.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allocator import api

RECORD = Path(__file__).parent / "api.txt"
_HEAD = (
    "# What allocator.api promises; `python docs/reference.py` renews it, CHANGELOG.md tells it.\n"
)


def promised() -> Iterator[str]:
    """Yield a line for each public name, with its signature and types.

    The public members of a class follow the class.
    """
    for name in sorted(api.__all__):
        value = getattr(api, name)
        node = _declared(value)
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(map(ast.unparse, node.bases))
            yield f"{name} | class {name}({bases})" if bases else f"{name} | class {name}"
            yield from _members(name, node)
        else:
            yield f"{name} | {_signature(name, node)}"


def docstring(name: str) -> str:
    """Return the docstring of a public class or function, or an empty text."""
    return ast.get_docstring(_declared(getattr(api, name))) or ""


def _declared(value: Any) -> ast.ClassDef | ast.FunctionDef:  # noqa: ANN401 - anything public
    """Return where a class or function is declared, as the file says now."""
    file = sys.modules[value.__module__].__file__
    assert file is not None
    return next(
        node
        for node in reversed(ast.parse(Path(file).read_text(encoding="utf-8")).body)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == value.__name__
    )


def _members(owner: str, node: ast.ClassDef) -> Iterator[str]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            name = member.target.id
            default = "" if member.value is None else f" = {ast.unparse(member.value)}"
            signature = f"{name}: {ast.unparse(member.annotation)}{default}"
        elif isinstance(member, ast.FunctionDef):
            name = member.name
            decorators = "".join(
                f"@{ast.unparse(decorator)} " for decorator in member.decorator_list
            )
            signature = decorators + _signature(name, member)
        else:
            continue
        if not name.startswith("_") or name == "__init__":
            yield f"{owner}.{name} | {signature}"


def _signature(name: str, node: ast.FunctionDef) -> str:
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"{name}({ast.unparse(node.args)}){returns}"


def digest(lines: list[str]) -> str:
    """Return the digest of the whole API, for CHANGELOG.md."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def recorded() -> tuple[str, list[str], list[str]]:
    """Return the recorded digest, the names changed with the digest, and the lines."""
    head, changed, *lines = RECORD.read_text(encoding="utf-8").removeprefix(_HEAD).splitlines()
    return head.removeprefix("digest "), changed.removeprefix("changed ").split(), lines


def main() -> None:
    """Renew the record."""
    lines = list(promised())
    before = recorded()[2] if RECORD.exists() else []
    differing = set(before) ^ set(lines)
    if before and not differing:
        return
    changed = sorted({line.partition(" ")[0].partition(".")[0] for line in differing})
    if not before:
        changed = ["everything"]
    content = [f"digest {digest(lines)}", f"changed {' '.join(changed)}", *lines]
    RECORD.write_text(_HEAD + "\n".join(content) + "\n", encoding="utf-8")
    sys.stdout.write(
        f"CHANGELOG.md wants a line that has `{digest(lines)}` and names what it is about: "
        f"{', '.join(changed)}\n"
    )


if __name__ == "__main__":
    main()
