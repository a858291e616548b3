"""Hostile messages by the million do not harm a well-behaved framework on the same engine."""

import gc
import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.account import Account
from allocator.service.masters import wire
from allocator.users.memory import Memory
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resources,
)
from tests.service.hostile_structure import hostile_events

MESSAGES = int(os.environ.get("LONGSHARE_HOSTILE", "4000"))
SEED = int(os.environ.get("LONGSHARE_SEED", "1"))
ROUND = 40
"""Hostile messages between two checks of the well-behaved framework."""
ROUNDS = 25
"""Rounds after which the cluster is restored, as hostile calls may take all resources."""
LOOKS = 8
"""Inverse rate of thorough checks: a check in `LOOKS` compares the whole memory of the engine."""
TOLD = 100_000
"""Messages between two progress lines."""
GROWTH = 32 * 2**10
"""KiB by which a million messages or more may raise memory, after the first tenth."""
_account = attrgetter(*Account.__slots__)


class Battle:
    """An engine, hostile frameworks, and a well-behaved framework on a dedicated agent."""

    def __init__(self) -> None:
        self.master = MasterSide("sdrf", {"half_life": 60.0})
        self.sequence = 0
        self.now_ns = START_NS
        self.refused = self.passed_over = self.accepted = 0
        self.as_it_is: object = None
        """Last computed state, or None if calls may have changed the state since."""
        self.begin()

    @property
    def engine(self) -> Engine:
        return self.master.engine

    def begin(self) -> None:
        """Restore the initial cluster by a snapshot."""
        self.sequence += 1
        place = mesos.FrameworkInfo.FromString(framework_info("good", "good"))
        place.labels.labels.add(key="longshare.whitelist", value="g1.example")
        info = place.SerializeToString()
        snapshot = contract.Snapshot(
            sequence=self.sequence,
            time_ns=self.now_ns,
            leading_since_ns=self.sequence,
            agents=[
                agent_call("s1", "cpus:4;mem:4096", {"f1": resources("cpus:2;mem:1024", "a")}),
                agent_call("g1", "cpus:2;mem:1024", {"good": self.held}),
            ],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "a"), active=True
                ),
                contract.AddFramework(framework_id="good", info=info, active=True),
            ],
            quotas=[],
        )
        self.as_it_is = None
        self.engine.restore(self.master.options, snapshot)

    held = resources("cpus:2;mem:1024", "good")

    def strike(self, event: bytes, *, look: bool) -> None:
        """Apply a hostile event; if the engine refuses the event, check that nothing changed."""
        number = contract.Event(sequence=self.sequence + 1, time_ns=self.now_ns)
        try:
            message = wire.parse(field(3, field(1, number.SerializeToString() + event)), 2**20)
        except wire.WireError:
            return
        [single_event] = message.events.events
        single_event.sequence, single_event.time_ns = self.sequence + 1, self.now_ns
        done, before = self.engine.statistics, self.as_it_is or self.state()
        passed_over, remembered = done.passed_over, self.engine.memory() if look else None
        self.as_it_is = None
        try:
            self.engine.apply(message.events)
        except InvalidEvent:
            self.refused += 1
            self.unchanged(before, remembered, message)
            self.begin()
            return
        self.sequence += 1
        assert self.engine.sequence == self.sequence
        if done.passed_over > passed_over:
            self.passed_over += 1
            self.unchanged(before, remembered, message)
        else:
            self.accepted += 1
        assert not done.faults, (self.faults(), self.engine.divergence(), message)
        if self.engine.divergence() is not None:
            self.begin()  # the session would request a snapshot

    def state(self) -> object:
        """Return allocations and accounts, which a refused call must not change.

        Comparing the whole memory of the users would take three times as long.
        """
        accounts = self.engine.pool.still().accounts
        users = [(user, _account(account)) for user, account in accounts.items()]
        return users, self.engine.allocations(), self.engine.available()

    def unchanged(self, before: object, remembered: Memory | None, message: object) -> None:
        self.as_it_is = self.state()
        assert self.as_it_is == before, message
        assert remembered is None or self.engine.memory() == remembered, message

    def faults(self) -> list[object]:
        return [
            rejected_input
            for rejected_input in self.engine.rejected_inputs()
            if rejected_input.flaw.reason == "fault"
        ]

    def serve(self) -> bool:
        """Recover the good framework's resources, tick; return whether it gets an offer again."""
        self.as_it_is = None
        self.now_ns += SECOND
        events = contract.Events()
        back = contract.RecoverResources(framework_id="good", agent_id="g1", resources=self.held)
        for call in ({"recover_resources": back}, {"tick": contract.Tick()}):
            self.sequence += 1
            events.events.add(sequence=self.sequence, time_ns=self.now_ns, **call)
        offers = self.engine.apply(events).offers
        return any(offer.framework_id == "good" for offer in offers)


def field(number: int, body: bytes) -> bytes:
    length, out = len(body), bytearray([number << 3 | 2])
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + body


def memory() -> int:
    """Return the peak memory of this process in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture
def _quick_collections() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # collections skip the objects of imported modules
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_quick_collections")
def test_hostile_messages_break_nothing_and_leave_a_good_framework_half_its_offers() -> None:
    battle, served, turns = Battle(), 0, 0
    chance = random.Random(SEED)
    events = hostile_events(chance)
    begun, usual = time.monotonic(), 0
    while (sent := turns * ROUND) < MESSAGES:
        if turns % ROUNDS == 0:
            battle.begin()
        if sent and sent % TOLD == 0:
            rate = sent / (time.monotonic() - begun)
            print(  # noqa: T201 - a run of ten million takes an hour
                f"{sent:,} of {MESSAGES:,}, {rate:,.0f}/s: {battle.accepted:,} accepted,",
                f"{battle.refused + battle.passed_over:,} refused; offers to the good framework",
                f"in {served:,} of {turns:,} rounds; {memory() // 2**10} MiB",
                file=sys.stderr,
                flush=True,
            )
        for event in islice(events, ROUND):
            battle.strike(event, look=chance.random() * LOOKS < 1)
        served += battle.serve()
        turns += 1
        usual = memory() if sent <= MESSAGES / 10 else usual
    assert served >= turns / 2
    assert battle.accepted > MESSAGES / 10
    assert battle.passed_over > MESSAGES / 10
    assert MESSAGES < 10**6 or memory() < usual + GROWTH
