"""Measured CPUs and commitments of users over time, read from the allocator's recorder."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Series = dict[float, float]
"""Samples of a quantity: value by time, in seconds since the start of the experiment."""


@dataclass(slots=True)
class Measurement:
    """Samples of one run of an experiment: users' CPUs and commitments over time.

    All times are seconds of the master's clock since the start of the experiment.
    """

    cpus: dict[str, Series] = field(default_factory=dict)
    """By user: cores allocated, including cores in unanswered offers."""
    commitments: dict[str, Series] = field(default_factory=dict)
    """By user: dominant commitment, as a fraction of the cluster."""
    running: dict[str, Series] = field(default_factory=dict)
    """By user: cores of running tasks, without cores in offers."""
    completions: dict[str, float] = field(default_factory=dict)
    """By user: seconds from the user's start to its last task's end.

    Unfinished users are left out.
    """
    waits: dict[str, float] = field(default_factory=dict)
    """By user: mean seconds from the submission of a task to its start. Empty without Slurm."""

    @property
    def in_use(self) -> Series:
        """Cores used by all users' running tasks together, over time."""
        total: Series = {}
        for series in self.running.values():
            for time, cpus in series.items():
                total[time] = total.get(time, 0.0) + cpus
        return total


def read_recorder(path: Path, start: float, end: float, speed: float = 1.0) -> Measurement:
    """Read the samples between two instants from the file of the allocator's recorder.

    Args:
        path: The recorder's CSV file.
        start: First instant, as the master's time in seconds since the Unix epoch.
        end: Last instant, as the master's time in seconds since the Unix epoch.
        speed: Seconds of the experiment for each second of the file's times.
    """
    measured = Measurement()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            time = float(row["time"]) - start
            if not 0.0 <= time <= end - start:
                continue
            time *= speed
            commitments = measured.commitments.setdefault(row["user"], {})
            commitments[time] = max(commitments.get(time, 0.0), float(row["commitment"]))
            if row["resource"] == "cpus":
                measured.cpus.setdefault(row["user"], {})[time] = float(row["allocation"])
    return measured


def write_table(path: Path, series: Mapping[str, Series]) -> None:
    """Write series as a CSV file: a column of times, then a column per user, sorted by name."""
    users = sorted(series)
    times = sorted({time for values in series.values() for time in values})
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["time", *users])
        for time in times:
            rows.writerow([f"{time:.3f}", *(f"{series[user].get(time, 0.0):g}" for user in users)])


def mean(series: Series, start: float, end: float) -> float:
    """Return the mean of a series in the period from `start` up to, but not including, `end`.

    The result is 0 without samples in this period.
    """
    values = [value for time, value in series.items() if start <= time < end]
    return sum(values) / len(values) if values else 0.0


def last(series: Series, at: float) -> float:
    """Return a series's value at a time: its latest sample until then; 0 without a sample."""
    return max(((time, value) for time, value in series.items() if time <= at), default=(0, 0.0))[1]
