"""A hostile master: messages mutated from valid messages, and random bytes."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import START_NS, agent_call, framework_info, resources
from tests.service.served import PATIENCE

_REFUSALS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION}
METHOD = "/longshare.v1.Allocator/Session"
HUGE = (0, -1, 1, 2**31, 2**63 - 1, -(2**63))
NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 5e-324)
WORDS = ("", "*", "s1", "f1", "a", "a/b", "/", "..", "x" * 5000, "\0", "ünïcödé", "-")


def calls() -> list[contract.Event]:
    """Return one valid event for each kind of call."""
    held = resources("cpus:1;mem:512", "a")
    known = {"agent_id": "s1", "framework_id": "f1"}
    refusal = mesos.Filters(refuse_seconds=5.0).SerializeToString()
    when = mesos.Unavailability(start=mesos.TimeInfo(nanoseconds=1)).SerializeToString()
    quota = mesos.QuotaInfo(role="a")
    quota.guarantee.append(mesos.Resource.FromString(resources("cpus:1")[0]))
    operation = mesos.Operation(type=mesos.Operation.RESERVE)
    operation.reserve.resources.append(mesos.Resource.FromString(resources("cpus(a):1")[0]))
    info = framework_info("f1", "a")
    return [
        contract.Event(tick=contract.Tick()),
        contract.Event(add_agent=agent_call("s2", "cpus:4;mem:4096", {"f1": held})),
        contract.Event(update_agent=contract.UpdateAgent(agent_id="s1", info=b"\x0a\x01h")),
        contract.Event(
            add_framework=contract.AddFramework(framework_id="f2", info=info, active=True)
        ),
        contract.Event(update_framework=contract.UpdateFramework(framework_id="f1", info=info)),
        contract.Event(revive_offers=contract.ReviveOffers(framework_id="f1", roles=["a"])),
        contract.Event(suppress_offers=contract.SuppressOffers(framework_id="f1", roles=["a"])),
        contract.Event(
            recover_resources=contract.RecoverResources(
                framework_id="f1", agent_id="s1", resources=held, filters=refusal
            )
        ),
        contract.Event(reject_offer=contract.RejectOffer(**known, resources=held)),
        contract.Event(
            update_allocation=contract.UpdateAllocation(
                **known,
                offered=held,
                conversions=[contract.Conversion(consumed=held[:1], converted=held[:1])],
            )
        ),
        contract.Event(
            update_available=contract.UpdateAvailable(
                agent_id="s1", operations=[operation.SerializeToString()]
            )
        ),
        contract.Event(set_quota=contract.SetQuota(role="a", info=quota.SerializeToString())),
        contract.Event(
            update_quota=contract.UpdateQuota(
                role="a", limits=contract.Quantities(amounts={"cpus": 2.0})
            )
        ),
        contract.Event(
            transition_offered_to_allocated=contract.TransitionOfferedToAllocated(
                **known, resources=held
            )
        ),
        contract.Event(
            update_weights=contract.UpdateWeights(weights=[contract.Weight(role="a", weight=2.0)])
        ),
        contract.Event(
            update_unavailability=contract.UpdateUnavailability(agent_id="s1", unavailability=when)
        ),
        contract.Event(
            update_inverse_offer=contract.UpdateInverseOffer(
                agent_id="s1", framework_id="f1", filters=refusal
            )
        ),
        contract.Event(recover=contract.Recover(expected_agents=10)),
        contract.Event(
            request_resources=contract.RequestResources(
                framework_id="f1", requests=[mesos.Request().SerializeToString()]
            )
        ),
    ]


def attacks(seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield attacks endlessly: a description of the fault, and the bytes of the message."""
    chance = random.Random(seed)
    valid = calls()
    while True:
        event = contract.Event()
        event.CopyFrom(chance.choice(valid))
        event.sequence = chance.choice([1, 1, 1, 2, 0, 2**64 - 1])
        event.time_ns = chance.choice([START_NS, START_NS, *HUGE])
        name, spoil = chance.choice(list(_SPOILERS.items()))
        yield f"{event.WhichOneof('call')}: {name}", spoil(event, chance)


def _message(event: contract.Event) -> bytes:
    return contract.FromMaster(events=contract.Events(events=[event])).SerializeToString()


