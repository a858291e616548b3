"""Packs a reel for the player: columns of differences, names and states once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from allocator.film.camera import MOST_USERS, Frame, Reel, UserFrame

FORMAT = 1
"""Of what the player reads."""
ABSENT = UserFrame(-1, 0, 0, 0, 0, 0)
"""In place of a user that is not in a frame."""


@dataclass(frozen=True)
class About:
    """What is told of a film."""

    source: str
    """The file it was made from."""
    policy: str
    half_life: float | None
    """Seconds in which what is owed halves; None: the policy has no memory."""
    version: str
    """Of Longshare, that made it."""
    every: float
    """Seconds from one picture to the next."""
    clock: Literal["utc", "elapsed"] = "utc"
    """Whether times are since 1970, or since the beginning."""
    notes: tuple[str, ...] = field(default=())
    """What a viewer must know, a sentence each."""


def pack(reel: Reel, about: About) -> dict[str, Any]:
    """Return what the player needs, ready for JSON; `player.js` says how it reads it."""
    frames = reel.frames
    names, left_out = _chosen(frames)
    left_out = max(left_out, reel.users_left_out)
    agents = list(dict.fromkeys(name for frame in frames for name in frame.agents))
    kept = sorted({cell for frame in frames for cell in frame.agents.values()})
    numbers = {cell: number for number, cell in enumerate(kept, start=1)}  # 0: it is not there
    places = {name: place for place, name in enumerate(names)}
    cells, amounts = reel.cells.states(), reel.held.states()
    resources = sorted(
        {name for cell in kept for name, _ in cells[cell][1]} | {n for a in amounts for n, _ in a}
    )
    states = sorted({cells[cell][0] for cell in kept})
    return {
        "format": FORMAT,
        "about": {
            "source": about.source,
            "policy": about.policy,
            "half_life": about.half_life,
            "version": about.version,
            "every": about.every,
            "clock": about.clock,
            "notes": [*about.notes, *_sampled(reel, left_out)],
        },
        "resources": resources,
        "users": [[name, reel.parents[name]] for name in names],
        "agents": agents,
        "waits": reel.waits.states(),
        "states": states,
        "held": [_vector(each, resources) for each in amounts],
        "cells": [
            [states.index(state), _vector(total, resources), _parts(held, places, resources)]
            for state, total, held in (cells[cell] for cell in kept)
        ],
        "times": _differences([round(1000 * frame.time) for frame in frames]),
        "lines": [
            [_differences(column) for column in zip(*lines, strict=True)]
            for lines in ([frame.users.get(name, ABSENT) for frame in frames] for name in names)
        ],
        "changes": list(_changes(frames, agents, numbers)),
        "marks": [[round(1000 * when), what] for when, what in reel.marks],
    }


def _chosen(frames: list[Frame]) -> tuple[list[str], int]:
    """Return whom to show, who held most over time first, and how many others there are."""
    peaks: dict[str, int] = {}
    sums: dict[str, int] = {}
    for frame in frames:
        for name, line in frame.users.items():
            peaks[name] = max(peaks.get(name, 0), line.share, line.commitment)
            sums[name] = sums.get(name, 0) + line.share
    chosen = sorted(peaks, key=lambda name: (-peaks[name], name))[:MOST_USERS]
    return sorted(chosen, key=lambda name: (-sums[name], name)), len(peaks) - len(chosen)


def _sampled(reel: Reel, users_left_out: int) -> Iterator[str]:
    """Say what is not in the film."""
    if reel.agents_left_out:
        yield f"{reel.agents_left_out:,} more agents are not shown."
    if users_left_out:
        yield f"At least {users_left_out:,} more users are not shown: who held and owed least."
    if reel.marks_left_out:
        yield f"{reel.marks_left_out:,} later marks are not shown."


def _vector(amounts: Iterable[tuple[str, int]], resources: list[str]) -> list[int]:
    known = dict(amounts)
    return [known.get(name, 0) for name in resources]


def _parts(
    held: Iterable[tuple[str, Iterable[tuple[str, int]]]],
    places: Mapping[str, int],
    resources: list[str],
) -> list[list[int]]:
    """Return rows of a user's number and what it holds; −1: users that are not shown, together."""
    rows: dict[int, list[int]] = {}
    for user, amounts in held:
        place, vector = places.get(user, -1), _vector(amounts, resources)
        before = rows.get(place)
        rows[place] = (
            vector if before is None else [a + b for a, b in zip(before, vector, strict=True)]
        )
    return [[place, *rows[place]] for place in sorted(rows)]


def _changes(
    frames: list[Frame], agents: list[str], numbers: Mapping[int, int]
) -> Iterator[list[int]]:
    """Yield for each frame: how many agents to skip, the next one's cell; and so on."""
    shown = dict.fromkeys(agents, 0)
    for frame in frames:
        row: list[int] = []
        skipped = 0
        for name in agents:
            cell = frame.agents.get(name)
            number = 0 if cell is None else numbers[cell]
            if number == shown[name]:
                skipped += 1
                continue
            row += (skipped, number)
            skipped, shown[name] = 0, number
        yield row


def _differences(values: Iterable[int]) -> list[int]:
    before, found = 0, []
    for value in values:
        found.append(value - before)
        before = value
    return found
