"""A progress bar for what takes more than a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

_MOMENT = 2.0
"""Seconds"""


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
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

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

    ended = Event()

    def show() -> None:
        if not ended.wait(_MOMENT):
            progress.start()

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        ended.set()
        thread.join()
        progress.stop()
