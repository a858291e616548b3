"""Reads the results of a sweep's finished cells."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from allocator import provenance
from allocator.files import whole
from allocator.simulation.originals.catalogue import create_policy
from allocator.simulation.studies.cells import Cell
from allocator.simulation.studies.measures import JobMeasures, UserMeasures

INDEX = "sweep.json"
"""Name of the file that lists a sweep's cells.

Result files that it does not list belong to earlier versions of the sweep.
"""


class ResultsError(ValueError):
    """Raised if a folder has no results of a sweep; the message says what is missing."""


@dataclass(frozen=True)
class Result:
    """Result of one simulation.

    `raw` is the content of its file; docs/how-to/run-studies.md explains the fields.
    """

    raw: dict[str, Any]
    details: Path

    @property
    def policy(self) -> str:
        """Name of the simulated policy."""
        return str(self.raw["policy"])

    @property
    def parameters(self) -> dict[str, float | str]:
        """Parameters of the simulated policy, by name."""
        return dict(self.raw["parameters"])

    @property
    def load(self) -> float | None:
        """Capacity divided by the trace's mean use; None: the trace's own machines."""
        load: float | None = self.raw["load"]
        return load

    @property
    def label(self) -> str:
        """Name of the policy with its parameters, for reports."""
        parameters = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        if "sampled" in self.raw:
            parameters = ", ".join(filter(None, [parameters, f"sampled: {self.raw['sampled']}"]))
        return f"{self.policy} ({parameters})" if parameters else self.policy

    @property
    def group(self) -> tuple[str, str, str, str, float]:
        """Values that must be equal for two results to be comparable, such as workload and load.

        The seed is not one of them.
        """
        raw = self.raw
        return (raw["name"], raw["blocking"], raw["users"], raw["per"], raw["load"] or 0.0)

    @property
    def mean_wait(self) -> float:
        """Mean over users of their mean waits, in seconds."""
        wait = self.raw["mean_user_wait_s"]
        return math.nan if wait is None else float(wait)

    @property
    def events(self) -> int:
        """Number of Live Tree events: possible swaps of neighbours that were examined."""
        return int(self.raw["operations"]["events"])

    @cached_property
    def forgotten(self) -> float:
        """1 − δ, the fraction of a commitment that decays in a second; 1 without commitments."""
        tau = create_policy(self.policy, self.parameters).tau
        return 1.0 if tau is None else -math.expm1(-1.0 / tau)

    @cached_property
    def users(self) -> UserMeasures:
        """Results of each user."""
        measured = self.raw["users_measured"]
        return UserMeasures(
            tuple(measured["name"]),
            np.array(measured["tasks"], np.int64),
            np.array(measured["usage"], np.float64),
            np.array(measured["wait_s"], np.float64),
            np.array(measured["completion"], np.float64),
        )

    @cached_property
    def jobs(self) -> JobMeasures:
        """Results of each job; available only if the sweep keeps results per task and job."""
        with np.load(self.details) as kept:
            return JobMeasures(kept["size"], kept["machines"], kept["delay"], kept["completion"])

    @cached_property
    def waits(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Each task's wait in seconds; available only if the sweep keeps results per task."""
        with np.load(self.details) as kept:
            return np.asarray(kept["wait"], np.float64)


def write_index(folder: Path, title: str, cells: Sequence[Cell]) -> None:
    """Write the file that lists a sweep's cells (`INDEX`), their seeds, and Longshare's version.

    Args:
        folder: Folder of the results.
        title: Title of the sweep.
        cells: The cells.
    """
    seeds = {cell.source.name: set[int]() for cell in cells}
    for cell in cells:
        if cell.source.seed is not None:
            seeds[cell.source.name].add(cell.source.seed)
    index = {
        "title": title,
        "longshare": provenance(),
        "seeds": {name: sorted(values) for name, values in seeds.items()},
        "cells": [cell.key for cell in cells],
    }
    with whole(folder / INDEX) as part:
        part.write_text(json.dumps(index), encoding="utf-8")


def read_results(folder: Path) -> tuple[str, list[Result]]:
    """Read a sweep's title and the results of all finished cells.

    Raises:
        ResultsError: The folder contains no sweep, or no cell is finished.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        expected = [folder / "cells" / f"{key}.json" for key in index["cells"]]
        results = [read_result(file) for file in expected if file.exists()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error.filename} cannot be read" if isinstance(error, OSError) else error
        raise ResultsError(
            f"{folder} does not hold a sweep's results ({reason}); 'longshare sweep' makes them"
        ) from error
    if not results:
        raise ResultsError(f"{folder}: none of the sweep's {len(expected)} cells is finished")
    return str(index["title"]), results


def read_result(file: Path) -> Result:
    """Read the result file of a finished cell.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not a cell's file.
    """
    return Result(json.loads(file.read_text(encoding="utf-8")), file.with_suffix(".npz"))
