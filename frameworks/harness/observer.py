"""Reads the state of a running Mesos master through its HTTP endpoints."""

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
"""Seconds to wait for an HTTP answer. The value is large, because a timeout ends the experiment."""


@dataclass(frozen=True, slots=True)
class MasterSample:
    """State of a master at one instant: uptime, connection to the allocator, CPUs in use."""

    uptime: float
    """Seconds since the master's start, by the master's clock."""
    connected: bool
    """True if the master is connected to its allocator service; always true for a stock master."""
    cpus: dict[str, float]
    """By framework name: cores of running tasks."""


def policy_failures(page: str) -> int:
    """Return how often the policy of an allocator service has failed, by the service's metrics.

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
    """Polls a master, and estimates the master's clock between two polls.

    The clock of an embedded master may run faster than real time.

    Args:
        master: HOST:PORT of the master.
    """

    def __init__(self, master: str) -> None:
        self._url = f"http://{master}"
        self._latest: tuple[float, float] | None = None
        """(real time, master's uptime) at the latest poll, in seconds.

        None before the first poll.
        """
        self._rate = 1.0
        """Speed of the master's clock between the latest two polls; 1 is real time."""

    def glance(self) -> MasterSample:
        """Poll the master for its uptime, its connection to the allocator, and its CPUs in use.

        Each call also updates the estimate of the clock's speed, which `until` uses.

        Raises:
            OSError: The master does not answer.
        """
        metrics = self.metrics()
        uptime, real_time = float(metrics["master/uptime_secs"]), time.monotonic()
        if self._latest is not None and real_time > self._latest[0]:
            self._rate = (uptime - self._latest[1]) / (real_time - self._latest[0])
        self._latest = (real_time, uptime)
        cpus: dict[str, float] = {}
        for framework in self._get("/state-summary")["frameworks"]:
            used = float(framework["used_resources"]["cpus"])
            cpus[framework["name"]] = cpus.get(framework["name"], 0.0) + used
        return MasterSample(uptime, bool(metrics.get("longshare/connected", 1)), cpus)

    def metrics(self) -> dict[str, float]:
        """Return the master's metrics by name.

        Raises:
            OSError: The master does not answer.
        """
        return self._get("/metrics/snapshot")

    def state(self) -> dict[str, Any]:
        """Return the content of `/state`: agents, frameworks, tasks and offers.

        Raises:
            OSError: The master does not answer.
        """
        return self._get("/state")

    def expect(self, framework: str, uptime: float) -> None:
        """Announce a framework to an embedded master.

        If the framework has not subscribed at the given uptime, the master stops its clock until it
        does.

        Args:
            framework: Name of the framework.
            uptime: Uptime of the master in seconds at which the framework must subscribe.

        Raises:
            OSError: The master does not answer, or is not an embedded master.
        """
        query = urllib.parse.urlencode({"framework": framework, "uptime": uptime})
        url = f"{self._url}/longshare/expect?{query}"
        urllib.request.urlopen(url, data=b"", timeout=TIMEOUT).close()  # noqa: S310 - http

    def until(self, uptime: float) -> float:
        """Estimate how many seconds of real time pass until the master has a given uptime.

        The result is negative if the uptime has passed, and 0 before the first `glance`.

        Args:
            uptime: The master's uptime in seconds.
        """
        if self._latest is None:
            return 0.0
        now = self._latest[1] + (time.monotonic() - self._latest[0]) * self._rate
        return (uptime - now) / max(self._rate, 1e-6)

    def started(self) -> float:
        """Return the master's start time, in seconds since the Unix epoch.

        Raises:
            OSError: The master does not answer.
        """
        return float(self.state()["start_time"])

    def finished(self, since: float) -> dict[str, list[float]]:
        """Return the end times of finished tasks, by framework name.

        End times are by the master's clock, in seconds after `since`. Tasks that ended before
        `since` are excluded, because they may belong to an earlier framework of the same name.

        The end of a framework's process would be less exact, because the process may be delayed
        while the master's clock continues.

        Args:
            since: An instant, as the master's uptime in seconds.

        Raises:
            OSError: The master does not answer.
        """
        state = self.state()
        start = float(state["start_time"]) + since
        finished: defaultdict[str, list[float]] = defaultdict(list)
        for framework in (*state["completed_frameworks"], *state["frameworks"]):
            for task in (*framework["completed_tasks"], *framework["tasks"]):
                states = {status["state"]: status["timestamp"] for status in task["statuses"]}
                end = states.get("TASK_FINISHED", -math.inf)
                if end >= start:
                    finished[framework["name"]].append(end - start)
        return finished

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self._url + path, timeout=TIMEOUT) as answer:  # noqa: S310 - http
            parsed: dict[str, Any] = json.load(answer)
            return parsed

    def wait_for(self, patience: float) -> None:
        """Wait until the master answers and is connected to its allocator.

        Args:
            patience: Maximum real time to wait, in seconds.

        Raises:
            TimeoutError: The master or its allocator did not answer in time.
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