def _flipped(event: contract.Event, chance: random.Random) -> bytes:
    data = bytearray(_message(event))
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _cut(event: contract.Event, chance: random.Random) -> bytes:
    data = _message(event)
    return data[: chance.randrange(len(data))]


def _spliced(event: contract.Event, chance: random.Random) -> bytes:
    data, donor = _message(event), _message(chance.choice(calls()))
    return data[: chance.randrange(len(data))] + donor[chance.randrange(len(donor)) :]


def _rubbish(_: contract.Event, chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([1, 10, 1000]))


def _nested(_: contract.Event, chance: random.Random) -> bytes:
    data = b""
    for _depth in range(chance.choice([50, 150])):
        data = b"\x1a" + _varint(len(data)) + data
    return data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _odd_fields(event: contract.Event, chance: random.Random) -> bytes:
    """Put absurd values into existing fields, including fields inside Mesos's own messages."""
    name = event.WhichOneof("call")
    assert name is not None
    call = getattr(event, name)
    for field, _value in list(call.ListFields()):
        if chance.random() < 0.5:
            continue
        if field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(call, field.name, chance.choice(WORDS))
        elif field.type == field.TYPE_BYTES and field.is_repeated:
            getattr(call, field.name).append(_odd_resource(chance))
        elif field.type == field.TYPE_BYTES:
            setattr(call, field.name, chance.randbytes(20))
    return _message(event)


def _odd_resource(chance: random.Random) -> bytes:
    odd = mesos.Resource.FromString(resources("cpus:1", "a")[0])
    odd.name = chance.choice(WORDS)
    odd.scalar.value = chance.choice(NUMBERS)
    if chance.random() < 0.5:
        odd.reservations.add(role=chance.choice(WORDS))
    if chance.random() < 0.3:
        odd.disk.persistence.id = "v"
        odd.shared.SetInParent()
    if chance.random() < 0.3:
        odd.type = chance.choice(list(mesos.Value.Type.values()))
        odd.ranges.range.add(begin=2**64 - 1, end=chance.choice([0, 2**64 - 1]))
    if chance.random() < 0.3:
        odd.ClearField("allocation_info")
    return odd.SerializePartialToString()


_SPOILERS: dict[str, Callable[[contract.Event, random.Random], bytes]] = {
    "odd number or time": lambda event, _: _message(event),
    "bits flipped": _flipped,
    "cut off": _cut,
    "spliced": _spliced,
    "rubbish": _rubbish,
    "nested": _nested,
    "odd fields": _odd_fields,
}


class Attacker:
    """Opens a separate session for each attack, with a cluster of one agent.

    Args:
        address: Address at which the service listens.
    """

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._elected = 1
        self._session: Any = self._channel.stream_stream(METHOD)

    def strike(self, attack: bytes) -> str:
        """Send the attack and return the outcome: refused, snapshot asked for, or decided.

        After the attack the service must still accept an ordinary snapshot, unless the service
        closed the stream.
        """
        self._elected += 1
        hello = contract.Hello(
            contract_version=VERSION, session_id="attacker", master="m:1", virtual_clock=True
        )
        messages = [contract.FromMaster(hello=hello), contract.FromMaster(snapshot=self.snapshot())]
        sent = [message.SerializeToString() for message in messages]
        try:
            answers = self._session(iter([*sent, attack, sent[1]]), timeout=PATIENCE)
            heard = [contract.ToMaster.FromString(answer) for answer in answers]
        except grpc.RpcError as error:
            if error.code() not in _REFUSALS or not error.details():
                raise
            return "refused"
        kinds = [message.WhichOneof("message") for message in heard]
        assert kinds[:2] == ["welcome", "decisions"], kinds
        assert kinds[-1] == "decisions", kinds
        if "snapshot_request" in kinds:
            reason = next(m for m in heard if m.HasField("snapshot_request"))
            assert reason.snapshot_request.reason
            return "snapshot asked for"
        return "decided"

    def snapshot(self) -> contract.Snapshot:
        """Return a snapshot of the cluster that is attacked."""
        info = framework_info("f1", "a")
        used = {"f1": resources("cpus:2;mem:1024", "a")}
        return contract.Snapshot(
            time_ns=START_NS,
            leading_since_ns=self._elected,
            agents=[agent_call("s1", "cpus:4;mem:4096", used)],
            frameworks=[contract.AddFramework(framework_id="f1", info=info, active=True)],
        )
