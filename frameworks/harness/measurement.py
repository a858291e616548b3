"""What was measured: CPUs and commitments by user over time, read back from their sources."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Series = dict[float, float]
"""Seconds since the start → value."""


@dataclass(slots=True)
class Measurement:
    """Samples of one run. Times are the master's seconds since the start."""

    cpus: dict[str, Series] = field(default_factory=dict)
    """By user: cores held."""
    commitments: dict[str, Series] = field(default_factory=dict)
    """By user: the dominant one."""
    running: dict[str, Series] = field(default_factory=dict)
    """By user: cores that running tasks hold; what is merely offered is left out."""
    completions: dict[str, float] = field(default_factory=dict)
    """By user that has finished: seconds from its own start to the end of its last task."""

    @property
    def in_use(self) -> Series:
        """Cores that running tasks hold, all users together."""
        total: Series = {}
        for series in self.running.values():
            for when, cpus in series.items():
                total[when] = total.get(when, 0.0) + cpus
        return total


def read_recorder(path: Path, start: float, end: float) -> Measurement:
    """Read what the allocator's recorder wrote between two instants of the master's clock."""
    measured = Measurement()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            when = float(row["time"]) - start
            if not 0.0 <= when <= end - start:
                continue
            owed = measured.commitments.setdefault(row["user"], {})
            owed[when] = max(owed.get(when, 0.0), float(row["commitment"]))
            if row["resource"] == "cpus":
                measured.cpus.setdefault(row["user"], {})[when] = float(row["allocation"])
    return measured


def write_table(path: Path, series: Mapping[str, Series]) -> None:
    """Write series side by side: a column of times, then one for each user, by name."""
    users = sorted(series)
    times = sorted({when for values in series.values() for when in values})
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["time", *users])
        for when in times:
            rows.writerow([f"{when:.3f}", *(f"{series[user].get(when, 0.0):g}" for user in users)])


def mean(series: Series, start: float, end: float) -> float:
    """Return the mean of the samples in [start, end); nothing measured is nothing held."""
    values = [value for when, value in series.items() if start <= when < end]
    return sum(values) / len(values) if values else 0.0


def last(series: Series, at: float) -> float:
    """Return the latest sample up to an instant, 0 when there is none."""
    return max(((when, value) for when, value in series.items() if when <= at), default=(0, 0.0))[1]
