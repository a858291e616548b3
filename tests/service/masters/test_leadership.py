"""Leadership is decided by streams and the order of claims, never by a wall clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from allocator.contract import allocator_pb2 as contract
from allocator.service.masters.leadership import GRACE, SILENCE, Claimant, Leadership

SECOND = 1_000_000_000
NOON = 1_700_000_000 * SECOND


@dataclass(eq=False)
class Master:
    """A stream of a master, controlled by the test."""

    name: str
    elected_ns: int = NOON
    certificate: str | None = None
    last_heard: float = 0.0
    hello: contract.Hello = field(init=False)

    def __post_init__(self) -> None:
        self.hello = contract.Hello(session_id=self.name, master=self.name)
        self.hello.options.allocation_interval_ns = SECOND

    def end(self, reason: str) -> None:
        raise AssertionError(reason)


class Election:
    """A leadership with a clock that the test moves, and the streams that are open."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leadership = Leadership(lambda: self.now)
        self.alive: list[Master] = []

    def says_it_leads(self, master: Master) -> bool:
        """Claim leadership for a master; return whether the master is served from now on."""
        if master not in self.alive:
            self.alive.append(master)
        master.last_heard = self.now
        if self.leadership.takeover_blocker(master) is not None:
            return False
        self.leadership.promote(master)
        return True

    def ends(self, master: Master) -> None:
        self.alive.remove(master)
        self.leadership.withdraw(master)

    def wait(self, seconds: float, *, silent: Claimant | None = None) -> None:
        """Advance the clock; every stream except `silent` keeps sending messages."""
        self.now += seconds
        for master in self.alive:
            if master is not silent:
                master.last_heard = self.now


@pytest.fixture(name="election")
def _election() -> Election:
    return Election()


@pytest.mark.parametrize("ahead", [0, 180 * SECOND, 2**63 - 1 - NOON])
def test_a_former_leader_with_a_fast_clock_locks_no_later_master_out(
    election: Election, ahead: int
) -> None:
    first, second = Master("m1", NOON + ahead), Master("m2", NOON + SECOND)
    assert election.says_it_leads(first)
    election.ends(first)
    assert election.says_it_leads(second)


def test_the_log_names_the_suspected_clock_skew_once(election: Election) -> None:
    first, second = Master("m1", NOON + 180 * SECOND), Master("m2", NOON)
    with capture_logs() as logs:
        election.says_it_leads(first)
        election.ends(first)
        for _ in range(3):
            election.says_it_leads(second)
    assert [line["skew_at_least"] for line in logs if "skew_at_least" in line] == [180.0]


def test_a_second_claimant_waits_while_the_leader_is_connected_and_not_silent(
    election: Election,
) -> None:
    leader, rival = Master("m1"), Master("m2", NOON + 3600 * SECOND)
    assert election.says_it_leads(leader)
    for _ in range(100):
        election.wait(1.0)
        assert not election.says_it_leads(rival)
    election.ends(leader)
    assert election.says_it_leads(rival)


def test_a_warning_is_logged_if_a_master_waits_longer_than_an_election_takes(
    election: Election,
) -> None:
    leader, rival = Master("m1"), Master("m2")
    assert election.says_it_leads(leader)
    with capture_logs() as logs:
        for _ in range(4):
            assert not election.says_it_leads(rival)
            election.wait(GRACE / 2)
    waits = [entry["log_level"] for entry in logs if entry["event"] == "master has to wait"]
    assert waits == ["info", "warning"]
    election.ends(leader)
    assert election.says_it_leads(rival)


def test_a_frozen_leader_with_an_open_stream_is_superseded_after_the_silence_limit(
    election: Election,
) -> None:
    frozen, elected = Master("m1"), Master("m2")
    assert election.says_it_leads(frozen)
    served_after = None
    for second in range(30):
        if election.says_it_leads(elected):
            served_after = second
            break
        election.wait(1.0, silent=frozen)
    assert served_after is not None
    assert SILENCE <= served_after <= SILENCE + 2


def test_a_superseded_leader_that_resumes_cannot_lead_again(election: Election) -> None:
    frozen, elected = Master("m1"), Master("m2")
    election.says_it_leads(frozen)
    while not election.says_it_leads(elected):
        election.wait(1.0, silent=frozen)
    election.ends(frozen)
    thawed = Master("m1")
    for _ in range(5):
        election.wait(1.0)
        assert not election.says_it_leads(thawed)
    election.ends(elected)  # the elected master loses its connection
    election.wait(1.0)
    assert not election.says_it_leads(thawed)
    assert election.says_it_leads(Master("m2"))


def test_a_superseded_master_is_served_again_when_its_successor_does_not_come_back(
    election: Election,
) -> None:
    first, second = Master("m1"), Master("m2")
    election.says_it_leads(first)
    election.ends(first)
    election.says_it_leads(second)
    returned = Master("m1")
    assert not election.says_it_leads(returned)
    election.ends(second)
    election.wait(GRACE + 0.1)
    assert election.says_it_leads(returned)


def test_the_newest_waiting_claim_leads_next_unless_its_stream_is_silent(
    election: Election,
) -> None:
    leader, older, newer = Master("m1"), Master("m2"), Master("m3")
    election.says_it_leads(leader)
    assert not election.says_it_leads(older)
    assert not election.says_it_leads(newer)
    election.ends(leader)
    assert not election.says_it_leads(older)
    election.wait(SILENCE, silent=newer)
    assert election.says_it_leads(older)


def test_a_busy_service_does_not_take_its_leader_for_silent(election: Election) -> None:
    leader, rival = Master("m1"), Master("m2")
    election.says_it_leads(leader)
    assert not election.says_it_leads(rival)
    election.now += 60.0  # 60 s in which this service read no stream
    assert not election.says_it_leads(rival)
    election.wait(0.5)  # now the service reads the queued messages
    assert not election.says_it_leads(rival)
    election.wait(5.0)
    assert not election.says_it_leads(rival)


def test_the_same_master_on_a_new_stream_is_served_at_once(election: Election) -> None:
    former, present = Master("m1"), Master("m1")
    election.says_it_leads(former)
    assert election.leadership.takeover_blocker(present) is None
    assert election.leadership.promote(present) is former


@pytest.mark.parametrize(
    "make",
    [
        lambda: (Master(""), Master("")),
        lambda: (Master("m1", certificate="a"), Master("m1", certificate="b")),
    ],
)
def test_masters_without_session_id_or_with_different_certificates_are_distinct(
    election: Election, make: Callable[[], tuple[Master, Master]]
) -> None:
    leader, rival = make()
    election.says_it_leads(leader)
    assert not election.says_it_leads(rival)
