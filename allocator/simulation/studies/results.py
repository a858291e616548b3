"""The finished cells of a sweep, read back to be compared."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from allocator.files import whole
from allocator.simulation.originals.catalogue import create_policy
from allocator.simulation.studies.cells import Cell
from allocator.simulation.studies.measures import JobMeasures, UserMeasures

INDEX = "sweep.json"
"""Which cells a sweep consists of; other files in its folder are of earlier versions of it."""


class ResultsError(ValueError):
    """A folder does not hold what a sweep leaves there; the message says what is missing."""


@dataclass(frozen=True)
class Result:
    """What one simulation showed; `raw` is its file as docs/studies.md describes it."""

    raw: dict[str, Any]
    details: Path

    @property
    def policy(self) -> str:
        """Return the policy's name."""
        return str(self.raw["policy"])

    @property
    def parameters(self) -> dict[str, float | str]:
        """Return the policy's parameters."""
        return dict(self.raw["parameters"])

    @property
    def load(self) -> float | None:
        """Return the capacity as a fraction of the mean use; None: the trace's machines."""
        load: float | None = self.raw["load"]
        return load

    @property
    def label(self) -> str:
        """Return the policy with its parameters, for people."""
        told = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        if "sampled" in self.raw:
            told = ", ".join(filter(None, [told, f"sampled: {self.raw['sampled']}"]))
        return f"{self.policy} ({told})" if told else self.policy

    @property
    def group(self) -> tuple[str, str, str, str, float]:
        """Return what must be equal in results that are compared; seeds may differ."""
        raw = self.raw
        return (raw["name"], raw["blocking"], raw["users"], raw["per"], raw["load"] or 0.0)

    @property
    def mean_wait(self) -> float:
        """Return the mean of users' mean waits, seconds."""
        wait = self.raw["mean_user_wait_s"]
        return math.nan if wait is None else float(wait)

    @property
    def events(self) -> int:
        """Return how many position changes the Live Tree looked at."""
        return int(self.raw["operations"]["events"])

    @cached_property
    def forgotten(self) -> float:
        """Return 1 − δ, what of a commitment is forgotten in a second; 1 without commitments."""
        tau = create_policy(self.policy, self.parameters).tau
        return 1.0 if tau is None else -math.expm1(-1.0 / tau)

    @cached_property
    def users(self) -> UserMeasures:
        """Return how users fared."""
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
        """Return how jobs fared; there only where details were kept."""
        with np.load(self.details) as kept:
            return JobMeasures(kept["size"], kept["machines"], kept["delay"], kept["completion"])

    @cached_property
    def waits(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return each task's wait in seconds; there only where details were kept."""
        with np.load(self.details) as kept:
            return np.asarray(kept["wait"], np.float64)


def write_index(folder: Path, title: str, cells: Sequence[Cell]) -> None:
    """Note which cells a sweep consists of."""
    index = {"title": title, "cells": [cell.key for cell in cells]}
    with whole(folder / INDEX) as part:
        part.write_text(json.dumps(index), encoding="utf-8")


def read_results(folder: Path) -> tuple[str, list[Result]]:
    """Return a sweep's title and its results; those that are missing are left out.

    Raises:
        ResultsError: there was no sweep, or nothing of it is finished.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        wanted = [folder / "cells" / f"{key}.json" for key in index["cells"]]
        results = [read_result(file) for file in wanted if file.exists()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{error.filename} cannot be read" if isinstance(error, OSError) else error
        raise ResultsError(
            f"{folder} does not hold a sweep's results ({what}); 'longshare sweep' makes them"
        ) from error
    if not results:
        raise ResultsError(f"{folder}: none of the sweep's {len(wanted)} cells is finished")
    return str(index["title"]), results


def read_result(file: Path) -> Result:
    """Read a finished cell.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a cell's.
    """
    return Result(json.loads(file.read_text(encoding="utf-8")), file.with_suffix(".npz"))
