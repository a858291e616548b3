"""What holds for every test."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["tests.afterwards"]

# pytest-xdist tells its workers a width; what is tested has the width that its test gives it.
os.environ.pop("COLUMNS", None)

# No deadline, nor one for drawing: how long an example takes depends on who else uses the machine.
# Where CI decides, the same commit tries the same examples; everywhere else, new ones each time.
settings.register_profile(
    "longshare",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
# Once more on another Python: what differs there shows in a few examples.
settings.register_profile("again", settings.get_profile("longshare"), max_examples=20)
settings.load_profile(os.environ.get("LONGSHARE_HYPOTHESIS", "longshare"))


@pytest.fixture(scope="session", autouse=True)
def _pytest_within_a_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have pytest that a test runs make its folders below ours.

    In the usual place it removes what earlier runs have left before it ends, which takes minutes
    where others write to the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path_factory.getbasetemp()))
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each worker begin with what is long; the rest comes in the order that chance has given.

    At first each of pytest-xdist's workers has a row of tests, all rows alike in length, so what is
    long is dealt out to where rows begin: a file to one worker, the next file to the next.
    """
    workers: int = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    files: dict[Path, list[pytest.Item]] = {}
    rest: list[pytest.Item] = []
    for item in items:
        long = item.get_closest_marker("long") is not None
        (files.setdefault(item.path, []) if long else rest).append(item)
    short = iter(rest)
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        ends = len(dealt) + (len(items) - len(dealt)) // (workers - worker)
        for of_one in islice(files.values(), worker, None, workers):
            dealt.extend(of_one)
        dealt.extend(islice(short, max(ends - len(dealt), 0)))
    items[:] = dealt


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than there are cores: tests wait for processes of theirs."""
    return len(os.sched_getaffinity(0)) + 1
