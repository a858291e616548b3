"""Try one fault in this process, or in a new process if necessary: run tests until one fails.

A function gets the code with the fault. Code that ran at import time, and functions with other
closure variables, cannot be changed afterwards. For such a fault, `python -m tests.mutation.trial
FILE` imports the file with the fault.
"""

import json
import resource
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings

MEMORY = 8 * 2**30
"""Memory limit in bytes; a process beyond this limit, or beyond its processor time, never ends."""
OPTIONS = (
    *("--capture=no", "--timeout=0", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("-p", "no:terminal", "-o", "addopts=--strict-markers --strict-config"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)

# A failing example need not be made smaller.
settings.register_profile(
    "mutation",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


def put(path: str, before: str, after: str, functions: Iterable[FunctionType]) -> bool:
    """Give a file's functions their code with the fault; return False if impossible."""
    was, now = (dict(_codes(compile(text, path, "exec"))) for text in (before, after))
    changed = False
    for function in functions:
        place = function.__code__.co_qualname, function.__code__.co_firstlineno
        if place in was and place in now and was[place] != now[place]:
            if was[place].co_freevars != now[place].co_freevars:
                return False
            function.__code__ = now[place]
            changed = True
    return changed


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    yield (code.co_qualname, code.co_firstlineno), code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def until_one_fails(session: pytest.Session, seconds: dict[str, float]) -> bool:
    """Run tests, each with a limit of processor time; return whether a test failed."""
    items = {item.nodeid: item for item in session.items}
    chosen = [items[test] for test in seconds if test in items]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        _allow(10 + 3 * seconds[item.nodeid])
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return True
    return False


def _allow(seconds: float) -> None:
    """Limit the further processor time of this process, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))


class Anew:
    """A plugin of pytest that runs tests in their order until one fails."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:
            until_one_fails(session, self._seconds)
        return True


def main(file: str) -> NoReturn:
    """Import one file with a fault; the exit status says whether a test fails."""
    fault = json.loads(Path(file).read_text())
    load = SourceFileLoader.get_code

    def changed(loader: SourceFileLoader, name: str) -> CodeType | None:
        path = loader.get_filename(name)
        return (
            compile(fault["source"], path, "exec") if path == fault["path"] else load(loader, name)
        )

    SourceFileLoader.get_code = changed  # type: ignore[method-assign, assignment]
    files = sorted({test.partition("::")[0] for test in fault["seconds"]})
    sys.exit(pytest.main([*OPTIONS, *files], plugins=[Anew(fault["seconds"])]) != 0)


if __name__ == "__main__":
    main(sys.argv[1])
