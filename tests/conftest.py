"""What holds for every test."""

import os

import pytest
from hypothesis import settings

pytest_plugins = ["tests.afterwards"]

# pytest-xdist tells its workers a width; what is tested has the width that its test gives it.
os.environ.pop("COLUMNS", None)

# No deadline: how long an example takes depends on who else uses the machine.
# Where CI decides, the same commit tries the same examples; everywhere else, new ones each time.
settings.register_profile("longshare", deadline=None, derandomize="CI" in os.environ)
# Once more on another Python: what differs there shows in a few examples.
settings.register_profile("again", settings.get_profile("longshare"), max_examples=20)
settings.load_profile(os.environ.get("LONGSHARE_HYPOTHESIS", "longshare"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what is long; the others come in the order that chance has given them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than there are cores: tests wait for processes of theirs."""
    return len(os.sched_getaffinity(0)) + 1
