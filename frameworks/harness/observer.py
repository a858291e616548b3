"""Looks at a master through the HTTP endpoints that every Mesos master has."""

import json
import math
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

TIMEOUT = 30.0
"""Seconds for an answer, which a busy machine may take for a moment: an experiment ends without."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What a master said at an instant."""

    uptime: float
    """Seconds of the master's time."""
    connected: bool
    """Whether its allocator service answers; a stock master needs none."""
    cpus: dict[str, float]
    """Cores that running tasks hold, by framework name."""


def policy_failures(page: str) -> int:
    """Return how often the policy of an allocator service has failed, as its metrics say.

    Args:
        page: URL of the service's status page.

    Raises:
        OSError: The service does not answer.
    """
    with urllib.request.urlopen(f"{page}metrics", timeout=TIMEOUT) as answer:  # noqa: S310 - our own
        text = answer.read().decode()
    match = re.search(r"^longshare_policy_faults_total (\S+)$", text, re.MULTILINE)
    return int(float(match[1])) if match is not None else 0


class Observer:
    """Polls a master and knows its time in between.

    Args:
        master: HOST:PORT.
    """

    def __init__(self, master: str) -> None:
        self._url = f"http://{master}"
        self._seen: tuple[float, float] | None = None
        """(wall, master's) time at the latest glance"""
        self._rate = 1.0
        """Master's seconds in one of the wall's, between the latest two glances."""

    def glance(self) -> Glance:
        """Ask the master.

        Raises:
            OSError: it does not answer.
        """
        metrics = self.metrics()
        uptime, wall = float(metrics["master/uptime_secs"]), time.monotonic()
        if self._seen is not None and wall > self._seen[0]:
            self._rate = (uptime - self._seen[1]) / (wall - self._seen[0])
        self._seen = (wall, uptime)
        cpus: dict[str, float] = {}
        for framework in self._get("/state-summary")["frameworks"]:
            used = float(framework["used_resources"]["cpus"])
            cpus[framework["name"]] = cpus.get(framework["name"], 0.0) + used
        return Glance(uptime, bool(metrics.get("longshare/connected", 1)), cpus)

    def metrics(self) -> dict[str, float]:
        """Return the master's metrics.

        Raises:
            OSError: it does not answer.
        """
        return self._get("/metrics/snapshot")

    def state(self) -> dict[str, Any]:
        """Return the master's account of agents, frameworks, tasks and offers.

        Raises:
            OSError: it does not answer.
        """
        return self._get("/state")

    def expect(self, framework: str, uptime: float) -> None:
        """Have an embedded master await a framework from an instant of its time on.

        Raises:
            OSError: it does not answer, or is no embedded one.
        """
        asked = urllib.parse.urlencode({"framework": framework, "uptime": uptime})
        url = f"{self._url}/longshare/expect?{asked}"
        urllib.request.urlopen(url, data=b"", timeout=TIMEOUT).close()  # noqa: S310 - http

    def until(self, uptime: float) -> float:
        """Return the wall seconds until the master's time is there, as things go."""
        if self._seen is None:
            return 0.0
        now = self._seen[1] + (time.monotonic() - self._seen[0]) * self._rate
        return (uptime - now) / max(self._rate, 1e-6)

    def started(self) -> float:
        """Return when the master's time began, in seconds since the Unix epoch.

        Raises:
            OSError: it does not answer.
        """
        return float(self.state()["start_time"])

    def finished(self, since: float) -> dict[str, list[float]]:
        """Return when tasks have finished, by framework name, in seconds after `since`.

        Those that the master remembers, but none from before: there may have been others of that
        name. Not when the framework has left: its process may stand still before it does, and the
        master's time goes on.

        Args:
            since: An instant of the master's uptime.

        Raises:
            OSError: the master does not answer.
        """
        said = self.state()
        began = float(said["start_time"]) + since
        finished: defaultdict[str, list[float]] = defaultdict(list)
        for framework in (*said["completed_frameworks"], *said["frameworks"]):
            for task in (*framework["completed_tasks"], *framework["tasks"]):
                states = {status["state"]: status["timestamp"] for status in task["statuses"]}
                end = states.get("TASK_FINISHED", -math.inf)
                if end >= began:
                    finished[framework["name"]].append(end - began)
        return finished

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self._url + path, timeout=TIMEOUT) as answer:  # noqa: S310 - http
            parsed: dict[str, Any] = json.load(answer)
            return parsed

    def wait_for(self, patience: float) -> None:
        """Wait until the master answers and its allocator is connected.

        Raises:
            TimeoutError: it has not within so many seconds.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                if self.glance().connected:
                    return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.05)
        raise TimeoutError(f"no Mesos master with an allocator at {self._url} after {patience:g} s")
