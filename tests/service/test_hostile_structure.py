"""Hostile messages by the thousand, beside a framework that does no harm and gets its offers."""

import os
import random
from itertools import islice

from allocator.cluster.engine import Engine
from allocator.cluster.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.service.masters import wire
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
"""Hostile messages between two looks at the framework that does no harm."""
ROUNDS = 25
"""After so many the cluster is made anew, as hostile calls may take all that there is."""


class Battle:
    """One engine, those who mean harm, and one framework on an agent that is for it alone."""

    def __init__(self) -> None:
        self.master = MasterSide("sdrf", {"half_life": 60.0})
        self.sequence = 0
        self.now_ns = START_NS
        self.refused = self.accepted = 0
        self.begin()

    @property
    def engine(self) -> Engine:
        return self.master.engine

    def begin(self) -> None:
        """Have the cluster as it was in the beginning."""
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
        self.engine.restore(self.master.options, snapshot)

    held = resources("cpus:2;mem:1024", "good")

    def strike(self, event: bytes) -> None:
        """Have an engine apply a hostile event, or refuse it and be as it was."""
        number = contract.Event(sequence=self.sequence + 1, time_ns=self.now_ns)
        body = number.SerializeToString() + event
        framed = contract.Events.FromString(b"").SerializeToString() + field(1, body)
        try:
            message = wire.parse(field(3, framed), 2**20)
        except wire.WireError:
            return
        [said] = message.events.events
        said.sequence, said.time_ns = self.sequence + 1, self.now_ns
        before = (self.engine.memory(), self.engine.holdings(), self.engine.available())
        try:
            self.engine.apply(message.events)
        except InvalidEvent:
            self.refused += 1
            after = (self.engine.memory(), self.engine.holdings(), self.engine.available())
            assert after == before, message
            self.begin()
            return
        self.accepted += 1
        self.sequence += 1
        assert self.engine.sequence == self.sequence
        faults = [each for each in self.engine.set_aside() if each.flaw.reason == "fault"]
        assert not self.engine.statistics.faults, (faults, self.engine.divergence(), message)

    def serve(self) -> bool:
        """Have the good framework give back what it holds, and return whether it gets it again."""
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


def test_hostile_messages_break_nothing_and_cost_a_good_framework_at_most_every_second_offer() -> (
    None
):
    battle, served, turns = Battle(), 0, 0
    events = hostile_events(random.Random(SEED))
    while turns * ROUND < MESSAGES:
        if turns % ROUNDS == 0:
            battle.begin()
        for event in islice(events, ROUND):
            battle.strike(event)
        served += battle.serve()
        turns += 1
    assert served >= turns / 2
    assert battle.accepted > MESSAGES / 10
    assert battle.refused > 0
