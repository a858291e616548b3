"""Reads the master's flags that restrict offers or control the failover recovery."""

from dataclasses import replace

from google.protobuf.message import DecodeError

from allocator.cluster.frameworks.framework import OfferRules
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import readable, text_of
from allocator.cluster.state import Recovery
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

_NANOSECONDS = 1_000_000_000


def rules(options: contract.Options) -> OfferRules:
    """Read the flags that restrict offers, such as minimum offer sizes, from a master's options.

    Raises:
        InvalidEvent: The domain or an amount is malformed.
    """
    region: str | None = None
    if options.HasField("domain"):
        try:
            domain = mesos.DomainInfo.FromString(options.domain)
        except DecodeError as error:
            raise InvalidEvent(
                f"options: domain is not a serialised mesos.DomainInfo: {error}"
            ) from error
        if domain.HasField("fault_domain"):
            region = readable(text_of(domain.fault_domain.region, "name"))
    try:
        minimum = tuple(Quantities.from_doubles(m.amounts) for m in options.min_allocatable)
    except ValueError as error:
        raise InvalidEvent(f"options: min_allocatable: {error}") from error
    return OfferRules(minimum, options.filter_gpu_resources, region)


def recovery(options: contract.Options) -> Recovery:
    """Read the parameters of failover recoveries from a master's options.

    Raises:
        InvalidEvent: The recovery factor is not between 0 and 1.
    """
    parameters = Recovery()
    if options.HasField("recovery_factor"):
        if not 0.0 <= options.recovery_factor <= 1.0:
            raise InvalidEvent(
                f"options: recovery_factor {options.recovery_factor} is not between 0 and 1"
            )
        parameters = replace(parameters, factor=options.recovery_factor)
    if options.HasField("recovery_timeout_ns"):
        parameters = replace(parameters, timeout_ns=options.recovery_timeout_ns)
    return parameters


def answered_after_ns(options: contract.Options, limits: Limits) -> int | None:
    """Return the time in nanoseconds after which an unanswered offer is assumed to be used.

    The result is None if the master reports used resources, or if no limit depends on them.
    """
    if options.tells_running or not (limits.bounds_unanswered and limits.answered_after):
        return None
    return round(limits.answered_after * _NANOSECONDS)
