"""Exchanges folders between two calls of this process, as a user of the machine can."""

import os
from pathlib import Path
from typing import Any

import pytest


def exchange_new_folders(
    parent: Path, replacement: Path, monkeypatch: pytest.MonkeyPatch, *, link: bool = False
) -> None:
    """Exchange the next new folder in a folder, before the program opens the folder.

    Args:
        parent: The folder in which the attacker may exchange names.
        replacement: The folder that gets the new folder's name.
        monkeypatch: Removes the exchange at the end of the test.
        link: Whether a link to the replacement gets the name.
    """
    mkdir = os.mkdir

    def make_and_exchange(path: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        former = set(parent.iterdir())
        mkdir(path, *arguments, **named)
        for made in set(parent.iterdir()) - former:
            monkeypatch.setattr(os, "mkdir", mkdir)
            made.rename(parent.with_name("away"))
            made.symlink_to(replacement) if link else replacement.rename(made)

    monkeypatch.setattr(os, "mkdir", make_and_exchange)
