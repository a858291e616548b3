"""Which functions of ours each test calls, and how long it takes: a plugin of pytest.

`LONGSHARE_COVERED` names a file that it writes; `LONGSHARE_CHOSEN` one with the tests to be run, in
that order.
"""

import json
import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import pytest
from hypothesis import Phase, settings

# What has failed need not be made small, to be found.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


@dataclass(frozen=True)
class Covered:
    """What a test calls, and what it costs."""

    seconds: float
    calls: dict[str, list[int]]
    """Of each file, the first lines of functions."""


def read(path: Path) -> dict[str, Covered]:
    """Return what has been written of each test."""
    return {test: Covered(**each) for test, each in json.loads(path.read_text()).items()}


class Recorder:
    """Listens to calls while a test runs."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root = f"{root}/"
        self._path = path
        self._covered: dict[str, dict[str, object]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        called: dict[int, CodeType] = {}

        def listen(frame: FrameType, event: str, argument: object) -> None:
            called[id(frame.f_code)] = frame.f_code

        begun = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        sys.settrace(listen)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            files = defaultdict(list)
            for code in called.values():
                if code.co_filename.startswith(self._root):
                    files[code.co_filename.removeprefix(self._root)].append(code.co_firstlineno)
            seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun
            self._covered[item.nodeid] = {"seconds": seconds, "calls": files}

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._covered))


class Chooser:
    """Leaves the tests that were chosen, in their order."""

    def __init__(self, chosen: list[str]) -> None:
        self._places = {test: place for place, test in enumerate(chosen)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )


def pytest_configure(config: pytest.Config) -> None:
    """Record or choose, as the environment says."""
    if path := os.environ.get("LONGSHARE_COVERED"):
        config.pluginmanager.register(Recorder(config.rootpath / "allocator", Path(path)))
    if path := os.environ.get("LONGSHARE_CHOSEN"):
        config.pluginmanager.register(Chooser(json.loads(Path(path).read_text())))
