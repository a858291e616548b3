"""A master whose allocator works in batches, like stock Mesos, and the calls of such a master."""

import dataclasses
from collections.abc import Iterable, Mapping

from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import START_NS, MasterSide, Offered, resource, resources

SHARED = mesos.FrameworkInfo.Capability.SHARED_RESOURCES
REVOCABLE = mesos.FrameworkInfo.Capability.REVOCABLE_RESOURCES
DAY = 86400.0
LEAST: tuple[Mapping[str, float], ...] = ({"cpus": 0.01}, {"mem": 32.0})
"""The smallest offer of a stock master with default flags."""

Told = set[tuple[str, str, str]]


class BatchMaster(MasterSide):
    """A master whose freed resources are offered at the next tick."""

    def __init__(
        self,
        policy: str = "drf",
        *,
        excluded: Iterable[str] = (),
        min_allocatable: Iterable[Mapping[str, float]] = LEAST,
        limits: Limits | None = None,
    ) -> None:
        parameters = {"delta": 0.9} if policy == "sdrf" else {}
        super().__init__(
            policy, parameters, excluded=excluded, min_allocatable=min_allocatable, limits=limits
        )
        self.settings = dataclasses.replace(self.settings, allocation="batch")
        self.engine = Engine(self.settings)
        self.restore(contract.Snapshot(time_ns=START_NS))

    @property
    def decisions(self) -> contract.Decisions:
        """The answer to the latest message."""
        return contract.Decisions.FromString(self.log[-1][1])

    @property
    def inverse_offers(self) -> list[tuple[str, str]]:
        """Requested inverse offers in the answer to the latest message, as (framework, agent)."""
        return [
            (offers.framework_id, offer.agent_id)
            for offers in self.decisions.inverse_offers
            for offer in offers.inverse_offers
        ]

    @property
    def reply(self) -> contract.Reply:
        """The only reply in the answer to the latest message."""
        [reply] = self.decisions.replies
        return reply

    def held(self) -> dict[tuple[str, str, str], str]:
        """Allocated resources: (agent, framework, role) → scalars."""
        return {place: str(held) for place, held in self.engine.allocations().items()}

    def consumed(self, role: str) -> dict[str, float]:
        """Return the consumed quota of a role."""
        return self.engine.quotas()[role][1].to_doubles()


def told(offers: Iterable[Offered]) -> Told:
    """Return offers as a comparable set of framework, role, agent and resources."""
    listed = [(offer.framework, offer.agent, offer.resources) for offer in offers]
    assert len(set(listed)) == len(listed), "an offer came twice"
    return set(listed)


def set_quota(role: str, text: str) -> contract.SetQuota:
    return contract.SetQuota(role=role, info=quota_info(role, resources(text)))


def quota_info(role: str, guarantee: Iterable[bytes]) -> bytes:
    info = mesos.QuotaInfo(role=role)
    for data in guarantee:
        info.guarantee.add().MergeFromString(data)
    return info.SerializeToString()


def update_weights(weights: dict[str, float]) -> contract.UpdateWeights:
    return contract.UpdateWeights(
        weights=[contract.Weight(role=role, weight=weight) for role, weight in weights.items()]
    )


def disk(
    size: float,
    *,
    mount: bool = False,
    reserved: Iterable[str] = (),
    volume: str | None = None,
    shared: bool = False,
    role: str | None = None,
) -> bytes:
    """Return a disk resource, or a persistent volume on a disk."""
    message = resource("disk", str(size), role=role, reserved=reserved)
    if mount:
        message.disk.source.type = mesos.Resource.DiskInfo.Source.MOUNT
    if volume is not None:
        message.disk.persistence.id = volume
        message.disk.volume.container_path = "data"
        message.disk.volume.mode = mesos.Volume.RW
    if shared:
        message.shared.SetInParent()
    return message.SerializeToString(deterministic=True)


def revocable(text: str, role: str | None = None) -> list[bytes]:
    """Return the same resources, oversubscribed."""
    messages = [mesos.Resource.FromString(data) for data in resources(text, role)]
    for message in messages:
        message.revocable.SetInParent()
    return [message.SerializeToString(deterministic=True) for message in messages]


def allocated(messages: Iterable[bytes], role: str) -> list[bytes]:
    """Return the same resources, allocated to a role."""
    parsed = [mesos.Resource.FromString(data) for data in messages]
    for message in parsed:
        message.allocation_info.role = role
    return [message.SerializeToString(deterministic=True) for message in parsed]


def unallocated(messages: Iterable[bytes]) -> set[bytes]:
    """Return the same resources, unallocated."""
    parsed = [mesos.Resource.FromString(data) for data in messages]
    for message in parsed:
        message.ClearField("allocation_info")
    return {message.SerializeToString(deterministic=True) for message in parsed}


def freed(offer: Offered, text: str | None = None) -> contract.RecoverResources:
    """Return the call that recovers an offer, or a part of an offer, without a filter."""
    return contract.RecoverResources(
        framework_id=offer.framework,
        agent_id=offer.agent,
        resources=offer.messages if text is None else resources(text, offer.role),
    )


def reserve(messages: Iterable[bytes]) -> bytes:
    """Return an operator's RESERVE operation for resources that carry the reservation already."""
    operation = mesos.Operation(type=mesos.Operation.RESERVE)
    for data in messages:
        operation.reserve.resources.add().MergeFromString(data)
    return operation.SerializeToString()


def converted(offer: Offered, *steps: tuple[list[bytes], list[bytes]]) -> contract.UpdateAllocation:
    """Return a framework's operations on an offer, as consumed → converted resources."""
    return contract.UpdateAllocation(
        framework_id=offer.framework,
        agent_id=offer.agent,
        offered=offer.messages,
        conversions=[
            contract.Conversion(consumed=consumed, converted=result) for consumed, result in steps
        ],
    )


def add_agent(
    agent: str, total: Iterable[bytes], used: dict[str, list[bytes]] | None = None
) -> contract.AddAgent:
    """Return the call for an agent with resources that the flag syntax cannot express."""
    return contract.AddAgent(
        agent_id=agent,
        info=agent_info(agent),
        capabilities=mesos.SlaveInfo.Capability.Type.values(),
        total=list(total),
        used=[
            contract.Allocation(framework_id=framework, resources=held)
            for framework, held in (used or {}).items()
        ],
    )


def agent_info(agent: str, **attributes: str) -> bytes:
    info = mesos.SlaveInfo(hostname=f"{agent}.example", id=mesos.SlaveID(value=agent))
    for name, value in attributes.items():
        info.attributes.add(name=name, type=mesos.Value.TEXT, text=mesos.Value.Text(value=value))
    return info.SerializeToString()


def unavailability(start: int) -> bytes:
    return mesos.Unavailability(start=mesos.TimeInfo(nanoseconds=start)).SerializeToString()
