"""Puts small faults into the engine's rules, one at a time, and tells which of them no test finds.

`make mutation`: of all places in `allocator/fairness` and `allocator/cluster` where an operator, a
condition, a number or a call can be another one, a seeded sample is tried. A copy of the sources is
changed, and the tests of both rooms are run on it until one fails.
"""

import ast
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest

ROOT = Path(__file__).parents[1]
ROOMS = ("allocator/fairness", "allocator/cluster")
TESTS = ("tests/fairness", "tests/cluster")
COPIED = ("allocator", "frameworks", "bench", "tests", "docs", "proto", "pyproject.toml")
PATIENCE = 900.0
"""Seconds after which a fault is found: something does not end any more."""

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
    """One fault: what stands where, and what instead."""

    path: str
    line: int
    begin: int
    end: int
    """Characters of the file."""
    before: str
    after: str

    def apply(self, source: str) -> str:
        """Return the file with the fault."""
        return source[: self.begin] + self.after + source[self.end :]

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {before}  ->  {after}"


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Go through all faults that a file can be given."""
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]

    def place(line: int, column: int) -> int:
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    for node in _rules(ast.parse(source)):
        for other in _others(node):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin = place(node.lineno, node.col_offset)
            end = place(node.end_lineno, node.end_col_offset)
            text = ast.unparse(other)
            after = text if isinstance(node, ast.stmt) else f"({text})"
            yield Mutant(path, node.lineno, begin, end, source[begin:end], after)


def _rules(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Go through what decides: no messages, annotations, decorators, defaults or docstrings."""
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
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            yield ast.Compare(left, [INSTEAD[type(op)]], comparators)  # type: ignore[list-item]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in INSTEAD:
            yield ast.BinOp(left, INSTEAD[type(op)], right)  # type: ignore[arg-type]
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


def found(mutant: Mutant | None, folder: Path, python: str) -> bool:
    """Return whether a test fails on a copy of the sources with the fault in it."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    if mutant is not None:
        path = folder / mutant.path
        path.write_text(mutant.apply(path.read_text()))
    quick, slow = ("not slow",), ("slow",)
    return any(_fails(folder, python, marked) for marked in (quick, slow))


def _fails(folder: Path, python: str, marked: tuple[str]) -> bool:
    command = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    try:
        done = subprocess.run(
            [*command, "-m", *marked, *TESTS],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "CI": "true", "TMPDIR": str(folder)},
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    """Try a sample; the exit status is 1 if tests find fewer than 95 of 100."""
    arguments = _arguments()
    console = Console(soft_wrap=True)
    every = [
        mutant
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for mutant in mutants_of(str(path.relative_to(ROOT)), path.read_text())
    ]
    chosen = random.Random(arguments.seed).sample(every, min(arguments.mutants, len(every)))

    def tried(mutant: Mutant | None) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            return found(mutant, Path(folder), sys.executable)

    if tried(None):
        console.print("Tests fail on the sources as they are, so nothing can be told.")
        return 2
    survivors = []
    with ThreadPoolExecutor(arguments.processes) as pool:
        outcomes = zip(chosen, pool.map(tried, chosen), strict=True)
        for mutant, was_found in track(outcomes, "Faults", len(chosen), console=console):
            if not was_found:
                survivors.append(mutant)
                console.print(f"not found: {mutant}", markup=False, highlight=False)
    score = len(chosen) - len(survivors)
    low, high = binomtest(score, len(chosen)).proportion_ci(method="wilson")
    console.print(
        f"{score} of {len(chosen)} found ({low:.0%} to {high:.0%} of all {len(every)}), "
        f"seed {arguments.seed}"
    )
    return int(score < 0.95 * len(chosen))


def _arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="how many are tried")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="side by side")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
