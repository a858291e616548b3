"""Shows progress on standard error for work that takes more than two seconds.

A terminal gets a changing line. A pipe or a file gets one line with the name of the work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

_MOMENT = 2.0
"""Seconds before a progress bar appears."""


def on_terminal(*columns: "str | ProgressColumn") -> "Progress":
    """Return a progress display on standard error; without a terminal, the display prints nothing.

    Args:
        columns: The columns of the display; none for the usual columns.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # Without a terminal, the display would only print an empty line.
    disabled = not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=disabled)


@contextmanager
def working(description: str) -> Iterator[None]:
    """Context manager: show a description and elapsed time if the block takes over 2 s.

    The output is on standard error.
    """
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
    with _after_a_moment(progress, description):
        yield


@contextmanager
def bar(description: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Context manager: show progress, rate and remaining time if the block takes over 2 s.

    The output is on standard error.

    Args:
        description: Text before the progress bar.
        total: Amount of work.
        unit: Unit of the work, such as "tasks".

    Yields:
        A callback, to which the block passes the total amount of work done so far.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.fields[rate]} " + unit + "/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(description, total=total, rate="-")

    def report(done: int) -> None:
        speed = progress.tasks[0].finished_speed or progress.tasks[0].speed
        progress.update(task, completed=done, rate="-" if speed is None else f"{speed:,.0f}")

    with _after_a_moment(progress, f"{description} {total:,} {unit}"):
        yield report


@contextmanager
def _after_a_moment(progress: "Progress", description: str) -> Iterator[None]:
    """Context manager: show a progress bar if the block takes longer than `_MOMENT` seconds.

    Args:
        progress: The progress bar for a terminal.
        description: The line for a standard error that is no terminal.
    """
    ended = Event()
    changing = progress.console.is_terminal

    def show() -> None:
        if ended.wait(_MOMENT):
            return
        if changing:
            progress.start()
        else:
            progress.console.print(f"longshare: {description} …", markup=False, soft_wrap=True)

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if changing:
            progress.stop()
