"""Reads a film back, as its player does."""

import base64
import gzip
import json
import re
from itertools import accumulate
from typing import Any


def film_of(page: bytes) -> dict[str, Any]:
    embedded = re.search(rb'<script type="text/plain" id="data">([A-Za-z0-9+/=]*)</script>', page)
    assert embedded is not None
    film: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(embedded[1])))
    return film


def times_of(film: dict[str, Any]) -> list[float]:
    return [milliseconds / 1000 for milliseconds in accumulate(film["times"])]


def lines_of(film: dict[str, Any], user: str) -> list[list[int]]:
    """Return a user's columns: share, commitment, entitlement, turn, unmet demand, allocation."""
    place = [name for name, *_ in film["users"]].index(user)
    return [list(accumulate(column)) for column in film["lines"][place]]


def grid_of(film: dict[str, Any]) -> list[list[int]]:
    """Return each frame's cells by agent; 0 for absent agents."""
    shown, grid = [0] * len(film["agents"]), []
    for row in film["changes"]:
        place = 0
        for skipped, cell in zip(row[::2], row[1::2], strict=True):
            place += skipped
            shown[place] = cell
            place += 1
        grid.append(list(shown))
    return grid
