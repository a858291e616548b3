"""Writes the gains of lying users as a CSV table and as a figure."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from allocator.files import whole
from allocator.palette import COLOURS
from allocator.simulation.studies.drawing import MARKERS, legend, new_figure, save
from allocator.theory.games.gains import GainCell
from allocator.theory.games.game import file_of
from allocator.theory.games.search import WorstLie


def write_gains(rows: Sequence[tuple[GainCell, WorstLie]], folder: Path) -> Path:
    """Write `gains.csv`, with the most profitable lie for each combination of parameters.

    Args:
        rows: Combinations of policy, discount factor δ, number of users n and number of resources.
            Each comes with the game in which a lie pays most.
        folder: Folder for the file.

    Returns:
        The path of the file.

    Raises:
        OSError: the file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gains.csv"
    with whole(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        names = ["policy", "resources", "members", "delta", "truthful", "lying", "ratio", "game"]
        writer.writerow(names)
        for cell, climbed in rows:
            numbers = [cell.delta, climbed.truthful, climbed.gained, climbed.ratio]
            writer.writerow(
                [
                    cell.policy,
                    cell.resources,
                    cell.members,
                    *(f"{float(number):.6g}" for number in numbers),
                    file_of(climbed.game),
                ]
            )
    return file


def draw_gains(rows: Sequence[tuple[GainCell, WorstLie]], folder: Path) -> Path:
    """Draw what lies gain as a function of the discount factor δ, with a panel for each policy.

    Args:
        rows: Combinations of policy, δ, number of users n and number of resources. Each comes with
            the game in which a lie pays most.
        folder: Folder for the file.

    Returns:
        The path of the file.

    Raises:
        OSError: the file cannot be written.
    """
    policies = list(dict.fromkeys(cell.policy for cell, _climbed in rows))
    figure, panels = new_figure("The best lies found", len(policies))
    for policy, panel in zip(policies, panels, strict=True):
        lines: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for cell, climbed in rows:
            if cell.policy == policy:
                gain = max(float(climbed.ratio) - 1.0, 0.0)
                lines[cell.resources, cell.members].append((float(cell.delta), 100.0 * gain))
        members = list(dict.fromkeys(n for _resources, n in lines))
        for (resources, n), points in lines.items():
            panel.plot(
                *zip(*points, strict=True),
                color=COLOURS[resources - 1],
                marker=MARKERS[members.index(n)],
                linestyle="-" if n == members[0] else "--",
                label=f"{resources} resource{'s' * (resources > 1)}, n = {n}",
            )
        panel.set_title(policy, fontsize=10)
        panel.set_xlabel("δ, a stage")
        panel.set_ylabel("gain of the liar, %")
        legend(panel)
    return save([("gains", figure)], folder)["gains"]
