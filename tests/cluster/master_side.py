"""The master's side of the contract, for tests: calls in, decisions out, in plain text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.users.memory import Memory
from allocator.users.settings import DeclaredUser

SECOND = 1_000_000_000
START_NS = 1_600_000_000 * SECOND

ALL_AGENT_CAPABILITIES = tuple(mesos.SlaveInfo.Capability.Type.values())


def resource(
    name: str, value: str, *, role: str | None = None, reserved: Iterable[str] = ()
) -> mesos.Resource:
    """Parse one value of Mesos's text syntax: 4, [1-10,20-30] or {a,b}."""
    message = mesos.Resource(name=name, type=mesos.Value.SCALAR)
    if value.startswith("["):
        message.type = mesos.Value.RANGES
        message.ranges.SetInParent()
        for interval in value[1:-1].split(","):
            begin, end = interval.split("-")
            message.ranges.range.add(begin=int(begin), end=int(end))
    elif value.startswith("{"):
        message.type = mesos.Value.SET
        message.set.item.extend(value[1:-1].split(","))
    else:
        message.scalar.value = float(value)
    for reservation in reserved:
        message.reservations.add(type=mesos.Resource.ReservationInfo.DYNAMIC, role=reservation)
    if role is not None:
        message.allocation_info.role = role
    return message


def resources(text: str, role: str | None = None) -> list[bytes]:
    """Parse `cpus:4;mem(eng):1024;ports:[1-9]`, the flag syntax of Mesos."""
    messages = []
    for entry in filter(None, text.split(";")):
        match = re.fullmatch(r"\s*(\w+)(?:\(([\w/,]+)\))?:(.+)", entry)
        assert match, entry
        name, reserved, value = match.groups()
        stack = reserved.split(",") if reserved else ()
        message = resource(name, value.strip(), role=role, reserved=stack)
        messages.append(message.SerializeToString(deterministic=True))
    return messages


def text_of(messages: Iterable[bytes]) -> str:
    """Format resources in the same syntax, sorted."""
    entries = []
    for data in messages:
        message = mesos.Resource.FromString(data)
        reserved = ",".join(reservation.role for reservation in message.reservations)
        if message.type == mesos.Value.RANGES:
            value = ",".join(f"{r.begin}-{r.end}" for r in message.ranges.range)
            value = f"[{value}]"
        elif message.type == mesos.Value.SET:
            value = f"{{{','.join(message.set.item)}}}"
        else:
            value = f"{message.scalar.value:g}"
        entries.append(f"{message.name}{f'({reserved})' if reserved else ''}:{value}")
    return ";".join(sorted(entries))


@dataclass(frozen=True)
class Offered:
    """One offer."""

    framework: str
    role: str
    agent: str
    resources: str
    messages: tuple[bytes, ...]


