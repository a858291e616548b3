"""Jobs of a site's own accounting, one by one, until they are a trace."""

import numpy as np
import pyarrow as pa

from allocator.simulation.formats.conversion import Conversion, Gathering, LeftOut, Tasks
from allocator.simulation.formats.text import LONGEST
from allocator.simulation.trace import MICROSECONDS

RESOURCES = ("cpus", "mem", "gpus")
"""Cores, MiB and whole GPUs."""
_DAY = 86400


class UnusableError(ValueError):
    """A record becomes no task; the message is the reason, the same for all like it."""


class Records:
    """Tasks with times in seconds since 1970, and those records that became none.

    Args:
        file: Their file's name.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._left_out: dict[str, list[int]] = {}
        self._times: list[tuple[int, int, int]] = []
        self._users: list[str] = []
        self._demands: list[tuple[float, float, float]] = []

    def add(
        self,
        user: str,
        job: int,
        times: tuple[float, float],
        demand: tuple[float, float, float],
    ) -> None:
        """Take in a task.

        Args:
            user: Whose it is.
            job: Which job it belongs to.
            times: When it was submitted, and for how long it ran.
            demand: Of each of RESOURCES.

        Raises:
            UnusableError: It asks for nothing, or a time is none.
        """
        if not any(demand):
            raise UnusableError("asks for no resource that is read")
        submitted, ran = (round(seconds * MICROSECONDS) for seconds in times)
        if submitted < 0 or ran < 0 or max(submitted, ran) > LONGEST:
            raise UnusableError("a time is negative or beyond 285 years")
        self._times.append((submitted, ran, job))
        self._users.append(user)
        self._demands.append(demand)

    def leave_out(self, reason: str, line: int) -> None:
        """Note that a record became no task."""
        self._left_out.setdefault(reason, []).append(line)

    def conversion(self) -> Conversion:
        """Return the trace: from midnight, UTC, before the first; with resources that are used."""
        left_out = LeftOut()
        for reason, lines in self._left_out.items():
            left_out.add(reason, self._file, np.array(lines, np.int64))
        times = np.array(self._times, np.int64).reshape(-1, 3)
        demand = np.array(self._demands, np.float64).reshape(-1, len(RESOURCES))
        used = demand.any(axis=0)
        gathering = Gathering(tuple(np.array(RESOURCES)[used].tolist()) or RESOURCES)
        if len(times):
            day = _DAY * MICROSECONDS
            submitted = times[:, 0] - times[:, 0].min() // day * day
            users = pa.array(self._users, pa.string())
            tasks = Tasks(submitted, times[:, 1], users, times[:, 2], demand[:, used])
            gathering.add(tasks, np.ones(len(times), np.bool_))
        return Conversion(gathering.trace(), left_out)
