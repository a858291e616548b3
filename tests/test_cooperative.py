"""Cooperative work runs only if a caller runs its generator: a bare call does nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

ALLOCATOR = Path(__file__).parents[1] / "allocator"
BUILT_IN = {name for kind in (list, dict, set, bytearray) for name in dir(kind)}


def cooperative(function: ast.FunctionDef) -> bool:
    """Tell whether a function returns a generator that a caller has to run."""
    returned = "" if function.returns is None else ast.unparse(function.returns)
    return returned.startswith(("Cooperative[", "InParts["))


def bare_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls with results that nothing uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node.value


def generators_not_run(sources: dict[str, str]) -> list[str]:
    """Return the places that call cooperative functions without running the generators.

    A call of `self` counts if the class has such a method. Another call counts if each function of
    that name is cooperative, because types are unknown here.

    Args:
        sources: Texts of modules by their names.
    """
    trees = {name: ast.parse(text) for name, text in sources.items()}
    functions = [
        node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    plain = BUILT_IN | {function.name for function in functions if not cooperative(function)}
    named = {function.name for function in functions} - plain
    places = set()
    for name, tree in trees.items():
        for call in bare_calls(tree):
            function = call.func
            if isinstance(function, ast.Attribute) and function.attr in named:
                places.add((name, call.lineno, function.attr))
            if isinstance(function, ast.Name) and function.id in named:
                places.add((name, call.lineno, function.id))
        for owner in ast.walk(tree):
            if not isinstance(owner, ast.ClassDef):
                continue
            own = {
                method.name
                for method in owner.body
                if isinstance(method, ast.FunctionDef) and cooperative(method)
            }
            places |= {
                (name, call.lineno, call.func.attr)
                for call in bare_calls(owner)
                if isinstance(call.func, ast.Attribute)
                and ast.unparse(call.func.value) == "self"
                and call.func.attr in own
            }
    return [
        f"{name}:{line}: {function} is called but not run"
        for name, line, function in sorted(places)
    ]


def test_each_cooperative_function_that_is_called_is_run() -> None:
    """No statement of the allocator calls a cooperative function and drops its generator."""
    sources = {
        str(path.relative_to(ALLOCATOR)): path.read_text("utf-8")
        for path in ALLOCATOR.rglob("*.py")
        if "generated" not in path.parts
    }
    assert generators_not_run(sources) == []


def test_a_dropped_generator_is_found() -> None:
    """A bare call is found by the class of `self`, and by a name that only generators have."""
    text = """
class Pool:
    def fill(self) -> Cooperative[None]:
        yield

    def start(self):
        self.fill()

class Other:
    def fill(self) -> None: ...

def survey_in_steps() -> InParts[int, None]:
    yield

def both(pool, other):
    yield from survey_in_steps()
    survey_in_steps()
    other.fill()
"""
    assert generators_not_run({"pool.py": text}) == [
        "pool.py:7: fill is called but not run",
        "pool.py:17: survey_in_steps is called but not run",
    ]