class MasterSide:
    """Numbers and timestamps events, sends each in a message of its own, and reads decisions."""

    def __init__(
        self,
        policy: str = "drf",
        parameters: Mapping[str, object] | None = None,
        *,
        user_key: UserKey = "role",
        users: tuple[DeclaredUser, ...] = (),
        min_allocatable: Iterable[Mapping[str, float]] = ({"cpus": 0.01}, {"mem": 32.0}),
        excluded: Iterable[str] = (),
        limits: Limits | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.settings = EngineSettings(
            policy=policies.create(policy, dict(parameters or {})),
            user_key=user_key,
            users=users,
            limits=limits or Limits(),
        )
        self.engine = Engine(self.settings, memory=memory)
        self.now_ns = START_NS
        self.sequence = 0
        self.log: list[tuple[contract.Events, bytes]] = []
        self.options = contract.Options(
            allocation_interval_ns=SECOND,
            filter_gpu_resources=True,
            fairness_excluded=excluded,
            min_allocatable=[contract.Quantities(amounts=m) for m in min_allocatable],
        )
        self.restore(contract.Snapshot(time_ns=self.now_ns))

    def restore(self, snapshot: contract.Snapshot) -> list[Offered]:
        self.log.clear()
        return read(self.engine.restore(self.options, snapshot))

    def send(self, *calls: object) -> list[Offered]:
        """Send calls as one message."""
        events = contract.Events()
        for call in calls:
            self.sequence += 1
            event = events.events.add(sequence=self.sequence, time_ns=self.now_ns)
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(call).__name__).lower()
            getattr(event, name).CopyFrom(call)
        try:
            decisions = self.engine.apply(events)
        except ValueError:
            self.sequence = self.engine.sequence
            raise
        assert decisions.applied_sequence == self.sequence
        self.log.append((events, decisions.SerializeToString(deterministic=True)))
        return read(decisions)

    def wait(self, seconds: float) -> None:
        """Advance the clock without a call."""
        self.now_ns += round(seconds * SECOND)

    def tick(self, seconds: float = 1.0) -> list[Offered]:
        """Advance the clock and run the batch."""
        self.wait(seconds)
        return self.send(contract.Tick())

    def add_agent(
        self,
        agent: str,
        total: str,
        used: Mapping[str, list[bytes]] | None = None,
        capabilities: Iterable[int] = ALL_AGENT_CAPABILITIES,
    ) -> list[Offered]:
        return self.send(agent_call(agent, total, used, capabilities))

    def remove_agent(self, agent: str) -> list[Offered]:
        return self.send(contract.RemoveAgent(agent_id=agent))

    def add_framework(
        self,
        framework: str,
        *roles: str,
        active: bool = True,
        suppressed: Iterable[str] = (),
        capabilities: Iterable[int] = (),
        **info: str,
    ) -> list[Offered]:
        return self.send(
            contract.AddFramework(
                framework_id=framework,
                info=framework_info(framework, *roles, capabilities=capabilities, **info),
                active=active,
                suppressed_roles=suppressed,
            )
        )

    def recover(
        self,
        offer: Offered,
        text: str | None = None,
        *,
        refuse_seconds: float | None = None,
        default_filter: bool = False,
    ) -> list[Offered]:
        """Recover an offer, or a part of an offer; without a filter unless a filter is given."""
        call = contract.RecoverResources(
            framework_id=offer.framework,
            agent_id=offer.agent,
            resources=offer.messages if text is None else resources(text, offer.role),
        )
        if refuse_seconds is not None:
            call.filters = mesos.Filters(refuse_seconds=refuse_seconds).SerializeToString()
        elif default_filter:
            call.filters = b""
        return self.send(call)

    def begin_anew(self, running: list[Offered]) -> list[Offered]:
        """End all tasks; return the offers of the recovered resources."""
        return [offer for task in running for offer in self.recover(task)]

    def replayed(self) -> list[bytes]:
        """Return the decisions of a fresh engine on the same messages."""
        engine = Engine(self.settings)
        engine.restore(self.options, contract.Snapshot(time_ns=START_NS))
        return [
            engine.apply(events).SerializeToString(deterministic=True) for events, _ in self.log
        ]


def read(decisions: contract.Decisions) -> list[Offered]:
    """Flatten decisions into offers, in order."""
    frameworks = [offers.framework_id for offers in decisions.offers]
    assert len(frameworks) == len(set(frameworks)), "more than one Offers for a framework"
    for offers in decisions.offers:
        for offer in offers.offers:
            for data in offer.resources:
                assert mesos.Resource.FromString(data).allocation_info.role == offer.role
    return [
        Offered(
            offers.framework_id,
            offer.role,
            offer.agent_id,
            text_of(offer.resources),
            tuple(offer.resources),
        )
        for offers in decisions.offers
        for offer in offers.offers
    ]


def agent_call(
    agent: str,
    total: str,
    used: Mapping[str, list[bytes]] | None = None,
    capabilities: Iterable[int] = ALL_AGENT_CAPABILITIES,
) -> contract.AddAgent:
    return contract.AddAgent(
        agent_id=agent,
        info=mesos.SlaveInfo(
            hostname=f"{agent}.example", id=mesos.SlaveID(value=agent)
        ).SerializeToString(),
        capabilities=capabilities,
        total=resources(total),
        used=[
            contract.Allocation(framework_id=framework, resources=held)
            for framework, held in (used or {}).items()
        ],
    )


def framework_info(
    framework: str, *roles: str, capabilities: Iterable[int] = (), **fields: str
) -> bytes:
    info = mesos.FrameworkInfo(
        user="nobody", name=f"{framework} of the tests", id=mesos.FrameworkID(value=framework)
    )
    info.roles.extend(roles)
    kinds = {mesos.FrameworkInfo.Capability.MULTI_ROLE, *capabilities}
    for kind in sorted(kinds):
        info.capabilities.add(type=kind)
    for name, value in fields.items():
        setattr(info, name, value)
    return info.SerializeToString()


def mirrored(
    master: MasterSide, *offers: Offered, sequence: int | None = None
) -> contract.Snapshot:
    """Return the snapshot of a master with one agent, one framework, and outstanding offers."""
    used = {offer.framework: list(offer.messages) for offer in offers}
    master.sequence = master.sequence if sequence is None else sequence
    return contract.Snapshot(
        sequence=master.sequence,
        time_ns=master.now_ns,
        agents=[agent_call("s1", "cpus:2;mem:1024", used)],
        frameworks=[
            contract.AddFramework(
                framework_id="good", info=framework_info("good", "a"), active=True
            )
        ],
    )
