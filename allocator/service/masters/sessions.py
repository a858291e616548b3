"""The gRPC service for Mesos masters: all connected masters, of which only the leader is served."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters import wire
from allocator.service.masters.leadership import Leadership, same_master
from allocator.service.masters.session import (
    Ended,
    PendingMessage,
    ProtocolError,
    Reply,
    Requests,
    Session,
    SessionStatistics,
)
from allocator.service.masters.timestamp_guard import Timeline, TimestampGuard
from allocator.service.rights import Rights, certificate, peer_name
from allocator.service.stream_traffic import StreamTraffic
from allocator.users.memory import Memory

MAX_STREAMS_WITHOUT_SNAPSHOT = 64
"""Maximum number of streams that have not sent a snapshot; one more stream ends the oldest of them.
"""

Context = grpc.aio.ServicerContext[contract.FromMaster, Reply]
"""gRPC context of a master's stream."""
_SERVICE = contract.DESCRIPTOR.services_by_name["Allocator"]
_METHOD = f"/{_SERVICE.full_name}/Session"
_DECISIONS_TAG = bytes([contract.ToMaster.DECISIONS_FIELD_NUMBER << 3 | 2])
"""Begin of the field `decisions`: its number, and the wire type of messages."""

_log = structlog.get_logger(__name__)


