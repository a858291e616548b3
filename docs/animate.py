"""Draw a time machine as an animated picture: `python -m docs.animate time-machine.html OUT.svg`.

The picture shows up to 40 agents in the colours of users, and the users' shares and commitments.
Readers who prefer reduced motion see a still picture of the end.
"""

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from allocator.palette import style
from tests.film.reading import film_of, grid_of, lines_of, times_of

SECONDS = 24
"""Duration of the animation."""
FRAMES = 96
CELL, GAP, COLUMNS, MOST_AGENTS = 37, 4, 8, 40
LEFT, WIDTH, HEIGHT = 410, 410, 130
"""Left end, width and height of a chart, in pixels."""
SHARE, COMMITMENT, ENTITLEMENT, TURN = range(4)


def main(page: Path, picture: Path) -> None:
    """Read a time machine, and write its animated picture."""
    content = page.read_bytes()
    if b'id="data"' not in content:
        raise SystemExit(f"{page} is not a time machine; `longshare replay LOG --html` writes one")
    picture.write_text("\n".join(_picture(film_of(content))) + "\n", encoding="utf-8")


def _picture(film: dict[str, Any]) -> Iterator[str]:
    times = times_of(film)
    lines = [lines_of(film, name) for name, *_ in film["users"]]
    turns = (next((at for at, turn in enumerate(user[TURN]) if turn > 0), 0) for user in lines)
    start = times[min(turns, default=0)]
    seconds = [time - start for time in times]
    instants = [seconds[-1] * number / (FRAMES - 1) for number in range(FRAMES)]
    shown = [max(at for at, time in enumerate(seconds) if time <= instant) for instant in instants]
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 400" font-family="sans-serif">'
    yield "<title>Agents, shares and commitments of the users over time</title>"
    yield f"<style>{style()} svg {{ background: var(--ground) }}"
    yield "text { fill: var(--soft); font-size: 13px }"
    yield ".strong { fill: var(--ink); font-weight: 600; font-size: 15px } .still { display: none }"
    yield "@media (prefers-reduced-motion: reduce) { .still { display: inline }"
    yield ".moving { display: none } .lines { clip-path: none } }</style>"
    yield '<text class="strong" x="15" y="24">Agents</text>'
    yield from _agents(film, shown)
    bottom = 45 + 5 * (CELL + GAP) + 20
    for place, (name, _, colour) in enumerate(film["users"][:8]):
        x, y = 15 + place % 4 * 80, bottom + place // 4 * 24
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="var(--u{colour})"/>'
        yield f'<text class="strong" x="{x + 20}" y="{y + 12}">{escape(name)}</text>'
    users = [(colour, line) for (_, _, colour), line in zip(film["users"], lines, strict=True)]
    yield from _chart(users, seconds, SHARE, "Shares of the cluster", 40)
    yield from _chart(users, seconds, COMMITMENT, "Commitments", 225)
    for number in range(0, int(seconds[-1]) + 1, max(round(seconds[-1] / 4 / 50) * 50, 1)):
        tick = LEFT + WIDTH * number / seconds[-1]
        yield f'<text x="{tick:.0f}" y="373" text-anchor="middle">{number}</text>'
    yield f'<text x="{LEFT + WIDTH // 2}" y="392" text-anchor="middle">Time (s)</text>'
    yield f'<path class="moving" d="M{LEFT},40V355" stroke="var(--ink)">'
    yield '<animateTransform type="translate" '
    yield f'attributeName="transform" values="0;{WIDTH}" {_timing()}/></path></svg>'


def _timing() -> str:
    return f'dur="{SECONDS}s" repeatCount="indefinite"'


def _agents(film: dict[str, Any], shown: list[int]) -> Iterator[str]:
    """Yield the agents. Each user's rectangle starts at the bottom, below all later rectangles."""
    users = range(len(film["users"]))
    for place, history in enumerate(_cells(film, shown)):
        x, y = 15 + place % COLUMNS * (CELL + GAP), 40 + place // COLUMNS * (CELL + GAP)
        yield f'<g transform="translate({x},{y + CELL}) scale(1,-1)">'
        yield f'<rect width="{CELL}" height="{CELL}" fill="var(--panel)"/>'
        for user in reversed(users):
            heights = [
                round(CELL * sum(parts.get(below, 0.0) for below in range(user + 1)))
                for parts in history
            ]
            if not any(heights):
                continue
            part = f'width="{CELL}" fill="var(--u{film["users"][user][2]})"'
            yield f'<rect class="still" height="{heights[-1]}" {part}/>'
            yield f'<rect class="moving" {part}><animate '
            yield 'attributeName="height" calcMode="discrete" '
            yield f'values="{";".join(map(str, heights))}" {_timing()}/></rect>'
        yield "</g>"


def _cells(film: dict[str, Any], shown: list[int]) -> list[list[dict[int, float]]]:
    """Return users' parts of the first resource: by agent, shown frame, and user."""
    grid = grid_of(film)
    histories = []
    for agent in range(min(len(film["agents"]), MOST_AGENTS)):
        history = []
        for frame in shown:
            cell = grid[frame][agent]
            _, total, parts = film["cells"][cell - 1] if cell else (0, [1], [])
            history.append({user: held / total[0] for user, held, *_ in parts})
        histories.append(history)
    return histories


def _chart(
    users: list[tuple[int, list[list[int]]]],
    seconds: list[float],
    column: int,
    title: str,
    top: int,
) -> Iterator[str]:
    """Yield a chart of a column; lines appear with time.

    Args:
        users: Number of the colour, and columns, of each user.
        seconds: Time of each frame since the start.
        column: Index of the column.
        title: Heading of the chart.
        top: Upper end of the chart, in pixels.
    """
    most = max(value for _, columns in users for value in columns[column]) or 1
    step = next((step for step in (100, 250, 500, 1000, 2500) if most <= 4 * step), 5000)
    yield f'<text class="strong" x="{LEFT}" y="{top - 16}">{title}</text>'
    for value in range(0, most + 1, step):
        y = top + HEIGHT * (1 - value / most)
        yield f'<path d="M{LEFT},{y:.0f}h{WIDTH}" stroke="var(--line)"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{value / 100:g} %</text>'
    yield f'<clipPath id="c{column}"><rect x="{LEFT}" y="{top - 2}" height="{HEIGHT + 4}">'
    yield f'<animate attributeName="width" values="0;{WIDTH}" {_timing()}/></rect></clipPath>'
    yield f'<g class="lines" clip-path="url(#c{column})" fill="none" stroke-width="2">'
    for colour, columns in users:
        first = next((at for at, value in enumerate(columns[column]) if value > 0), len(seconds))
        points = [
            f"{LEFT + WIDTH * time / seconds[-1]:.1f},{top + HEIGHT * (1 - value / most):.1f}"
            for time, value in list(zip(seconds, columns[column], strict=True))[first - 1 :: 3]
        ]
        if first < len(seconds):
            yield f'<path stroke="var(--u{colour})" d="M{" ".join(points)}"/>'
    yield "</g>"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
