"""Measured CPUs and commitments by user over time, read from the allocator's recorder."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Series = dict[float, float]
"""Values by time, in seconds since the start."""


@dataclass(slots=True)
class Measurement:
    """Samples of one run. All times are in the master's seconds since the start."""

    cpus: dict[str, Series] = field(default_factory=dict)
    """Cores held, by user."""
    commitments: dict[str, Series] = field(default_factory=dict)
    """Dominant commitment, by user."""
    running: dict[str, Series] = field(default_factory=dict)
    """Cores held by running tasks, by user; offered cores are excluded."""
    completions: dict[str, float] = field(default_factory=dict)
    """Seconds from a user's start to the end of its last task, for each user that has finished."""

    @property
    def in_use(self) -> Series:
        """Cores held by the running tasks of all users."""
        total: Series = {}
        for series in self.running.values():
            for time, cpus in series.items():
                total[time] = total.get(time, 0.0) + cpus
        return total


def read_recorder(path: Path, start: float, end: float) -> Measurement:
    """Read the samples of the allocator's recorder between two instants.

    Args:
        path: The recorder's CSV file.
        start: First instant, in the master's seconds since the Unix epoch.
        end: Last instant, in the same unit.
    """
    measured = Measurement()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            time = float(row["time"]) - start
            if not 0.0 <= time <= end - start:
                continue
            commitments = measured.commitments.setdefault(row["user"], {})
            commitments[time] = max(commitments.get(time, 0.0), float(row["commitment"]))
            if row["resource"] == "cpus":
                measured.cpus.setdefault(row["user"], {})[time] = float(row["allocation"])
    return measured


def write_table(path: Path, series: Mapping[str, Series]) -> None:
    """Write series as CSV: a column of times, and one column for each user, sorted by name."""
    users = sorted(series)
    times = sorted({time for values in series.values() for time in values})
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["time", *users])
        for time in times:
            rows.writerow([f"{time:.3f}", *(f"{series[user].get(time, 0.0):g}" for user in users)])


def mean(series: Series, start: float, end: float) -> float:
    """Return the mean of the samples in [start, end), or 0 without samples."""
    values = [value for time, value in series.items() if start <= time < end]
    return sum(values) / len(values) if values else 0.0


def last(series: Series, at: float) -> float:
    """Return the latest sample up to an instant, or 0 without samples."""
    return max(((time, value) for time, value in series.items() if time <= at), default=(0, 0.0))[1]
