"""A plugin of pytest that records the executed lines and the duration of each test."""

import json
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import pytest

IMPORTED = ""
"""Name of the entry for imports and collection."""
_MANY = 2_000
"""Number of traced calls in a test; after them all lines of the function count as executed."""

Within: TypeAlias = Callable[[FrameType, str, object], Any]


@dataclass(frozen=True)
class Covered:
    """Executed lines and cost of a test."""

    seconds: float
    lines: dict[str, list[int]]
    """Executed lines by file."""

    def runs(self, path: str, lines: range) -> bool:
        """Return whether the test executes one of these lines."""
        return any(line in lines for line in self.lines.get(path, ()))


def read(path: Path) -> dict[str, Covered]:
    """Return the record of each test."""
    return {test: Covered(**record) for test, record in json.loads(path.read_text()).items()}


class Recorder:
    """Traces executed lines from its creation on: first the imports, then each test."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root = root
        self._path = path
        self._covered: dict[str, dict[str, object]] = {}
        self._begin()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if not self._covered:
            self.end(IMPORTED)
        self._begin()
        try:
            return (yield)
        finally:
            self.end(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._covered))

    def _begin(self) -> None:
        self._called: dict[int, tuple[CodeType, set[int], Within]] = {}
        self._calls: Counter[int] = Counter()
        self._begun = _processor_time()
        sys.settrace(self._listen)

    def _listen(self, frame: FrameType, _event: str, _argument: object) -> Within | None:
        code = frame.f_code
        known = self._called.get(id(code))
        if known is None:
            known = self._called[id(code)] = self._look(code)
        _, remaining, within = known
        if not remaining:
            return None
        self._calls[id(code)] += 1
        if self._calls[id(code)] > _MANY:
            remaining.clear()
        remaining.discard(frame.f_lineno)
        return within

    def _look(self, code: CodeType) -> tuple[CodeType, set[int], Within]:
        ours = code.co_filename.startswith(f"{self._root}/")
        remaining = _lines(code) if ours else set()

        def within(frame: FrameType, _event: str, _argument: object) -> Within:
            remaining.discard(frame.f_lineno)
            return within

        return code, remaining, within

    def end(self, test: str) -> None:
        """Record the lines executed since the last `_begin` as those of a test."""
        sys.settrace(None)
        lines: defaultdict[str, set[int]] = defaultdict(set)
        for code, remaining, _ in self._called.values():
            if code.co_filename.startswith(f"{self._root}/"):
                path = str(Path(code.co_filename).relative_to(self._root))
                lines[path] |= _lines(code) - remaining
        self._covered[test] = {
            "seconds": _processor_time() - self._begun,
            "lines": {path: sorted(numbers) for path, numbers in lines.items()},
        }


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None}


def _processor_time() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime
