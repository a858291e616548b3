"""One simulation of a sweep ("cell"): its inputs, its result files, and the code that runs it.

A sweep simulates many combinations of trace, policy and load. A cell's files are named by a hash of
its inputs, so that finished cells are found again.
"""

import hashlib
import io
import json
import time
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from allocator import plugins
from allocator.files import whole
from allocator.simulation import fastest, reference, store
from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.studies import measures, online_truth, windows
from allocator.simulation.studies.waiting import users_at_starts
from allocator.simulation.summary import end_of
from allocator.simulation.trace import Trace

FORMAT = 1
"""Version of the result files. Cells of other versions are simulated again.

The version also changes when the simulators' decisions change.
"""


@dataclass(frozen=True)
class Source:
    """A trace file to simulate.

    Args:
        path: Parquet file. The path must be valid for every worker.
        digest: SHA-256 of the file.
        name: Name of the trace in reports.
        seed: Seed, if a generator made the trace.
    """

    path: Path
    digest: str
    name: str
    seed: int | None = None


@dataclass(frozen=True)
class Code:
    """A policy's source file, for a policy that is not part of Longshare.

    Args:
        file: Path of the file, valid for every worker.
        sha256: SHA-256 of the file.
    """

    file: str
    sha256: str


@dataclass(frozen=True)
class Cell:
    """All inputs of one simulation of a sweep.

    Most fields have the same meaning as in the file that describes a sweep (module plan).
    """

    source: Source
    policy: str
    parameters: dict[str, float | str]
    load: float | None
    blocking: Blocking
    users: Literal["known", "appearing"]
    per: Literal["user", "job"]
    engine: Literal["fast", "reference"]
    keep: Literal["users", "tasks", "windows"]
    sampled: float | str | None = None
    liars: int = 0
    code: Code | None = None
    events: bool = True

    def inputs(self) -> dict[str, Any]:
        """Return all inputs that determine the results, as JSON types, for the hash `key`.

        The trace's hash is one of them, its path is not.
        """
        inputs = asdict(self)
        del inputs["source"], inputs["code"]
        if self.code is not None:
            inputs["code"] = self.code.sha256
            inputs["failures"] = "refused"  # earlier results may be of a policy that failed
        if self.sampled is None:  # keeps existing results valid
            del inputs["sampled"]
        if not self.liars:
            del inputs["liars"]
        if self.events:
            del inputs["events"]
        return {"format": FORMAT, "trace": self.source.digest, **inputs}

    @cached_property
    def key(self) -> str:
        """Hash of the cell's inputs, by which its result files are named."""
        text = json.dumps(self.inputs(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def setting(self, trace: Trace) -> Setting:
        """Return the options of the cell's simulation, for its trace."""
        return Setting(
            policy=self.policy,
            parameters=self.parameters,
            capacity=None if self.load is None else capacity_at(trace, self.load),
            blocking=self.blocking,
            users=self.users,
            per=self.per,
            sampled=self.sampled,
        )

    def file(self, folder: Path) -> Path:
        """Return the path of the cell's result file in a folder of results."""
        return folder / f"{self.key}.json"

    def details(self, folder: Path) -> Path:
        """Return the path of the file with results per task and job.

        The file exists only if the sweep keeps these results.
        """
        return folder / f"{self.key}.npz"

    def is_finished(self, folder: Path) -> bool:
        """Return whether a folder of results has the cell's result.

        A cell without a result file must be simulated; the file is written last and atomically.
        """
        return self.file(folder).exists()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute(cell: Cell, folder: Path, copy: Path | None = None) -> None:
    """Run a cell's simulation and write its result files. Existing results are kept.

    Args:
        cell: The simulation to run.
        folder: Folder for the result files.
        copy: Folder with a shared, memory-mapped copy of the trace; None: read the trace file.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: The trace cannot be simulated with these settings, or the policy failed.
    """
    if cell.is_finished(folder):
        return
    if cell.code is not None:
        plugins.provide(cell.policy, cell.code.file, cell.code.sha256)
    trace = _read(cell.source.path, cell.source.digest, copy)
    setting = cell.setting(trace)
    start = time.perf_counter()
    outcome = (
        fastest.simulate(trace, setting, events=cell.events)
        if cell.engine == "fast"
        else reference.simulate(trace, setting)
    )
    seconds = time.perf_counter() - start
    if cell.keep == "tasks":
        with whole(cell.details(folder)) as part:
            part.write_bytes(_details(outcome))
    result = {
        **cell.inputs(),
        "name": cell.source.name,
        "seed": cell.source.seed,
        "seconds": seconds,
        **_summary(outcome),
    }
    if cell.engine == "reference":
        result["users_waiting"] = _number(users_at_starts(outcome))
    if cell.keep == "windows":
        result["windows"] = _windows(outcome, setting)
    if cell.liars:
        result["lies"] = _lies(trace, setting, cell.liars)
    with whole(cell.file(folder)) as part:
        part.write_bytes(json.dumps(result, allow_nan=False).encode())


def _summary(outcome: Outcome) -> dict[str, Any]:
    trace, users = outcome.trace, measures.of_users(outcome)
    return {
        "tasks": len(trace),
        "span_s": (end_of(trace) - int(trace.submitted[0])) / 1e6 if len(trace) else 0.0,
        "started": int((outcome.started >= 0).sum()),
        "mean_user_wait_s": _number(users.mean_wait()),
        "operations": asdict(outcome.operations),
        "users_measured": {
            "name": users.name,
            "tasks": users.tasks.tolist(),
            "usage": users.usage.tolist(),
            "wait_s": [_number(wait) for wait in users.wait.tolist()],
            "completion": [_number(ratio) for ratio in users.completion.tolist()],
        },
    }


def _windows(outcome: Outcome, setting: Setting) -> dict[str, Any]:
    waits = outcome.wait[np.isfinite(outcome.wait)]
    return {
        "jain": _number(windows.jain(outcome, setting)),
        "wait_s_99": _number(float(np.quantile(waits, 0.99))) if len(waits) else None,
    }


def _lies(trace: Trace, setting: Setting, liars: int) -> list[dict[str, Any]]:
    """Simulate lies of some users, one user at a time.

    Args:
        trace: The true trace.
        setting: Options of the simulations.
        liars: Number of users that lie.

    Returns:
        For each user and lie, a dict with the user, the lie, and the fraction of the wait saved.
    """
    gains = online_truth.gains(trace, setting, liars, lambda _done, _of: None)
    return [{"user": gain.user, "lie": gain.lie, "saved": _number(gain.saved)} for gain in gains]


def _details(outcome: Outcome) -> bytes:
    jobs = measures.of_jobs(outcome)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        wait=outcome.wait.astype(np.float32),
        size=jobs.size,
        machines=jobs.machines,
        delay=jobs.delay,
        completion=jobs.completion,
    )
    return buffer.getvalue()


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


@lru_cache(maxsize=1)
def _read(path: Path, _digest: str, copy: Path | None) -> Trace:
    """Read a trace, or return the one read last if it is the same.

    Consecutive cells of a worker often share a trace.

    Args:
        path: The trace file.
        _digest: Hash of the file, so that a changed file is read again.
        copy: Folder with a shared copy; None: read the trace file.
    """
    return store.read(path) if copy is None else store.shared(path, copy)
