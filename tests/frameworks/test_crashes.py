"""Kill the service at any moment: no task is lost or offered twice, and commitments are kept.

LONGSHARE_CRASHES is the number of kills, LONGSHARE_SEED decides their moments.
"""

import json
import os
import random
import signal
import time
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from allocator.fairness.commitment import decayed, overuse, time_constant
from allocator.service.store.sqlite import SqliteStore
from frameworks.harness.observer import Observer
from frameworks.harness.processes import Children
from tests.frameworks.test_end_to_end import address_of
from tests.service.served import Service, service, wait_for
from tests.service.show.test_metrics import scrape

CRASHES = int(os.environ.get("LONGSHARE_CRASHES", "5"))
SEED = int(os.environ.get("LONGSHARE_SEED", "1"))
SPEED = 5.0
DELTA = 0.9999
TAU = time_constant(DELTA)
OWED = {"A": 0.5, "B": 0.25, "C": 0.0}
ENTITLED = 1 / len(OWED)
INTERVAL = 1.0
"""Seconds between ticks; the service's figures change only at ticks."""
SETTINGS = f'[policy]\nname = "sdrf"\ndelta = {DELTA}\n' + "".join(
    f'[[users.declared]]\nname = "{user}"\ncommitment = {owed}\n' for user, owed in OWED.items()
)


@dataclass(frozen=True)
class Books:
    """Shares and commitments of users at an instant, as the service shows them."""

    began: float
    """The master's time before the service was asked."""
    now: float
    """And afterwards."""
    shares: dict[tuple[str, str], float]
    commitments: dict[tuple[str, str], float]


@dataclass(frozen=True)
class Crash:
    """How things stood when the service was killed."""

    before: Books
    alive: set[str]
    """Ids of tasks that had not ended."""
    stored_at: float
    """The master's time of the stored memory."""


class Master:
    """The embedded Mesos, seen from outside."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}"
        self._observer = Observer(address)
        self._started = self._observer.started()

    @property
    def now(self) -> float:
        return self._started + self._observer.glance().uptime

    def metrics(self) -> dict[str, float]:
        return self._observer.metrics()

    def wait_for_launches(self) -> None:
        """Wait until frameworks have used new offers."""
        launches = "master/messages_launch_tasks"
        so_far = self.metrics()[launches]
        wait_for(lambda: self.metrics()[launches] > so_far)

    def tasks(self, kind: str) -> dict[str, str]:
        """Return states by task; `kind` is `tasks` for present tasks, or `completed_tasks`."""
        frameworks = self._get("/state")["frameworks"]
        return {task["id"]: task["state"] for f in frameworks for task in f[kind]}

    def promised(self) -> list[float]:
        """Return which part of each agent's CPUs is used or offered."""
        return [
            (agent["used_resources"]["cpus"] + agent["offered_resources"]["cpus"])
            / agent["resources"]["cpus"]
            for agent in self._get("/slaves")["slaves"]
        ]

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self._url + path) as answer:
            parsed: dict[str, Any] = json.load(answer)
            return parsed


def look(running: Service, master: Master) -> Books:
    began = master.now
    seen = scrape(running)
    kinds: dict[str, dict[tuple[str, str], float]] = {}
    for kind in ("share", "commitment"):
        name = f"longshare_user_{kind}_ratio"
        kinds[kind] = {key[1:]: value for key, value in seen.items() if key[0] == name}  # type: ignore[misc]  # user, resource
    return Books(began, master.now, kinds["share"], kinds["commitment"])


def kill(running: Service, master: Master) -> Crash:
    alive = set(master.tasks("tasks"))
    before = look(running, master)
    running.stop(signal.SIGKILL)
    with closing(SqliteStore(running.store)) as store:
        kept = store.load()
    assert kept is not None
    return Crash(before, alive, kept.time)


def wait_for_master(running: Service, children: Children) -> None:
    def synchronised() -> bool:
        children.check()
        return "snapshot restored" in running.log.read_text()

    wait_for(synchronised)


def wait_until_stored(running: Service) -> None:
    wait_for(lambda: scrape(running)["longshare_store_saves_total",] > 0)


def assert_debts_are_kept(crash: Crash, after: Books) -> None:
    """Compare with the commitments without a crash, for the same allocation (Eq. 12)."""
    before = crash.before
    unknown = after.now - min(before.began, crash.stored_at) + INTERVAL
    for key, owed in before.commitments.items():
        share = before.shares[key]
        elapsed = after.now - before.began
        expected = decayed(owed, overuse(share, ENTITLED), elapsed, TAU)
        bound = decayed(0.0, max(1.0, share), unknown, TAU)
        assert bound < 0.1, "the bound is too loose for a meaningful comparison"
        assert after.commitments[key] == pytest.approx(expected, abs=bound), key


def assert_tasks_went_on(alive: set[str], master: Master) -> None:
    def fates() -> set[str]:
        states = master.tasks("tasks") | master.tasks("completed_tasks")
        return {states.get(task, "forgotten") for task in alive}

    # A task counts as running once its framework has received the update.
    wait_for(lambda: not fates() & {"TASK_STAGING", "TASK_STARTING"})
    assert fates() <= {"TASK_RUNNING", "TASK_FINISHED"}


def assert_nothing_was_lost_or_offered_twice(metrics: dict[str, float]) -> None:
    assert metrics["longshare/offers_rejected_total"] == 0, "an offer contained allocated resources"
    assert metrics["longshare/resyncs_total"] == 0, "the books never disagreed"
    assert metrics["master/tasks_finished"] > 0
    for fate in ("lost", "failed", "killed", "error", "dropped", "gone"):
        assert metrics[f"master/tasks_{fate}"] == 0


def start_cluster(children: Children, folder: Path, allocator: str) -> Master:
    """Start a master with three agents and a framework for each user."""
    children.start(
        "mesos",
        *("local-mesos", "--agents=3", f"--speed={SPEED}", "--port=0", "--offer-timeout=0"),
        f"--allocator={allocator}",
    )
    address = address_of(folder / "mesos.log", children)
    for user in OWED:
        children.start(
            user,
            *("framework", f"--name={user}", f"--role={user}"),
            *(f"--master={address}", "--run-time=15"),
        )
    return Master(address)


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * CRASHES)
def test_a_repeatedly_killed_service_costs_only_offers(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    state = tmp_path / "state"
    state.mkdir()
    crashes: list[Crash] = []
    with Children(tmp_path) as children:
        master = start_cluster(children, tmp_path, f"unix://{state}/allocator.sock")
        for life in range(CRASHES + 1):
            with service(state, SETTINGS) as running:
                wait_for_master(running, children)
                if not crashes:
                    wait_until_stored(running)
                for crash in crashes[-1:]:
                    assert_debts_are_kept(crash, look(running, master))
                    assert_tasks_went_on(crash.alive, master)
                master.wait_for_launches()
                time.sleep(moments.uniform(0.0, 1.5))
                assert max(master.promised()) <= 1.0
                if life < CRASHES:
                    crashes.append(kill(running, master))
            children.check()
        metrics = master.metrics()
    assert metrics["longshare/sessions_total"] == CRASHES + 1
    assert_nothing_was_lost_or_offered_twice(metrics)
