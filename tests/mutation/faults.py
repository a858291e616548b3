"""The small faults of a file: a changed sign, comparison, condition, number or call."""

import ast
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

INSTEAD: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
    ast.And: ast.Or(),
    ast.Or: ast.And(),
}


@dataclass(frozen=True)
class Mutant:
    """One fault: the place of a change, and the new text."""

    path: str
    function: str
    """Qualified name of the function, as in a traceback; empty for code at import time."""
    line: int
    lines: range
    """Lines of the statement with the fault; a test must execute one of them to find the fault."""
    begin: int
    end: int
    """End of the change; `begin` and `end` are character offsets in the file."""
    after: str
    was: str
    """The lines without the fault, joined into one."""
    now: str

    def apply(self, source: str) -> str:
        """Return the source of the file with the fault."""
        return source[: self.begin] + self.after + source[self.end :]


def described(mutant: Mutant) -> tuple[str, str, str]:
    """Return the place, the original lines, and the lines with the fault."""
    place = f"{mutant.path} {mutant.function}".strip()
    return place, mutant.was, mutant.now


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yield all faults of a file."""
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    tree = ast.parse(source)
    functions = list(_functions(tree, ""))
    statements = [_head(node) for node in _statements(tree)]

    def place(line: int, column: int) -> int:
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    for node in _rules(tree):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        function = [name for name, lines in functions if node.lineno in lines][-1]
        mine = range(node.lineno, node.end_lineno + 1)
        run = [mine, *(lines for lines in statements if node.lineno in lines)][-1]
        for replacement in _others(node):
            begin = place(node.lineno, node.col_offset)
            end = place(node.end_lineno, node.end_col_offset)
            text = ast.unparse(replacement)
            after = text if isinstance(node, ast.stmt) else f"({text})"
            lines = source[starts[node.lineno - 1] : begin], source[end : starts[node.end_lineno]]
            was, now = (_in_one(part.join(lines)) for part in (source[begin:end], after))
            yield Mutant(path, function, node.lineno, run, begin, end, after, was, now)


def _in_one(lines: str) -> str:
    return " ".join(lines.split())


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield statements, an inner statement after its enclosing statement."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)


def _head(node: ast.stmt) -> range:
    """Return the lines of a statement without its inner statements."""
    inner = next(_statements(node), None)
    assert node.end_lineno is not None
    return range(node.lineno, max(node.lineno, inner.lineno - 1 if inner else node.end_lineno) + 1)


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, range]]:
    """Yield functions with their lines, an inner function after its enclosing function."""
    if isinstance(node, ast.Module):
        yield "", range(1, sys.maxsize)
    for child in ast.iter_child_nodes(node):
        name = inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{inside}.{child.name}".lstrip(".")
            if not isinstance(child, ast.ClassDef):
                first = min(node.lineno for node in (child, *child.decorator_list))
                assert child.end_lineno is not None
                yield name, range(first, child.end_lineno + 1)
        yield from _functions(child, name)


def _rules(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield code that decides: no messages, annotations, decorators, defaults or docstrings."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "args", "bases"} and isinstance(
            node, ast.FunctionDef | ast.ClassDef | ast.AnnAssign | ast.AsyncFunctionDef
        ):
            continue
        if isinstance(node, ast.Subscript | ast.Constant):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _rules(child)


def _others(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left=first_operand, ops=[op], comparators=comparators):
            yield ast.Compare(first_operand, [INSTEAD[type(op)]], comparators)  # type: ignore[list-item]
        case ast.BinOp(left=first_operand, op=op, right=right) if type(op) in INSTEAD:
            yield ast.BinOp(first_operand, INSTEAD[type(op)], right)  # type: ignore[arg-type]
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in INSTEAD:
            yield ast.AugAssign(target, INSTEAD[type(op)], value)  # type: ignore[arg-type]
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(INSTEAD[type(op)], values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case _:
            pass
