"""Handles subscription, failover, disconnection and removal of schedulers."""

import ipaddress
from collections import OrderedDict

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import MESOS_VERSION
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.books import MasterState
from frameworks.local_mesos.drops import log_dropped_call
from frameworks.local_mesos.state import EmbeddedFramework, Subscriber
from frameworks.local_mesos.tasks import TaskReports
from frameworks.local_mesos.updates import StatusUpdates
from frameworks.local_mesos.validation import Refused, check_subscription

HEARTBEAT = 15.0
"""Seconds between heartbeats on a scheduler's stream."""
_MAX_COMPLETED = 50
"""Maximum number of removed frameworks that are kept for reports (`--max_completed_frameworks`)."""


class Subscribing:
    """Registers and removes frameworks, and gives each its event stream.

    Args:
        books: The master's state.
        tasks: Ends the tasks of removed frameworks.
        updates: Sends pending updates again after a failover.
    """

    def __init__(self, books: MasterState, tasks: TaskReports, updates: StatusUpdates) -> None:
        self._books = books
        self._tasks = tasks
        self._updates = updates
        self.address = ("127.0.0.1", 5050)
        """IPv4 address and port at which the master listens."""
        self.completed: OrderedDict[str, EmbeddedFramework] = OrderedDict()

    def subscribe(
        self, call: v1.Call.Subscribe, subscriber: Subscriber
    ) -> EmbeddedFramework | None:
        """Handle a SUBSCRIBE call: register the framework, or fail it over to a new stream.

        Args:
            call: The SUBSCRIBE call.
            subscriber: The scheduler's event stream.

        Returns:
            The framework, or None if the subscription is rejected. The reason is then sent to the
            subscriber.
        """
        info = mesos.FrameworkInfo()
        info.CopyFrom(call.framework_info)
        suppressed = set(call.suppressed_roles)
        reregistering = bool(info.id.value)
        name = "messages_reregister_framework" if reregistering else "messages_register_framework"
        self._books.counters[name] += 1
        try:
            check_subscription(info, suppressed, self.completed)
        except Refused as error:
            subscriber.send(_error(str(error)))
            subscriber.close()
            return None
        if not reregistering:
            return self._register(info, suppressed, subscriber)
        framework = self._books.frameworks.get(info.id.value)
        if framework is None:  # registered with an earlier master
            framework = self._add(info, suppressed, None)
        self._fail_over(framework, info, suppressed, subscriber)
        return framework

    def disconnected(self, framework_id: str, subscriber: Subscriber) -> None:
        """Handle the end of a scheduler's event stream.

        Args:
            framework_id: Id of the scheduler's framework.
            subscriber: The stream that ended; ignored if the framework has a newer stream.
        """
        framework = self._books.frameworks.get(framework_id)
        if framework is None or framework.subscriber is not subscriber:
            return  # removed, or failed over already
        self._leave(framework)
        self._deactivate(framework)
        framework.removal = self._books.clock.after(
            framework.info.failover_timeout, lambda: self.remove(framework)
        )

    def refuse(self, framework_id: str, reason: str) -> None:
        """Send an ERROR event to the scheduler of a framework that the allocator has rejected.

        Args:
            framework_id: Id of the framework.
            reason: The allocator's reason, as text for people.
        """
        framework = self._books.frameworks.get(framework_id)
        if framework is not None:
            log_dropped_call(framework, "SUBSCRIBE", reason)
            framework.send(_error(f"The allocator makes no offers to this framework: {reason}"))

    def remove(self, framework: EmbeddedFramework) -> None:
        """Remove a framework, and end all its tasks and executors."""
        if framework.removal is not None:
            framework.removal.cancel()
        subscriber = framework.subscriber
        if subscriber is not None:
            self._leave(framework)
            self._deactivate(framework)
        self._tasks.abandon(framework)
        if subscriber is not None:
            subscriber.close()
        framework.unregistered = self._books.clock.now
        del self._books.frameworks[framework.id]
        self._books.send_call(pause=contract.Pause())
        self._books.send_call(remove_framework=contract.RemoveFramework(framework_id=framework.id))
        self._books.send_call(resume=contract.Resume())
        self.completed[framework.id] = framework
        while len(self.completed) > _MAX_COMPLETED:
            self.completed.popitem(last=False)

    def _register(
        self, info: mesos.FrameworkInfo, suppressed: set[str], subscriber: Subscriber
    ) -> EmbeddedFramework:
        info.id.value = self._books.new_id("")
        while (
            info.id.value in self._books.frameworks
        ):  # the id came from a master with the same seed
            info.id.value = self._books.new_id("")
        framework = self._add(info, suppressed, subscriber)
        self._send_subscribed(framework)
        return framework

    def _add(
        self, info: mesos.FrameworkInfo, suppressed: set[str], subscriber: Subscriber | None
    ) -> EmbeddedFramework:
        now = self._books.clock.now
        framework = EmbeddedFramework(
            info.id.value, info, suppressed, now, now, subscriber=subscriber
        )
        self._books.add_framework(framework)
        return framework

    def _fail_over(
        self,
        framework: EmbeddedFramework,
        info: mesos.FrameworkInfo,
        suppressed: set[str],
        subscriber: Subscriber,
    ) -> None:
        """Give a registered framework a new event stream, and close the old one.

        Args:
            framework: The registered framework.
            info: Its new description.
            suppressed: Roles for which it wants no offers.
            subscriber: The new stream.
        """
        for field in ("user", "checkpoint", "principal"):  # these fields cannot change
            setattr(info, field, getattr(framework.info, field))
        framework.info, framework.suppressed = info, suppressed
        framework.reregistered = self._books.clock.now
        self._books.update_framework(framework)
        if framework.removal is not None:
            framework.removal.cancel()
        old_subscriber = framework.subscriber
        if old_subscriber is not None:
            old_subscriber.send(_error("Framework failed over"))
            self._leave(framework)
            old_subscriber.close()
        framework.subscriber = subscriber
        for offer in list(framework.offers.values()):  # offers made to the previous scheduler
            self._books.take_back(offer, rescind=False)
        if old_subscriber is None:
            self._books.send_call(
                activate_framework=contract.ActivateFramework(framework_id=framework.id)
            )
        self._send_subscribed(framework)
        self._updates.resume(framework, framework.tasks.values())

    def _leave(self, framework: EmbeddedFramework) -> None:
        framework.subscriber = None
        if framework.heartbeat is not None:
            framework.heartbeat.cancel()

    def _deactivate(self, framework: EmbeddedFramework) -> None:
        self._books.send_call(
            deactivate_framework=contract.DeactivateFramework(framework_id=framework.id)
        )
        for offer in list(framework.offers.values()):
            self._books.take_back(offer, rescind=False)

    def _send_subscribed(self, framework: EmbeddedFramework) -> None:
        subscribed = v1.Event.Subscribed(
            framework_id=mesos.FrameworkID(value=framework.id),
            heartbeat_interval_seconds=HEARTBEAT,
            master_info=self._master_info(),
        )
        framework.send(v1.Event(type=v1.Event.SUBSCRIBED, subscribed=subscribed))
        self._send_heartbeat(framework)

    def _send_heartbeat(self, framework: EmbeddedFramework) -> None:
        framework.send(v1.Event(type=v1.Event.HEARTBEAT))
        framework.heartbeat = self._books.clock.after(
            HEARTBEAT, lambda: self._send_heartbeat(framework)
        )

    def _master_info(self) -> v1.MasterInfo:
        host, port = self.address
        return v1.MasterInfo(
            id=self._books.master_id,
            ip=int.from_bytes(
                ipaddress.IPv4Address(host).packed, "little"
            ),  # the byte order of in_addr
            port=port,
            pid=f"master@{host}:{port}",
            hostname=host,
            version=MESOS_VERSION,
            address=v1.Address(hostname=host, ip=host, port=port),
        )


def _error(message: str) -> v1.Event:
    return v1.Event(type=v1.Event.ERROR, error=v1.Event.Error(message=message))
