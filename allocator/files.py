"""Files that are whole or as they were: what is written takes its place once it is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the block a path to write to; if it ends well, what was there before is replaced.

    Whoever else writes the same meanwhile, the file is that of one of both. What is no file, such
    as a pipe or /dev/null, is not replaced but written to; a link stays, and its file is replaced.

    Raises:
        OSError: it cannot be replaced.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
