"""Set-up of all tests."""

import gc
import os
from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from allocator import build
from allocator.cli.serve import WITHOUT_EVENT_ENGINE

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["tests.afterwards"]

# pytest-xdist tells its workers a terminal width; tested commands get the width of their test.
os.environ.pop("COLUMNS", None)

# gRPC reads this variable once. Servers in the tests' own processes and in their forks read
# connections as `longshare serve` does.
os.environ.setdefault("GRPC_EXPERIMENTS", WITHOUT_EVENT_ENGINE)

# No deadlines, also for drawing: the duration of an example depends on other load of the machine.
# In CI, the same commit tries the same examples; elsewhere, each run draws new examples.
settings.register_profile(
    "longshare",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
# `.ci/run` tries fewer examples of each property; `make release-check` tries all.
settings.register_profile("commit", settings.get_profile("longshare"), max_examples=40)
# A further run on another Python: a few examples show the differences between versions.
settings.register_profile("again", settings.get_profile("longshare"), max_examples=20)
settings.load_profile(os.environ.get("LONGSHARE_HYPOTHESIS", "longshare"))


@pytest.fixture(scope="session", autouse=True)
def _pytest_within_a_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a pytest run inside a test make its temporary folders below this run's folder.

    In the default folder, the inner pytest would remove folders of earlier runs before it ends,
    which takes minutes on a busy disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path_factory.getbasetemp()))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which takes a sixth of this time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long tests first in each worker's queue; the other tests keep their random order.

    pytest-xdist first gives each worker a block of tests of equal length. Long tests are put at the
    beginning of the blocks: a file to one worker, the next file to the next worker.
    """
    workers: int = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    files: dict[Path, list[pytest.Item]] = {}
    rest: list[pytest.Item] = []
    for item in items:
        long = item.get_closest_marker("long") is not None
        (files.setdefault(item.path, []) if long else rest).append(item)
    short = iter(rest)
    if build() == "compiled":
        reaches_inside = pytest.mark.skip(
            reason="puts something in place of a part of a compiled module"
        )
        for item in items:
            if item.get_closest_marker("interpreted") is not None:
                item.add_marker(reaches_inside)
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        ends = len(dealt) + (len(items) - len(dealt)) // (workers - worker)
        for of_one in islice(files.values(), worker, None, workers):
            dealt.extend(of_one)
        dealt.extend(islice(short, max(ends - len(dealt), 0)))
    items[:] = dealt


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return twice the number of cores, because tests often wait for their child processes."""
    return 2 * len(os.sched_getaffinity(0))
