"""A bridge to a Slurm that exists as text only: places of users, and factors of requeued jobs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from allocator.fairness.policies import create
from allocator.slurm.bridge import Bridge, BridgeSettings, Cycle
from allocator.slurm.client import SlurmClient
from allocator.slurm.factors import FactorUpdate, is_ours
from allocator.slurm.state import StateSettings
from allocator.slurm.users import UserKey
from tests.slurm.test_hostile_text import job_row

BEGAN = 1_795_700_000
NODE = "NodeName=n1 State=MIXED Partitions=main CfgTRES=cpu=1000,mem=1000G,billing=1"
NONE = {"starttime": "N/A", "endtime": "NONE", "timeused": "0:00", "qos": "normal"}


class WrittenSlurm(SlurmClient):
    """Shows the jobs that a test writes, and keeps site factors as slurmctld does."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGAN
        self.written: dict[int, dict[str, str]] = {}
        self.factors: dict[str, int] = {}

    def submit(self, number: int, user: str, cores: int = 1, **fields: str) -> None:
        """Add a pending job."""
        self.written[number] = {
            "jobid": str(number), "arrayjobid": str(number), "username": user, "state": "PENDING",
            "reason": "Priority", "submittime": str(self.now), "eligibletime": str(self.now),
            "tres_alloc": f"cpu={cores},mem=1M,node=1", "resizetime": "N/A", **NONE, **fields,
        }  # fmt: skip

    def start(self, number: int) -> None:
        """Start a job now."""
        times = {"starttime": str(self.now), "endtime": str(self.now + 999_999)}
        self.written[number] |= {"state": "RUNNING", "reason": "None", **times}

    def requeue(self, number: int) -> None:
        """Requeue a job with a later begin time."""
        restarts = int(self.written[number].get("restartcnt", "0")) + 1
        later = {"reason": "BeginTime", "submittime": str(self.now), "restartcnt": str(restarts)}
        self.written[number] |= {"state": "PENDING", **NONE, **later}

    def configuration(self) -> dict[str, str]:
        """Return the settings of slurmctld."""
        return {"MinJobAge": "300 sec", "BOOT_TIME": str(BEGAN)}

    def nodes(self) -> str:
        """Return a node of 1,000 cores."""
        return f"{NODE}\n"

    def jobs(self) -> bytes:
        """Return all jobs, as squeue prints them."""
        rows = []
        for number, fields in self.written.items():
            if fields["state"] == "RUNNING":
                ran = self.now - int(fields["starttime"])
                fields["timeused"] = f"{ran // 3600}:{ran // 60 % 60:02}:{ran % 60:02}"
            shown = {"prioritylong": str(self.factors.get(str(number), 0) or 1), **fields}
            names = {name.replace("_", "-"): text for name, text in shown.items()}
            rows.append(job_row(**names))
        return b"".join(rows)

    def site_factors(self) -> dict[str, int]:
        """Return the factors of jobs that may start, as sprio prints them."""
        return {
            str(number): self.factors.get(str(number), 0)
            for number, fields in self.written.items()
            if fields["reason"] in {"Priority", "Resources"}
        }

    def set_factors(self, updates: Iterable[FactorUpdate]) -> list[str]:
        """Set site factors."""
        self.factors.update(updates)
        return []


def bridge_to(slurm: WrittenSlurm, key: UserKey = "user") -> Bridge:
    state = StateSettings(create("sdrf", {"half_life": 3600.0}), key)
    return Bridge(slurm, BridgeSettings(state, dry_run=False, ahead=100), float(BEGAN - 5))


def poll(bridge: Bridge, slurm: WrittenSlurm, count: int = 1) -> Cycle:
    for _ in range(count):
        slurm.now += 2
        cycle = bridge.poll(float(slurm.now))
    return cycle


def passes(slurm: WrittenSlurm, number: int, others: Iterable[int]) -> bool:
    """Return whether a job has a higher site factor than one of the others."""
    own = slurm.factors.get(str(number), 0)
    return any(own > slurm.factors.get(str(other), 0) for other in others)


