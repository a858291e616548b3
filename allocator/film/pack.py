"""Encodes a film compactly for the player in the browser, as changes from picture to picture."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from allocator.film.camera import MOST_USERS, Frame, Reel, UserFrame
from allocator.palette import COLOURS, distinct_colours

FORMAT = 2
"""Version of the player's data format."""
ABSENT = UserFrame(-1, 0, 0, 0, 0, 0)
"""Stored in place of a user that a picture does not contain."""


@dataclass(frozen=True)
class About:
    """Description of a film: its source, policy and interval, which the player shows."""

    source: str
    """The file from which the film was made."""
    policy: str
    half_life: float | None
    """Seconds in which a commitment halves; None: the policy does not track commitments."""
    version: str
    """Version of Longshare that made the film."""
    every: float
    """Seconds from one picture to the next."""
    clock: Literal["utc", "elapsed"] = "utc"
    """Whether times are seconds since 1970 (`utc`), or since the start of the film (`elapsed`)."""
    notes: tuple[str, ...] = field(default=())
    """Sentences below the film that a viewer must know, such as omissions."""


def pack(reel: Reel, about: About) -> dict[str, Any]:
    """Return a film as data for the player, ready for JSON; `player.js` describes the format."""
    frames = reel.frames
    names, left_out = _select_users(frames)
    left_out = max(left_out, reel.users_left_out)
    agents = list(dict.fromkeys(name for frame in frames for name in frame.agents))
    used_cells = sorted({cell for frame in frames for cell in frame.agents.values()})
    numbers = {
        cell: number for number, cell in enumerate(used_cells, start=1)
    }  # 0: the agent is absent
    colours = distinct_colours(names)
    positions = {name: position for position, name in enumerate(names)}
    cells, amounts = reel.cells.states(), reel.held.states()
    resources = sorted(
        {name for cell in used_cells for name, _ in cells[cell][1]}
        | {resource for amount in amounts for resource, _ in amount}
    )
    states = sorted({cells[cell][0] for cell in used_cells})
    return {
        "format": FORMAT,
        "about": {
            "source": about.source,
            "policy": about.policy,
            "half_life": about.half_life,
            "version": about.version,
            "every": about.every,
            "clock": about.clock,
            "notes": [*about.notes, *_omissions(reel, left_out)],
        },
        "resources": resources,
        "users": [[name, reel.parents[name], colours.get(name, len(COLOURS))] for name in names],
        "agents": agents,
        "waits": reel.waits.states(),
        "states": states,
        "held": [_vector(amount_vector, resources) for amount_vector in amounts],
        "cells": [
            [states.index(state), _vector(total, resources), _parts(held, positions, resources)]
            for state, total, held in (cells[cell] for cell in used_cells)
        ],
        "times": _differences([round(1000 * frame.time) for frame in frames]),
        "lines": [
            [_differences(column) for column in zip(*lines, strict=True)]
            for lines in ([frame.users.get(name, ABSENT) for frame in frames] for name in names)
        ],
        "changes": list(_changes(frames, agents, numbers)),
        "marks": [[round(1000 * time), description] for time, description in reel.marks],
    }


def _select_users(frames: list[Frame]) -> tuple[list[str], int]:
    """Choose at most `MOST_USERS` users that a film shows.

    They are the users with the highest share or commitment in any picture.

    Returns:
        The users by descending sum of shares over all pictures, and the number of omitted users.
    """
    peaks: dict[str, int] = {}
    sums: dict[str, int] = {}
    for frame in frames:
        for name, line in frame.users.items():
            peaks[name] = max(peaks.get(name, 0), line.share, line.commitment)
            sums[name] = sums.get(name, 0) + line.share
    chosen = sorted(peaks, key=lambda name: (-peaks[name], name))[:MOST_USERS]
    return sorted(chosen, key=lambda name: (-sums[name], name)), len(peaks) - len(chosen)


def _omissions(reel: Reel, users_left_out: int) -> Iterator[str]:
    """Yield sentences that tell the viewer how many agents, users and marked events are omitted."""
    if reel.agents_left_out:
        yield f"{reel.agents_left_out:,} more agents are not shown."
    if users_left_out:
        yield f"At least {users_left_out:,} more users are not shown: the smallest ones."
    if reel.marks_left_out:
        yield f"{reel.marks_left_out:,} later marks are not shown."


def _vector(amounts: Iterable[tuple[str, int]], resources: list[str]) -> list[int]:
    amount_of = dict(amounts)
    return [amount_of.get(name, 0) for name in resources]


def _parts(
    held: Iterable[tuple[str, Iterable[tuple[str, int]]]],
    positions: Mapping[str, int],
    resources: list[str],
) -> list[list[int]]:
    """Encode an agent's holdings: for each user, a row of the user's index and its amounts.

    Args:
        held: Pairs of user and its amounts by resource.
        positions: Index of each user that the film shows.
        resources: Names of the resources, in the order of the amounts in a row.

    Returns:
        The rows. Index −1 stands for all users that the film does not show.
    """
    rows: dict[int, list[int]] = {}
    for user, amounts in held:
        position, vector = positions.get(user, -1), _vector(amounts, resources)
        previous = rows.get(position)
        rows[position] = (
            vector if previous is None else [a + b for a, b in zip(previous, vector, strict=True)]
        )
    return [[position, *rows[position]] for position in sorted(rows)]


def _changes(
    frames: list[Frame], agents: list[str], numbers: Mapping[int, int]
) -> Iterator[list[int]]:
    """Encode how agents' states change: yield a list of integers for each picture.

    The list consists of pairs. Each pair stands for an agent that has changed: the number of
    unchanged agents since the previous pair, and the index of the agent's new state (0: the agent
    is absent).

    Args:
        frames: The pictures.
        agents: Names of all agents, in order.
        numbers: Index in the film of each state, from 1.
    """
    current = dict.fromkeys(agents, 0)
    for frame in frames:
        row: list[int] = []
        skipped = 0
        for name in agents:
            cell = frame.agents.get(name)
            number = 0 if cell is None else numbers[cell]
            if number == current[name]:
                skipped += 1
                continue
            row += (skipped, number)
            skipped, current[name] = 0, number
        yield row


def _differences(values: Iterable[int]) -> list[int]:
    previous, differences = 0, []
    for value in values:
        differences.append(value - previous)
        previous = value
    return differences
