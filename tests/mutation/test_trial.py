"""A running process applies a fault if possible; executed lines are recorded."""

import sys
from pathlib import Path
from types import FunctionType, ModuleType

from tests.mutation.covering import IMPORTED, Recorder, read
from tests.mutation.trial import put

SOURCE = """
LIMIT = 2

class Base:
    def rule(self, n):
        return n < LIMIT

class Rule(Base):
    def rule(self, n):
        return super().rule(n) or n == 7

    def twice(self, n):
        def inner(m):
            return m + n
        return inner(n)
"""


def loaded(path: Path) -> tuple[ModuleType, list[FunctionType]]:
    module = ModuleType("rules")
    exec(compile(SOURCE, path, "exec"), module.__dict__)
    functions = [module.Base.rule, module.Rule.rule, module.Rule.twice]
    return module, functions


def test_existing_functions_get_the_code_with_the_fault(tmp_path: Path) -> None:
    module, functions = loaded(tmp_path / "rules.py")
    path, rule = str(tmp_path / "rules.py"), module.Rule()
    assert put(path, SOURCE, SOURCE.replace("n < LIMIT", "n <= LIMIT"), functions)
    assert rule.rule(2)
    assert put(path, SOURCE, SOURCE.replace("m + n", "m - n"), functions)
    assert rule.twice(3) == 0


def test_code_that_ran_at_import_and_functions_with_other_closures_cannot_be_changed(
    tmp_path: Path,
) -> None:
    module, functions = loaded(tmp_path / "rules.py")
    path = str(tmp_path / "rules.py")
    assert not put(path, SOURCE, SOURCE.replace("LIMIT = 2", "LIMIT = 3"), functions)
    assert not put(path, SOURCE, SOURCE.replace("super().rule(n)", "None"), functions)
    assert not module.Rule().rule(2)


def test_executed_lines_are_recorded(tmp_path: Path) -> None:
    before = sys.gettrace()
    recorder = Recorder(tmp_path, tmp_path / "covered.json")
    try:
        module, _ = loaded(tmp_path / "rules.py")
        module.Base().rule(1)
    finally:
        recorder.end(IMPORTED)
        sys.settrace(before)
    recorder.pytest_sessionfinish()
    covered = read(tmp_path / "covered.json")[IMPORTED]
    assert covered.runs("rules.py", range(6, 7))
    assert not covered.runs("rules.py", range(10, 11))
