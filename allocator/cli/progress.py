"""A progress bar for what takes more than a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_MOMENT = 2.0
"""Seconds"""


@contextmanager
def working(description: str) -> Iterator[None]:
    """Say on standard error what is being done, and for how long, once it takes over 2 s."""
    from rich.console import Console
    from rich.progress import (
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(description, total=None)
    with _after_a_moment(progress):
        yield


@contextmanager
def bar(description: str, total: int, of: str) -> Iterator[Callable[[int], None]]:
    """Show progress, its rate and the time left on standard error, once it takes over 2 s.

    Args:
        description: What is being done.
        total: How much there is to do.
        of: In what it is counted, such as "tasks".

    Yields:
        What is to be called with how much has been done so far.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.fields[rate]} " + of + "/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(description, total=total, rate="-")

    def report(done: int) -> None:
        speed = progress.tasks[0].finished_speed or progress.tasks[0].speed
        progress.update(task, completed=done, rate="-" if speed is None else f"{speed:,.0f}")

    with _after_a_moment(progress):
        yield report


@contextmanager
def _after_a_moment(progress: "Progress") -> Iterator[None]:
    """Show something, but not for what is over at once."""
    ended = Event()

    def show() -> None:
        if not ended.wait(_MOMENT):
            progress.start()

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        progress.stop()