@pytest.mark.parametrize("seen", [True, False])
def test_a_requeued_job_does_not_pass_the_order_with_the_factor_of_its_first_start(
    *, seen: bool
) -> None:
    slurm = WrittenSlurm()
    bridge = bridge_to(slurm)
    slurm.submit(1, "games", 500)
    slurm.submit(2, "games", 400)
    poll(bridge, slurm)
    assert is_ours(slurm.factors["1"])
    slurm.start(2)
    slurm.start(1)
    for number in range(3, 9):
        slurm.submit(number, "man")
    if seen:
        poll(bridge, slurm)
        assert not slurm.factors["1"], "the user may requeue and release the job at once"
    slurm.requeue(1)
    poll(bridge, slurm)
    assert not passes(slurm, 1, range(3, 9))
    slurm.written[1]["reason"] = "Priority"
    poll(bridge, slurm)
    assert not passes(slurm, 1, range(3, 9))


def test_a_job_requeued_while_the_service_was_away_does_not_pass_the_order() -> None:
    slurm = WrittenSlurm()
    slurm.submit(1, "games", 500)
    slurm.submit(2, "games", 400)
    poll(bridge_to(slurm), slurm)
    slurm.factors["1"] += 1009 * 1_000
    slurm.start(2)
    slurm.requeue(1)
    for number in range(3, 9):
        slurm.submit(number, "man")
    poll(bridge_to(slurm), slurm)
    assert not passes(slurm, 1, range(3, 9))


def test_a_started_job_keeps_the_factor_of_another_person() -> None:
    slurm = WrittenSlurm()
    bridge = bridge_to(slurm)
    slurm.submit(1, "games", 500)
    slurm.factors["1"] = 777
    poll(bridge, slurm)
    slurm.start(1)
    poll(bridge, slurm, 2)
    assert slurm.factors["1"] == 777


def test_after_a_start_without_a_place_each_user_has_places_of_its_own() -> None:
    """Jobs of four users wait for a busy node, but Slurm says `Priority`."""
    slurm = WrittenSlurm()
    bridge = bridge_to(slurm)
    slurm.submit(1, "man", 500)
    slurm.submit(2, "news", 400)
    slurm.start(1)
    slurm.start(2)
    for number in range(1000, 1400):
        slurm.submit(number, f"games{number % 4}")
    for number in range(10, 20):
        slurm.submit(number, "man")
        slurm.submit(number + 10, "news")
    users = Counter(placed.user for placed in poll(bridge, slurm, 21).order.placed)
    assert users["news",] == 0, "the first places of four users"
    slurm.start(10)
    users = Counter(placed.user for placed in poll(bridge, slurm).order.placed)
    assert users["news",] == 10
    assert users["man",] == 9
    users = Counter(placed.user for placed in poll(bridge, slurm, 320).order.placed)
    assert users["news",] == 0, "no such start within ten minutes"


def test_jobs_of_too_many_unknown_accounts_are_counted_as_passed_over() -> None:
    slurm = WrittenSlurm()
    bridge = bridge_to(slurm, "account")
    for number in range(1, 131):
        slurm.submit(number, "games", account=f"x{number}")
    cycle = poll(bridge, slurm)
    assert cycle.order.passed_over == {"UnknownAccount": 30}
    assert cycle.passed_over["other"] == 30


def test_the_changes_of_one_user_leave_half_of_the_updates_to_other_users() -> None:
    """A user with the first places changes the order of its jobs before each reading."""
    slurm = WrittenSlurm()
    bridge = bridge_to(slurm)
    bridge.settings = replace(bridge.settings, updates=20)
    slurm.submit(1, "man", 900)
    slurm.start(1)
    for number in range(2, 102):
        slurm.submit(number, "games")
    for number in range(200, 230):
        slurm.submit(number, "man")
    poll(bridge, slurm, 21)
    for place in range(1, 6):
        slurm.submit(300 + place, "news", 10)
        for number in range(2, 102):
            slurm.written[number]["nice"] = str(number * (-1) ** place + 200)
        cycle = poll(bridge, slurm)
        assert (len(cycle.updates), cycle.postponed > 0) == (20, True)
        assert is_ours(slurm.factors.get(str(300 + place), 0))


def test_a_reading_sends_no_further_updates_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm = WrittenSlurm()
    bridge = bridge_to(slurm)
    seconds = iter(range(1000))
    monkeypatch.setattr("allocator.slurm.bridge.time.monotonic", lambda: float(next(seconds)))
    for number in range(1, 1001):
        slurm.submit(number, f"user{number % 3}", partition=f"p{number % 10}")
    cycle = poll(bridge, slurm)
    assert (len(cycle.updates), cycle.postponed) == (200, 800)
    assert sum(map(is_ours, slurm.factors.values())) == 200
    cycle = poll(bridge, slurm)
    assert (len(cycle.updates), cycle.postponed) == (200, 600)