class Sessions:
    """The gRPC service for masters: serves the leader and keeps standby masters waiting.

    Messages are applied in sequence in the event loop's thread. Other readers of the engine in the
    same thread therefore see the state between two messages.

    Args:
        engine: The engine that makes the decisions.
        statistics: Statistics of all sessions, to update.
        max_waiting: Maximum number of standby masters, and separately of masters that wait to lead.
        recall: Returns the memory (commitments and operator settings) that another allocator
            service has stored; None if there is none or reading fails.
        took_over: Callback invoked when another master, or another stream of the same master,
            becomes the leader.
        timeline: The service's time, against which timestamps are checked.
        most_parts: Maximum total weight of a message's parts (setting `listen.most_parts`).
        virtual_clocks: Whether a master may declare its clock virtual; its timestamps are then
            accepted unchecked.
        rights: Rights of peers; says who may act as a master.
        engine_lock: Lock acquired before the engine is accessed; None for a new lock.
        before_message: Callback invoked once per message, just before the message or its first part
            reaches the engine.
    """

    def __init__(  # noqa: PLR0913 - what a session needs of the service, by name
        self,
        engine: Engine,
        statistics: SessionStatistics,
        *,
        max_waiting: int,
        recall: Callable[[], Awaitable[Memory | None]],
        took_over: Callable[[], None] = lambda: None,
        timeline: Timeline,
        most_parts: int = 2**25,
        limits: Limits | None = None,
        virtual_clocks: bool = False,
        rights: Rights,
        engine_lock: EngineLock | None = None,
        before_message: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine_lock = EngineLock() if engine_lock is None else engine_lock
        self.before_message = before_message
        self._most_parts = most_parts
        self._limits = Limits() if limits is None else limits
        self._engine = engine
        self._load_stored = recall
        self._took_over = took_over
        self._statistics = statistics
        self._max_waiting = max_waiting
        self._timeline = timeline
        self._virtual_clocks = virtual_clocks
        self._rights = rights
        self._sessions: dict[Session, StreamTraffic] = {}
        self._leadership = Leadership()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the gRPC handler to register with a server.

        The generated servicer is not used, because it ends a stream without a reason if a message
        cannot be parsed.
        """
        return _Handlers(self._handler)

    def _handler(self) -> Any:  # noqa: ANN401 - gRPC's handler
        """Return the handler of a new stream, which counts the bytes of its messages."""
        traffic = StreamTraffic()
        return grpc.stream_stream_rpc_method_handler(
            partial(self._session, traffic),
            request_deserializer=_parser(self._most_parts, self._limits, traffic),
            response_serializer=_serialiser(traffic),
        )

    def end(self, reason: str) -> None:
        """End the streams of all masters.

        Args:
            reason: Text that the peers receive.
        """
        for session in list(self._sessions):
            session.end(reason)

    async def _session(
        self, traffic: StreamTraffic, requests: Requests, context: Context
    ) -> AsyncIterator[Reply]:
        """Serve one master's stream until it ends, and yield the answers.

        Args:
            traffic: Bytes of the stream's messages.
            requests: The master's messages.
            context: The gRPC call.
        """
        if self._rights.permit(context, "masters") is not None:
            return
        # gRPC may free the call before this generator ends; asking the context then would crash.
        peer = context.peer()
        session = Session(self._engine, self._statistics, self, certificate(context))
        end_observation = self._rights.observe_stream(peer, peer_name(context), traffic)
        # A lost peer shows as a cancelled read or as an abandoned write.
        closed = "the master's side lost its connection"
        try:
            self._register(session, traffic)
            messages = aiter(requests)  # gRPC's object would forward each `anext` to it
            await session.greet(messages)
            self._log_opened(session)
            async for answer in session.serve(messages):
                yield answer
            closed = "the master's side closed the stream"
        except ProtocolError as error:
            closed = ""
            _log.warning(
                "stream refused",
                peer=peer,
                certificate=session.certificate,
                reason=str(error),
            )
            _close(context, error.code, str(error))
        except Ended as error:
            closed = str(error)
            _close(context, grpc.StatusCode.ABORTED, closed)
        except Exception:
            closed = ""
            _log.exception("session failed", master=session.hello.master)
            raise
        finally:
            end_observation()
            self._remove(session)
            if closed:
                _log.info("session closed", master=session.hello.master, reason=closed)

    def timestamp_guard(self, session: Session) -> TimestampGuard | None:
        """Return the guard for the timestamps of a session after Hello; None for a virtual clock.

        Raises:
            ProtocolError: the session's clock is virtual, and virtual clocks are not allowed.
        """
        if not session.hello.virtual_clock:
            return TimestampGuard(self._timeline, session.hello.master)
        if not self._virtual_clocks:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "the master says that its clock is virtual; for an experiment set "
                "listen.virtual_clocks = true",
            )
        return None

    def admit(self, session: Session) -> None:
        """Admit a session whose first snapshot has arrived, unless too many masters wait already.

        Standby masters and masters that claim leadership are counted separately. A master that may
        lead at once is always admitted, so waiting masters cannot block it.

        Raises:
            ProtocolError: `max_waiting` masters of the same group wait already.
        """
        if not session.admitted:
            claims = session.elected_ns > 0
            waiting = sum(
                peer.admitted and (peer.elected_ns > 0) == claims
                for peer in self._sessions
                if peer is not self._leadership.leader and not same_master(peer, session)
            )
            if waiting >= self._max_waiting and not (
                claims and self.takeover_blocker(session) is None
            ):
                raise ProtocolError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self._max_waiting} masters wait already, the limit of listen.sessions",
                )
            session.admitted = True
            self._supersede(session)
        self._update_statistics()

    def takeover_blocker(self, session: Session) -> str | None:
        """Return why a master that claims leadership has to wait; None if it may lead now."""
        return self._leadership.takeover_blocker(session)

    async def load_stored_memory(self) -> Memory | None:
        """Return commitments and operator settings that another service stored.

        The result is None if there are none, or if they cannot be read.
        """
        return await self._load_stored()

    def promote(self, session: Session) -> None:
        """Make a master the leader, and end the previous leader's stream with a reason for it."""
        if self._leadership.leader is not session:
            self._took_over()
        former = self._leadership.promote(session)
        if session in self._sessions:
            self._sessions[session].leads = True
        if isinstance(former, Session):
            reconnected = same_master(session, former)
            successor = "a new stream of the same master" if reconnected else "master"
            self._end(former, f"superseded by {successor} {session.hello.master}")
        self._update_statistics()

    def demote(self, session: Session) -> None:
        """Record that a master no longer leads or claims leadership.

        The caller has found that the master is on standby, or that its stream has ended.
        """
        self._leadership.withdraw(session)
        if session in self._sessions:
            self._sessions[session].leads = False
        self._update_statistics()

    def touch(self, session: Session) -> None:
        """Record that a message of a session has arrived now, so that its master is not silent."""
        session.last_heard = self._leadership.clock()

    def _register(self, session: Session, traffic: StreamTraffic) -> None:
        """Add a new stream; if too many streams have sent no snapshot yet, end the oldest one.

        Args:
            session: The new stream.
            traffic: Bytes of the stream's messages, and whether its master leads.
        """
        strangers = [stream for stream in self._sessions if not stream.admitted]
        if len(strangers) >= MAX_STREAMS_WITHOUT_SNAPSHOT:
            self._end(
                strangers[0], "this stream sent no snapshot, and other masters wait; connect again"
            )
        self._sessions[session] = traffic

    def _log_opened(self, session: Session) -> None:
        """Log the opening of a session, once its Hello has arrived, and count the session."""
        hello = session.hello
        self._statistics.sessions += 1
        _log.info(
            "session opened",
            master=hello.master,
            mesos=hello.mesos_version,
            certificate=session.certificate,
        )
        self._update_statistics()

    def _supersede(self, session: Session) -> None:
        """End the older streams of a session's master, because the master has connected again.

        Such a stream may still seem open, because the loss of its connection went unnoticed. The
        leader's stream stays open until the new stream is promoted.

        Args:
            session: The new stream.
        """
        for former in list(self._sessions):
            leads = former is self._leadership.leader
            if former is not session and not leads and same_master(former, session):
                self._end(former, f"superseded by a new stream of master {session.hello.master}")

    def _end(self, session: Session, reason: str) -> None:
        """End a stream with a reason for the peer, and remove it at once."""
        session.end(reason)
        self._remove(session)

    def _remove(self, session: Session) -> None:
        """Forget a stream that has ended, so that its master no longer leads or waits to lead."""
        session.closed = True
        traffic = self._sessions.pop(session, None)
        if traffic is not None:
            traffic.leads = False
        self.demote(session)

    def _update_statistics(self) -> None:
        """Update the numbers of leading and standby masters in the statistics."""
        self._statistics.lead(connected=self._leadership.leader is not None)
        greeted = sum(bool(session.hello.contract_version) for session in self._sessions)
        self._statistics.standby = greeted - self._statistics.connected


def _close(context: Context, code: grpc.StatusCode, reason: str) -> None:
    """Set the final status of a stream; the stream ends when its handler returns.

    This function does not use gRPC's own `abort`: gRPC would keep the exception in the call, and
    the exception would keep every stack frame that references a message.
    """
    context.set_code(code)
    context.set_details(reason)


class _Handlers(grpc.GenericRpcHandler):
    """Serves masters' streams, each with a handler of its own.

    Args:
        handler: Returns the handler of a new stream.
    """

    def __init__(self, handler: Callable[[], Any]) -> None:
        self._handler = handler

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return a handler for a new stream; None for other methods."""
        return self._handler() if handler_call_details.method == _METHOD else None


def _parser(
    most_parts: int, limits: Limits, traffic: StreamTraffic
) -> Callable[[bytes], contract.FromMaster | PendingMessage]:
    """Return gRPC's deserialiser for messages of masters.

    Short messages are parsed at once. For a long message the deserialiser returns a
    `PendingMessage`, which the session parses in cooperative steps.

    Args:
        most_parts: Maximum weight of a message, in parts of about a hundred bytes once parsed.
        limits: Bounds on the lists of one framework, for a message that is too heavy.
        traffic: Counts the bytes of messages.
    """

    def parse(data: bytes) -> contract.FromMaster | PendingMessage:
        traffic.note_received(len(data))
        if len(data) > wire.MAX_STEP_BYTES:
            return wire.parse_in_steps(data, most_parts, limits)
        try:
            return contract.FromMaster.FromString(data)
        except DecodeError:  # perhaps because of text that is not UTF-8
            pass
        try:
            return wire.parse(data, most_parts, limits)
        except wire.WireError:  # the session parses again, and reports it
            return wire.parse_in_steps(data, most_parts, limits)

    return parse


def serialised(reply: Reply) -> bytes:
    """Return the serialised `ToMaster` message that a reply stands for."""
    if isinstance(reply, contract.ToMaster):
        return reply.SerializeToString()
    decisions = reply.SerializeToString()
    return b"".join((_DECISIONS_TAG, wire.varint(len(decisions)), decisions))


def _serialiser(traffic: StreamTraffic) -> Callable[[Reply], bytes]:
    """Return gRPC's serialiser for messages to a master, which counts their bytes.

    Args:
        traffic: Counts the bytes of messages.
    """

    def serialise(reply: Reply) -> bytes:
        data = serialised(reply)
        traffic.note_sent(len(data))
        return data

    return serialise
